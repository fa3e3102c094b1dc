/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What each CPU was last seen to have lost: what steal.h declares. */
#include "steal.h"

CACHE_LINES struct steal_seen steals[MAX_CPUS];
