/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* arm64 system calls whose arguments we look at (include/uapi/asm-generic/unistd.h). */
#pragma once

#define HAS_OLD_CALLS 0

#define NR_eventfd2 19
#define NR_epoll_pwait 22
#define NR_unlinkat 35
#define NR_openat 56
#define NR_close 57
#define NR_read 63
#define NR_write 64
#define NR_readv 65
#define NR_writev 66
#define NR_pread64 67
#define NR_pwrite64 68
#define NR_preadv 69
#define NR_pwritev 70
#define NR_sendfile 71
#define NR_pselect6 72
#define NR_ppoll 73
#define NR_vmsplice 75
#define NR_splice 76
#define NR_tee 77
#define NR_waitid 95
#define NR_futex 98
#define NR_accept 202
#define NR_connect 203
#define NR_sendto 206
#define NR_recvfrom 207
#define NR_shutdown 210
#define NR_sendmsg 211
#define NR_recvmsg 212
#define NR_clone 220
#define NR_execve 221
#define NR_accept4 242
#define NR_recvmmsg 243
#define NR_sendmmsg 269
#define NR_preadv2 286
#define NR_pwritev2 287
#define NR_openat2 437
#define NR_epoll_pwait2 441
