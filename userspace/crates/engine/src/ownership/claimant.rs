//! What claims need to know: which request claims, and what a segment shows of its thread.

use crate::timeline::ProcessId;

/// What claims need to know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Claimant {
    pub id: u64,
    pub parent: Option<u64>,
    pub start_ns: u64,
    pub end_ns: u64,
    /// The process that asked, if it is traced, and the process that served.
    pub client: Option<ProcessId>,
    pub server: Option<ProcessId>,
    /// The request is a program's life, which includes all that is done in it.
    pub encloses: bool,
}

impl Claimant {
    pub fn latency_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// What a segment shows of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// Work of the thread on a CPU, or a packet's way in the thread's own call.
    Work,
    /// The thread waited for whatever came next.
    Rest,
    Wait,
}
