/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What is counted of a thread. */
#pragma once
#include <linux/types.h>

/* Stints on a CPU that have ended. */
struct stints {
    __u64 count;
    __u64 charged_ns; /* by the scheduler (sum_exec_runtime) */
    __u64 hook_ns;    /* between the hooks of the switches */
    /* Between the wake-up and the hook of the switch, where the clock was not read at the switch to
     * this thread; and at the switch to the next one. */
    __u64 unread_before_ns, unread_at_end_ns;
};

/* Stints are told apart by these. */
#define NOT_READ_BEFORE 1
#define NOT_READ_AT_END 2

struct account {
    __u32 pid;
    __u32 pad;
    struct stints kinds[4];
    /* Charged in stints of which a switch was not seen. */
    __u64 unseen_ns;
    /* When a switch of it was last seen, sum_exec_runtime; 0: never. */
    __u64 last_charged_ns;
    /* Of the stint under way. */
    __u64 charged_before_ns, came_ns, unread_before_ns;
    /* Of the last wake-up. */
    __u64 woken_ns, clock_when_woken_ns;
};
