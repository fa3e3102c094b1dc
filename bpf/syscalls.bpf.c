/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * System calls of traced threads: one record each, sent at the exit with both times. A call in
 * which the thread sleeps is also described by the switch-out record (sched.bpf.c), so a call that
 * never ends is known, too.
 */
#include "syscalls.h"
#include "datagrams.h"
#include "framing.h"
#include "runtime_tasks.h"
#include "shared_words.h"
#include "syscall_numbers.h"

#define EVENTFD_BYTES 8
#define POLLIN 1 /* uapi/asm-generic/poll.h */

/* Which arguments of a call are of interest. Calls up to ARG_LAST_FD have a descriptor. */
enum argument {
    ARG_NONE,
    ARG_FD_IN,
    ARG_FD_OUT,
    ARG_FD,
    ARG_ACCEPT,
    ARG_CLOSE,
    ARG_SPLICE,
    ARG_VMSPLICE,
    ARG_LAST_FD = ARG_VMSPLICE,
    ARG_PATH_1,
    ARG_PATH_2,
    ARG_SIGINFO_3,
    ARG_FUTEX,
    ARG_TIMEOUT_3,  /* in milliseconds; negative: none */
    ARG_TIMEOUT_4,  /* likewise */
    ARG_TIMESPEC_3, /* its address; 0: none */
    ARG_TIMESPEC_4,
    ARG_TIMESPEC_5
};

#define NR_TABLE 512

/* A table, because nearly every call looks this up. */
static const u8 arguments[NR_TABLE] = {
    [NR_read] = ARG_FD_IN,
    [NR_readv] = ARG_FD_IN,
    [NR_pread64] = ARG_FD_IN,
    [NR_preadv] = ARG_FD_IN,
    [NR_preadv2] = ARG_FD_IN,
    [NR_recvfrom] = ARG_FD_IN,
    [NR_recvmsg] = ARG_FD_IN,
    [NR_recvmmsg] = ARG_FD_IN,
    [NR_write] = ARG_FD_OUT,
    [NR_writev] = ARG_FD_OUT,
    [NR_pwrite64] = ARG_FD_OUT,
    [NR_pwritev] = ARG_FD_OUT,
    [NR_pwritev2] = ARG_FD_OUT,
    [NR_sendto] = ARG_FD_OUT,
    [NR_sendmsg] = ARG_FD_OUT,
    [NR_sendmmsg] = ARG_FD_OUT,
    [NR_sendfile] = ARG_FD_OUT,
    [NR_connect] = ARG_FD,
    [NR_shutdown] = ARG_FD,
    [NR_accept] = ARG_ACCEPT,
    [NR_accept4] = ARG_ACCEPT,
    [NR_close] = ARG_CLOSE,
    [NR_splice] = ARG_SPLICE,
    [NR_tee] = ARG_SPLICE,
    [NR_vmsplice] = ARG_VMSPLICE,
    [NR_openat] = ARG_PATH_2,
    [NR_openat2] = ARG_PATH_2,
    [NR_unlinkat] = ARG_PATH_2,
    [NR_waitid] = ARG_SIGINFO_3,
    [NR_futex] = ARG_FUTEX,
    [NR_epoll_pwait] = ARG_TIMEOUT_4,
    [NR_ppoll] = ARG_TIMESPEC_3,
    [NR_epoll_pwait2] = ARG_TIMESPEC_4,
    [NR_pselect6] = ARG_TIMESPEC_5,
#if HAS_OLD_CALLS
    [NR_open] = ARG_PATH_1,
    [NR_creat] = ARG_PATH_1,
    [NR_access] = ARG_PATH_1,
    [NR_rename] = ARG_PATH_1,
    [NR_unlink] = ARG_PATH_1,
    [NR_poll] = ARG_TIMEOUT_3,
    [NR_epoll_wait] = ARG_TIMEOUT_4,
    [NR_select] = ARG_TIMESPEC_5,
#endif
};

static __always_inline enum argument argument_of(u64 nr)
{
    return nr < NR_TABLE ? arguments[nr] : ARG_NONE;
}

