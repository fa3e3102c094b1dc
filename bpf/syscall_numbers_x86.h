/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* x86-64 system calls whose arguments we look at (arch/x86/entry/syscalls/syscall_64.tbl). */
#pragma once

/* x86-64 has calls that newer machines have only in later forms. */
#define HAS_OLD_CALLS 1

#define NR_read 0
#define NR_write 1
#define NR_open 2
#define NR_close 3
#define NR_poll 7
#define NR_pread64 17
#define NR_pwrite64 18
#define NR_readv 19
#define NR_writev 20
#define NR_access 21
#define NR_select 23
#define NR_sendfile 40
#define NR_connect 42
#define NR_accept 43
#define NR_sendto 44
#define NR_recvfrom 45
#define NR_sendmsg 46
#define NR_recvmsg 47
#define NR_shutdown 48
#define NR_clone 56
#define NR_execve 59
#define NR_rename 82
#define NR_creat 85
#define NR_unlink 87
#define NR_futex 202
#define NR_epoll_wait 232
#define NR_waitid 247
#define NR_openat 257
#define NR_unlinkat 263
#define NR_pselect6 270
#define NR_ppoll 271
#define NR_splice 275
#define NR_tee 276
#define NR_vmsplice 278
#define NR_epoll_pwait 281
#define NR_eventfd 284
#define NR_accept4 288
#define NR_eventfd2 290
#define NR_preadv 295
#define NR_pwritev 296
#define NR_recvmmsg 299
#define NR_sendmmsg 307
#define NR_preadv2 327
#define NR_pwritev2 328
#define NR_openat2 437
#define NR_epoll_pwait2 441
