/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Cost of the programs themselves, measured while they run: how often each CPU ran a program, and
 * how long some of the runs took. The low digits of the clock select the timed runs, so that a
 * regular sequence of events is not always timed at the same point.
 */
#pragma once
#include "tasks.h"
#include <bpf/bpf_tracing.h>

struct cpu_cost {
    u64 left;        /* runs until one is timed */
    u64 runs[2];     /* in other threads' time, in traced threads' */
    u64 breakpoints; /* runs in traced threads' time, due to a breakpoint in the thread's own
                      * program */
    u64 watchpoints; /* likewise, due to the thread's write to a watched word */
    u64 pad[3];
    u64 timed[2]; /* runs */
    u64 timed_ns[2];
    u64 clock_ns[2]; /* of that, the time to read the clock */
    u64 more_pad[2];
};
extern struct cpu_cost cpu_costs[MAX_CPUS];

/* Untimed runs between two timed ones: at least this many, and less than twice as many. */
#define LEAST_UNTIMED 64

/* To be called in programs that a breakpoint in a user-space program triggers. */
static __always_inline void count_breakpoint(void)
{
    u64 cpu = this_cpu();
    if (cpu_tasks[cpu].word & INDEX_MASK)
        cpu_costs[cpu].breakpoints++;
}

/* To be called in programs that a watchpoint triggers. */
static __always_inline void count_watchpoint(void)
{
    u64 cpu = this_cpu();
    if (cpu_tasks[cpu].word & INDEX_MASK)
        cpu_costs[cpu].watchpoints++;
}

/* Returns when the run began; 0: the run is not timed. */
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
    /* At a context switch, the run counts for the next thread. */
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
 * A tracepoint program with named arguments: SEC("tp_btf/...") int HOOK(name, type argument, ...) {
 * body }. Like BPF_PROG() of bpf_tracing.h, but also counts the program's runs, wherever the body
 * returns: the body is a separate function. Of the names that the macro adds, the body sees only
 * `ctx`, the raw arguments; so no argument may have that name.
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
