/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Steps of asyncio's event loop (--tasks), in CPython. Every step that the loop takes runs in a
 * context (PEP 567): a task has one for all of its steps, and so has the callback of a descriptor.
 * The context is told as the task. The loop (Lib/asyncio/base_events.py, _run_once) appends each
 * step to a queue of its own when it may be taken, and runs it by Context.run() in a later turn; at
 * the begin of each turn it waits by epoll.
 */
#include "runtime_tasks.h"

/* Objects of CPython 3.8 to 3.13 (without --disable-gil): what is told of an object
 * (Include/object.h), its type's name, and where an asyncio.Handle has its context: members with a
 * place (__slots__) lie in the order of their names. */
#define OBJECT_TYPE 8
#define TYPE_NAME 24
#define HANDLE_CONTEXT 40

enum appended { OTHER, HANDLE, TIMER_HANDLE };

/* What kind of object that is. */
static __always_inline enum appended kind_of(u64 object)
{
    u64 type = 0, name_at = 0;
    char name[12] = {};
    if (READ_USER(object + OBJECT_TYPE, type) || READ_USER(type + TYPE_NAME, name_at) ||
        READ_USER(name_at, name))
        return OTHER;
    u64 first = *(u64 *)name;
    u32 rest = *(u32 *)(name + 8);
    if ((first & 0xffffffffffffff) == 0x656c646e6148) /* "Handle", a byte of zero */
        return HANDLE;
    /* "TimerHandle", a byte of zero */
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
    if (kind == OTHER || READ_USER(handle + HANDLE_CONTEXT, context) || !context)
        return 0;
    u8 change = RUNTIME_TASK_QUEUED;
    u16 wait = 0;
    state->queues_steps = 1;
    /* Between two steps it is the loop itself that appends, what its wait by epoll has told. */
    if (state->has_loop && !state->step_stack) {
        change = kind == TIMER_HANDLE ? RUNTIME_TASK_DUE : RUNTIME_TASK_READIED;
        wait = kind == TIMER_HANDLE ? TASK_WAIT_TIMER : TASK_WAIT_READY;
    }
    tell_runtime_task(task, state, change, wait, context);
    return 0;
}

/* Other threads have contexts, too, but take no steps of asyncio's; loops that others have written
 * (uvloop) take other ones. */
static __always_inline bool runs_loop(struct task_state *state)
{
    return state->has_loop && state->queues_steps;
}

/* Context.run(self, callable, ...) */
SEC("uprobe")
int HOOK(on_asyncio_step)
{
    struct task_struct *task;
    struct task_state *state = at_breakpoint(&task);
    if (!state || !runs_loop(state))
        return 0;
    u64 stack = STACK((struct pt_regs *)ctx);
    if (stack < state->step_stack)
        return 0; /* inside of a step: that goes on */
    state->step_stack = stack;
    tell_runtime_task(task, state, RUNTIME_TASK_STEPS, TASK_WAIT_AWAIT,
                      C_ARG_1((struct pt_regs *)ctx));
    return 0;
}

/* PyContext_CopyCurrent() returns: a task or a callback is made, and this is to be its context. */
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
 * deque.remove(self, item): so asyncio.Lock, Semaphore, Event and Condition (Lib/asyncio/locks.py)
 * take the future out of their queue for which a task has waited, as it goes on.
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
