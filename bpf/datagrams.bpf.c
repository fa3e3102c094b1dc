/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Datagrams that traced threads send and receive: UDP, and Unix sockets that keep messages apart.
 *
 * Bytes of a channel are numbered as they are sent. What of them is read cannot be counted at the
 * other end, where datagrams are missing or come in another order; but on one machine a datagram is
 * the same sk_buff at both ends, across network namespaces, too. So the number is remembered by its
 * address. Where it is not known (another machine; a segment of a larger one) the reader counts for
 * itself, from the last known one on.
 *
 * Which datagram a read takes is shown by a tracepoint in its copying, but not for the plainest
 * ones of UDP. Those are the first of the socket's queue, which is looked up before the call begins
 * or, when the queue is empty then, as the first one comes. A reader that is awake by then can be
 * quicker; so if it asks for the sender's address, that is what counts at the end.
 */
#include "datagrams.h"
#include "syscall_numbers.h"

#define MSG_MORE 0x8000

struct datagrams_map datagrams SEC(".maps");
struct flows_map flows SEC(".maps");
struct ports_map ports SEC(".maps");

/* The first in the queue of a UDP socket that a traced thread reads from, by the socket's
 * identify_socket(); without an sk_buff: the channel of the last one. Of a Unix socket only that it
 * is read.
 */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct datagram);
} heads SEC(".maps");

/* That a running call has copied, by thread. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct datagram);
} copied SEC(".maps");

/* When a datagram came of which this is remembered. If that is all, since nobody traced has sent
 * it, it is not remembered any more: NULL. */
static __always_inline struct datagram *take_arrival(struct datagram *d, struct datagram *known)
{
    if (!known)
        return 0;
    d->arrived_ns = known->arrived_ns;
    if (known->bytes)
        return known;
    DROP(TABLE_DATAGRAMS, &datagrams, &d->skb);
    return 0;
}

/* Recognises a datagram in the queue of a UDP socket. */
static __always_inline void recognise_udp(struct sk_buff *skb, struct sock *sk, struct datagram *d)
{
    struct headers h;
    if (!read_headers(skb, &h))
        return;
    u32 net = namespace_of(sk);
    name_channels(d, &h.from, &h.to, net);
    set_bytes(d, h.bytes);
    u64 key = (u64)skb;
    struct datagram *sent = take_arrival(d, bpf_map_lookup_elem(&datagrams, &key));
    if (sent && sent->channel != d->channel) {
        DROP(TABLE_DATAGRAMS, &datagrams, &key); /* of another that had this address */
        sent = 0;
    }
    if (!sent && h.fragment) {
        key = fragments_key(d->channel, h.fragment);
        sent = bpf_map_lookup_elem(&datagrams, &key);
    }
    if (sent && sent->channel == d->channel && sent->bytes == d->bytes) {
        d->offset = sent->offset;
        d->has_offset = true;
        DROP(TABLE_DATAGRAMS, &datagrams, &key);
    }
    learn_channel(d, &h.from, &h.to, net);
}

static __always_inline void name_unix_channels(struct datagram *d, struct sock *from,
                                               struct sock *to)
{
    u64 sender = identify_socket(from), receiver = identify_socket(to);
    d->channel = channel_number(mix_hash(mix_hash(0, sender), receiver));
    d->reverse = channel_number(mix_hash(mix_hash(0, receiver), sender));
    d->object_type = OBJECT_UNIX_DGRAM;
}

