/* transport: how clients and servers talk: pipes, Unix or TCP stream sockets. */
#ifndef TRANSPORT_H
#define TRANSPORT_H

#include <stdbool.h>

enum transport { TRANSPORT_PIPE, TRANSPORT_UNIX, TRANSPORT_TCP };

/* What one side writes to and reads from; of a socket both are the same descriptor. */
struct ends {
    int out, in;
};

struct channel {
    struct ends client, server;
};

/* False if there is none of that name. */
bool transport_find(const char *name, enum transport *found);

/*
 * A new channel with this process at both ends.  buffer_bytes is what fits into it each way without
 * being read, about (sockets keep books of their own); 0 leaves it as the system has it.
 */
void transport_open(struct channel *channel, enum transport transport, int buffer_bytes);

void transport_close(struct ends ends);

#endif
