/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Attaching to running programs: iterators that user space runs on one process at a time. They mark
 * its threads and record what is in progress at that moment. None of this runs while a capture is
 * taken.
 */
#include "datagrams.h"
#include "syscall_numbers.h"
#include "syscalls.h"

#define TASK_ASLEEP 3 /* TASK_INTERRUPTIBLE, TASK_UNINTERRUPTIBLE; include/linux/sched.h */

/* The system call that a sleeping thread is in. Static, because the stack has no room for it; only
 * one iterator runs at a time. */
static struct task_state call_of_sleeper;

/*
 * Marks a thread as traced and records that. For a sleeping thread, the record includes the call in
 * which it sleeps, because no other record reports a sleep that began earlier. Writes the thread's
 * number if the mark is new: once a pass over all threads writes nothing, every thread born from
 * then on inherits the mark.
 */
SEC("iter/task")
int mark(struct bpf_iter__task *ctx)
{
    struct task_struct *task = ctx->task;
    if (!task)
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    struct task_state *state = traced_state(task);
    u32 tid = task->pid;
    bool is_new = !state;
    if (is_new) {
        state = begin_tracing(task, NR_UNSEEN, now_ns);
        bpf_seq_write(ctx->meta->seq, &tid, sizeof(tid));
        if (!state) {
            note_loss(now_ns);
            return 0;
        }
    }
    bool is_asleep = !task->on_cpu && (task->__state & TASK_ASLEEP);
    if (!is_new && (!is_asleep || state->nr != NR_UNSEEN || state->sleep_told))
        return 0;
    struct task_state *call = &call_of_sleeper;
    __builtin_memset(call, 0, sizeof(*call));
    call->fd = -1;
    u8 flags = 0;
    if (is_asleep) {
        /* Another CPU may wake the thread meanwhile. Only the thread itself may change its state,
         * so this is a copy. */
        struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
        long nr = CALL_NUMBER(regs);
        state->sleep_told = 1;
        flags = MARKED_ASLEEP;
        if (nr >= 0) {
            flags |= MARKED_IN_SYSCALL;
            describe_sleeper(call, task, regs, nr);
        }
    }
    emit (rec_marked, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns, .tid = tid, .kind = REC_MARKED, .flags = flags, .aux = task->__state};
        r->tgid = task->tgid;
        r->nr = call->nr;
        r->object_type = call->object_type;
        r->enter_ns = state->enter_ns;
        r->ino = call->fd < 0 && call->nr != NR_futex ? 0 : call->ino;
        r->dev = call->dev;
        r->fd = call->fd;
    }
    return 0;
}

/* Local ports with a listening socket, by network namespace. */
struct port_key {
    u32 namespace;
    u32 port;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 65536);
    __type(key, struct port_key);
    __type(value, u32);
} listening SEC(".maps");

static __always_inline void tell_role(u64 asked, u64 answer, u16 object_type)
{
    u64 now_ns = bpf_ktime_get_ns();
    emit (rec_role, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .kind = REC_ROLE};
        r->asked = asked;
        r->answer = answer;
        r->dev = 0;
        r->object_type = object_type;
        r->pad = 0;
    }
}

/* Notes that a process has this end of the channel open. */
static __always_inline void note_end(u32 *end, u32 tgid)
{
    if (*end != tgid)
        *end = *end ? SEVERAL : tgid;
}

/* Starts counting a channel that is older than the capture. `is_new`: it was not counted before. */
static __always_inline struct mid_life *mid_life_of(struct channel_key *key, void *counts,
                                                    void *counts_key, bool *is_new)
{
    struct channel_bytes bytes = {
        .sent = UNSETTLED_SENT, .received = UNSETTLED_RECEIVED, .unsettled = 1};
    struct mid_life life = {.least = LEAST_EXCESS, .most = MOST_EXCESS};
    *is_new = false;
    struct mid_life *known = bpf_map_lookup_elem(&mid_lives, key);
    if (known || bpf_map_lookup_elem(counts, counts_key))
        return known; /* NULL: created after the capture began */
    if (ADD(TABLE_OLD_CHANNELS, &mid_lives, key, &life) != 0)
        return 0;
    *is_new = count_made(counts == &pipes ? TABLE_PIPES : TABLE_CHANNELS,
                         bpf_map_update_elem(counts, counts_key, &bytes, BPF_NOEXIST)) == 0;
    return bpf_map_lookup_elem(&mid_lives, key);
}

