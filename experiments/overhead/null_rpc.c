/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A byte there and a byte back: the smallest request, in which a tool's overhead shows best. Pairs
 * of processes, a client and a server each, over two pipes, a Unix socket pair or a TCP connection.
 * Each pair has its own CPU if there are enough. With placement by the scheduler, a pair sometimes
 * shares a CPU and sometimes has two that sleep in turns, with several times the latency.
 * Prints one line of JSON; times are CLOCK_MONOTONIC. The percentiles are those of the stretch of
 * requests at the first quartile: a quarter of all stretches was faster. Disturbances by neighbours
 * of a virtual machine come and go, a tool's overhead stays.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP 1000
#define MOST_PAIRS 64
#define STRETCH 1000

struct ends {
    int client_in, client_out, server_in, server_out;
};

struct result {
    uint64_t begin_ns, end_ns;
    uint32_t latency_ns[];
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static struct ends over_pipes(void)
{
    int there[2], back[2];
    if (pipe(there) || pipe(back))
        err(1, "pipe");
    return (struct ends){back[0], there[1], there[0], back[1]};
}

static struct ends over_unix(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        err(1, "socketpair");
    return (struct ends){pair[0], pair[0], pair[1], pair[1]};
}

static struct ends over_tcp(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, bytes) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) ||
        connect(client, (struct sockaddr *)&address, bytes))
        err(1, "tcp");
    int server = accept(listener, 0, 0), one = 1;
    if (server < 0)
        err(1, "accept");
    close(listener);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return (struct ends){client, client, server, server};
}

static void serve(const struct ends *ends)
{
    char byte;
    while (read(ends->server_in, &byte, 1) == 1)
        if (write(ends->server_out, &byte, 1) != 1)
            err(1, "server: write");
}

static void ask(const struct ends *ends, uint64_t requests, struct result *result)
{
    char byte = 'x';
    for (uint64_t i = 0; i < WARM_UP + requests; i++) {
        uint64_t begin_ns = now_ns();
        if (write(ends->client_out, &byte, 1) != 1 || read(ends->client_in, &byte, 1) != 1)
            err(1, "client");
        uint64_t end_ns = now_ns();
        if (i < WARM_UP)
            continue;
        if (i == WARM_UP)
            result->begin_ns = begin_ns;
        result->end_ns = end_ns;
        result->latency_ns[i - WARM_UP] = end_ns - begin_ns;
    }
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec +
           (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Pins this process and its later children to the next CPU in turn. */
static void take_turns(uint64_t pair)
{
    static cpu_set_t all;
    if (!CPU_COUNT(&all) && sched_getaffinity(0, sizeof(all), &all))
        err(1, "sched_getaffinity");
    uint64_t turn = pair % CPU_COUNT(&all);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && !turn--)
            CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one))
        err(1, "sched_setaffinity");
}

/* Both processes of a pair are children, so that the parent can wait for both. */
static void start(struct ends (*join)(void), uint64_t requests, struct result *result)
{
    struct ends ends = join();
    for (int client = 0; client < 2; client++) {
        pid_t pid = fork();
        if (pid < 0)
            err(1, "fork");
        if (pid)
            continue;
        /* Otherwise the server would never see the end of the connection. */
        close(client ? ends.server_in : ends.client_in);
        if (ends.client_in != ends.client_out)
            close(client ? ends.server_out : ends.client_out);
        if (client)
            ask(&ends, requests, result);
        else
            serve(&ends);
        _exit(0);
    }
    close(ends.client_in), close(ends.server_in);
    if (ends.client_in != ends.client_out)
        close(ends.client_out), close(ends.server_out);
}

static int usage(const char *program)
{
    fprintf(stderr, "usage: %s [-t pipe|unix|tcp] [-n REQUESTS of each client] [-c PAIRS]\n",
            program);
    return 2;
}

int main(int argc, char **argv)
{
    struct ends (*join)(void) = over_pipes;
    uint64_t requests = 50000, pairs = 1;
    for (int option; (option = getopt(argc, argv, "t:n:c:")) != -1;) {
        if (option == 'n')
            requests = strtoull(optarg, 0, 10);
        else if (option == 'c')
            pairs = strtoull(optarg, 0, 10);
        else if (option == 't' && !strcmp(optarg, "unix"))
            join = over_unix;
        else if (option == 't' && !strcmp(optarg, "tcp"))
            join = over_tcp;
        else if (option != 't' || strcmp(optarg, "pipe"))
            return usage(argv[0]);
    }
    if (optind < argc || requests < STRETCH || !pairs || pairs > MOST_PAIRS)
        return usage(argv[0]);

    size_t bytes = sizeof(struct result) + requests * sizeof(uint32_t);
    bytes = (bytes + 4095) & ~4095UL;
    char *results = mmap(0, bytes * pairs, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    uint64_t stretches = requests / STRETCH;
    uint32_t *p50_ns = malloc(stretches * pairs * sizeof(uint32_t));
    uint32_t *p99_ns = malloc(stretches * pairs * sizeof(uint32_t));
    if (results == MAP_FAILED || !p50_ns || !p99_ns)
        err(1, "memory");
    for (uint64_t i = 0; i < pairs; i++) {
        take_turns(i);
        start(join, requests, (struct result *)(results + i * bytes));
    }
    for (int status; wait(&status) > 0;)
        if (status)
            errx(1, "a client or server failed");

    uint64_t begin_ns = UINT64_MAX, end_ns = 0, all_stretches = 0;
    for (uint64_t i = 0; i < pairs; i++) {
        struct result *result = (struct result *)(results + i * bytes);
        for (uint64_t j = 0; j < stretches; j++) {
            uint32_t *stretch = result->latency_ns + j * STRETCH;
            qsort(stretch, STRETCH, sizeof(*stretch), by_value);
            p50_ns[all_stretches] = stretch[STRETCH / 2];
            p99_ns[all_stretches++] = stretch[STRETCH / 100 * 99];
        }
        begin_ns = result->begin_ns < begin_ns ? result->begin_ns : begin_ns;
        end_ns = result->end_ns > end_ns ? result->end_ns : end_ns;
    }
    uint64_t all = requests * pairs;
    qsort(p50_ns, all_stretches, sizeof(*p50_ns), by_value);
    qsort(p99_ns, all_stretches, sizeof(*p99_ns), by_value);
    printf("{\"requests\": %lu, \"all_requests\": %lu, \"begin_ns\": %lu, \"end_ns\": %lu, "
           "\"p50_ns\": %u, \"p99_ns\": %u, \"cpu_s\": %.6f}\n",
           all, all + pairs * WARM_UP, begin_ns, end_ns, p50_ns[all_stretches / 4],
           p99_ns[all_stretches / 4], cpu_seconds());
}
