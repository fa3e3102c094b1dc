/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How records get to user space: one ring per CPU, in memory that user space maps and reads while
 * the programs run. A BPF ring buffer takes a lock and two calls for each record, which costs
 * several times what is done here; and a single one for all CPUs would serialise them.
 *
 * Positions only grow. A writer takes the next bytes by one addition: its only rivals are programs
 * that interrupt it on the same CPU. The mark before a record is written last. It says that the
 * record is complete and how many bytes it has. The mark differs from lap to lap and from run to
 * run, so that old bytes in the ring cannot be mistaken for it. userspace/src/probe/rings.rs reads
 * the rings.
 */
#pragma once
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include "cpu.h"
#include "records.h"

/* A ring is made of pieces, because old kernels allow no map value larger than 4 MiB. A record lies
 * in the piece in which it begins, and may extend beyond that piece's own bytes. */
#define RING_PIECE_BYTES (256 << 10)
#define RING_BEYOND_BYTES 4096
#define RING_MARK_BYTES 8

struct ring_piece {
    u8 bytes[RING_PIECE_BYTES + RING_BEYOND_BYTES];
};

extern struct rings_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, 1); /* user space sets it to CPUs times pieces */
    __type(key, u32);
    __type(value, struct ring_piece);
} rings SEC(".maps");

extern const volatile u32 ring_pieces; /* of each CPU: a power of two */
extern const volatile u64 ring_bytes;  /* bytes that may be under way; fewer than the pieces have */
extern const volatile u32 ring_secret;

/* The state of a CPU's ring that programs write. */
struct ring_head {
    u64 position;
    /* Records lost since the last REC_LOST. User space reads the remaining ones at the end. */
    u64 lost;
    u64 lost_first_ns;
    u64 lost_last_ns;
    u64 pad[4]; /* a cache line each */
};
extern struct ring_head ring_heads[MAX_CPUS];

/* The state that user space writes. */
struct ring_tail {
    u64 position;
    u64 pad[7];
};
extern struct ring_tail ring_tails[MAX_CPUS];

static __always_inline void note_loss(u64 now_ns)
{
    struct ring_head *head = &ring_heads[this_cpu()];
    if (__sync_fetch_and_add(&head->lost, 1) == 0)
        head->lost_first_ns = now_ns;
    head->lost_last_ns = now_ns;
}

static __always_inline u64 ring_mark(u64 position, u64 bytes)
{
    return (u64)((u32)(position >> 3) + ring_secret) << 32 | bytes;
}

/* Takes the next bytes of the ring; NULL: it is full. `position` is to be passed to
 * commit_record(). */
static __always_inline void *take_bytes(u64 bytes, u64 *position)
{
    u64 cpu = this_cpu();
    struct ring_head *head = &ring_heads[cpu];
    u64 taken_bytes = (RING_MARK_BYTES + bytes + 7) & ~7ULL;
    u64 tail = *(volatile u64 *)&ring_tails[cpu].position;
    /* Programs that interrupt this one here see the same room: there is slack enough for them. */
    if (head->position + taken_bytes - tail > ring_bytes)
        return 0;
    u64 at = __sync_fetch_and_add(&head->position, taken_bytes);
    *position = at;
    u32 index = cpu * ring_pieces + ((u32)(at / RING_PIECE_BYTES) & (ring_pieces - 1));
    struct ring_piece *piece = bpf_map_lookup_elem(&rings, &index);
    if (!piece)
        return 0;
    return piece->bytes + (at & (RING_PIECE_BYTES - 8)) + RING_MARK_BYTES;
}

/* The record is complete. No earlier store may become visible after the mark. */
static __always_inline void commit_record(void *record, u64 position, u64 bytes)
{
    STORE_LAST((u64 *)(record - RING_MARK_BYTES), ring_mark(position, bytes));
}

/* Reports earlier losses as soon as there is room again, so that the reader knows when they
 * occurred. */
static __always_inline void report_loss(u64 now_ns)
{
    u64 position;
    struct ring_head *head = &ring_heads[this_cpu()];
    if (!head->lost)
        return;
    struct rec_lost *r = take_bytes(sizeof(*r), &position);
    if (!r)
        return;
    r->hdr = (struct rec_hdr){.ts_ns = now_ns, .kind = REC_LOST};
    /* The count is read between the two times. If an interrupt loses a record before that, it is
     * counted here and `last` has its time; if it does so later, that loss is the first of the next
     * report. */
    r->first_ns = *(volatile u64 *)&head->lost_first_ns;
    r->count = __sync_lock_test_and_set(&head->lost, 0);
    r->last_ns = *(volatile u64 *)&head->lost_last_ns;
    commit_record(r, position, sizeof(*r));
}

static __always_inline void *reserve_record(u64 bytes, u64 now_ns, u64 *position)
{
    report_loss(now_ns);
    void *record = take_bytes(bytes, position);
    if (!record)
        note_loss(now_ns);
    return record;
}

/* For records whose size is known only at run time. */
static __always_inline void output_record(void *record, u64 bytes, u64 now_ns)
{
    u64 position;
    if (bytes > RING_BEYOND_BYTES - RING_MARK_BYTES) {
        note_loss(now_ns);
        return;
    }
    void *copy = reserve_record(bytes, now_ns, &position);
    if (!copy)
        return;
    bpf_probe_read_kernel(copy, bytes, record);
    commit_record(copy, position, bytes);
}

/* A record that is being filled. */
struct reserved {
    void *record; /* NULL: there is no room */
    u64 position;
    u64 bytes;
};

static __always_inline struct reserved begin_record(u64 bytes, u64 now_ns)
{
    struct reserved r = {.bytes = bytes};
    r.record = reserve_record(bytes, now_ns, &r.position);
    return r;
}

static __always_inline void end_record(struct reserved *r)
{
    if (r->record)
        commit_record(r->record, r->position, r->bytes);
}

/*
 * Reserves a record `struct type *var`, runs the following block to fill it, and commits it;
 * without room the block does not run. The record is committed however the block is left (at its
 * end, by `break`, `continue` or `return`), because an uncommitted record would stall the ring.
 */
#define emit(type, var, now_ns)                                                                    \
    for (struct reserved reserved_##var                                                            \
         __attribute__((cleanup(end_record))) = begin_record(sizeof(struct type), now_ns),         \
         *once_##var = &reserved_##var;                                                            \
         once_##var; once_##var = 0)                                                               \
        for (struct type *var = reserved_##var.record; var; var = 0)
