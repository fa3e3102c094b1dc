/* Handles to servers, made when they are first needed and again after they have failed. */
#ifndef REMOTE_H
#define REMOTE_H

#include <netinet/in.h>
#include <rpc/rpc.h>

#define TIMEOUT_S 10

/* NULL if the server cannot be reached; clnt_spcreateerror() tells why. */
CLIENT *connect_udp(const struct sockaddr_in *address, rpcprog_t program, rpcvers_t version);
CLIENT *connect_tcp(const struct sockaddr_in *address, rpcprog_t program, rpcvers_t version);
CLIENT *connect_path(const char *path, rpcprog_t program, rpcvers_t version);

/* The path of a process cacher's socket, or of its segment, below the directory of its node. */
void path_of(char path[108], const char *directory, const char *what, unsigned process);

#endif
