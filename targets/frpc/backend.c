#define _POSIX_C_SOURCE 200809L

#include "backend.h"

#include "lines.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

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
    if (status == COMM_CLOSED)
        return 0;
    fprintf(stderr, "frpc: back end: %s\n", comm_describe(status));
    return 1;
}

int start_back_end(struct comm_peer *back_end, const enum notation *notation)
{
    if (comm_fork(back_end, serve, notation) == 0)
        return 0;
    fprintf(stderr, "frpc: cannot start the back end: %s\n", strerror(errno));
    return -1;
}

bool ask_back_end(void *context, const char *text, size_t length, char answer[ANSWER_SIZE])
{
    const struct comm_peer *back_end = context;
    size_t got = 0;
    enum comm_status status = comm_send(back_end->to, text, length);
    if (status == COMM_OK)
        status = comm_receive(back_end->from, answer, ANSWER_SIZE - 1, &got);
    if (status != COMM_OK) {
        fprintf(stderr, "frpc: no answer from the back end: %s\n", comm_describe(status));
        return false;
    }
    answer[got] = '\0';
    return true;
}

int stop_back_end(struct comm_peer *back_end)
{
    int status;
    if (comm_join(back_end, &status) < 0) {
        fprintf(stderr, "frpc: cannot wait for the back end: %s\n", strerror(errno));
        return -1;
    }
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        fprintf(stderr, "frpc: the back end (process %ld) was killed by signal %d (%s)\n",
                (long)back_end->pid, number, strsignal(number));
        return -1;
    }
    if (WEXITSTATUS(status) != 0) {
        fprintf(stderr, "frpc: the back end (process %ld) exited with status %d\n",
                (long)back_end->pid, WEXITSTATUS(status));
        return -1;
    }
    return 0;
}