/* Whether a call that waits for readiness has a timeout. */
static __always_inline bool has_timeout(enum argument argument, struct pt_regs *regs)
{
    switch (argument) {
    case ARG_TIMEOUT_3:
        return (s32)CALL_ARG_3(regs) > 0;
    case ARG_TIMEOUT_4:
        return (s32)CALL_ARG_4(regs) > 0;
    case ARG_TIMESPEC_3:
        return CALL_ARG_3(regs) != 0;
    case ARG_TIMESPEC_4:
        return CALL_ARG_4(regs) != 0;
    case ARG_TIMESPEC_5:
        return CALL_ARG_5(regs) != 0;
    default:
        return false;
    }
}

/* Threads of CPython wait for the interpreter's lock for 5 ms at a time, and then ask its holder to
 * release it (Python/ceval_gil.c; sys.setswitchinterval() changes it). The deadline is computed
 * some microseconds before the call. */
#define SWITCH_INTERVAL_MOST_NS 5000000
#define SWITCH_INTERVAL_LEAST_NS 4500000
#define FUTEX_COMMANDS 0x7f
#define FUTEX_WAIT_BITSET 9
#define FUTEX_CLOCK_REALTIME 0x100

/* Whether a wait for a futex, by the monotonic clock, times out after the switch interval. To be
 * called at the end of the wait, when the kernel has read the timeout, so that its page is
 * present. */
static __noinline bool has_switch_interval(const struct task_state *state, struct pt_regs *regs,
                                           u64 enter_ns)
{
    s64 until[2]; /* struct __kernel_timespec */
    void *timeout = (void *)CALL_ARG_4(regs);
    u32 command = state->dev & (FUTEX_COMMANDS | FUTEX_CLOCK_REALTIME);
    if (command != FUTEX_WAIT_BITSET || !timeout ||
        bpf_probe_read_user(until, sizeof(until), timeout))
        return false;
    u64 left_ns = (u64)until[0] * 1000000000 + (u64)until[1] - enter_ns;
    return left_ns >= SWITCH_INTERVAL_LEAST_NS && left_ns <= SWITCH_INTERVAL_MOST_NS;
}

static __noinline void look_up_untyped(struct task_state *state, struct file *file,
                                       struct inode *inode, u64 ino)
{
    state->inode = 0; /* not cached: files without an inode of their own are not told apart */
    state->ino = ino;
    struct super_block *filesystem = READ(inode, inode, i_sb);
    state->dev = READ(super_block, filesystem, s_dev);
    state->object_type = 0;
    state->sk = 0;
    if (is_eventfd(file)) {
        struct eventfd_ctx *eventfd = READ(file, file, private_data);
        state->ino = READ(eventfd_ctx, eventfd, id);
        state->dev = 0;
        state->object_type = OBJECT_EVENTFD;
    }
}

/* Identifies the kernel object behind a descriptor by device and inode number, never by the
 * descriptor, which is reused. */
static __always_inline void look_up(struct task_state *state, struct task_struct *task, u32 fd)
{
    state->fd = -1;
    struct files_struct *files = task->files;
    if (!files)
        return;
    struct fdtable *fdt = files->fdt;
    if (fd >= fdt->max_fds)
        return;
    struct file *file =
        (struct file *)READ(hlist_head, (u64)fdt->fd + (u64)fd * sizeof(file), first);
    if (!file)
        return;
    struct inode *inode = READ(file, file, f_inode);
    if (!inode)
        return;
    u64 ino = READ(inode, inode, i_ino);
    u16 type = (READ(inode, inode, i_mode) & S_IFMT) >> 12;
    state->fd = fd;
    if (!type) {
        look_up_untyped(state, file, inode, ino);
        return;
    }
    if ((u64)inode == state->inode && ino == state->ino)
        return; /* the same object as last time: device and type are known */
    state->inode = (u64)inode;
    state->ino = ino;
    struct super_block *filesystem = READ(inode, inode, i_sb);
    state->dev = READ(super_block, filesystem, s_dev);
    state->f_mode = READ(file, file, f_mode);
    state->object_type = type;
    state->sk = 0;
    if (state->object_type == OBJECT_SOCKET) {
        struct socket *socket = READ(file, file, private_data);
        struct sock *sk = READ(socket, socket, sk);
        state->sk = (u64)sk;
        state->object_type = socket_type(sk);
    }
}

