/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Futexes in memory that processes share. */
#pragma once
#include "probe.h"

#define FUTEX_PRIVATE_FLAG                                                                         \
    128 /* include/uapi/linux/futex.h: such a word is of one process only                          \
         */

/* Records a futex call on a word that other processes share. Not inlined, as few calls need it. */
__hidden void emit_shared_word(const struct rec_syscall *sys, struct task_state *state);
