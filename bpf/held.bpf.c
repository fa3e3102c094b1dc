/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Why bytes are held back: defines what held.h declares. */
#include "held.h"
#include <bpf/bpf_core_read.h>

#define TCP_NAGLE_CORK 2 /* include/net/tcp.h */

struct holding_map holding SEC(".maps");

volatile u64 sockets_holding;

/*
 * Returns what holds the unsent bytes back and at least how many they are, as tcp_write_xmit() and
 * tcp_nagle_check() (net/ipv4/tcp_output.c) would decide at this moment.
 */
static __always_inline u16 find_held(struct tcp_sock *tcp)
{
    u32 unsent_bytes = tcp->write_seq - tcp->snd_nxt, packet_bytes = tcp->mss_cache;
    if (!unsent_bytes)
        return HELD_NOT;
    s32 room_bytes = tcp->snd_una + tcp->snd_wnd - tcp->snd_nxt;
    u32 under_way = tcp->packets_out - tcp->sacked_out - tcp->lost_out + tcp->retrans_out;
    u8 nonagle = BPF_CORE_READ_BITFIELD(tcp, nonagle);
    bool small_under_way =
        (s32)(tcp->snd_sml - tcp->snd_una) > 0 && (s32)(tcp->snd_nxt - tcp->snd_sml) >= 0;
    u16 why = HELD_FOR_TURN;
    if (under_way >= tcp->snd_cwnd)
        why = HELD_BY_CONGESTION;
    else if (room_bytes < (s32)(unsent_bytes < packet_bytes ? unsent_bytes : packet_bytes))
        why = HELD_BY_WINDOW;
    else if (unsent_bytes < packet_bytes && (nonagle & TCP_NAGLE_CORK || !tcp->packets_out))
        why = HELD_BY_CORK; /* or MSG_MORE */
    else if (unsent_bytes < packet_bytes && !nonagle && small_under_way)
        why = HELD_AS_SMALL;
    u16 shift = 0;
    while (unsent_bytes >= HELD_MANTISSAS && shift < 24) {
        unsent_bytes >>= 1;
        shift++;
    }
    return HELD(why, shift, unsent_bytes);
}

/*
 * Records held bytes that left without their hook. TCP knows to the microsecond when the last
 * acknowledged packet was sent, as long as nothing was sent after it (tcp_rate_skb_delivered(),
 * net/ipv4/tcp_rate.c). If the packet was sent twice, both times without its hook, this is the
 * second time. If a hook ran, it has already removed the entry.
 */
static __always_inline void look_for_unseen(struct tcp_sock *tcp, u64 key)
{
    if (!sockets_holding)
        return;
    struct held_bytes *known = bpf_map_lookup_elem(&holding, &key);
    if (!known || tcp->snd_una != (u32)known->end || tcp->snd_nxt != tcp->snd_una)
        return;
    u64 now_ns = bpf_ktime_get_ns(), sent_ns = tcp->first_tx_mstamp * 1000;
    emit (rec_packet, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .kind = REC_PACKET, .flags = PACKET_UNSEEN};
        r->channel = known->channel;
        r->end = known->end;
        r->queued_ns = sent_ns;
        r->sent_ns = sent_ns;
        r->received_ns = 0;
        r->bytes = 1;
        r->device = 0;
    }
    let_go(key);
}

__hidden __noinline void tell_unseen(struct sock *sk, struct tcp_sock *tcp)
{
    look_for_unseen(tcp, (u64)sk);
}

__hidden __noinline void note_held(struct sock *sk, struct tcp_sock *tcp,
                                   struct socket_transfer *moved)
{
    u64 key = (u64)sk;
    if (!(moved->flags & SYSCALL_WRITE)) {
        look_for_unseen(tcp, key);
        return;
    }
    if (tcp->write_seq == tcp->snd_nxt)
        return;
    struct held_bytes *known = bpf_map_lookup_elem(&holding, &key);
    if (known) {
        known->end = moved->end;
    } else {
        struct held_bytes new = {.channel = moved->channel, .end = moved->end};
        if (ADD(TABLE_HOLDING, &holding, &key, &new) == 0)
            __sync_fetch_and_add(&sockets_holding, 1);
    }
    /* The bytes may have left before they were noted. */
    moved->held = find_held(tcp);
    if (moved->held == HELD_NOT)
        let_go(key);
}