/* Not inlined, as few calls need it. */
static __noinline void look_up_rarely(struct task_state *state, struct task_struct *task, u32 fd)
{
    look_up(state, task, fd);
}

/* Notes what can be known of a call from its number and arguments. */
static __always_inline void describe_call(struct task_state *state, struct task_struct *task,
                                          struct pt_regs *regs, long nr)
{
    enum argument argument = argument_of(nr);
    state->nr = nr;
    state->fd = -1;
    state->socket.bytes = 0;
    state->skb = 0;
    state->fault_ns = 0; /* left by a fault that ended in a signal */
    if (argument == ARG_NONE)
        return;
    if (argument <= ARG_LAST_FD) {
        u32 fd = CALL_ARG_1(regs);
        if (argument == ARG_VMSPLICE)
            state->inode = 0; /* both ends of a pipe have the same inode, but are two files */
        if (argument == ARG_SPLICE) {
            look_up_rarely(state, task, fd);
            state->from = (struct object){
                .inode = state->inode,
                .ino = state->ino,
                .sk = state->sk,
                .dev = state->dev,
                .fd = state->fd,
                .type = state->object_type,
            };
            fd = nr == NR_tee ? CALL_ARG_2(regs) : CALL_ARG_3(regs);
        }
        look_up(state, task, fd);
        if (argument == ARG_FD_IN && state->fd >= 0 && is_datagram(state->object_type))
            await_datagram(state);
        if (argument == ARG_FD_IN && state->fd >= 0 && state->object_type == OBJECT_UNIX_DGRAM)
            await_datagrams(state->ino);
        return;
    }
    switch (argument) {
    case ARG_PATH_1:
        state->arg = CALL_ARG_1(regs);
        break;
    case ARG_PATH_2:
        state->arg = CALL_ARG_2(regs);
        break;
    case ARG_SIGINFO_3:
        state->arg = CALL_ARG_3(regs);
        break;
    case ARG_TIMEOUT_3:
    case ARG_TIMESPEC_3:
        state->arg = CALL_ARG_2(regs) == 1 ? CALL_ARG_1(regs) : 0;
        break;
    case ARG_FUTEX:
        state->inode = 0; /* what follows is no cached object */
        state->object_type = OBJECT_FUTEX;
        state->ino = CALL_ARG_1(regs);
        state->dev = CALL_ARG_2(regs);
        state->fd = CALL_ARG_3(regs);
        break;
    default:
        break;
    }
}

__hidden __noinline void describe_sleeper(struct task_state *state, struct task_struct *task,
                                          struct pt_regs *regs, long nr)
{
    describe_call(state, task, regs, nr);
}

__hidden __noinline void describe_poll(struct task_state *state, struct task_struct *task)
{
    struct {
        s32 fd;
        u16 events;
        u16 revents;
    } polled; /* struct pollfd */
    /* The call has just read it, so its page is present. */
    if (state->arg && bpf_probe_read_user(&polled, sizeof(polled), (void *)state->arg) == 0 &&
        polled.fd >= 0 && polled.events & POLLIN)
        look_up(state, task, polled.fd);
}

/* Reads the registers with which the thread entered the kernel: they hold its call, if it is in
 * one. */
__hidden __noinline void find_out(struct task_state *state)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
    long nr = CALL_NUMBER(regs);
    if (nr >= 0) {
        describe_call(state, task, regs, nr);
    } else {
        state->nr = 0;
        state->enter_ns = 0;
    }
}

