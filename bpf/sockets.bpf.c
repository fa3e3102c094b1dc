/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Bytes that traced threads move through sockets, whatever the system call: both hooks sit below
 * all of them (sock_sendmsg_nosec(), sock_recvmsg_nosec() in net/socket.c). Each direction of a
 * connection is a channel; its two ends meet by byte offset. Transfers noted here are sent with the
 * call's own record.
 */
#include "sockets.h"
#include "datagrams.h"
#include "held.h"

#define TCP_ESTABLISHED 1
#define TCP_SYN_RECV 3
#define TCP_CLOSE 7

__hidden __noinline void tell_awaited(const struct socket_transfer *t, u64 now_ns)
{
    tell_arrival(t->channel, t->object_type, t->end, t->arrived_ns, now_ns);
}

/* From now on arrivals on a channel are recorded, whether or not anything was read from it. */
static __always_inline void await_arrivals(u64 channel, const struct endpoint *from,
                                           const struct endpoint *to)
{
    bool is_new;
    channel_state(channel, &is_new);
    if (is_new)
        name_endpoints(channel, from, to, OBJECT_TCP);
}

/* Records that bytes of an untraced writer are in a TCP socket, up to that number. Only the reader
 * advances the channel's own number. */
static __always_inline void tell_tcp(u64 channel, const struct channel_bytes *counted, u32 sequence)
{
    u64 last = counted->sent, now_ns = bpf_ktime_get_ns();
    if (!counted->has_writer)
        tell_arrival(channel, OBJECT_TCP, extend_sequence(&last, sequence), now_ns, now_ns);
}

/* The answer to a connection's first request may arrive before the write of the request has ended,
 * when arrivals are not awaited yet. Unread bytes in the socket are recorded as if they had arrived
 * just now. */
static __always_inline void tell_unread(u64 channel, struct tcp_sock *tcp)
{
    struct channel_bytes *counted = bpf_map_lookup_elem(&channels, &channel);
    u32 sequence = tcp->rcv_nxt;
    if (counted && (s32)(sequence - tcp->copied_seq) > 0)
        tell_tcp(channel, counted, sequence);
}

/* Records that bytes of an untraced writer are in a Unix socket, up to number `end`. */
static __always_inline void tell_unix(u64 channel, struct channel_bytes *counted, u64 end,
                                      u64 arrived_ns, u64 now_ns)
{
    if (end <= counted->arrived)
        return;
    counted->arrived = end;
    tell_arrival(channel, OBJECT_UNIX, end, arrived_ns, now_ns);
}

/*
 * More bytes of an untraced writer have arrived. Their end is the number of received bytes plus the
 * bytes in the queue. This misses bytes that a read under way has taken out of the queue and not
 * counted yet, perhaps for as long as it waits for more (MSG_WAITALL). The sum is then less than
 * the last buffer implies, or the last buffer has been taken, too: in both cases the read records
 * the rest when it counts.
 */
static __always_inline void unix_came(u64 channel, struct channel_bytes *counted, struct sock *sk)
{
    u64 received = *(volatile u64 *)&counted->received, now_ns = bpf_ktime_get_ns();
    struct sk_buff *last = READ(sock, sk, sk_receive_queue.prev);
    bool is_there = last != (struct sk_buff *)&sk->sk_receive_queue;
    u64 expected = counted->arrived + (is_there ? READ(sk_buff, last, len) : 0);
    s64 unread = unread_of_moving((u64)sk);
    if (unread < 0)
        return;
    if (!is_there || received + unread < expected || counted->behind_ns)
        counted->behind_ns = now_ns;
    tell_unix(channel, counted, received + unread, now_ns, now_ns);
}

/* A traced thread has read from a Unix socket. As a rule, the arrival of the bytes has been
 * recorded before; this records the rest. Not inlined, to save its callers' stack. */
static __noinline void tell_rest_of_unix(u64 channel, struct channel_bytes *counted, u64 sk_address)
{
    if (!counted)
        return;
    u64 received = *(volatile u64 *)&counted->received, behind_ns = counted->behind_ns;
    s64 unread = unread_of_moving(sk_address);
    if (unread < 0)
        return;
    counted->behind_ns = 0;
    u64 now_ns = bpf_ktime_get_ns();
    if (counted->arrived)
        tell_unix(channel, counted, received + unread, behind_ns ? behind_ns : now_ns, now_ns);
    else /* it is not known when they arrived */
        counted->arrived = received + unread;
}

