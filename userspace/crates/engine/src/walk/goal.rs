//! The input of a walk: what is to be explained, and with which settings.

use crate::calibration::Rates;
use crate::walk::*;

/// What to explain.
#[derive(Clone, Debug)]
pub struct Goal {
    pub start_ns: u64,
    pub end_ns: u64,
    /// The thread that had the answer at `end_ns`.
    pub client: ThreadId,
    pub client_process: ProcessId,
    /// The process that read the question.
    pub server_process: Option<ProcessId>,
    /// The process that answered, if it is another one: as a rule a child that was forked to do so.
    pub answerer: Option<ProcessId>,
    /// Bytes of this request on its channels; empty when it is not made of messages.
    pub messages: Vec<Message>,
    /// The child whose collection ended the request.
    pub child: Option<ProcessId>,
    /// The other thread of the client that had read the answer, and when it had the answer, if there is one.
    pub handed: Option<(ThreadId, u64)>,
    /// The thread that told the server by a word in shared memory that it was its turn, and when, if it was told in
    /// this way.
    pub passed: Option<(ThreadId, u64)>,
}

impl Goal {
    /// A goal with nothing else known; `client`: the thread that had the answer, and the process that asked.
    pub fn new(start_ns: u64, end_ns: u64, client: (ThreadId, ProcessId)) -> Goal {
        Goal {
            start_ns,
            end_ns,
            client: client.0,
            client_process: client.1,
            server_process: None,
            answerer: None,
            messages: Vec::new(),
            child: None,
            handed: None,
            passed: None,
        }
    }

    /// The program whose life this is, or whose turn on its standard input and output. All of its threads lead to the
    /// begin.
    pub fn life(&self) -> Option<ProcessId> {
        let is_own = self.messages.is_empty() && self.server_process == Some(self.client_process);
        let own = self.server_process.filter(|_| is_own && self.passed.is_none());
        self.child.or(own)
    }

    /// Whether the process is the server, or answered in the server's stead.
    pub fn is_served_by(&self, process: ProcessId) -> bool {
        [self.server_process, self.answerer].contains(&Some(process))
    }

    /// Whether the process asked and serves nothing of the request. If only the server's end is traced, the server
    /// stands for both ends.
    pub fn only_asks(&self, process: ProcessId) -> bool {
        process == self.client_process && !self.is_served_by(process)
    }

    /// Whether the transfer moved bytes of the request's messages.
    pub fn has(&self, io: &Io) -> bool {
        let end = io.offset.saturating_add(io.bytes);
        let overlaps = |m: &Message| m.object == io.object && m.from < end && io.offset < m.to;
        self.messages.iter().any(overlaps)
    }

    /// Number of the last byte of the request that the transfer moved, if it moved any.
    pub fn last_of(&self, io: &Io) -> Option<u64> {
        let end = io.offset.saturating_add(io.bytes);
        let of = self.messages.iter().filter(|m| m.object == io.object);
        let overlapping = of.filter(|m| m.from < end && io.offset < m.to);
        overlapping.map(|m| m.to.min(end) - 1).max()
    }
}

/// Bytes `[from, to)` of a channel that belong to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub object: Object,
    pub from: u64,
    pub to: u64,
}

/// The walk needs a record of this thread that has not come yet.
#[derive(Debug, PartialEq, Eq)]
pub struct NotYet(pub ThreadId);

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub rates: Rates,
    /// The capture is over: what is not known will stay unknown.
    pub no_more_records: bool,
    /// The walk does without this rule: see [`crate::Engine::leave_out`].
    pub without: Option<Rule>,
    /// What is otherwise added up is reported piece by piece.
    pub every_piece: bool,
    /// Steps spent on the request before the rest is given up.
    pub most_steps: usize,
    /// The results of other requests' walks are not used.
    pub alone: bool,
}

impl Settings {
    /// The usual settings.
    pub fn new(rates: Rates) -> Settings {
        let (no_more_records, without, every_piece, alone) = (false, None, false, false);
        Settings { rates, no_more_records, without, every_piece, most_steps: usize::MAX, alone }
    }
}
