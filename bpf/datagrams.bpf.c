/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Datagrams that traced threads send and receive: UDP, and Unix sockets that keep messages apart.
 *
 * The bytes of a channel are numbered as they are sent. The reader cannot obtain these numbers by
 * counting, because datagrams may be missing or reordered. But on one machine a datagram is the
 * same sk_buff at both ends, also across network namespaces, so the number is remembered by the
 * sk_buff's address. Where the number is not known (another machine; a segment of a larger
 * datagram) the reader counts by itself, from the last known number on.
 *
 * A tracepoint in the copying shows which datagram a read takes, but not for the plainest UDP
 * datagrams. Those are taken from the head of the socket's queue. The head is looked up before the
 * call begins or, if the queue is empty then, when the first datagram arrives. A reader that is
 * awake by then can be faster than this lookup; so if it asks for the sender's address, that
 * address decides at the end of the call.
 */
#include "datagrams.h"
#include "syscall_numbers.h"

#define MSG_MORE 0x8000

struct datagrams_map datagrams SEC(".maps");
struct flows_map flows SEC(".maps");
struct ports_map ports SEC(".maps");

/* The first datagram in the queue of each UDP socket that a traced thread reads from, by the
 * socket's identify_socket(). Without an sk_buff, an entry holds the channel of the last datagram.
 * For a Unix socket, the entry only says that the socket is read. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct datagram);
} heads SEC(".maps");

/* The datagram that a running call has copied, by thread. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct datagram);
} copied SEC(".maps");

/* Takes over the arrival time of a remembered datagram. If nothing else is known because the sender
 * is untraced, forgets the datagram and returns NULL. */
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

/* Identifies a datagram in the queue of a UDP socket. */
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
        DROP(TABLE_DATAGRAMS, &datagrams, &key); /* of an earlier datagram at this address */
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

