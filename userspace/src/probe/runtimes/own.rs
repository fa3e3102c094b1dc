//! A function and a word of our own to be hooked as those of runtimes are, to see what that costs.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use procfs::process::Process;

/// Begins as Go's functions do: with an instruction that the kernel carries out itself where a breakpoint is put on it
/// (see [`super::entry`]).
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

/// Where in our own file it is.
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

/// Its address, which is the same in a process that was forked.
pub fn word() -> u64 {
    std::ptr::from_ref(&WORD) as u64
}
