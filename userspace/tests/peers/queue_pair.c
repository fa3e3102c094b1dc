/*
 * queue_pair ROUNDS: a client on CPU 1 sends requests to a server on CPU 0, where a thread computes
 * that the server does not preempt. After 1 ms the client moves the server to its own CPU, and
 * waits for the answer.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPAN_NS 1000000

static atomic_int under_way, computing;

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(1);
    }
}

static void move_to(pid_t pid, int cpu)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    check(sched_setaffinity(pid, sizeof cpus, &cpus) < 0, "sched_setaffinity");
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Occupies CPU 0 while a request is in flight. */
static void *compute(void *unused)
{
    move_to(0, 0);
    for (;;) {
        while (atomic_load(&under_way))
            atomic_store(&computing, 1);
        atomic_store(&computing, 0);
        usleep(100);
    }
    return unused;
}

static void serve(int ask, int answer)
{
    struct sched_param none = {0};
    check(sched_setscheduler(0, SCHED_IDLE, &none) < 0, "sched_setscheduler");
    for (char byte; read(ask, &byte, 1) == 1;)
        check(write(answer, &byte, 1) != 1, "write");
    exit(0);
}

int main(int argc, char **argv)
{
    int ask[2], answer[2], rounds = argc > 1 ? atoi(argv[1]) : 0;
    pthread_t thread;
    char byte = 0;

    check(pipe(ask) < 0 || pipe(answer) < 0, "pipe");
    pid_t server = fork();
    check(server < 0, "fork");
    if (!server) {
        close(ask[1]);
        close(answer[0]);
        serve(ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    move_to(0, 1);
    check(pthread_create(&thread, NULL, compute, NULL) != 0, "pthread_create");
    while (rounds--) {
        move_to(server, 0);
        usleep(2000);
        atomic_store(&under_way, 1);
        while (!atomic_load(&computing))
            ;
        check(write(ask[1], &byte, 1) != 1, "write");
        for (uint64_t begin_ns = now_ns(); now_ns() - begin_ns < SPAN_NS;)
            ;
        move_to(server, 1);
        check(read(answer[0], &byte, 1) != 1, "read");
        atomic_store(&under_way, 0);
        while (atomic_load(&computing))
            ;
    }
    close(ask[1]);
    check(wait(NULL) != server, "wait");
    return 0;
}
