/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel side: one unit, so that the subsystems share maps and state without a linker. */
#include "stacks.bpf.c"
#include "steal.bpf.c"
#include "missed_switches.bpf.c"
#include "sched.bpf.c"
#include "process.bpf.c"
#include "sockets.bpf.c"
#include "datagrams.bpf.c"
#include "wire.bpf.c"
#include "framing.bpf.c"
#include "syscalls.bpf.c"
#include "faults.bpf.c"
#include "interrupts.bpf.c"
#include "block.bpf.c"
#include "journal.bpf.c"
#include "locks.bpf.c"
#include "writeback.bpf.c"
#include "workqueue.bpf.c"
#include "attach.bpf.c"

char LICENSE[] SEC("license") = "Dual BSD/GPL";
