/*
 * waits_pair ROUNDS: a client sends requests to a server over pipes, ROUNDS times for each wait in
 * the list. The server waits in that way for 5 ms, or for a thread or child that computes or holds
 * a lock for 5 ms, and answers. Prints the letters of the waits in the order of the requests.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPAN_NS 5000000L
#define LARGE_BYTES (128L << 20) /* writing them takes a multiple of SPAN_NS */

static const char letters[] = "ntpTEsevfSmrichzwWk";

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, pi_mutex;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t condition_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int ready;
static sem_t go, held, done;
static int event_fd, signal_fd, file_fd, result_pipe[2];
static char *large;
static char job;
static int helper_tid;

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(1);
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void compute(void)
{
    uint64_t begin_ns = cpu_ns();
    while (cpu_ns() - begin_ns < SPAN_NS)
        for (volatile int i = 0; i < 1000; i++)
            ;
}

static void nap(void)
{
    struct timespec span = {.tv_nsec = SPAN_NS};
    nanosleep(&span, NULL);
}

static int timer(void)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec when = {.it_value.tv_nsec = SPAN_NS};
    check(fd < 0 || timerfd_settime(fd, 0, &when, NULL) < 0, "timerfd");
    return fd;
}

/* What the helper thread does for each job. */
static void *help(void *unused)
{
    uint64_t one = 1;
    helper_tid = gettid();
    sem_post(&held);
    for (;;) {
        sem_wait(&go);
        switch (job) {
        case 's':
            compute();
            kill(getpid(), SIGUSR1);
            break;
        case 'e':
            compute();
            check(write(event_fd, &one, sizeof one) < 0, "eventfd");
            break;
        case 'v':
        case 'f':
        case 'S':
            compute();
            check(write(result_pipe[1], &one, 1) < 0, "pipe");
            break;
        case 'm':
            pthread_mutex_lock(&mutex);
            sem_post(&held);
            nap();
            pthread_mutex_unlock(&mutex);
            break;
        case 'r':
            pthread_rwlock_wrlock(&rwlock);
            sem_post(&held);
            nap();
            pthread_rwlock_unlock(&rwlock);
            break;
        case 'i':
            pthread_mutex_lock(&pi_mutex);
            sem_post(&held);
            nap();
            pthread_mutex_unlock(&pi_mutex);
            break;
        case 'k':
            sem_post(&held);
            check(pwrite(file_fd, large, LARGE_BYTES, 0) != LARGE_BYTES, "write");
            break;
        case 'c':
            compute();
            pthread_mutex_lock(&condition_mutex);
            ready = 1;
            pthread_cond_signal(&condition);
            pthread_mutex_unlock(&condition_mutex);
            break;
        case 'h':
            compute();
            sem_post(&done);
            break;
        }
    }
    return unused;
}

/* Puts both threads on one CPU, where a thread that wants a kernel lock cannot spin for it; or
 * lets them run anywhere. */
static void together(int yes)
{
    static cpu_set_t all;
    cpu_set_t one;
    if (yes)
        check(sched_getaffinity(0, sizeof all, &all) < 0, "affinity");
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    check(sched_setaffinity(0, sizeof one, yes ? &one : &all) < 0 ||
              sched_setaffinity(helper_tid, sizeof one, yes ? &one : &all) < 0,
          "affinity");
}

