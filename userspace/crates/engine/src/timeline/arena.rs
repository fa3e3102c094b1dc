//! An arena of threads and processes by id, which keeps them in memory only as long as something may refer to
//! them.
//!
//! Ids are never reused, so a stale id finds nothing instead of another thread.

use std::ops::{Index, IndexMut};

/// Number of items that are kept together: memory is freed by the page.
const PAGE: usize = 64;

/// A growing list whose items can be dropped one by one.
#[derive(Debug, Default)]
pub struct Arena<T> {
    /// Empty once all of its items are dropped.
    pages: Vec<Vec<Option<T>>>,
    next: usize,
    /// Returned for items that were dropped.
    nobody: T,
}

impl<T: Default> Arena<T> {
    /// The number the next item gets.
    pub fn next(&self) -> usize {
        self.next
    }

    /// Whether an item has not been dropped.
    pub fn has(&self, number: usize) -> bool {
        let page = self.pages.get(number / PAGE);
        page.and_then(|items| items.get(number % PAGE)).is_some_and(Option::is_some)
    }

    /// Adds an item.
    pub fn push(&mut self, item: T) {
        if self.next.is_multiple_of(PAGE) {
            self.pages.push(Vec::new());
        }
        *self.slot(self.next) = Some(item);
        self.next += 1;
    }

    /// All items that are left, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let slots = |page: usize| move |at: usize| page * PAGE + at;
        self.pages.iter().enumerate().flat_map(move |(page, items)| {
            let number = slots(page);
            items
                .iter()
                .enumerate()
                .filter_map(move |(at, item)| Some((number(at), item.as_ref()?)))
        })
    }

    /// All items that are left.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().flatten().flatten()
    }

    /// Drops the items for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(usize, &T) -> bool) {
        for (page, items) in self.pages.iter_mut().enumerate() {
            for (at, slot) in items.iter_mut().enumerate() {
                if slot.as_ref().is_some_and(|item| !keep(page * PAGE + at, item)) {
                    *slot = None;
                }
            }
            if items.iter().all(Option::is_none) {
                *items = Vec::new();
            }
        }
    }

    fn slot(&mut self, number: usize) -> &mut Option<T> {
        let page = &mut self.pages[number / PAGE];
        if page.is_empty() {
            page.resize_with(PAGE, || None);
        }
        &mut page[number % PAGE]
    }
}

impl<T> Index<usize> for Arena<T> {
    type Output = T;

    /// The item, or a default one if it was dropped.
    #[inline]
    fn index(&self, number: usize) -> &T {
        let slot = self.pages[number / PAGE].get(number % PAGE);
        slot.and_then(Option::as_ref).unwrap_or(&self.nobody)
    }
}

impl<T: Default> IndexMut<usize> for Arena<T> {
    /// The item; an item that was dropped is created anew.
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut T {
        self.slot(number).get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_is_nobody_and_its_number_stays_unused() {
        let mut lives = Arena::default();
        (1..=200u64).for_each(|n| lives.push(n));
        lives.retain(|number, _| number >= 150);
        assert_eq!((lives[10], lives[150], lives.iter().count()), (0, 151, 50));
        assert!(!lives.has(10) && !lives.has(149) && lives.has(150) && !lives.has(200));
        assert_eq!(lives.pages.iter().filter(|page| page.is_empty()).count(), 2);
        assert_eq!(lives.next(), 200);
        lives.push(7);
        assert_eq!((lives[200], lives.iter().next()), (7, Some((150, &151))));
        lives[10] = 5;
        assert_eq!((lives[10], lives[11]), (5, 0));
        assert_eq!(lives.iter_mut().count(), 52);
    }
}