/* The same in the queue of a Unix socket. */
static __always_inline void recognise_unix(struct sk_buff *skb, struct sock *sk, struct datagram *d)
{
    struct sock *sender = READ(sk_buff, skb, sk);
    name_unix_channels(d, sender, sk);
    set_bytes(d, READ(sk_buff, skb, len));
    u64 key = (u64)skb;
    struct datagram *sent = take_arrival(d, bpf_map_lookup_elem(&datagrams, &key));
    /* Who did not read here has left what was known of it, and another is now at its address. */
    bool is_it = sent && (sent->channel == d->channel || !READ(sock, sender, sk_socket));
    if (is_it && sent->bytes == d->bytes && sent->object_type == d->object_type) {
        d->channel = sent->channel; /* closed meanwhile, the sender has no inode any more */
        d->reverse = sent->reverse;
        d->offset = sent->offset;
        d->has_offset = true;
    }
    if (sent)
        DROP(TABLE_DATAGRAMS, &datagrams, &key);
    bool is_new;
    channel_state(d->channel, &is_new);
    if (is_new)
        name_unix(d->channel, (struct unix_sock *)sender, (struct unix_sock *)sk,
                  OBJECT_UNIX_DGRAM);
}

/* The first datagram in a queue, or none. */
static __always_inline struct sk_buff *first_of(struct sk_buff_head *queue)
{
    struct sk_buff *first = READ(sk_buff_head, queue, next);
    return first == (struct sk_buff *)queue ? 0 : first;
}

/* The next datagram that a UDP socket gives out, or none. */
static __always_inline struct sk_buff *first_in(struct sock *sk)
{
    struct sk_buff *first = first_of(&((struct udp_sock *)sk)->reader_queue);
    return first ?: first_of(&sk->sk_receive_queue);
}

/* Who reads on another CPU has taken it while it was looked up here, and may have been at its end
 * before it was remembered: then nobody else would forget it. */
static __always_inline void forget_head(u64 key, u64 skb)
{
    struct datagram *head = bpf_map_lookup_elem(&heads, &key);
    if (head)
        __sync_val_compare_and_swap(&head->skb, skb, 0);
}

/* The last datagram in the queue of a socket; 0: it is empty. */
static __always_inline u64 last_of(struct sock *sk, u16 object_type)
{
    struct sk_buff *last = READ(sock, sk, sk_receive_queue.prev);
    if (last != (struct sk_buff *)&sk->sk_receive_queue)
        return (u64)last;
    if (object_type != OBJECT_UDP)
        return 0;
    struct sk_buff_head *reader = &((struct udp_sock *)sk)->reader_queue;
    last = READ(sk_buff_head, reader, prev);
    return last == (struct sk_buff *)reader ? 0 : (u64)last;
}

/* Remembers what the next read of a UDP socket will take, or that nothing is there. `now_ns`: when
 * the last in its queue came, if that is now; else 0. */
static __always_inline void look_at_head(struct sock *sk, u64 now_ns)
{
    struct datagram d = {};
    u64 key = identify_socket(sk);
    struct datagram *known = bpf_map_lookup_elem(&heads, &key);
    u64 former = known ? *(volatile u64 *)&known->skb : 0;
    struct sk_buff *skb = first_in(sk);
    u64 address = (u64)skb;
    /* Still there, or still nothing; but another one may have been made at the same address. */
    if (known && known->skb == address && !bpf_map_lookup_elem(&datagrams, &address))
        return;
    if (!skb && known) {
        /* Unless one has come since: its interrupt has remembered it here. */
        if (former)
            __sync_val_compare_and_swap(&known->skb, former, 0);
        return;
    }
    d.skb = address;
    if (skb)
        recognise_udp(skb, sk, &d);
    if (now_ns && address == last_of(sk, OBJECT_UDP))
        d.arrived_ns = now_ns;
    if (!d.arrived_ns && !d.has_offset) {
        /* As it came, another CPU may have taken what was to be known of it. */
        struct datagram *meanwhile = bpf_map_lookup_elem(&heads, &key);
        if (meanwhile && meanwhile->skb == address)
            return;
    }
    if (known && !d.channel) {
        d.channel = known->channel;
        d.reverse = known->reverse;
        d.object_type = known->object_type;
    }
    d.several = known && (known->several || (known->channel && known->channel != d.channel));
    if (known)
        bpf_map_update_elem(&heads, &key, &d, BPF_ANY);
    else
        ADD(TABLE_HEADS, &heads, &key, &d);
    if (now_ns && skb && first_in(sk) != skb)
        forget_head(key, address);
}

