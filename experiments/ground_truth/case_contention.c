/* A competitor for the server's CPU. */
#include "cases.h"
#include "clocks.h"
#include "kit_io.h"

#include <unistd.h>

enum { SHARED_CPU = 1 };

static int competitor;

static void start_competitor(void)
{
    competitor = kit_fork();
    kit_pin(SHARED_CPU);
    if (competitor == 0)
        for (;;)
            clock_spin(1000000);
}

/* The scheduler's account of time spent runnable during a spin that never sleeps. */
static void spin_in_turns(struct kit_request *request)
{
    struct usage before = usage_before();
    struct spun spun = clock_spin(8000000);
    struct usage between = usage_between(before, usage_after());
    request->row->truth[0] = between.runnable_ns;
    request->row->truth[1] = spun.cpu_ns;
}

static void end_competitor(void)
{
    kit_kill(&competitor, 1);
}

const struct kit_case contention_cases[] = {
    {.name = "preempted",
     .truths = {"preempted_ns", "cpu_ns"},
     .set_up = start_competitor,
     .handle = spin_in_turns,
     .tear_down = end_competitor},
    {0},
};
