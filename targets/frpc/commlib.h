/*
 * commlib: whole messages between two processes joined by pipes or by a socket.
 *
 * A pipe or stream socket carries bytes, not messages.  commlib puts each message in a frame: its
 * length as 4 bytes in network order, then that many bytes of payload.  A frame leaves in one
 * system call unless the channel takes only part of it.
 *
 * The user of the library has to ignore SIGPIPE to be told COMM_CLOSED by comm_send().
 */
#ifndef COMMLIB_H
#define COMMLIB_H

#include <stddef.h>
#include <sys/types.h>

/* A longer length in a header is a sign of a confused peer, not of a message worth reading. */
#define COMM_MAX_PAYLOAD ((size_t)1 << 20)

enum comm_status {
    COMM_OK,
    COMM_CLOSED,    /* the peer closed its end between two frames */
    COMM_TRUNCATED, /* the peer closed its end inside a frame */
    COMM_TOO_LONG,  /* the payload exceeds COMM_MAX_PAYLOAD or the receiver's buffer */
    COMM_FAILED     /* a system call failed, errno tells why */
};

/* Says in words what a status means; to be called before errno changes. */
const char *comm_describe(enum comm_status status);

enum comm_status comm_send(int fd, const void *payload, size_t length);

/* Stores a payload of at most capacity bytes, and its length. */
enum comm_status comm_receive(int fd, void *payload, size_t capacity, size_t *length);

/* A child process that serves requests, as seen by its parent. */
struct comm_peer {
    pid_t pid;
    int from; /* answers of the child are read here */
    int to;   /* requests to the child are written here */
};

/* What the child runs; the value it returns is the child's exit status. */
typedef int comm_server(int in, int out, const void *context);

/* Starts a child that runs server() behind two pipes; 0, or -1 with errno set. */
int comm_fork(struct comm_peer *peer, comm_server *server, const void *context);

/* The same behind a Unix socket, which is both in and out. */
int comm_fork_socket(struct comm_peer *peer, comm_server *server, const void *context);

/* Closes the pipes or the socket, which tells the child to end, and waits for it; 0, or -1 with
 * errno set. */
int comm_join(struct comm_peer *peer, int *wait_status);

#endif
