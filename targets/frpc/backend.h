/* The back end of mode 3: a child process that evaluates what the front end sends it. */
#ifndef BACKEND_H
#define BACKEND_H

#include "commlib.h"
#include "frontend.h"

/* 0, or -1 after a message. */
int start_back_end(struct comm_peer *back_end, const enum notation *notation);

/* An ask_function: one round trip to the back end, which is the context. */
bool ask_back_end(void *context, const char *text, size_t length, char answer[ANSWER_SIZE]);

/* Has the back end end and waits for it; 0, or -1 after a message if it did not end well. */
int stop_back_end(struct comm_peer *back_end);

#endif
