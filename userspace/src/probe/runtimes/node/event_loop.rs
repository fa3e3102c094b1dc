//! The event loop of a Node process: libuv's, which has a list of all its handles. One of the handles is the
//! `Environment`'s timer.

use std::fs::File;
use std::os::unix::fs::FileExt;

use procfs::process::Process;

use super::environment::words;

/// Offsets in `uv_loop_t` and `uv_handle_t` (include/uv.h, the same in all of libuv 1.x): a loop's list of its handles,
/// and a handle's links in it and its type.
const LOOP_HANDLES: u64 = 16;
const HANDLE_LINKS: u64 = 32;
const HANDLE_TYPE: u64 = 16;
const UV_TIMER: u32 = 13;
const MOST_HANDLES: usize = 4096;
/// JavaScript's timers are not timers of libuv: a loop has few of the latter.
const MOST_TIMERS: usize = 16;

/// The address of a process's loop, by its distance from the program's entry.
pub fn address(pid: u32, from_entry: u64) -> Option<u64> {
    // include/uapi/linux/auxvec.h
    const AT_ENTRY: u64 = 9;
    let auxv = Process::new(i32::try_from(pid).ok()?).ok()?.auxv().ok()?;
    Some(auxv.get(&AT_ENTRY)?.wrapping_add(from_entry))
}

/// The timer of the `Environment` that uses the loop; `None`: there is none yet.
pub fn timer(pid: u32, event_loop: u64) -> Option<u64> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let word = |at: u64| -> Option<u64> {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let head = event_loop.checked_add(LOOP_HANDLES)?;
    let (mut link, mut timers) = (word(head)?, 0);
    for _ in 0..MOST_HANDLES {
        if link == head || link < HANDLE_LINKS || timers == MOST_TIMERS {
            break;
        }
        let handle = link - HANDLE_LINKS;
        let of_type = word(handle.checked_add(HANDLE_TYPE)?)?;
        if of_type as u32 == UV_TIMER {
            if words(pid, handle).is_ok() {
                return Some(handle);
            }
            timers += 1;
        }
        link = word(link)?;
    }
    None
}
