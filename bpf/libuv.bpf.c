/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Streams of libuv, the library of the event loops of Node and uvloop (--tasks). A function tells
 * which stream is ready (uv__stream_io(), src/unix/stream.c): each stream is recorded as a task,
 * by the address of its watcher.
 */
#include "libuv.h"

/* uv__stream_io(loop, watcher, events); likewise uv__udp_io(), uv__poll_io(), uv__server_io() */
SEC("uprobe")
int HOOK(on_libuv_stream)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state)
        return 0;
    tell_queued_stream(task, state);
    state->step_stack = STACK((struct pt_regs *)ctx);
    state->runs_timers = 0;
    tell_runtime_task(task, state, RUNTIME_TASK_STEPS, TASK_WAIT_READY,
                      C_ARG_2((struct pt_regs *)ctx));
    return 0;
}

/* uv_tcp_connect(request, stream, ...), uv_pipe_connect(request, stream, ...), uv_accept(listener,
 * stream): from now on the stream belongs to the task that opens it. */
SEC("uprobe")
int HOOK(on_libuv_opens)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state)
        return 0;
    tell_runtime_task(task, state, RUNTIME_TASK_MADE, 0,
                      C_ARG_2((struct pt_regs *)ctx) + STREAM_WATCHER);
    return 0;
}

/* uv__async_io(), and what the loops do for no stream: the loop continues with something else,
 * which is not recorded. */
SEC("uprobe")
int HOOK(on_libuv_others)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (state)
        end_step(task, state);
    return 0;
}
