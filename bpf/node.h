/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Node's event loops, as user space has found them: one per thread. */
#pragma once
#include "runtime_tasks.h"

/* In a process's memory (AsyncHooks and timeout_info() of src/env.h). */
struct node_loop {
    u64 async_ids; /* address of numbers, each a double: enum async_id */
    u64 timers;    /* address of the number of timers, an int32_t */
    s32 count;     /* its last known value */
    u32 pad;
};

/* AsyncHooks::UidFields of src/env.h, by index. */
enum async_id { RUNS = 0, MADE_LAST = 2, ASYNC_IDS = 3 };

/* Event loops followed at one time. */
#define MOST_NODE_LOOPS 256

extern struct node_loops_map {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MOST_NODE_LOOPS);
    __type(key, u32); /* the thread's number in the initial namespace */
    __type(value, struct node_loop);
} node_loops SEC(".maps");
