#define _POSIX_C_SOURCE 200809L

#include "lines.h"

#include "tokens.h"

bool read_line(FILE *file, struct line *line)
{
    int c;
    line->length = 0;
    line->too_long = false;
    while ((c = getc_unlocked(file)) != EOF && c != '\n') {
        if (line->length < LINE_LIMIT)
            line->text[line->length++] = (char)c;
        else
            line->too_long = true;
    }
    line->text[line->length] = '\0';
    line->number++;
    if (ferror(file))
        return false;
    return c == '\n' || line->length > 0;
}

bool is_skipped(const struct line *line)
{
    size_t first = 0;
    while (first < line->length && is_blank(line->text[first]))
        first++;
    if (first == line->length)
        return !line->too_long;
    return line->text[first] == '#';
}