/* From now on arrivals at a Unix socket are recorded. */
static __always_inline struct channel_bytes *await_unix(u64 channel, struct unix_sock *from,
                                                        struct unix_sock *to)
{
    bool is_new;
    struct channel_bytes *counted = channel_state(channel, &is_new);
    if (is_new)
        name_unix(channel, from, to, OBJECT_UNIX);
    return counted;
}

/* As tell_unread(), for a Unix socket. */
static __always_inline void tell_unread_unix(u64 channel, struct channel_bytes *counted,
                                             struct sock *sk)
{
    if (!counted || counted->has_writer)
        return;
    u64 received = *(volatile u64 *)&counted->received, now_ns = bpf_ktime_get_ns();
    s64 unread = unread_of_moving((u64)sk);
    if (unread > 0 && (!received || counted->arrived))
        tell_unix(channel, counted, received + unread, now_ns, now_ns);
}

/* The functions for streams are not inlined, like those for datagrams: then their stack is not in
 * use while the thread is looked up. */
static __noinline void unix_transferred(struct task_state *state, struct sock *sk, s32 bytes,
                                        bool is_write)
{
    if (bytes <= 0)
        return;
    if (!state) { /* a traced receiver will know this sender by its number */
        if (is_write && !number_of(sk))
            bpf_get_socket_cookie(sk);
        return;
    }
    struct unix_sock *local = bpf_skc_to_unix_sock(sk);
    if (!local)
        return;
    struct sock *peer = local->peer;
    if (!peer)
        return;
    /* The peer has a number since bytes arrived there (unix_arrived()), or since it has sent some
     * itself. The number of one that is just sending its first bytes may not be there yet. */
    u64 mine = bpf_get_socket_cookie(sk), theirs = number_of(peer);
    /* The channel is named after the receiving end. */
    u64 channel = is_write ? theirs : mine;
    bool is_new;
    struct channel_bytes *counted = channel ? channel_state(channel, &is_new) : 0;
    if (!counted)
        return;
    struct unix_sock *other = (struct unix_sock *)peer;
    if (is_new) {
        name_unix(channel, is_write ? local : other, is_write ? other : local, OBJECT_UNIX);
        if (is_write)
            tell_unread_unix(mine, await_unix(mine, other, local), sk);
    }
    if (is_write && !counted->has_writer)
        counted->has_writer = 1;
    u64 before = __sync_fetch_and_add(is_write ? &counted->sent : &counted->received, (u64)bytes);
    if (!counted->has_writer)
        tell_rest_of_unix(channel, counted, (u64)sk);
    if (attaching && counted->unsettled) {
        struct channel_key key = {.number = channel};
        s64 excess = read_difference(counted), unread = unread_of_unix((u64)(is_write ? peer : sk));
        if (unread >= 0)
            narrow_excess(counted, &key, is_write, excess - unread);
    }
    struct socket_transfer moved = {
        .channel = channel,
        .reverse = is_write ? mine : theirs,
        .end = before + bytes,
        .bytes = bytes,
        .object_type = OBJECT_UNIX,
        .flags = is_write ? SYSCALL_WRITE : 0,
        .framed = look_at_frames(counted, is_write),
    };
    note_transfer(state, &moved);
}

static __noinline void tcp_transferred(struct task_state *state, struct sock *sk, s32 bytes,
                                       bool is_write)
{
    if (!state || bytes <= 0 || sk->sk_protocol != IPPROTO_TCP)
        return;
    bool is_new;
    struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
    if (!tcp)
        return;
    struct endpoint local, remote;
    u64 out, in;
    tcp_directions(sk, &local, &remote, &out, &in);
    u64 channel = is_write ? out : in;
    struct channel_bytes *counted = channel_state(channel, &is_new);
    if (!counted)
        return;
    if (is_new) {
        name_endpoints(channel, is_write ? &local : &remote, is_write ? &remote : &local,
                       OBJECT_TCP);
        await_arrivals(is_write ? in : out, is_write ? &remote : &local,
                       is_write ? &local : &remote);
        if (is_write)
            tell_unread(in, tcp);
    }
    if (is_write && !counted->has_writer)
        counted->has_writer = 1;
    unsigned long flags = sk->__sk_common.skc_flags;
    barrier();
    u32 sequence = is_write ? tcp->write_seq : read_sequence(tcp->copied_seq, tcp->rcv_nxt, flags);
    struct socket_transfer moved = {
        .channel = channel,
        .reverse = is_write ? in : out,
        .end = extend_sequence(&counted->sent, sequence),
        .bytes = bytes,
        .object_type = OBJECT_TCP,
        .flags = is_write ? SYSCALL_WRITE : 0,
        .framed = look_at_frames(counted, is_write),
    };
    note_held(sk, tcp, &moved);
    note_transfer(state, &moved);
}

