/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * System calls of traced threads: one record each, sent at the exit with both times. A call in
 * which the thread sleeps is also described by the switch-out record (sched.bpf.c), so one that
 * never ends is known too.
 */
#include "probe.h"
#include "syscall_numbers.h"

#define S_IFIFO_TYPE 1 /* S_IFIFO >> 12 */

/* Bytes counted per pipe and direction, so that a write and a read meet by offset whatever the
 * sizes, and still do after lost records. Least recently used: pipes nobody uses fall out. */
struct pipe_key {
    u64 ino;
    u64 dev;
};

struct pipe_bytes {
    u64 written;
    u64 read;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct pipe_key);
    __type(value, struct pipe_bytes);
} pipes SEC(".maps");

enum argument {
    ARG_NONE,
    ARG_FD_IN,
    ARG_FD_OUT,
    ARG_FD,
    ARG_PATH_1,
    ARG_PATH_2,
    ARG_SIGINFO_3,
    ARG_FUTEX
};

static __always_inline enum argument argument_of(long nr)
{
    switch (nr) {
    case NR_read:
    case NR_readv:
    case NR_pread64:
    case NR_preadv:
    case NR_preadv2:
    case NR_recvfrom:
    case NR_recvmsg:
    case NR_recvmmsg:
        return ARG_FD_IN;
    case NR_write:
    case NR_writev:
    case NR_pwrite64:
    case NR_pwritev:
    case NR_pwritev2:
    case NR_sendto:
    case NR_sendmsg:
    case NR_sendmmsg:
    case NR_sendfile:
        return ARG_FD_OUT;
    case NR_connect:
    case NR_accept:
    case NR_accept4:
    case NR_shutdown:
        return ARG_FD;
    case NR_open:
    case NR_creat:
    case NR_access:
    case NR_rename:
    case NR_unlink:
        return ARG_PATH_1;
    case NR_openat:
    case NR_openat2:
    case NR_unlinkat:
        return ARG_PATH_2;
    case NR_waitid:
        return ARG_SIGINFO_3;
    case NR_futex:
        return ARG_FUTEX;
    }
    return ARG_NONE;
}

/* Name the kernel object behind a descriptor: device and inode number, never the descriptor,
 * which is reused. */
static __always_inline void look_up(struct task_state *state, struct task_struct *task, u32 fd)
{
    state->fd = -1;
    struct files_struct *files = task->files;
    if (!files)
        return;
    struct fdtable *fdt = files->fdt;
    if (fd >= fdt->max_fds)
        return;
    struct file *file = 0;
    bpf_probe_read_kernel(&file, sizeof(file), (void *)fdt->fd + (u64)fd * sizeof(file));
    if (!file)
        return;
    struct inode *inode = BPF_CORE_READ(file, f_inode);
    if (!inode)
        return;
    u64 ino = BPF_CORE_READ(inode, i_ino);
    state->fd = fd;
    if ((u64)inode == state->inode && ino == state->ino)
        return; /* the same object as last time: device and type are known */
    state->inode = (u64)inode;
    state->ino = ino;
    state->dev = BPF_CORE_READ(inode, i_sb, s_dev);
    state->object_type = (BPF_CORE_READ(inode, i_mode) & S_IFMT) >> 12;
    if (state->object_type == OBJECT_SOCKET)
        state->object_type = socket_type(file);
}

SEC("tp_btf/sys_enter")
int BPF_PROG(on_sys_enter, struct pt_regs *regs, long nr)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_state *state = traced(task);
    if (!state)
        return 0;
    state->nr = nr;
    state->fd = -1;
    state->socket.bytes = 0;
    state->fault_ns = 0; /* of a fault that ended in a signal */
    switch (argument_of(nr)) {
    case ARG_FD_IN:
    case ARG_FD_OUT:
    case ARG_FD:
        look_up(state, task, regs->di);
        break;
    case ARG_PATH_1:
        state->arg = regs->di;
        break;
    case ARG_PATH_2:
        state->arg = regs->si;
        break;
    case ARG_SIGINFO_3:
        state->arg = regs->dx;
        break;
    case ARG_FUTEX:
        state->inode = 0; /* what follows is no cached object */
        state->object_type = OBJECT_FUTEX;
        state->ino = regs->di;
        state->dev = regs->si;
        state->fd = regs->dx;
        break;
    case ARG_NONE:
        break;
    }
    /* Last, so that the time of this program falls outside the call it describes. */
    state->enter_ns = bpf_ktime_get_ns();
    return 0;
}

