/* The front end: expressions in, answers out, whoever evaluates them. */
#ifndef FRONTEND_H
#define FRONTEND_H

#include "answer.h"
#include "batch.h"

#include <stdio.h>

/* Exit statuses of the program, from the best to the worst. */
enum { ALL_FINE = 0, SOME_FAILED = 1, BROKEN = 2 };

struct stream {
    FILE *file;
    const char *name; /* for messages */
};

/*
 * Gets one expression answered; text[length] is a NUL.  False if the evaluator cannot be reached
 * any more, which the function has then reported.
 */
typedef bool ask_function(void *context, const char *text, size_t length, char answer[ANSWER_SIZE]);

/* The same for several: puts the answers, as many, in the place of the expressions. */
typedef bool ask_batch_function(void *context, struct batch *batch);

/* Answers every expression of a stream, one after the other; returns an exit status. */
int run_front_end(const struct stream *in, const struct stream *out, bool flush_each,
                  ask_function *ask, void *context);

/* The same, but has up to `most` expressions answered at once; writes each batch out as a whole. */
int run_front_end_in_batches(const struct stream *in, const struct stream *out, unsigned most,
                             ask_batch_function *ask, void *context);

#endif
