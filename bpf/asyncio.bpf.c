/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Steps of asyncio's event loop in CPython (--tasks). The loop runs every step in a context (PEP
 * 567): a task has one context for all of its steps, and so has the callback of a descriptor.
 * Records identify a task by its context. The loop (Lib/asyncio/base_events.py, _run_once) appends
 * each step to its own queue when the step may run, and runs it by Context.run() in a later
 * iteration. At the start of each iteration it waits by epoll.
 */
#include "runtime_tasks.h"

/* Offsets in objects of CPython 3.8 to 3.13 (without --disable-gil): an object's type
 * (Include/object.h), the type's name, and the context of an asyncio.Handle. Members declared in
 * __slots__ lie in the order of their names. */
#define OBJECT_TYPE 8
#define TYPE_NAME 24
#define HANDLE_CONTEXT 40
/* The same of a handle of uvloop (uvloop.bpf.c). */
#define UVLOOP_CONTEXT 32

enum appended { OTHER, HANDLE, TIMER_HANDLE, UVLOOP_HANDLE };

/* Classifies an object by the name of its type. */
static __always_inline enum appended kind_of(u64 object)
{
    u64 type = 0, name_at = 0;
    char name[12] = {};
    if (READ_USER(object + OBJECT_TYPE, type) || READ_USER(type + TYPE_NAME, name_at) ||
        READ_USER(name_at, name))
        return OTHER;
    u64 first = *(u64 *)name;
    u32 rest = *(u32 *)(name + 8);
    /* "uvloop.loop.", then "Handle" and its terminating zero */
    if (first == 0x6c2e706f6f6c7675 && rest == 0x2e706f6f) {
        u64 last = 0;
        bool is_handle =
            READ_USER(name_at + 12, last) == 0 && (last & 0xffffffffffffff) == 0x656c646e6148;
        return is_handle ? UVLOOP_HANDLE : OTHER;
    }
    if ((first & 0xffffffffffffff) == 0x656c646e6148) /* "Handle" and its terminating zero */
        return HANDLE;
    /* "TimerHandle" and its terminating zero */
    return first == 0x6e614872656d6954 && rest == 0x656c64 ? TIMER_HANDLE : OTHER;
}

/* deque.append(self, item) */
SEC("uprobe")
int HOOK(on_asyncio_append)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state)
        return 0;
    u64 handle = C_ARG_2((struct pt_regs *)ctx), context = 0;
    enum appended kind = kind_of(handle);
    u64 place = kind == UVLOOP_HANDLE ? UVLOOP_CONTEXT : HANDLE_CONTEXT;
    if (kind == OTHER || READ_USER(handle + place, context) || !context)
        return 0;
    u8 change = RUNTIME_TASK_QUEUED;
    u16 wait = 0;
    state->queues_steps = 1;
    /* Between two steps the loop itself appends what its wait by epoll has made ready. */
    if (state->has_loop && !state->step_stack) {
        change = kind == TIMER_HANDLE ? RUNTIME_TASK_DUE : RUNTIME_TASK_READIED;
        wait = kind == TIMER_HANDLE ? TASK_WAIT_TIMER : TASK_WAIT_READY;
    }
    tell_runtime_task(task, state, change, wait, context);
    return 0;
}

/* Returns whether the thread runs an event loop of asyncio, its own or uvloop. Other threads have
 * contexts, too, but run no asyncio steps. */
static __always_inline bool runs_loop(struct task_state *state)
{
    return state->has_loop && state->queues_steps;
}

/* Context.run(self, callable, ...); PyContext_Enter(context), by which uvloop runs steps */
SEC("uprobe")
int HOOK(on_asyncio_step)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state || !runs_loop(state))
        return 0;
    u64 stack = STACK((struct pt_regs *)ctx);
    if (stack < state->step_stack)
        return 0; /* nested inside a step, which continues */
    tell_queued_stream(task, state);
    state->step_stack = stack;
    tell_runtime_task(task, state, RUNTIME_TASK_STEPS, TASK_WAIT_AWAIT,
                      C_ARG_1((struct pt_regs *)ctx));
    return 0;
}

/* PyContext_CopyCurrent() returns the context of a task or callback that is being created. */
SEC("uretprobe")
int HOOK(on_asyncio_copied)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    u64 context = C_RESULT((struct pt_regs *)ctx);
    if (state && context && runs_loop(state))
        tell_runtime_task(task, state, RUNTIME_TASK_MADE, 0, context);
    return 0;
}

/*
 * deque.remove(self, item): a task that resumes after waiting for an asyncio.Lock, Semaphore, Event
 * or Condition (Lib/asyncio/locks.py) removes its future from the queue of waiters by this call.
 */
SEC("uprobe")
int HOOK(on_asyncio_remove)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state || !state->step_stack)
        return 0;
    tell_runtime_task(task, state, RUNTIME_TASK_WAITED, TASK_WAIT_WAITERS, 0);
    return 0;
}