/* Several may come to a queue before anybody is told of the first. */
#define MOST_AT_ONCE 4

/*
 * A datagram has come to the queue of a socket that is read here: remembers when, if it is not read
 * yet. Of UDP its sender, if traced, has remembered more; of a Unix socket the sender is not
 * traced.
 */
static __noinline void datagram_arrived(struct sock *sk, u16 object_type)
{
    u64 last = last_of(sk, object_type), key = last, now_ns = bpf_ktime_get_ns();
    for (u32 i = 0; i < MOST_AT_ONCE && key; i++) {
        struct datagram *known = bpf_map_lookup_elem(&datagrams, &key);
        /* Of the last one what is known may be of another that had this address; but those of UDP
         * tell by themselves which they are. */
        if (known && key != last)
            return;
        if (known && object_type == OBJECT_UDP) {
            known->arrived_ns = now_ns;
        } else {
            struct datagram d = {.skb = key, .arrived_ns = now_ns};
            PUT(TABLE_DATAGRAMS, &datagrams, &key, &d);
        }
        /* Who reads on another CPU may just have taken it, and not found this. */
        if (key == last && last_of(sk, object_type) != key) {
            DROP(TABLE_DATAGRAMS, &datagrams, &key);
            return;
        }
        key = (u64)READ(sk_buff, (struct sk_buff *)key, prev);
        if (key == (u64)&sk->sk_receive_queue ||
            key == (u64) & ((struct udp_sock *)sk)->reader_queue)
            return;
    }
}

/* A reader copies a datagram: that is the one it takes. */
SEC("tp_btf/skb_copy_datagram_iovec")
int HOOK(on_skb_copy_datagram_iovec, struct sk_buff *skb)
{
    struct task_state *state = traced_current();
    if (!state || !state->enter_ns || state->fd < 0 || !is_datagram(state->object_type))
        return 0;
    struct sock *sk = (struct sock *)state->sk;
    struct datagram d = {.skb = (u64)skb};
    if (state->object_type == OBJECT_UDP) {
        u64 key = state->ino;
        struct datagram *head = bpf_map_lookup_elem(&heads, &key);
        if (head && head->skb == d.skb && head->bytes)
            d = *head;
        else
            recognise_udp(skb, sk, &d);
    } else {
        recognise_unix(skb, sk, &d);
    }
    u64 thread = bpf_get_current_pid_tgid();
    PUT(TABLE_COPIED, &copied, &thread, &d);
    return 0;
}

__hidden __noinline void await_datagrams(u64 ino)
{
    struct datagram unknown = {.skb = 1};
    if (!bpf_map_lookup_elem(&heads, &ino))
        ADD(TABLE_HEADS, &heads, &ino, &unknown);
}

__hidden __noinline void await_datagram(struct task_state *state)
{
    u64 thread = bpf_get_current_pid_tgid();
    DROP(TABLE_COPIED, &copied, &thread); /* only peeked at */
    if (state->object_type == OBJECT_UDP)
        look_at_head((struct sock *)state->sk, 0);
}

/* A datagram has been put in the queue of a Unix socket, inside its sender's own call. */
static __noinline void unix_sent(struct task_state *state, struct sock *to)
{
    if (!state)
        return;
    struct sk_buff *skb = READ(sock, to, sk_receive_queue.prev);
    u64 key = (u64)skb, sender = (u64)READ(sk_buff, skb, sk);
    u32 bytes = READ(sk_buff, skb, len);
    /* Who reads on another CPU may have taken and freed it meanwhile: what was read of it counts
     * only if it is still there. */
    barrier();
    bool is_there = (u64)READ(sock, to, sk_receive_queue.prev) == key;
    if (key == (u64)&to->sk_receive_queue || !is_there || sender != state->sk) {
        state->receiver = (u64)to; /* read already, or another is behind it: it is only counted */
        return;
    }
    struct sock *from = (struct sock *)state->sk;
    struct datagram d = {.skb = key};
    name_unix_channels(&d, from, to);
    set_bytes(&d, bytes);
    bool is_new;
    struct channel_bytes *counted = channel_state(d.channel, &is_new);
    if (!counted)
        return;
    if (is_new)
        name_unix(d.channel, (struct unix_sock *)from, (struct unix_sock *)to, OBJECT_UNIX_DGRAM);
    number_datagram(state, &d, counted);
    PUT(TABLE_DATAGRAMS, &datagrams, &key, &d);
    state->skb = key;
    /* Who reads on another CPU may have taken it before this was remembered, and has counted for
     * itself. The next one at this address would be taken for it. */
    if ((u64)READ(sock, to, sk_receive_queue.prev) != key)
        DROP(TABLE_DATAGRAMS, &datagrams, &key);
}

