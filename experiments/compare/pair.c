/* pair: round trips over two pipes to a server that does a fixed amount of work for each.
 *
 * The amount is a number of loops, not a time. So two runs differ only by the machine's
 * disturbances and by the requested work: more loops (user mode), more system calls (the kernel),
 * or a wait for a timer. */

#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct work {
    unsigned long loops;
    unsigned long calls;
    unsigned long sleep_us;
};

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

static unsigned long number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end) {
        fprintf(stderr, "pair: %s is not a number\n", text);
        exit(2);
    }
    return value;
}

/* Keeps the loop from being optimized away. */
volatile uint64_t result;

static void do_work(const struct work *work)
{
    uint64_t x = 88172645463325252u;

    /* xorshift: each step depends on the previous step. */
    for (unsigned long i = 0; i < work->loops; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    result = x;
    for (unsigned long i = 0; i < work->calls; i++)
        syscall(SYS_getppid);
    if (work->sleep_us) {
        const struct timespec pause = {.tv_nsec = (long)work->sleep_us * 1000};
        nanosleep(&pause, NULL);
    }
}

static void serve(int in, int out, const struct work *work)
{
    char byte;

    while (read(in, &byte, 1) == 1) {
        do_work(work);
        if (write(out, &byte, 1) != 1)
            give_up("write");
    }
}

int main(int argc, char **argv)
{
    struct work work = {.loops = 10000};
    unsigned long trips = 300;
    int ask[2], answer[2], option, status;
    char byte = 'x';

    while ((option = getopt(argc, argv, "n:l:c:s:")) != -1) {
        switch (option) {
        case 'n':
            trips = number(optarg);
            break;
        case 'l':
            work.loops = number(optarg);
            break;
        case 'c':
            work.calls = number(optarg);
            break;
        case 's':
            work.sleep_us = number(optarg);
            break;
        default:
            fprintf(stderr, "usage: pair [-n trips] [-l loops] [-c calls] [-s microseconds]\n");
            return 2;
        }
    }
    if (pipe(ask) < 0 || pipe(answer) < 0)
        give_up("pipe");
    pid_t server = fork();
    if (server < 0)
        give_up("fork");
    if (server == 0) {
        close(ask[1]);
        close(answer[0]);
        serve(ask[0], answer[1], &work);
        _exit(0);
    }
    close(ask[0]);
    close(answer[1]);
    for (unsigned long i = 0; i < trips; i++) {
        if (write(ask[1], &byte, 1) != 1)
            give_up("write");
        if (read(answer[0], &byte, 1) != 1)
            give_up("read");
    }
    close(ask[1]);
    if (waitpid(server, &status, 0) < 0 || status != 0)
        give_up("server");
    return 0;
}
