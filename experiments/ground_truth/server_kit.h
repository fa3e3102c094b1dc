/*
 * server_kit: clients that ask a server process over pipes, one request at a time each, and a log
 * of what every request is known to have cost.
 *
 * Client 0 is the process that calls kit_run(), and forks the server and the other clients.  A
 * request is a frame whose first bytes are its sequence number, the answer the same number.  The
 * log lives in shared memory, so that writing it costs the requests nothing, and is printed at the
 * end.
 */
#ifndef SERVER_KIT_H
#define SERVER_KIT_H

#include <stdint.h>

enum { KIT_TRUTHS = 2, KIT_CLIENTS = 4 };

/* In the log: the target itself cannot tell, leave this request out. */
#define KIT_UNKNOWN UINT64_MAX

/* One request. */
struct kit_row {
    uint64_t start_ns;   /* before the client wrote its first byte */
    uint64_t written_ns; /* after it wrote its last */
    uint64_t end_ns;     /* after it read the answer */
    uint64_t truth[KIT_TRUTHS];
};

struct kit_request {
    unsigned seq;
    int fd; /* what of the request follows its sequence number is still to be read here */
    struct kit_row *row;
};

struct kit_case {
    const char *name;
    const char *truths[KIT_TRUTHS]; /* columns of the log */
    unsigned clients;               /* 0 is 1 */
    unsigned pause_us;      /* of a client after each request; with many clients there is none */
    uint32_t request_bytes; /* 0: nothing but the sequence number */
    /* All of these run in the server, and only handle() has to be there. */
    void (*set_up)(void);
    void (*handle)(struct kit_request *request);
    void (*clean)(struct kit_request *request); /* once the answer is written */
    void (*tear_down)(void);
};

/* Where a case may create files. */
extern const char *kit_dir;

/* Makes requests_per_client requests of each client and writes the log. */
void kit_run(const struct kit_case *injected, unsigned requests_per_client, const char *log);

/* Whole transfers or the end of the process; kit_read() returns 0 at end of file. */
int kit_read(int fd, void *buffer, uint32_t length);
void kit_write(int fd, const void *buffer, uint32_t length);

/* Ties the calling thread to a CPU. */
void kit_pin(int cpu);

/* Forks a helper process that dies with its parent; 0 in the child. */
int kit_fork(void);

/* Kills helper processes and collects them. */
void kit_kill(const int *pids, unsigned count);

#endif
