/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Direct hooks: kernel functions that traced threads execute in their system calls, recorded from
 * entry to return. Each function has two pairs of programs, for fentry with fexit and for kprobe
 * with kretprobe; user space loads one of them, or none, and sets the function's name on this
 * kernel (userspace/src/probe/direct.rs).
 */
#pragma once
#include "missed_switches.h"

/* A thread is in one function of each sort at a time; nested functions of the same sort are not
 * recorded. */
enum direct_sort { DIRECT_COPY, DIRECT_WAIT, DIRECT_TRANSPORT, DIRECT_SORTS };

struct direct_run {
    u64 began_ns; /* 0: in none */
    u64 call_ns;  /* entry of the system call it began in; another call: its end was missed */
    u64 inside;   /* number of nested functions of the same sort under way */
    u64 number;
    u64 slept; /* the thread's count of sleeps at entry */
};

struct direct_runs {
    struct direct_run of[DIRECT_SORTS];
};

extern struct direct_tasks_map {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct direct_runs);
} direct_tasks SEC(".maps");

/* Returns the state of a traced thread in a system call; NULL also in interrupts, which are not the
 * thread's own work. */
static __always_inline struct direct_run *
direct_run(struct task_struct *task, struct task_state *state, enum direct_sort sort, u64 flags)
{
    if (irqs[this_cpu()].context || !state || !state->enter_ns)
        return 0;
    struct direct_runs *runs = bpf_task_storage_get(&direct_tasks, task, 0, flags);
    return runs ? &runs->of[sort] : 0;
}

static __always_inline int direct_begins(enum direct_sort sort, u64 number)
{
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_state *state = traced_running(task);
    struct direct_run *run = direct_run(task, state, sort, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (!run)
        return 0;
    if (run->began_ns && run->call_ns == state->enter_ns) {
        run->inside++;
        return 0;
    }
    run->inside = 0;
    run->number = number;
    run->slept = task->nvcsw;
    run->call_ns = state->enter_ns;
    run->began_ns = bpf_ktime_get_ns(); /* last, so that this program's own time is not included */
    return 0;
}

/* `number`: 0 stands for the number noted at entry. */
static __always_inline int direct_ends(enum direct_sort sort, enum function function, u64 number)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct task_struct *task = bpf_get_current_task_btf();
    struct task_state *state = traced_running(task);
    struct direct_run *run = direct_run(task, state, sort, 0);
    if (!run || !run->began_ns || run->call_ns != state->enter_ns)
        return 0;
    if (run->inside) {
        run->inside--;
        return 0;
    }
    u64 began_ns = run->began_ns;
    run->began_ns = 0;
    if (sort == DIRECT_WAIT && run->slept == task->nvcsw)
        return 0; /* it did not have to wait */
    on_its_cpu(task, state, now_ns);
    emit (rec_function, r, now_ns) {
        r->hdr = (struct rec_hdr){
            .ts_ns = now_ns,
            .tid = task->pid,
            .kind = REC_FUNCTION,
            .aux = function,
        };
        r->enter_ns = began_ns;
        r->number = number ? number : run->number;
    }
    return 0;
}

static __always_inline u64 result_of_function(void *ctx)
{
    u64 result = 0;
    bpf_get_func_ret(ctx, &result);
    return result;
}

/*
 * The programs of a function. `begin` and `end` say which number to record, as one of DIRECT_*:
 * taken from the function's arguments at its entry, or from its result at its return.
 */
#define DIRECT_NOTHING(how) 0
#define DIRECT_ARG_2(how) DIRECT_ARG_2_##how
#define DIRECT_ARG_2_TRAMPOLINE ctx[1]
#define DIRECT_ARG_2_BREAKPOINT FUNCTION_ARG_2((struct pt_regs *)ctx)
#define DIRECT_ARG_4(how) DIRECT_ARG_4_##how
#define DIRECT_ARG_4_TRAMPOLINE (u32) ctx[3]
#define DIRECT_ARG_4_BREAKPOINT (u32) FUNCTION_ARG_4((struct pt_regs *)ctx)
#define DIRECT_RESULT(how) DIRECT_RESULT_##how
#define DIRECT_RESULT_TRAMPOLINE result_of_function(ctx)
#define DIRECT_RESULT_BREAKPOINT FUNCTION_RESULT((struct pt_regs *)ctx)

#define DIRECT(name, sort, function, begin, end)                                                   \
    SEC("fentry") int HOOK(fentry_##name)                                                          \
    {                                                                                              \
        return direct_begins(sort, begin(TRAMPOLINE));                                             \
    }                                                                                              \
    SEC("fexit") int HOOK(fexit_##name)                                                            \
    {                                                                                              \
        return direct_ends(sort, function, end(TRAMPOLINE));                                       \
    }                                                                                              \
    SEC("kprobe") int HOOK(kprobe_##name)                                                          \
    {                                                                                              \
        return direct_begins(sort, begin(BREAKPOINT));                                             \
    }                                                                                              \
    SEC("kretprobe") int HOOK(kretprobe_##name)                                                    \
    {                                                                                              \
        return direct_ends(sort, function, end(BREAKPOINT));                                       \
    }