/* Whether event loops wait in this call. */
static __always_inline bool waits_in_loop(long nr)
{
#if HAS_OLD_CALLS
    if (nr == NR_epoll_wait)
        return true;
#endif
    return nr == NR_epoll_pwait || nr == NR_epoll_pwait2;
}

/* Not inlined, as few calls need its stack. */
static __noinline void step_ends(struct task_struct *task, struct task_state *state)
{
    end_step(task, state);
}

SEC("tp_btf/sys_enter")
int HOOK(on_sys_enter, struct pt_regs *regs, long nr)
{
    struct task_struct *task;
    struct task_state *state = traced_caller(regs, &task);
    if (!state)
        return 0;
    if (waits_in_loop(nr))
        step_ends(task, state);
    describe_call(state, task, regs, nr);
    /* No kernel lock is waited for here: clears a wait whose end was missed. */
    state->contention_ns = 0;
    /* Last, so that the time of this program falls outside the call it describes. */
    state->enter_ns = bpf_ktime_get_ns();
    return 0;
}

/* Not inlined, as few calls need its stack. */
static __noinline u64 count_in_table(u64 inode, u64 ino, u32 dev, bool is_write, u64 bytes)
{
    struct channel_key key = {.number = ino, .dev = dev};
    struct channel_bytes *pipe = bpf_map_lookup_elem(&pipes, &key);
    if (!pipe) {
        struct channel_bytes none = {};
        ADD(TABLE_PIPES, &pipes, &key, &none);
        pipe = bpf_map_lookup_elem(&pipes, &key);
        if (!pipe)
            return 0;
    }
    u64 offset = __sync_fetch_and_add(is_write ? &pipe->sent : &pipe->received, bytes);
    if (attaching && pipe->unsettled) {
        s64 excess = read_difference(pipe), unread = unread_of_pipe(inode);
        if (unread >= 0)
            narrow_excess(pipe, &key, is_write, excess - unread);
    }
    return offset;
}

static __always_inline u64 count_bytes(u64 inode, u64 ino, u32 dev, bool is_write, u64 bytes)
{
    /* Eventfds have no device. */
    struct channel_bytes *pipe = dev ? in_its_place(ino, dev) : 0;
    if (pipe)
        return __sync_fetch_and_add(is_write ? &pipe->sent : &pipe->received, bytes);
    return count_in_table(inode, ino, dev, is_write, bytes);
}

/* A new eventfd begins with a count, and may have the number of an earlier one. */
static __noinline void eventfd_born(struct task_state *state, struct task_struct *task, u32 fd,
                                    u32 count)
{
    look_up_rarely(state, task, fd);
    struct channel_key key = {.number = state->ino, .dev = state->dev};
    struct channel_bytes bytes = {.sent = count};
    if (state->object_type == OBJECT_EVENTFD)
        PUT(TABLE_PIPES, &pipes, &key, &bytes);
}

static __always_inline void emit_moved(const struct rec_syscall *sys, struct task_state *state,
                                       bool is_write, u64 offset, u64 count)
{
    emit (rec_syscall_io, r, sys->hdr.ts_ns) {
        r->sys = *sys;
        r->sys.hdr.kind = REC_SYSCALL_IO;
        r->sys.hdr.flags = is_write ? SYSCALL_WRITE : 0;
        r->ino = state->ino;
        r->offset = offset;
        r->dev = state->dev;
        r->fd = state->fd;
        r->object_type = state->object_type;
        r->pad = 0;
        r->count = count;
    }
}

/* Adds up what goes through an eventfd. Not inlined, as few calls need its stack. */
static __noinline void emit_events(const struct rec_syscall *sys, struct task_state *state,
                                   bool is_write, u64 buffer)
{
    u64 count = 0, offset = 0;
    bool counts = (state->nr == NR_read || state->nr == NR_write) &&
                  bpf_probe_read_user(&count, sizeof(count), (void *)buffer) == 0;
    if (!counts || count > 0xffffffff)
        count = 0; /* no count of events */
    if (counts)
        offset = count_bytes(state->inode, state->ino, state->dev, is_write, count);
    emit_moved(sys, state, is_write, offset, count);
}