static __always_inline u64 count_bytes(struct task_state *state, bool is_write, u64 bytes)
{
    struct pipe_key key = {.ino = state->ino, .dev = state->dev};
    struct pipe_bytes *pipe = bpf_map_lookup_elem(&pipes, &key);
    if (!pipe) {
        struct pipe_bytes none = {};
        bpf_map_update_elem(&pipes, &key, &none, BPF_NOEXIST);
        pipe = bpf_map_lookup_elem(&pipes, &key);
        if (!pipe)
            return 0;
    }
    return __sync_fetch_and_add(is_write ? &pipe->written : &pipe->read, bytes);
}

static __always_inline void emit_io(const struct rec_syscall *sys, struct task_state *state,
                                    bool is_write)
{
    u64 offset = 0;
    if (state->object_type == S_IFIFO_TYPE && sys->ret > 0)
        offset = count_bytes(state, is_write, sys->ret);
    emit (rec_syscall_io, r, sys->hdr.ts_ns) {
        r->sys = *sys;
        r->sys.hdr.kind = REC_SYSCALL_IO;
        r->sys.hdr.flags = is_write ? SYSCALL_WRITE : 0;
        r->ino = state->ino;
        r->offset = offset;
        r->dev = state->dev;
        r->fd = state->fd;
        r->object_type = state->object_type;
        __builtin_memset(r->pad, 0, sizeof(r->pad));
    }
}

static __always_inline void emit_socket(const struct rec_syscall *sys, struct task_state *state)
{
    const struct socket_transfer *t = &state->socket;
    emit (rec_syscall_socket, r, sys->hdr.ts_ns) {
        r->sys = *sys;
        r->sys.hdr.kind = REC_SYSCALL_SOCKET;
        r->sys.hdr.flags = t->is_write ? SYSCALL_WRITE : 0;
        r->channel = t->channel;
        r->reverse = t->reverse;
        r->end = t->end;
        r->bytes = t->bytes;
        r->fd = state->fd;
        r->object_type = t->object_type;
        __builtin_memset(r->pad, 0, sizeof(r->pad));
    }
}

static __always_inline void emit_path(const struct rec_syscall *sys, struct task_state *state)
{
    /* On the stack: a program may be preempted, so memory of its CPU would not be its own. */
    struct rec_syscall_path r = {.sys = *sys};
    r.sys.hdr.kind = REC_SYSCALL_PATH;
    long path_bytes = 0;
    /* At the exit: the kernel has just read the name, so its page is present. */
    if (keep_paths)
        path_bytes = bpf_probe_read_user_str(r.path, PATH_BYTES, (void *)state->arg);
    if (path_bytes < 0 || path_bytes > PATH_BYTES)
        path_bytes = 0;
    r.path_bytes = path_bytes;
    output(&r, __builtin_offsetof(struct rec_syscall_path, path) + path_bytes, sys->hdr.ts_ns);
}

SEC("tp_btf/sys_exit")
int BPF_PROG(on_sys_exit, struct pt_regs *regs, long ret)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_state *state = traced(task);
    if (!state || !state->enter_ns)
        return 0;
    struct rec_syscall sys = {
        .hdr = {.ts_ns = bpf_ktime_get_ns(),
                .tid = task->pid,
                .kind = REC_SYSCALL,
                .aux = state->nr},
        .enter_ns = state->enter_ns,
        .ret = ret,
    };
    state->enter_ns = 0;
    if (state->socket.bytes) {
        emit_socket(&sys, state);
        return 0;
    }
    switch (argument_of(state->nr)) {
    case ARG_FD_IN:
    case ARG_FD_OUT:
    case ARG_FD:
        if (state->fd < 0)
            break;
        emit_io(&sys, state, argument_of(state->nr) == ARG_FD_OUT);
        return 0;
    case ARG_PATH_1:
    case ARG_PATH_2:
        emit_path(&sys, state);
        return 0;
    case ARG_SIGINFO_3: {
        s32 pid = 0;
        if (ret == 0 && state->arg &&
            bpf_probe_read_user(&pid, sizeof(pid), (void *)state->arg + 12) == 0 && pid > 0) {
            sys.ret = pid; /* siginfo_t.si_pid: whom it collected */
            sys.hdr.flags |= SYSCALL_REAPED;
        }
        break;
    }
    case ARG_FUTEX:
    case ARG_NONE:
        break;
    }
    emit (rec_syscall, r, sys.hdr.ts_ns) {
        *r = sys;
    }
    return 0;
}
