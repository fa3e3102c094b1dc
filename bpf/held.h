/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Bytes that a call has given to TCP and that the kernel still holds back at the call's end: the
 * reason, and the sockets with such bytes. Their packets tell when they leave (wire.bpf.c).
 */
#pragma once
#include "tasks.h"
#include "records.h"
#include "tables.h"

struct held_bytes {
    u64 channel;
    u64 end; /* number of the first byte after them */
};

/* By socket. LRU. */
extern struct holding_map {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u64);
    __type(value, struct held_bytes);
} holding SEC(".maps");

/* Number of sockets that hold bytes back; while it is 0, packets cost nothing. Sockets evicted from
 * the table remain counted. */
extern volatile u64 sockets_holding;

/* Removes a socket's entry: all that it held back has left, or never will. */
static __always_inline void let_go(u64 key)
{
    long error = bpf_map_delete_elem(&holding, &key);
    count_dropped(TABLE_HOLDING, error);
    if (!error)
        __sync_fetch_and_sub(&sockets_holding, 1);
}

/* Records held bytes that may have left without their hook. On the development kernel there are
 * periods in which no tracepoint's program runs (docs/evidence.md). To be called where the socket
 * is seen again. */
__hidden void tell_unseen(struct sock *sk, struct tcp_sock *tcp);

/* At the end of a call that wrote, notes whether some of the bytes are held back, and why. At the
 * end of a call that read, acts like tell_unseen(). Not inlined, to save its caller's stack. */
__hidden void note_held(struct sock *sk, struct tcp_sock *tcp, struct socket_transfer *moved);
