/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The last switches: what missed_switches.h declares. */
#include "missed_switches.h"

CACHE_LINES struct last_switch last_switches[MAX_CPUS];
