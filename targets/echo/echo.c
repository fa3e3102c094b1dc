#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "echo.h"

static const char usage[] =
    "usage: echo [-t TRANSPORT] [-e] [-p] [-c CLIENTS] [-n REQUESTS] [-b BYTES] [-m BATCH]\n"
    "            [-l NTH] [--log FILE]\n"
    "Clients in processes of their own ask a server REQUESTS times each, one after another, for\n"
    "their BYTES back. TRANSPORT is tcp or tcp6 (loopback), unix, pair (a socket pair, one "
    "client);\n"
    "or, with a datagram a message, udp, udp6 (connected), unixgram, seqpacket (one client).\n"
    "With -p every request has a connection of its own (tcp, tcp6, unix).\n"
    "With -e the server has one thread and epoll, else a thread for each connection. Of datagrams\n"
    "a client sends BATCH at once for one answer each, and the server loses every NTH.\n"
    "Prints the number of right answers; --log FILE gets a line for each, with the client's\n"
    "process id as last column (streams only).\n";

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
    if (strcmp(transport, "tcp") == 0 || strcmp(transport, "udp") == 0) {
        address.in =
            (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        address.bytes = sizeof(address.in);
    } else if (strcmp(transport, "tcp6") == 0 || strcmp(transport, "udp6") == 0) {
        address.in6 =
            (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        address.bytes = sizeof(address.in6);
    } else if (strcmp(transport, "unix") == 0 || strcmp(transport, "unixgram") == 0) {
        address.un.sun_family = AF_UNIX; /* the kernel chooses an abstract name */
        address.bytes = sizeof(sa_family_t);
    } else {
        fputs(usage, stderr);
        exit(2);
    }
    return address;
}

static bool has_datagrams(const char *transport)
{
    return strncmp(transport, "udp", 3) == 0 || strcmp(transport, "unixgram") == 0 ||
           strcmp(transport, "seqpacket") == 0;
}

/* A client that sends each message as a datagram; `pair` is its end of a socket pair, or -1. */
static int ask_with_datagrams(const char *transport, const struct address *address, int pair,
                              int requests, int bytes, int batch)
{
    if (pair >= 0)
        return ask_datagrams(pair, NULL, 0, requests, bytes, batch);
    sa_family_t family = address->any.sa_family;
    struct sockaddr own = {.sa_family = family};
    int client = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    /* A server cannot answer a Unix socket without a name. */
    if (client < 0 || (family == AF_UNIX && bind(client, &own, sizeof(family)) != 0))
        err(1, "cannot make a socket");
    if (strcmp(transport, "udp6") != 0)
        return ask_datagrams(client, &address->any, address->bytes, requests, bytes, batch);
    if (connect(client, &address->any, address->bytes) != 0)
        err(1, "cannot connect");
    return ask_datagrams(client, NULL, 0, requests, bytes, batch);
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

/* Line-buffered and in append mode, so that each client's lines stay whole. */
static FILE *open_log(const char *path)
{
    FILE *log = fopen(path, "we");
    if (!log || !(log = freopen(path, "ae", log)))
        err(1, "cannot open %s", path);
    setvbuf(log, NULL, _IOLBF, BUFSIZ);
    fputs("client,request,method,begin_ns,end_ns,status,pid\n", log);
    return log;
}

/* Makes a connection for each request. */
static int ask_each(const struct address *address, int requests, size_t bytes, int client,
                    FILE *log)
{
    int answered = 0;
    for (int request = 0; request < requests; request++) {
        int connection = connect_to(address);
        answered += ask(connection, 1, bytes, client, log);
        close(connection);
    }
    return answered;
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
    int clients = 1, requests = 300, bytes = 100, batch = 1, lose_every = 0, option;
    bool epoll = false, each = false;
    FILE *log = NULL;
    static const struct option long_options[] = {{"log", required_argument, NULL, 'L'}, {0}};
    while ((option = getopt_long(argc, argv, "t:epc:n:b:m:l:", long_options, NULL)) != -1) {
        switch (option) {
        case 'L':
            log = open_log(optarg);
            break;
        case 't':
            transport = optarg;
            break;
        case 'e':
            epoll = true;
            break;
        case 'p':
            each = true;
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
        case 'm':
            batch = number(optarg, 1, 64);
            break;
        case 'l':
            lose_every = number(optarg, 2, 1000);
            break;
        default:
            fputs(usage, stderr);
            return 2;
        }
    }
    bool datagrams = has_datagrams(transport);
    if (each && (datagrams || strcmp(transport, "pair") == 0))
        errx(2, "-p is for tcp, tcp6 and unix");
    int type = datagrams ? SOCK_DGRAM : SOCK_STREAM;
    bool sequenced = strcmp(transport, "seqpacket") == 0;
    bool pair = sequenced || strcmp(transport, "pair") == 0;
    if (datagrams && bytes > 65000)
        errx(2, "a datagram has 65000 bytes at most");
    int ends[2], answers[2], listener = -1;
    struct address address = {0};
    if (pipe(answers) != 0)
        err(1, "pipe");
    if (pair) {
        clients = 1;
        if (socketpair(AF_UNIX, sequenced ? SOCK_SEQPACKET : SOCK_STREAM, 0, ends) != 0)
            err(1, "socketpair");
    } else {
        address = address_of(transport);
        listener = socket(address.any.sa_family, type | SOCK_CLOEXEC, 0);
        if (listener < 0 || bind(listener, &address.any, address.bytes) != 0 ||
            (!datagrams && listen(listener, 1000) != 0))
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
            _exit(sequenced ? serve_datagrams(ends[1], batch, lose_every)
                            : serve_connection(ends[1]));
        }
        if (datagrams)
            _exit(serve_datagrams(listener, batch, lose_every));
        _exit((epoll ? serve_with_epoll : serve_with_threads)(listener,
                                                              each ? clients * requests : clients));
    }
    if (pair)
        close(ends[1]);
    for (int i = 0; i < clients; i++) {
        pid_t client = fork();
        if (client < 0)
            err(1, "fork");
        if (client == 0) {
            int end = pair ? ends[0] : -1;
            int right = datagrams
                            ? ask_with_datagrams(transport, &address, end, requests, bytes, batch)
                        : each ? ask_each(&address, requests, bytes, i, log)
                               : ask(pair ? end : connect_to(&address), requests, bytes, i, log);
            _exit(write(answers[1], &right, sizeof(right)) != sizeof(right));
        }
    }
    if (pair)
        close(ends[0]);
    close(answers[1]);
    int total = 0, right, status, failed = 0;
    for (int i = 0; i < clients && read(answers[0], &right, sizeof(right)) == sizeof(right); i++)
        total += right;
    if (datagrams)
        kill(server, SIGKILL);
    while ((option = wait(&status)) > 0)
        failed |= status != 0 && !(datagrams && option == server);
    printf("%d answers\n", total);
    return failed || total != clients * requests;
}
