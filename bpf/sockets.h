/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declarations shared by several files: the names of channels, and the records of transfers and
 * arrivals. */
#pragma once
#include "channels.h"

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define SOCK_DGRAM 2
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define TCP_LISTEN 10 /* include/net/tcp_states.h */
#define SOCK_DONE 1   /* enum sock_flags: the other end has sent all it will */
#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000

/* An end of a TCP connection or UDP channel. */
struct endpoint {
    u64 address[2]; /* IPv4: as ::ffff:a.b.c.d */
    u64 port;
};

static __always_inline u64 mix_hash(u64 hash, u64 word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ (hash >> 32);
}

/* The number of a channel. One bit is left out, so that it cannot look like an address of the
 * kernel. */
static __always_inline u64 channel_number(u64 hash)
{
    return hash >> 1;
}

/* Numbers a direction: the number is the same at both ends, also across network namespaces, except
 * for the addresses that every namespace has of its own. */
static __always_inline u64 number_direction(const struct endpoint *from, const struct endpoint *to,
                                            u64 namespace)
{
    u64 hash = mix_hash(namespace, from->address[0]);
    hash = mix_hash(hash, from->address[1]);
    hash = mix_hash(hash, to->address[0]);
    hash = mix_hash(hash, to->address[1]);
    return channel_number(mix_hash(hash, from->port << 16 | to->port));
}

static __always_inline u64 map_ipv4(u32 address)
{
    return (u64)address << 32 | 0xffff0000; /* in memory: 0, 0, 0xff, 0xff, then the address */
}

static __always_inline bool is_loopback(const struct endpoint *end)
{
    u64 low = end->address[1];
    if (end->address[0])
        return false;
    return low == 1ULL << 56 || ((u32)low == 0xffff0000 && ((low >> 32) & 0xff) == 127);
}

static __always_inline void tcp_ends(struct sock *sk, struct endpoint *local,
                                     struct endpoint *remote)
{
    /* inet_sport, because a connection that was reset has released its port in skc_num, but earlier
     * bytes can still be read. */
    u16 port = READ(inet_sock, sk, inet_sport);
    local->port = __builtin_bswap16(port);
    remote->port = __builtin_bswap16(sk->__sk_common.skc_dport);
    local->address[0] = remote->address[0] = 0;
    local->address[1] = map_ipv4(sk->__sk_common.skc_rcv_saddr);
    remote->address[1] = map_ipv4(sk->__sk_common.skc_daddr);
    if (sk->__sk_common.skc_family != AF_INET6)
        return;
    u64 words[2];
    BPF_CORE_READ_INTO(&words, sk, __sk_common.skc_v6_daddr);
    if (words[0] == 0 && (u32)words[1] == 0xffff0000)
        return; /* IPv4 through a socket for both versions */
    remote->address[0] = words[0];
    remote->address[1] = words[1];
    BPF_CORE_READ_INTO(&words, sk, __sk_common.skc_v6_rcv_saddr);
    local->address[0] = words[0];
    local->address[1] = words[1];
}

static __always_inline u32 namespace_of(struct sock *sk)
{
    struct net *net = READ(sock, sk, __sk_common.skc_net.net);
    return READ(net, net, ns.inum);
}

/* The two channels of a connection, and its ends. */
static __always_inline void tcp_directions(struct sock *sk, struct endpoint *local,
                                           struct endpoint *remote, u64 *out, u64 *in)
{
    tcp_ends(sk, local, remote);
    u64 namespace = is_loopback(remote) ? namespace_of(sk) : 0;
    *out = number_direction(local, remote, namespace);
    *in = number_direction(remote, local, namespace);
}

/* As tcp_ends(), for a pointer that is unknown to the verifier. */
static __always_inline void read_ends(struct sock *sk, struct endpoint *local,
                                      struct endpoint *remote)
{
    local->port = BPF_CORE_READ(sk, __sk_common.skc_num);
    remote->port = __builtin_bswap16(BPF_CORE_READ(sk, __sk_common.skc_dport));
    local->address[0] = remote->address[0] = 0;
    local->address[1] = map_ipv4(BPF_CORE_READ(sk, __sk_common.skc_rcv_saddr));
    remote->address[1] = map_ipv4(BPF_CORE_READ(sk, __sk_common.skc_daddr));
    u64 words[2];
    BPF_CORE_READ_INTO(&words, sk, __sk_common.skc_v6_daddr);
    if (BPF_CORE_READ(sk, __sk_common.skc_family) != AF_INET6 ||
        (words[0] == 0 && (u32)words[1] == 0xffff0000))
        return;
    remote->address[0] = words[0];
    remote->address[1] = words[1];
    BPF_CORE_READ_INTO(&words, sk, __sk_common.skc_v6_rcv_saddr);
    local->address[0] = words[0];
    local->address[1] = words[1];
}

