#include "frontend.h"

#include "lines.h"

#include <errno.h>
#include <string.h>

static int complain(const char *verb, const struct stream *stream)
{
    fprintf(stderr, "frpc: cannot %s %s: %s\n", verb, stream->name, strerror(errno));
    return BROKEN;
}

int run_front_end(const struct stream *in, const struct stream *out, bool flush_each,
                  ask_function *ask, void *context)
{
    static struct line line;
    char answer[ANSWER_SIZE];
    int status = ALL_FINE;

    while (read_line(in->file, &line)) {
        if (is_skipped(&line))
            continue;
        if (line.too_long)
            snprintf(answer, sizeof answer, ERROR_PREFIX " line %lu: longer than %d bytes",
                     line.number, LINE_LIMIT);
        else if (!ask(context, line.text, line.length, answer))
            return BROKEN;
        if (!is_answer(answer))
            status = SOME_FAILED;
        if (fprintf(out->file, "%s\n", answer) < 0 || (flush_each && fflush(out->file) == EOF))
            return complain("write", out);
    }
    if (ferror(in->file))
        return complain("read", in);
    return status;
}
