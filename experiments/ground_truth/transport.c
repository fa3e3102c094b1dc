#include "transport.h"

#include "give_up.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

bool transport_find(const char *name, enum transport *found)
{
    static const char *const names[] = {"pipe", "unix", "tcp"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            *found = (enum transport)i;
            return true;
        }
    }
    return false;
}

static void set_option(int fd, int level, int option, int value)
{
    if (setsockopt(fd, level, option, &value, sizeof value) < 0)
        give_up("set an option of", "a socket");
}

/* The kernel doubles the requested size, to have room for its own bookkeeping. */
static void set_buffers(int fd, int bytes)
{
    if (bytes == 0)
        return;
    set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, bytes);
    set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, bytes);
}

static void open_pipes(struct channel *channel, int buffer_bytes)
{
    int request[2], answer[2];
    if (pipe2(request, O_CLOEXEC) < 0 || pipe2(answer, O_CLOEXEC) < 0)
        give_up("open", "a pipe");
    if (buffer_bytes != 0 && (fcntl(request[1], F_SETPIPE_SZ, buffer_bytes) < 0 ||
                              fcntl(answer[1], F_SETPIPE_SZ, buffer_bytes) < 0))
        give_up("size", "a pipe");
    channel->client = (struct ends){.out = request[1], .in = answer[0]};
    channel->server = (struct ends){.out = answer[1], .in = request[0]};
}

static void open_unix(int fds[2], int buffer_bytes)
{
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        give_up("open", "a socket pair");
    set_buffers(fds[0], buffer_bytes);
    set_buffers(fds[1], buffer_bytes);
}

/* Connecting negotiates the size of the buffers, so it is set before. */
static void open_tcp(int fds[2], int buffer_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || fds[0] < 0)
        give_up("open", "a socket");
    set_buffers(listener, buffer_bytes);
    set_buffers(fds[0], buffer_bytes);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1) < 0)
        give_up("listen on", "the loopback device");
    getsockname(listener, (struct sockaddr *)&address, &length);
    if (connect(fds[0], (struct sockaddr *)&address, sizeof address) < 0)
        give_up("connect to", "the loopback device");
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fds[1] < 0)
        give_up("accept from", "the loopback device");
    close(listener);
    for (int i = 0; i < 2; i++)
        set_option(fds[i], IPPROTO_TCP, TCP_NODELAY, 1);
}

void transport_open(struct channel *channel, enum transport transport, int buffer_bytes)
{
    int fds[2];
    if (transport == TRANSPORT_PIPE) {
        open_pipes(channel, buffer_bytes);
        return;
    }
    if (transport == TRANSPORT_UNIX)
        open_unix(fds, buffer_bytes);
    else
        open_tcp(fds, buffer_bytes);
    channel->client = (struct ends){.out = fds[0], .in = fds[0]};
    channel->server = (struct ends){.out = fds[1], .in = fds[1]};
}

void transport_close(struct ends ends)
{
    close(ends.out);
    if (ends.in != ends.out)
        close(ends.in);
}
