/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Goroutines (`--tasks`): tasks that Go's runtime schedules on threads by itself, so that threads
 * reveal little about what waits for what. Two functions of the runtime reveal nearly everything
 * (src/runtime/proc.go). casgstatus() changes a goroutine's state, except for coroutines and where
 * the collector stops a goroutine to scan its stack. gopark() is called before a goroutine parks by
 * itself, and says what it waits for. User space finds both functions in the program's file
 * (userspace/src/probe/runtimes/go).
 */
#include "goroutines.h"

struct go_waits_map go_waits SEC(".maps");

/* States of a goroutine (src/runtime/runtime2.go, the same since Go 1.5). */
enum go_status {
    GO_RUNNABLE = 1,
    GO_RUNNING = 2,
    GO_SYSCALL = 3,
    GO_WAITING = 4,
    GO_DEAD = 6,
};

#define CHANGE(from, to) ((from) << 8 | (to))

/* func gopark(unlockf, lock, reason waitReason, ...) */
SEC("uprobe")
int HOOK(on_go_park)
{
    struct task_state *state = traced_current();
    count_breakpoint();
    if (state)
        state->go_wait = 1 + (u8)GO_ARG_3((struct pt_regs *)ctx);
    return 0;
}

/* The meaning of the program's number for a wait. */
static __always_inline u16 meaning_of(u64 program, u64 wait)
{
    u32 place = program * GO_WAITS + (wait - 1);
    u8 *meaning = bpf_map_lookup_elem(&go_waits, &place);
    return meaning ? *meaning : 0;
}

/* func casgstatus(gp *g, oldval, newval uint32) */
SEC("uprobe")
int HOOK(on_go_status)
{
    struct pt_regs *at = (struct pt_regs *)ctx;
    u8 change;
    count_breakpoint();
    switch (CHANGE((u8)GO_ARG_2(at), (u8)GO_ARG_3(at))) {
    case CHANGE(GO_RUNNABLE, GO_RUNNING):
        change = RUNTIME_TASK_RUNS;
        break;
    case CHANGE(GO_RUNNING, GO_WAITING):
        change = RUNTIME_TASK_PARKS;
        break;
    case CHANGE(GO_RUNNING, GO_RUNNABLE):
    case CHANGE(GO_SYSCALL, GO_RUNNABLE): /* others use all CPUs when it returns from a call */
        change = RUNTIME_TASK_YIELDS;
        break;
    case CHANGE(GO_RUNNING, GO_DEAD):
        change = RUNTIME_TASK_ENDS;
        break;
    case CHANGE(GO_WAITING, GO_RUNNABLE):
        change = RUNTIME_TASK_READIED;
        break;
    case CHANGE(GO_DEAD, GO_RUNNABLE):
        change = RUNTIME_TASK_BORN;
        break;
    default: /* system calls and returns from them, which have records of their own; growing
              * stacks */
        return 0;
    }
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_state *state = traced_running(task);
    if (!state)
        return 0;
    u16 wait = 0;
    if (change == RUNTIME_TASK_RUNS)
        state->go_wait = 0; /* the goroutine that the thread ran before did not park after all */
    if (change == RUNTIME_TASK_PARKS) {
        /* Without gopark() the runtime only allows the goroutine's stack to be scanned; the
         * goroutine continues. */
        if (!state->go_wait)
            return 0;
        wait = meaning_of(bpf_get_attach_cookie(ctx), state->go_wait);
        state->go_wait = 0;
    }
    tell_runtime_task(task, state, change, wait, GO_ARG_1(at));
    return 0;
}