static __always_inline void stream_transferred(struct task_state *state, struct sock *sk, s32 bytes,
                                               bool is_write)
{
    u16 family = sk->__sk_common.skc_family;
    if (family == AF_UNIX)
        unix_transferred(state, sk, bytes, is_write);
    else if (family == AF_INET || family == AF_INET6)
        tcp_transferred(state, sk, bytes, is_write);
}

/* Bytes that have arrived: when, and the sequence number after them (Unix: how many so far). */
struct arrived {
    u64 at_ns; /* 0: none */
    u32 sequence;
};

/* Arrivals remembered of a connection that is not accepted yet. */
#define MOST_ARRIVALS 4

/* A connection that is not accepted yet: when it was established, and what arrived before it was
 * accepted. If there are more arrivals than room, the later ones are not known. */
struct unaccepted {
    u64 established_ns;
    struct arrived arrivals[MOST_ARRIVALS];
};

/* LRU. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct unaccepted);
} unaccepted SEC(".maps");

/* What one end may have sent before the connection is established at the other end: more than the
 * sender's buffer holds. */
#define MOST_SENT_EARLY (16 << 20)

/*
 * A connection is established between ends that had another connection in this capture: a client
 * that opens one for each request uses the same port again. Its bytes are numbered after all those
 * of the earlier connection, and its framing begins anew. `sequence`: of its next byte. The end
 * that is established first does this; the other end finds the new numbers. The other end may come
 * after the first bytes (where the accept queue was full, or on a slow wire): a channel that is
 * only awaited then belongs to this connection.
 */
static __noinline void begin_anew(u64 channel, const struct endpoint *from,
                                  const struct endpoint *to, u32 sequence)
{
    struct channel_bytes *counted = bpf_map_lookup_elem(&channels, &channel);
    if (!counted || !counted->sent || (u32)counted->sent - sequence < MOST_SENT_EARLY)
        return;
    counted->sent = ((counted->sent >> 32) + 1) << 32 | sequence;
    counted->written = counted->unreadable = counted->has_writer = 0;
    counted->framed[0] = counted->framed[1] = FRAMED_ANEW;
    tell_endpoints(channel, from, to, OBJECT_TCP, true);
}

static __always_inline void note_established(const struct sock *sk)
{
    struct tcp_sock *tcp = bpf_skc_to_tcp_sock((struct sock *)sk);
    if (!tcp)
        return;
    struct endpoint local, remote;
    u64 out, in;
    tcp_directions((struct sock *)sk, &local, &remote, &out, &in);
    begin_anew(out, &local, &remote, tcp->write_seq);
    begin_anew(in, &remote, &local, tcp->rcv_nxt);
}

SEC("tp_btf/inet_sock_set_state")
int HOOK(on_inet_sock_set_state, const struct sock *sk, const int oldstate, const int newstate)
{
    u64 key = (u64)sk;
    struct tcp_sock *tcp = bpf_skc_to_tcp_sock((struct sock *)sk);
    if (tcp)
        tell_unseen((struct sock *)sk, tcp);
    if (newstate == TCP_CLOSE && sockets_holding)
        let_go(key);
    if (newstate != TCP_ESTABLISHED)
        return 0;
    note_established(sk);
    if (oldstate != TCP_SYN_RECV)
        return 0;
    struct unaccepted new = {.established_ns = bpf_ktime_get_ns()};
    PUT(TABLE_UNACCEPTED, &unaccepted, &key, &new);
    return 0;
}

/* Notes bytes that arrived before their connection was accepted. */
static __always_inline void arrived_early(struct unaccepted *new, u32 sequence)
{
    for (u32 i = 0; i < MOST_ARRIVALS; i++) {
        if (new->arrivals[i].at_ns)
            continue;
        new->arrivals[i] = (struct arrived){.at_ns = bpf_ktime_get_ns(), .sequence = sequence};
        break;
    }
}

/*
 * Bytes have arrived at a TCP socket (tcp_data_ready(), net/ipv4/tcp_input.c). For bytes that a
 * traced thread has written, the times of sending and receiving are known. For others, only this
 * hook tells how long they lay there before they were read. Bytes that arrive while a call has
 * locked the socket are noticed when the call releases it (tcp_release_cb() and the backlog).
 */
