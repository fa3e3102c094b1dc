/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Byte counts per channel, and unread bytes of a channel: defines what channels.h declares. */
#include "channels.h"

struct pipes_map pipes SEC(".maps");
struct channels_map channels SEC(".maps");
struct pipe_places_map pipe_places SEC(".maps");
struct mid_lives_map mid_lives SEC(".maps");

#define MOST_PARTS 256 /* most buffers of a pipe or socket to examine */

__hidden __noinline s64 unread_of_pipe(u64 inode_address)
{
    struct inode *inode = (struct inode *)inode_address;
    struct pipe_inode_info *pipe = BPF_CORE_READ(inode, i_pipe);
    u32 head = BPF_CORE_READ(pipe, head), tail = BPF_CORE_READ(pipe, tail);
    u32 mask = BPF_CORE_READ(pipe, ring_size) - 1;
    void *buffers = BPF_CORE_READ(pipe, bufs);
    s64 bytes = 0;
    u32 parts = head - tail;
    if (parts > MOST_PARTS || parts > mask)
        return -1;
    barrier_var(parts); /* else the compiler drops the loop's own bound, which old verifiers need */
    for (u32 i = 0; i < MOST_PARTS && i < parts; i++) {
        u64 at = ((tail + i) & mask) * (u64)bpf_core_type_size(struct pipe_buffer);
        struct pipe_buffer *buffer = buffers + at;
        bytes += BPF_CORE_READ(buffer, len);
    }
    return BPF_CORE_READ(pipe, head) == head && BPF_CORE_READ(pipe, tail) == tail ? bytes : -1;
}

/* Unreceived bytes in the queue of a Unix socket; -1: not known. */
static __always_inline s64 unread_in_queue(struct sock *sk)
{
    u32 parts = BPF_CORE_READ(sk, sk_receive_queue.qlen);
    struct sk_buff *first = BPF_CORE_READ(sk, sk_receive_queue.next), *buffer = first;
    s64 bytes = 0;
    if (parts > MOST_PARTS)
        return -1;
    barrier_var(parts); /* else the compiler drops the loop's own bound, which old verifiers need */
    for (u32 i = 0; i < MOST_PARTS && i < parts; i++) {
        u32 consumed = 0;
        void *parameters = (void *)buffer + bpf_core_field_offset(struct sk_buff, cb);
        bpf_probe_read_kernel(&consumed, sizeof(consumed),
                              parameters + bpf_core_field_offset(struct unix_skb_parms, consumed));
        bytes += BPF_CORE_READ(buffer, len) - consumed;
        buffer = BPF_CORE_READ(buffer, next);
    }
    bool same = BPF_CORE_READ(sk, sk_receive_queue.qlen) == parts &&
                BPF_CORE_READ(sk, sk_receive_queue.next) == first;
    return same ? bytes : -1;
}

__hidden __noinline s64 unread_of_unix(u64 sock_address)
{
    return unread_in_queue((struct sock *)sock_address);
}

__hidden __noinline s64 unread_of_moving(u64 sock_address)
{
    struct sock *sk = (struct sock *)sock_address;
    struct unix_sock *unix_socket = (struct unix_sock *)sk;
    /* From 6.17 on (commit f4e1fb04c123 "af_unix: Use cached value for SOCK_STREAM in
     * unix_inq_len()"). */
    if (!bpf_core_field_exists(unix_socket->inq_len))
        return unread_in_queue(sk); /* inlined: verifiers forget functions that are never called */
    return READ(unix_sock, unix_socket, inq_len);
}
