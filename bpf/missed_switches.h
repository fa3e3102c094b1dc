/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Context switches and wake-ups for which the kernel runs no hook. Some kernels omit some hooks
 * around certain threads; tracefs misses the same ones. The scheduler's own account has all of them
 * (struct sched_info, kernel/sched/stats.h). It says when a thread got its CPU, by the run queue's
 * clock, which stands still from before the hook of that switch to after it. It also says since
 * when the thread had been queued, which is when it was woken.
 */
#pragma once
#include "probe.h"

/* The last known switch of a CPU. */
struct last_switch {
    u64 at_ns; /* 0: none yet */
    u64 clock_ns;
    u32 next_tid;
    u32 next_traced;
    u64 pad[5]; /* a cache line each */
};
extern struct last_switch last_switches[MAX_CPUS];

/* The first field requires CONFIG_SCHED_INFO, the second CONFIG_FAIR_GROUP_SCHED
 * (kernel/sched/sched.h): distributions set both. */
#define HAS_ARRIVALS                                                                               \
    (bpf_core_field_exists(((struct task_struct *)0)->sched_info.last_arrival) &&                  \
     bpf_core_field_exists(((struct cfs_rq *)0)->rq))

static __always_inline u32 as_waited(u64 ns)
{
    return ns < NOT_KNOWN_NS ? ns : NOT_KNOWN_NS;
}

/* Records that `task` got its CPU in an unseen switch, and notes that as the CPU's last switch.
 * `state`: NULL for a thread that is not traced. Not inlined, as it happens seldom. */
__hidden void tell_missed_switch(struct last_switch *last, struct task_struct *task,
                                 struct task_state *state, u64 now_ns);

/* `task` has this CPU: checks whether it got the CPU in the last known switch. If not, records the
 * missed switch now. */
static __always_inline void find_arrival(struct last_switch *last, struct task_struct *task,
                                         struct task_state *state, u64 now_ns)
{
    u64 arrival_ns = task->sched_info.last_arrival;
    u32 tid = task->pid;
    /* The arrival of the idle task is not accounted. */
    if (!last->at_ns || (last->next_tid == tid && (!tid || arrival_ns == last->clock_ns)))
        return;
    if (tid && !arrival_ns)
        return; /* the scheduler keeps no account (delay accounting is off) */
    tell_missed_switch(last, task, state, now_ns);
}

/* To be called before anything is recorded that a traced thread has done on its CPU. */
static __always_inline void on_its_cpu(struct task_struct *task, struct task_state *state,
                                       u64 now_ns)
{
    u64 cpu = this_cpu();
    if (HAS_ARRIVALS)
        find_arrival(&last_switches[cpu], task, state, now_ns);
}

/* Notes a switch. Returns how long `next` has waited for the CPU. */
static __always_inline u32 note_switch(struct task_struct *prev, struct task_state *state,
                                       struct task_struct *next, bool next_traced, u64 now_ns)
{
    u64 cpu = this_cpu();
    if (!HAS_ARRIVALS)
        return NOT_KNOWN_NS;
    struct last_switch *last = &last_switches[cpu];
    u64 clock_ns = prev->se.cfs_rq->rq->clock, queued_ns = next->sched_info.last_queued;
    find_arrival(last, prev, state, now_ns);
    if (state)
        state->run_delay_ns = prev->sched_info.run_delay;
    last->at_ns = now_ns;
    last->clock_ns = clock_ns;
    last->next_tid = next->pid;
    last->next_traced = next_traced;
    return queued_ns ? as_waited(clock_ns - queued_ns) : NOT_KNOWN_NS;
}
