/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who has each CPU, who sleeps, who wakes whom. */
#include "missed_switches.h"
#include "stacks.h"
#include "steal.h"
#include "syscall_numbers.h"
#include "syscalls.h"

/* Whether the thread falls asleep in a poll(). */
static __always_inline bool sleeps_in_poll(const struct task_state *state, unsigned int prev_state)
{
#if HAS_OLD_CALLS
    if (state->nr == NR_poll)
        return prev_state != 0;
#endif
    return state->nr == NR_ppoll && prev_state != 0;
}

/* The first eight bits of the state are the TASK_* bits that tell a sleep from a preemption. */
SEC("tp_btf/sched_switch")
int HOOK(on_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
         unsigned int prev_state)
{
    u64 now_ns = bpf_ktime_get_ns();
    look_for_steal(prev, now_ns, now_ns);
    struct task_state *state = traced_running(prev);
    bool next_traced = traced_next(next) != 0;
    u32 waited_ns = note_switch(prev, state, next, next_traced, now_ns);
    if (scope_target && !state && !next_traced)
        return 0;

    if (state)
        ensure_call_known(state);
    u8 flags = preempt ? SWITCH_PREEMPT : 0;
    if (BPF_CORE_READ_BITFIELD(prev, in_iowait))
        flags |= SWITCH_IOWAIT;
    struct rec_hdr hdr = {
        .ts_ns = now_ns,
        .tid = prev->pid,
        .flags = flags,
        .aux = (u16)prev_state,
    };
    if (state && state->enter_ns) {
        bool polls = !preempt && sleeps_in_poll(state, prev_state);
        if (polls)
            describe_poll(state, prev);
        emit (rec_switch_sys, r, now_ns) {
            hdr.kind = REC_SWITCH_SYS;
            r->hdr = hdr;
            r->next_tid = next->pid;
            r->waited_ns = waited_ns;
            r->pad = 0;
            r->nr = state->nr;
            r->enter_ns = state->enter_ns;
            r->fd = state->fd;
            r->ino = state->fd < 0 && state->nr != NR_futex ? 0 : state->ino;
            r->dev = state->dev;
            r->object_type = state->object_type;
        }
        if (polls)
            state->fd = -1;
    } else {
        emit (rec_switch, r, now_ns) {
            hdr.kind = REC_SWITCH;
            r->hdr = hdr;
            r->next_tid = next->pid;
            r->waited_ns = waited_ns;
        }
    }
    if (state)
        stack_of_sleep(ctx, prev, preempt, prev_state, now_ns);
    return 0;
}

static __always_inline int tell_waking(struct task_struct *wakee, u8 flags)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct task_struct *waker = bpf_get_current_task_btf();
    struct task_state *state = traced_running(waker);
    if (scope_target && !state && !traced_state(wakee))
        return 0;
    if (state) {
        on_its_cpu(waker, state, now_ns);
        ensure_call_known(state);
    }
    if (state && state->enter_ns)
        flags |= WAKING_IN_SYSCALL;
    emit (rec_waking, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns,
            .tid = waker->pid,
            .kind = REC_WAKING,
            .flags = flags | interrupt_context(),
        };
        r->wakee_tid = wakee->pid;
        r->block = completing_block();
    }
    return 0;
}

/* sched_waking, not sched_wakeup: at the latter `current` is often the idle task of the CPU that
 * queues the wakee (ttwu_queue_wakelist), not the waker. */
SEC("tp_btf/sched_waking")
int HOOK(on_sched_waking, struct task_struct *wakee)
{
    return tell_waking(wakee, 0);
}

/* Records only moves from run queue to run queue: the switch that follows a wake-up tells where the
 * wake-up put the thread. */
SEC("tp_btf/sched_migrate_task")
int HOOK(on_sched_migrate_task, struct task_struct *task, int to_cpu)
{
    if (!task->on_rq || !traced_state(task))
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    emit (rec_migrate, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .tid = task->pid, .kind = REC_MIGRATE};
        /* Since 5.16 the CPU number lies in thread_info if that lies in the task (commit
         * bcf9033e5449 "sched: move CPU field back into thread_info if THREAD_INFO_IN_TASK=y"). */
        r->from_cpu =
            bpf_core_field_exists(task->thread_info.cpu) ? task->thread_info.cpu : task->cpu;
        r->to_cpu = to_cpu;
    }
    return 0;
}

/* wake_up_new_task() has no sched_waking. */
SEC("tp_btf/sched_wakeup_new")
int HOOK(on_sched_wakeup_new, struct task_struct *wakee)
{
    return tell_waking(wakee, WAKING_NEW);
}
