//! The life of an exchange: a question is seen, its server takes it in, answers come, it is over. Then it is settled,
//! or given up if missing records do not come in time.
//!
//! Each detector has its own evidence of each step, and no detector sees all steps: framing shows the end of an answer,
//! and a turn is over when its client asks again. A call's record comes when the call ends. So the steps may be
//! reported in any order, and after an exchange is over, records of calls that moved its bytes may still be missing.

use crate::timeline::{ProcessId, World};

/// What an exchange waits for before it is settled without it. A time without a named measurement is an assumption. A
/// request that needs longer is reported as incomplete or, at worst, not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// The record of a call in progress that has moved bytes of the exchange. It comes when the call ends: a call that
    /// sends more than the peer's buffer takes sleeps until the peer has read. Assumed: within two seconds, or never.
    Record,
    /// The next call of a client that shares memory, which shows that the client has its answer. A client that is
    /// answered and makes no call at all is computing. Assumed: as long as for a record.
    NextCall,
    /// A sign that need not come: a record of the other end, if that end is traced, too; a message's method, which user
    /// space decodes; the last records of an end that has exited; a hand-over between threads. Assumed: within a tenth
    /// of a second.
    Sign,
    /// More of an answer that ends with its connection. No record shows that an untraced peer closed the connection, so
    /// the answer is taken to be complete when nothing came for this long. Assumed: if a server pauses longer within an
    /// answer, the answer is cut off there.
    Close,
    /// More messages, after lost records, on a connection where all known questions are answered. If none come, no
    /// unknown question is open. `experiments/robustness` loses records and checks that no answer is given to another
    /// question.
    Rest,
    /// That a forked child runs a program. A child that never does, a worker, must not keep everything that happened
    /// since its fork. Measured: ten seconds of 1.3 million events each took 1.5 GB, so there is a bound in events as
    /// well. Also, without that bound, that the parent of a child that has exited waits for it.
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

    /// Until when to wait for what has been missing since `since_ns`.
    pub(super) fn until_ns(self, since_ns: u64) -> u64 {
        since_ns.saturating_add(self.ns())
    }
}

/// The present time, against which a [`Patience`] is checked.
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

    /// Whether what has been missing since `since_ns` is not waited for any more.
    pub(super) fn gives_up(self, patience: Patience, since_ns: u64) -> bool {
        self.over || patience.until_ns(since_ns) < self.now_ns
    }

    /// Whether the wait ends only because the capture ended.
    pub(super) fn cuts_short(self, patience: Patience, since_ns: u64) -> bool {
        self.over && patience.until_ns(since_ns) >= self.now_ns
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage<How> {
    Asked,
    /// Some of its answer has come, the latest part at `last_ns`.
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
    /// An exchange whose earliest known event was at `since_ns`.
    pub(super) fn asked(since_ns: u64) -> Life<How> {
        Life { since_ns, was_taken_in: false, server: None, stage: Stage::Asked }
    }

    /// Part of the exchange proves to be from `since_ns`.
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

    /// No process serves it any more. Returns the process that did.
    pub(super) fn let_go(&mut self) -> Option<ProcessId> {
        self.server.take()
    }

    /// Part of its answer was given out at `at_ns`.
    pub(super) fn answered(&mut self, at_ns: u64) {
        if let Stage::Asked | Stage::Answered { .. } = self.stage {
            self.stage = Stage::Answered { last_ns: at_ns.max(self.answered_ns().unwrap_or(0)) };
        }
    }

    /// When the latest known part of its answer was given out.
    pub(super) fn answered_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::Answered { last_ns } => Some(last_ns),
            Stage::Asked | Stage::Over { .. } => None,
        }
    }

    /// There will be no more of it. An end that was noted before was only a guess.
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
