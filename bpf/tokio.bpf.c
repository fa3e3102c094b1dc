/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tasks of tokio (--tasks), a runtime of Rust. Changes of a task's state are separate functions
 * (tokio/src/runtime/task/state.rs), and so are those that wake a task (waker.rs). The state is a
 * task's first member, so its address identifies the task. Outside of any task, the driver wakes
 * tasks: it goes through ready descriptors (runtime/io/scheduled_io.rs) and due timers
 * (runtime/time/mod.rs). Locks and semaphores share one implementation (sync/batch_semaphore.rs).
 */
#include "runtime_tasks.h"

/* Returns the traced thread that called a function which only says what later events are about;
 * NULL: it is not traced. */
static __always_inline struct task_state *passes(void)
{
    count_breakpoint();
    return traced_current();
}

/*
 * State::transition_to_running(&self); or, where link-time optimization has inlined that, poll<T,
 * S>(ptr: NonNull<Header>) of task/raw.rs, of which each kind of task has its own.
 */
SEC("uprobe")
int HOOK(on_tokio_running)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state)
        return 0;
    state->at_semaphore = 0;
    state->releases = 0;
    state->driver = 0;
    tell_runtime_task(task, state, RUNTIME_TASK_RUNS, 0, C_ARG_1((struct pt_regs *)ctx));
    return 0;
}

/* State::transition_to_idle(&self) */
SEC("uprobe")
int HOOK(on_tokio_idle)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state)
        return 0;
    u16 wait = state->at_semaphore ? TASK_WAIT_WAITERS : TASK_WAIT_AWAIT;
    state->releases = 0;
    tell_runtime_task(task, state, RUNTIME_TASK_PARKS, wait, C_ARG_1((struct pt_regs *)ctx));
    return 0;
}

/* poll<T, S>() returns; no panic passes through it. */
SEC("uretprobe")
int HOOK(on_tokio_polled)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state)
        return 0;
    u16 wait = state->at_semaphore ? TASK_WAIT_WAITERS : TASK_WAIT_AWAIT;
    state->releases = 0;
    tell_runtime_task(task, state, RUNTIME_TASK_PARKS, wait, 0);
    return 0;
}

/*
 * State::transition_to_terminal(&self, count: usize), after the task that waits for its result has
 * been woken; or dealloc<T, S>(ptr: NonNull<Header>) of task/raw.rs
 */
SEC("uprobe")
int HOOK(on_tokio_complete)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (state)
        tell_runtime_task(task, state, RUNTIME_TASK_ENDS, 0, C_ARG_1((struct pt_regs *)ctx));
    return 0;
}

/* wake_by_val(ptr: *const ()), wake_by_ref(ptr: *const ()) */
SEC("uprobe")
int HOOK(on_tokio_wake)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state)
        return 0;
    u16 wait = state->driver ? state->driver : TASK_WAIT_AWAIT;
    if (state->releases)
        wait = TASK_WAIT_WAITERS;
    tell_runtime_task(task, state, RUNTIME_TASK_READIED, wait, C_ARG_1((struct pt_regs *)ctx));
    return 0;
}

/*
 * Handle::schedule_option_task_without_yield(&self, task: Option<Notified>), for a task that has
 * been spawned; <Arc<Handle> as Schedule>::schedule(&self, task: Notified) where one thread runs
 * all tasks, for any task.
 */
SEC("uprobe")
int HOOK(on_tokio_queued)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    u64 header = C_ARG_2((struct pt_regs *)ctx);
    if (state && header)
        tell_runtime_task(task, state, RUNTIME_TASK_QUEUED, 0, header);
    return 0;
}

/* Handle::process_at_time(&self, start: u32, now: u64): timers that are due. */
SEC("uprobe")
int HOOK(on_tokio_timers)
{
    struct task_state *state = passes();
    if (state)
        state->driver = TASK_WAIT_TIMER;
    return 0;
}

/* ScheduledIo::wake(&self, ready: Ready): a descriptor that is ready. */
SEC("uprobe")
int HOOK(on_tokio_ready)
{
    struct task_state *state = passes();
    if (state)
        state->driver = TASK_WAIT_READY;
    return 0;
}

/* <Acquire as Future>::poll(self, cx) */
SEC("uprobe")
int HOOK(on_tokio_acquire)
{
    struct task_state *state = passes();
    if (state)
        state->at_semaphore = 1;
    return 0;
}

/* <Acquire as Drop>::drop(&mut self): the wait is over. */
SEC("uprobe")
int HOOK(on_tokio_acquired)
{
    struct task_state *state = passes();
    if (state)
        state->at_semaphore = 0;
    return 0;
}

/* Semaphore::add_permits_locked(&self, rem: usize, waiters: MutexGuard<'_, Waitlist>) */
SEC("uprobe")
int HOOK(on_tokio_release)
{
    struct task_state *state = passes();
    if (state)
        state->releases = 1;
    return 0;
}
