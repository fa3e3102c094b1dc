/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * State is kept in maps of bounded size. Some of them silently evict the elements that were used
 * least recently. So every new element is counted, and every one that is removed: the difference,
 * less the elements present at the end, was evicted. An element that finds no room is counted, too.
 * User space reads the counts (userspace/src/probe/tables.rs, which has the same list) and makes
 * the maps as large as the machine's memory allows.
 */
#pragma once
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include "cpu.h"

enum table {
    TABLE_PIPES,
    TABLE_CHANNELS,
    TABLE_FRAMERS,
    TABLE_OLD_CHANNELS, /* mid_lives */
    TABLE_THREADS,      /* states */
    TABLE_UNACCEPTED,
    TABLE_DATAGRAMS,
    TABLE_HEADS,
    TABLE_COPIED,
    TABLE_FLOWS,
    TABLE_PORTS,
    TABLE_WIRED,
    TABLE_PACKETS,
    TABLE_BLOCKS, /* requests_in_flight */
    TABLE_QUEUED_WORKS,
    TABLE_RUNNING_WORKS,
    TABLE_HOLDING,
    TABLES,
};

/* Per CPU, because some tables get a new element with each packet. */
struct table_counts {
    u64 made[TABLES];
    u64 dropped[TABLES];
    u64 refused[TABLES];
};
extern struct table_counts table_counts[MAX_CPUS];

#define EEXIST 17 /* include/uapi/asm-generic/errno-base.h */

static __always_inline void count_refused(enum table table)
{
    __sync_fetch_and_add(&table_counts[this_cpu()].refused[table], 1);
}

/* Counts the result of an update with BPF_NOEXIST. Before Linux 6.4 only the lower half of it is
 * the result: maps returned an int, and programs call them without the helper (commit d7ba4cc900bf
 * "bpf: return long from bpf_map_ops funcs"). */
static __always_inline int count_made(enum table table, int error)
{
    if (!error)
        __sync_fetch_and_add(&table_counts[this_cpu()].made[table], 1);
    else if (error != -EEXIST)
        count_refused(table);
    return error;
}

static __always_inline void count_dropped(enum table table, long error)
{
    if (!error)
        __sync_fetch_and_add(&table_counts[this_cpu()].dropped[table], 1);
}

/* Adds an element unless there is one; 0: it was added. */
#define ADD(table, map, key, value)                                                                \
    count_made(table, bpf_map_update_elem(map, key, value, BPF_NOEXIST))

/* Adds an element, or replaces the present one. */
static __always_inline void put_element(enum table table, void *map, const void *key,
                                        const void *value)
{
    if (ADD(table, map, key, value) == -EEXIST)
        bpf_map_update_elem(map, key, value, BPF_ANY);
}
#define PUT(table, map, key, value) put_element(table, map, key, value)

#define DROP(table, map, key) count_dropped(table, bpf_map_delete_elem(map, key))
