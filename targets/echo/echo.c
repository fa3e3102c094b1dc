#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "echo.h"

static const char usage[] =
    "usage: echo [-t tcp|tcp6|unix|pair] [-e] [-c CLIENTS] [-n REQUESTS] [-b BYTES]\n"
    "Clients in processes of their own ask a server REQUESTS times each, one after another, for\n"
    "their BYTES back, over TCP (loopback), a Unix socket or a socket pair (one client). With -e "
    "the\n"
    "server has one thread and epoll, else a thread for each connection. Prints the number of "
    "right\n"
    "answers.\n";

struct address {
    socklen_t bytes;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    };
};

static struct address address_of(const char *transport)
{
    struct address address = {0};
    if (strcmp(transport, "tcp") == 0) {
        address.in =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        address.bytes = sizeof(address.in);
    } else if (strcmp(transport, "tcp6") == 0) {
        address.in6 =
            (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        address.bytes = sizeof(address.in6);
    } else if (strcmp(transport, "unix") == 0) {
        address.un.sun_family = AF_UNIX; /* the kernel makes up an abstract name */
        address.bytes = sizeof(sa_family_t);
    } else {
        fputs(usage, stderr);
        exit(2);
    }
    return address;
}

static int connect_to(const struct address *address)
{
    int connection = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (connection < 0 || connect(connection, &address->any, address->bytes) != 0)
        err(1, "cannot connect");
    if (address->any.sa_family != AF_UNIX)
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return connection;
}

static int number(const char *text, int least, int most)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || end == text || value < least || value > most)
        errx(2, "%s is not a number from %d to %d", text, least, most);
    return value;
}

int main(int argc, char **argv)
{
    const char *transport = "tcp";
    int clients = 1, requests = 300, bytes = 100, option;
    bool epoll = false;
    while ((option = getopt(argc, argv, "t:ec:n:b:")) != -1) {
        switch (option) {
        case 't':
            transport = optarg;
            break;
        case 'e':
            epoll = true;
            break;
        case 'c':
            clients = number(optarg, 1, 1000);
            break;
        case 'n':
            requests = number(optarg, 0, 100000000);
            break;
        case 'b':
            bytes = number(optarg, 0, 64 << 20);
            break;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    bool pair = strcmp(transport, "pair") == 0;
    int ends[2], answers[2], listener = -1;
    struct address address = {0};
    if (pipe(answers) != 0)
        err(1, "pipe");
    if (pair) {
        clients = 1;
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
            err(1, "socketpair");
    } else {
        address = address_of(transport);
        listener = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (listener < 0 || bind(listener, &address.any, address.bytes) != 0 ||
            listen(listener, 1000) != 0)
            err(1, "cannot listen");
        address.bytes = sizeof(address.un);
        getsockname(listener, &address.any, &address.bytes);
    }
    pid_t server = fork();
    if (server < 0)
        err(1, "fork");
    if (server == 0) {
        if (pair) {
            close(ends[0]);
            _exit(serve_connection(ends[1]));
        }
        _exit((epoll ? serve_with_epoll : serve_with_threads)(listener, clients));
    }
    if (pair)
        close(ends[1]);
    for (int i = 0; i < clients; i++) {
        pid_t client = fork();
        if (client < 0)
            err(1, "fork");
        if (client == 0) {
            int right = ask(pair ? ends[0] : connect_to(&address), requests, bytes);
            _exit(write(answers[1], &right, sizeof(right)) != sizeof(right));
        }
    }
    if (pair)
        close(ends[0]);
    close(answers[1]);
    int total = 0, right, status, failed = 0;
    while (read(answers[0], &right, sizeof(right)) == sizeof(right))
        total += right;
    while (wait(&status) > 0)
        failed |= status != 0;
    printf("%d answers\n", total);
    return failed || total != clients * requests;
}
