/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Bytes counted per channel (a pipe, or one direction of a connection), so that a write and a read
 * meet by number whatever the sizes, and still do after lost records.
 *
 * The two counts of a channel that is older than the capture have an unknown difference: bytes may
 * have been written and not read, and calls are under way that have moved theirs and not yet come
 * to their end, where they are counted. What they should differ by is what lies in the channel, so
 * each look at it gives the `excess` of one count over the other, but for the calls under way:
 *  - at the end of a write, those are reads, which make it too large: an upper bound;
 *  - at the end of a read, those are writes, which make it too small: a lower bound.
 * (Writers of one channel that race apart.) When the bounds meet it is known. So it is if nothing
 * moves between two looks. Until then the two count in ranges of their own, in which no write meets
 * a read.
 */
#pragma once
#include "look.h"
#include "probe.h"

#define S_IFIFO_TYPE 1 /* S_IFIFO >> 12 */

struct channel_key {
    u64 number; /* a pipe's inode, a Unix socket's cookie */
    u64 dev;    /* 0: a socket's */
};

/* What TCP numbers itself is kept in `sent` only, to extend the 32 bits of the next number. */
struct channel_bytes {
    u64 sent;
    u64 received;
    u64 arrived;   /* Unix, by an untraced writer: what was last told to have come */
    u64 behind_ns; /* when there was last more than was told; 0: since then all has been */
    u64 unsettled; /* there is a struct mid_life */
    u32 written; /* a write has been looked at: who reads need not look at the bytes. Until then it
                  * has to: it may answer before the call that asked is at its end */
    u32 unreadable; /* 1 << side: what that side moves has no framing we know */
    u32 has_writer; /* a traced thread has written, so who reads knows since when it was there */
    u16 framed[2];  /* by side: FRAMED() of what was found out about its framing; 0: nothing yet */
};

/* Pipes, and eventfds: what goes through one is a count, and counts as bytes. Least recently used:
 * what nobody uses falls out. */
extern struct pipes_map {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct channel_key);
    __type(value, struct channel_bytes);
} pipes SEC(".maps");

extern struct channels_map {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, u64);
    __type(value, struct channel_bytes);
} channels SEC(".maps");

/*
 * In front of them, what a look costs little: a pipe has a place, which is its own from its first
 * bytes on. One that finds its place taken goes to the table, for good; so do all where the capture
 * is younger than they may be.
 */
#define PIPE_PLACES 16384

/* A cache line each. */
struct pipe_place {
    u64 pipe; /* 0: nobody's */
    struct channel_bytes bytes;
};

extern struct pipe_places_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, PIPE_PLACES);
    __type(key, u32);
    __type(value, struct pipe_place);
} pipe_places SEC(".maps");

/* NULL: the pipe has none. */
static __always_inline struct channel_bytes *in_its_place(u64 ino, u32 dev)
{
    if (attaching || ino >> 32)
        return 0;
    u64 pipe = (u64)dev << 32 | ino;
    u32 index = ino & (PIPE_PLACES - 1);
    struct pipe_place *place = bpf_map_lookup_elem(&pipe_places, &index);
    if (!place)
        return 0;
    u64 whose = *(volatile u64 *)&place->pipe;
    if (!whose) {
        whose = __sync_val_compare_and_swap(&place->pipe, 0, pipe);
        if (!whose)
            whose = pipe;
    }
    return whose == pipe ? &place->bytes : 0;
}

#define SEVERAL 0xffffffff

/* A channel that is older than the capture. User space reads it. */
struct mid_life {
    s64 least; /* bounds of the excess */
    s64 most;
    s64 excess; /* at the last look from outside, with all that had been moved by then */
    u64 moved;
    u64 reverse; /* of a socket: the other direction */
    u32 reader;  /* process that has this end open; 0: none that is traced; or SEVERAL */
    u32 writer;
    u8 looked;
    u8 settled;
    u8 on_stdin; /* the reader's standard input */
    u8 on_stdout;
    u8 is_named; /* by an address: its role is known */
    u8 busy;     /* bytes were moved before it was settled */
    u8 pad[2];
};

extern struct mid_lives_map {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 65536);
    __type(key, struct channel_key);
    __type(value, struct mid_life);
} mid_lives SEC(".maps");

#define UNSETTLED_SENT (1ULL << 40)
#define UNSETTLED_RECEIVED (1ULL << 41)
#define SETTLED (1ULL << 42)

#define MOST_EXCESS (1LL << 62)
#define LEAST_EXCESS (-MOST_EXCESS)

/* To be read before what lies in the channel: what moves in between then only widens a bound. */
static __always_inline s64 read_difference(struct channel_bytes *bytes)
{
    return (s64)(bytes->sent - UNSETTLED_SENT) - (s64)(bytes->received - UNSETTLED_RECEIVED);
}

static __always_inline void settle_channel(struct channel_bytes *bytes, struct mid_life *life,
                                           s64 excess)
{
    if (__sync_val_compare_and_swap(&bytes->unsettled, 1, 0) != 1)
        return;
    __sync_fetch_and_add(&bytes->received, SETTLED - UNSETTLED_RECEIVED);
    __sync_fetch_and_add(&bytes->sent, SETTLED - UNSETTLED_SENT - excess);
    life->settled = 1;
}

/* At the end of a call. */
static __always_inline void narrow_excess(struct channel_bytes *bytes, struct channel_key *key,
                                          bool is_write, s64 excess)
{
    struct mid_life *life = bpf_map_lookup_elem(&mid_lives, key);
    if (!life)
        return;
    life->busy = 1;
    if (is_write) {
        if (excess < life->most)
            life->most = excess;
    } else if (excess > life->least) {
        life->least = excess;
    }
    if (life->least > life->most) {
        /* Writers raced, or the channel changed while we looked: from the beginning. */
        life->least = is_write ? LEAST_EXCESS : excess;
        life->most = is_write ? excess : MOST_EXCESS;
    } else if (life->least == life->most) {
        settle_channel(bytes, life, excess);
    }
}

/* Bytes in a pipe that nobody has read; -1: not known, or so full that a writer may be asleep with
 * some of its bytes in and some not. */
__hidden s64 unread_of_pipe(u64 inode_address);

/* Bytes in the queue of a Unix socket that nobody has received; -1: not known. */
__hidden s64 unread_of_unix(u64 sock_address);

/* The same at little cost, where the kernel counts them itself. */
__hidden s64 unread_of_moving(u64 sock_address);

/* Eventfds share an inode with much else. */
static __always_inline bool is_eventfd(struct file *file)
{
    char name[9] = {};
    struct dentry *entry = READ(file, file, f_path.dentry);
    const unsigned char *of_file = READ(dentry, entry, d_name.name);
    bpf_probe_read_kernel(name, sizeof(name), of_file);
    return __builtin_memcmp(name, "[eventfd]", sizeof(name)) == 0;
}
