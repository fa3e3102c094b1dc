/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Traced threads: defines what tasks.h declares. */
#include "tasks.h"

const volatile bool can_cast = false;

struct tasks_map tasks SEC(".maps");
struct states_map states SEC(".maps");
struct free_states_map free_states SEC(".maps");
struct known_tasks_map known_tasks SEC(".maps");

CACHE_LINES struct marks marks;
CACHE_LINES struct cpu_task cpu_tasks[MAX_CPUS];
u64 registers_offset;
