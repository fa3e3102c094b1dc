/*
 * steady: clients that each exchange single bytes with a server, at a steady rate and for any time.
 * Keeps only the number of requests. Ends early at SIGTERM.
 */
#include "clocks.h"
#include "give_up.h"
#include "kit_io.h"
#include "transport.h"

#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PAIRS = 16 };

/* Sleeps only if this far ahead: a sleep before each request would be most of its cost. */
#define PACE_NS 1000000

static volatile sig_atomic_t over;

/* The first process that gets the signal sends it to the others. */
static void end(int number)
{
    if (!over) {
        over = 1;
        kill(0, number);
    }
}

static void serve(struct ends ends)
{
    char byte;
    while (kit_read(ends.in, &byte, 1))
        kit_write(ends.out, &byte, 1);
}

static void ask(struct ends ends, uint64_t until_ns, uint64_t per_second, uint64_t *requests)
{
    char byte = 'x';
    const uint64_t begin_ns = clock_ns();
    while (!over && clock_ns() < until_ns) {
        kit_write(ends.out, &byte, 1);
        if (!kit_read(ends.in, &byte, 1))
            give_up("get", "an answer");
        ++*requests;
        uint64_t due_ns = per_second ? begin_ns + *requests * 1000000000 / per_second : 0;
        if (due_ns > clock_ns() + PACE_NS) {
            struct timespec due = {(time_t)(due_ns / 1000000000), (long)(due_ns % 1000000000)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        }
    }
}

/* Each process keeps only its own ends; otherwise it would not see that the other has left. */
static void start(const struct channel *channels, unsigned pairs, unsigned pair, bool client,
                  uint64_t until_ns, uint64_t per_second, uint64_t *requests)
{
    if (kit_fork() != 0)
        return;
    for (unsigned other = 0; other < pairs; other++) {
        if (other != pair || client)
            transport_close(channels[other].server);
        if (other != pair || !client)
            transport_close(channels[other].client);
    }
    if (client)
        ask(channels[pair].client, until_ns, per_second, requests);
    else
        serve(channels[pair].server);
    _exit(0);
}

static int usage(void)
{
    fputs("usage: steady [-t pipe|unix|tcp] [-c PAIRS] [-s SECONDS] [-r REQUESTS a second of each "
          "pair; 0: all it can]\n",
          stderr);
    return UNUSABLE;
}

int main(int argc, char **argv)
{
    enum transport transport = TRANSPORT_PIPE;
    uint64_t pairs = 1, seconds = 10, per_second = 0;
    bool good = true;
    for (int option; (option = getopt(argc, argv, "t:c:s:r:")) != -1;) {
        if (option == 't')
            good &= transport_find(optarg, &transport);
        else if (option == 'c')
            pairs = strtoull(optarg, NULL, 10);
        else if (option == 's')
            seconds = strtoull(optarg, NULL, 10);
        else if (option == 'r')
            per_second = strtoull(optarg, NULL, 10);
        else
            good = false;
    }
    if (!good || optind < argc || !pairs || pairs > MOST_PAIRS)
        return usage();

    struct channel channels[MOST_PAIRS];
    uint64_t *requests = mmap(NULL, MOST_PAIRS * sizeof *requests, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (requests == MAP_FAILED)
        give_up("allocate", "the counts");
    setpgid(0, 0);
    signal(SIGTERM, end);
    for (unsigned i = 0; i < pairs; i++)
        transport_open(&channels[i], transport, 0);
    uint64_t begin_ns = clock_ns(), until_ns = begin_ns + seconds * 1000000000;
    for (unsigned i = 0; i < pairs; i++) {
        start(channels, pairs, i, false, until_ns, per_second, &requests[i]);
        start(channels, pairs, i, true, until_ns, per_second, &requests[i]);
    }
    for (unsigned i = 0; i < pairs; i++) {
        transport_close(channels[i].client);
        transport_close(channels[i].server);
    }
    bool failed = false;
    for (int status; wait(&status) >= 0;)
        failed |= status != 0;
    uint64_t all = 0;
    for (unsigned i = 0; i < pairs; i++)
        all += requests[i];
    printf("{\"requests\": %llu, \"seconds\": %.3f}\n", (unsigned long long)all,
           (double)(clock_ns() - begin_ns) / 1e9);
    return failed ? UNUSABLE : 0;
}
