/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The way of packets of traced sockets through devices: queued, sent, and, if the other end is on
 * this machine, received. On the way through a router on this machine there are several devices,
 * with a record for each. Loopback has no queue and no link; its packets leave no records, except
 * those that carry bytes that TCP had held back (held.h).
 *
 * TCP packets are identified by channel and the number of their last byte, so segmentation (GSO)
 * and copying do not matter: the record describes the way of the last piece. UDP datagrams are
 * identified by their sk_buff (see datagrams.bpf.c), if they are whole: fragments are not recorded.
 */
#include "datagrams.h"
#include "held.h"

#define IFF_LOOPBACK 8

/* Sockets that a traced thread has sent through, and the channel on which they send. LRU. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, u64);
} wired SEC(".maps");

/* While there are none, packets of other programs cost next to nothing. */
static volatile bool any_wired;

struct packet_key {
    u64 channel;
    u64 end; /* for TCP the 32 bits of its number */
};

struct packet {
    u64 queued_ns;
    u64 sent_ns;
    u64 end;
    u32 bytes;
    u16 flags; /* PACKET_* */
    u16 pad;
    u32 device;
    u32 pad2;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct packet_key);
    __type(value, struct packet);
} packets SEC(".maps");

struct tcp_headers {
    struct endpoint from;
    struct endpoint to;
    u32 end;   /* number of the first byte after its payload */
    u32 bytes; /* of payload */
};

static __always_inline bool read_tcp(struct sk_buff *skb, struct tcp_headers *h)
{
    unsigned char *head = READ(sk_buff, skb, head);
    u32 network_header = READ(sk_buff, skb, network_header);
    unsigned char *packet = head + network_header;
    union {
        u8 bytes[40];
        u32 words[10];
        u64 longs[5];
    } ip;
    u32 header_bytes = 40;
    if (bpf_probe_read_kernel(&ip, 20, packet) != 0)
        return false;
    if (ip.bytes[0] >> 4 == 4) {
        if (ip.bytes[9] != IPPROTO_TCP)
            return false;
        header_bytes = (ip.bytes[0] & 15) * 4;
        h->from.address[0] = h->to.address[0] = 0;
        h->from.address[1] = map_ipv4(ip.words[3]);
        h->to.address[1] = map_ipv4(ip.words[4]);
    } else {
        if (ip.bytes[0] >> 4 != 6 || ip.bytes[6] != IPPROTO_TCP ||
            bpf_probe_read_kernel(&ip, sizeof(ip), packet) != 0)
            return false;
        h->from.address[0] = ip.longs[1];
        h->from.address[1] = ip.longs[2];
        h->to.address[0] = ip.longs[3];
        h->to.address[1] = ip.longs[4];
    }
    union {
        u8 bytes[16];
        u16 halves[8];
        u32 words[4];
    } tcp;
    if (bpf_probe_read_kernel(&tcp, sizeof(tcp), packet + header_bytes) != 0)
        return false;
    h->from.port = __builtin_bswap16(tcp.halves[0]);
    h->to.port = __builtin_bswap16(tcp.halves[1]);
    /* Some verifiers take addresses for pointers, of which only the difference may be computed. */
    s64 data = (u64)READ(sk_buff, skb, data) - (u64)head;
    barrier_var(data);
    s64 payload = network_header + header_bytes + (tcp.bytes[12] >> 4) * 4;
    s64 bytes = (s64)READ(sk_buff, skb, len) - (payload - data);
    if (bytes <= 0)
        return false; /* a pure acknowledgement */
    h->bytes = bytes;
    h->end = __builtin_bswap32(tcp.words[1]) + h->bytes;
    return true;
}

static __always_inline bool on_loopback(struct sk_buff *skb)
{
    struct net_device *device = READ(sk_buff, skb, dev);
    return READ(net_device, device, flags) & IFF_LOOPBACK;
}