/* The same of a datagram that may be of an untraced sender. The functions are not inlined, for the
 * hook's stack. */
static __noinline void datagram_came(struct sock *sk, u16 object_type)
{
    u64 key = identify_socket(sk);
    struct datagram *head = bpf_map_lookup_elem(&heads, &key);
    bool is_accepted = key || object_type != OBJECT_UNIX_DGRAM;
    if (!head && is_accepted)
        return; /* nobody traced reads it */
    if (head && object_type == OBJECT_UDP && !head->skb) {
        look_at_head(sk, bpf_ktime_get_ns());
        head = bpf_map_lookup_elem(&heads, &key);
        if (!head || head->skb == last_of(sk, object_type))
            return;
    }
    datagram_arrived(sk, object_type);
}

static __always_inline int note_arrival(struct sock *sk)
{
    if (sk->sk_type == SOCK_STREAM) {
        if (sk->__sk_common.skc_state == TCP_LISTEN)
            return 0;
        if (sk->__sk_common.skc_family == AF_UNIX)
            unix_arrived(sk);
        else if (sk->sk_protocol == IPPROTO_TCP)
            bytes_arrived(sk);
        return 0;
    }
    u16 object_type = socket_type(sk);
    if (!is_datagram(object_type))
        return 0;
    if (object_type == OBJECT_UNIX_DGRAM) {
        struct task_state *state = traced_current();
        if (state && state->enter_ns && state->fd >= 0 && state->object_type == OBJECT_UNIX_DGRAM &&
            state->sk != (u64)sk) {
            unix_sent(state, sk);
            return 0;
        }
    }
    datagram_came(sk, object_type);
    return 0;
}

SEC("tp_btf/sk_data_ready")
int HOOK(on_sk_data_ready, struct sock *sk)
{
    return note_arrival(sk);
}

/* Where that tracepoint lies in kernels that have it, from 6.3 on (commit 40e0b0908142 "net/sock:
 * Introduce trace_sk_data_ready()"). */
SEC("fentry/sock_def_readable")
int HOOK(on_sock_def_readable, struct sock *sk)
{
    return note_arrival(sk);
}

/* The channels of a connected socket: false if it is none. */
static __always_inline bool connected_channels(struct datagram *d, struct sock *sk, bool is_write)
{
    u16 object_type = socket_type(sk);
    if (object_type == OBJECT_UNIX_DGRAM) {
        struct sock *peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
        if (!peer)
            return false;
        name_unix_channels(d, is_write ? sk : peer, is_write ? peer : sk);
        return true;
    }
    struct endpoint local, remote;
    tcp_ends(sk, &local, &remote);
    if (object_type != OBJECT_UDP || !remote.port)
        return false;
    const struct endpoint *from = is_write ? &local : &remote, *to = is_write ? &remote : &local;
    u32 net = namespace_of(sk);
    name_channels(d, from, to, net);
    learn_channel(d, from, to, net);
    return true;
}

