//! The life of an exchange: a question is seen, its server takes it in, answers come, it is over; then it is settled, or
//! given up when what is missing has been waited for long enough.
//!
//! What tells of each step is each detector's own matter, and none sees all of them: a framing tells of the end of an
//! answer, a turn is over when its client asks again. A call's record comes when the call ends, so the steps may
//! be told in any order, and after an exchange is over records of calls that moved its bytes may still be missing.

use crate::timeline::{ProcessId, World};

/// What is waited for before an exchange is settled without it. Where no measurement is named there was none: the time is
/// an assumption, and a request that it is too short for is told as incomplete or, at worst, not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// The record of a call under way that has moved bytes of it, which comes when the call ends: one that sends more than
    /// the peer's buffer takes sleeps until the peer has read. Assumed: within two seconds, or never.
    Record,
    /// The next call of a client that shares memory, by which it shows that it has its answer. One that is answered and
    /// makes no call at all computes. Assumed: as long as for a record.
    NextCall,
    /// A sign that need not come: a record of the other end, if that is traced, too; a message's method, which user space
    /// decodes; the last records of an end that has exited; a hand-over between threads. Assumed: within a tenth of a
    /// second.
    Sign,
    /// More of an answer that ends with its connection. Of a peer that is not traced nothing tells that it closed it, so
    /// the answer is taken to be whole when nothing came for so long. Assumed: a server that pauses longer within an
    /// answer is cut off there.
    Close,
    /// More on a connection where all that is known to be asked is answered, after records were lost: then no question is
    /// open that nobody knows of. `experiments/robustness` checks with records lost that no answer is given to another's
    /// question.
    Rest,
    /// That a forked child runs a program. One that never does, a worker, must not keep all that happened since its
    /// fork. Measured: ten seconds of 1.3 million events each took 1.5 GB, so a bound in events is beside it.
    Program,
}

impl Patience {
    const fn ns(self) -> u64 {
        match self {
            Patience::Record | Patience::NextCall => 2_000_000_000,
            Patience::Sign | Patience::Rest => 100_000_000,
            Patience::Close => 500_000_000,
            Patience::Program => 10_000_000_000,
        }
    }

    /// Until when it is waited for what has been missing since then.
    pub(super) fn until_ns(self, since_ns: u64) -> u64 {
        since_ns.saturating_add(self.ns())
    }
}

/// The time, as far as patience goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    now_ns: u64,
    /// No more events will come.
    over: bool,
}

impl Clock {
    pub(super) fn new(world: &World, over: bool) -> Clock {
        Clock { now_ns: world.now_ns, over }
    }

    /// Whether what has been missing since then is not waited for any more.
    pub(super) fn gives_up(self, patience: Patience, since_ns: u64) -> bool {
        self.over || patience.until_ns(since_ns) < self.now_ns
    }

    /// Whether the capture's end is all that has ended the waiting.
    pub(super) fn cuts_short(self, patience: Patience, since_ns: u64) -> bool {
        self.over && patience.until_ns(since_ns) >= self.now_ns
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage<How> {
    Asked,
    /// Some of its answer has come, the last of it then.
    Answered {
        last_ns: u64,
    },
    /// There will be no more of it.
    Over {
        how: How,
        at_ns: u64,
    },
}

/// How far an exchange has come. `How`: what ended it.
#[derive(Clone, Debug)]
pub(super) struct Life<How> {
    since_ns: u64,
    was_taken_in: bool,
    server: Option<ProcessId>,
    stage: Stage<How>,
}

impl<How> Default for Life<How> {
    fn default() -> Life<How> {
        Life::asked(0)
    }
}

impl<How> Life<How> {
    /// The earliest that is known of it is from then.
    pub(super) fn asked(since_ns: u64) -> Life<How> {
        Life { since_ns, was_taken_in: false, server: None, stage: Stage::Asked }
    }

    /// Something of it proves to be from then.
    pub(super) fn seen(&mut self, since_ns: u64) {
        self.since_ns = self.since_ns.min(since_ns);
    }

    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// A process has taken the question in, and serves it.
    pub(super) fn taken_in(&mut self, server: ProcessId) {
        self.was_taken_in = true;
        self.server = Some(server);
    }

    pub(super) fn was_taken_in(&self) -> bool {
        self.was_taken_in
    }

    /// Nobody serves it any more: who did.
    pub(super) fn let_go(&mut self) -> Option<ProcessId> {
        self.server.take()
    }

    /// Something of its answer was given out then.
    pub(super) fn answered(&mut self, at_ns: u64) {
        if let Stage::Asked | Stage::Answered { .. } = self.stage {
            self.stage = Stage::Answered { last_ns: at_ns.max(self.answered_ns().unwrap_or(0)) };
        }
    }

    /// When the last of its answer was given out that is known so far.
    pub(super) fn answered_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::Answered { last_ns } => Some(last_ns),
            Stage::Asked | Stage::Over { .. } => None,
        }
    }

    /// There will be no more of it. What was told before of its end is no more than a guess.
    pub(super) fn end(&mut self, how: How, at_ns: u64) {
        self.stage = Stage::Over { how, at_ns };
    }
}

impl<How: Copy> Life<How> {
    /// What has ended it, and when.
    pub(super) fn over(&self) -> Option<(How, u64)> {
        match self.stage {
            Stage::Over { how, at_ns } => Some((how, at_ns)),
            Stage::Asked | Stage::Answered { .. } => None,
        }
    }
}
