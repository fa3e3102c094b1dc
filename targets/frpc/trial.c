#define _POSIX_C_SOURCE 200809L

#include "trial.h"

#include "answer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t caught_signal;
static volatile sig_atomic_t running_child; /* 0 if none */

static void end_trial(int number)
{
    caught_signal = number;
    if (running_child > 0)
        kill(running_child, SIGTERM);
}

void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = end_trial, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int interrupted(void)
{
    return caught_signal;
}

static void complain(const char *what, const char *name)
{
    fprintf(stderr, "measure: cannot %s %s: %s\n", what, name, strerror(errno));
}

int set_up_bench(struct bench *bench, const char *parent, const char *evaluator)
{
    /* Leaves room for the names of the files in the directory. */
    size_t room = sizeof bench->directory - 16;
    bench->evaluator = evaluator;
    if ((size_t)snprintf(bench->directory, room, "%s/frpc-measure.XXXXXX", parent) >= room) {
        errno = ENAMETOOLONG;
        complain("make a directory in", parent);
        return -1;
    }
    if (!mkdtemp(bench->directory)) {
        complain("make a directory in", parent);
        return -1;
    }
    size_t length = strlen(bench->directory);
    memcpy(bench->input, bench->directory, length);
    strcpy(bench->input + length, "/input");
    memcpy(bench->output, bench->directory, length);
    strcpy(bench->output + length, "/output");
    return 0;
}

void clean_up_bench(const struct bench *bench)
{
    unlink(bench->input);
    unlink(bench->output);
    if (rmdir(bench->directory) < 0)
        complain("remove", bench->directory);
}

static int write_expression(const char *path, const struct line *expression)
{
    FILE *file = fopen(path, "we");
    if (!file)
        return -1;
    size_t written = fwrite(expression->text, 1, expression->length, file);
    bool good = written == expression->length && putc('\n', file) != EOF;
    return fclose(file) == 0 && good ? 0 : -1;
}

/* Runs in the child. */
static _Noreturn void exit_unable(const char *what, const char *name)
{
    complain(what, name);
    _exit(127);
}

/* Runs in the child, which modes 1 and 3 start like a shell with < and >. */
static void redirect(int fd, const char *path, int flags)
{
    int opened = open(path, flags | O_CLOEXEC, 0600);
    if (opened < 0 || dup2(opened, fd) < 0)
        exit_unable("open", path);
}

static _Noreturn void become_evaluator(const struct bench *bench, int mode)
{
    char mode_text[] = {(char)('0' + mode), '\0'};
    char *arguments[] = {"frpc", "-m", mode_text, NULL, NULL, NULL, NULL, NULL};
    if (mode == 2) {
        arguments[3] = "-i";
        arguments[4] = (char *)bench->input;
        arguments[5] = "-o";
        arguments[6] = (char *)bench->output;
    } else {
        redirect(STDIN_FILENO, bench->input, O_RDONLY);
        redirect(STDOUT_FILENO, bench->output, O_WRONLY | O_CREAT | O_TRUNC);
    }
    execv(bench->evaluator, arguments);
    exit_unable("run", bench->evaluator);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Runs the evaluator to its end and times it; returns 0, or -1 after a message. */
static int time_evaluator(const struct bench *bench, int mode, uint64_t *elapsed_ns, int *status)
{
    uint64_t start = now_ns();
    pid_t pid = fork();
    if (pid == 0)
        become_evaluator(bench, mode);
    if (pid < 0) {
        complain("fork for", bench->evaluator);
        return -1;
    }
    running_child = pid;
    if (caught_signal) /* perhaps before the handler knew the child */
        kill(pid, SIGTERM);
    pid_t waited;
    do
        waited = waitpid(pid, status, 0);
    while (waited < 0 && errno == EINTR);
    *elapsed_ns = now_ns() - start;
    running_child = 0;
    if (waited < 0) {
        complain("wait for", bench->evaluator);
        return -1;
    }
    return 0;
}

/* Reads the first line of the output; an empty string if there is none. */
static void read_first_line(const char *path, char *text, size_t size)
{
    text[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(text, (int)size, file))
        text[strcspn(text, "\n")] = '\0';
    fclose(file);
}

static struct trial failed(const char *format, ...)
{
    struct trial trial = {.status = TRIAL_FAILED};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(trial.failure, sizeof trial.failure, format, arguments);
    va_end(arguments);
    return trial;
}

struct trial run_trial(const struct bench *bench, int mode, const struct line *expression)
{
    const struct trial broken = {.status = TRIAL_BROKEN};
    uint64_t elapsed_ns;
    int status;

    if (write_expression(bench->input, expression) < 0) {
        complain("write", bench->input);
        return broken;
    }
    /* An answer left by the previous trial must not count as this trial's. */
    if (unlink(bench->output) < 0 && errno != ENOENT) {
        complain("remove", bench->output);
        return broken;
    }
    if (time_evaluator(bench, mode, &elapsed_ns, &status) < 0)
        return broken;

    char answer[128];
    read_first_line(bench->output, answer, sizeof answer);
    if (WIFSIGNALED(status))
        return failed("killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0)
        return failed("exit status %d: %s", WEXITSTATUS(status), answer);
    if (!is_answer(answer))
        return failed("no " ANSWER_PREFIX " in the output: %s", answer);
    return (struct trial){.status = TRIAL_DONE, .elapsed_ns = elapsed_ns};
}
