/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declarations shared by several files: datagrams and their packets. */
#pragma once
#include "sockets.h"

#define IPPROTO_FRAGMENT 44
#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET 0x1fff
#define UDP_HEADER_BYTES 8

/* A datagram and the channels it belongs to. */
struct datagram {
    u64 skb;
    u64 channel;
    u64 reverse;
    u64 offset;
    u32 bytes; /* 0: no datagram is known */
    u16 object_type;
    u16 flags;      /* SYSCALL_EMPTY */
    u32 has_offset; /* else `offset` is still to be counted */
    u64 arrived_ns; /* when it entered its receiver's queue; 0: not seen */
    u32 several;    /* in `heads`: datagrams have arrived on more than one channel */
};

/* Datagrams in transit, by sk_buff or by what the fragments of a datagram have in common. If the
 * sender is untraced, only `arrived_ns` is known. LRU. */
extern struct datagrams_map {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct datagram);
} datagrams SEC(".maps");

/* Channels of datagrams, by the sender's endpoint and the receiver's port. LRU. */
struct flow {
    u64 channel;
    u64 reverse;
};

extern struct flows_map {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct flow);
} flows SEC(".maps");

static __always_inline u64 flow_key(const struct endpoint *from, u32 to_port, u32 net)
{
    u64 hash = mix_hash(is_loopback(from) ? net : 0, from->address[0]);
    return mix_hash(mix_hash(hash, from->address[1]), (u64)from->port << 16 | to_port);
}

/* The only channel on which datagrams for a port have arrived. LRU. */
struct arrivals {
    struct flow flow;
    u64 several; /* datagrams have arrived on other channels, too */
};

extern struct ports_map {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct arrivals);
} ports SEC(".maps");

static __always_inline u64 port_key(u32 port, u32 net)
{
    return mix_hash(net, port);
}

/* Contents of the headers of a UDP packet. */
struct headers {
    struct endpoint from;
    struct endpoint to;
    u32 fragment; /* identifies the datagram that this fragment belongs to; 0: it is whole */
    u32 bytes;    /* of payload */
};

/* Reads the IP and UDP headers; false if there are none, as in later fragments. */
static __always_inline bool read_headers(struct sk_buff *skb, struct headers *h)
{
    unsigned char *packet = READ(sk_buff, skb, head) + READ(sk_buff, skb, network_header);
    union {
        u8 bytes[48];
        u16 halves[24];
        u32 words[12];
        u64 longs[6];
    } ip;
    u32 header_bytes;
    if (bpf_probe_read_kernel(&ip, 20, packet) != 0)
        return false;
    h->fragment = 0;
    if (ip.bytes[0] >> 4 == 4) {
        u16 fragment = __builtin_bswap16(ip.halves[3]);
        if (ip.bytes[9] != IPPROTO_UDP || (fragment & IP_OFFSET))
            return false;
        h->fragment = ip.halves[2];
        header_bytes = (ip.bytes[0] & 15) * 4;
        h->from.address[0] = h->to.address[0] = 0;
        h->from.address[1] = map_ipv4(ip.words[3]);
        h->to.address[1] = map_ipv4(ip.words[4]);
    } else {
        if (bpf_probe_read_kernel(&ip, sizeof(ip), packet) != 0 || ip.bytes[0] >> 4 != 6)
            return false;
        u8 next = ip.bytes[6];
        header_bytes = 40;
        if (next == IPPROTO_FRAGMENT) {
            next = ip.bytes[40];
            header_bytes = 48;
            if (__builtin_bswap16(ip.halves[21]) & ~7)
                return false;
        }
        if (next != IPPROTO_UDP)
            return false;
        h->from.address[0] = ip.longs[1];
        h->from.address[1] = ip.longs[2];
        h->to.address[0] = ip.longs[3];
        h->to.address[1] = ip.longs[4];
    }
    u16 udp[4];
    if (bpf_probe_read_kernel(udp, sizeof(udp), packet + header_bytes) != 0)
        return false;
    h->from.port = __builtin_bswap16(udp[0]);
    h->to.port = __builtin_bswap16(udp[1]);
    u16 bytes = __builtin_bswap16(udp[2]);
    h->bytes = bytes > UDP_HEADER_BYTES ? bytes - UDP_HEADER_BYTES : 0;
    return true;
}

/* Sets how many bytes of its channel a datagram takes: an empty one takes one byte. */
static __always_inline void set_bytes(struct datagram *d, u32 bytes)
{
    d->bytes = bytes ? bytes : 1;
    d->flags = bytes ? 0 : SYSCALL_EMPTY;
}

