//! Sets of ids, in little memory if most of them are consecutive.

use std::collections::BTreeMap;

/// A set of ids, stored as ranges: the first and the last id of each.
#[derive(Default)]
pub struct Ids(BTreeMap<u64, u64>);

impl Ids {
    /// Adds an id; returns whether it is new.
    pub fn insert(&mut self, id: u64) -> bool {
        let before = self.0.range(..=id).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| id <= last) {
            return false;
        }
        let first = match before {
            Some((first, last)) if last + 1 == id => first,
            _ => id,
        };
        let after = id.checked_add(1).and_then(|next| self.0.remove(&next));
        self.0.insert(first, after.unwrap_or(id));
        true
    }

    /// Whether the set contains the id.
    pub fn contains(&self, id: u64) -> bool {
        self.0.range(..=id).next_back().is_some_and(|(_, last)| id <= *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_new_once() {
        let mut ids = Ids::default();
        for id in [5, 7, 6, u64::MAX, 0, 1, u64::MAX - 1, 3] {
            assert!(ids.insert(id), "{id}");
            assert!(!ids.insert(id), "{id}");
        }
        let seen = |id: &u64| ids.contains(*id);
        assert!([0, 1, 3, 5, 7, u64::MAX].iter().all(seen) && ![2, 4, 8].iter().any(seen));
        assert!([5, 6, 7, 0, 1, 3, u64::MAX, u64::MAX - 1].iter().all(|id| !ids.insert(*id)));
        let ranges = [(0, 1), (3, 3), (5, 7), (u64::MAX - 1, u64::MAX)];
        assert_eq!(ids.0, BTreeMap::from(ranges));
        assert!(ids.insert(2) && ids.insert(4));
        assert_eq!(ids.0, BTreeMap::from([(0, 7), (u64::MAX - 1, u64::MAX)]));
    }
}
