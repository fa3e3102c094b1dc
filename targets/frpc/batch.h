/* Several texts in one message: each is its length as 4 bytes in network order, then its bytes. */
#ifndef BATCH_H
#define BATCH_H

#include "commlib.h"

#include <stdbool.h>

struct batch {
    size_t length;
    unsigned count;
    char bytes[COMM_MAX_PAYLOAD];
};

void batch_clear(struct batch *batch);

/* Adds a text at the end; false if there is no room for it. */
bool batch_add(struct batch *batch, const char *text, size_t length);

/*
 * Copies the text that begins at *position into text, with a NUL behind it, and moves on to the
 * next; false at the end, and then *position is the batch's length unless the batch is damaged.
 */
bool batch_next(const struct batch *batch, size_t *position, char *text, size_t capacity,
                size_t *length);

#endif
