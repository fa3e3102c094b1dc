/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Functions for system calls that other programs need. */
#pragma once
#include "probe.h"

/* Notes in `state` what can be known of the call in which `task` sleeps. */
__hidden void describe_sleeper(struct task_state *state, struct task_struct *task,
                               struct pt_regs *regs, long nr);

/* Looks up what `task` waits for in the poll() in which it falls asleep, if that is input from one
 * descriptor. `state->fd` is to be -1 again afterwards, because the call moves nothing. */
__hidden void describe_poll(struct task_state *state, struct task_struct *task);
