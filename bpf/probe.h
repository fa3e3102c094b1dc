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
#include "tasks.h"
#include "cost.h"
/* clang-format on */

/* Options, set before load. */
extern const volatile bool scope_target; /* scheduler records of traced threads only */
extern const volatile bool keep_paths;
extern const volatile bool keep_methods;
extern const volatile bool attaching; /* threads and channels may be older than the capture */

/*
 * Reads a field of a kernel structure at an address unknown to the verifier: by a plain load where
 * the kernel allows it, because the helper takes many times as long. A field that cannot be read is
 * 0.
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

/*
 * Interrupts now served on a CPU. `context` says which (WAKING_*); kept by our own hooks, because
 * the kernel's preemption count is a per-CPU variable programs cannot address on kernels without
 * CONFIG_KALLSYMS_ALL. The times are 0 when the interrupt takes no time from a traced thread. Hard
 * interrupts do not nest in one another; a hard interrupt may interrupt a softirq.
 */
struct irq_state {
    u64 soft_ns;
    u64 hard_ns;
    u64 context;
    /* rec_block.number of the request whose waiters are being woken: by a hard interrupt, by a
     * softirq, by a task; each may be interrupted by the one before */
    u32 hard_block;
    u32 soft_block;
    u64 block;
    u64 pad[3]; /* a cache line each */
};
extern struct irq_state irqs[MAX_CPUS];

static __always_inline u8 interrupt_context(void)
{
    return irqs[this_cpu()].context;
}

static __always_inline u32 completing_block(void)
{
    struct irq_state *irq = &irqs[this_cpu()];
    if (irq->context & WAKING_HARDIRQ)
        return irq->hard_block;
    return irq->context & WAKING_SOFTIRQ ? irq->soft_block : irq->block;
}

static __always_inline void completes_block(u32 number)
{
    struct irq_state *irq = &irqs[this_cpu()];
    if (irq->context & WAKING_HARDIRQ)
        irq->hard_block = number;
    else if (irq->context & WAKING_SOFTIRQ)
        irq->soft_block = number;
    else
        irq->block = number;
}

/*
 * Determines the system call of the running thread from its registers. Hidden, like all functions
 * that one file defines and others call: the kernel then treats them as functions of each calling
 * program, and verifies them with its arguments instead of on their own.
 */
__hidden void find_out(struct task_state *state);

/* To be called before using what is known of the running thread's call. */
static __always_inline void ensure_call_known(struct task_state *state)
{
    if (attaching && state->nr == NR_UNSEEN)
        find_out(state);
}
