#define _POSIX_C_SOURCE 200809L

#include "commlib.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

const char *comm_describe(enum comm_status status)
{
    switch (status) {
    case COMM_OK:
        return "no error";
    case COMM_CLOSED:
        return "the connection was closed";
    case COMM_TRUNCATED:
        return "the connection was closed in the middle of a message";
    case COMM_TOO_LONG:
        return "the message is too long";
    case COMM_FAILED:
        return strerror(errno);
    }
    return "unknown status";
}

/* Drops the bytes that have been written from the front of a two-part buffer. */
static void advance(struct iovec part[2], size_t written)
{
    for (int i = 0; i < 2; i++) {
        size_t step = written < part[i].iov_len ? written : part[i].iov_len;
        part[i].iov_base = (char *)part[i].iov_base + step;
        part[i].iov_len -= step;
        written -= step;
    }
}

enum comm_status comm_send(int fd, const void *payload, size_t length)
{
    if (length > COMM_MAX_PAYLOAD)
        return COMM_TOO_LONG;

    uint32_t header = htonl((uint32_t)length);
    struct iovec part[2] = {
        {.iov_base = &header, .iov_len = sizeof header},
        {.iov_base = (void *)payload, .iov_len = length},
    };
    while (part[0].iov_len + part[1].iov_len > 0) {
        ssize_t written = writev(fd, part, 2);
        if (written >= 0)
            advance(part, (size_t)written);
        else if (errno == EPIPE)
            return COMM_CLOSED;
        else if (errno != EINTR)
            return COMM_FAILED;
    }
    return COMM_OK;
}

/* Reads length bytes; end of file before the first of them is COMM_CLOSED. */
static enum comm_status read_fully(int fd, void *buffer, size_t length)
{
    size_t got = 0;
    while (got < length) {
        ssize_t n = read(fd, (char *)buffer + got, length - got);
        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || errno == ECONNRESET)
            return got == 0 ? COMM_CLOSED : COMM_TRUNCATED;
        else if (errno != EINTR)
            return COMM_FAILED;
    }
    return COMM_OK;
}

enum comm_status comm_receive(int fd, void *payload, size_t capacity, size_t *length)
{
    uint32_t header;
    enum comm_status status = read_fully(fd, &header, sizeof header);
    if (status != COMM_OK)
        return status;

    size_t announced = ntohl(header);
    if (announced > COMM_MAX_PAYLOAD || announced > capacity)
        return COMM_TOO_LONG;

    status = read_fully(fd, payload, announced);
    if (status == COMM_CLOSED) /* the header was read, so the frame had begun */
        return COMM_TRUNCATED;
    if (status == COMM_OK)
        *length = announced;
    return status;
}

/* The ends of a channel by user.  For a socket, in and out of a process are the same. */
struct ends {
    int parent_in, parent_out, child_in, child_out;
};

static void close_ends(int in, int out)
{
    int saved = errno;
    close(in);
    if (out != in)
        close(out);
    errno = saved;
}

static int fork_between(struct ends ends, struct comm_peer *peer, comm_server *server,
                        const void *context)
{
    pid_t pid = fork();
    if (pid < 0) {
        close_ends(ends.parent_in, ends.parent_out);
        close_ends(ends.child_in, ends.child_out);
        return -1;
    }
    /* Each process keeps only its own ends: end of file occurs when no writer is left. */
    if (pid == 0) {
        close_ends(ends.parent_in, ends.parent_out);
        /* Not exit(), because stdio's buffered data belongs to the parent. */
        _exit(server(ends.child_in, ends.child_out, context));
    }
    close_ends(ends.child_in, ends.child_out);
    *peer = (struct comm_peer){.pid = pid, .from = ends.parent_in, .to = ends.parent_out};
    return 0;
}

int comm_fork(struct comm_peer *peer, comm_server *server, const void *context)
{
    int request[2], answer[2];
    if (pipe(request) < 0)
        return -1;
    if (pipe(answer) < 0) {
        close_ends(request[0], request[1]);
        return -1;
    }
    struct ends ends = {answer[0], request[1], request[0], answer[1]};
    return fork_between(ends, peer, server, context);
}

int comm_fork_socket(struct comm_peer *peer, comm_server *server, const void *context)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        return -1;
    struct ends ends = {pair[0], pair[0], pair[1], pair[1]};
    return fork_between(ends, peer, server, context);
}

int comm_join(struct comm_peer *peer, int *wait_status)
{
    close_ends(peer->from, peer->to);
    while (waitpid(peer->pid, wait_status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return 0;
}
