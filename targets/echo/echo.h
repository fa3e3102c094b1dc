/* An echo server and its clients over sockets. It knows nothing of rpcprobe. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>

/* Serves connections on the listening socket, or the one connection there is, until none is left
 * and `clients` have come; returns an exit status. */
int serve_with_threads(int listener, int clients);
int serve_with_epoll(int listener, int clients);
int serve_connection(int connection);

/* Sends `requests` messages of `bytes` bytes one after another, checks what comes back; returns how
 * many did. With a file, logs each as client number `client` (../README.md). */
int ask(int connection, int requests, size_t bytes, int client, FILE *log);

/* A message is its length in four bytes, then that many bytes. Both return false at the end of the
 * connection or on an error. The received one must be freed. */
bool send_message(int connection, const char *text, size_t bytes);
bool receive_message(int connection, char **text, size_t *bytes);

/* The same with a datagram a message. The server answers until it is killed, reads and sends up to
 * `batch` of them in one call, and loses every `lose_every`th (0: none). The client sends `batch`
 * of them at once, again when no answer comes, to `to` (null: to whom it is connected). */
int serve_datagrams(int server, int batch, int lose_every);
int ask_datagrams(int client, const struct sockaddr *to, socklen_t to_bytes, int requests,
                  size_t bytes, int batch);