static __always_inline void emit_packet(u64 channel, const struct packet *p, u64 received_ns)
{
    u64 now_ns = received_ns ? received_ns : p->sent_ns;
    emit (rec_packet, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .kind = REC_PACKET, .flags = p->flags};
        r->channel = channel;
        r->end = p->end;
        r->queued_ns = p->queued_ns;
        r->sent_ns = p->sent_ns;
        r->received_ns = received_ns;
        r->bytes = p->bytes;
        r->device = p->device;
    }
}

/* rec_packet.device */
static __always_inline u32 device_of(struct sk_buff *skb)
{
    struct net_device *device = READ(sk_buff, skb, dev);
    struct net *net = READ(net_device, device, nd_net.net);
    u32 namespace = READ(net, net, ns.inum), index = READ(net_device, device, ifindex);
    return namespace << 16 | (index & 0xffff);
}

static __always_inline void note_queued(const struct packet_key *id, struct packet *p)
{
    p->queued_ns = bpf_ktime_get_ns();
    PUT(TABLE_PACKETS, &packets, id, p);
}

/* A device has queued a TCP packet that ends at `h->end`. */
static __always_inline void tcp_queued(struct sk_buff *skb, u64 channel,
                                       const struct tcp_headers *h, u16 flags)
{
    struct packet_key id = {.channel = channel, .end = h->end};
    struct packet *before = bpf_map_lookup_elem(&packets, &id);
    struct channel_bytes *counted = bpf_map_lookup_elem(&channels, &channel);
    u64 last = counted ? counted->sent : 0;
    u32 device = device_of(skb);
    /* Also if the device has not sent it, because its queue dropped it. */
    bool again = before && before->device == device;
    struct packet p = {
        .end = extend_sequence(&last, h->end),
        .bytes = h->bytes,
        .flags = again ? flags | PACKET_AGAIN : flags,
        .device = device,
    };
    note_queued(&id, &p);
}

/* A packet of a socket that holds bytes back is handed to a device. Not inlined, to save its
 * caller's stack. */
static __noinline void held_leave(struct sk_buff *skb, struct sock *sk, struct held_bytes *known)
{
    struct tcp_headers h;
    if (!known || !read_tcp(skb, &h))
        return;
    /* snd_nxt advances when the packet has been sent: bytes before it were sent earlier. */
    u32 next = READ(tcp_sock, sk, snd_nxt), last = known->end;
    bool missed = (s32)(next - last) >= 0;
    if (!missed && (s32)(h.end - next) > 0) {
        next = h.end;
        u64 now_ns = bpf_ktime_get_ns();
        struct packet p = {
            .queued_ns = now_ns,
            .sent_ns = now_ns,
            .end = known->end + (s64)(s32)(h.end - last),
            .bytes = h.bytes,
            .flags = PACKET_LOOPBACK,
            .device = device_of(skb),
        };
        if (on_loopback(skb))
            emit_packet(known->channel, &p, 0);
    }
    if ((s32)(next - last) >= 0)
        let_go((u64)sk);
}

/* A TCP packet is handed to a device: in its sender's call, or later, when earlier packets have
 * made room. */
static __always_inline void packet_queued(struct sk_buff *skb, struct sock *sk)
{
    u64 key = (u64)sk;
    if (sockets_holding)
        held_leave(skb, sk, bpf_map_lookup_elem(&holding, &key));
    if (on_loopback(skb))
        return;
    u64 *known = bpf_map_lookup_elem(&wired, &key);
    if (!known) {
        struct task_state *state = traced_current();
        if (!state || !state->enter_ns || state->fd < 0 || state->sk != key)
            return;
    }
    struct tcp_headers h;
    if (!read_tcp(skb, &h))
        return;
    u64 channel = number_direction(&h.from, &h.to, 0);
    if (!known) {
        PUT(TABLE_WIRED, &wired, &key, &channel);
        any_wired = true;
    }
    tcp_queued(skb, channel, &h, 0);
}

