/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Birth, names and death of all tasks of the machine, so that every tid has a name. */
#include "probe.h"
#include "syscall_numbers.h"

/* Runs before the child's first instruction (copy_process() has not made it visible to the
 * scheduler yet), so nothing of a traced child escapes. */
SEC("tp_btf/sched_process_fork")
int HOOK(on_sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct task_state *state = traced_state(parent);
    u8 flags = child->tgid == child->pid ? 0 : TASK_THREAD;
    u64 enter_ns = 0;
    if (state) {
        ensure_call_known(state);
        enter_ns = state->enter_ns;
        /* The child returns from its parent's clone(): its first system call exit has no entry. */
        if (begin_tracing(child, NR_clone, now_ns))
            flags |= TASK_TRACED;
        else
            note_loss(now_ns); /* the child's records will be missing */
    }
    if (child->flags & PF_KTHREAD)
        flags |= TASK_KTHREAD;
    emit (rec_fork, r, now_ns) {
        r->hdr =
            (struct rec_hdr){.ts_ns = now_ns, .tid = parent->pid, .kind = REC_FORK, .flags = flags};
        r->child_tid = child->pid;
        r->child_tgid = child->tgid;
        r->enter_ns = enter_ns;
        __builtin_memcpy(r->comm, child->comm, COMM_BYTES);
    }
    return 0;
}

SEC("tp_btf/sched_process_exec")
int HOOK(on_sched_process_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
    u64 now_ns = bpf_ktime_get_ns();
    if (task->pid != old_pid)
        forget_cpu_tasks(); /* the thread took over the number of its process (de_thread()) */
    bool is_traced = traced_current() != 0;
    /* On the stack: a program may be preempted, so another program might use per-CPU memory
     * meanwhile. */
    struct rec_exec r = {
        .hdr = {.ts_ns = now_ns,
                .tid = task->pid,
                .kind = REC_EXEC,
                .flags = is_traced ? TASK_TRACED : 0},
        .old_tid = old_pid,
    };
    __builtin_memcpy(r.comm, task->comm, COMM_BYTES);

    long path_bytes = 0;
    if (is_traced) {
        /* The auxiliary vector that the ELF loader gave the new program (create_elf_tables()). */
        struct mm_struct *mm = task->mm;
        if (mm) {
            const int words = bpf_core_field_size(mm->saved_auxv) / sizeof(long);
            for (int i = 0; i < 50 && i + 1 < words; i += 2) {
                unsigned long key = mm->saved_auxv[i], value = mm->saved_auxv[i + 1];
                if (key == AT_NULL)
                    break;
                if (key == AT_ENTRY)
                    r.entry = value;
                if (key == AT_BASE)
                    r.interp_base = value;
            }
        }
        if (keep_paths)
            path_bytes = bpf_probe_read_kernel_str(r.path, PATH_BYTES, bprm->filename);
    }
    if (path_bytes < 0 || path_bytes > PATH_BYTES)
        path_bytes = 0;
    r.path_bytes = path_bytes;
    output_record(&r, __builtin_offsetof(struct rec_exec, path) + path_bytes, now_ns);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int HOOK(on_sched_process_exit, struct task_struct *task)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct task_state *state = traced_state(task);
    if (state)
        ensure_call_known(state);
    if (state && state->enter_ns) {
        /* exit_group(), or a call that a fatal signal ended: its exit hook never runs. */
        emit (rec_syscall, r, now_ns) {
            r->hdr = (struct rec_hdr){.ts_ns = now_ns,
                                      .tid = task->pid,
                                      .kind = REC_SYSCALL,
                                      .flags = SYSCALL_UNFINISHED,
                                      .aux = state->nr};
            r->enter_ns = state->enter_ns;
            r->ret = 0;
        }
        state->fault_ns = 0;
    }
    emit (rec_exit, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns, .tid = task->pid, .kind = REC_EXIT, .flags = state ? TASK_TRACED : 0};
        r->tgid = task->tgid;
        r->exit_code = task->exit_code;
    }
    return 0;
}

/* The last event of a thread. */
SEC("tp_btf/sched_process_free")
int HOOK(on_sched_process_free, struct task_struct *task)
{
    end_tracing(task);
    return 0;
}

SEC("tp_btf/task_rename")
int HOOK(on_task_rename, struct task_struct *task, const char *comm)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct task_struct *current = bpf_get_current_task_btf();
    emit (rec_rename, r, now_ns) {
        r->hdr = (struct rec_hdr){.ts_ns = now_ns, .tid = current->pid, .kind = REC_RENAME};
        r->subject_tid = task->pid;
        r->pad = 0;
        bpf_probe_read_kernel_str(r->comm, COMM_BYTES, comm);
    }
    return 0;
}
