/*
 * Work handed from one helper to the next and back.  Each helper spins; the sum of the spins is the
 * truth.  A wait for a helper must not be attributed as a wait: its time is the helper's work.
 */
#include "cases.h"
#include "clocks.h"
#include "give_up.h"
#include "kit_io.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { HELPERS = 4, SPIN_NS = 100000 };

/* A way to wake the thread of a place; places 1 to HELPERS are the helpers', 0 is the server's. */
struct baton {
    void (*pass)(unsigned place);
    void (*await)(unsigned place);
};

/* The helpers' spinning time in the current request; passed on with the baton. */
static uint64_t spun_ns;
static const struct baton *baton;

static void *help(void *argument)
{
    unsigned place = (unsigned)(uintptr_t)argument;
    for (;;) {
        baton->await(place);
        spun_ns += clock_spin(SPIN_NS).cpu_ns;
        baton->pass(place == HELPERS ? 0 : place + 1);
    }
    return NULL;
}

static void start_threads(void)
{
    pthread_t thread;
    for (uintptr_t place = 1; place <= HELPERS; place++)
        if (pthread_create(&thread, NULL, help, (void *)place) != 0)
            give_up("start", "a thread");
}

static void round_trip(struct kit_request *request)
{
    spun_ns = 0;
    baton->pass(1);
    baton->await(0);
    request->row->truth[0] = spun_ns;
}

/* ---- eventfd ---- */

static int events[HELPERS + 1];

static void event_pass(unsigned place)
{
    const uint64_t one = 1;
    if (write(events[place], &one, sizeof one) != sizeof one)
        give_up("write to", "an eventfd");
}

static void event_await(unsigned place)
{
    uint64_t count;
    if (read(events[place], &count, sizeof count) != sizeof count)
        give_up("read", "an eventfd");
}

static void start_events(void)
{
    static const struct baton by_event = {.pass = event_pass, .await = event_await};
    for (unsigned i = 0; i <= HELPERS; i++)
        events[i] = eventfd(0, EFD_CLOEXEC);
    baton = &by_event;
    start_threads();
}

/* ---- condition variable ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int here;
} places[HELPERS + 1];

static void condition_pass(unsigned place)
{
    pthread_mutex_lock(&places[place].mutex);
    places[place].here = 1;
    pthread_mutex_unlock(&places[place].mutex);
    pthread_cond_signal(&places[place].changed);
}

static void condition_await(unsigned place)
{
    pthread_mutex_lock(&places[place].mutex);
    while (!places[place].here)
        pthread_cond_wait(&places[place].changed, &places[place].mutex);
    places[place].here = 0;
    pthread_mutex_unlock(&places[place].mutex);
}

static void start_conditions(void)
{
    static const struct baton by_condition = {.pass = condition_pass, .await = condition_await};
    for (unsigned i = 0; i <= HELPERS; i++) {
        pthread_mutex_init(&places[i].mutex, NULL);
        pthread_cond_init(&places[i].changed, NULL);
    }
    baton = &by_condition;
    start_threads();
}

/* ---- semaphore ---- */

static sem_t semaphores[HELPERS + 1];

static void semaphore_pass(unsigned place)
{
    sem_post(&semaphores[place]);
}

static void semaphore_await(unsigned place)
{
    sem_wait(&semaphores[place]);
}

static void start_semaphores(void)
{
    static const struct baton by_semaphore = {.pass = semaphore_pass, .await = semaphore_await};
    for (unsigned i = 0; i <= HELPERS; i++)
        sem_init(&semaphores[i], 0, 0);
    baton = &by_semaphore;
    start_threads();
}

/* ---- processes in a ring of pipes; the sum travels in the message ---- */

static int rings[HELPERS + 1][2];
static int helpers[HELPERS];

static void start_processes(void)
{
    uint64_t sum;
    for (unsigned i = 0; i <= HELPERS; i++)
        if (pipe(rings[i]) < 0)
            give_up("open", "a pipe");
    for (unsigned place = 1; place <= HELPERS; place++) {
        helpers[place - 1] = kit_fork();
        if (helpers[place - 1] > 0)
            continue;
        while (kit_read(rings[place][0], &sum, sizeof sum)) {
            sum += clock_spin(SPIN_NS).cpu_ns;
            kit_write(rings[(place + 1) % (HELPERS + 1)][1], &sum, sizeof sum);
        }
        _exit(0);
    }
}

static void ring_trip(struct kit_request *request)
{
    uint64_t sum = 0;
    kit_write(rings[1][1], &sum, sizeof sum);
    kit_read(rings[0][0], &sum, sizeof sum);
    request->row->truth[0] = sum;
}

static void end_processes(void)
{
    kit_kill(helpers, HELPERS);
}

const struct kit_case hop_cases[] = {
    {.name = "hops_eventfd", .truths = {"cpu_ns"}, .set_up = start_events, .handle = round_trip},
    {.name = "hops_condvar",
     .truths = {"cpu_ns"},
     .set_up = start_conditions,
     .handle = round_trip},
    {.name = "hops_semaphore",
     .truths = {"cpu_ns"},
     .set_up = start_semaphores,
     .handle = round_trip},
    {.name = "hops_process",
     .truths = {"cpu_ns"},
     .set_up = start_processes,
     .handle = ring_trip,
     .tear_down = end_processes},
    {0},
};
