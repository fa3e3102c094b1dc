/* give_up: the end of a target that cannot do its work; errno tells why. */
#ifndef GIVE_UP_H
#define GIVE_UP_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What went wrong is in the exit status, too: a killed helper must not look like a good run. */
enum { UNUSABLE = 2 };

static inline _Noreturn void give_up(const char *what, const char *name)
{
    fprintf(stderr, "%s: cannot %s %s: %s\n", program_invocation_short_name, what, name,
            strerror(errno));
    exit(UNUSABLE);
}

#endif
