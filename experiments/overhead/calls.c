/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Makes system calls that do nothing, as fast as possible or with a pause before each: as many
 * events as a program can cause. Prints the processes' total number of calls, and the longest time
 * of any call.
 */
#define _GNU_SOURCE
#include <err.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_PROCESSES 64

struct result {
    uint64_t calls;
    uint64_t longest_ns;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void call(uint64_t until_ns, uint64_t pause_ns, struct result *result)
{
    for (uint64_t before_ns = now_ns(); before_ns < until_ns;) {
        syscall(SYS_getppid);
        result->calls++;
        uint64_t after_ns = now_ns();
        if (after_ns - before_ns > result->longest_ns)
            result->longest_ns = after_ns - before_ns;
        for (before_ns = after_ns; before_ns < after_ns + pause_ns;)
            before_ns = now_ns();
    }
}

int main(int argc, char **argv)
{
    uint64_t processes = 1, pause_ns = 0, milliseconds = 1000;
    for (int option; (option = getopt(argc, argv, "c:p:m:")) != -1;) {
        if (option == 'c')
            processes = strtoull(optarg, 0, 10);
        else if (option == 'p')
            pause_ns = strtoull(optarg, 0, 10);
        else if (option == 'm')
            milliseconds = strtoull(optarg, 0, 10);
        else
            processes = 0;
    }
    if (optind < argc || !processes || processes > MOST_PROCESSES) {
        fprintf(stderr, "usage: %s [-c PROCESSES] [-p PAUSE_NS] [-m MILLISECONDS]\n", argv[0]);
        return 2;
    }
    struct result *results = mmap(0, sizeof(*results) * MOST_PROCESSES, PROT_READ | PROT_WRITE,
                                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED)
        err(1, "memory");
    uint64_t begin_ns = now_ns();
    for (uint64_t i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0)
            err(1, "fork");
        if (!pid) {
            call(begin_ns + milliseconds * 1000000, pause_ns, &results[i]);
            _exit(0);
        }
    }
    while (wait(0) > 0)
        ;
    struct result all = {0, 0};
    for (uint64_t i = 0; i < processes; i++) {
        all.calls += results[i].calls;
        if (results[i].longest_ns > all.longest_ns)
            all.longest_ns = results[i].longest_ns;
    }
    printf("{\"calls\": %lu, \"seconds\": %.3f, \"longest_ns\": %lu}\n", all.calls,
           milliseconds / 1e3, all.longest_ns);
}