__hidden __noinline void bytes_arrived(struct sock *sk)
{
    struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
    if (!tcp)
        return;
    struct endpoint local, remote;
    u64 out, in;
    tcp_directions(sk, &local, &remote, &out, &in);
    u32 sequence = tcp->rcv_nxt;
    struct channel_bytes *counted = bpf_map_lookup_elem(&channels, &in);
    if (counted) {
        tell_tcp(in, counted, sequence);
        return;
    }
    u64 key = (u64)sk;
    struct unaccepted *new = bpf_map_lookup_elem(&unaccepted, &key);
    if (new)
        arrived_early(new, sequence);
}

/* Key of a Unix connection that a traced thread has accepted before any bytes arrived: by its inode
 * number. A connection whose bytes arrived first has a key by its cookie. */
#define AWAITED(ino) (1ULL << 62 | (ino))

/*
 * Bytes have arrived at a Unix stream socket, in their writer's own call (unix_stream_sendmsg(),
 * net/unix/af_unix.c). Sockets that no traced thread has used have no number yet.
 */
__hidden __noinline void unix_arrived(struct sock *sk)
{
    u64 channel = sk->__sk_common.skc_cookie.counter;
    bool first = !channel;
    if (first)
        channel = bpf_get_socket_cookie(sk);
    struct channel_bytes *counted = bpf_map_lookup_elem(&channels, &channel);
    bool is_accepted = READ(sock, sk, sk_socket) != 0;
    if (!counted && is_accepted) {
        if (!first)
            return; /* no traced thread reads it */
        u64 key = AWAITED(identify_socket(sk));
        if (!bpf_map_lookup_elem(&unaccepted, &key))
            return;
        DROP(TABLE_UNACCEPTED, &unaccepted, &key);
        struct sock *peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
        counted = await_unix(channel, (struct unix_sock *)peer, (struct unix_sock *)sk);
    }
    if (counted) {
        if (!counted->has_writer)
            unix_came(channel, counted, sk);
        return;
    }
    if (is_accepted)
        return;
    if (first) {
        struct unaccepted none = {};
        PUT(TABLE_UNACCEPTED, &unaccepted, &channel, &none);
    }
    struct unaccepted *new = bpf_map_lookup_elem(&unaccepted, &channel);
    s64 unread = unread_of_moving((u64)sk);
    if (new && unread > 0)
        arrived_early(new, unread);
}

/* A traced thread has accepted a Unix connection. */
__hidden __noinline void accepted_unix(u64 sk_address, u64 ino)
{
    struct sock *sk = (struct sock *)sk_address;
    u64 key = AWAITED(ino);
    if (!BPF_CORE_READ(sk, __sk_common.skc_cookie.counter)) {
        struct unaccepted none = {};
        PUT(TABLE_UNACCEPTED, &unaccepted, &key, &none);
    }
    u64 channel = BPF_CORE_READ(sk, __sk_common.skc_cookie.counter);
    if (!channel)
        return;
    DROP(TABLE_UNACCEPTED, &unaccepted, &key);
    struct sock *peer = BPF_CORE_READ((struct unix_sock *)sk, peer);
    struct channel_bytes *counted =
        await_unix(channel, (struct unix_sock *)peer, (struct unix_sock *)sk);
    struct unaccepted *new = bpf_map_lookup_elem(&unaccepted, &channel);
    if (!counted || counted->has_writer)
        return;
    u64 now_ns = bpf_ktime_get_ns();
    if (!new) {
        /* Bytes arrived while the connection was being accepted. */
        s64 unread = unread_of_moving((u64)sk);
        if (unread > 0)
            tell_unix(channel, counted, unread, now_ns, now_ns);
        return;
    }
    for (u32 i = 0; i < MOST_ARRIVALS; i++) {
        struct arrived arrived = new->arrivals[i];
        if (!arrived.at_ns)
            break;
        counted->arrived = arrived.sequence;
        tell_arrival(channel, OBJECT_UNIX, arrived.sequence, arrived.at_ns, now_ns);
    }
    DROP(TABLE_UNACCEPTED, &unaccepted, &channel);
}

