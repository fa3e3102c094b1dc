#include "frontend.h"

#include "lines.h"

#include <errno.h>
#include <string.h>

static int complain(const char *verb, const struct stream *stream)
{
    fprintf(stderr, "frpc: cannot %s %s: %s\n", verb, stream->name, strerror(errno));
    return BROKEN;
}

static void describe_too_long(const struct line *line, char answer[ANSWER_SIZE])
{
    snprintf(answer, ANSWER_SIZE, ERROR_PREFIX " line %lu: longer than %d bytes", line->number,
             LINE_LIMIT);
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
            describe_too_long(&line, answer);
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

/* Gets a batch answered, writes the answers and empties the batch; returns an exit status. */
static int answer_batch(const struct stream *out, struct batch *batch, ask_batch_function *ask,
                        void *context)
{
    char answer[ANSWER_SIZE];
    int status = ALL_FINE;
    size_t position = 0, length;
    unsigned answers = 0;

    if (batch->count == 0)
        return ALL_FINE;
    if (!ask(context, batch))
        return BROKEN;
    for (; batch_next(batch, &position, answer, sizeof answer, &length); answers++) {
        if (!is_answer(answer))
            status = SOME_FAILED;
        if (fprintf(out->file, "%s\n", answer) < 0)
            return complain("write", out);
    }
    if (answers != batch->count || position != batch->length) {
        fprintf(stderr, "frpc: %u answers to %u expressions\n", answers, batch->count);
        return BROKEN;
    }
    batch_clear(batch);
    return fflush(out->file) == EOF ? complain("write", out) : status;
}

int run_front_end_in_batches(const struct stream *in, const struct stream *out, unsigned most,
                             ask_batch_function *ask, void *context)
{
    static struct line line;
    static struct batch batch;
    char answer[ANSWER_SIZE];
    int worst = ALL_FINE, status;

    while (read_line(in->file, &line)) {
        if (is_skipped(&line))
            continue;
        bool joins = !line.too_long && batch_add(&batch, line.text, line.length);
        if (joins && batch.count < most)
            continue;
        if ((status = answer_batch(out, &batch, ask, context)) == BROKEN)
            return BROKEN;
        worst = status > worst ? status : worst;
        if (line.too_long) {
            describe_too_long(&line, answer);
            worst = SOME_FAILED;
            if (fprintf(out->file, "%s\n", answer) < 0 || fflush(out->file) == EOF)
                return complain("write", out);
        } else if (!joins) {
            batch_add(&batch, line.text, line.length); /* there is room now */
        }
    }
    bool unreadable = ferror(in->file);
    int cause = errno;
    status = answer_batch(out, &batch, ask, context);
    if (unreadable && status != BROKEN) {
        errno = cause;
        return complain("read", in);
    }
    return status > worst ? status : worst;
}