static __always_inline void tell_endpoints(u64 channel, const struct endpoint *from,
                                           const struct endpoint *to, u16 object_type, bool is_anew)
{
    u64 now_ns = bpf_ktime_get_ns();
    emit (rec_channel, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .kind = REC_CHANNEL};
        r->channel = channel;
        __builtin_memcpy(r->from, from->address, sizeof(r->from));
        __builtin_memcpy(r->to, to->address, sizeof(r->to));
        r->from_port = from->port;
        r->to_port = to->port;
        r->object_type = object_type;
        r->is_anew = is_anew;
    }
}

static __always_inline void name_endpoints(u64 channel, const struct endpoint *from,
                                           const struct endpoint *to, u16 object_type)
{
    tell_endpoints(channel, from, to, object_type, false);
}

/*
 * The number of a Unix socket, its cookie; 0: nobody has asked for it yet (sock_gen_cookie(),
 * net/core/sock_diag.c). bpf_get_socket_cookie() would give it one, but some kernels' verifiers
 * refuse a socket that a program has read from another structure ("R1 type=untrusted_ptr_").
 */
static __always_inline u64 number_of(struct sock *sk)
{
    return sk->__sk_common.skc_cookie.counter;
}

static __always_inline void name_unix(u64 channel, struct unix_sock *from, struct unix_sock *to,
                                      u16 object_type)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct rec_unix_channel r = {
        .hdr = {.ts_ns = now_ns, .kind = REC_UNIX_CHANNEL},
        .channel = channel,
        .object_type = object_type,
    };
    /* The listening end has a name; the connecting end seldom has one. */
    struct unix_address *address = BPF_CORE_READ(to, addr);
    if (!address)
        address = BPF_CORE_READ(from, addr);
    u32 bytes = 0;
    if (address && keep_paths) {
        s32 length = BPF_CORE_READ(address, len) - (s32)sizeof(u16);
        bytes = length;
        /* A single comparison: else the verifier sees that of a copy. */
        barrier_var(bytes);
        if (bytes > UNIX_NAME_BYTES)
            bytes = 0;
        barrier_var(bytes);
        if (bytes && bpf_probe_read_kernel(r.path, bytes, address->name[0].sun_path) != 0)
            bytes = 0;
    }
    r.path_bytes = bytes;
    if (bytes <= UNIX_NAME_BYTES)
        output_record(&r, __builtin_offsetof(struct rec_unix_channel, path) + bytes, now_ns);
}

/* The object type of a socket. */
static __always_inline u16 socket_type(struct sock *sk)
{
    u16 family = READ(sock, sk, __sk_common.skc_family);
    u16 type = READ(sock, sk, sk_type), protocol = READ(sock, sk, sk_protocol);
    if (family == AF_UNIX)
        return type == SOCK_STREAM ? OBJECT_UNIX : OBJECT_UNIX_DGRAM;
    if (family != AF_INET && family != AF_INET6)
        return OBJECT_SOCKET;
    if (type == SOCK_STREAM && protocol == IPPROTO_TCP)
        return OBJECT_TCP;
    return type == SOCK_DGRAM && protocol == IPPROTO_UDP ? OBJECT_UDP : OBJECT_SOCKET;
}

/* Returns the state of a channel, which is created if there is none. `is_new`: it was created. */
static __always_inline struct channel_bytes *channel_state(u64 channel, bool *is_new)
{
    *is_new = false;
    struct channel_bytes *bytes = bpf_map_lookup_elem(&channels, &channel);
    if (bytes)
        return bytes;
    struct channel_bytes none = {};
    *is_new = ADD(TABLE_CHANNELS, &channels, &channel, &none) == 0;
    return bpf_map_lookup_elem(&channels, &channel);
}

/* Extends a sequence number to 64 bits: the result nearest to the last number seen on the
 * channel. */
static __always_inline u64 extend_sequence(u64 *last, u32 sequence)
{
    u64 known = *last;
    u64 extended = known + (s64)(s32)(sequence - (u32)known);
    if (!known || (s64)extended <= 0)
        extended = 1ULL << 32 | sequence;
    *last = extended;
    return extended;
}

static __always_inline enum look look_at_frames(struct channel_bytes *counted, bool is_write)
{
    if (!is_write && counted->written)
        return LOOK_AWAY;
    if (counted->unreadable & (1U << !is_write))
        return LOOK_AWAY;
    u16 *framed = is_write ? &counted->framed[0] : &counted->framed[1];
    if (*framed != FRAMED_ANEW)
        return LOOK;
    *framed = 0;
    return LOOK_ANEW;
}

