//! Runs of our programs that the kernel skipped: a program that is running on a CPU does not run there again in an
//! interrupt. The kernel does not count the skipped runs of programs that handle perf events (page faults, samples).

use std::io::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::libbpf_sys::{bpf_prog_get_info_by_fd, bpf_prog_info};

use super::Probe;

impl Probe {
    /// The number of skipped runs so far.
    pub fn runs_left_out(&self) -> Result<u64> {
        let loaded = self.object.progs().filter(|program| program.autoload());
        loaded.map(|program| of_program(program.as_fd())).sum()
    }
}

fn of_program(program: BorrowedFd<'_>) -> Result<u64> {
    let mut info = bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: writes at most `bytes` bytes into `info`, whose pointers are null: nothing they could point at is
    // asked for. Kernels before 5.12 leave the count 0.
    let error = unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut bytes) };
    if error != 0 {
        return Err(Error::from_raw_os_error(-error)).context("cannot ask for a program's misses");
    }
    Ok(info.recursion_misses)
}
