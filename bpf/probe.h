/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* State shared by the programs. */
#pragma once
/* clang-format off: order matters */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "records.h"
#include "ring.h"
/* clang-format on */

/* Options, set before load. */
const volatile bool scope_target = false; /* scheduler records of traced threads only */
const volatile bool keep_paths = true;
const volatile bool keep_methods = true;
const volatile bool attaching = false; /* threads and channels may be older than the capture */
const volatile bool can_cast = false;  /* the kernel has bpf_rdonly_cast(): Linux 6.2 */

extern void *bpf_rdonly_cast(const void *address, u32 type_id) __ksym __weak;

/*
 * A field of a kernel structure at an address that the verifier knows nothing of. By a plain load,
 * where the kernel lets us; the helper takes many times as long. What cannot be read is 0.
 */
#define READ(type, address, field)                                                                 \
    ({                                                                                             \
        typeof(((struct type *)0)->field) read_;                                                   \
        if (can_cast) {                                                                            \
            u32 type_id_ = bpf_core_type_id_kernel(struct type);                                   \
            struct type *from_ = bpf_rdonly_cast((const void *)(address), type_id_);               \
            read_ = from_->field;                                                                  \
        } else {                                                                                   \
            read_ = BPF_CORE_READ((struct type *)(address), field);                                \
        }                                                                                          \
        read_;                                                                                     \
    })

/* What the running system call moved through a socket: its last transfer. */
struct socket_transfer {
    u64 channel;
    u64 reverse;
    u64 end;
    u32 bytes; /* 0: nothing */
    u16 object_type;
    u16 flags;  /* SYSCALL_WRITE, SYSCALL_EMPTY */
    u32 framed; /* its bytes are looked at for framing */
    u32 held;   /* HELD() */
};

/* A kernel object behind a descriptor. */
struct object {
    u64 inode;
    u64 ino;
    u64 sk; /* its struct sock, if it is a socket */
    u32 dev;
    s32 fd;
    u16 type;
};

/* A traced thread. Its presence in task storage is what "traced" means. */
struct task_state {
    u64 enter_ns; /* 0: not in a system call */
    u64 fault_ns; /* 0: not in a page fault */
    u64 fault_address;
    u64 fault_ip;
    u64 inode; /* the object last looked up; identity of `ino`, `dev`, `object_type`, `sk` */
    u64 sk;    /* its struct sock, if it is a socket */
    u64 ino;
    u64 arg; /* user pointer wanted at exit: a path or a siginfo */
    u32 dev;
    s32 fd; /* -1: the call has no descriptor we look up */
    u16 nr;
    u16 object_type;
    u32 fault_flags;
    u64 contention_ns; /* 0: not waiting for a kernel lock */
    u32 contention_flags;
    u32 sleep_told;     /* only while nr is NR_UNSEEN */
    u32 f_mode;         /* of the file last looked up */
    struct object from; /* of a call that moves bytes from one descriptor to another */
    u64 run_delay_ns;   /* waited for a CPU in its life, when it last left one */
    u64 receiver;       /* whose queue a datagram went into, where it was not seen there */
    u64 skb;            /* the datagram this call sent last */
    struct socket_transfer socket;
};

/*
 * task_state.nr of a thread that was marked in the middle of its life and has not been seen since:
 * whether it is in a system call shows when it comes by (see()). `enter_ns` is the time of the
 * mark.
 */
#define NR_UNSEEN 0xffff

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct task_state);
} tasks SEC(".maps");

/*
 * Interrupts now served on a CPU. `context` says which (WAKING_*); kept by our own hooks, because
 * the kernel's preemption count is a per-CPU variable programs cannot address on kernels without
 * CONFIG_KALLSYMS_ALL. The times are 0 when the interrupt takes time from nobody we trace. Hard
 * interrupts do not nest in one another; one may interrupt a softirq.
 */
struct irq_state {
    u64 soft_ns;
    u64 hard_ns;
    u64 context;
    /* rec_block.number of the request whose completion is being told to waiters: by a hard
     * interrupt, by a softirq, by a task; each may be interrupted by the one before */
    u32 hard_block;
    u32 soft_block;
    u64 block;
    u64 pad[3]; /* a cache line each */
};
static struct irq_state irqs[MAX_CPUS];

static __always_inline u8 interrupt_context(void)
{
    u32 cpu = bpf_get_smp_processor_id();
    return cpu < MAX_CPUS ? irqs[cpu].context : 0;
}

static __always_inline u32 completing_block(void)
{
    u32 cpu = bpf_get_smp_processor_id();
    if (cpu >= MAX_CPUS)
        return 0;
    if (irqs[cpu].context & WAKING_HARDIRQ)
        return irqs[cpu].hard_block;
    return irqs[cpu].context & WAKING_SOFTIRQ ? irqs[cpu].soft_block : irqs[cpu].block;
}

static __always_inline void completes_block(u32 number)
{
    u32 cpu = bpf_get_smp_processor_id();
    if (cpu >= MAX_CPUS)
        return;
    if (irqs[cpu].context & WAKING_HARDIRQ)
        irqs[cpu].hard_block = number;
    else if (irqs[cpu].context & WAKING_SOFTIRQ)
        irqs[cpu].soft_block = number;
    else
        irqs[cpu].block = number;
}

static __always_inline struct task_state *traced(struct task_struct *task)
{
    return bpf_task_storage_get(&tasks, task, 0, 0);
}

static __always_inline struct task_state *traced_current(void)
{
    return traced(bpf_get_current_task_btf());
}

static void find_out(struct task_state *state, struct task_struct *task);

/* To be called before what is known of the running call is used; `task` is on its CPU. */
static __always_inline void see(struct task_state *state, struct task_struct *task)
{
    if (attaching && state->nr == NR_UNSEEN)
        find_out(state, task);
}
