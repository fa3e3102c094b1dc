/* The command line of frpc. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "evaluate.h"

enum mode { MODE_STREAMS = 1, MODE_FILES = 2, MODE_PIPES = 3 };

struct options {
    enum mode mode;
    const char *input;  /* NULL for standard input */
    const char *output; /* NULL for standard output */
    enum notation notation;
};

/* Does not return after --help or a usage error. */
struct options parse_options(int argc, char **argv);

#endif
