/* An echo server and its clients over stream sockets. It knows nothing of rpcprobe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Serves connections on the listening socket, or the one connection there is, until none is left
 * and `clients` have come; returns an exit status. */
int serve_with_threads(int listener, int clients);
int serve_with_epoll(int listener, int clients);
int serve_connection(int connection);

/* Sends `requests` messages of `bytes` bytes one after another, checks what comes back; returns how
 * many did. */
int ask(int connection, int requests, size_t bytes);

/* A message is its length in four bytes, then that many bytes. Both return false at the end of the
 * connection or on an error. The received one must be freed. */
bool send_message(int connection, const char *text, size_t bytes);
bool receive_message(int connection, char **text, size_t *bytes);
