//! The perf events we open: software events, one per CPU, and watchpoints, one per thread.

use std::os::fd::{FromRawFd, OwnedFd};

use anyhow::{Context, Result};

/// The head of `struct perf_event_attr` (include/uapi/linux/perf_event.h), version 3.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
    bp_len: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
}

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_BREAKPOINT: u32 = 5;
/// include/uapi/linux/hw_breakpoint.h
const HW_BREAKPOINT_W: u32 = 2;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const PERF_FLAG_FD_CLOEXEC: u64 = 8;

/// Bits of `flags`, in the order of the bit fields of the struct.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const EXCLUDE_IDLE: u64 = 1 << 7;
const MMAP: u64 = 1 << 8;
const COMM: u64 = 1 << 9;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const MMAP2: u64 = 1 << 23;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCKID: u64 = 1 << 25;
const BUILD_ID: u64 = 1 << 34;
const REMOVE_ON_EXEC: u64 = 1 << 36;

/// An event that overflows each time the counter `config` (`PERF_COUNT_SW_*`) goes up.
pub(super) fn count_each(config: u64, cpu: u32) -> Result<OwnedFd> {
    open(PerfEventAttr { config, sample_period: 1, ..software() }, Of::Cpu(cpu))
}

/// An event that overflows `hz` times a second while the CPU is not idle.
pub(super) fn cpu_clock(hz: u32, cpu: u32) -> Result<OwnedFd> {
    let sample_period = 1_000_000_000 / u64::from(hz.max(1));
    let config = PERF_COUNT_SW_CPU_CLOCK;
    open(PerfEventAttr { config, sample_period, flags: EXCLUDE_IDLE, ..software() }, Of::Cpu(cpu))
}

/// An event that overflows each time a thread writes to four bytes of its memory, until it executes another program
/// (since Linux 5.13).
pub(super) fn watch(address: u64, tid: u32) -> Result<OwnedFd> {
    let attr = PerfEventAttr {
        kind: PERF_TYPE_BREAKPOINT,
        size: size_of::<PerfEventAttr>() as u32,
        sample_period: 1,
        flags: EXCLUDE_KERNEL | EXCLUDE_HV | REMOVE_ON_EXEC,
        bp_type: HW_BREAKPOINT_W,
        bp_addr: address,
        bp_len: 4,
        ..Default::default()
    };
    open(attr, Of::Thread(tid))
}

/// An event that never overflows. Through it the kernel reports code that is mapped into address spaces, and new
/// address spaces, each with its CLOCK_MONOTONIC time.
pub(super) fn mappings(cpu: u32) -> Result<OwnedFd> {
    let flags = MMAP | COMM | SAMPLE_ID_ALL | MMAP2 | COMM_EXEC | USE_CLOCKID;
    let attr = |flags| PerfEventAttr {
        config: PERF_COUNT_SW_DUMMY,
        sample_type: PERF_SAMPLE_TIME,
        flags,
        clockid: libc::CLOCK_MONOTONIC,
        ..software()
    };
    // Kernels before 5.12 provide no build ids here; the inode identifies the file as well.
    open(attr(flags | BUILD_ID), Of::Cpu(cpu)).or_else(|_| open(attr(flags), Of::Cpu(cpu)))
}

fn software() -> PerfEventAttr {
    PerfEventAttr {
        kind: PERF_TYPE_SOFTWARE,
        size: size_of::<PerfEventAttr>() as u32,
        ..Default::default()
    }
}

/// What an event belongs to.
enum Of {
    Cpu(u32),
    Thread(u32),
}

fn open(attr: PerfEventAttr, of: Of) -> Result<OwnedFd> {
    let (tid, cpu) = match of {
        Of::Cpu(cpu) => (-1, cpu as i32),
        Of::Thread(tid) => (tid as i32, -1),
    };
    // SAFETY: attr is a valid perf_event_attr of the size it states and outlives the call.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &attr, tid, cpu, -1i32, PERF_FLAG_FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error()).context("perf_event_open");
    }
    // SAFETY: the descriptor was just returned to us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
