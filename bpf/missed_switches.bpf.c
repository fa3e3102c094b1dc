/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Missed context switches: defines what missed_switches.h declares. */
#include "missed_switches.h"

CACHE_LINES struct last_switch last_switches[MAX_CPUS];

__hidden __noinline void tell_missed_switch(struct last_switch *last, struct task_struct *task,
                                            struct task_state *state, u64 now_ns)
{
    u64 arrival_ns = task->sched_info.last_arrival;
    u32 tid = task->pid;
    struct last_switch before = *last;
    /* The run queue's clock stopped some microseconds before the hook of the last switch. */
    u64 arrived_ns = before.at_ns + (arrival_ns - before.clock_ns);
    last->at_ns = tid && arrived_ns < now_ns ? arrived_ns : now_ns;
    last->clock_ns = arrival_ns;
    last->next_tid = tid;
    last->next_traced = state != 0;
    if (scope_target && !state && !before.next_traced)
        return;
    emit (rec_unseen_switch, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .tid = tid, .kind = REC_UNSEEN_SWITCH};
        r->since_ns = before.at_ns;
        r->arrived_ns = tid ? last->at_ns : 0;
        r->last_tid = before.next_tid;
        r->waited_ns = NOT_KNOWN_NS;
        if (state && state->run_delay_ns)
            r->waited_ns = as_waited(task->sched_info.run_delay - state->run_delay_ns);
    }
}