static __always_inline void tell_arrival(u64 channel, u16 object_type, u64 end, u64 arrived_ns,
                                         u64 now_ns)
{
    emit (rec_arrival, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .kind = REC_ARRIVAL, .aux = object_type};
        r->channel = channel;
        r->end = end;
        r->arrived_ns = arrived_ns;
    }
}

/* Records since when the bytes that a call has read were there. To be called before the read is
 * recorded. */
__hidden void tell_awaited(const struct socket_transfer *t, u64 now_ns);

/* Records a transfer that is followed by another one of the same call. */
static __always_inline void tell_transfer(struct task_state *state)
{
    const struct socket_transfer *t = &state->socket;
    u64 now_ns = bpf_ktime_get_ns();
    if (t->arrived_ns)
        tell_awaited(t, now_ns);
    emit (rec_transfer, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns,
            .tid = (u32)bpf_get_current_pid_tgid(),
            .kind = REC_TRANSFER,
            .flags = t->flags,
        };
        r->channel = t->channel;
        r->reverse = t->reverse;
        r->end = t->end;
        r->bytes = t->bytes;
        r->dev = 0;
        r->fd = state->fd;
        r->object_type = t->object_type;
        r->held = t->held;
    }
}

/* Number of the first unread byte. The end of the stream takes a number, too, which a read may have
 * passed. It may arrive right now, on another CPU, which counts it before it sets the flag. So
 * `flags` must have been read before the numbers. */
static __always_inline u32 read_sequence(u32 copied, u32 next, unsigned long flags)
{
    return copied == next && (flags & 1 << SOCK_DONE) ? copied - 1 : copied;
}

/* Notes a transfer of the running call. In a call that moves several messages, more bytes of the
 * same stream extend the transfer. */
static __always_inline void note_transfer(struct task_state *state,
                                          const struct socket_transfer *new)
{
    struct socket_transfer *t = &state->socket;
    bool stream = new->object_type == OBJECT_TCP || new->object_type == OBJECT_UNIX;
    if (t->bytes && stream && t->channel == new->channel && t->flags == new->flags &&
        t->end + new->bytes == new->end) {
        t->bytes += new->bytes;
        t->end = new->end;
        t->framed = new->framed;
        t->held = new->held;
        return;
    }
    if (t->bytes)
        tell_transfer(state);
    *t = *new;
}

/* Identifies a socket by its inode number, as the next socket may be at the same address. */
static __always_inline u64 identify_socket(struct sock *sk)
{
    struct socket *file = READ(sock, sk, sk_socket);
    return file ? READ(socket_alloc, file, vfs_inode.i_ino) : 0; /* 0: closed since it sent */
}

/* Determines which bytes a splice took out of a stream socket: no hook reports that. */
static __always_inline bool spliced_from_socket(struct sock *sk, struct socket_transfer *t)
{
    bool is_new;
    if (t->object_type == OBJECT_UNIX) {
        struct sock *peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
        t->channel = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
        t->reverse = BPF_CORE_READ(peer, __sk_common.skc_cookie.counter);
        if (!t->channel || !t->reverse)
            return false; /* no traced thread has used it so far */
        struct channel_bytes *counted = channel_state(t->channel, &is_new);
        if (!counted)
            return false;
        t->end = __sync_fetch_and_add(&counted->received, (u64)t->bytes) + t->bytes;
        return true;
    }
    if (t->object_type != OBJECT_TCP)
        return false;
    struct endpoint local, remote;
    read_ends(sk, &local, &remote);
    u64 namespace = is_loopback(&remote) ? BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) : 0;
    t->channel = number_direction(&remote, &local, namespace);
    t->reverse = number_direction(&local, &remote, namespace);
    struct channel_bytes *counted = channel_state(t->channel, &is_new);
    if (!counted)
        return false;
    if (is_new)
        name_endpoints(t->channel, &remote, &local, OBJECT_TCP);
    struct tcp_sock *tcp = (struct tcp_sock *)sk;
    unsigned long flags = BPF_CORE_READ(sk, __sk_common.skc_flags);
    t->end = extend_sequence(&counted->sent, read_sequence(BPF_CORE_READ(tcp, copied_seq),
                                                           BPF_CORE_READ(tcp, rcv_nxt), flags));
    return true;
}

/* Bytes have arrived at a TCP socket. */
__hidden void bytes_arrived(struct sock *sk);

/* Bytes have arrived at a Unix stream socket. */
__hidden void unix_arrived(struct sock *sk);

/* A traced thread has accepted a connection. Returns when it was established, or 0. */
__hidden u64 take_unaccepted(u64 sk_address);

/* A traced thread has accepted a Unix connection. */
__hidden void accepted_unix(u64 sk_address, u64 ino);
