/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * On-CPU time of each thread of the machine: as the scheduler charges it, and between the hooks of
 * the two switches.
 */
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>
#include "clock.h"

#define MOST_THREADS 16384

/* The fields of the kernel's structures that are read here. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct rq {
    __u64 clock;
};
struct cfs_rq {
    struct rq *rq;
};
struct sched_entity {
    struct cfs_rq *cfs_rq;
    __u64 sum_exec_runtime;
};
struct task_struct {
    int pid, tgid;
    struct sched_entity se;
};
#pragma clang attribute pop

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, MOST_THREADS);
    __type(key, __u32);
    __type(value, struct account);
} accounts SEC(".maps");

static struct account *account_of(struct task_struct *task)
{
    __u32 tid = task->pid;
    struct account *of = bpf_map_lookup_elem(&accounts, &tid);
    if (of || !tid)
        return of;
    struct account new = {.pid = task->tgid};
    bpf_map_update_elem(&accounts, &tid, &new, BPF_NOEXIST);
    return bpf_map_lookup_elem(&accounts, &tid);
}

/* Time since the wake-up of `task` if the clock has not been read since then, else 0. */
static __u64 unread_ns(const struct account *task, __u64 clock_ns, __u64 now_ns)
{
    return task && task->clock_when_woken_ns == clock_ns ? now_ns - task->woken_ns : 0;
}

/* Counts the time charged since the thread's last seen switch, if that switch did not give it the
 * CPU. */
static void count_unseen(struct account *of, __u64 charged_ns)
{
    if (of->last_charged_ns && !of->came_ns)
        of->unseen_ns += charged_ns - of->last_charged_ns;
}

/* By then, __schedule() (kernel/sched/core.c) has charged `prev`. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
    __u64 now_ns = bpf_ktime_get_ns();
    struct account *left = account_of(prev), *came = account_of(next);
    __u64 not_read_ns = unread_ns(came, prev->se.cfs_rq->rq->clock, now_ns);
    if (left)
        count_unseen(left, prev->se.sum_exec_runtime);
    if (left && left->came_ns) {
        __u32 before = left->unread_before_ns ? NOT_READ_BEFORE : 0;
        struct stints *of = &left->kinds[before | (not_read_ns ? NOT_READ_AT_END : 0)];
        of->count++;
        of->charged_ns += prev->se.sum_exec_runtime - left->charged_before_ns;
        of->hook_ns += now_ns - left->came_ns;
        of->unread_before_ns += left->unread_before_ns;
        of->unread_at_end_ns += not_read_ns;
        left->came_ns = 0;
    }
    if (left)
        left->last_charged_ns = prev->se.sum_exec_runtime;
    if (came) {
        /* If still set, a switch away from the thread was not seen. */
        came->came_ns = 0;
        count_unseen(came, next->se.sum_exec_runtime);
        came->last_charged_ns = next->se.sum_exec_runtime;
        came->unread_before_ns = not_read_ns;
        came->clock_when_woken_ns = 0;
        came->charged_before_ns = next->se.sum_exec_runtime;
        came->came_ns = now_ns;
    }
    return 0;
}

/* By then, the thread is on the run queue, whose clock was read to enqueue it. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
    struct account *woken = account_of(task);
    if (woken) {
        woken->woken_ns = bpf_ktime_get_ns();
        woken->clock_when_woken_ns = task->se.cfs_rq->rq->clock;
    }
    return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
