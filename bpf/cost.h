/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the programs themselves take, found out while they run: how often each CPU ran one, and how
 * long some of the runs took. Which ones are timed goes by the last digits of the clock, so that no
 * regular sequence of events is met at always the same place.
 */
#pragma once
#include "tasks.h"
#include <bpf/bpf_tracing.h>

struct cpu_cost {
    u64 left;        /* runs until one is timed */
    u64 runs[2];     /* in other threads' time, in traced threads' */
    u64 breakpoints; /* of the latter those that a breakpoint in the thread's own program caused */
    u64 watchpoints; /* and those that the thread caused by writing a word that is watched */
    u64 pad[3];
    u64 timed[2]; /* runs */
    u64 timed_ns[2];
    u64 clock_ns[2]; /* what reading the clock takes of that */
    u64 more_pad[2];
};
extern struct cpu_cost cpu_costs[MAX_CPUS];

/* Between two runs that are timed: so many, and up to as many more. */
#define LEAST_UNTIMED 64

/* To be called in a program that a breakpoint in a program of user space causes. */
static __always_inline void count_breakpoint(void)
{
    u64 cpu = this_cpu();
    if (cpu_tasks[cpu].word & INDEX_MASK)
        cpu_costs[cpu].breakpoints++;
}

/* To be called in a program that a watchpoint causes. */
static __always_inline void count_watchpoint(void)
{
    u64 cpu = this_cpu();
    if (cpu_tasks[cpu].word & INDEX_MASK)
        cpu_costs[cpu].watchpoints++;
}

/* When the run begins; 0: it is not timed. */
static __always_inline u64 program_begins(void)
{
    struct cpu_cost *cost = &cpu_costs[this_cpu()];
    if (cost->left) {
        cost->left--;
        return 0;
    }
    u64 now_ns = bpf_ktime_get_ns();
    cost->left = LEAST_UNTIMED + now_ns % LEAST_UNTIMED;
    return now_ns;
}

static __always_inline void program_ends(u64 began_ns)
{
    u64 cpu = this_cpu();
    struct cpu_cost *cost = &cpu_costs[cpu];
    /* At a context switch: of who goes on. */
    u32 whose = (cpu_tasks[cpu].word & INDEX_MASK) != 0;
    cost->runs[whose]++;
    if (!began_ns)
        return;
    u64 ended_ns = bpf_ktime_get_ns();
    cost->timed[whose]++;
    cost->timed_ns[whose] += ended_ns - began_ns;
    cost->clock_ns[whose] += bpf_ktime_get_ns() - ended_ns;
}

/*
 * A program on a tracepoint, with named arguments: SEC("tp_btf/...") int HOOK(name, type argument,
 * ...) { body }. As BPF_PROG() of bpf_tracing.h, and its runs are counted, wherever the body
 * returns: it is a function of its own. Of what the macro adds the body sees `ctx`, all arguments
 * as they came, and nothing else; so no argument may have that name.
 */
#define HOOK(name, args...)                                                                        \
    name(unsigned long long *ctx);                                                                 \
    static __always_inline int run_##name(unsigned long long *ctx, ##args);                        \
    int name(unsigned long long *ctx)                                                              \
    {                                                                                              \
        u64 began_ns = program_begins();                                                           \
        _Pragma("GCC diagnostic push")                                                             \
            _Pragma("GCC diagnostic ignored \"-Wint-conversion\"") int result =                    \
                run_##name(___bpf_ctx_cast(args));                                                 \
        _Pragma("GCC diagnostic pop") program_ends(began_ns);                                      \
        return result;                                                                             \
    }                                                                                              \
    static __always_inline int run_##name(unsigned long long *ctx, ##args)
