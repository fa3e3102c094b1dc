//! For whom a request is asked: what tells so as it is asked, what does so after it is answered, and how sure both make it.
//!
//! *Just* before or after: with nothing else taken in or given out in between. *At once*: the thread did not look for what else
//! is ready either.
//!
//! | evidence | certainty |
//! | --- | --- |
//! | asked at once after a question was taken in, and answered at once before that one is | sure |
//! | no other was served all the while, and one of both says just so | sure |
//! | both just, or by its place among several | likely |
//! | no other was served all the while | likely |
//! | answered at once before a question is, and nothing at once speaks against it | likely |
//! | asked at once after a question was taken in, by a thread that did nothing else until it was answered | likely |
//! | asked at once after a question was taken in, in a task that is followed, or by one that was handed that | likely |
//! | one of both, at once, otherwise; or answered just before a question is | guessed |
//! | by a thread that did nothing else, and had taken in no other question | guessed |
//!
//! How many of each are right: `experiments/trees`.

use crate::detect::causality::Place;
use crate::detect::ids::{Asked, Link};
use crate::event::Object;
use crate::ownership::adjacent::Adjacency;
use crate::ownership::marks::Question;
use crate::timeline::{ProcessId, ThreadId};
use rpcprobe_model::Certainty;

/// A question that seems to be the one, and how that is told.
pub(super) type Told = (Asked, Adjacency);

/// What a thread had just taken in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// A question.
    Known(Asked),
    /// Bytes in which no question is known to begin: a later piece of one, or one whose writer's call is still under way and
    /// tells of it as it ends.
    Bytes(Question),
}

/// What a thread had just taken in when it asked, or opened a connection to ask, or handed on what it had taken in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) taken: Taken,
    pub(super) adjacency: Adjacency,
    /// It was a question, no answer.
    pub(super) is_question: bool,
    /// Which thread, and when it did.
    pub(super) at: (ThreadId, u64),
}

/// What is known of the request for which another one is asked, or a program started, as that is done.
#[derive(Clone, Copy, Debug)]
pub(in crate::detect) struct Asking {
    pub(super) process: ProcessId,
    pub(super) thread: ThreadId,
    /// When the call began that asked.
    pub(super) asked_ns: u64,
    /// What the thread had just taken in.
    pub(super) begun: Option<Begun>,
    /// The only question that it had taken in, and not answered.
    pub(super) own: Option<Asked>,
    /// Where, unless it is a program that is started.
    pub(super) place: Option<Place>,
}

impl Asking {
    /// The process that asked.
    pub(in crate::detect) fn process(&self) -> ProcessId {
        self.process
    }

    /// Its thread that did.
    pub(in crate::detect) fn thread(&self) -> ThreadId {
        self.thread
    }

    pub(in crate::detect) fn asked_ns(&self) -> u64 {
        self.asked_ns
    }

    /// The channel of the question.
    pub(in crate::detect) fn asks_on(&self) -> Option<Object> {
        self.place.as_ref().map(|place| place.channels[0])
    }

    /// Whether what comes later tells more of which questions were being served as that was asked.
    pub(in crate::detect) fn took_bytes(&self) -> bool {
        matches!(self.begun, Some(Begun { taken: Taken::Bytes(_), .. }))
    }
}

/// The call that received the last of an answer, or waited for a program.
#[derive(Clone, Copy, Debug)]
pub(in crate::detect) struct Heard {
    pub(in crate::detect) thread: ThreadId,
    pub(in crate::detect) exit_ns: u64,
    /// Where it came; `None`: it is a program's end that was waited for.
    pub(in crate::detect) channel: Option<Object>,
}

/// For which request another one was asked.
#[derive(Clone, Copy, Debug)]
pub(in crate::detect) enum Judged {
    For {
        link: Link,
        certainty: Certainty,
    },
    /// Nothing tells that it was for any.
    Nobody,
    /// For a question that has been taken in, and that nobody has told of.
    Untold,
}

/// All that tells for whom a request was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    pub(super) begun: Option<Told>,
    pub(super) ended: Option<Told>,
    /// The only question served from when it was asked until it was answered.
    pub(super) only: Option<Asked>,
    pub(super) own: Option<Asked>,
    /// The thread that asked received the answer, and moved nothing else in between.
    pub(super) did_nothing_else: bool,
    /// What asked is a task that is followed, and had taken in a question, or was handed what had: not an answer, on whose connection
    /// it may send what others ask, too.
    pub(super) by_task: bool,
}

