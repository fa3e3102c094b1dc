/* What a client of flexclient does, request by request. */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include "cache.h"

#include <stdio.h>

struct plan {
    struct cache_options cache;
    const char *method;
    unsigned clients, requests;
    unsigned client;           /* the number of this one, from 0 */
    bool over_udp;             /* to the object server */
    struct sockaddr_in server; /* the object server */
    flex_oid object;           /* that methods are for which take one */
    unsigned processes;        /* of the workload, on all nodes */
    unsigned objects;          /* of each of them */
    unsigned seed;
    bool hold;                   /* stay when done, so that others can have the objects */
    FILE *log, *history;         /* or NULL */
    volatile const int *stopped; /* when not 0, to end after the request under way */
};

bool is_method(const char *name);

/* Carries out the plan of one client; an exit status. */
int carry_out(const struct plan *plan);

#endif
