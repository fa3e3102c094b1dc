#include "server_kit.h"

#include "clocks.h"
#include "give_up.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A pause between requests lets the server finish what it does after its answer. */
#define PAUSE_US 200

const char *kit_dir = ".";

struct connection {
    int request[2];
    int answer[2];
};

int kit_read(int fd, void *buffer, uint32_t length)
{
    uint32_t got = 0;
    while (got < length) {
        ssize_t n = read(fd, (char *)buffer + got, length - got);
        if (n < 0)
            give_up("read from", "a pipe");
        if (n == 0)
            return 0;
        got += (uint32_t)n;
    }
    return 1;
}

void kit_write(int fd, const void *buffer, uint32_t length)
{
    uint32_t put = 0;
    while (put < length) {
        ssize_t n = write(fd, (const char *)buffer + put, length - put);
        if (n < 0)
            give_up("write to", "a pipe");
        put += (uint32_t)n;
    }
}

void kit_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        give_up("pin a thread to", "a CPU");
}

int kit_fork(void)
{
    pid_t pid = fork();
    if (pid < 0)
        give_up("fork", "a helper");
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

void kit_kill(const int *pids, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

/* Page faults of the log would be found in the requests. */
static void populate(struct kit_row *rows, size_t bytes)
{
    if (madvise(rows, bytes, MADV_POPULATE_WRITE) < 0)
        give_up("populate", "the log");
}

static void ask(const struct kit_case *injected, const struct connection *to, unsigned requests,
                struct kit_row *rows)
{
    uint32_t length = injected->request_bytes ? injected->request_bytes : sizeof(uint32_t);
    uint32_t *frame = calloc(1, length), answer;
    const unsigned pause_us = injected->pause_us ? injected->pause_us : PAUSE_US;
    const struct timespec pause = {.tv_nsec = pause_us * 1000l};

    if (!frame)
        give_up("allocate", "a request");
    memset(frame, 1, length);
    for (uint32_t seq = 0; seq < requests; seq++) {
        frame[0] = seq;
        rows[seq].start_ns = clock_ns();
        kit_write(to->request[1], frame, length);
        rows[seq].written_ns = clock_ns();
        int got = kit_read(to->answer[0], &answer, sizeof answer);
        rows[seq].end_ns = clock_ns();
        if (!got || answer != seq) {
            fprintf(stderr, "inject: request %u has no answer\n", seq);
            exit(UNUSABLE);
        }
        if (injected->clients <= 1)
            nanosleep(&pause, NULL);
    }
    free(frame);
}

/* The next connection with a request; -1 when all clients have left. */
static int next(struct pollfd *polled, unsigned clients, unsigned *turn)
{
    /* With a single client there is no need to look where the request comes from. */
    if (clients == 1)
        return 0;
    for (;;) {
        bool any = false;
        for (unsigned i = 0; i < clients; i++) {
            unsigned at = (*turn + i) % clients;
            if (polled[at].revents & POLLIN) {
                polled[at].revents = 0;
                *turn = at + 1;
                return (int)at;
            }
            if (polled[at].revents)
                polled[at].fd = -1;
            polled[at].revents = 0;
            any |= polled[at].fd >= 0;
        }
        if (!any)
            return -1;
        if (poll(polled, clients, -1) < 0)
            give_up("wait for", "requests");
    }
}

static void serve(const struct kit_case *injected, struct connection *from, unsigned clients,
                  unsigned requests, struct kit_row *rows)
{
    struct pollfd polled[KIT_CLIENTS];
    unsigned turn = 0;
    uint32_t seq;

    for (unsigned i = 0; i < clients; i++)
        polled[i] = (struct pollfd){.fd = from[i].request[0], .events = POLLIN};
    for (int at; (at = next(polled, clients, &turn)) >= 0;) {
        uint64_t begun_ns = clock_ns();
        if (!kit_read(from[at].request[0], &seq, sizeof seq))
            break;
        struct kit_request request = {
            .seq = seq,
            .fd = from[at].request[0],
            .row = &rows[(unsigned)at * requests + seq],
        };
        /* A case may want to know; it overwrites what it does not. */
        request.row->truth[0] = begun_ns;
        injected->handle(&request);
        kit_write(from[at].answer[1], &seq, sizeof seq);
        if (injected->clean)
            injected->clean(&request);
    }
}

/* Each process keeps its own ends only: a pipe reports end of file when no writer is left. */
static void keep(struct connection *connections, unsigned clients, int client)
{
    for (unsigned i = 0; i < clients; i++) {
        if (client >= 0) {
            close(connections[i].request[0]);
            close(connections[i].answer[1]);
        }
        if (client != (int)i) {
            close(connections[i].request[1]);
            close(connections[i].answer[0]);
        }
    }
}

static void write_log(FILE *log, const char *path, const struct kit_case *injected,
                      const struct kit_row *rows, unsigned clients, const int *pids,
                      unsigned requests)
{
    fprintf(log, "client_pid,seq,start_ns,written_ns,end_ns");
    for (unsigned i = 0; i < KIT_TRUTHS && injected->truths[i]; i++)
        fprintf(log, ",%s", injected->truths[i]);
    fprintf(log, "\n");
    for (unsigned client = 0; client < clients; client++) {
        for (unsigned seq = 0; seq < requests; seq++) {
            const struct kit_row *row = &rows[client * requests + seq];
            fprintf(log, "%d,%u,%llu,%llu,%llu", pids[client], seq,
                    (unsigned long long)row->start_ns, (unsigned long long)row->written_ns,
                    (unsigned long long)row->end_ns);
            for (unsigned i = 0; i < KIT_TRUTHS && injected->truths[i]; i++)
                fprintf(log, ",%llu", (unsigned long long)row->truth[i]);
            fprintf(log, "\n");
        }
    }
    bool failed_before = ferror(log);
    if (fclose(log) == EOF || failed_before)
        give_up("write", path);
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
    struct connection connections[KIT_CLIENTS];
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
        if (pipe(connections[i].request) < 0 || pipe(connections[i].answer) < 0)
            give_up("open", "a pipe");

    server = kit_fork();
    if (server == 0) {
        keep(connections, clients, -1);
        fclose(log);
        populate(rows, bytes);
        if (injected->set_up)
            injected->set_up();
        kit_write(ready[1], &byte, 1);
        serve(injected, connections, clients, requests, rows);
        if (injected->tear_down)
            injected->tear_down();
        _exit(0);
    }
    kit_read(ready[0], &byte, 1);
    for (unsigned i = 1; i < clients; i++) {
        pids[i] = kit_fork();
        if (pids[i] == 0) {
            keep(connections, clients, (int)i);
            populate(rows, bytes);
            ask(injected, &connections[i], requests, rows + i * requests);
            _exit(0);
        }
    }
    keep(connections, clients, 0);
    populate(rows, bytes);
    ask(injected, &connections[0], requests, rows);
    close(connections[0].request[1]);
    for (unsigned i = 1; i < clients; i++)
        join(pids[i], "client");
    join(server, "server");
    write_log(log, path, injected, rows, clients, pids, requests);
}
