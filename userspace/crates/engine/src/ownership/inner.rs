//! Which requests were under way in the life of a program.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::ownership::claims::Claimant;
use crate::timeline::ProcessId;

/// `(start_ns, end_ns, id)` of a request.
type Window = (u64, u64, u64);

/// The requests that lie in another one, or in one that does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inner(Vec<Window>);

impl Inner {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// When any was under way, in order of time; pauses shorter than `pause_ns` count as well.
    pub fn under_way(&self, pause_ns: u64) -> Vec<(u64, u64)> {
        let mut all: Vec<(u64, u64)> = Vec::new();
        for &(start_ns, end_ns, _) in &self.0 {
            match all.last_mut() {
                Some((_, until_ns)) if start_ns < until_ns.saturating_add(pause_ns) => {
                    *until_ns = end_ns.max(*until_ns);
                }
                _ => all.push((start_ns, end_ns)),
            }
        }
        all
    }
}

/// Those of requests that are still open.
#[derive(Debug, Default)]
pub struct OfOpen {
    /// By the request that they were made for.
    by_parent: FxHashMap<u64, Vec<Window>>,
    /// By the processes that asked and served, nearly in the order in which they ended.
    by_process: FxHashMap<ProcessId, VecDeque<Window>>,
}

impl OfOpen {
    /// A request is over: returns what lies in it if it is a program's life. That is what was made for it, and what its
    /// process asked or served; all of it lies in its parent's life as well.
    pub fn over(&mut self, request: &Claimant) -> Inner {
        let window = (request.start_ns, request.end_ns, request.id);
        let mut inner = self.by_parent.remove(&request.id).unwrap_or_default();
        if request.encloses {
            let own = request.program.and_then(|program| self.by_process.get(&program));
            let within =
                |(_, end_ns, _): &&Window| (request.start_ns..=request.end_ns).contains(end_ns);
            inner.extend(own.into_iter().flatten().filter(within));
            inner.sort_unstable();
            inner.dedup();
        } else {
            inner.clear();
            for process in request.server.into_iter().chain(request.client) {
                self.by_process.entry(process).or_default().push_back(window);
            }
        }
        if let Some(parent) = request.parent {
            let of_parent = self.by_parent.entry(parent).or_default();
            of_parent.push(window);
            of_parent.extend_from_slice(&inner);
        }
        Inner(inner)
    }

    /// Forgets what lies in no request that is open or begins at or after `horizon_ns`.
    pub fn forget_before(&mut self, horizon_ns: u64) {
        let ended = |(_, end_ns, _): &Window| *end_ns < horizon_ns;
        self.by_parent.retain(|_, windows| !windows.iter().all(ended));
        self.by_process.retain(|_, windows| {
            while windows.front().is_some_and(ended) {
                windows.pop_front();
            }
            !windows.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(id: u64, parent: Option<u64>, start_ns: u64, end_ns: u64) -> Claimant {
        let (encloses, program) = (id < 10, Some(id as ProcessId));
        Claimant { id, parent, start_ns, end_ns, client: None, server: None, encloses, program }
    }

    #[test]
    fn what_lies_in_a_program_lies_in_its_parent() {
        let mut open = OfOpen::default();
        open.over(&claimant(11, Some(2), 20, 30));
        open.over(&claimant(12, Some(2), 25, 40));
        open.over(&claimant(13, Some(2), 60, 70));
        let inner = open.over(&claimant(2, Some(1), 10, 80));
        assert_eq!(inner.count(), 3);
        assert_eq!(inner.under_way(0), [(20, 40), (60, 70)]);
        assert_eq!(inner.under_way(21), [(20, 70)]);
        assert_eq!(open.over(&claimant(1, None, 0, 100)).count(), 4);
        assert_eq!(open.over(&claimant(1, None, 0, 100)).count(), 0);
    }

    /// Once, also if it was made for that program; and not what the process served before.
    #[test]
    fn what_a_program_serves_lies_in_its_life() {
        let mut open = OfOpen::default();
        let served = |id, parent, end_ns| Claimant {
            server: Some(3),
            ..claimant(id, parent, end_ns - 10, end_ns)
        };
        for request in [served(11, None, 15), served(12, None, 40), served(13, Some(3), 70)] {
            open.over(&request);
        }
        assert_eq!(open.over(&claimant(3, None, 20, 80)).count(), 2);
    }

    #[test]
    fn of_a_parent_that_never_ends_nothing_is_kept() {
        let mut open = OfOpen::default();
        open.over(&Claimant { server: Some(3), ..claimant(11, Some(2), 20, 30) });
        open.forget_before(30);
        assert_eq!((open.by_parent.len(), open.by_process.len()), (1, 1));
        open.forget_before(31);
        assert!(open.by_parent.is_empty() && open.by_process.is_empty());
    }
}
