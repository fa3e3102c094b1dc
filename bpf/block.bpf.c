/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Block requests of the whole machine: one record each, sent at completion. A thread that waits for
 * a request is woken during its completion, in the context of whatever the interrupt hit. The
 * request's number connects the two: it is kept per CPU during the completion and copied into the
 * wake-up's record.
 */
#include "probe.h"

struct block_times {
    u64 queued_ns;
    u64 issued_ns;
    u64 tid;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, u64);
    __type(value, struct block_times);
} requests_in_flight SEC(".maps");

static u32 last_block;

SEC("tp_btf/block_rq_insert")
int HOOK(on_block_rq_insert, struct request *rq)
{
    u64 key = (u64)rq;
    struct block_times times = {
        .queued_ns = bpf_ktime_get_ns(),
        .tid = (u32)bpf_get_current_pid_tgid(),
    };
    /* Keeps an older entry: a requeued request has waited since its first insertion. */
    ADD(TABLE_BLOCKS, &requests_in_flight, &key, &times);
    return 0;
}

SEC("tp_btf/block_rq_issue")
int HOOK(on_block_rq_issue, struct request *rq)
{
    u64 key = (u64)rq, now_ns = bpf_ktime_get_ns();
    struct block_times *known = bpf_map_lookup_elem(&requests_in_flight, &key);
    if (known) {
        known->issued_ns = now_ns;
        return 0;
    }
    /* The request bypassed the I/O scheduler. It exists since start_time_ns, if the queue keeps
     * that time. */
    u64 start_ns = rq->start_time_ns;
    struct block_times times = {
        .queued_ns = start_ns && start_ns < now_ns ? start_ns : now_ns,
        .issued_ns = now_ns,
        .tid = (u32)bpf_get_current_pid_tgid(),
    };
    PUT(TABLE_BLOCKS, &requests_in_flight, &key, &times);
    return 0;
}

SEC("tp_btf/block_rq_complete")
int HOOK(on_block_rq_complete, struct request *rq, int error, unsigned int bytes)
{
    u64 key = (u64)rq, now_ns = bpf_ktime_get_ns();
    struct block_times times = {.tid = (u32)bpf_get_current_pid_tgid()};
    struct block_times *known = bpf_map_lookup_elem(&requests_in_flight, &key);
    if (known)
        times = *known;
    /* A flush request is never issued itself: the queue issues a single flush of its own for all
     * flush requests that wait. */
    if (!times.queued_ns)
        times.queued_ns = rq->start_time_ns ? rq->start_time_ns : now_ns;
    if (!times.issued_ns)
        times.issued_ns = times.queued_ns;
    u32 number = __sync_fetch_and_add(&last_block, 1) + 1;
    completes_block(number);
    struct gendisk *disk = rq->q->disk;
    emit (rec_block, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns,
            .tid = times.tid,
            .kind = REC_BLOCK,
            .aux = rq->cmd_flags & 0xff,
        };
        r->queued_ns = times.queued_ns;
        r->issued_ns = times.issued_ns;
        r->sector = rq->__sector;
        r->bytes = bytes;
        r->dev = disk ? disk->major << 20 | disk->first_minor : 0;
        r->number = number;
        r->op_flags = rq->cmd_flags;
    }
    if (known && bytes >= rq->__data_len)
        DROP(TABLE_BLOCKS, &requests_in_flight, &key);
    return 0;
}

/* The request was merged into a neighbour that was queued earlier; its memory is free again. */
SEC("tp_btf/block_rq_merge")
int HOOK(on_block_rq_merge, struct request *rq)
{
    u64 key = (u64)rq;
    DROP(TABLE_BLOCKS, &requests_in_flight, &key);
    return 0;
}

/* All waiters of the request have been woken. */
SEC("tp_btf/block_io_done")
int HOOK(on_block_io_done, struct request *rq)
{
    completes_block(0);
    return 0;
}
