/* One timed run of the evaluator as a process of its own. */
#ifndef TRIAL_H
#define TRIAL_H

#include "lines.h"

#include <limits.h>
#include <stdint.h>

/* The evaluator and the private directory of its input and output files. */
struct bench {
    const char *evaluator;
    char directory[PATH_MAX];
    char input[PATH_MAX];
    char output[PATH_MAX];
};

enum trial_status {
    TRIAL_DONE,
    TRIAL_FAILED, /* the evaluator gave no answer */
    TRIAL_BROKEN  /* the trial could not be carried out, which has been reported */
};

struct trial {
    enum trial_status status;
    uint64_t elapsed_ns; /* of a trial that is done */
    char failure[200];   /* what went wrong in a trial that failed */
};

/* Makes the directory inside parent; 0, or -1 after a message. */
int set_up_bench(struct bench *bench, const char *parent, const char *evaluator);

void clean_up_bench(const struct bench *bench);

struct trial run_trial(const struct bench *bench, int mode, const struct line *expression);

/* Has SIGINT and SIGTERM end the trial under way instead of this process. */
void catch_interrupts(void);

/* The signal that was caught, or 0. */
int interrupted(void);

#endif
