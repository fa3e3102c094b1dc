/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Kernel locks that traced threads had to wait for: mutexes, semaphores, contended spinlocks. A
 * lock taken inside the wait for another one (a mutex's own spinlock, the run queue's) is not
 * recorded. */
#include "missed_switches.h"

SEC("tp_btf/contention_begin")
int HOOK(on_contention_begin, void *lock, unsigned int flags)
{
    if (irqs[this_cpu()].context)
        return 0; /* an interrupt's own lock, not the thread's */
    struct task_state *state = traced_current();
    if (!state || state->contention_ns)
        return 0;
    state->contention_flags = flags;
    state->contention_lock = (u64)lock;
    state->contention_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/contention_end")
int HOOK(on_contention_end, void *lock, int ret)
{
    if (irqs[this_cpu()].context)
        return 0;
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_state *state = traced_running(task);
    if (!state || !state->contention_ns || state->contention_lock != (u64)lock)
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    on_its_cpu(task, state, now_ns);
    emit (rec_contention, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns,
            .tid = task->pid,
            .kind = REC_CONTENTION,
            .aux = state->contention_flags,
        };
        r->enter_ns = state->contention_ns;
    }
    state->contention_ns = 0;
    return 0;
}
