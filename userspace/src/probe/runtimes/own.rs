//! A function and a word of our own, which are hooked like those of runtimes to measure the cost.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use procfs::process::Process;

/// Begins like functions of Go: with an instruction that the kernel emulates at a breakpoint (see [`super::entry`]).
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub extern "C" fn our_own() {
    std::arch::naked_asm!("push rbp", "pop rbp", "ret")
}

/// As on x86-64.
#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
pub extern "C" fn our_own() {
    std::hint::black_box(());
}

/// The offset of the function in our own file.
pub fn place() -> Result<u64> {
    let address = our_own as *const () as u64;
    let maps = Process::myself().and_then(|ours| ours.maps()).context("our own memory")?;
    let holds = |(from, to): (u64, u64)| from <= address && address < to;
    let of = maps.into_iter().find(|map| holds(map.address)).context("our own function")?;
    Ok(address - of.address.0 + of.offset)
}

static WORD: AtomicU32 = AtomicU32::new(0);

/// Writes our own word.
pub fn write_our_own(number: u32) {
    WORD.store(number, Ordering::Relaxed);
}

/// The word's address, which is the same in a forked process.
pub fn word() -> u64 {
    std::ptr::from_ref(&WORD) as u64
}
