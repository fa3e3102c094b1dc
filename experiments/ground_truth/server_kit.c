#include "server_kit.h"

#include "cases.h"
#include "give_up.h"
#include "kit_io.h"
#include "kit_log.h"
#include "kit_serve.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A pause between requests lets the server finish its work after its answer. */
#define PAUSE_US 200

const char *kit_dir = ".";
enum transport kit_transport = TRANSPORT_PIPE;

uint32_t kit_length(const struct kit_case *injected, unsigned seq)
{
    if (injected->most_bytes == 0)
        return sizeof(uint32_t);
    if (injected->least_bytes == 0)
        return injected->most_bytes;
    return (uint32_t)vary(seq, injected->least_bytes, injected->most_bytes);
}

/* Populates the log, whose page faults would otherwise be part of the requests. */
static void populate(struct kit_row *rows, size_t bytes)
{
    if (madvise(rows, bytes, MADV_POPULATE_WRITE) < 0)
        give_up("populate", "the log");
}

static void ask_one(const struct kit_case *injected, struct ends to, uint32_t *frame,
                    struct kit_row *row)
{
    bool watch = injected->watch;
    uint32_t length = kit_length(injected, frame[0]), answer;
    struct usage before = {0}, written = {0};

    if (watch)
        before = usage_before();
    row->start_ns = clock_ns();
    kit_write(to.out, frame, length);
    uint64_t written_ns = clock_ns();
    if (watch)
        written = usage_after();
    /* The server may spin until this is set. */
    *(volatile uint64_t *)&row->written_ns = written_ns;
    if (injected->ask_late_us) {
        const struct timespec late = {.tv_nsec = injected->ask_late_us * 1000l};
        nanosleep(&late, NULL);
    }
    row->asked_ns = clock_ns();
    int got = kit_read(to.in, &answer, sizeof answer);
    row->end_ns = clock_ns();
    if (!got || answer != frame[0]) {
        fprintf(stderr, "inject: request %u has no answer\n", frame[0]);
        exit(UNUSABLE);
    }
    if (watch) {
        row->write = usage_between(before, written);
        row->read = usage_between(written, usage_after());
    }
}

static void ask(const struct kit_case *injected, struct ends to, unsigned requests,
                struct kit_row *rows)
{
    uint32_t most = injected->most_bytes ? injected->most_bytes : sizeof(uint32_t);
    uint32_t *frame = calloc(1, most);
    const unsigned pause_us = injected->pause_us ? injected->pause_us : PAUSE_US;
    const struct timespec pause = {.tv_nsec = pause_us * 1000l};

    if (!frame)
        give_up("allocate", "a request");
    memset(frame, 1, most);
    for (uint32_t seq = 0; seq < requests; seq++) {
        frame[0] = seq;
        ask_one(injected, to, frame, &rows[seq]);
        if (injected->clients <= 1)
            nanosleep(&pause, NULL);
    }
    free(frame);
}

/* Each process keeps only its own ends, so that it sees when the other process has left. */
static void keep(const struct channel *channels, unsigned clients, int client)
{
    for (unsigned i = 0; i < clients; i++) {
        if (client >= 0)
            transport_close(channels[i].server);
        if (client != (int)i)
            transport_close(channels[i].client);
    }
}

static void pin_apart(const struct kit_case *injected, int cpu)
{
    if (injected->apart && sysconf(_SC_NPROCESSORS_ONLN) > 1)
        kit_pin(cpu);
}

static void join(int pid, const char *who)
{
    int status;
    if (waitpid(pid, &status, 0) < 0)
        give_up("wait for", who);
    if (status != 0) {
        fprintf(stderr, "inject: the %s ended with wait status %#x\n", who, (unsigned)status);
        exit(UNUSABLE);
    }
}

void kit_run(const struct kit_case *injected, unsigned requests, const char *path)
{
    unsigned clients = injected->clients ? injected->clients : 1;
    size_t bytes = (size_t)clients * requests * sizeof(struct kit_row);
    struct channel channels[KIT_CLIENTS];
    int pids[KIT_CLIENTS] = {getpid()}, server, ready[2];
    char byte = 0;

    FILE *log = fopen(path, "we");
    if (!log)
        give_up("open", path);
    struct kit_row *rows =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (rows == MAP_FAILED)
        give_up("allocate", "the log");
    if (pipe(ready) < 0)
        give_up("open", "a pipe");
    for (unsigned i = 0; i < clients; i++)
        transport_open(&channels[i], kit_transport, injected->buffer_bytes);

    server = kit_fork();
    if (server == 0) {
        keep(channels, clients, -1);
        fclose(log);
        populate(rows, bytes);
        pin_apart(injected, 1);
        if (injected->set_up)
            injected->set_up();
        kit_write(ready[1], &byte, 1);
        kit_serve(injected, channels, clients, requests, rows);
        if (injected->tear_down)
            injected->tear_down();
        _exit(0);
    }
    kit_read(ready[0], &byte, 1);
    for (unsigned i = 1; i < clients; i++) {
        pids[i] = kit_fork();
        if (pids[i] == 0) {
            keep(channels, clients, (int)i);
            populate(rows, bytes);
            ask(injected, channels[i].client, requests, rows + i * requests);
            _exit(0);
        }
    }
    keep(channels, clients, 0);
    populate(rows, bytes);
    pin_apart(injected, 0);
    ask(injected, channels[0].client, requests, rows);
    transport_close(channels[0].client);
    for (unsigned i = 1; i < clients; i++)
        join(pids[i], "client");
    join(server, "server");
    kit_log(log, path, injected, rows, clients, pids, requests);
}