/* Examines the unread bytes of a channel. If nothing has moved since the last look, no call under
 * way was about to count earlier bytes, so the counts can be settled. */
static __always_inline void look_at_channel(struct mid_life *life, struct channel_bytes *bytes,
                                            s64 excess, s64 unread)
{
    u64 moved = bytes->sent + bytes->received;
    if (unread < 0)
        return;
    excess -= unread;
    if (life->looked && life->moved == moved && life->excess == excess)
        settle_channel(bytes, life, excess);
    life->looked = 1;
    life->moved = moved;
    life->excess = excess;
}

static __always_inline void learn_pipe(struct file *file, struct inode *inode, u32 tgid, u32 fd)
{
    struct channel_key key = {.number = inode->i_ino, .dev = inode->i_sb->s_dev};
    bool is_new;
    struct mid_life *life = mid_life_of(&key, &pipes, &key, &is_new);
    if (!life)
        return;
    if (file->f_mode & FMODE_READ) {
        note_end(&life->reader, tgid);
        life->on_stdin |= fd == 0;
    }
    if (file->f_mode & FMODE_WRITE) {
        note_end(&life->writer, tgid);
        life->on_stdout |= fd == 1;
    }
}

static __always_inline void learn_eventfd(struct file *file)
{
    struct eventfd_ctx *eventfd = BPF_CORE_READ(file, private_data);
    struct channel_key key = {.number = BPF_CORE_READ(eventfd, id)};
    u64 unread = BPF_CORE_READ(eventfd, count);
    struct channel_bytes bytes = {.sent = unread > 0xffffffff ? 0 : unread};
    ADD(TABLE_PIPES, &pipes, &key, &bytes);
}

static __always_inline void learn_unix(struct sock *sk, u32 tgid, u32 fd)
{
    struct unix_sock *local = (struct unix_sock *)sk;
    struct sock *peer = BPF_CORE_READ(local, peer);
    if (!peer)
        return;
    u64 mine = number_of(sk), theirs = BPF_CORE_READ(peer, __sk_common.skc_cookie.counter);
    if (!mine || !theirs)
        return; /* made since number_unix(): it is learned when it is used */
    struct unix_sock *other = (struct unix_sock *)peer;
    /* The accepting end has its listener's name; the connecting end seldom has a name. */
    bool is_server = BPF_CORE_READ(local, addr) != 0, is_client = BPF_CORE_READ(other, addr) != 0;
    bool is_named = is_server != is_client;
    bool is_new;
    struct channel_key key = {.number = mine};
    struct mid_life *life = mid_life_of(&key, &channels, &mine, &is_new);
    if (life) {
        note_end(&life->reader, tgid);
        life->reverse = theirs;
        life->on_stdin |= fd == 0;
        life->is_named = is_named;
    }
    if (is_new)
        name_unix(mine, other, local, OBJECT_UNIX);
    if (is_new && is_named)
        tell_role(is_server ? mine : theirs, is_server ? theirs : mine, OBJECT_UNIX);
    key.number = theirs;
    life = mid_life_of(&key, &channels, &theirs, &is_new);
    if (life) {
        note_end(&life->writer, tgid);
        life->reverse = mine;
        life->on_stdout |= fd == 0; /* one socket serves as stdin and stdout */
        life->is_named = is_named;
    }
    if (is_new)
        name_unix(theirs, local, other, OBJECT_UNIX);
}

