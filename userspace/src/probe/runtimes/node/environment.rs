//! Words in the memory of a Node process that describe its timers. They are elements of arrays that JavaScript sees,
//! too (`AliasedBuffer` of src/aliased_buffer.h). The arrays are successive members of the `Environment` (src/env.h),
//! whose offsets differ from version to version. But each array begins with the same pointer and contains its length.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{ensure, Context, Result};

/// The addresses of two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Numbers of what Node runs and of what it created last: each a double.
    pub async_ids: u64,
    /// The number of timers: an `int32_t`.
    pub timers: u64,
}

/// Words of an array: its isolate, its length, its offset in a larger array that it is part of, and its address.
const ARRAY_WORDS: usize = 4;
/// Lengths of the arrays, in this order: `AsyncHooks::async_ids_stack_` (which grows), `fields_` (9 since Node 12),
/// `async_id_fields_`; `immediate_info_`, `timeout_info_` (Node 18 and later).
const LENGTHS: [std::ops::RangeInclusive<u64>; 5] = [32..=1 << 20, 8..=12, 4..=4, 3..=3, 1..=1];
const ASYNC_IDS: usize = 2;
const TIMERS: usize = 4;
/// Most bytes from the beginning of one array to that of the next.
const MOST_BYTES_BETWEEN: u64 = 256;
/// How far to look before and after the loop's timer, which is a member itself.
const BEFORE_BYTES: u64 = 8 << 10;
const AFTER_BYTES: u64 = 24 << 10;
const PAGE_BYTES: u64 = 4096;
/// Addresses of programs end here (TASK_SIZE_MAX of x86-64 with four levels of page tables; arm64 has more).
const END: u64 = 1 << 47;

/// Finds the words of the `Environment` that has that timer.
///
/// # Errors
/// The words are not there, or the layout is not a known one.
pub fn words(pid: u32, timer: u64) -> Result<Words> {
    let memory = File::open(format!("/proc/{pid}/mem")).context("its memory")?;
    let from = timer.saturating_sub(BEFORE_BYTES) & !(PAGE_BYTES - 1);
    let mut words = Vec::new();
    // Some of the pages may not be there.
    for page in (from..timer.saturating_add(AFTER_BYTES)).step_by(PAGE_BYTES as usize) {
        let mut bytes = [0; PAGE_BYTES as usize];
        let _ = memory.read_exact_at(&mut bytes, page);
        words.extend(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
    }
    let found = find(&words).context("its Environment is none that is known (Node 18 or later)")?;
    let mut ids = [0; 24];
    memory.read_exact_at(&mut ids, found.async_ids).context("its numbers of what it runs")?;
    let ids = ids.as_chunks().0.iter().map(|id| f64::from_le_bytes(*id));
    let are_whole = { ids }.all(|id| id >= 0.0 && id.fract() == 0.0);
    ensure!(are_whole, "its Environment has no numbers of what it runs");
    Ok(found)
}

/// The number of timers.
///
/// # Errors
/// The process is gone.
pub fn timers(pid: u32, of: Words) -> Result<i32> {
    let mut count = [0; 4];
    let memory = File::open(format!("/proc/{pid}/mem")).context("its memory")?;
    memory.read_exact_at(&mut count, of.timers).context("its count of timers")?;
    Ok(i32::from_le_bytes(count))
}

/// Finds the arrays among the words of an `Environment`.
fn find(words: &[u64]) -> Option<Words> {
    (0..words.len()).find_map(|first| {
        let isolate = words[first];
        let mut at = first;
        let mut found = [0; LENGTHS.len()];
        for (place, lengths) in LENGTHS.iter().enumerate() {
            let least = if place == 0 { at } else { at + ARRAY_WORDS };
            let most = if place == 0 { at } else { at + (MOST_BYTES_BETWEEN / 8) as usize };
            let is_next = |at: &usize| {
                words.get(*at..*at + ARRAY_WORDS).is_some_and(|array| {
                    array[0] == isolate && is_address(isolate) && is_address(array[3])
                })
            };
            at = (least..=most).find(is_next)?;
            if !lengths.contains(&words[at + 1]) {
                return None;
            }
            found[place] = words[at + 3];
        }
        let is_aligned = found[ASYNC_IDS] % 8 == 0 && found[TIMERS] % 4 == 0;
        is_aligned.then_some(Words { async_ids: found[ASYNC_IDS], timers: found[TIMERS] })
    })
}

fn is_address(word: u64) -> bool {
    (PAGE_BYTES..END).contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array of an isolate, by its length and address.
    fn array(length: u64, at: u64) -> Vec<u64> {
        vec![0x33_8b_f0_a0, length, 0, at, 0x1234, u64::MAX]
    }

    fn environment() -> Vec<u64> {
        let arrays =
            [(32, 0x10_0000), (9, 0x20_0000), (4, 0x30_0000), (3, 0x40_0000), (1, 0x50_0004)];
        let mut words = vec![7, 0x33_8b_f0_a0, 4, 0];
        words.extend(arrays.into_iter().flat_map(|(length, at)| array(length, at)));
        words
    }

    #[test]
    fn arrays_are_found_by_their_lengths() {
        let words = Words { async_ids: 0x30_0000, timers: 0x50_0004 };
        assert_eq!(find(&environment()), Some(words));
        let mut later = vec![0; 100];
        later.extend(environment());
        assert_eq!(find(&later), Some(words));
    }

    #[test]
    fn others_are_none() {
        assert_eq!(find(&[]), None);
        assert_eq!(find(&environment()[..30]), None);
        let mut of_another = environment();
        of_another[4 + 24] += 8; // another isolate's
        assert_eq!(find(&of_another), None);
        let mut of_the_kernel = environment();
        of_the_kernel[4 + 24 + 3] = 0xffff_8880_0000_0000;
        assert_eq!(find(&of_the_kernel), None);
        let mut shorter = environment();
        shorter[4 + 12 + 1] = 3;
        assert_eq!(find(&shorter), None);
    }

    #[test]
    fn a_process_without_them_is_refused() {
        let error = words(std::process::id(), 1 << 20).expect_err("there is no Environment here");
        assert!(format!("{error:#}").contains("Environment"), "{error:#}");
    }
}
