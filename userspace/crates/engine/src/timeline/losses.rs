//! Loss windows: when records were lost on each CPU, and what may have been among them.

use std::collections::{BTreeMap, VecDeque};

use rpcprobe_model::Loss;

/// Losses of each CPU in order of time. There may be hundreds a second for hours, and every request is checked against
/// them.
#[derive(Debug, Default)]
pub struct Losses {
    /// The losses of one CPU do not overlap, so their ends are in order, too.
    of_cpus: BTreeMap<u32, VecDeque<Loss>>,
    /// The last end of the losses that were forgotten.
    forgotten_ns: Option<u64>,
}

impl From<Vec<Loss>> for Losses {
    fn from(list: Vec<Loss>) -> Losses {
        let mut losses = Losses::default();
        for loss in list {
            losses.add(loss);
        }
        losses
    }
}

impl Losses {
    /// Adds a loss, unless it is known: records repeat what the manifest has said beforehand.
    pub fn add(&mut self, mut loss: Loss) {
        loss.last_ns = loss.last_ns.max(loss.first_ns);
        let list = self.of_cpus.entry(loss.cpu).or_default();
        let at = list.partition_point(|other| other.last_ns < loss.first_ns);
        if list.get(at).is_some_and(|o| o.first_ns <= loss.first_ns && loss.last_ns <= o.last_ns) {
            return;
        }
        while let Some(other) = list.get(at).filter(|other| other.first_ns <= loss.last_ns) {
            loss.count = loss.count.saturating_add(other.count);
            loss.first_ns = loss.first_ns.min(other.first_ns);
            loss.last_ns = loss.last_ns.max(other.last_ns);
            list.remove(at);
        }
        list.insert(at, loss);
    }

    fn overlapping(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Loss> {
        self.of_cpus.values().flat_map(move |list| {
            let first = list.partition_point(|loss| loss.last_ns < from_ns);
            list.range(first..).take_while(move |loss| loss.first_ns <= to_ns)
        })
    }

    /// Records lost in `[from_ns, to_ns]`; a loss counts as a whole.
    pub fn count(&self, from_ns: u64, to_ns: u64) -> u64 {
        let counts = self.overlapping(from_ns, to_ns).map(|loss| loss.count);
        counts.fold(0, u64::saturating_add)
    }

    /// When, in `[from_ns, to_ns]`, the first record may have been lost.
    pub fn first(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let forgotten = self.forgotten_ns.filter(|last_ns| *last_ns >= from_ns).map(|_| from_ns);
        let known = self.overlapping(from_ns, to_ns).map(|loss| loss.first_ns.max(from_ns)).min();
        forgotten.or(known)
    }

    /// Forgets losses that ended before `horizon_ns`.
    pub fn forget_before(&mut self, horizon_ns: u64) {
        for list in self.of_cpus.values_mut() {
            while let Some(loss) = list.front().filter(|loss| loss.last_ns < horizon_ns) {
                self.forgotten_ns = self.forgotten_ns.max(Some(loss.last_ns));
                list.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(cpu: u32, count: u64, first_ns: u64, last_ns: u64) -> Loss {
        Loss { cpu, count, first_ns, last_ns }
    }

    #[test]
    fn found_by_time() {
        let list = vec![loss(0, 3, 100, 110), loss(1, 5, 105, 200), loss(0, 1, 50, 50)];
        let losses = Losses::from(list);
        assert_eq!(losses.count(0, 49), 0);
        assert_eq!(losses.count(50, 99), 1);
        assert_eq!(losses.count(110, 120), 8);
        assert_eq!(losses.count(201, 300), 0);
        assert_eq!(losses.first(60, 300), Some(100));
        assert_eq!(losses.first(150, 300), Some(150));
        assert_eq!(losses.first(201, 300), None);
    }

    #[test]
    fn told_twice_counts_once_and_those_that_overlap_are_one() {
        let mut losses = Losses::from(vec![loss(0, 3, 100, 110)]);
        losses.add(loss(0, 3, 100, 110));
        assert_eq!(losses.count(0, 300), 3);
        losses.add(loss(0, 4, 105, 120));
        losses.add(loss(0, 1, 130, 90)); // not a time
        assert_eq!(losses.count(0, 100), 7);
        assert_eq!(losses.count(121, 300), 1);
    }

    #[test]
    fn what_is_forgotten_was_there() {
        let mut losses = Losses::from(vec![loss(0, 3, 100, 110), loss(0, 3, 200, 210)]);
        losses.forget_before(150);
        assert_eq!(losses.count(0, 300), 3);
        assert_eq!(losses.first(0, 300), Some(0));
        assert_eq!(losses.first(105, 300), Some(105));
        assert_eq!(losses.first(111, 300), Some(200));
    }
}