static void wait_as(char letter)
{
    uint64_t number;
    struct signalfd_siginfo info;
    struct pollfd polled = {.fd = result_pipe[0], .events = POLLIN};
    struct epoll_event event = {.events = EPOLLIN};
    fd_set set;
    int fd;
    pid_t child;
    char byte;

    job = letter;
    switch (letter) {
    case 'n':
        nap();
        break;
    case 't': /* a timer's descriptor, read */
        fd = timer();
        check(read(fd, &number, sizeof number) < 0, "read a timer");
        close(fd);
        break;
    case 'p': /* nothing becomes ready */
        poll(&polled, 1, 5);
        break;
    case 'T':
        polled.fd = fd = timer();
        poll(&polled, 1, -1);
        close(fd);
        break;
    case 'E':
        fd = epoll_create1(0);
        polled.fd = timer();
        epoll_ctl(fd, EPOLL_CTL_ADD, polled.fd, &event);
        epoll_wait(fd, &event, 1, -1);
        close(polled.fd);
        close(fd);
        break;
    case 's':
        sem_post(&go);
        check(read(signal_fd, &info, sizeof info) < 0, "read a signal");
        break;
    case 'e':
        sem_post(&go);
        check(read(event_fd, &number, sizeof number) < 0, "read an event");
        break;
    case 'v':
        sem_post(&go);
        poll(&polled, 1, -1);
        check(read(result_pipe[0], &byte, 1) < 0, "read");
        break;
    case 'f':
        sem_post(&go);
        fd = epoll_create1(0);
        epoll_ctl(fd, EPOLL_CTL_ADD, result_pipe[0], &event);
        epoll_wait(fd, &event, 1, -1);
        check(read(result_pipe[0], &byte, 1) < 0, "read");
        close(fd);
        break;
    case 'S':
        sem_post(&go);
        FD_ZERO(&set);
        FD_SET(result_pipe[0], &set);
        select(result_pipe[0] + 1, &set, NULL, NULL, NULL);
        check(read(result_pipe[0], &byte, 1) < 0, "read");
        break;
    case 'm':
        sem_post(&go);
        sem_wait(&held);
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
        break;
    case 'r':
        sem_post(&go);
        sem_wait(&held);
        pthread_rwlock_rdlock(&rwlock);
        pthread_rwlock_unlock(&rwlock);
        break;
    case 'i':
        sem_post(&go);
        sem_wait(&held);
        pthread_mutex_lock(&pi_mutex);
        pthread_mutex_unlock(&pi_mutex);
        break;
    case 'c':
        pthread_mutex_lock(&condition_mutex);
        ready = 0;
        sem_post(&go);
        while (!ready)
            pthread_cond_wait(&condition, &condition_mutex);
        pthread_mutex_unlock(&condition_mutex);
        break;
    case 'k': /* the other thread is in the middle of a long write to the same file */
        together(1);
        sem_post(&go);
        sem_wait(&held);
        usleep(100);
        check(pwrite(file_fd, "", 1, 0) != 1, "write");
        together(0);
        break;
    case 'h': /* FUTEX_WAIT_BITSET, as for all semaphores */
        sem_post(&go);
        sem_wait(&done);
        break;
    case 'z': { /* a futex that is never woken */
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SPAN_NS;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        sem_timedwait(&done, &until);
        break;
    }
    case 'w':
    case 'W':
        child = fork();
        if (child == 0) {
            compute();
            _exit(0);
        }
        if (letter == 'w') {
            siginfo_t ended;
            waitid(P_PID, child, &ended, WEXITED);
        } else {
            waitpid(child, NULL, 0);
        }
        break;
    }
}

/* Waits until the helper thread sleeps: only then does handing it a job cause a recorded
 * wake-up. */
static void settle(void)
{
    char path[64], line[256], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", helper_tid);
    while (state != 'S') {
        if (state)
            usleep(100);
        FILE *file = fopen(path, "r");
        check(!file || !fgets(line, sizeof line, file), path);
        fclose(file);
        state = strrchr(line, ')')[2];
    }
}

static void serve(int in, int out)
{
    pthread_t helper;
    pthread_mutexattr_t attributes;
    sigset_t signals;
    char letter;

    sem_init(&go, 0, 0);
    sem_init(&held, 0, 0);
    sem_init(&done, 0, 0);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&pi_mutex, &attributes);
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    event_fd = eventfd(0, 0);
    signal_fd = signalfd(-1, &signals, 0);
    file_fd = memfd_create("large", MFD_CLOEXEC);
    check(event_fd < 0 || signal_fd < 0 || file_fd < 0 || pipe(result_pipe) < 0, "descriptors");
    large = malloc(LARGE_BYTES);
    check(!large, "memory");
    memset(large, 1, LARGE_BYTES);
    check(pwrite(file_fd, large, LARGE_BYTES, 0) != LARGE_BYTES, "write");
    pthread_create(&helper, NULL, help, NULL);
    sem_wait(&held);
    settle();
    while (read(in, &letter, 1) == 1) {
        wait_as(letter);
        settle();
        check(write(out, &letter, 1) != 1, "answer");
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1, request[2], answer[2];
    char byte;

    check(pipe(request) < 0 || pipe(answer) < 0, "pipe");
    if (fork() == 0) {
        close(request[1]);
        close(answer[0]);
        serve(request[0], answer[1]);
    }
    close(request[0]);
    close(answer[1]);
    for (const char *letter = letters; *letter; letter++) {
        for (int round = 0; round < rounds; round++) {
            check(write(request[1], letter, 1) != 1, "ask");
            check(read(answer[0], &byte, 1) != 1, "read the answer");
            putchar(*letter);
        }
    }
    putchar('\n');
    close(request[1]);
    wait(NULL);
    return 0;
}
