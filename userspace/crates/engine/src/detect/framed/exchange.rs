//! A question and its answer, as far as they have been reported.

use crate::detect::causality::Asking;
use crate::detect::lifecycle::Life;
use crate::event::{GapWhy, Object};
use crate::protocols::{End, Said};
use crate::timeline::ProcessId;
use crate::walk::Message;
use rpcprobe_model::Reason;

/// Number of pieces of a message that are kept apart. Beyond that, the last piece also covers the gaps.
const MOST_RANGES: usize = 1024;

/// Bytes of a channel.
#[derive(Debug, Default, Clone)]
pub(super) struct Bytes {
    /// In order.
    ranges: Vec<(u64, u64)>,
    pub(super) count: u64,
}

impl Bytes {
    pub(super) fn add(&mut self, from: u64, to: u64) {
        self.count = self.count.saturating_add(to.saturating_sub(from));
        let full = self.ranges.len() >= MOST_RANGES;
        match self.ranges.last_mut() {
            Some(last) if last.1 == from || full => last.1 = last.1.max(to),
            _ => self.ranges.push((from, to)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of the first byte.
    pub(super) fn first(&self) -> Option<u64> {
        self.ranges.first().map(|(from, _)| *from)
    }

    /// Number of the last byte.
    pub(super) fn last(&self) -> Option<u64> {
        self.ranges.last().map(|(_, to)| to - 1)
    }

    /// Cuts the first piece to `bytes`, and drops the others.
    pub(super) fn cut(&mut self, bytes: u64) {
        self.ranges.truncate(1);
        if let Some((from, to)) = self.ranges.first_mut() {
            *to = from.saturating_add(bytes).clamp(*from + 1, *to);
            self.count = *to - *from;
        }
    }

    /// Extends the last piece up to `to`, whatever its length was before.
    pub(super) fn reach(&mut self, to: u64) {
        if let Some(last) = self.ranges.last_mut().filter(|last| last.1 < to) {
            self.count = self.count.saturating_add(to - last.1);
            last.1 = to;
        }
    }

    pub(super) fn messages(&self, object: Object) -> impl Iterator<Item = Message> + '_ {
        self.ranges.iter().map(move |&(from, to)| Message { object, from, to })
    }
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// As its protocol reports.
    Told(End),
    /// Before its answer was reported.
    Torn(Torn),
}

/// Why questions and answers cannot be matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Torn {
    Records,
    Framing(GapWhy),
}

impl Torn {
    /// The reason of a request whose answer may be among the missing messages.
    pub(super) fn before_its_answer(self) -> Reason {
        match self {
            Torn::Records => Reason::RecordsLostBeforeAnswer,
            Torn::Framing(why) => Reason::NotFollowed { why },
        }
    }

    /// The reason of a request whose answer may belong to another request. `nth`: answers are paired by order.
    pub(super) fn before_it(self, nth: bool) -> Reason {
        match self {
            Torn::Records => Reason::RecordsLostBefore,
            Torn::Framing(_) if !nth => self.before_its_answer(),
            Torn::Framing(why) => Reason::NotFollowedBefore { why },
        }
    }
}

#[derive(Debug, Default, Clone)]
pub(super) struct Exchange {
    /// Stream or XID.
    pub(super) id: u32,
    pub(super) asked: Bytes,
    pub(super) answered: Bytes,
    pub(super) said: Said,
    /// Units whose methods are still to be reported: whether they are of the question, and where they begin.
    pub(super) unnamed: Vec<(bool, u64)>,
    /// How often the question was sent again.
    pub(super) repeats: u32,
    /// From the begin of the earliest call that moved bytes of it.
    pub(super) life: Life<Ended>,
    /// Where answers come in the order of the questions: set when the whole question (or, before both are paired, the
    /// whole answer) was reported, with how it ended.
    pub(super) whole: Option<End>,
    /// Why it is not sure which answer, or which bytes, belong to it.
    pub(super) doubted: Option<Torn>,
    /// The asking thread, and for what it asks, has been determined.
    pub(super) linked: bool,
    /// What was known about its parent when it was asked.
    pub(super) asking: Option<Asking>,
    /// The program in whose life it is asked.
    pub(super) program: Option<ProcessId>,
}
