//! A set of request ids.

use std::collections::HashMap;

/// A set of scattered ids. Ids are stored in groups of 64 that begin at a multiple of 64; a mask tells which ids of a
/// group are in the set.
#[derive(Default)]
pub(super) struct IdMasks(HashMap<u64, u64>);

impl IdMasks {
    pub fn insert(&mut self, id: u64) {
        *self.0.entry(id / 64).or_default() |= 1 << (id % 64);
    }

    pub fn contains(&self, id: u64) -> bool {
        self.0.get(&(id / 64)).is_some_and(|mask| mask >> (id % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_in_and_nothing_else() {
        let mut ids = IdMasks::default();
        assert!(!ids.contains(0));
        let some = [0, 1, 63, 64, 130, u64::MAX - 64, u64::MAX];
        some.iter().chain(&some).for_each(|id| ids.insert(*id));
        assert!(some.iter().all(|id| ids.contains(*id)));
        assert!([2, 62, 65, 128, 194, u64::MAX - 1].iter().all(|id| !ids.contains(*id)));
        assert_eq!(ids.0.len(), 5);
    }
}
