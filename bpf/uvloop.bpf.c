/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Steps of uvloop (0.17 to 0.23), an event loop for asyncio on libuv (--tasks). As asyncio's own
 * loop, it runs steps in contexts (asyncio.bpf.c), of handles that were appended to its queue
 * (uvloop/cbhandles.pyx). libuv tells which stream is ready (libuv.bpf.c). What tasks write is
 * written by the loop after the steps, stream by stream (uvloop/handles/stream.pyx); since 0.23, as
 * a rule by the steps themselves. What the loop writes to a stream counts as a step of the task
 * that has given it to the stream.
 */
#include "libuv.h"

/* Offsets in objects of uvloop: after PyObject_HEAD and a table of functions, members lie in the
 * order of their declaration (handles/handle.pxd, cbhandles.pxd; the same in 0.17 to 0.23). */
#define UV_HANDLE 24
#define TIMER_CONTEXT 64

/* What libuv.bpf.c identifies a stream by; 0: not known. */
static __always_inline u64 watcher_of(u64 stream)
{
    u64 handle = 0;
    if (READ_USER(stream + UV_HANDLE, handle) || !handle)
        return 0;
    return handle + STREAM_WATCHER;
}

/* TimerHandle._run(self): its callback follows, in its context. */
SEC("uprobe")
int HOOK(on_uvloop_timer)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    u64 context = 0;
    if (!state || READ_USER(C_ARG_1((struct pt_regs *)ctx) + TIMER_CONTEXT, context) || !context)
        return 0;
    end_step(task, state);
    tell_runtime_task(task, state, RUNTIME_TASK_DUE, TASK_WAIT_TIMER, context);
    return 0;
}

/* UVStream._initiate_write(self): a step has given the stream something to write, and perhaps
 * writes it itself. */
SEC("uprobe")
int HOOK(on_uvloop_gives)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    u64 stream = state ? watcher_of(C_ARG_1((struct pt_regs *)ctx)) : 0;
    if (!stream || stream == state->queued_stream)
        return 0;
    tell_queued_stream(task, state);
    state->queued_stream = stream;
    return 0;
}

/* UVStream._exec_write(self) */
SEC("uprobe")
int HOOK(on_uvloop_writes)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    u64 stream = state ? watcher_of(C_ARG_1((struct pt_regs *)ctx)) : 0;
    if (!stream)
        return 0;
    u64 stack = STACK((struct pt_regs *)ctx);
    if (stack < state->step_stack) { /* a step writes itself */
        if (stream == state->queued_stream)
            state->queued_stream = 0;
        return 0;
    }
    tell_queued_stream(task, state);
    state->step_stack = stack;
    tell_runtime_task(task, state, RUNTIME_TASK_STEPS, TASK_WAIT_AWAIT, stream);
    return 0;
}
