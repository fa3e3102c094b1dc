/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tasks that a runtime schedules on threads by itself (--tasks), so that threads reveal little
 * about what waits for what. Each runtime has its own source: goroutines.bpf.c, asyncio.bpf.c,
 * tokio.bpf.c, node.bpf.c. User space finds their functions in the programs' files
 * (userspace/src/probe/runtimes).
 */
#pragma once
#include "missed_switches.h"

/* Reads from the running thread's memory; 0: success. */
#define READ_USER(address, to) bpf_probe_read_user(&(to), sizeof(to), (const void *)(address))

/* Returns the traced thread that hit a breakpoint in its program; NULL: it is not traced. */
static __always_inline struct task_state *at_breakpoint(struct task_struct **task)
{
    *task = bpf_get_current_task_btf();
    count_breakpoint();
    return traced_running(*task);
}

/* What a task waits for, by its index in the list of userspace/crates/record/src/task_waits.rs. */
enum task_wait {
    TASK_WAIT_AWAIT = 32, /* anything: the end of the wait tells what */
    TASK_WAIT_TIMER = 33, /* time to pass */
    TASK_WAIT_READY = 34, /* a descriptor to be ready */
    TASK_WAIT_WAITERS =
        35, /* its turn among those that wait for a lock, a semaphore, an event or a condition */
};

/* Records what the thread `task` does with a runtime's task. */
static __always_inline void tell_runtime_task(struct task_struct *task, struct task_state *state,
                                              u8 change, u16 wait, u64 address)
{
    u64 now_ns = bpf_ktime_get_ns();
    on_its_cpu(task, state, now_ns);
    emit (rec_runtime_task, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns,
            .tid = task->pid,
            .kind = REC_RUNTIME_TASK,
            .flags = change,
            .aux = wait,
        };
        r->address = address;
        r->tgid = task->tgid;
        r->pad = 0;
    }
}

/* Records that the present step has given a stream something to write, which the step has not
 * written itself (uvloop.bpf.c). To be called before the next step, or none, is recorded. */
static __always_inline void tell_queued_stream(struct task_struct *task, struct task_state *state)
{
    u64 stream = state->queued_stream;
    if (!stream)
        return;
    state->queued_stream = 0;
    tell_runtime_task(task, state, RUNTIME_TASK_QUEUED, TASK_WAIT_READY, stream);
}

/* A thread that runs steps of an event loop polls for what is ready next: the present step is
 * over. */
static __always_inline void end_step(struct task_struct *task, struct task_state *state)
{
    state->has_loop = 1;
    if (!state->step_stack)
        return;
    tell_queued_stream(task, state);
    state->step_stack = 0;
    state->runs_timers = 0;
    tell_runtime_task(task, state, RUNTIME_TASK_PARKS, TASK_WAIT_AWAIT, 0);
}
