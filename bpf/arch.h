/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What differs from processor to processor: registers of a system call, numbers of calls, stores.
 */
#pragma once

#if defined(__TARGET_ARCH_x86)
#include "arch_x86.h"
#elif defined(__TARGET_ARCH_arm64)
#include "arch_arm64.h"
#else
#error "bpf/arch.h knows no such processor: make ARCH=x86 or ARCH=arm64"
#endif
