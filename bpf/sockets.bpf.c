/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Bytes that traced threads move through stream sockets, whatever the system call: both hooks sit
 * below all of them (sock_sendmsg_nosec(), sock_recvmsg_nosec() in net/socket.c). Each direction
 * of a connection is a channel; its two ends meet by byte offset. What is noted here goes out
 * with the call's own record.
 */
#include "probe.h"

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define SOCK_STREAM 1
#define IPPROTO_TCP 6
#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000

/* Where a channel stands. Unix sockets count bytes as pipes do; TCP numbers them itself, and all
 * that is kept is the last number, to extend the 32 bits of the next. Least recently used. */
struct channel_bytes {
    u64 sent;
    u64 received;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 65536);
    __type(key, u64);
    __type(value, struct channel_bytes);
} channels SEC(".maps");

/* An end of a TCP connection. */
struct endpoint {
    u64 address[2]; /* IPv4: as ::ffff:a.b.c.d */
    u64 port;
};

static __always_inline u64 mix(u64 hash, u64 word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ (hash >> 32);
}

/* The same number at both ends, also across network namespaces, but for the addresses every
 * namespace has of its own. */
static __always_inline u64 direction(const struct endpoint *from, const struct endpoint *to,
                                     u64 namespace)
{
    u64 hash = mix(namespace, from->address[0]);
    hash = mix(hash, from->address[1]);
    hash = mix(hash, to->address[0]);
    hash = mix(hash, to->address[1]);
    return mix(hash, from->port << 16 | to->port);
}

static __always_inline u64 mapped(u32 address)
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
    local->port = sk->__sk_common.skc_num;
    remote->port = __builtin_bswap16(sk->__sk_common.skc_dport);
    local->address[0] = remote->address[0] = 0;
    local->address[1] = mapped(sk->__sk_common.skc_rcv_saddr);
    remote->address[1] = mapped(sk->__sk_common.skc_daddr);
    if (sk->__sk_common.skc_family != AF_INET6)
        return;
    u64 words[2];
    BPF_CORE_READ_INTO(&words, sk, __sk_common.skc_v6_daddr);
    if (words[0] == 0 && (u32)words[1] == 0xffff0000)
        return; /* IPv4 through a socket for both */
    remote->address[0] = words[0];
    remote->address[1] = words[1];
    BPF_CORE_READ_INTO(&words, sk, __sk_common.skc_v6_rcv_saddr);
    local->address[0] = words[0];
    local->address[1] = words[1];
}

static __always_inline void name_tcp(u64 channel, const struct endpoint *from,
                                     const struct endpoint *to)
{
    u64 now_ns = bpf_ktime_get_ns();
    emit (rec_channel, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .kind = REC_CHANNEL};
        r->channel = channel;
        __builtin_memcpy(r->from, from->address, sizeof(r->from));
        __builtin_memcpy(r->to, to->address, sizeof(r->to));
        r->from_port = from->port;
        r->to_port = to->port;
        r->pad = 0;
    }
}

static __always_inline void name_unix(u64 channel, struct unix_sock *from, struct unix_sock *to)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct rec_unix_channel r = {
        .hdr = {.ts_ns = now_ns, .kind = REC_UNIX_CHANNEL},
        .channel = channel,
    };
    /* The end that listened has a name; who connects seldom has. */
    struct unix_address *address = BPF_CORE_READ(to, addr);
    if (!address)
        address = BPF_CORE_READ(from, addr);
    u32 bytes = 0;
    if (address && keep_paths) {
        s32 length = BPF_CORE_READ(address, len) - (s32)sizeof(u16);
        if (length > 0 && length <= UNIX_NAME_BYTES) {
            bytes = length;
            if (bpf_probe_read_kernel(r.path, bytes, address->name[0].sun_path) != 0)
                bytes = 0;
        }
    }
    r.path_bytes = bytes;
    if (bytes <= UNIX_NAME_BYTES)
        output(&r, __builtin_offsetof(struct rec_unix_channel, path) + bytes, now_ns);
}

