/* The back end of modes 3 to 6: a child process that evaluates what the front end sends it. */
#ifndef BACKEND_H
#define BACKEND_H

#include "frontend.h"
#include "options.h"
#include "request_log.h"
#include "shared.h"

struct back_end {
    enum mode mode;
    struct comm_peer comm;     /* of modes 3, 4 and 6 */
    struct shared_peer shared; /* of mode 5 */
    struct request_log log;
};

/* Starts the back end of the mode, with no log; 0, or -1 after a message. */
int start_back_end(struct back_end *back_end, const struct options *options);

/* An ask_function and an ask_batch_function: one round trip to the back end, the context. */
bool ask_back_end(void *context, const char *text, size_t length, char answer[ANSWER_SIZE]);
bool ask_back_end_batch(void *context, struct batch *batch);

/* Has the back end end and waits for it; 0, or -1 after a message if it did not end well. */
int stop_back_end(struct back_end *back_end);

#endif
