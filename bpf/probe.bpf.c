/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Options and state of all programs: defines what probe.h declares. */
#include "probe.h"

const volatile bool scope_target = false;
const volatile bool keep_paths = true;
const volatile bool keep_methods = true;
const volatile bool attaching = false;

CACHE_LINES struct irq_state irqs[MAX_CPUS];

char LICENSE[] SEC("license") = "Dual BSD/GPL";
