/*
 * Large payloads.  The calls' time is known: no call sleeps, so it is their wall-clock time if the
 * scheduler says that the thread did not wait for a CPU.  The client sleeps before it reads its
 * answer: a reader of a Unix socket is also woken when its peer makes room, and would interfere.
 *
 * The copying time is the extra time of the two long calls, compared with the same calls for a few
 * bytes, which the server measures on a separate channel.  The fixed cost of any call, including
 * cold caches, is the time of an empty call after the same amount of memory was touched.
 */
#include "cases.h"
#include "give_up.h"
#include "kit_io.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 1024 * 1024, LEAST = MOST / 4, FEW = 4 };

static char *payload;
static struct channel own;
static uint64_t few_ns, nothing_ns;

static uint64_t transfer_ns(uint32_t bytes)
{
    struct usage before = usage_before();
    kit_write(own.client.out, payload, bytes);
    kit_read(own.server.in, payload, bytes);
    return usage_awake_ns(usage_between(before, usage_after()));
}

static void time_nothing(void)
{
    memset(payload, 1, MOST);
    struct usage before = usage_before();
    syscall(SYS_getppid);
    nothing_ns = usage_awake_ns(usage_between(before, usage_after()));
}

static void open_own(void)
{
    payload =
        mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (payload == MAP_FAILED)
        give_up("allocate", "a buffer");
    transport_open(&own, kit_transport, MOST);
    few_ns = UINT64_MAX;
    for (int i = 0; i < 50; i++) {
        uint64_t taken_ns = transfer_ns(FEW);
        if (taken_ns < few_ns)
            few_ns = taken_ns;
    }
    time_nothing();
}

static void take_payload(struct kit_request *request)
{
    struct usage before = usage_before();
    if (!kit_read(request->fd, payload, request->bytes))
        give_up("read", "a request");
    struct usage between = usage_between(before, usage_after());
    request->row->truth[0] = usage_awake_ns(between);
    request->row->truth[1] = between.runnable_ns;
    request->row->truth[2] = few_ns;
    request->row->truth[3] = nothing_ns;
}

static void after_request(struct kit_request *request)
{
    (void)request;
    time_nothing();
}

const struct kit_case copy_cases[] = {
    {.name = "copy",
     .truths = {"read_awake_ns", "taking_runnable_ns", "few_ns", "nothing_ns"},
     .ask_late_us = 2000,
     .most_bytes = MOST,
     .least_bytes = LEAST,
     .buffer_bytes = MOST,
     .watch = true,
     .after_write = true,
     .set_up = open_own,
     .handle = take_payload,
     .clean = after_request},
    {0},
};
