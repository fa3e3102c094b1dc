#define _GNU_SOURCE

#include "shared.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum turn {
    ANSWERED, /* the parent's turn: it may ask */
    ASKED,    /* the child's turn: it must answer */
    CLOSED    /* nobody's turn any more */
};

struct shared_area {
    _Atomic uint32_t turn;
    uint32_t length;
    char message[SHARED_CAPACITY + 1];
};

/* For the signal handler: the area of the present child. */
static struct shared_area *served;

/* Sleeps as long as `turn` lasts. */
static void wait_while(struct shared_area *area, uint32_t turn)
{
    while (atomic_load(&area->turn) == turn)
        syscall(SYS_futex, &area->turn, FUTEX_WAIT, turn, NULL, NULL, 0);
}

/* Passes the turn on and wakes its waiter; returns false if the turn was not `from`. */
static bool pass_turn(struct shared_area *area, uint32_t from, uint32_t to)
{
    if (!atomic_compare_exchange_strong(&area->turn, &from, to))
        return false;
    syscall(SYS_futex, &area->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
    return true;
}

/*
 * Handles the child's death.  A parent that is about to sleep on the word finds it changed, so this
 * cannot come too early.
 */
static void close_area(int number)
{
    (void)number;
    atomic_store(&served->turn, CLOSED);
}

static _Noreturn void serve(struct shared_area *area, shared_answerer *answerer,
                            const void *context)
{
    for (;;) {
        wait_while(area, ANSWERED);
        if (atomic_load(&area->turn) != ASKED)
            _exit(0); /* not exit(): stdio's buffered data belongs to the parent */
        area->length = (uint32_t)answerer(area->message, area->length, context);
        pass_turn(area, ASKED, ANSWERED);
    }
}

int shared_fork(struct shared_peer *peer, shared_answerer *answerer, const void *context)
{
    struct shared_area *area =
        mmap(NULL, sizeof *area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return -1;
    served = area;
    struct sigaction action = {.sa_handler = close_area, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigaction(SIGCHLD, &action, NULL);

    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        int saved = errno;
        signal(SIGCHLD, SIG_DFL);
        munmap(area, sizeof *area);
        errno = saved;
        return -1;
    }
    if (pid == 0) {
        signal(SIGCHLD, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* the parent had ended before the prctl() */
            _exit(0);
        serve(area, answerer, context);
    }
    *peer = (struct shared_peer){.pid = pid, .area = area};
    return 0;
}

enum comm_status shared_ask(struct shared_peer *peer, const void *request, size_t length,
                            void *answer, size_t capacity, size_t *got)
{
    struct shared_area *area = peer->area;
    if (length > SHARED_CAPACITY)
        return COMM_TOO_LONG;
    memcpy(area->message, request, length);
    area->length = (uint32_t)length;
    if (!pass_turn(area, ANSWERED, ASKED))
        return COMM_CLOSED;
    wait_while(area, ASKED);
    if (atomic_load(&area->turn) == CLOSED)
        return COMM_CLOSED;
    if (area->length > capacity || area->length > SHARED_CAPACITY)
        return COMM_TOO_LONG;
    memcpy(answer, area->message, area->length);
    *got = area->length;
    return COMM_OK;
}

int shared_join(struct shared_peer *peer, int *wait_status)
{
    pid_t waited;
    pass_turn(peer->area, ANSWERED, CLOSED);
    do
        waited = waitpid(peer->pid, wait_status, 0);
    while (waited < 0 && errno == EINTR);
    int saved = errno;
    signal(SIGCHLD, SIG_DFL);
    munmap(peer->area, sizeof *peer->area);
    errno = saved;
    return waited < 0 ? -1 : 0;
}