__hidden __noinline void datagram_sent(struct task_state *state, struct sock *sk, s32 bytes,
                                       int flags)
{
    if (!state || bytes < 0 || (flags & MSG_MORE))
        return;
    u64 seen = state->skb, receiver = state->receiver;
    state->skb = state->receiver = 0;
    struct datagram d = {};
    if (seen)
        return;
    if (receiver)
        name_unix_channels(&d, sk, (struct sock *)receiver);
    else if (!connected_channels(&d, sk, true))
        return;
    /* It waits for an address, or was read before it could be seen. */
    bool is_new;
    struct channel_bytes *counted = channel_state(d.channel, &is_new);
    set_bytes(&d, bytes);
    if (counted)
        number_datagram(state, &d, counted);
}

/* The same of a UDP socket that hears from one other only. */
static __always_inline bool only_arrivals(struct datagram *d, struct sock *sk)
{
    if (socket_type(sk) != OBJECT_UDP)
        return false;
    u64 key = port_key(sk->__sk_common.skc_num, namespace_of(sk));
    struct arrivals *known = bpf_map_lookup_elem(&ports, &key);
    if (!known || known->several)
        return false;
    d->channel = known->flow.channel;
    d->reverse = known->flow.reverse;
    d->object_type = OBJECT_UDP;
    return true;
}

__hidden __noinline void datagram_received(struct task_state *state, struct sock *sk, s32 bytes)
{
    if (!state || bytes < 0)
        return;
    u16 object_type = socket_type(sk);
    if (!is_datagram(object_type))
        return;
    u64 key = identify_socket(sk);
    struct datagram *head = bpf_map_lookup_elem(&heads, &key);
    struct datagram d = {};
    u64 thread = bpf_get_current_pid_tgid();
    struct datagram *taken = bpf_map_lookup_elem(&copied, &thread);
    if (taken) {
        d = *taken;
        DROP(TABLE_COPIED, &copied, &thread);
    } else if (head && head->skb && head->bytes) {
        d = *head;
    } else {
        /* Nothing has been seen in its queue, of which the reader was quicker to take it. */
        bool only = head && head->channel && !head->several;
        if (only) {
            d.channel = head->channel;
            d.reverse = head->reverse;
            d.object_type = head->object_type;
        }
        if (!bytes || (!connected_channels(&d, sk, false) && !only && !only_arrivals(&d, sk)))
            return;
        set_bytes(&d, bytes);
    }
    bool is_new;
    struct channel_bytes *counted = channel_state(d.channel, &is_new);
    if (!counted)
        return;
    u64 offset = d.has_offset ? d.offset : counted->received;
    state->received_before = counted->received;
    counted->received = offset + d.bytes;
    struct socket_transfer moved = {
        .channel = d.channel,
        .reverse = d.reverse,
        .end = offset + d.bytes,
        .bytes = d.bytes,
        .object_type = d.object_type,
        .flags = d.flags,
        .framed = d.object_type == OBJECT_UDP ? look_at_frames(counted, false) : LOOK_AWAY,
        .arrived_ns = d.has_offset ? 0 : d.arrived_ns,
    };
    note_transfer(state, &moved);
    if (head) {
        head->skb = 0;
        head->bytes = 0;
    }
    if (object_type == OBJECT_UDP)
        look_at_head(sk, 0);
}

/* The address at the other end that a program gave a call, or asked it for; false: none. */
static __always_inline bool read_address(u64 address, struct endpoint *other)
{
    union {
        u16 halves[14];
        u32 words[7];
    } name; /* struct sockaddr_in, struct sockaddr_in6 */
    if (!address || bpf_probe_read_user(&name, 16, (void *)address) != 0)
        return false;
    if (name.halves[0] == AF_INET) {
        other->address[1] = map_ipv4(name.words[1]);
    } else if (name.halves[0] == AF_INET6) {
        if (bpf_probe_read_user(&name, sizeof(name), (void *)address) != 0)
            return false;
        other->address[0] = (u64)name.words[3] << 32 | name.words[2];
        other->address[1] = (u64)name.words[5] << 32 | name.words[4];
    } else {
        return false;
    }
    other->port = __builtin_bswap16(name.halves[1]);
    return true;
}

