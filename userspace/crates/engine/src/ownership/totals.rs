//! Totals of what a thread did, kept from time to time, so that a sum over an interval is a subtraction.

use std::cell::RefCell;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::timeline::gallop::{count_before, last_before, History};
use crate::timeline::ThreadId;

/// Number of stretches between two totals that are kept. A look-up adds about half as many.
pub(super) const STRETCHES: usize = 16;

/// Nanoseconds by what was done: `N` kinds, identified by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nanoseconds<const N: usize>(pub(super) [u64; N]);

impl<const N: usize> Default for Nanoseconds<N> {
    fn default() -> Self {
        Nanoseconds([0; N])
    }
}

impl<const N: usize> Nanoseconds<N> {
    pub(super) fn add_to(&mut self, what: usize, ns: u64) {
        let sum_ns = &mut self.0[what];
        *sum_ns = sum_ns.saturating_add(ns);
    }

    fn take_from(&mut self, what: usize, ns: u64) {
        let sum_ns = &mut self.0[what];
        *sum_ns = sum_ns.saturating_sub(ns);
    }

    fn minus(mut self, other: &Self) -> Self {
        for (ns, less_ns) in self.0.iter_mut().zip(other.0) {
            *ns = ns.saturating_sub(less_ns);
        }
        self
    }

    pub fn plus(mut self, other: &Self) -> Self {
        for (ns, more_ns) in self.0.iter_mut().zip(other.0) {
            *ns = ns.saturating_add(more_ns);
        }
        self
    }
}

/// The totals of all threads that were asked for.
#[derive(Debug, Default)]
pub(super) struct AllTotals<const N: usize>(RefCell<FxHashMap<ThreadId, Totals<N>>>);

impl<const N: usize> AllTotals<N> {
    /// What `answer` returns for a thread's totals, which include `[from_ns, to_ns)`. `before`: as for
    /// [`Totals::extend`].
    pub(super) fn ask<Answer>(
        &self,
        id: ThreadId,
        (from_ns, to_ns): (u64, u64),
        divides: Option<usize>,
        before: impl Fn(u64, u64) -> (u64, usize),
        answer: impl FnOnce(&Totals<N>) -> Answer,
    ) -> Answer {
        let mut all = self.0.borrow_mut();
        let totals = all.entry(id).or_insert_with(|| Totals::new(from_ns, divides));
        if from_ns < totals.from_ns {
            totals.begin_before(from_ns, &before);
        }
        totals.extend(to_ns, before);
        answer(totals)
    }

    /// What is summed of a thread so far; `None`: nothing.
    pub(super) fn extent(&self, id: ThreadId) -> Option<Extent> {
        let all = self.0.borrow();
        let totals = all.get(&id)?;
        let (until_ns, stretches) = (totals.until_ns(), totals.stretches.len());
        Some(Extent { from_ns: totals.from_ns, until_ns, stretches })
    }

    /// Drops the sums of a thread: the next ones begin anew.
    pub(super) fn drop_of(&self, id: ThreadId) {
        self.0.borrow_mut().remove(&id);
    }

    /// Forgets what no request that begins at or after `horizon_ns` asks for, and threads that are not there.
    pub(super) fn forget_before(&self, horizon_ns: u64, is_there: impl Fn(ThreadId) -> bool) {
        let mut all = self.0.borrow_mut();
        all.retain(|id, totals| is_there(*id) && totals.until_ns() >= horizon_ns);
        for totals in all.values_mut() {
            totals.forget_before(horizon_ns);
        }
    }
}

/// What is summed of a thread: `[from_ns, until_ns)`, and of how many stretches that consists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    pub(super) stretches: usize,
}

/// The sums of one thread, since it was first asked for.
#[derive(Debug)]
pub(super) struct Totals<const N: usize> {
    /// The begin of the first stretch that is kept.
    from_ns: u64,
    /// Stretches in order of time, each from the end of the one before: its end, and what the thread did.
    stretches: VecDeque<(u64, usize)>,
    /// The total before every [`STRETCHES`]th of them, and when these begin.
    kept: VecDeque<Nanoseconds<N>>,
    begins_ns: History<u64>,
    total: Nanoseconds<N>,
    /// The kind whose stretches divide the others, if any, and the ends of these stretches.
    divides: Option<usize>,
    ends: History<u64>,
}

