//! What claims are told: who claims, and what of a thread's time.

use crate::timeline::ProcessId;

/// What claims need to know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Claimant {
    pub id: u64,
    pub parent: Option<u64>,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Who asked, if that is a traced process; and who served.
    pub client: Option<ProcessId>,
    pub server: Option<ProcessId>,
    /// The request is a program's life, which includes all that is done in it.
    pub encloses: bool,
}

/// What a segment shows of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// What it did on a CPU, or a packet's way in its own call.
    Work,
    /// It waited for whatever came next.
    Rest,
    Wait,
}
