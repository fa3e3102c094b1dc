/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The rings: defines what ring.h declares. */
#include "ring.h"

struct rings_map rings SEC(".maps");

const volatile u32 ring_pieces = 1;
const volatile u64 ring_bytes = 0;
const volatile u32 ring_secret = 0;

CACHE_LINES struct ring_head ring_heads[MAX_CPUS];
CACHE_LINES struct ring_tail ring_tails[MAX_CPUS];