impl Evidence {
    /// For whom it was asked, and how sure that is.
    pub(super) fn judged(&self) -> Option<(Asked, Certainty)> {
        let told_by = |told: Option<Told>, among: &[Adjacency]| {
            told.filter(|(_, adjacency)| among.contains(adjacency)).map(|(asked, _)| asked)
        };
        let just = |told| told_by(told, &[Adjacency::Alone, Adjacency::Polled]);
        let at_once = |told| told_by(told, &[Adjacency::Alone]);
        let sure_if = |sure| if sure { Certainty::Sure } else { Certainty::Likely };
        let agreed = self.begun.zip(self.ended).filter(|(begun, ended)| begun.0 == ended.0);
        let against = agreed.is_none() && self.begun.is_some() && self.ended.is_some();
        if let Some(only) = self.only {
            let told = just(self.begun) == Some(only) || just(self.ended) == Some(only);
            return Some((only, sure_if(told && !against)));
        }
        let (begun, ended) = (at_once(self.begun), at_once(self.ended));
        if let Some(((asked, _), _)) = agreed {
            return Some((asked, sure_if(begun.is_some() && ended.is_some())));
        }
        match (begun, ended) {
            (None, Some(ended)) => Some((ended, Certainty::Likely)),
            (Some(_), Some(ended)) => Some((ended, Certainty::Guessed)),
            (Some(begun), None) if !against && (self.did_nothing_else || self.by_task) => {
                Some((begun, Certainty::Likely))
            }
            (Some(begun), None) => Some((begun, Certainty::Guessed)),
            (None, None) => {
                let own = self.own.filter(|_| self.did_nothing_else && self.begun.is_none());
                own.or(just(self.ended)).map(|asked| (asked, Certainty::Guessed))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn question(number: u64) -> Asked {
        (Object { dev: 0, ino: number, type_bits: 0 }, 0)
    }

    const A: Asked = question(1);
    const B: Asked = question(2);
    const NOTHING: Evidence = Evidence {
        begun: None,
        ended: None,
        only: None,
        own: None,
        did_nothing_else: false,
        by_task: false,
    };

    /// Each line of the table of this module.
    #[test]
    fn certainty_is_by_what_agrees() {
        let alone = |asked| Some((asked, Adjacency::Alone));
        let polled = |asked| Some((asked, Adjacency::Polled));
        let placed = |asked| Some((asked, Adjacency::InOrder));
        let is = |evidence: Evidence, expected| assert_eq!(evidence.judged(), expected);
        let (sure, likely, guessed) = (Certainty::Sure, Certainty::Likely, Certainty::Guessed);
        is(Evidence { begun: alone(A), ended: alone(A), ..NOTHING }, Some((A, sure)));
        is(Evidence { begun: alone(A), only: Some(A), ..NOTHING }, Some((A, sure)));
        is(Evidence { ended: alone(A), only: Some(A), ..NOTHING }, Some((A, sure)));
        is(Evidence { begun: polled(A), only: Some(A), ..NOTHING }, Some((A, sure)));
        is(Evidence { begun: placed(A), ended: alone(A), ..NOTHING }, Some((A, likely)));
        is(Evidence { begun: polled(A), ended: alone(A), ..NOTHING }, Some((A, likely)));
        is(Evidence { begun: placed(A), ended: placed(A), ..NOTHING }, Some((A, likely)));
        is(Evidence { only: Some(A), ..NOTHING }, Some((A, likely)));
        is(
            Evidence { begun: alone(B), ended: alone(A), only: Some(A), ..NOTHING },
            Some((A, likely)),
        );
        is(Evidence { ended: alone(A), ..NOTHING }, Some((A, likely)));
        is(Evidence { begun: placed(B), ended: alone(A), ..NOTHING }, Some((A, likely)));
        is(Evidence { begun: alone(A), did_nothing_else: true, ..NOTHING }, Some((A, likely)));
        is(Evidence { begun: alone(A), by_task: true, ..NOTHING }, Some((A, likely)));
        is(
            Evidence { begun: alone(B), ended: alone(A), by_task: true, ..NOTHING },
            Some((A, guessed)),
        );
        is(Evidence { begun: alone(A), ..NOTHING }, Some((A, guessed)));
        is(Evidence { begun: alone(B), ended: alone(A), ..NOTHING }, Some((A, guessed)));
        is(Evidence { ended: polled(A), ..NOTHING }, Some((A, guessed)));
        is(Evidence { own: Some(A), did_nothing_else: true, ..NOTHING }, Some((A, guessed)));
        is(Evidence { own: Some(A), ..NOTHING }, None);
        is(Evidence { begun: placed(A), ..NOTHING }, None);
        is(Evidence { begun: polled(A), ..NOTHING }, None);
        is(Evidence { begun: placed(A), ended: placed(B), ..NOTHING }, None);
        is(NOTHING, None);
    }
}
