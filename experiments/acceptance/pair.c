/*
 * A server and its clients: pair serve PORT | pair ask PORT CLIENTS REQUESTS [LOG]
 *
 * One thread per connection; each request is 64 bytes, each answer 100. The clients print the
 * number of answers, and log the begin and end of each request in the format of targets/README.md.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ASKED_BYTES = 64, ANSWER_BYTES = 100 };

static struct sockaddr_in address;
static int requests;
static FILE *stamps;

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

/* Receives all `bytes`. Returns 0 at the end of the connection. */
static size_t take(int fd, char *into, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        ssize_t got = recv(fd, into + have, bytes - have, 0);
        if (got < 0)
            give_up("recv");
        if (got == 0)
            return 0;
        have += (size_t)got;
    }
    return have;
}

static void *serve_one(void *argument)
{
    int fd = (int)(intptr_t)argument;
    char asked[ASKED_BYTES], answer[ANSWER_BYTES] = {0};
    while (take(fd, asked, sizeof asked))
        if (send(fd, answer, sizeof answer, 0) != sizeof answer)
            give_up("send");
    close(fd);
    return NULL;
}

static void serve(void)
{
    const int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 128) < 0)
        give_up("listen");
    for (;;) {
        int accepted = accept(fd, NULL, NULL);
        pthread_t thread;
        if (accepted < 0)
            give_up("accept");
        setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)accepted) != 0)
            give_up("pthread_create");
        pthread_detach(thread);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *ask(void *argument)
{
    intptr_t answers = 0;
    uint64_t(*spans)[2] = calloc((size_t)requests, sizeof *spans);
    const int one = 1;
    char asked[ASKED_BYTES] = {0}, answer[ANSWER_BYTES];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    const long client = (long)(intptr_t)argument;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        give_up("connect");
    for (int i = 0; i < requests; i++) {
        spans[i][0] = now_ns();
        if (send(fd, asked, sizeof asked, 0) != sizeof asked)
            give_up("send");
        answers += take(fd, answer, sizeof answer) == sizeof answer;
        spans[i][1] = now_ns();
    }
    close(fd);
    for (int i = 0; stamps && i < requests; i++)
        fprintf(stamps, "%ld,%d,ask,%lu,%lu,ok\n", client, i, spans[i][0], spans[i][1]);
    free(spans);
    return (void *)answers;
}

int main(int argc, char **argv)
{
    if (argc < 3 || (strcmp(argv[1], "serve") != 0 && argc < 5)) {
        fprintf(stderr, "usage: pair serve PORT | pair ask PORT CLIENTS REQUESTS [LOG]\n");
        return 2;
    }
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (argc == 3)
        serve();
    enum { MOST = 64 };
    pthread_t threads[MOST];
    int clients = atoi(argv[3]);
    long answers = 0;
    requests = atoi(argv[4]);
    if (argc > 5 && !(stamps = fopen(argv[5], "w")))
        give_up(argv[5]);
    if (stamps)
        fprintf(stamps, "client,request,method,begin_ns,end_ns,status\n");
    if (clients < 1 || clients > MOST)
        return 2;
    for (int i = 0; i < clients; i++)
        if (pthread_create(&threads[i], NULL, ask, (void *)(intptr_t)i) != 0)
            give_up("pthread_create");
    for (int i = 0; i < clients; i++) {
        void *got;
        pthread_join(threads[i], &got);
        answers += (intptr_t)got;
    }
    printf("%ld\n", answers);
    return stamps && fclose(stamps) != 0;
}
