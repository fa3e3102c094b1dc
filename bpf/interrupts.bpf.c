/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Hard and soft interrupts that take time from a traced thread: one record each, at the end. */
#include "steal.h"

/* hdr.aux of vectors that have no IRQ number: 256 and up, cf. arch/x86/include/asm/irq_vectors.h */
enum vector { VEC_TIMER = 256, VEC_RESCHEDULE, VEC_CALL_FUNCTION, VEC_IRQ_WORK };

static __always_inline int irq_begins(bool hard)
{
    struct irq_state *irq = &irqs[this_cpu()];
    u64 now_ns = 0;
    if (traced_current())
        now_ns = bpf_ktime_get_ns();
    if (hard) {
        irq->hard_ns = now_ns;
        irq->context |= WAKING_HARDIRQ;
    } else {
        irq->soft_ns = now_ns;
        irq->context |= WAKING_SOFTIRQ;
    }
    return 0;
}

static __always_inline int irq_ends(bool hard, u16 number)
{
    struct irq_state *irq = &irqs[this_cpu()];
    u64 enter_ns = hard ? irq->hard_ns : irq->soft_ns;
    if (hard) {
        irq->hard_ns = 0;
        irq->context &= ~WAKING_HARDIRQ;
        irq->hard_block = 0;
    } else {
        irq->soft_ns = 0;
        irq->context &= ~WAKING_SOFTIRQ;
        irq->soft_block = 0;
    }
    if (!enter_ns)
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    emit (rec_irq, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns,
            .tid = (u32)bpf_get_current_pid_tgid(),
            .kind = REC_IRQ,
            .flags = hard ? IRQ_HARD : 0,
            .aux = number,
        };
        r->enter_ns = enter_ns;
    }
    return 0;
}

SEC("tp_btf/softirq_entry")
int HOOK(on_softirq_entry, unsigned int vec)
{
    return irq_begins(false);
}

SEC("tp_btf/softirq_exit")
int HOOK(on_softirq_exit, unsigned int vec)
{
    return irq_ends(false, vec);
}

SEC("tp_btf/irq_handler_entry")
int HOOK(on_irq_handler_entry, int irq)
{
    return irq_begins(true);
}

SEC("tp_btf/irq_handler_exit")
int HOOK(on_irq_handler_exit, int irq)
{
    return irq_ends(true, irq);
}

#define VECTOR(name, number)                                                                       \
    SEC("tp_btf/" #name "_entry") int HOOK(on_##name##_entry, int vector)                          \
    {                                                                                              \
        return irq_begins(true);                                                                   \
    }                                                                                              \
    SEC("tp_btf/" #name "_exit") int HOOK(on_##name##_exit, int vector)                            \
    {                                                                                              \
        return irq_ends(true, number);                                                             \
    }

SEC("tp_btf/local_timer_entry")
int HOOK(on_local_timer_entry, int vector)
{
    steals[this_cpu()].timer_ns = bpf_ktime_get_ns();
    return irq_begins(true);
}

SEC("tp_btf/local_timer_exit")
int HOOK(on_local_timer_exit, int vector)
{
    u64 timer_ns = steals[this_cpu()].timer_ns;
    look_for_steal(bpf_get_current_task_btf(), timer_ns, bpf_ktime_get_ns());
    return irq_ends(true, VEC_TIMER);
}

VECTOR(reschedule, VEC_RESCHEDULE)
VECTOR(call_function, VEC_CALL_FUNCTION)
VECTOR(call_function_single, VEC_CALL_FUNCTION)
VECTOR(irq_work, VEC_IRQ_WORK)