impl<const N: usize> Totals<N> {
    fn new(from_ns: u64, divides: Option<usize>) -> Self {
        Totals {
            from_ns,
            stretches: VecDeque::new(),
            kept: VecDeque::new(),
            begins_ns: History::default(),
            total: Nanoseconds::default(),
            divides,
            ends: History::default(),
        }
    }

    /// The time up to which the stretches are summed.
    fn until_ns(&self) -> u64 {
        self.stretches.back().map_or(self.from_ns, |(end_ns, _)| *end_ns)
    }

    /// Sums up to `to_ns`. `before` returns the last stretch before a time, at most back to another time: its begin,
    /// and what was done.
    fn extend(&mut self, to_ns: u64, before: impl Fn(u64, u64) -> (u64, usize)) {
        let until_ns = self.until_ns();
        let mut new = Vec::new();
        let mut at_ns = to_ns;
        while at_ns > until_ns {
            let (start_ns, what) = before(at_ns, until_ns);
            new.push((start_ns, at_ns, what));
            at_ns = start_ns;
        }
        for (start_ns, end_ns, what) in new.into_iter().rev() {
            if self.stretches.len().is_multiple_of(STRETCHES) {
                self.kept.push_back(self.total.clone());
                self.begins_ns.push_back(start_ns);
            }
            self.stretches.push_back((end_ns, what));
            if self.divides == Some(what) {
                self.ends.push_back(end_ns);
            }
            self.total.add_to(what, end_ns - start_ns);
        }
    }

    /// Begins the sums earlier: as long before `from_ns` as they extend after it. So requests that are asked about
    /// latest first do not each begin anew.
    fn begin_before(&mut self, from_ns: u64, before: impl Fn(u64, u64) -> (u64, usize)) {
        let until_ns = self.until_ns();
        let begin_ns = from_ns.saturating_sub(until_ns.saturating_sub(from_ns));
        *self = Totals::new(begin_ns, self.divides);
        self.extend(until_ns, before);
    }

    /// The number of the last kept total that is not after `at_ns`; of the first if all are.
    fn kept_before(&self, at_ns: u64) -> usize {
        count_before(&self.begins_ns, |begin_ns| *begin_ns <= at_ns).saturating_sub(1)
    }

    /// Calls `each` with what has to be added to a kept total to get the total at `at_ns`.
    fn since_kept(&self, kept: usize, at_ns: u64, mut each: impl FnMut(usize, u64)) {
        let mut start_ns = self.begins_ns.get(kept).copied().unwrap_or(self.from_ns);
        for &(end_ns, what) in self.stretches.range(kept * STRETCHES..) {
            if start_ns >= at_ns {
                break;
            }
            each(what, end_ns.min(at_ns) - start_ns);
            start_ns = end_ns;
        }
    }

    /// What the thread did in `[from_ns, to_ns)`, as far as it is summed.
    pub(super) fn between(&self, from_ns: u64, to_ns: u64) -> Nanoseconds<N> {
        let (first, last) = (self.kept_before(from_ns), self.kept_before(to_ns));
        let mut spent = match first == last {
            true => Nanoseconds::default(),
            false => self.kept[last].clone().minus(&self.kept[first]),
        };
        self.since_kept(last, to_ns, |what, ns| spent.add_to(what, ns));
        self.since_kept(first, from_ns, |what, ns| spent.take_from(what, ns));
        spent
    }

    /// The end of the last dividing stretch up to `at_ns`.
    pub(super) fn divided_ns(&self, at_ns: u64) -> Option<u64> {
        last_before(&self.ends, |end_ns| *end_ns <= at_ns).copied()
    }

    /// Forgets what is not asked for any more.
    fn forget_before(&mut self, horizon_ns: u64) {
        while self.stretches.get(STRETCHES - 1).is_some_and(|(end_ns, _)| *end_ns <= horizon_ns) {
            let gone = self.stretches.drain(..STRETCHES).next_back();
            self.from_ns = gone.map_or(self.from_ns, |(end_ns, _)| end_ns);
            self.kept.pop_front();
            self.begins_ns.pop_front();
        }
        while self.ends.front().is_some_and(|end_ns| *end_ns <= self.from_ns) {
            self.ends.pop_front();
        }
    }
}