/* Identifies a datagram in the queue of a Unix socket. */
static __always_inline void recognise_unix(struct sk_buff *skb, struct sock *sk, struct datagram *d)
{
    struct sock *sender = READ(sk_buff, skb, sk);
    name_unix_channels(d, sender, sk);
    set_bytes(d, READ(sk_buff, skb, len));
    u64 key = (u64)skb;
    struct datagram *sent = take_arrival(d, bpf_map_lookup_elem(&datagrams, &key));
    /* An untraced reader leaves the entry of the datagram it took, and another datagram may now be
     * at that address. */
    bool is_it = sent && (sent->channel == d->channel || !READ(sock, sender, sk_socket));
    if (is_it && sent->bytes == d->bytes && sent->object_type == d->object_type) {
        d->channel = sent->channel; /* a sender that has closed meanwhile has no inode */
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

/* The datagram that the next read of a UDP socket takes, or none. */
static __always_inline struct sk_buff *first_in(struct sock *sk)
{
    struct sk_buff *first = first_of(&((struct udp_sock *)sk)->reader_queue);
    return first ?: first_of(&sk->sk_receive_queue);
}

/* Forgets a head that a reader on another CPU took during the lookup here. The reader's call may
 * have ended before the head was stored, so that nothing else would remove it. */
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

/* Remembers which datagram the next read of a UDP socket will take, or that there is none.
 * `now_ns`: the present time if the last datagram in the queue has just arrived; else 0. */
static __always_inline void look_at_head(struct sock *sk, u64 now_ns)
{
    struct datagram d = {};
    u64 key = identify_socket(sk);
    struct datagram *known = bpf_map_lookup_elem(&heads, &key);
    u64 former = known ? *(volatile u64 *)&known->skb : 0;
    struct sk_buff *skb = first_in(sk);
    u64 address = (u64)skb;
    /* The head is unchanged, or there is still none. But another datagram may have been allocated
     * at the same address. */
    if (known && known->skb == address && !bpf_map_lookup_elem(&datagrams, &address))
        return;
    if (!skb && known) {
        /* Not if a datagram has arrived since: its interrupt has stored it here. */
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
        /* Another CPU may have identified the datagram on its arrival, and removed what was known
         * of it. */
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

/* Several datagrams may enter a queue before the arrival of the first one is reported. */
#define MOST_AT_ONCE 4

/*
 * A datagram has entered the queue of a socket that a traced thread reads. Remembers the arrival
 * time, unless the datagram has already been read. A traced sender of UDP has already remembered
 * more; a sender on a Unix socket is untraced here.
 */
static __noinline void datagram_arrived(struct sock *sk, u16 object_type)
{
    u64 last = last_of(sk, object_type), key = last, now_ns = bpf_ktime_get_ns();
    for (u32 i = 0; i < MOST_AT_ONCE && key; i++) {
        struct datagram *known = bpf_map_lookup_elem(&datagrams, &key);
        /* The entry of the last datagram may be of an earlier one at the same address. Entries of
         * UDP are checked when they are used, by their channel. */
        if (known && key != last)
            return;
        if (known && object_type == OBJECT_UDP) {
            known->arrived_ns = now_ns;
        } else {
            struct datagram d = {.skb = key, .arrived_ns = now_ns};
            PUT(TABLE_DATAGRAMS, &datagrams, &key, &d);
        }
        /* A reader on another CPU may just have taken the datagram without finding this entry. */
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

/* A reader copies a datagram, so this is the datagram that it takes. */
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
    DROP(TABLE_COPIED, &copied, &thread); /* left by a call that only peeked */
    if (state->object_type == OBJECT_UDP)
        look_at_head((struct sock *)state->sk, 0);
}

/* A datagram has been queued on a Unix socket, inside its sender's own call. */
static __noinline void unix_sent(struct task_state *state, struct sock *to)
{
    if (!state)
        return;
    struct sk_buff *skb = READ(sock, to, sk_receive_queue.prev);
    u64 key = (u64)skb, sender = (u64)READ(sk_buff, skb, sk);
    u32 bytes = READ(sk_buff, skb, len);
    /* A reader on another CPU may have taken and freed the datagram meanwhile: the fields just read
     * are valid only if it is still queued. */
    barrier();
    bool is_there = (u64)READ(sock, to, sk_receive_queue.prev) == key;
    if (key == (u64)&to->sk_receive_queue || !is_there || sender != state->sk) {
        state->receiver = (u64)to; /* already read, or another one is behind it: only count it */
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
    /* A reader on another CPU may have taken the datagram before this entry was stored, and counted
     * by itself. The next datagram at this address would be mistaken for it. */
    if ((u64)READ(sock, to, sk_receive_queue.prev) != key)
        DROP(TABLE_DATAGRAMS, &datagrams, &key);
}

/* A datagram has arrived, perhaps from an untraced sender. These functions are not inlined, to save
 * the hook's stack. */
static __noinline void datagram_came(struct sock *sk, u16 object_type)
{
    u64 key = identify_socket(sk);
    struct datagram *head = bpf_map_lookup_elem(&heads, &key);
    bool is_accepted = key || object_type != OBJECT_UNIX_DGRAM;
    if (!head && is_accepted)
        return; /* no traced thread reads it */
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

/* Kernels that have the tracepoint, from 6.3 on, have it here (commit 40e0b0908142 "net/sock:
 * Introduce trace_sk_data_ready()"). */
SEC("fentry/sock_def_readable")
int HOOK(on_sock_def_readable, struct sock *sk)
{
    return note_arrival(sk);
}

/* Finds the channels of a connected socket; false if the socket is not connected. */
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
    /* The datagram waits for an address to be resolved, or was read before it could be seen. */
    bool is_new;
    struct channel_bytes *counted = channel_state(d.channel, &is_new);
    set_bytes(&d, bytes);
    if (counted)
        number_datagram(state, &d, counted);
}

/* Finds the channels of a UDP socket that receives from one sender only. */
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
        /* The datagram was not seen in the queue: the reader took it first. */
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

/* Reads the address of the other end that a program passed to a call or requested from it; false:
 * there is none. */
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

/* The channel from an address to the running call's socket, if datagrams on it were seen. `here`:
 * only if the address is of this machine. */
static __always_inline struct flow *flow_from(struct task_state *state, u64 address, bool here)
{
    struct endpoint other = {};
    if (!read_address(address, &other) || (here && !is_loopback(&other)))
        return 0;
    struct sock *sk = (struct sock *)state->sk;
    u64 key = flow_key(&other, BPF_CORE_READ(sk, __sk_common.skc_num), namespace_of(sk));
    return bpf_map_lookup_elem(&flows, &key);
}

/* Settles the sender for a call that may have read a datagram. On one machine, the datagrams of a
 * channel are read in order. */
static __always_inline void settle_sender(struct task_state *state, u64 address, s64 bytes)
{
    struct socket_transfer *t = &state->socket;
    struct flow *flow = flow_from(state, address, false);
    if (!flow || (t->bytes && t->channel == flow->channel))
        return;
    if (t->bytes) {
        /* This call's datagram was mistaken for another one, which is still to be read. */
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

/* Settles the receiver for a call that sent a datagram without a packet being seen. A datagram to
 * another machine may leave later, when that machine's address is resolved, and is seen then. */
static __always_inline void settle_receiver(struct task_state *state, u64 address, s64 bytes)
{
    struct flow *flow = flow_from(state, address, true);
    if (!flow)
        return;
    struct datagram d = {
        .channel = flow->reverse, .reverse = flow->channel, .object_type = OBJECT_UDP};
    set_bytes(&d, bytes);
    /* The channel gets its name when its first packet is seen. */
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
        /* The datagram was read before it could be seen in the queue: struct mmsghdr,
         * include/linux/socket.h */
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
    bool was_written = t->bytes && (t->flags & SYSCALL_WRITE); /* a delayed one left meanwhile */
    if (!is_write && !was_written && !(flags & (MSG_PEEK | MSG_ERRQUEUE)))
        settle_sender(state, address, bytes);
}
