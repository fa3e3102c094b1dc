/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* arm64. Captures were taken on emulated machines only (docs/kernels.md). */
#pragma once

/* arch/arm64/include/asm/ptrace.h */
struct pt_regs {
    u64 regs[31];
    u64 sp;
    u64 pc;
    u64 orig_x0;   /* the first argument; the call's result overwrites it in `regs` */
    s32 syscallno; /* NO_SYSCALL (-1) outside of a call */
} __attribute__((preserve_access_index));

/* Registers with which a thread entered the kernel. */
#define CALL_NUMBER(regs) ((long)(regs)->syscallno)
#define CALL_ARG_1(regs) ((regs)->orig_x0)
#define CALL_ARG_2(regs) ((regs)->regs[1])
#define CALL_ARG_3(regs) ((regs)->regs[2])
#define CALL_ARG_4(regs) ((regs)->regs[3])
#define CALL_ARG_5(regs) ((regs)->regs[4])
#define USER_ADDRESS(regs) ((regs)->pc)

/* Registers at the entry and the return of a kernel function. */
#define FUNCTION_ARG_2(at) ((at)->regs[1])
#define FUNCTION_ARG_4(at) ((at)->regs[3])
#define FUNCTION_RESULT(at) ((at)->regs[0])

/* Registers at the entry of a Go function ("Go internal ABI specification", from Go 1.18 on). */
#define GO_ARG_1(at) ((at)->regs[0])
#define GO_ARG_2(at) ((at)->regs[1])
#define GO_ARG_3(at) ((at)->regs[2])

/* Registers at the entry and the return of a C function (AAPCS64). */
#define C_ARG_1(at) ((at)->regs[0])
#define C_ARG_2(at) ((at)->regs[1])
#define C_RESULT(at) ((at)->regs[0])
#define STACK(at) ((at)->sp)

#define PAGE_SHIFT 12 /* wrong on kernels with pages of 16 or 64 KiB, which exist, too */

/* A store that other CPUs see after all earlier stores: an exchange orders both ways
 * (Documentation/atomic_t.txt). */
#define STORE_LAST(address, value) ((void)__sync_lock_test_and_set(address, value))
