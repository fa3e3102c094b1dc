/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Stacks of traced threads where they go to sleep, only with --stacks. */
#pragma once
#include "probe.h"

/* States (TASK_* bits) of the sleeps whose stacks are taken; 0: none, and no code for it either. */
extern const volatile u8 stack_states;

__hidden void take_stack(void *ctx, u32 tid, u64 now_ns);

/* To be called at the switch itself: the record has the switch's time, by which the two are
 * joined. */
static __always_inline void stack_of_sleep(void *ctx, struct task_struct *prev, bool preempt,
                                           u32 prev_state, u64 now_ns)
{
    if (stack_states && !preempt && (prev_state & stack_states))
        take_stack(ctx, prev->pid, now_ns);
}
