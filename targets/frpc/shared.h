/*
 * shared: a process and its child that ask and answer in memory they share.
 *
 * There is room for one message, and a word that says whose turn it is.  Whoever has to wait
 * sleeps on that word as a futex, so that an exchange costs two wake-ups and no copy by the
 * kernel.  The statuses are those of commlib.
 */
#ifndef SHARED_H
#define SHARED_H

#include "commlib.h"

#define SHARED_CAPACITY ((size_t)1 << 17)

struct shared_area;

/* A child process that answers, as seen by its parent. */
struct shared_peer {
    pid_t pid;
    struct shared_area *area;
};

/*
 * What the child does with each message: it puts the answer in its place and returns its length.
 * message[length] can be written.
 */
typedef size_t shared_answerer(char *message, size_t length, const void *context);

/*
 * Starts a child; 0, or -1 with errno set.  Until shared_join() the process can have neither other
 * children nor a handler of SIGCHLD, the signal that tells it that the child is dead.  The child
 * does not outlive its parent.
 */
int shared_fork(struct shared_peer *peer, shared_answerer *answerer, const void *context);

/* One exchange; stores an answer of at most capacity bytes, and its length. */
enum comm_status shared_ask(struct shared_peer *peer, const void *request, size_t length,
                            void *answer, size_t capacity, size_t *got);

/* Tells the child to end and waits for it; 0, or -1 with errno set. */
int shared_join(struct shared_peer *peer, int *wait_status);

#endif
