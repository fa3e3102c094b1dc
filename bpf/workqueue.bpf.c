/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Work that traced threads queue for the kernel's workers (kernel/workqueue.c). A thread that a
 * worker wakes was woken by the worker's present work, which some thread had queued.
 */
#include "probe.h"

struct queued_work {
    u64 queued_ns;
    u64 started_ns;
    u64 work;
    u32 tid; /* the thread that queued it */
    u32 pad;
};

/* By work item, until a worker starts it. LRU: cancelled items are evicted. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u64);
    __type(value, struct queued_work);
} queued_works SEC(".maps");

/* By worker, while it executes one. */
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, u32);
    __type(value, struct queued_work);
} running_works SEC(".maps");

SEC("tp_btf/workqueue_queue_work")
int HOOK(on_workqueue_queue_work, int req_cpu, void *pwq, void *item)
{
    struct task_struct *task = bpf_get_current_task_btf();
    u64 key = (u64)item;
    /* An interrupt queues work for the thread that it serves, not for the thread that it
     * interrupts. Nor does the item then belong to a thread that queued it before and cancelled
     * it. */
    if (!traced_current() || interrupt_context()) {
        DROP(TABLE_QUEUED_WORKS, &queued_works, &key);
        return 0;
    }
    struct queued_work work = {.queued_ns = bpf_ktime_get_ns(), .work = key, .tid = task->pid};
    PUT(TABLE_QUEUED_WORKS, &queued_works, &key, &work);
    return 0;
}

SEC("tp_btf/workqueue_execute_start")
int HOOK(on_workqueue_execute_start, void *item)
{
    u64 key = (u64)item;
    struct queued_work *queued = bpf_map_lookup_elem(&queued_works, &key);
    if (!queued)
        return 0;
    struct queued_work work = *queued;
    work.started_ns = bpf_ktime_get_ns();
    DROP(TABLE_QUEUED_WORKS, &queued_works, &key);
    u32 tid = bpf_get_current_task_btf()->pid;
    PUT(TABLE_RUNNING_WORKS, &running_works, &tid, &work);
    return 0;
}

SEC("tp_btf/workqueue_execute_end")
int HOOK(on_workqueue_execute_end, void *item)
{
    u32 tid = bpf_get_current_task_btf()->pid;
    struct queued_work *running = bpf_map_lookup_elem(&running_works, &tid);
    if (!running || running->work != (u64)item)
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    emit (rec_work, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .tid = tid, .kind = REC_WORK};
        r->queued_ns = running->queued_ns;
        r->started_ns = running->started_ns;
        r->queuer_tid = running->tid;
        r->pad = 0;
    }
    DROP(TABLE_RUNNING_WORKS, &running_works, &tid);
    return 0;
}