#define SHUT_RD 0 /* sys/socket.h */

static __always_inline void emit_io(const struct rec_syscall *sys, struct task_state *state,
                                    enum argument argument, u64 buffer)
{
    /* A shutdown() counts as a write if the socket sends nothing more: `buffer` is its mode. */
    bool is_write = argument == ARG_FD_OUT || argument == ARG_SPLICE ||
                    (argument == ARG_VMSPLICE && state->f_mode & FMODE_WRITE) ||
                    (state->nr == NR_shutdown && (u32)buffer != SHUT_RD);
    if (state->object_type == OBJECT_EVENTFD && sys->ret == EVENTFD_BYTES) {
        emit_events(sys, state, is_write, buffer);
        return;
    }
    u64 offset = 0;
    if (state->object_type == S_IFIFO_TYPE && sys->ret > 0)
        offset = count_bytes(state->inode, state->ino, state->dev, is_write, sys->ret);
    emit_moved(sys, state, is_write, offset, 0);
}

static __always_inline void emit_socket(const struct rec_syscall *sys, struct task_state *state)
{
    const struct socket_transfer *t = &state->socket;
    if (t->arrived_ns)
        tell_awaited(t, sys->hdr.ts_ns);
    emit (rec_syscall_socket, r, sys->hdr.ts_ns) {
        r->sys = *sys;
        r->sys.hdr.kind = REC_SYSCALL_SOCKET;
        r->sys.hdr.flags = t->flags;
        r->channel = t->channel;
        r->reverse = t->reverse;
        r->end = t->end;
        r->bytes = t->bytes;
        r->fd = state->fd;
        r->object_type = t->object_type;
        r->held = t->held;
        r->ino = state->fd >= 0 ? state->ino : 0;
    }
}

/* Records what a splice took out of a pipe or stream socket. Not inlined, as few calls need its
 * stack. */
static __noinline void emit_spliced(const struct rec_syscall *sys, struct task_state *state)
{
    const struct object *from = &state->from;
    struct socket_transfer t = {.bytes = sys->ret, .object_type = from->type};
    if (from->type == S_IFIFO_TYPE) {
        t.channel = from->ino;
        t.end = count_bytes(from->inode, from->ino, from->dev, false, sys->ret) + sys->ret;
    } else if (!spliced_from_socket((struct sock *)from->sk, &t)) {
        return;
    }
    emit (rec_transfer, r, sys->hdr.ts_ns) {
        r->hdr =
            (struct rec_hdr){.ts_ns = sys->hdr.ts_ns, .tid = sys->hdr.tid, .kind = REC_TRANSFER};
        r->channel = t.channel;
        r->reverse = t.reverse;
        r->end = t.end;
        r->bytes = t.bytes;
        r->dev = from->dev;
        r->fd = from->fd;
        r->object_type = t.object_type;
        r->held = HELD_NOT;
    }
}

static __noinline void emit_accept(const struct rec_syscall *sys, struct task_state *state)
{
    u64 established_ns = take_unaccepted(state->sk);
    if (state->object_type == OBJECT_UNIX)
        accepted_unix(state->sk, state->ino);
    else if (is_datagram(state->object_type))
        await_datagrams(state->ino);
    emit (rec_accept, r, sys->hdr.ts_ns) {
        r->sys = *sys;
        r->sys.hdr.kind = REC_ACCEPT;
        r->ino = state->ino;
        r->established_ns = established_ns;
        r->dev = state->dev;
        r->object_type = state->object_type;
        r->pad = 0;
    }
}

static __always_inline bool opens_file(u64 nr)
{
#if HAS_OLD_CALLS
    if (nr == NR_open || nr == NR_creat)
        return true;
#endif
    return nr == NR_openat || nr == NR_openat2;
}

