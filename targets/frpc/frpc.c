/* frpc: an expression evaluator with six ways to reach it. */
#define _POSIX_C_SOURCE 200809L

#include "backend.h"
#include "frontend.h"
#include "options.h"
#include "standard_fds.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static struct stream open_stream(const char *path, const char *access, struct stream standard)
{
    if (!path)
        return standard;
    struct stream stream = {.file = fopen(path, access), .name = path};
    if (!stream.file) {
        fprintf(stderr, "frpc: cannot open %s: %s\n", path, strerror(errno));
        exit(BROKEN);
    }
    return stream;
}

/* The ask_function of modes 1 and 2. */
static bool ask_directly(void *context, const char *text, size_t length, char answer[ANSWER_SIZE])
{
    const enum notation *notation = context;
    answer_expression(text, length, *notation, answer);
    return true;
}

static int run_with_back_end(const struct stream *in, const struct stream *out,
                             const struct options *options)
{
    struct back_end back_end;
    int status;

    /* So that a dead back end is reported and does not end the front end silently. */
    signal(SIGPIPE, SIG_IGN);
    if (start_back_end(&back_end, options) < 0)
        return BROKEN;
    if (options->log && open_request_log(&back_end.log, options->log) < 0) {
        fprintf(stderr, "frpc: cannot open %s: %s\n", options->log, strerror(errno));
        stop_back_end(&back_end);
        return BROKEN;
    }
    if (options->mode == MODE_BATCHES)
        status = run_front_end_in_batches(in, out, options->batch, ask_back_end_batch, &back_end);
    else
        status = run_front_end(in, out, true, ask_back_end, &back_end);
    if (close_request_log(&back_end.log) < 0) {
        fprintf(stderr, "frpc: cannot write %s: %s\n", options->log, strerror(errno));
        status = BROKEN;
    }
    return stop_back_end(&back_end) < 0 ? BROKEN : status;
}

int main(int argc, char **argv)
{
    occupy_standard_fds();
    struct options options = parse_options(argc, argv);
    struct stream in = open_stream(options.input, "r", (struct stream){stdin, "standard input"});
    struct stream out =
        open_stream(options.output, "w", (struct stream){stdout, "standard output"});

    int status;
    if (options.mode >= MODE_PIPES)
        status = run_with_back_end(&in, &out, &options);
    else
        status =
            run_front_end(&in, &out, options.mode == MODE_STREAMS, ask_directly, &options.notation);

    if (fclose(out.file) == EOF && status != BROKEN) {
        fprintf(stderr, "frpc: cannot write %s: %s\n", out.name, strerror(errno));
        status = BROKEN;
    }
    return status;
}