/* TCP numbers its own bytes, so only names and roles have to be learned. */
static __always_inline void learn_tcp(struct sock *sk)
{
    struct endpoint local, remote;
    u64 out, in;
    if (sk->sk_protocol != IPPROTO_TCP || !sk->__sk_common.skc_dport ||
        sk->__sk_common.skc_state == TCP_LISTEN)
        return;
    tcp_directions(sk, &local, &remote, &out, &in);
    bool out_is_new, in_is_new;
    channel_state(out, &out_is_new);
    if (out_is_new)
        name_endpoints(out, &local, &remote, OBJECT_TCP);
    channel_state(in, &in_is_new);
    if (in_is_new)
        name_endpoints(in, &remote, &local, OBJECT_TCP);
    if (!out_is_new && !in_is_new)
        return;
    u32 namespace = namespace_of(sk);
    struct port_key here = {namespace, local.port}, there = {namespace, remote.port};
    bool is_server = bpf_map_lookup_elem(&listening, &here) != 0;
    if (is_server && bpf_map_lookup_elem(&listening, &there))
        return; /* the remote port may be another machine's, or the client's own */
    tell_role(is_server ? in : out, is_server ? out : in, OBJECT_TCP);
}

/* Gives each Unix socket of a network namespace a number, so that learn_unix() finds numbers. */
SEC("iter/unix")
int number_unix(struct bpf_iter__unix *ctx)
{
    struct unix_sock *socket = ctx->unix_sk;
    if (socket)
        bpf_get_socket_cookie(socket);
    return 0;
}

/* Learns the channels behind a process's descriptors. */
SEC("iter/task_file")
int learn_files(struct bpf_iter__task_file *ctx)
{
    struct task_struct *task = ctx->task;
    struct file *file = ctx->file;
    if (!task || !file)
        return 0;
    struct inode *inode = file->f_inode;
    u32 type = (inode->i_mode & S_IFMT) >> 12;
    if (type == 0 && is_eventfd(file))
        learn_eventfd(file);
    if (type == S_IFIFO_TYPE)
        learn_pipe(file, inode, task->tgid, ctx->fd);
    if (type != OBJECT_SOCKET)
        return 0;
    struct socket *socket = bpf_sock_from_file(file);
    if (!socket)
        return 0;
    struct sock *sk = socket->sk;
    if (!sk)
        return 0;
    if (is_datagram(socket_type(sk)))
        await_datagrams(inode->i_ino);
    if (sk->sk_type != SOCK_STREAM)
        return 0;
    u16 family = sk->__sk_common.skc_family;
    if (family == AF_UNIX)
        learn_unix(sk, task->tgid, ctx->fd);
    else if (family == AF_INET || family == AF_INET6)
        learn_tcp(sk);
    return 0;
}

/* Examines the channels behind a process's descriptors to settle the origin of their byte
 * counts. */
SEC("iter/task_file")
int look_at_files(struct bpf_iter__task_file *ctx)
{
    struct file *file = ctx->file;
    if (!file)
        return 0;
    struct inode *inode = file->f_inode;
    u32 type = (inode->i_mode & S_IFMT) >> 12;
    if (type == S_IFIFO_TYPE) {
        struct channel_key key = {.number = inode->i_ino, .dev = inode->i_sb->s_dev};
        struct channel_bytes *bytes = bpf_map_lookup_elem(&pipes, &key);
        struct mid_life *life = bpf_map_lookup_elem(&mid_lives, &key);
        if (!bytes || !life || !bytes->unsettled)
            return 0;
        s64 excess = read_difference(bytes);
        look_at_channel(life, bytes, excess, unread_of_pipe((u64)inode));
    }
    if (type != OBJECT_SOCKET)
        return 0;
    struct socket *socket = bpf_sock_from_file(file);
    if (!socket)
        return 0;
    struct sock *sk = socket->sk;
    if (!sk || sk->sk_type != SOCK_STREAM || sk->__sk_common.skc_family != AF_UNIX)
        return 0;
    struct channel_key key = {.number = number_of(sk)};
    struct channel_bytes *bytes = bpf_map_lookup_elem(&channels, &key.number);
    struct mid_life *life = bpf_map_lookup_elem(&mid_lives, &key);
    if (!bytes || !life || !bytes->unsettled)
        return 0;
    s64 excess = read_difference(bytes);
    look_at_channel(life, bytes, excess, unread_of_unix((u64)sk));
    return 0;
}