/* A traced thread's datagram is handed to a device. */
static __always_inline void datagram_queued(struct sk_buff *skb, const struct datagram *d,
                                            u16 flags)
{
    if (on_loopback(skb))
        return;
    any_wired = true;
    struct packet_key id = {.channel = d->channel, .end = d->offset + d->bytes};
    struct packet p = {
        .end = id.end,
        .bytes = d->bytes,
        .flags = flags | PACKET_UDP,
        .device = device_of(skb),
    };
    note_queued(&id, &p);
}

/* The datagram in an sk_buff, if a traced thread sent it. */
static __always_inline struct datagram *sent_datagram(struct sk_buff *skb)
{
    u64 key = (u64)skb;
    struct datagram *d = bpf_map_lookup_elem(&datagrams, &key);
    struct headers h;
    if (!d || d->object_type != OBJECT_UDP || !d->has_offset || !read_headers(skb, &h))
        return 0;
    return d->channel == number_direction(&h.from, &h.to, 0) ? d : 0;
}

/* A router on this machine hands a packet to its next device: the packet has no socket there. */
static __always_inline void packet_forwarded(struct sk_buff *skb)
{
    struct tcp_headers h;
    if (!any_wired || on_loopback(skb))
        return;
    if (read_tcp(skb, &h)) {
        u64 channel = number_direction(&h.from, &h.to, 0);
        if (bpf_map_lookup_elem(&channels, &channel))
            tcp_queued(skb, channel, &h, PACKET_FORWARDED);
        return;
    }
    struct datagram *d = sent_datagram(skb);
    if (d)
        datagram_queued(skb, d, PACKET_FORWARDED);
}

/* What is known of a packet that was queued. */
static __always_inline struct packet *packet_of(struct sk_buff *skb, struct packet_key *id)
{
    struct tcp_headers h;
    if (read_tcp(skb, &h)) {
        id->channel = number_direction(&h.from, &h.to, 0);
        id->end = h.end;
    } else {
        struct datagram *d = sent_datagram(skb);
        if (!d)
            return 0;
        id->channel = d->channel;
        id->end = d->offset + d->bytes;
    }
    return bpf_map_lookup_elem(&packets, id);
}

SEC("tp_btf/net_dev_queue")
int HOOK(on_net_dev_queue, struct sk_buff *skb)
{
    struct sock *sk = skb->sk;
    if (!sk) {
        packet_forwarded(skb);
    } else if (sk->sk_type == SOCK_STREAM && sk->sk_protocol == IPPROTO_TCP) {
        packet_queued(skb, sk);
    } else if (sk->sk_type == SOCK_DGRAM && sk->sk_protocol == IPPROTO_UDP) {
        struct datagram d = {};
        if (datagram_leaves(skb, sk, &d))
            datagram_queued(skb, &d, 0);
    }
    return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int HOOK(on_net_dev_start_xmit, struct sk_buff *skb)
{
    if (!any_wired || on_loopback(skb))
        return 0;
    struct sock *sk = skb->sk;
    u64 key = (u64)sk;
    /* Most packets are of other sockets. */
    if (sk && sk->sk_type == SOCK_STREAM && !bpf_map_lookup_elem(&wired, &key))
        return 0;
    struct packet_key id = {};
    struct packet *p = packet_of(skb, &id);
    if (!p || p->sent_ns)
        return 0;
    p->sent_ns = bpf_ktime_get_ns();
    emit_packet(id.channel, p, 0);
    return 0;
}

SEC("tp_btf/netif_receive_skb")
int HOOK(on_netif_receive_skb, struct sk_buff *skb)
{
    if (!any_wired || on_loopback(skb))
        return 0;
    struct packet_key id = {};
    struct packet *p = packet_of(skb, &id);
    if (!p || !p->sent_ns)
        return 0;
    emit_packet(id.channel, p, bpf_ktime_get_ns());
    DROP(TABLE_PACKETS, &packets, &id);
    return 0;
}
