/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Throttling of threads that dirty pages faster than they can be written (mm/page-writeback.c). */
#include "probe.h"

SEC("tp_btf/balance_dirty_pages")
int HOOK(on_balance_dirty_pages)
{
    struct task_struct *task = bpf_get_current_task_btf();
    if (!traced_current())
        return 0;
    u64 now_ns = bpf_ktime_get_ns();
    emit (rec_throttle, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .tid = task->pid, .kind = REC_THROTTLE};
    }
    return 0;
}
