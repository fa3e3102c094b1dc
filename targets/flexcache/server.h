/* What the servers have in common: sockets, the loop that serves them, a log, how they end. */
#ifndef SERVER_H
#define SERVER_H

#include <rpc/rpc.h>

/* A procedure of a server's program, for its log. */
struct procedure {
    rpcproc_t number;
    const char *name;
};

struct server {
    const char *name; /* of the program, for messages */
    rpcprog_t program;
    rpcvers_t version;
    void (*dispatch)(struct svc_req *, SVCXPRT *); /* as made by rpcgen */
    const struct procedure *procedures;            /* the last one has no name */
    const char *log;                               /* path, or NULL */
};

/* Each exits after a message if it fails.  Nothing is registered with rpcbind. */
void listen_on_port(const struct server *server, unsigned short port); /* UDP and TCP */
void listen_on_path(const struct server *server, const char *path);

/* Serves until SIGTERM or SIGINT, and returns the exit status. */
int serve(const struct server *server);

/* Made by rpcgen, which does not declare them. */
void flex_object_1(struct svc_req *, SVCXPRT *);
void flex_consistency_1(struct svc_req *, SVCXPRT *);
void flex_process_1(struct svc_req *, SVCXPRT *);

#endif
