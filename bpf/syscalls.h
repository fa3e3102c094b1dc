/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What others than the programs of system calls need of them. */
#pragma once
#include "probe.h"

/* Notes in `state` what can be known of the call that `task`, which sleeps, is in. */
__hidden void describe_sleeper(struct task_state *state, struct task_struct *task,
                               struct pt_regs *regs, long nr);
