/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Byte counts per channel (a pipe, or one direction of a connection). A write and a read meet by
 * byte number, whatever their sizes, and still do after lost records.
 *
 * For a channel older than the capture, the difference between its two counts is unknown: bytes may
 * have been written and not read, and calls under way may have moved bytes that they count only at
 * their end. The counts should differ by the unread bytes in the channel. So each look at the
 * channel gives the `excess` of one count over the other, apart from the calls under way:
 *  - at the end of a write, those are reads, which make the excess too large: an upper bound;
 *  - at the end of a read, those are writes, which make it too small: a lower bound.
 * (Concurrent writers of one channel are an exception.) The excess is known when the bounds meet,
 * or when nothing moves between two looks. Until then the two counts use separate ranges, in which
 * no write meets a read.
 */
#pragma once
#include "look.h"
#include "probe.h"

#define S_IFIFO_TYPE 1 /* S_IFIFO >> 12 */

struct channel_key {
    u64 number; /* a pipe's inode, a Unix socket's cookie */
    u64 dev;    /* 0: a socket's */
};

/* TCP numbers its own bytes: only `sent` is used, to extend the 32 bits of the next number. */
struct channel_bytes {
    u64 sent;
    u64 received;
    u64 arrived;    /* Unix, untraced writer: end of the bytes last reported as arrived */
    u64 behind_ns;  /* when unreported bytes last arrived; 0: all arrivals have been reported */
    u64 unsettled;  /* 1: the counts are not settled (struct mid_life) */
    u32 written;    /* the framer has followed a write, so it need not follow reads. Until then it
                     * does: the reader may answer before the writer's call ends */
    u32 unreadable; /* 1 << side: the bytes that this side moves have no known framing */
    u32 has_writer; /* a traced thread has written, so it is known when the bytes were sent */
    u16 framed[2];  /* by side: FRAMED() of what is known about its framing; 0: nothing yet */
};

/* Pipes and eventfds. The counter values moved through an eventfd count as bytes. LRU: unused
 * entries are evicted. */
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
 * A cheap array in front of these maps: each pipe has one place, by its inode number, which it owns
 * from its first bytes on. A pipe whose place is taken uses the table for good, and so does every
 * pipe if the capture may be younger than the pipes.
 */
#define PIPE_PLACES 16384

/* One cache line each. */
struct pipe_place {
    u64 pipe; /* 0: free */
    struct channel_bytes bytes;
};

extern struct pipe_places_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, PIPE_PLACES);
    __type(key, u32);
    __type(value, struct pipe_place);
} pipe_places SEC(".maps");

/* Returns the counts in the pipe's place; NULL: the pipe has no place. */
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
    s64 excess; /* at the last look from outside; `moved`: all bytes moved by then */
    u64 moved;
    u64 reverse; /* of a socket: the other direction */
    u32 reader;  /* process that has this end open; 0: none that is traced; or SEVERAL */
    u32 writer;
    u8 looked;
    u8 settled;
    u8 on_stdin; /* the reader's standard input */
    u8 on_stdout;
    u8 is_named; /* it has an address, so its role is known */
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

/* Must be read before the unread bytes: then bytes that move in between only widen a bound. */
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

/* Narrows the bounds of the excess at the end of a call. */
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
        /* Writers raced, or the channel changed during the look: starts over. */
        life->least = is_write ? LEAST_EXCESS : excess;
        life->most = is_write ? excess : MOST_EXCESS;
    } else if (life->least == life->most) {
        settle_channel(bytes, life, excess);
    }
}

/* Unread bytes in a pipe; -1: not known, or the pipe is so full that a writer may be asleep with
 * only some of its bytes written. */
__hidden s64 unread_of_pipe(u64 inode_address);

/* Unreceived bytes in the queue of a Unix socket; -1: not known. */
__hidden s64 unread_of_unix(u64 sock_address);

/* As unread_of_unix(), but cheap where the kernel keeps the count itself. */
__hidden s64 unread_of_moving(u64 sock_address);

/* Returns whether a file is an eventfd, by its name: eventfds share an inode with many other
 * files. */
static __always_inline bool is_eventfd(struct file *file)
{
    char name[9] = {};
    struct dentry *entry = READ(file, file, f_path.dentry);
    const unsigned char *of_file = READ(dentry, entry, d_name.name);
    bpf_probe_read_kernel(name, sizeof(name), of_file);
    return __builtin_memcmp(name, "[eventfd]", sizeof(name)) == 0;
}
