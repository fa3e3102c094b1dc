/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The CPU a program runs on. A program is not moved to another CPU before its end. */
#pragma once
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>

#define MAX_CPUS 512 /* a power of two; no machine with more is traced (probe/mod.rs) */

/* Aligns an array with one element per CPU to a cache line. */
#define CACHE_LINES __attribute__((aligned(64)))

/*
 * bpf_get_smp_processor_id() in a form that tells the compiler that the result is always the same,
 * so that it calls the helper once per program. The mask is applied in the same asm for the
 * verifier: compilers may mask one copy of a number and use another.
 */
static __always_inline u64 this_cpu(void)
{
    u64 cpu;
    asm("call %[get_smp_processor_id]\n"
        "%[cpu] = r0\n"
        "%[cpu] &= %[mask]"
        : [cpu] "=r"(cpu)
        : [get_smp_processor_id] "i"(8) /* enum bpf_func_id */, [mask] "i"(MAX_CPUS - 1)
        : "r0", "r1", "r2", "r3", "r4", "r5");
    return cpu;
}
