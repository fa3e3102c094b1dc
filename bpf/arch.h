/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Processor-specific parts: registers of system calls and functions, the page size, ordered
 * stores. */
#pragma once

#if defined(__TARGET_ARCH_x86)
#include "arch_x86.h"
#elif defined(__TARGET_ARCH_arm64)
#include "arch_arm64.h"
#else
#error "bpf/arch.h knows no such processor: make ARCH=x86 or ARCH=arm64"
#endif