/* The object type of a socket's file. */
static __always_inline u16 socket_type(struct file *file)
{
    struct socket *socket = BPF_CORE_READ(file, private_data);
    struct sock *sk = BPF_CORE_READ(socket, sk);
    u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
    if (BPF_CORE_READ(sk, sk_type) != SOCK_STREAM)
        return OBJECT_SOCKET;
    if (family == AF_UNIX)
        return OBJECT_UNIX;
    bool internet = family == AF_INET || family == AF_INET6;
    return internet && BPF_CORE_READ(sk, sk_protocol) == IPPROTO_TCP ? OBJECT_TCP : OBJECT_SOCKET;
}

/* The state of a channel; tells its name when it is new here. */
static __always_inline struct channel_bytes *channel_state(u64 channel, bool *is_new)
{
    *is_new = false;
    struct channel_bytes *bytes = bpf_map_lookup_elem(&channels, &channel);
    if (bytes)
        return bytes;
    struct channel_bytes none = {};
    *is_new = bpf_map_update_elem(&channels, &channel, &none, BPF_NOEXIST) == 0;
    return bpf_map_lookup_elem(&channels, &channel);
}

/* 64 bits of a sequence number: those nearest to the last one seen on the channel. */
static __always_inline u64 extend(u64 *last, u32 sequence)
{
    u64 known = *last;
    u64 extended = known ? known + (s64)(s32)(sequence - (u32)known) : (1ULL << 32 | sequence);
    *last = extended;
    return extended;
}

/* Notes a transfer of the running call. More of the same channel, in a call that moves several
 * messages, lengthens it. */
static __always_inline void note(struct task_state *state, u64 channel, u64 reverse, u64 end,
                                 u32 bytes, u16 object_type, bool is_write)
{
    struct socket_transfer *t = &state->socket;
    if (t->bytes && t->channel == channel && t->is_write == is_write && t->end + bytes == end) {
        t->bytes += bytes;
        t->end = end;
        return;
    }
    t->channel = channel;
    t->reverse = reverse;
    t->end = end;
    t->bytes = bytes;
    t->object_type = object_type;
    t->is_write = is_write;
}

static __always_inline void transferred(struct sock *sk, s32 bytes, bool is_write)
{
    struct task_state *state = traced_current();
    if (!state || !state->enter_ns || bytes <= 0 || sk->sk_type != SOCK_STREAM)
        return;
    u16 family = sk->__sk_common.skc_family;
    bool is_new;
    if (family == AF_UNIX) {
        struct unix_sock *local = bpf_skc_to_unix_sock(sk);
        if (!local)
            return;
        struct sock *peer = local->peer;
        if (!peer)
            return;
        u64 mine = bpf_get_socket_cookie(sk), theirs = bpf_get_socket_cookie(peer);
        /* Named by the end that receives. */
        u64 channel = is_write ? theirs : mine;
        struct channel_bytes *counted = channel_state(channel, &is_new);
        if (!counted)
            return;
        if (is_new) {
            struct unix_sock *other = (struct unix_sock *)peer;
            name_unix(channel, is_write ? local : other, is_write ? other : local);
        }
        u64 *end = is_write ? &counted->sent : &counted->received;
        u64 before = __sync_fetch_and_add(end, (u64)bytes);
        note(state, channel, is_write ? mine : theirs, before + bytes, bytes, OBJECT_UNIX,
             is_write);
        return;
    }
    if ((family != AF_INET && family != AF_INET6) || sk->sk_protocol != IPPROTO_TCP)
        return;
    struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
    if (!tcp)
        return;
    struct endpoint local, remote;
    tcp_ends(sk, &local, &remote);
    u64 namespace = is_loopback(&remote) ? BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) : 0;
    u64 out = direction(&local, &remote, namespace);
    u64 in = direction(&remote, &local, namespace);
    u64 channel = is_write ? out : in;
    struct channel_bytes *counted = channel_state(channel, &is_new);
    if (!counted)
        return;
    if (is_new)
        name_tcp(channel, is_write ? &local : &remote, is_write ? &remote : &local);
    u64 end = extend(&counted->sent, is_write ? tcp->write_seq : tcp->copied_seq);
    note(state, channel, is_write ? in : out, end, bytes, OBJECT_TCP, is_write);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(on_sock_send_length, struct sock *sk, int ret, int flags)
{
    transferred(sk, ret, true);
    return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(on_sock_recv_length, struct sock *sk, int ret, int flags)
{
    if (!(flags & (MSG_PEEK | MSG_ERRQUEUE)))
        transferred(sk, ret, false);
    return 0;
}
