//! A question and its answer, as far as they have been reported.

use crate::detect::causality::Asking;
use crate::detect::lifecycle::Life;
use crate::event::{GapWhy, Object};
use crate::protocols::{End, Said};
use crate::timeline::ProcessId;
use crate::walk::Message;
use rpcprobe_model::Reason;

/// Pieces of a message kept apart: beyond, the last one covers what lies between, too.
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

    /// Cuts the first piece, and drops the others.
    pub(super) fn cut(&mut self, bytes: u64) {
        self.ranges.truncate(1);
        if let Some((from, to)) = self.ranges.first_mut() {
            *to = from.saturating_add(bytes).clamp(*from + 1, *to);
            self.count = *to - *from;
        }
    }

    /// Up to there, whatever was said before.
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
    /// As its protocol tells.
    Told(End),
    /// Before its answer was told.
    Torn(Torn),
}

/// What keeps questions and answers from being told from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Torn {
    Records,
    Framing(GapWhy),
}

impl Torn {
    /// Of a request whose answer may have been among what is missing.
    pub(super) fn before_its_answer(self) -> Reason {
        match self {
            Torn::Records => Reason::RecordsLostBeforeAnswer,
            Torn::Framing(why) => Reason::NotFollowed { why },
        }
    }

    /// Of one whose answer is perhaps another's, as the `nth` is.
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
    /// Units whose methods are still to be told: whether of the question, and where they begin.
    pub(super) unnamed: Vec<(bool, u64)>,
    /// How often the question was sent again.
    pub(super) repeats: u32,
    /// From the begin of the earliest call that moved bytes of it.
    pub(super) life: Life<Ended>,
    /// Where answers come in the order of the questions: all of its question, or as long as that is not known all of its
    /// answer, was told, and how it ended.
    pub(super) whole: Option<End>,
    /// Which answer is its own, or what belongs to it, is not known for sure.
    pub(super) doubted: Option<Torn>,
    /// Who asks has been looked at.
    pub(super) linked: bool,
    /// What was known, as it was asked, of the request for which it was.
    pub(super) asking: Option<Asking>,
    /// The program in whose life it is asked.
    pub(super) program: Option<ProcessId>,
}
