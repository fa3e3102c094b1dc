/* Reading a text stream line by line in bounded memory. */
#ifndef LINES_H
#define LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define LINE_LIMIT 65536

struct line {
    char text[LINE_LIMIT + 1]; /* without the newline, with a NUL after the last byte */
    size_t length;             /* NUL bytes may also be part of the text */
    unsigned long number;      /* of this line, from 1; to be 0 before the first */
    bool too_long;             /* the bytes after the first LINE_LIMIT were dropped */
};

/* Reads the next line; false at end of file or on a read error, which ferror() tells apart. */
bool read_line(FILE *file, struct line *line);

/* Whether there is no expression on the line: it is blank or a comment. */
bool is_skipped(const struct line *line);

#endif
