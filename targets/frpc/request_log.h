/* One line for each request of a client: when it began, when it ended. */
#ifndef REQUEST_LOG_H
#define REQUEST_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* All zero but for file: a log that is ready.  With file NULL, nothing is logged. */
struct request_log {
    FILE *file;
    unsigned long requests; /* so far */
};

/* Opens path and writes the header line; 0, or -1 with errno set. */
int open_request_log(struct request_log *log, const char *path);

/* CLOCK_MONOTONIC. */
uint64_t now_ns(void);

/* A request that ends now. */
void log_request(struct request_log *log, uint64_t begin_ns, bool answered, unsigned expressions);

/* 0, or -1 with errno set if not all lines could be written. */
int close_request_log(struct request_log *log);

#endif