/* Not inlined: the stack of its callers has no room for the path. */
static __noinline void emit_path(const struct rec_syscall *sys, struct task_state *state)
{
    /* On the stack: a program may be preempted, so another program might use per-CPU memory
     * meanwhile. */
    struct rec_syscall_path r = {.sys = *sys};
    r.sys.hdr.kind = REC_SYSCALL_PATH;
    if (state->fd >= 0) {
        r.ino = state->ino;
        r.dev = state->dev;
    }
    long path_bytes = 0;
    /* At the exit: the kernel has just read the name, so its page is present. */
    if (keep_paths)
        path_bytes = bpf_probe_read_user_str(r.path, PATH_BYTES, (void *)state->arg);
    if (path_bytes < 0 || path_bytes > PATH_BYTES)
        path_bytes = 0;
    r.path_bytes = path_bytes;
    output_record(&r, __builtin_offsetof(struct rec_syscall_path, path) + path_bytes,
                  sys->hdr.ts_ns);
}

static __always_inline bool makes_eventfd(u64 nr)
{
#if HAS_OLD_CALLS
    if (nr == NR_eventfd)
        return true;
#endif
    return nr == NR_eventfd2;
}

SEC("tp_btf/sys_exit")
int HOOK(on_sys_exit, struct pt_regs *regs, long ret)
{
    struct task_struct *task;
    struct task_state *state = traced_caller(regs, &task);
    if (!state || !state->enter_ns)
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    on_its_cpu(task, state, now_ns);
    ensure_call_known(state);
    struct rec_syscall sys = {
        .hdr = {.ts_ns = now_ns, .tid = task->pid, .kind = REC_SYSCALL, .aux = state->nr},
        .enter_ns = state->enter_ns,
        .ret = ret,
    };
    state->enter_ns = 0;
    if (state->nr == NR_splice && ret > 0 && state->from.fd >= 0)
        emit_spliced(&sys, state);
    if (state->object_type == OBJECT_UDP && state->fd >= 0)
        settle_other_end(state, regs, ret);
    if (state->socket.bytes) {
        emit_socket(&sys, state);
        if (state->socket.framed)
            follow_frames(state, regs, &sys);
        return 0;
    }
    enum argument argument = argument_of(state->nr);
    if (argument == ARG_NONE) {
        if (makes_eventfd(state->nr) && ret >= 0)
            eventfd_born(state, task, ret, CALL_ARG_1(regs));
    } else if (argument <= ARG_LAST_FD) {
        if (argument == ARG_ACCEPT && ret >= 0 && state->fd >= 0) {
            look_up_rarely(state, task, ret);
            if (state->fd >= 0) {
                emit_accept(&sys, state);
                return 0;
            }
        }
        /* Of closed objects, only sockets matter, as the ends of connections. */
        bool matters = argument != ARG_CLOSE || (state->object_type & 0xff) == OBJECT_SOCKET;
        if (state->fd >= 0 && matters) {
            emit_io(&sys, state, argument, CALL_ARG_2(regs));
            return 0;
        }
    } else if (argument == ARG_PATH_1 || argument == ARG_PATH_2) {
        if (ret >= 0 && keep_paths && opens_file(state->nr))
            look_up_rarely(state, task, ret);
        emit_path(&sys, state);
        return 0;
    } else if (argument == ARG_SIGINFO_3) {
        s32 pid = 0;
        if (ret == 0 && state->arg &&
            bpf_probe_read_user(&pid, sizeof(pid), (void *)state->arg + 12) == 0 && pid > 0) {
            sys.ret = pid; /* siginfo_t.si_pid: the process it collected */
            sys.hdr.flags |= SYSCALL_REAPED;
        }
    } else if (argument == ARG_FUTEX && !(state->dev & FUTEX_PRIVATE_FLAG)) {
        emit_shared_word(&sys, state);
    } else if (argument == ARG_FUTEX && has_switch_interval(state, regs, sys.enter_ns)) {
        sys.hdr.flags |= SYSCALL_SWITCH_INTERVAL;
    } else if (has_timeout(argument, regs)) {
        sys.hdr.flags |= SYSCALL_TIMEOUT;
    }
    emit (rec_syscall, r, sys.hdr.ts_ns) {
        *r = sys;
    }
    return 0;
}
