/* Channels that are full, and requests that wait for their turn. */
#include "cases.h"
#include "give_up.h"
#include "kit_io.h"

#include <time.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, LARGE = 8 * CHUNK };

static char chunk[CHUNK];

/*
 * The client fills the channel and blocks, because the server spins before it takes each chunk.
 * The time is the server's work, not a wait of the client.  On a single CPU the server would wait
 * for a client that waits for the CPU.
 */
static void read_slowly(struct kit_request *request)
{
    uint32_t left = request->bytes - sizeof(uint32_t);
    uint64_t spun_ns = 0;
    while (left > 0) {
        spun_ns += clock_spin(vary(request->seq, 100000, 200000)).cpu_ns;
        uint32_t length = left < CHUNK ? left : CHUNK;
        if (!kit_read(request->fd, chunk, length))
            give_up("read", "a request");
        left -= length;
    }
    request->row->truth[0] = spun_ns;
}

/* ---- a log that its reader cannot keep up with ---- */

static struct channel sink;
static int reader;

static void start_reader(void)
{
    transport_open(&sink, kit_transport, CHUNK);
    reader = kit_fork();
    if (reader == 0) {
        const struct timespec slow = {.tv_nsec = 1000000};
        for (;;) {
            kit_read(sink.server.in, chunk, CHUNK);
            nanosleep(&slow, NULL);
        }
    }
    /* Fills the channel before the first request: writes more than fits at once, and some more. */
    for (int i = 0; i < 4; i++)
        kit_write(sink.client.out, chunk, CHUNK);
}

static void write_to_sink(struct kit_request *request)
{
    struct usage before = usage_before();
    kit_write(sink.client.out, chunk, CHUNK);
    struct usage between = usage_between(before, usage_after());
    request->row->truth[0] = usage_asleep_ns(between);
}

static void end_reader(void)
{
    kit_kill(&reader, 1);
}

/* ---- a burst: the stamps of all requests give each request's queueing time ---- */

static void take_turns(struct kit_request *request)
{
    clock_spin(vary(request->seq, 100000, 300000));
}

const struct kit_case queue_cases[] = {
    {.name = "buffer_full",
     .truths = {"spun_ns"},
     .most_bytes = LARGE,
     .buffer_bytes = CHUNK,
     .watch = true,
     .apart = true,
     .handle = read_slowly},
    {.name = "sink_full",
     .truths = {"asleep_ns"},
     .set_up = start_reader,
     .handle = write_to_sink,
     .tear_down = end_reader},
    {.name = "burst", .clients = KIT_CLIENTS, .handle = take_turns},
    {0},
};