/* Both channels between two addresses, as seen by the end that is in `net`. */
static __always_inline void name_channels(struct datagram *d, const struct endpoint *from,
                                          const struct endpoint *to, u32 net)
{
    u64 namespace = is_loopback(to) || is_loopback(from) ? net : 0;
    d->channel = number_direction(from, to, namespace);
    d->reverse = number_direction(to, from, namespace);
    d->object_type = OBJECT_UDP;
}

/* Registers a UDP channel whose ends are known. If the channel is new, records its name. */
static __always_inline struct channel_bytes *learn_channel(const struct datagram *d,
                                                           const struct endpoint *from,
                                                           const struct endpoint *to, u32 net)
{
    bool is_new;
    struct channel_bytes *counted = channel_state(d->channel, &is_new);
    if (is_new) {
        /* One structure and one key serve both maps: the callers' stack is nearly full. */
        struct arrivals first = {.flow = {.channel = d->channel, .reverse = d->reverse}};
        u64 key = flow_key(from, to->port, net);
        PUT(TABLE_FLOWS, &flows, &key, &first.flow);
        key = port_key(to->port, net);
        struct arrivals *known = bpf_map_lookup_elem(&ports, &key);
        if (!known)
            ADD(TABLE_PORTS, &ports, &key, &first);
        else if (known->flow.channel != d->channel)
            known->several = 1;
        name_endpoints(d->channel, from, to, OBJECT_UDP);
    }
    return counted;
}

static __always_inline u64 fragments_key(u64 channel, u32 fragment)
{
    return mix_hash(channel, fragment) | 1; /* no sk_buff has that address */
}

/* Numbers an outgoing datagram and notes it as a transfer of the running call. */
static __always_inline void number_datagram(struct task_state *state, struct datagram *d,
                                            struct channel_bytes *counted)
{
    d->offset = __sync_fetch_and_add(&counted->sent, (u64)d->bytes);
    d->has_offset = true;
    struct socket_transfer moved = {
        .channel = d->channel,
        .reverse = d->reverse,
        .end = d->offset + d->bytes,
        .bytes = d->bytes,
        .object_type = d->object_type,
        .flags = d->flags | SYSCALL_WRITE,
        .framed = d->object_type == OBJECT_UDP ? look_at_frames(counted, true) : LOOK_AWAY,
    };
    note_transfer(state, &moved);
}

/* A packet of a UDP socket is handed to a device, in most cases inside the sender's own call.
 * Returns whether it is a whole datagram of a traced thread. */
static __always_inline bool datagram_leaves(struct sk_buff *skb, struct sock *sk,
                                            struct datagram *d)
{
    struct task_state *state = traced_current();
    if (!state || !state->enter_ns)
        return false;
    /* A softirq may also send other threads' datagrams, which had to wait for an address to be
     * resolved. */
    bool own = state->fd >= 0 && state->sk == (u64)sk;
    if (!own && interrupt_context())
        return false;
    u64 key = (u64)skb;
    if (state->skb == key)
        return false; /* noted before; now passed on to the underlying device */
    struct headers h;
    if (!read_headers(skb, &h))
        return false;
    state->skb = key;
    u32 net = namespace_of(sk);
    name_channels(d, &h.from, &h.to, net);
    set_bytes(d, h.bytes);
    struct channel_bytes *counted = learn_channel(d, &h.from, &h.to, net);
    if (!counted)
        return false;
    number_datagram(state, d, counted);
    /* The reassembled datagram may lie in the sk_buff of any fragment. */
    bool whole = skb->len >= h.bytes + UDP_HEADER_BYTES;
    if (!whole)
        key = fragments_key(d->channel, h.fragment);
    PUT(TABLE_DATAGRAMS, &datagrams, &key, d);
    return whole;
}

static __always_inline bool is_datagram(u16 object_type)
{
    return object_type == OBJECT_UDP || object_type == OBJECT_UNIX_DGRAM;
}

/* Remembers the arrival times of this socket's datagrams from now on. The first datagram in its
 * queue is not known: the entry gets an address that no sk_buff has. Not inlined, to save its
 * callers' stack. */
__hidden void await_datagrams(u64 ino);

/* A call that reads from a descriptor begins. */
__hidden void await_datagram(struct task_state *state);

/* A traced thread has sent a datagram, or received one. */
__hidden void datagram_sent(struct task_state *state, struct sock *sk, s32 bytes, int flags);
__hidden void datagram_received(struct task_state *state, struct sock *sk, s32 bytes);

/* A call that may have moved a UDP datagram ends. If the datagram was not seen, or was mistaken for
 * another one, its channel follows from the address that the program passed or requested. */
__hidden void settle_other_end(struct task_state *state, struct pt_regs *regs, s64 bytes);
