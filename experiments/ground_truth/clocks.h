/*
 * clocks: what a target can know about its own time without any help from a tracer.
 */
#ifndef CLOCKS_H
#define CLOCKS_H

#include <stdint.h>

/* CLOCK_MONOTONIC, read without entering the kernel. */
uint64_t clock_ns(void);

/*
 * CPU time spent, as the kernel accounts it, and the time that went missing meanwhile: interrupts,
 * other threads, and the hypervisor under a virtual machine.  What a hypervisor takes without
 * telling the machine counts as CPU time, too: only gaps_ns gives it away.
 */
struct spun {
    uint64_t cpu_ns;
    uint64_t gaps_ns;
    uint64_t longest_gap_ns;
};

/*
 * Burns about user_ns of user time.  The clock is read so often that two readings far apart show
 * that something else ran in between; such a gap does not count.
 */
struct spun clock_spin(uint64_t user_ns);

/* Burns until CLOCK_MONOTONIC has come to until_ns. */
void clock_spin_until(uint64_t until_ns);

/* What the kernel's scheduler has accounted to the calling thread, and when it was asked. */
struct usage {
    uint64_t wall_ns;
    uint64_t cpu_ns;      /* on a CPU, in user mode or in the kernel */
    uint64_t runnable_ns; /* wanted a CPU, and others had it */
    uint64_t sleeps;      /* times it gave up its CPU of itself */
};

/*
 * Readings before and after what is measured.  They differ in the order of the clocks only: the
 * wall clock, which needs no system call, is always the one next to what is measured.
 */
struct usage usage_before(void);
struct usage usage_after(void);

/*
 * after - before, and what is left of it when the thread neither ran nor wanted to: nothing for one
 * that never gave up its CPU.  A hypervisor that took the CPU leaves a rest, too, which is no
 * sleep.
 */
struct usage usage_between(struct usage before, struct usage after);
uint64_t usage_asleep_ns(struct usage between);

/* For a thread that did not sleep: how long it had a CPU. */
uint64_t usage_awake_ns(struct usage between);

#endif
