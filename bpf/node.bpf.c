/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What Node's event loop continues with (--tasks). Its streams are libuv's (libuv.bpf.c). Timers
 * are created and run by JavaScript (lib/internal/timers.js), in compiled code that is in no
 * file. But Node counts the timers that the program waits for in a word of the Environment
 * (timeoutInfo[0]), whose changes a hardware watchpoint reports. Another word has the number of
 * what Node runs (executionAsyncId()). Each timer is recorded as a task, created by whatever sets
 * it. User space finds both words (userspace/src/probe/runtimes/node).
 */
#include "node.h"

struct node_loops_map node_loops SEC(".maps");

/* Marks a timer's number as a task's address: no stream lies at such an address. */
#define TIMER (1ULL << 63)

/* Converts a whole number of JavaScript, a double, to an integer. The exponent lies above the
 * mantissa, whose highest bit is implicit (IEEE 754). */
static __always_inline u64 whole_number(u64 bits)
{
    u64 exponent = bits >> 52;
    if (exponent < 1023 || exponent > 1023 + 52)
        return 0;
    return ((1ULL << 52) | (bits & ((1ULL << 52) - 1))) >> (1023 + 52 - exponent);
}

/* Each thread of a process that runs JavaScript numbers its own timers. */
static __always_inline u64 timer_of(u32 tid, u64 number)
{
    return TIMER | (u64)tid << 40 | (number & ((1ULL << 40) - 1));
}

/* node::Environment::RunTimers(handle): timers are due. */
SEC("uprobe")
int HOOK(on_node_timers)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state)
        return 0;
    state->step_stack = STACK((struct pt_regs *)ctx);
    state->runs_timers = 1;
    tell_runtime_task(task, state, RUNTIME_TASK_TIMERS, 0, C_ARG_1((struct pt_regs *)ctx));
    return 0;
}

/* v8::internal::Isolate::ClearKeptObjects(): everything that waited for the last callback has
 * continued, too. While timers are run, the next timer follows. */
SEC("uprobe")
int HOOK(on_node_drained)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (state && state->runs_timers)
        tell_runtime_task(task, state, RUNTIME_TASK_DRAINED, 0, 0);
    return 0;
}

/*
 * The count of timers has changed. If it rose, a timer is being created, and gets the next number
 * (newAsyncId()). If it fell, the timer that runs has run its callback and continues with what
 * waited for it; or it has cancelled another timer, which is not recorded.
 */
SEC("perf_event")
int HOOK(on_node_timer)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_state *state = traced_running(task);
    count_watchpoint();
    u32 tid = task->pid;
    struct node_loop *loop = bpf_map_lookup_elem(&node_loops, &tid);
    s32 timers = 0;
    u64 ids[ASYNC_IDS] = {};
    if (!loop || READ_USER(loop->timers, timers) || READ_USER(loop->async_ids, ids))
        return 0;
    s32 before = loop->count;
    loop->count = timers;
    if (!state)
        return 0;
    if (timers > before)
        tell_runtime_task(task, state, RUNTIME_TASK_MADE, 0,
                          timer_of(tid, whole_number(ids[MADE_LAST]) + 1));
    else if (timers < before)
        tell_runtime_task(task, state, RUNTIME_TASK_STEPS, TASK_WAIT_TIMER,
                          timer_of(tid, whole_number(ids[RUNS])));
    return 0;
}
