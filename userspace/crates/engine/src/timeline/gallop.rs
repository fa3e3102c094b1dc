//! Galloping search of a history. Nearly all lookups are for its latest entries, so a search begins at the end. With
//! many requests in flight, the others are for entries of long ago, near those of the last request. So a search that
//! leads far from the end goes on from the place where the last such search of the same history ended.

use std::cell::Cell;
use std::collections::{vec_deque, VecDeque};
use std::iter::Rev;

/// From this distance on, an entry is far from the end.
const FAR: usize = 32;
/// How many places each of our threads remembers.
const MOST_PLACES: usize = 256;

thread_local! {
    /// By history, in which several may share a cell: its address, and where the last search that led far ended. This
    /// is only where a search begins, so an outdated place costs time, and changes no result.
    static PLACES: [Cell<(usize, usize)>; MOST_PLACES] =
        const { [const { Cell::new((0, 0)) }; MOST_PLACES] };
}

/// How many items at the front of `list` satisfy `is_before`, as [`partition_point`](VecDeque::partition_point) counts
/// them; faster the closer that point is to the end.
#[inline]
pub fn count_before<T>(list: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> usize {
    match list.back() {
        Some(last) if !is_before(last) => count_before_last(list, is_before),
        _ => list.len(),
    }
}

/// As [`count_before`], if not all items satisfy `is_before`.
fn count_before_last<T>(list: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> usize {
    // Most often all but the last satisfy it.
    let all_but_last = list.len().saturating_sub(1);
    if all_but_last.checked_sub(1).and_then(|at| list.get(at)).is_none_or(&is_before) {
        return all_but_last;
    }
    let (front, back) = list.as_slices();
    let address = std::ptr::from_ref(list).addr();
    match back.first() {
        Some(first) if is_before(first) => {
            front.len() + count_remembering(back, address, front.len(), is_before)
        }
        _ => count_remembering(front, address, 0, is_before),
    }
}

/// As [`count_in`], of the part of the history at `address` that begins with its entry `offset`.
fn count_remembering<T>(
    list: &[T],
    address: usize,
    offset: usize,
    is_before: impl Fn(&T) -> bool,
) -> usize {
    let far = list.len().saturating_sub(FAR);
    if far == 0 || is_before(&list[far - 1]) {
        return count_in(list, is_before);
    }
    PLACES.with(|places| {
        // Histories are parts of larger structures, so their addresses are multiples of eight at least.
        let place = &places[((address >> 4) ^ (address >> 12)) % MOST_PLACES];
        let (of, last) = place.get();
        let begin = if of == address { last.saturating_sub(offset) } else { far };
        let count = count_around(&list[..far], begin, is_before);
        place.set((address, offset + count));
        count
    })
}

/// As [`count_in`]; faster the closer that point is to `begin`.
fn count_around<T>(list: &[T], begin: usize, is_before: impl Fn(&T) -> bool) -> usize {
    let begin = begin.min(list.len());
    let (mut low, mut step) = (begin, 1);
    // Each entry before `low` satisfies it, if the entry before `begin` does.
    while let Some(item) = list.get(low + step - 1) {
        if !is_before(item) {
            break;
        }
        (low, step) = (low + step, step * 2);
    }
    match low == begin {
        true => count_in(&list[..begin], is_before),
        false => low + count_between(&list[low..(low + step - 1).min(list.len())], is_before),
    }
}

/// The last item of `list` that satisfies `is_before`; see [`count_before`].
#[inline]
pub fn last_before<T>(list: &VecDeque<T>, is_before: impl Fn(&T) -> bool) -> Option<&T> {
    match list.back() {
        Some(last) if !is_before(last) => {
            list.get(count_before_last(list, is_before).checked_sub(1)?)
        }
        last => last,
    }
}

/// As [`count_before`], of a slice.
pub fn count_in<T>(list: &[T], is_before: impl Fn(&T) -> bool) -> usize {
    let (mut high, mut step) = (list.len(), 1);
    let low = loop {
        let probe = high.saturating_sub(step);
        match list.get(probe) {
            Some(item) if high > 0 && !is_before(item) => (high, step) = (probe, step * 2),
            _ => break probe + usize::from(high > 0),
        }
    };
    low + count_between(&list[low..high], is_before)
}

/// As [`count_in`], by halving.
fn count_between<T>(list: &[T], is_before: impl Fn(&T) -> bool) -> usize {
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(&list[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The items of `list` that satisfy `is_before`, latest first; see [`count_before`].
pub fn latest_before<T>(
    list: &VecDeque<T>,
    is_before: impl Fn(&T) -> bool,
) -> Rev<vec_deque::Iter<'_, T>> {
    list.range(..count_before(list, is_before)).rev()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_what_partition_point_counts() {
        for length in 0..40u32 {
            let list: VecDeque<u32> = (0..length).map(|n| n / 3).collect();
            for limit in 0..16 {
                let expected = list.partition_point(|n| *n < limit);
                assert_eq!(count_before(&list, |n| *n < limit), expected, "{length} {limit}");
            }
        }
    }

    /// From any place to any other, also after the history has lost entries and has wrapped around.
    #[test]
    fn a_place_changes_no_result() {
        const MANY: u32 = 300;
        let mut list: VecDeque<u32> = (0..MANY).collect();
        for round in 0..4 {
            for (from, to) in (0..MANY + 9).zip((0..MANY + 9).map(|n| n * 97 % (MANY + 9))) {
                for limit in [from, to, to + 1, from] {
                    let limit = limit + round * 100;
                    let expected = list.partition_point(|n| *n < limit);
                    assert_eq!(count_before(&list, |n| *n < limit), expected, "{round} {limit}");
                }
            }
            list.drain(..100);
            list.extend((0..100).map(|n| MANY + round * 100 + n));
        }
    }
}
