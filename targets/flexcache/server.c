#define _GNU_SOURCE

#include "server.h"

#include "clocks.h"

#include <err.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/un.h>
#include <unistd.h>

static const struct server *served;
static FILE *log_file;

static const char *name_of(rpcproc_t number)
{
    if (number == NULLPROC)
        return "null";
    for (const struct procedure *p = served->procedures; p->name; p++)
        if (p->number == number)
            return p->name;
    return "unknown";
}

/* Wraps rpcgen's function, which reads the arguments, calls the procedure and sends its result. */
static void dispatch_and_log(struct svc_req *request, SVCXPRT *transport)
{
    rpcproc_t number = request->rq_proc;
    uint64_t start_ns = now_ns();
    served->dispatch(request, transport);
    if (log_file) {
        unsigned long long start = start_ns, end = now_ns();
        fprintf(log_file, "%s,%llu,%llu,%llu,ok\n", name_of(number), start, start, end);
    }
}

static void add_transport(const struct server *server, SVCXPRT *transport)
{
    if (!transport || !svc_reg(transport, server->program, server->version, dispatch_and_log, NULL))
        errx(1, "cannot make a transport of ONC RPC");
}

static int open_socket(int family, int type, const struct sockaddr *address, socklen_t bytes)
{
    int fd = socket(family, type | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, address, bytes) < 0 || (type == SOCK_STREAM && listen(fd, 128) < 0))
        return -1;
    return fd;
}

void listen_on_port(const struct server *server, unsigned short port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++) {
        int fd = open_socket(AF_INET, type, (struct sockaddr *)&address, sizeof address);
        if (fd < 0)
            err(1, "cannot listen on port %u", port);
        add_transport(server,
                      type == SOCK_STREAM ? svc_vc_create(fd, 0, 0) : svc_dg_create(fd, 0, 0));
    }
}

void listen_on_path(const struct server *server, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        errx(1, "the path %s is too long for a socket", path);
    strcpy(address.sun_path, path);
    int fd = open_socket(AF_UNIX, SOCK_STREAM, (struct sockaddr *)&address, sizeof address);
    if (fd < 0)
        err(1, "cannot listen on %s", path);
    add_transport(server, svc_vc_create(fd, 0, 0));
}

/* Like svc_run(), but ends at a signal. */
static void run_until(int signals)
{
    for (;;) {
        int count = svc_max_pollfd;
        struct pollfd ready[count + 1];
        memcpy(ready, svc_pollfd, (size_t)count * sizeof *ready);
        ready[count] = (struct pollfd){.fd = signals, .events = POLLIN};
        int found = poll(ready, (nfds_t)count + 1, -1);
        if (found < 0 && errno != EINTR)
            err(1, "poll");
        if (ready[count].revents)
            return;
        if (found > 0)
            svc_getreq_poll(ready, found);
    }
}

int serve(const struct server *server)
{
    sigset_t stops;
    served = server;
    if (server->log) {
        log_file = fopen(server->log, "we");
        if (!log_file)
            err(1, "cannot open %s", server->log);
        fputs("method,arrival_ns,start_ns,end_ns,status\n", log_file);
    }
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    sigprocmask(SIG_BLOCK, &stops, NULL);
    signal(SIGPIPE, SIG_IGN);
    int signals = signalfd(-1, &stops, SFD_CLOEXEC);
    if (signals < 0)
        err(1, "signalfd");
    printf("%s: ready\n", server->name);
    fflush(stdout);
    run_until(signals);
    if (log_file && (ferror(log_file) || fclose(log_file) == EOF))
        err(1, "cannot write %s", server->log);
    return 0;
}
