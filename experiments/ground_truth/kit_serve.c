#include "kit_serve.h"

#include "give_up.h"
#include "kit_io.h"

#include <poll.h>
#include <pthread.h>

/* One thread and the clients it serves. */
struct thread {
    const struct kit_case *injected;
    unsigned number;
    unsigned count; /* of its clients */
    struct {
        struct ends ends;
        struct kit_row *rows;
    } clients[KIT_CLIENTS];
    struct pollfd polled[KIT_CLIENTS];
    unsigned turn;     /* the client that is checked first */
    unsigned requests; /* of each client */
    unsigned taken;    /* of the client, if there is only one */
    uint64_t poll_from_ns, poll_to_ns, poll_runnable_ns;
};

static void await_any(struct thread *thread)
{
    bool watch = thread->injected->watch;
    struct usage before = {0};
    if (watch)
        before = usage_before();
    thread->poll_from_ns = clock_ns();
    if (poll(thread->polled, thread->count, -1) < 0)
        give_up("wait for", "requests");
    thread->poll_to_ns = clock_ns();
    if (watch)
        thread->poll_runnable_ns = usage_between(before, usage_after()).runnable_ns;
}

/* The next client with a request; -1 when all have left. */
static int next(struct thread *thread)
{
    /* With a single client there is no need to find the request's client. */
    if (thread->count == 1)
        return thread->polled[0].fd >= 0 ? 0 : -1;
    for (;;) {
        bool any = false;
        for (unsigned i = 0; i < thread->count; i++) {
            unsigned at = (thread->turn + i) % thread->count;
            struct pollfd *polled = &thread->polled[at];
            short ready = polled->revents;
            polled->revents = 0;
            if (ready & POLLIN) {
                thread->turn = at + 1;
                return (int)at;
            }
            if (ready)
                polled->fd = -1;
            any |= polled->fd >= 0;
        }
        if (!any)
            return -1;
        await_any(thread);
    }
}

/* Spins, because a sleeping server would be woken in the middle of the write. */
static void await_written(const struct kit_row *row)
{
    while (*(volatile const uint64_t *)&row->written_ns == 0)
        ;
}

static void serve_one(struct thread *thread, unsigned at)
{
    const struct kit_case *injected = thread->injected;
    struct ends ends = thread->clients[at].ends;
    uint32_t seq = thread->taken;
    bool by_itself = injected->after_write && seq < thread->requests;

    if (by_itself)
        await_written(&thread->clients[at].rows[thread->taken++]);
    struct usage before = {0};
    if (injected->watch)
        before = usage_before();
    uint64_t taken_ns = clock_ns();
    if (!by_itself && !kit_read(ends.in, &seq, sizeof seq)) {
        thread->polled[at].fd = -1;
        return;
    }
    struct kit_request request = {
        .seq = seq,
        .thread = thread->number,
        .fd = ends.in,
        .bytes = kit_length(injected, seq),
        .row = &thread->clients[at].rows[seq],
    };
    struct kit_row *row = request.row;
    row->thread = thread->number;
    row->taken_ns = taken_ns;
    row->poll_from_ns = thread->poll_from_ns;
    row->poll_to_ns = thread->poll_to_ns;
    row->poll_runnable_ns = thread->poll_runnable_ns;
    injected->handle(&request);
    if (injected->watch)
        row->served = usage_between(before, usage_after());
    row->answering_ns = clock_ns();
    kit_write(ends.out, &seq, sizeof seq);
    row->answered_ns = clock_ns();
    if (injected->clean)
        injected->clean(&request);
}

static void *serve(void *argument)
{
    struct thread *thread = argument;
    for (unsigned i = 0; i < thread->count; i++)
        thread->polled[i] = (struct pollfd){.fd = thread->clients[i].ends.in, .events = POLLIN};
    for (int at; (at = next(thread)) >= 0;)
        serve_one(thread, (unsigned)at);
    return NULL;
}

void kit_serve(const struct kit_case *injected, const struct channel *channels, unsigned clients,
               unsigned requests, struct kit_row *rows)
{
    static struct thread threads[KIT_THREADS];
    pthread_t others[KIT_THREADS];
    unsigned count = injected->threads ? injected->threads : 1;

    for (unsigned i = 0; i < clients; i++) {
        struct thread *thread = &threads[i % count];
        thread->clients[thread->count].ends = channels[i].server;
        thread->clients[thread->count].rows = rows + i * requests;
        thread->count++;
    }
    for (unsigned i = 0; i < count; i++) {
        threads[i].injected = injected;
        threads[i].number = i;
        threads[i].requests = requests;
        if (i > 0 && pthread_create(&others[i], NULL, serve, &threads[i]) != 0)
            give_up("start", "a thread");
    }
    serve(&threads[0]);
    for (unsigned i = 1; i < count; i++)
        pthread_join(others[i], NULL);
}
