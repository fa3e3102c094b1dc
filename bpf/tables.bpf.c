/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Counts of the tables' elements: defines what tables.h declares. */
#include "tables.h"

CACHE_LINES struct table_counts table_counts[MAX_CPUS];
