/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Futexes in memory that processes share. A word has the same name in all of them: the file in
 * which it lies (shared memory without a named file has one, too) and its offset there.
 */
#include "shared_words.h"

#define VM_SHARED 8 /* include/linux/mm.h */

#define EAGAIN 11 /* include/uapi/asm-generic/errno-base.h */
#define EBUSY 16

/* include/uapi/linux/futex.h */
#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAKE_BITSET 10
#define FUTEX_CLOCK_REALTIME 256

static long name_word(struct task_struct *task, struct vm_area_struct *vma,
                      struct shared_word *word)
{
    struct file *file = vma->vm_file;
    if (!(vma->vm_flags & VM_SHARED) || !file)
        return 0;
    struct inode *inode = file->f_inode;
    word->ino = inode->i_ino;
    word->dev = inode->i_sb->s_dev;
    word->offset = (vma->vm_pgoff << PAGE_SHIFT) + (word->address - vma->vm_start);
    return 0;
}

/* Whether a call wakes up threads that wait for such a word (1), or waits itself (0); -1:
 * neither. */
static __always_inline int wakes_sharers(u32 operation)
{
    switch (operation & ~FUTEX_CLOCK_REALTIME) {
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET:
        return 1;
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
        return 0;
    default: /* FUTEX_PRIVATE_FLAG is set, or it is a lock */
        return -1;
    }
}

__hidden __noinline void emit_shared_word(const struct rec_syscall *sys, struct task_state *state)
{
    int wakes = wakes_sharers(state->dev);
    if (wakes < 0 || (sys->ret < 0 && sys->ret != -EAGAIN))
        return;
    struct task_struct *task = bpf_get_current_task_btf();
    struct shared_word word = {.address = state->ino};
    /* A thread that is changing mappings right now keeps us out (EBUSY). The last known name of the
     * same address is used then: no thread can have changed this mapping for good while we were in
     * the call. */
    if (bpf_find_vma(task, word.address, name_word, &word, 0) == -EBUSY)
        word = state->word.address == word.address ? state->word : word;
    if (!word.ino)
        return;
    state->word = word;
    emit (rec_transfer, r, sys->hdr.ts_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = sys->hdr.ts_ns,
            .tid = sys->hdr.tid,
            .kind = REC_TRANSFER,
            .flags = wakes ? SYSCALL_WRITE : 0,
        };
        r->channel = word.ino;
        r->reverse = word.offset;
        r->end = 0;
        r->bytes = 0;
        r->dev = word.dev;
        r->fd = state->fd;
        r->object_type = OBJECT_SHARED_WORD;
        r->held = HELD_NOT;
    }
}
