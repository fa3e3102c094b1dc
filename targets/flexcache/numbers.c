#include "numbers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

unsigned number_or_exit(const char *program, const char *option, const char *text, unsigned most)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || value > most) {
        fprintf(stderr, "%s: %s '%s' is not a number from 0 to %u\nTry '%s --help'.\n", program,
                option, text, most, program);
        exit(2);
    }
    return (unsigned)value;
}
