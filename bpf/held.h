/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Bytes that a call has given to TCP and that the kernel holds back at its end: why, and which
 * sockets have some. When they leave is told by their packets (wire.bpf.c).
 */
#pragma once
#include "tasks.h"
#include "records.h"
#include "tables.h"

struct held_bytes {
    u64 channel;
    u64 end; /* number of the first byte after them */
};

/* By socket. Least recently used. */
extern struct holding_map {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u64);
    __type(value, struct held_bytes);
} holding SEC(".maps");

/* While there are none, packets cost nothing. Sockets that fell out of the table count on. */
extern volatile u64 sockets_holding;

/* All that the socket held back has left, or never will. */
static __always_inline void let_go(u64 key)
{
    long error = bpf_map_delete_elem(&holding, &key);
    count_dropped(TABLE_HOLDING, error);
    if (!error)
        __sync_fetch_and_sub(&sockets_holding, 1);
}

/* What the socket held back may have left without its hook. On the development kernel there are
 * stretches in which no tracepoint's program runs (docs/evidence.md). To be called where the socket
 * is seen again. */
__hidden void tell_unseen(struct sock *sk, struct tcp_sock *tcp);

/* Notes at the end of a call that wrote whether some of the bytes are held back, and why; at the
 * end of one that read, does as tell_unseen(). Not inlined, for its caller's stack. */
__hidden void note_held(struct sock *sk, struct tcp_sock *tcp, struct socket_transfer *moved);
