/*
 * What a client does with objects, through proxies.  How many messages (IPCs) an operation needs,
 * counting those between a node's processes and those between nodes alike:
 *
 *   invoke     1, to the object server
 *   create     1, to the client's process cacher
 *   validate   2, to the consistency cacher of the object's home, and on to its process cacher
 *   cache      3, as validate, and to the client's process cacher
 *   write      2, as validate; none for an object of the client's own
 *   read       none if the copy is valid, or else those of validate
 *   invalidate none
 */
#ifndef CACHE_H
#define CACHE_H

#include "segment.h"

#include <netinet/in.h>
#include <rpc/rpc.h>

#define MOST_NODES 16

struct cache_options {
    const char *directory; /* of the node */
    const char *program;   /* the path of process_cacher */
    const char *log;       /* path of the process cacher's log, or NULL */
    unsigned node, process;
    bool invalidates;
    unsigned node_count;
    struct sockaddr_in nodes[MOST_NODES]; /* of the consistency cachers */
};

struct cache {
    struct cache_options options;
    pid_t pid; /* of the process cacher */
    struct segment *segment;
    CLIENT *process_cacher;
    CLIENT *consistency_cachers[MOST_NODES];
};

/* An object as seen by a client. */
struct proxy {
    flex_oid oid;
    bool owned;
    unsigned slot; /* of the copy, of an object that is cached and not owned */
};

/* Starts a process cacher; 0, or -1 after a message. */
int open_cache(struct cache *cache, const struct cache_options *options);

/* Ends the process cacher; 0, or -1 after a message if it did not end well. */
int close_cache(struct cache *cache);

/* Those that return a status: FLEX_UNREACHABLE is for what could not be asked. */
flex_status create(struct cache *cache, const flex_state state, struct proxy *proxy);
flex_status cache_object(struct cache *cache, const flex_oid *oid, struct proxy *proxy);
flex_status validate(struct cache *cache, const struct proxy *proxy);
flex_status write_object(struct cache *cache, const struct proxy *proxy, const flex_state state);

/* False if there is only a copy that is not valid. */
bool read_object(struct cache *cache, const struct proxy *proxy, flex_state state);

void invalidate(struct cache *cache, const struct proxy *proxy);

#endif
