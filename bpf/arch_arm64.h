/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* arm64. Captures were taken on emulated ones only (docs/kernels.md). */
#pragma once

/* arch/arm64/include/asm/ptrace.h */
struct pt_regs {
    u64 regs[31];
    u64 sp;
    u64 pc;
    u64 orig_x0;   /* the first argument: the call's result takes its place in `regs` */
    s32 syscallno; /* NO_SYSCALL (-1) outside of a call */
} __attribute__((preserve_access_index));

/* Of registers with which a thread entered the kernel. */
#define CALL_NUMBER(regs) ((long)(regs)->syscallno)
#define CALL_ARG_1(regs) ((regs)->orig_x0)
#define CALL_ARG_2(regs) ((regs)->regs[1])
#define CALL_ARG_3(regs) ((regs)->regs[2])
#define CALL_ARG_4(regs) ((regs)->regs[3])
#define CALL_ARG_5(regs) ((regs)->regs[4])
#define USER_ADDRESS(regs) ((regs)->pc)

/* Of registers with which a function of the kernel begins, and ends. */
#define FUNCTION_ARG_2(at) ((at)->regs[1])
#define FUNCTION_ARG_4(at) ((at)->regs[3])
#define FUNCTION_RESULT(at) ((at)->regs[0])

/* Of registers with which a function of a Go program begins ("Go internal ABI specification", from
 * Go 1.18 on). */
#define GO_ARG_1(at) ((at)->regs[0])
#define GO_ARG_2(at) ((at)->regs[1])
#define GO_ARG_3(at) ((at)->regs[2])

/* Of registers with which a function of a C program begins (AAPCS64). */
#define C_ARG_1(at) ((at)->regs[0])
#define C_ARG_2(at) ((at)->regs[1])
#define C_RESULT(at) ((at)->regs[0])
#define STACK(at) ((at)->sp)

#define PAGE_SHIFT 12 /* kernels with pages of 16 or 64 KiB exist, too: there it would be wrong */

/* A store that other CPUs see after all that come before it: an exchange orders both ways
 * (Documentation/atomic_t.txt). */
#define STORE_LAST(address, value) ((void)__sync_lock_test_and_set(address, value))
