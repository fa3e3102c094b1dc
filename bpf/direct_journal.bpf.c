/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Waits for a journal: for the commit of a transaction, which is the second argument
 * (fs/jbd2/journal.c), and to start a handle (fs/jbd2/transaction.c). */
#include "direct.h"

DIRECT(commit_wait, DIRECT_WAIT, FUNCTION_COMMIT_WAIT, DIRECT_ARG_2, DIRECT_NOTHING)
DIRECT(handle_start, DIRECT_WAIT, FUNCTION_HANDLE_START, DIRECT_NOTHING, DIRECT_NOTHING)
