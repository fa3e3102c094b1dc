/* The command line of frpc. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "evaluate.h"

enum mode {
    MODE_STREAMS = 1,
    MODE_FILES,
    MODE_PIPES,
    MODE_BATCHES, /* over pipes */
    MODE_MEMORY,
    MODE_SOCKET
};

struct options {
    enum mode mode;
    const char *input;  /* NULL for standard input */
    const char *output; /* NULL for standard output */
    const char *log;    /* of the requests to the back end; NULL for none */
    enum notation notation;
    unsigned batch; /* expressions in a batch */
};

/* Does not return after --help or a usage error. */
struct options parse_options(int argc, char **argv);

#endif
