//! Galloping search from the end of a history, because nearly all lookups are for its latest entries.

use std::collections::{vec_deque, VecDeque};
use std::iter::Rev;

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
    match back.first() {
        Some(first) if is_before(first) => front.len() + count_in(back, is_before),
        _ => count_in(front, is_before),
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
    let mut low = loop {
        let probe = high.saturating_sub(step);
        match list.get(probe) {
            Some(item) if high > 0 && !is_before(item) => (high, step) = (probe, step * 2),
            _ => break probe + usize::from(high > 0),
        }
    };
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
}
