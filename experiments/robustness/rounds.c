/*
 * rounds: clients that each make requests to a server as fast as they can, and log their stamps.
 *
 * A round is a new channel for each pair, or a new program for each request, so that a tracer loses
 * not only the middle of conversations but also their beginnings. The log is in shared memory and
 * written at the end, so that it takes no time of the requests.
 */
#include "clocks.h"
#include "give_up.h"
#include "kit_io.h"
#include "transport.h"

#include <getopt.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PAIRS = 16, MOST_DEPTH = 64 };

/* One request; stamps are CLOCK_MONOTONIC. */
struct row {
    uint64_t client_pid;
    uint64_t server_pid;
    uint64_t start_ns;     /* client: before it sent (or forked) */
    uint64_t written_ns;   /* client: after it sent (or forked) */
    uint64_t asked_ns;     /* client: before it read the answer (or waited) */
    uint64_t end_ns;       /* client: after it had it */
    uint64_t answering_ns; /* server: before it answered */
    uint64_t spun_ns;      /* server: CPU time of its injected work, by its thread's clock */
    uint64_t gaps_ns;      /* server: interruptions: interrupts, other threads, a hypervisor */
    uint64_t slept_ns;     /* server: requested, and therefore minimum, time of sleep */
};

/* A request's and an answer's format on the wire. */
struct protocol {
    const char *name;
    const char *ask, *answer; /* with room for a number of eight digits */
};

static const struct protocol protocols[] = {
    {"bytes", "%08u", "%08u"},
    {"http1", "GET /%08u HTTP/1.1\r\nHost: here\r\n\r\n",
     "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n%08u"},
    {"resp", "*2\r\n$4\r\nECHO\r\n$8\r\n%08u\r\n", "$8\r\n%08u\r\n"},
    {"exec", 0, 0},
    {0},
};

static const struct protocol *protocol = protocols;
static enum transport transport = TRANSPORT_PIPE;
static unsigned rounds = 1, requests = 1000, pairs = 1, depth = 1;
static uint64_t work_ns;
static bool works, begins_slowly;

/* A pseudo-random number that is the same in every run. */
static uint64_t scattered(uint64_t number, uint64_t below)
{
    number = (number + 1) * 0x9e3779b97f4a7c15;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
    return (number ^ (number >> 27)) % below;
}

/* Of eight requests, two spin, one sleeps, and the others are answered at once. */
static void work(unsigned seq, struct row *row)
{
    uint64_t kind = scattered(seq, 8), ns = work_ns / 2 + scattered(seq + 1, work_ns / 2 + 1);
    if (!works || kind > 2)
        return;
    if (kind == 2) {
        nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
        row->slept_ns = ns;
        return;
    }
    struct spun spun = clock_spin(ns);
    row->spun_ns = spun.cpu_ns;
    row->gaps_ns = spun.gaps_ns;
}

static uint32_t in_full(char *text, const char *format, unsigned seq)
{
    return (uint32_t)sprintf(text, format, seq);
}

