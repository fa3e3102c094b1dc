//! Histories, and galloping search in them. Nearly all look-ups are for the latest entries, so a search begins at the
//! end. With many requests in flight, the others are for entries of long ago, near those of the last search. So a
//! history remembers where the last search ended, and a search that leads far from the end begins there.

use std::cell::Cell;
use std::collections::{vec_deque, VecDeque};
use std::iter::Rev;
use std::ops::{Deref, DerefMut};

/// From this distance on, an entry is far from the end.
const FAR: usize = 32;

/// Entries in the order in which they are searched, mostly that of time.
#[derive(Clone, Debug)]
pub struct History<T> {
    list: VecDeque<T>,
    /// Where the last search ended. This is only where a search begins, so after entries were dropped it costs time,
    /// and changes no result.
    place: Cell<usize>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        History { list: VecDeque::new(), place: Cell::new(0) }
    }
}

impl<T, const N: usize> From<[T; N]> for History<T> {
    fn from(entries: [T; N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<T> FromIterator<T> for History<T> {
    fn from_iter<I: IntoIterator<Item = T>>(entries: I) -> Self {
        History { list: entries.into_iter().collect(), place: Cell::new(0) }
    }
}

impl<T> Deref for History<T> {
    type Target = VecDeque<T>;

    #[inline]
    fn deref(&self) -> &VecDeque<T> {
        &self.list
    }
}

impl<T> DerefMut for History<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut VecDeque<T> {
        &mut self.list
    }
}

impl<'a, T> IntoIterator for &'a History<T> {
    type Item = &'a T;
    type IntoIter = vec_deque::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut History<T> {
    type Item = &'a mut T;
    type IntoIter = vec_deque::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter_mut()
    }
}

/// How many entries at the front of `history` satisfy `is_before`, as
/// [`partition_point`](VecDeque::partition_point) counts them; faster the closer that point is to the end, or to that
/// of the last search.
#[inline]
pub fn count_before<T>(history: &History<T>, is_before: impl Fn(&T) -> bool) -> usize {
    match history.list.back() {
        Some(last) if !is_before(last) => count_before_last(history, is_before),
        _ => history.list.len(),
    }
}

/// As [`count_before`], if not all entries satisfy `is_before`.
fn count_before_last<T>(history: &History<T>, is_before: impl Fn(&T) -> bool) -> usize {
    let list = &history.list;
    let is_before = |at: usize| is_before(&list[at]);
    // Most often all but the last satisfy it.
    let last = list.len().saturating_sub(1);
    let Some(end) = last.checked_sub(1).filter(|at| !is_before(*at)) else { return last };
    let (place, far) = (history.place.get().min(end), end.saturating_sub(FAR));
    let is_near_end = place < far && is_before(far);
    let count = count_around(if is_near_end { end } else { place }, end, is_before);
    history.place.set(count);
    count
}

/// How many entries satisfy `is_before`: the first ones, and none from `end` on. Faster the closer that number is to
/// `begin`, which is at most `end`.
fn count_around(begin: usize, end: usize, is_before: impl Fn(usize) -> bool) -> usize {
    // Each entry before `low` satisfies it, and none from `high` on.
    let (mut low, mut high, mut step) = (0, begin, 1);
    if begin < end && is_before(begin) {
        (low, high) = (begin + 1, end);
        while low + step <= end {
            let probe = low + step - 1;
            if !is_before(probe) {
                high = probe;
                break;
            }
            (low, step) = (probe + 1, step * 2);
        }
    } else {
        while high > 0 {
            let probe = high.saturating_sub(step);
            if is_before(probe) {
                low = probe + 1;
                break;
            }
            (high, step) = (probe, step * 2);
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match is_before(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

/// The last entry of `history` that satisfies `is_before`; see [`count_before`].
#[inline]
pub fn last_before<T>(history: &History<T>, is_before: impl Fn(&T) -> bool) -> Option<&T> {
    match history.list.back() {
        Some(last) if !is_before(last) => {
            history.list.get(count_before_last(history, is_before).checked_sub(1)?)
        }
        last => last,
    }
}

/// As [`count_before`], of a slice; faster the closer that point is to the end.
pub fn count_in<T>(list: &[T], is_before: impl Fn(&T) -> bool) -> usize {
    count_around(list.len(), list.len(), |at| is_before(&list[at]))
}

/// The entries of `history` that satisfy `is_before`, latest first; see [`count_before`].
pub fn latest_before<T>(
    history: &History<T>,
    is_before: impl Fn(&T) -> bool,
) -> Rev<vec_deque::Iter<'_, T>> {
    history.list.range(..count_before(history, is_before)).rev()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_what_partition_point_counts() {
        for length in 0..40u32 {
            let list: History<u32> = (0..length).map(|n| n / 3).collect();
            let slice: Vec<u32> = list.iter().copied().collect();
            for limit in 0..16 {
                let expected = list.partition_point(|n| *n < limit);
                assert_eq!(count_before(&list, |n| *n < limit), expected, "{length} {limit}");
                assert_eq!(count_in(&slice, |n| *n < limit), expected, "{length} {limit}");
            }
        }
    }

    /// From any place to any other, also after the history has lost entries and has wrapped around.
    #[test]
    fn a_place_changes_no_result() {
        const MANY: u32 = 300;
        let mut list: History<u32> = (0..MANY).collect();
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
