//! The event loop of a Node process: libuv's, of which all handles are in a list. One of them is the `Environment`'s timer.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use procfs::process::Process;

use super::environment::words;

/// `uv_loop_t` and `uv_handle_t` (include/uv.h, the same in all of libuv 1.x): where the first has the list of its handles, and where
/// the others have their links in it, and what they are.
const LOOP_HANDLES: u64 = 16;
const HANDLE_LINKS: u64 = 32;
const HANDLE_TYPE: u64 = 16;
const UV_TIMER: u32 = 13;
const MOST_HANDLES: usize = 4096;
/// JavaScript's timers are none of libuv's: there are few of those.
const MOST_TIMERS: usize = 16;

/// The timer of the `Environment` of the loop that is at that address in the program's file; `None`: it has none yet.
pub fn timer(pid: u32, place: u64) -> Option<u64> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let word = |at: u64| -> Option<u64> {
        let mut bytes = [0; 8];
        memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let head = place.checked_add(load_bias(pid)?)?.checked_add(LOOP_HANDLES)?;
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

/// By how much addresses in a process are higher than in its program's file.
fn load_bias(pid: u32) -> Option<u64> {
    use object::read::{Object, ObjectSegment, ReadCache};
    let program = File::open(format!("/proc/{pid}/exe")).ok()?;
    let inode = program.metadata().ok()?.ino();
    let maps = Process::new(i32::try_from(pid).ok()?).ok()?.maps().ok()?;
    let first = { maps.into_iter() }.find(|map| map.inode == inode && map.offset == 0)?;
    let cached = ReadCache::new(program);
    let file = object::File::parse(&cached).ok()?;
    let segment = file.segments().find(|segment| segment.file_range().0 == 0)?;
    first.address.0.checked_sub(segment.address())
}