static void serve(struct ends ends, struct row *rows)
{
    char text[128];
    uint32_t asked = in_full(text, protocol->ask, 0);
    for (unsigned seq = 0; kit_read(ends.in, text, asked); seq++) {
        rows[seq].server_pid = (uint64_t)getpid();
        work(seq, &rows[seq]);
        uint32_t length = in_full(text, protocol->answer, seq);
        rows[seq].answering_ns = clock_ns();
        kit_write(ends.out, text, length);
    }
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

/* Makes `depth` requests at once; with a depth of 1, one after the other. */
static void ask(struct ends ends, struct row *rows)
{
    char text[128];
    if (begins_slowly)
        rest();
    for (unsigned first = 0; first < requests; first += depth) {
        unsigned end = first + depth < requests ? first + depth : requests;
        for (unsigned seq = first; seq < end; seq++) {
            uint32_t length = in_full(text, protocol->ask, seq);
            rows[seq].client_pid = (uint64_t)getpid();
            rows[seq].start_ns = clock_ns();
            kit_write(ends.out, text, length);
            rows[seq].written_ns = clock_ns();
        }
        for (unsigned seq = first; seq < end; seq++) {
            uint32_t length = in_full(text, protocol->answer, seq);
            rows[seq].asked_ns = clock_ns();
            if (!kit_read(ends.in, text, length))
                give_up("get", "an answer");
            rows[seq].end_ns = clock_ns();
        }
        if (begins_slowly && first == 0)
            rest();
    }
}

static void start_programs(struct row *rows)
{
    char *const argv[] = {"/bin/true", NULL};
    for (unsigned seq = 0; seq < requests; seq++) {
        int status;
        rows[seq].client_pid = (uint64_t)getpid();
        rows[seq].start_ns = clock_ns();
        pid_t pid = fork();
        if (pid < 0)
            give_up("fork", "a program");
        if (pid == 0) {
            rows[seq].answering_ns = clock_ns();
            execv(argv[0], argv);
            _exit(127);
        }
        rows[seq].written_ns = rows[seq].asked_ns = clock_ns();
        if (waitpid(pid, &status, 0) < 0 || status != 0)
            give_up("run", argv[0]);
        rows[seq].end_ns = clock_ns();
        rows[seq].server_pid = (uint64_t)pid;
    }
}

/* Both processes of each pair are children, so that the parent can wait for both. */
static void run_round(struct row *rows)
{
    struct channel channels[MOST_PAIRS];
    bool talks = protocol->ask != 0;
    unsigned started = 0;

    for (unsigned pair = 0; talks && pair < pairs; pair++)
        transport_open(&channels[pair], transport, 0);
    for (unsigned pair = 0; pair < pairs; pair++) {
        for (int client = 0; client < 2; client++) {
            if (!talks && !client)
                continue;
            started++;
            if (kit_fork() != 0)
                continue;
            struct row *own = rows + (size_t)pair * requests;
            /* Each keeps only its own ends; otherwise it would not see that the other has left. */
            for (unsigned other = 0; talks && other < pairs; other++) {
                if (other != pair || client)
                    transport_close(channels[other].server);
                if (other != pair || !client)
                    transport_close(channels[other].client);
            }
            if (!talks)
                start_programs(own);
            else if (client)
                ask(channels[pair].client, own);
            else
                serve(channels[pair].server, own);
            _exit(0);
        }
    }
    for (unsigned pair = 0; talks && pair < pairs; pair++) {
        transport_close(channels[pair].client);
        transport_close(channels[pair].server);
    }
    for (int status; started > 0; started--)
        if (wait(&status) < 0 || status != 0) {
            fprintf(stderr, "rounds: a client or server failed\n");
            exit(UNUSABLE);
        }
}

static void write_log(FILE *log, const struct row *rows, size_t count)
{
    fputs("round,seq,client_pid,server_pid,start_ns,written_ns,asked_ns,end_ns,answering_ns,"
          "spun_ns,gaps_ns,slept_ns\n",
          log);
    for (size_t i = 0; i < count; i++) {
        const uint64_t *values = &rows[i].client_pid;
        fprintf(log, "%zu,%zu", i / requests / pairs, i % requests);
        for (unsigned at = 0; at < sizeof(struct row) / sizeof *values; at++)
            fprintf(log, ",%llu", (unsigned long long)values[at]);
        fputc('\n', log);
    }
    bool failed_before = ferror(log);
    if (fclose(log) == EOF || failed_before)
        give_up("write", "the log");
}

static int usage(void)
{
    fputs(
        "usage: rounds [-p bytes|http1|resp|exec] [-t pipe|unix|tcp] [-c PAIRS] [-r ROUNDS]\n"
        "              [-n REQUESTS a client and round] [-d DEPTH] [-w MOST_WORK_NS] [-b] -l LOG\n"
        "  -b  rests before and after the first request of each client\n",
        stderr);
    return UNUSABLE;
}

static bool find_protocol(const char *name)
{
    for (protocol = protocols; protocol->name; protocol++)
        if (strcmp(protocol->name, name) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    bool good = true;
    for (int option; (option = getopt(argc, argv, "p:t:c:r:n:d:w:bl:")) != -1;) {
        if (option == 'p')
            good &= find_protocol(optarg);
        else if (option == 't')
            good &= transport_find(optarg, &transport);
        else if (option == 'c')
            pairs = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'r')
            rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'n')
            requests = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'd')
            depth = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 'w')
            work_ns = strtoull(optarg, NULL, 10);
        else if (option == 'b')
            begins_slowly = true;
        else if (option == 'l')
            path = optarg;
        else
            good = false;
    }
    if (!good || optind < argc || !path || !requests || !rounds || !pairs || pairs > MOST_PAIRS ||
        !depth || depth > MOST_DEPTH)
        return usage();
    works = work_ns > 0;

    FILE *log = fopen(path, "we");
    if (!log)
        give_up("open", path);
    size_t each = (size_t)pairs * requests, count = each * rounds;
    struct row *rows = mmap(NULL, count * sizeof *rows, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (rows == MAP_FAILED)
        give_up("allocate", "the log");
    for (unsigned round = 0; round < rounds; round++)
        run_round(rows + round * each);
    write_log(log, rows, count);
    return 0;
}
