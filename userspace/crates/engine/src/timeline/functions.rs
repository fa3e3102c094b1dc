//! Kernel functions that are hooked directly, on request (`--direct-hooks`): when a thread ran through them.

use crate::event::{Function, KernelWait, Transport};
use crate::timeline::gallop::{count_before, last_before, History};
use crate::timeline::retention::trim;
use crate::timeline::Off;

/// A function, from its begin to its end: `[start_ns, end_ns)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<T> {
    pub start_ns: u64,
    pub end_ns: u64,
    pub what: T,
    pub number: u64,
}

/// The runs of a thread, which is in one function of each sort at a time.
#[derive(Debug, Default)]
pub struct Functions {
    copies: History<Run<()>>,
    waits: History<Run<KernelWait>>,
    transports: History<Run<Transport>>,
}

impl Functions {
    pub(super) fn add(&mut self, (start_ns, end_ns): (u64, u64), function: Function, number: u64) {
        match function {
            Function::Copy => self.copies.push_back(Run { start_ns, end_ns, what: (), number }),
            Function::Wait(what) => self.waits.push_back(Run { start_ns, end_ns, what, number }),
            Function::Transport(what) => {
                self.transports.push_back(Run { start_ns, end_ns, what, number });
            }
        }
    }

    /// The latest copy that began before `at_ns`.
    pub fn copy_before(&self, at_ns: u64) -> Option<&Run<()>> {
        last_before(&self.copies, |copy| copy.start_ns < at_ns)
    }

    /// How long the copies in `[from_ns, to_ns]` took.
    pub fn copied_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        if self.copies.is_empty() {
            return 0; // they are recorded on request only
        }
        let copies = self.copies_in(from_ns, to_ns);
        copies.map(|copy| copy.end_ns - copy.start_ns).fold(0, u64::saturating_add)
    }

    /// The number of bytes that were copied in `[from_ns, to_ns]`.
    pub fn copied_bytes(&self, from_ns: u64, to_ns: u64) -> u64 {
        if self.copies.is_empty() {
            return 0;
        }
        self.copies_in(from_ns, to_ns).map(|copy| copy.number).fold(0, u64::saturating_add)
    }

    /// The copies in `[from_ns, to_ns]`.
    fn copies_in(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Run<()>> {
        let first = count_before(&self.copies, |copy| copy.end_ns <= from_ns);
        self.copies.range(first..).take_while(move |copy| copy.start_ns < to_ns)
    }

    /// The last begin or end before `at_ns` of a function below the common layers; 0: none.
    pub fn transport_border_before(&self, at_ns: u64) -> u64 {
        let last = last_before(&self.transports, |run| run.start_ns < at_ns);
        last.map_or(0, |run| if run.end_ns < at_ns { run.end_ns } else { run.start_ns })
    }

    /// The function below the common layers that the thread was in up to `at_ns`.
    pub fn transport_at(&self, at_ns: u64) -> Option<Transport> {
        let last = last_before(&self.transports, |run| run.start_ns < at_ns)?;
        (last.end_ns >= at_ns).then_some(last.what)
    }

    /// The run, of a function that sleeps for one thing only, in which the thread was off its CPU.
    pub fn wait_around(&self, off: &Off) -> Option<&Run<KernelWait>> {
        let last = last_before(&self.waits, |run| run.start_ns <= off.start_ns)?;
        (last.end_ns >= off.end_ns).then_some(last)
    }

    pub(super) fn forget_before(&mut self, horizon_ns: u64) {
        trim(&mut self.copies, 1, |run| run.end_ns < horizon_ns);
        trim(&mut self.waits, 0, |run| run.end_ns < horizon_ns);
        trim(&mut self.transports, 1, |run| run.end_ns < horizon_ns);
    }
}