/* The channel from an address to the socket of the running call, if its datagrams were seen.
 * `here`: if it is of this machine. */
static __always_inline struct flow *flow_from(struct task_state *state, u64 address, bool here)
{
    struct endpoint other = {};
    if (!read_address(address, &other) || (here && !is_loopback(&other)))
        return 0;
    struct sock *sk = (struct sock *)state->sk;
    u64 key = flow_key(&other, BPF_CORE_READ(sk, __sk_common.skc_num), namespace_of(sk));
    return bpf_map_lookup_elem(&flows, &key);
}

/* A call that may have read a datagram: on one machine those of a channel are read in order. */
static __always_inline void settle_sender(struct task_state *state, u64 address, s64 bytes)
{
    struct socket_transfer *t = &state->socket;
    struct flow *flow = flow_from(state, address, false);
    if (!flow || (t->bytes && t->channel == flow->channel))
        return;
    if (t->bytes) {
        /* Another one was taken for it, which is still to be read. */
        u64 channel = t->channel;
        struct channel_bytes *mistaken = bpf_map_lookup_elem(&channels, &channel);
        if (mistaken)
            mistaken->received = state->received_before;
    }
    struct datagram d = {.channel = flow->channel, .reverse = flow->reverse};
    set_bytes(&d, bytes);
    struct channel_bytes *counted = bpf_map_lookup_elem(&channels, &d.channel);
    if (!counted)
        return;
    u64 end = counted->received + d.bytes;
    counted->received = end;
    *t = (struct socket_transfer){
        .channel = d.channel,
        .reverse = d.reverse,
        .end = end,
        .bytes = d.bytes,
        .object_type = OBJECT_UDP,
        .flags = d.flags,
        .framed = look_at_frames(counted, false),
    };
}

/* A call that sent a datagram of which no packet was seen. One to another machine may leave later,
 * when that one's address is known, and is seen then. */
static __always_inline void settle_receiver(struct task_state *state, u64 address, s64 bytes)
{
    struct flow *flow = flow_from(state, address, true);
    if (!flow)
        return;
    struct datagram d = {
        .channel = flow->reverse, .reverse = flow->channel, .object_type = OBJECT_UDP};
    set_bytes(&d, bytes);
    /* It is named as its first packet is seen. */
    struct channel_bytes *counted = bpf_map_lookup_elem(&channels, &d.channel);
    if (counted)
        number_datagram(state, &d, counted);
}

__hidden __noinline void settle_other_end(struct task_state *state, struct pt_regs *regs, s64 bytes)
{
    struct socket_transfer *t = &state->socket;
    u64 address = 0, flags = 0;
    switch (state->nr) {
    case NR_recvfrom:
    case NR_sendto:
        address = CALL_ARG_5(regs);
        flags = CALL_ARG_4(regs);
        break;
    case NR_recvmsg:
    case NR_sendmsg:
        flags = CALL_ARG_3(regs);
        bpf_probe_read_user(&address, sizeof(address), (void *)CALL_ARG_2(regs));
        break;
    case NR_recvmmsg: {
        if (bytes != 1 || t->bytes)
            break;
        /* Read before it could be seen in the queue: struct mmsghdr, include/linux/socket.h */
        u32 length = 0;
        flags = CALL_ARG_4(regs);
        bpf_probe_read_user(&address, sizeof(address), (void *)CALL_ARG_2(regs));
        bpf_probe_read_user(&length, sizeof(length), (void *)CALL_ARG_2(regs) + 56);
        bytes = length;
        break;
    }
    }
    if (!address || bytes < 0)
        return;
    bool is_write = state->nr == NR_sendto || state->nr == NR_sendmsg;
    if (is_write && !t->bytes && !(flags & MSG_MORE))
        settle_receiver(state, address, bytes);
    bool was_written = t->bytes && (t->flags & SYSCALL_WRITE); /* what had to wait left meanwhile */
    if (!is_write && !was_written && !(flags & (MSG_PEEK | MSG_ERRQUEUE)))
        settle_sender(state, address, bytes);
}