/* A traced thread has accepted a connection. Returns when it was established, or 0. */
__hidden __noinline u64 take_unaccepted(u64 sk_address)
{
    struct sock *sk = (struct sock *)sk_address;
    if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_TCP)
        return 0;
    struct endpoint local, remote;
    read_ends(sk, &local, &remote);
    u64 namespace = is_loopback(&remote) ? BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) : 0;
    u64 in = number_direction(&remote, &local, namespace);
    await_arrivals(in, &remote, &local);
    struct unaccepted *new = bpf_map_lookup_elem(&unaccepted, &sk_address);
    if (!new)
        return 0;
    u64 established_ns = new->established_ns, now_ns = bpf_ktime_get_ns();
    u64 numbered = 0;
    for (u32 i = 0; i < MOST_ARRIVALS; i++) {
        struct arrived arrived = new->arrivals[i];
        if (!arrived.at_ns)
            break;
        tell_arrival(in, OBJECT_TCP, extend_sequence(&numbered, arrived.sequence), arrived.at_ns,
                     now_ns);
    }
    DROP(TABLE_UNACCEPTED, &unaccepted, &sk_address);
    return established_ns;
}

/* What is known of the running thread if it is in a call; NULL: it is not traced, or in no call. */
static __always_inline struct task_state *in_call(void)
{
    struct task_state *state = traced_current();
    if (!state)
        return 0;
    ensure_call_known(state);
    return state->enter_ns ? state : 0;
}

static __always_inline int note_sent(struct sock *sk, int ret, int flags)
{
    struct task_state *state = in_call();
    if (sk->sk_type == SOCK_STREAM)
        stream_transferred(state, sk, ret, true);
    else if (state)
        datagram_sent(state, sk, ret, flags);
    return 0;
}

static __always_inline int note_received(struct sock *sk, int ret, int flags)
{
    if (flags & (MSG_PEEK | MSG_ERRQUEUE))
        return 0;
    struct task_state *state = in_call();
    if (!state)
        return 0;
    if (sk->sk_type == SOCK_STREAM)
        stream_transferred(state, sk, ret, false);
    else
        datagram_received(state, sk, ret);
    return 0;
}

SEC("tp_btf/sock_send_length")
int HOOK(on_sock_send_length, struct sock *sk, int ret, int flags)
{
    return note_sent(sk, ret, flags);
}

SEC("tp_btf/sock_recv_length")
int HOOK(on_sock_recv_length, struct sock *sk, int ret, int flags)
{
    return note_received(sk, ret, flags);
}

/*
 * Kernels before 6.3 do not have these tracepoints (commit 6e6eda44b939 "sock: add tracepoint for
 * send recv length"). The same data is there at the exits of the functions that the tracepoints
 * follow: those by which a protocol family sends and receives (struct proto_ops,
 * include/linux/net.h).
 */
#define SENDS(function)                                                                            \
    SEC("fexit/" #function)                                                                        \
    int HOOK(on_##function, struct socket *socket, struct msghdr *message, unsigned long bytes,    \
             int ret)                                                                              \
    {                                                                                              \
        return note_sent(socket->sk, ret, message->msg_flags);                                     \
    }

#define RECEIVES(function)                                                                         \
    SEC("fexit/" #function)                                                                        \
    int HOOK(on_##function, struct socket *socket, struct msghdr *message, unsigned long bytes,    \
             int flags, int ret)                                                                   \
    {                                                                                              \
        return note_received(socket->sk, ret, flags);                                              \
    }

SENDS(inet_sendmsg)
SENDS(inet6_sendmsg)
SENDS(unix_stream_sendmsg)
SENDS(unix_dgram_sendmsg) /* also those of SOCK_SEQPACKET */

/* What sendfile() and splice() put into a socket, in kernels before 6.5 (commit 2dc334f1a63a
 * "splice, net: Use sendmsg(MSG_SPLICE_PAGES) rather than ->sendpage()"). */
#define SENDS_PAGE(function)                                                                       \
    SEC("fexit/" #function)                                                                        \
    int HOOK(on_##function, struct socket *socket, void *page, int offset, unsigned long bytes,    \
             int flags, int ret)                                                                   \
    {                                                                                              \
        return note_sent(socket->sk, ret, flags);                                                  \
    }

SENDS_PAGE(inet_sendpage)
SENDS_PAGE(unix_stream_sendpage)

RECEIVES(inet_recvmsg)
RECEIVES(inet6_recvmsg)
RECEIVES(unix_stream_recvmsg)

/* Both kinds of Unix sockets that keep messages apart receive through this function; its callers
 * may be inlined. */
SEC("fexit/__unix_dgram_recvmsg")
int HOOK(on_unix_dgram_recvmsg, struct sock *sk, struct msghdr *message, unsigned long bytes,
         int flags, int ret)
{
    return note_received(sk, ret, flags);
}
