/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Numbers of the system calls whose arguments we look at. */
#pragma once

#if defined(__TARGET_ARCH_arm64)
#include "syscall_numbers_arm64.h"
#else
#include "syscall_numbers_x86.h"
#endif
