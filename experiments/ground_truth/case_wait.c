/* Waits that a server thread starts by itself: for a timer, for a lock. */
#include "cases.h"
#include "clocks.h"
#include "give_up.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* Without slack a timer expires at the requested time. */
static void no_slack(void)
{
    prctl(PR_SET_TIMERSLACK, 1);
}

/* The truth is the requested time, not a measured one: the timer's delay is part of the error. */
static void sleep_some(struct kit_request *request)
{
    uint64_t until = clock_ns() + vary(request->seq, 1000000, 3000000);
    struct timespec deadline = {
        .tv_sec = (time_t)(until / 1000000000),
        .tv_nsec = (long)(until % 1000000000),
    };
    uint64_t begin = clock_ns();
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
    request->row->truth[0] = until - begin;
}

/* ---- a mutex held by another thread ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int hold_fd, held_fd;
static uint64_t hold_ns;
static atomic_uint_fast64_t released_ns;

static void sleep_until(uint64_t until)
{
    struct timespec deadline = {
        .tv_sec = (time_t)(until / 1000000000),
        .tv_nsec = (long)(until % 1000000000),
    };
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
}

static void signal_event(int fd)
{
    const uint64_t one = 1;
    if (write(fd, &one, sizeof one) != sizeof one)
        give_up("write to", "an eventfd");
}

static void await_event(int fd)
{
    uint64_t count;
    if (read(fd, &count, sizeof count) != sizeof count)
        give_up("read", "an eventfd");
}

/* Sleeps while it holds the mutex, so that another thread can try to lock it even on one CPU. */
static void *hold(void *unused)
{
    (void)unused;
    for (;;) {
        await_event(hold_fd);
        pthread_mutex_lock(&mutex);
        uint64_t until = clock_ns() + hold_ns;
        signal_event(held_fd);
        sleep_until(until);
        atomic_store(&released_ns, clock_ns());
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void start_holder(void)
{
    pthread_t holder;
    no_slack();
    hold_fd = eventfd(0, EFD_CLOEXEC);
    held_fd = eventfd(0, EFD_CLOEXEC);
    if (hold_fd < 0 || held_fd < 0 || pthread_create(&holder, NULL, hold, NULL) != 0)
        give_up("start", "a thread");
}

/* Measures from the attempt to lock until the holder's stamp of its release. */
static void lock(struct kit_request *request)
{
    hold_ns = vary(request->seq, 500000, 1500000);
    signal_event(hold_fd);
    await_event(held_fd);
    uint64_t begin = clock_ns();
    pthread_mutex_lock(&mutex);
    uint64_t released = atomic_load(&released_ns);
    pthread_mutex_unlock(&mutex);
    request->row->truth[0] = released > begin ? released - begin : 0;
}

const struct kit_case wait_cases[] = {
    {.name = "sleep", .truths = {"sleep_ns"}, .set_up = no_slack, .handle = sleep_some},
    {.name = "mutex", .truths = {"lock_ns"}, .set_up = start_holder, .handle = lock},
    {0},
};
