#define _POSIX_C_SOURCE 200809L

#include "backend.h"

#include "lines.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

/* The exit status of a back end that can no longer receive or send. */
static int end_serving(enum comm_status status)
{
    if (status == COMM_CLOSED)
        return 0;
    fprintf(stderr, "frpc: back end: %s\n", comm_describe(status));
    return 1;
}

/* Runs in the child: answers requests until the front end closes the connection. */
static int serve(int in, int out, const void *context)
{
    static char request[LINE_LIMIT + 1];
    const enum notation *notation = context;
    char answer[ANSWER_SIZE];
    size_t length;
    enum comm_status status;

    while ((status = comm_receive(in, request, LINE_LIMIT, &length)) == COMM_OK) {
        request[length] = '\0';
        answer_expression(request, length, *notation, answer);
        status = comm_send(out, answer, strlen(answer));
        if (status != COMM_OK)
            break;
    }
    return end_serving(status);
}

/* The same for batches; a damaged batch gets fewer answers than it has expressions. */
static int serve_batches(int in, int out, const void *context)
{
    static struct batch requests, answers;
    static char request[LINE_LIMIT + 1];
    const enum notation *notation = context;
    char answer[ANSWER_SIZE];
    size_t length;
    enum comm_status status;

    while ((status = comm_receive(in, requests.bytes, sizeof requests.bytes, &requests.length)) ==
           COMM_OK) {
        size_t position = 0;
        batch_clear(&answers);
        while (batch_next(&requests, &position, request, sizeof request, &length)) {
            answer_expression(request, length, *notation, answer);
            batch_add(&answers, answer, strlen(answer));
        }
        status = comm_send(out, answers.bytes, answers.length);
        if (status != COMM_OK)
            break;
    }
    return end_serving(status);
}

/* A shared_answerer. */
static size_t answer_in_place(char *message, size_t length, const void *context)
{
    const enum notation *notation = context;
    char answer[ANSWER_SIZE];
    message[length] = '\0';
    answer_expression(message, length, *notation, answer);
    length = strlen(answer);
    memcpy(message, answer, length);
    return length;
}

int start_back_end(struct back_end *back_end, const struct options *options)
{
    const enum notation *notation = &options->notation;
    int result;
    *back_end = (struct back_end){.mode = options->mode};
    if (options->mode == MODE_MEMORY)
        result = shared_fork(&back_end->shared, answer_in_place, notation);
    else if (options->mode == MODE_SOCKET)
        result = comm_fork_socket(&back_end->comm, serve, notation);
    else
        result = comm_fork(&back_end->comm, options->mode == MODE_BATCHES ? serve_batches : serve,
                           notation);
    if (result < 0)
        fprintf(stderr, "frpc: cannot start the back end: %s\n", strerror(errno));
    return result;
}

static bool complain_of_no_answer(const char *why)
{
    fprintf(stderr, "frpc: no answer from the back end: %s\n", why);
    return false;
}

static enum comm_status exchange(const struct comm_peer *peer, const void *request, size_t length,
                                 void *answer, size_t capacity, size_t *got)
{
    enum comm_status status = comm_send(peer->to, request, length);
    return status == COMM_OK ? comm_receive(peer->from, answer, capacity, got) : status;
}

bool ask_back_end(void *context, const char *text, size_t length, char answer[ANSWER_SIZE])
{
    struct back_end *back_end = context;
    size_t got = 0;
    enum comm_status status;
    uint64_t begin_ns = now_ns();
    if (back_end->mode == MODE_MEMORY)
        status = shared_ask(&back_end->shared, text, length, answer, ANSWER_SIZE - 1, &got);
    else
        status = exchange(&back_end->comm, text, length, answer, ANSWER_SIZE - 1, &got);
    log_request(&back_end->log, begin_ns, status == COMM_OK, 1);
    if (status != COMM_OK)
        return complain_of_no_answer(comm_describe(status));
    answer[got] = '\0';
    return true;
}

bool ask_back_end_batch(void *context, struct batch *batch)
{
    struct back_end *back_end = context;
    uint64_t begin_ns = now_ns();
    enum comm_status status = exchange(&back_end->comm, batch->bytes, batch->length, batch->bytes,
                                       sizeof batch->bytes, &batch->length);
    log_request(&back_end->log, begin_ns, status == COMM_OK, batch->count);
    return status == COMM_OK || complain_of_no_answer(comm_describe(status));
}

int stop_back_end(struct back_end *back_end)
{
    bool is_shared = back_end->mode == MODE_MEMORY;
    long pid = is_shared ? back_end->shared.pid : back_end->comm.pid;
    int status;
    if ((is_shared ? shared_join(&back_end->shared, &status)
                   : comm_join(&back_end->comm, &status)) < 0) {
        fprintf(stderr, "frpc: cannot wait for the back end: %s\n", strerror(errno));
        return -1;
    }
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        fprintf(stderr, "frpc: the back end (process %ld) was killed by signal %d (%s)\n", pid,
                number, strsignal(number));
        return -1;
    }
    if (WEXITSTATUS(status) != 0) {
        fprintf(stderr, "frpc: the back end (process %ld) exited with status %d\n", pid,
                WEXITSTATUS(status));
        return -1;
    }
    return 0;
}
