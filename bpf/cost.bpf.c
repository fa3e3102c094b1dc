/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Cost of the programs: defines what cost.h declares. */
#include "cost.h"

CACHE_LINES struct cpu_cost cpu_costs[MAX_CPUS];
