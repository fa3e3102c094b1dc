/* Pipes that are full, and requests that wait for their turn. */
#include "cases.h"
#include "clocks.h"
#include "give_up.h"

#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, LARGE = 8 * CHUNK };

static char chunk[CHUNK];

/*
 * The client fills the pipe and blocks, as the server spins before it takes each chunk: the time
 * is the server's work, not a wait of the client.
 */
static void read_slowly(struct kit_request *request)
{
    uint32_t left = LARGE - sizeof(uint32_t);
    uint64_t spun_ns = 0;
    while (left > 0) {
        spun_ns += clock_spin(vary(request->seq, 100000, 200000)).cpu_ns;
        uint32_t length = left < CHUNK ? left : CHUNK;
        kit_read(request->fd, chunk, length);
        left -= length;
    }
    request->row->truth[0] = spun_ns;
}

/* ---- a log that its reader cannot keep up with ---- */

static int sink[2];
static int reader;

static void start_reader(void)
{
    if (pipe(sink) < 0)
        give_up("open", "a pipe");
    reader = kit_fork();
    if (reader == 0) {
        const struct timespec slow = {.tv_nsec = 1000000};
        for (;;) {
            kit_read(sink[0], chunk, CHUNK);
            nanosleep(&slow, NULL);
        }
    }
    /* So that it is full when the first request comes. */
    kit_write(sink[1], chunk, CHUNK);
}

static void write_to_sink(struct kit_request *request)
{
    struct usage before = usage_before();
    kit_write(sink[1], chunk, CHUNK);
    struct usage between = usage_between(before, usage_after());
    request->row->truth[0] = usage_asleep_ns(between);
}

static void end_reader(void)
{
    kit_kill(&reader, 1);
}

/* ---- a burst ---- */

enum { BURST_CLIENTS = 4 };

/* When the server began and ended to serve: the last so many of its requests. */
static struct {
    uint64_t begin_ns, end_ns;
} served[2 * BURST_CLIENTS];
static unsigned served_count;

/* Between the client's write and the server's read: how long the server served others. */
static void take_turns(struct kit_request *request)
{
    uint64_t taken_ns = request->row->truth[0];
    clock_spin(vary(request->seq, 100000, 300000));
    /* By now the client has long returned from its write. */
    uint64_t written_ns = *(volatile uint64_t *)&request->row->written_ns;
    uint64_t queued_ns = 0;
    for (unsigned i = 0; i < 2 * BURST_CLIENTS; i++) {
        uint64_t from = served[i].begin_ns > written_ns ? served[i].begin_ns : written_ns;
        uint64_t to = served[i].end_ns < taken_ns ? served[i].end_ns : taken_ns;
        queued_ns += to > from ? to - from : 0;
    }
    request->row->truth[0] = queued_ns;
    served[served_count % (2 * BURST_CLIENTS)].begin_ns = taken_ns;
}

static void end_turn(struct kit_request *request)
{
    (void)request;
    served[served_count++ % (2 * BURST_CLIENTS)].end_ns = clock_ns();
}

const struct kit_case pipe_cases[] = {
    {.name = "pipe_full", .truths = {"cpu_ns"}, .request_bytes = LARGE, .handle = read_slowly},
    {.name = "sink_full",
     .truths = {"asleep_ns"},
     .set_up = start_reader,
     .handle = write_to_sink,
     .tear_down = end_reader},
    {.name = "burst",
     .truths = {"queued_ns"},
     .clients = BURST_CLIENTS,
     .handle = take_turns,
     .clean = end_turn},
    {0},
};
