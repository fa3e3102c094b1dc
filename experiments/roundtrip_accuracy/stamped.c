/*
 * stamped: round trips between a client and a server process over two pipes, timed by the client
 * itself.  Its stamps are the reference for latencies measured from outside.
 */
#define _POSIX_C_SOURCE 200809L

#include "commlib.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Exit statuses other than 0. */
enum { SERVER_FAILED = 1, UNUSABLE = 2 };

#define MAX_ROUND_TRIPS 100000000
#define MAX_WORK_NS UINT64_C(60000000000)

struct options {
    size_t round_trips;
    size_t payload_bytes;
    uint64_t work_ns;
    const char *log;
};

struct stamps {
    uint64_t start_ns;
    uint64_t end_ns;
};

static const char help[] =
    "Usage: stamped -n N [-s PAYLOAD_BYTES] [-w WORK_NS] -l LOG\n"
    "\n"
    "Makes N round trips, one after the other, to a server process behind two pipes.\n"
    "\n"
    "  -n N      the number of round trips\n"
    "  -s BYTES  the size of the request and of the answer (default: 32)\n"
    "  -w NS     thread CPU time the server spends on each request (default: 0)\n"
    "  -l LOG    write seq,start_ns,end_ns to LOG when all is done: CLOCK_MONOTONIC\n"
    "            just before the request is written and just after the last read of\n"
    "            the answer; seq counts from 0\n"
    "  -h        print this help\n"
    "\n"
    "Exit status: 0, 1 if the server failed, 2 for wrong usage or other failures.\n";

static _Noreturn void give_up(const char *what, const char *name)
{
    fprintf(stderr, "stamped: cannot %s %s: %s\n", what, name, strerror(errno));
    exit(UNUSABLE);
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/*
 * Spends thread CPU time.  Reading that clock takes a system call, so the inner loop waits by
 * CLOCK_MONOTONIC, which needs none and never runs slower than the CPU clock.
 */
static void spin(uint64_t work_ns)
{
    if (work_ns == 0)
        return;
    uint64_t begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t spent = 0;
    while (spent < work_ns) {
        uint64_t until = now_ns(CLOCK_MONOTONIC) + work_ns - spent;
        while (now_ns(CLOCK_MONOTONIC) < until)
            ;
        spent = now_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
    }
}

/* Runs in the child: returns each request after the work until the client closes the connection. */
static int serve(int in, int out, const void *context)
{
    static char payload[COMM_MAX_PAYLOAD];
    const struct options *options = context;
    enum comm_status status;
    size_t length;

    while ((status = comm_receive(in, payload, sizeof payload, &length)) == COMM_OK) {
        spin(options->work_ns);
        status = comm_send(out, payload, length);
        if (status != COMM_OK)
            break;
    }
    if (status == COMM_CLOSED)
        return 0;
    fprintf(stderr, "stamped: server: %s\n", comm_describe(status));
    return 1;
}

static enum comm_status round_trip(const struct comm_peer *server, const char *request,
                                   char *answer, size_t length, struct stamps *stamps)
{
    size_t got = 0;

    stamps->start_ns = now_ns(CLOCK_MONOTONIC);
    enum comm_status status = comm_send(server->to, request, length);
    if (status == COMM_OK)
        status = comm_receive(server->from, answer, length, &got);
    stamps->end_ns = now_ns(CLOCK_MONOTONIC);
    return status;
}

/* Returns whether all round trips were made; otherwise prints the reason. */
static bool make_round_trips(const struct options *options, struct stamps *stamps)
{
    static char request[COMM_MAX_PAYLOAD], answer[COMM_MAX_PAYLOAD];
    struct comm_peer server;
    int status;

    memset(request, 'x', options->payload_bytes);
    if (comm_fork(&server, serve, options) < 0)
        give_up("start", "the server");
    /*
     * Touches the pages, so that no page fault falls into a round trip.  This is after the
     * fork, because a fork makes the first write to any page fault again.
     */
    memset(stamps, 0, options->round_trips * sizeof *stamps);
    memset(answer, 0, options->payload_bytes);
    bool good = true;
    for (size_t i = 0; good && i < options->round_trips; i++) {
        enum comm_status outcome =
            round_trip(&server, request, answer, options->payload_bytes, &stamps[i]);
        if (outcome != COMM_OK) {
            fprintf(stderr, "stamped: round trip %zu: %s\n", i, comm_describe(outcome));
            good = false;
        }
    }
    if (comm_join(&server, &status) < 0)
        give_up("wait for", "the server");
    if (WIFSIGNALED(status))
        fprintf(stderr, "stamped: the server was killed by signal %d\n", WTERMSIG(status));
    return good && status == 0;
}

static void write_log(FILE *log, const struct options *options, const struct stamps *stamps)
{
    fprintf(log, "seq,start_ns,end_ns\n");
    for (size_t i = 0; i < options->round_trips; i++)
        fprintf(log, "%zu,%llu,%llu\n", i, (unsigned long long)stamps[i].start_ns,
                (unsigned long long)stamps[i].end_ns);
    bool failed_before = ferror(log);
    if (fclose(log) == EOF || failed_before)
        give_up("write", options->log);
}

static uint64_t parse_number(char option, const char *text, uint64_t least, uint64_t most)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number < least || number > most) {
        fprintf(stderr, "stamped: -%c takes a number from %llu to %llu, not '%s'\n", option,
                (unsigned long long)least, (unsigned long long)most, text);
        exit(UNUSABLE);
    }
    return number;
}

static struct options parse_options(int argc, char **argv)
{
    struct options options = {.payload_bytes = 32};
    int c;
    while ((c = getopt(argc, argv, "n:s:w:l:h")) != -1) {
        switch (c) {
        case 'n':
            options.round_trips = parse_number('n', optarg, 1, MAX_ROUND_TRIPS);
            break;
        case 's':
            options.payload_bytes = parse_number('s', optarg, 0, COMM_MAX_PAYLOAD);
            break;
        case 'w':
            options.work_ns = parse_number('w', optarg, 0, MAX_WORK_NS);
            break;
        case 'l':
            options.log = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            exit(fflush(stdout) == EOF ? UNUSABLE : 0);
        default:
            exit(UNUSABLE);
        }
    }
    if (optind < argc || options.round_trips == 0 || !options.log) {
        fputs("stamped: -n and -l are required, and no other arguments\n", stderr);
        exit(UNUSABLE);
    }
    return options;
}

int main(int argc, char **argv)
{
    struct options options = parse_options(argc, argv);
    /* Opened at the start, so that a failure to open it shows before the measurement. */
    FILE *log = fopen(options.log, "w");
    if (!log)
        give_up("open", options.log);
    struct stamps *stamps = malloc(options.round_trips * sizeof *stamps);
    if (!stamps)
        give_up("allocate", "the stamps");

    signal(SIGPIPE, SIG_IGN);
    if (!make_round_trips(&options, stamps))
        return SERVER_FAILED;
    write_log(log, &options, stamps);
    free(stamps);
    return 0;
}
