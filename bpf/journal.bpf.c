/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Phases of jbd2 commits (fs/jbd2/commit.c) of the whole machine. */
#include "probe.h"

static __always_inline int journal_phase(struct journal_s *journal, u32 transaction, u16 phase)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct block_device *device = journal->j_fs_dev;
    emit (rec_journal, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns,
            .tid = (u32)bpf_get_current_pid_tgid(),
            .kind = REC_JOURNAL,
            .aux = phase,
        };
        r->transaction = transaction;
        r->dev = device ? device->bd_dev : 0;
    }
    return 0;
}

/* A thread that needs room in the log writes the oldest transactions' buffers to their places
 * itself, in jbd2_log_do_checkpoint() (fs/jbd2/checkpoint.c). */
SEC("tp_btf/jbd2_checkpoint")
int HOOK(on_jbd2_checkpoint, struct journal_s *journal, int result)
{
    if (!journal || !traced_current())
        return 0;
    return journal_phase(journal, 0, JOURNAL_CHECKPOINT);
}

/* If jbd2 is a module, the verifier treats its pointers as possibly null. */
#define PHASE(name, phase)                                                                         \
    SEC("tp_btf/jbd2_" #name)                                                                      \
    int HOOK(on_jbd2_##name, struct journal_s *journal, struct transaction_s *transaction)         \
    {                                                                                              \
        if (!journal || !transaction)                                                              \
            return 0;                                                                              \
        return journal_phase(journal, transaction->t_tid, phase);                                  \
    }

PHASE(start_commit, JOURNAL_START)
PHASE(commit_locking, JOURNAL_LOCKING)
PHASE(commit_flushing, JOURNAL_FLUSHING)
PHASE(commit_logging, JOURNAL_LOGGING)
PHASE(end_commit, JOURNAL_END)
