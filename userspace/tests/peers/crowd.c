/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Many tasks at once, or processes one after another.
 *   crowd threads N ROUNDS   N threads send ROUNDS requests each to N threads of another process
 *   crowd forks N            N processes, one after another, which do nothing
 *   crowd execs N PROGRAM    the same, but each executes PROGRAM
 *   crowd same N TID PROGRAM the same, and all have process id TID
 *   crowd rival TID          a process with id TID whenever the id is free; each calls getppid() a
 *                            few times; until standard input ends
 * Prints the number of answers, or of processes that ended.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long rounds;

static void *serve(void *end)
{
    char byte;
    while (read((long)end, &byte, 1) == 1 && write((long)end, &byte, 1) == 1)
        ;
    close((long)end);
    return 0;
}

static void *ask(void *end)
{
    char byte = 'x';
    long right = 0;
    for (long i = 0; i < rounds; i++)
        right += write((long)end, &byte, 1) == 1 && read((long)end, &byte, 1) == 1;
    close((long)end);
    return (void *)right;
}

/* Starts a thread for each of one process's socket ends, and adds up what the threads return. */
static long threads_of(long pairs, int (*ends)[2], int own, void *(*does)(void *))
{
    pthread_t *threads = calloc(pairs, sizeof(*threads));
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (long i = 0; i < pairs; i++) {
        close(ends[i][!own]);
        if (pthread_create(&threads[i], &small, does, (void *)(long)ends[i][own]))
            errx(1, "no thread %ld", i);
    }
    long sum = 0;
    for (long i = 0; i < pairs; i++) {
        void *one;
        pthread_join(threads[i], &one);
        sum += (long)one;
    }
    return sum;
}

static long threads(long pairs)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int(*ends)[2] = calloc(pairs, sizeof(*ends));
    for (long i = 0; i < pairs; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]))
            err(1, "pair %ld", i);
    pid_t pid = fork();
    if (pid < 0)
        err(1, "fork");
    if (!pid) {
        threads_of(pairs, ends, 0, serve);
        _exit(0);
    }
    long right = threads_of(pairs, ends, 1, ask);
    waitpid(pid, 0, 0);
    return right;
}

static long forks(long processes, char **command)
{
    long ended = 0;
    for (long i = 0; i < processes; i++) {
        pid_t pid = fork();
        if (pid < 0)
            err(1, "fork");
        if (!pid) {
            if (command)
                execv(command[0], command);
            _exit(command ? 127 : 0);
        }
        int status;
        ended += waitpid(pid, &status, 0) == pid && status == 0;
    }
    return ended;
}

/* As fork(), with this process id. Returns -1 if the id is in use. */
static pid_t fork_as(pid_t tid)
{
    struct clone_args how = {
        .exit_signal = SIGCHLD,
        .set_tid = (uintptr_t)&tid,
        .set_tid_size = 1,
    };
    pid_t pid = syscall(SYS_clone3, &how, sizeof(how));
    if (pid < 0 && errno != EEXIST)
        err(1, "a process of number %d", tid);
    return pid;
}

static long same(long processes, pid_t tid, char **command)
{
    long ended = 0;
    for (long i = 0; i < processes; i++) {
        pid_t pid;
        while ((pid = fork_as(tid)) < 0)
            sched_yield();
        if (!pid) {
            execv(command[0], command);
            _exit(127);
        }
        int status;
        ended += waitpid(pid, &status, 0) == tid && status == 0;
    }
    return ended;
}

static long rival(pid_t tid)
{
    struct pollfd input = {.fd = 0, .events = POLLIN};
    long had = 0;
    while (poll(&input, 1, 0) == 0) {
        pid_t pid = fork_as(tid);
        if (!pid) {
            for (int i = 0; i < 20; i++) {
                syscall(SYS_getppid);
                sched_yield();
            }
            _exit(0);
        }
        had += pid > 0 && waitpid(pid, 0, 0) == tid;
        sched_yield();
    }
    return had;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "threads")) {
        rounds = atol(argv[3]);
        printf("%ld\n", threads(atol(argv[2])));
    } else if (argc == 3 && !strcmp(argv[1], "forks")) {
        printf("%ld\n", forks(atol(argv[2]), 0));
    } else if (argc == 4 && !strcmp(argv[1], "execs")) {
        printf("%ld\n", forks(atol(argv[2]), argv + 3));
    } else if (argc == 5 && !strcmp(argv[1], "same")) {
        printf("%ld\n", same(atol(argv[2]), atol(argv[3]), argv + 4));
    } else if (argc == 3 && !strcmp(argv[1], "rival")) {
        printf("%ld\n", rival(atol(argv[2])));
    } else {
        errx(2, "usage: crowd threads N ROUNDS | forks N | execs N PROGRAM | same N TID PROGRAM |"
                " rival TID");
    }
}
