/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Stacks of traced threads, only with --stacks: where threads go to sleep, and where the CPU clock
 * finds them.
 *
 * The record contains the addresses. A BPF_MAP_TYPE_STACK_TRACE would send less, but loses or
 * overwrites stacks whose hashes collide, holds memory for its worst case, and its user addresses
 * would have to be separated by process afterwards. A ring counts what it loses, and compression
 * removes repetitions on the way to disk.
 */
#include "stacks.h"

const volatile u8 stack_states = 0;

/* The bytes that bpf_get_stack() returned: 0 also if it failed, as for a thread without that kind
 * of stack. */
static __always_inline u64 bytes_got(long got, long room)
{
    return got > 0 && got <= room ? got : 0;
}

/*
 * The record is built on the program's stack and not in the ring, because its length is known only
 * when it is there. Not inlined: its callers do not have so much room beside their other calls.
 */
__hidden __noinline void take_stack(void *ctx, u32 tid, u64 now_ns)
{
    struct rec_stack r = {
        .hdr = {.ts_ns = now_ns, .tid = tid, .kind = REC_STACK},
    };
    u64 bytes = bytes_got(bpf_get_stack(ctx, r.frames, sizeof(r.frames), 0), sizeof(r.frames));
    r.hdr.aux = bytes / sizeof(u64);
    output_record(&r, __builtin_offsetof(struct rec_stack, frames) + bytes, now_ns);
}

/* Too large for a program's stack. Samples do not nest: each is taken in a hard interrupt. */
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct rec_sample);
} sample_being_taken SEC(".maps");

SEC("perf_event")
int on_cpu_clock(struct bpf_perf_event_data *ctx)
{
    struct task_struct *task = bpf_get_current_task_btf();
    u64 cpu = this_cpu();
    u32 zero = 0;
    if (!traced_current())
        return 0;
    struct rec_sample *r = bpf_map_lookup_elem(&sample_being_taken, &zero);
    if (!r)
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    r->hdr = (struct rec_hdr){.ts_ns = now_ns, .tid = task->pid, .kind = REC_SAMPLE};
    /* The sample shows what the clock's interrupt interrupted. */
    r->interrupted_ns = irqs[cpu].hard_ns ? irqs[cpu].hard_ns : now_ns;

    const u64 kernel_room = KERNEL_FRAMES * sizeof(u64), user_room = USER_FRAMES * sizeof(u64);
    u64 kernel_bytes = bytes_got(bpf_get_stack(ctx, r->frames, kernel_room, 0), kernel_room);
    void *user = (void *)r->frames + kernel_bytes;
    u64 user_bytes = bytes_got(bpf_get_stack(ctx, user, user_room, BPF_F_USER_STACK), user_room);
    r->kernel_frames = kernel_bytes / sizeof(u64);
    r->user_frames = user_bytes / sizeof(u64);
    output_record(r, __builtin_offsetof(struct rec_sample, frames) + kernel_bytes + user_bytes,
                  now_ns);
    return 0;
}
