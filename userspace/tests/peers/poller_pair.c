/*
 * poller_pair CALLS: a client calls a server by ONC RPC over TCP. One thread of the client reads
 * all replies, computes for a while, and wakes the thread that called. Prints a line for each call:
 * the time before the call, the time when the reader woke the caller, and the time when the caller
 * had the reply.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAST_FRAGMENT 0x80000000u
#define SPIN_NS 300000

enum { CALL_WORDS = 10, REPLY_WORDS = 6 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static uint32_t answered;
static uint64_t woken_ns;

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(1);
    }
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int receive(int fd, uint32_t *words, size_t count)
{
    return recv(fd, words, count * sizeof *words, MSG_WAITALL) == (ssize_t)(count * sizeof *words);
}

static void transmit(int fd, const uint32_t *words, size_t count)
{
    ssize_t bytes = count * sizeof *words;
    check(send(fd, words, bytes, 0) != bytes, "send");
}

static void serve(int listener)
{
    int fd = accept(listener, NULL, NULL);
    check(fd < 0, "accept");
    uint32_t call[1 + CALL_WORDS];
    while (receive(fd, call, 1 + CALL_WORDS)) {
        /* Gives the caller time to fall asleep. */
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        uint32_t reply[1 + REPLY_WORDS] = {htonl(LAST_FRAGMENT | REPLY_WORDS * 4), call[1],
                                           htonl(1)};
        transmit(fd, reply, 1 + REPLY_WORDS);
    }
    exit(0);
}

static void *read_replies(void *argument)
{
    int fd = *(int *)argument;
    uint32_t reply[1 + REPLY_WORDS];
    while (receive(fd, reply, 1 + REPLY_WORDS)) {
        uint64_t begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
        while (now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns < SPIN_NS)
            ;
        pthread_mutex_lock(&mutex);
        answered = ntohl(reply[1]);
        woken_ns = now_ns(CLOCK_MONOTONIC);
        pthread_cond_signal(&condition);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: poller_pair CALLS\n");
        return 2;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    check(listener < 0 || bind(listener, (void *)&address, length) < 0 || listen(listener, 1) < 0 ||
              getsockname(listener, (void *)&address, &length) < 0,
          "listen");
    pid_t server = fork();
    check(server < 0, "fork");
    if (server == 0)
        serve(listener);
    close(listener);

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(fd < 0 || connect(fd, (void *)&address, length) < 0, "connect");
    pthread_t reader;
    check(pthread_create(&reader, NULL, read_replies, &fd) != 0, "thread");
    for (uint32_t xid = 1; xid <= (uint32_t)atoi(argv[1]); xid++) {
        uint32_t call[1 + CALL_WORDS] = {htonl(LAST_FRAGMENT | CALL_WORDS * 4),
                                         htonl(xid),
                                         0,
                                         htonl(2),
                                         htonl(300001),
                                         htonl(1),
                                         htonl(7)};
        uint64_t begin_ns = now_ns(CLOCK_MONOTONIC);
        transmit(fd, call, 1 + CALL_WORDS);
        pthread_mutex_lock(&mutex);
        while (answered != xid)
            pthread_cond_wait(&condition, &mutex);
        uint64_t at_ns = woken_ns;
        pthread_mutex_unlock(&mutex);
        printf("%lu %lu %lu\n", begin_ns, at_ns, now_ns(CLOCK_MONOTONIC));
    }
    shutdown(fd, SHUT_WR);
    pthread_join(reader, NULL);
    check(waitpid(server, NULL, 0) != server, "wait");
    return 0;
}
