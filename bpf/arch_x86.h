/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* x86-64. */
#pragma once

/* arch/x86/include/asm/ptrace.h */
struct pt_regs {
    unsigned long bx;
    unsigned long r10;
    unsigned long r8;
    unsigned long ax;
    unsigned long cx;
    unsigned long orig_ax; /* number of the system call; negative outside of one */
    unsigned long dx;
    unsigned long si;
    unsigned long di;
    unsigned long ip;
    unsigned long sp;
} __attribute__((preserve_access_index));

/* Registers with which a thread entered the kernel. */
#define CALL_NUMBER(regs) ((long)(regs)->orig_ax)
#define CALL_ARG_1(regs) ((regs)->di)
#define CALL_ARG_2(regs) ((regs)->si)
#define CALL_ARG_3(regs) ((regs)->dx)
#define CALL_ARG_4(regs) ((regs)->r10)
#define CALL_ARG_5(regs) ((regs)->r8)
#define USER_ADDRESS(regs) ((regs)->ip)

/* Registers at the entry and the return of a kernel function. */
#define FUNCTION_ARG_2(at) ((at)->si)
#define FUNCTION_ARG_4(at) ((at)->cx)
#define FUNCTION_RESULT(at) ((at)->ax)

/* Registers at the entry of a Go function ("Go internal ABI specification", from Go 1.17 on). */
#define GO_ARG_1(at) ((at)->ax)
#define GO_ARG_2(at) ((at)->bx)
#define GO_ARG_3(at) ((at)->cx)

/* Registers at the entry and the return of a C function (System V ABI). */
#define C_ARG_1(at) ((at)->di)
#define C_ARG_2(at) ((at)->si)
#define C_RESULT(at) ((at)->ax)
#define STACK(at) ((at)->sp)

#define PAGE_SHIFT 12

/* A store that other CPUs see after all earlier stores. x86 keeps the order of stores, so only the
 * compiler has to be restrained. */
#define STORE_LAST(address, value)                                                                 \
    do {                                                                                           \
        barrier();                                                                                 \
        *(volatile typeof(*(address)) *)(address) = (value);                                       \
    } while (0)
