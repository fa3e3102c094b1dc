/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Time that the hypervisor took from a CPU. The guest's kernel reads it only in
 * update_rq_clock_task() (kernel/sched/core.c): before each switch and at each tick. So only the
 * amount since the last reading is known.
 */
#pragma once
#include "probe.h"

#define LEAST_STEAL_NS 1000

struct steal_seen {
    u64 total_ns;
    u64 at_ns;
    u64 timer_ns; /* beginning of the timer interrupt being served */
    u64 pad[5];   /* a cache line each */
};
extern struct steal_seen steals[MAX_CPUS];

/* Records stolen time: it was taken before `until_ns`, while `task` had the CPU. */
static __always_inline void look_for_steal(struct task_struct *task, u64 until_ns, u64 now_ns)
{
    u64 cpu = this_cpu();
    /* The first field requires CONFIG_PARAVIRT_TIME_ACCOUNTING, the second
     * CONFIG_FAIR_GROUP_SCHED. */
    if (!bpf_core_field_exists(((struct rq *)0)->prev_steal_time_rq) ||
        !bpf_core_field_exists(((struct cfs_rq *)0)->rq))
        return;
    struct steal_seen *seen = &steals[cpu];
    u64 total_ns = task->se.cfs_rq->rq->prev_steal_time_rq;
    u64 taken_ns = total_ns - seen->total_ns, since_ns = seen->at_ns;
    seen->at_ns = now_ns;
    if (since_ns && (s64)taken_ns < LEAST_STEAL_NS)
        return;
    seen->total_ns = total_ns;
    if (!since_ns || (scope_target && !traced_state(task)))
        return;
    emit (rec_steal, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .tid = task->pid, .kind = REC_STEAL};
        r->since_ns = since_ns;
        r->until_ns = until_ns;
        r->taken_ns = taken_ns;
    }
}
