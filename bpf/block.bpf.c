/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Block requests, the whole machine's: one record each, at the completion. A thread that waits for
 * one is woken while it completes, by whomever the interrupt hits; the number of the request, kept
 * per CPU meanwhile and copied into the wake-up's record, is what connects the two.
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
    /* Not over an older entry: a requeued request has waited since its first insertion. */
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
    /* Went past the I/O scheduler; it exists since start_time_ns, where the queue keeps that. */
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
    /* A flush is never issued itself: the queue issues one of its own for all that wait for it. */
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

/* What it carried is carried by its neighbour, which was queued before; its memory is free again.
 */
SEC("tp_btf/block_rq_merge")
int HOOK(on_block_rq_merge, struct request *rq)
{
    u64 key = (u64)rq;
    DROP(TABLE_BLOCKS, &requests_in_flight, &key);
    return 0;
}

/* The request's waiters have all been told. */
SEC("tp_btf/block_io_done")
int HOOK(on_block_io_done, struct request *rq)
{
    completes_block(0);
    return 0;
}
