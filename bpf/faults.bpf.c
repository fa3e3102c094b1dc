/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Page faults of traced threads. The exception tracepoints mark the beginning. No tracepoint marks
 * the end, but mm_account_fault() (mm/memory.c) raises a software perf event when handle_mm_fault()
 * has done its work: with period 1, this event marks the end of the fault, except for the return to
 * user mode.
 */
#include "missed_switches.h"

static __always_inline int fault_begins(unsigned long address, struct pt_regs *regs, u32 flags)
{
    struct task_state *state = traced_current();
    /* A fault at a kernel address has no end event below. */
    if (!state || (s64)address < 0)
        return 0;
    state->fault_address = address;
    state->fault_ip = flags & FAULT_KERNEL ? 0 : USER_ADDRESS(regs);
    state->fault_flags = flags;
    state->fault_ns = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_page_fault_user, unsigned long address, struct pt_regs *regs,
             unsigned long error_code)
{
    return fault_begins(address, regs, 0);
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(on_page_fault_kernel, unsigned long address, struct pt_regs *regs,
             unsigned long error_code)
{
    return fault_begins(address, regs, FAULT_KERNEL);
}

static __always_inline int fault_ends(u32 flags)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_state *state = traced_running(task);
    if (!state || !state->fault_ns)
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    on_its_cpu(task, state, now_ns);
    emit (rec_fault, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns,
                                  .tid = task->pid,
                                  .kind = REC_FAULT,
                                  .flags = flags | state->fault_flags};
        r->enter_ns = state->fault_ns;
        r->address = state->fault_address;
        r->ip = state->fault_ip;
    }
    state->fault_ns = 0;
    return 0;
}

SEC("perf_event")
int on_minor_fault_end(struct bpf_perf_event_data *ctx)
{
    return fault_ends(0);
}

SEC("perf_event")
int on_major_fault_end(struct bpf_perf_event_data *ctx)
{
    return fault_ends(FAULT_MAJOR);
}
