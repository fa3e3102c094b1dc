/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Stolen time last seen of each CPU: defines what steal.h declares. */
#include "steal.h"

CACHE_LINES struct steal_seen steals[MAX_CPUS];
