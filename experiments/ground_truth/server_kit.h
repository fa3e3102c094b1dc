/*
 * server_kit: clients that ask a server process, one request at a time each, and a log of what
 * every request is known to have cost.
 *
 * Client 0 is the process that calls kit_run(), and forks the server and the other clients.  A
 * request is a frame whose first bytes are its sequence number, the answer the same number.  The
 * log lives in shared memory, so that writing it costs the requests nothing, and is printed at the
 * end.
 */
#ifndef SERVER_KIT_H
#define SERVER_KIT_H

#include "clocks.h"
#include "transport.h"

#include <stdbool.h>
#include <stdint.h>

enum { KIT_TRUTHS = 8, KIT_CLIENTS = 4, KIT_THREADS = 2 };

/* In the log: the target itself cannot tell, leave this request out. */
#define KIT_UNKNOWN UINT64_MAX

/* One request; stamps are CLOCK_MONOTONIC. */
struct kit_row {
    /* The client's. */
    uint64_t start_ns;   /* before it wrote its first byte */
    uint64_t written_ns; /* after it wrote its last */
    uint64_t asked_ns;   /* before it asked for the answer */
    uint64_t end_ns;     /* after it read the answer */
    struct usage write;  /* writing the request, of a case that watches itself */
    struct usage read;   /* reading the answer, likewise */
    /* The server's. */
    uint64_t thread;           /* which of its threads */
    uint64_t poll_from_ns;     /* when that thread last began to wait for any request */
    uint64_t poll_to_ns;       /* when that wait had ended */
    uint64_t poll_runnable_ns; /* of that wait, of a case that watches itself */
    uint64_t taken_ns;         /* before it read the first byte */
    uint64_t answering_ns;     /* before it wrote its answer */
    uint64_t answered_ns;      /* after that */
    struct usage served; /* between taken_ns and answering_ns, of a case that watches itself */
    uint64_t truth[KIT_TRUTHS];
};

struct kit_request {
    unsigned seq;
    unsigned thread;
    int fd; /* what of the request follows its sequence number is still to be read here */
    uint32_t bytes;
    struct kit_row *row;
};

struct kit_case {
    const char *name;
    const char *truths[KIT_TRUTHS]; /* columns of the log */
    unsigned clients;               /* 0 is 1 */
    unsigned threads;               /* of the server; 0 is 1 */
    unsigned pause_us;    /* of a client after each request; with many clients there is none */
    uint32_t most_bytes;  /* of a request; 0: nothing but the sequence number */
    uint32_t least_bytes; /* 0: all requests have most_bytes */
    int buffer_bytes;     /* of the channels; 0: as the system has it */
    /* To ask the scheduler takes calls, which are found in the requests. */
    bool watch;
    /*
     * The server does nothing before the client has written all, and leaves all the reading to
     * handle(); for a single client only.
     */
    bool after_write;
    /* Client and server have a CPU each, where there are two. */
    bool apart;
    unsigned ask_late_us; /* a client sleeps before it asks for its answer */
    /* All of these run in the server, and only handle() has to be there. */
    void (*set_up)(void);
    void (*handle)(struct kit_request *request);
    void (*clean)(struct kit_request *request); /* once the answer is written */
    void (*tear_down)(void);
};

/* Where a case may create files. */
extern const char *kit_dir;

/* How clients and server talk. */
extern enum transport kit_transport;

/* Makes requests_per_client requests of each client and writes the log. */
void kit_run(const struct kit_case *injected, unsigned requests_per_client, const char *log);

/* How long request seq is, with its sequence number. */
uint32_t kit_length(const struct kit_case *injected, unsigned seq);

#endif
