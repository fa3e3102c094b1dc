//! For which question a request is asked: the evidence when it is asked, the evidence after it is answered, and how
//! certain both make it.
//!
//! The *begin* is what a thread took in before it asked; the *end* is the question that is answered after the answer
//! was heard. *Just* before or after: nothing else was taken in or given out in between. *At once*: in addition, the
//! thread did not look for what else is ready.
//!
//! | evidence | certainty |
//! | --- | --- |
//! | asked at once after a question was taken in, and answered at once before the same question is answered | sure |
//! | no other question was served throughout, and begin or end shows this question, just before or after | sure |
//! | begin and end show the same question, just before and after, or by its place among several | likely |
//! | no other question was served throughout | likely |
//! | answered at once before a question is answered, and nothing at once contradicts it | likely |
//! | asked at once after a question was taken in, by a thread that did nothing else until it was answered | likely |
//! | asked at once after a question was taken in, by a followed task or by a task that was handed it | likely |
//! | begin or end shows a question at once, in other cases; or answered just before a question is answered | guessed |
//! | asked by a thread that did nothing else, and had taken in no other question that is unanswered | guessed |
//!
//! `experiments/trees` measures how many of each are right.

use crate::detect::causality::Place;
use crate::detect::ids::{Asked, Link};
use crate::event::Object;
use crate::ownership::adjacent::Adjacency;
use crate::ownership::marks::Question;
use crate::timeline::{ProcessId, ThreadId};
use rpcprobe_model::Certainty;

/// A question for which a request seems to be asked, and by which evidence.
pub(super) type Told = (Asked, Adjacency);

/// What a thread had just taken in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// A question.
    Known(Asked),
    /// Bytes in which no question is known to begin: a later piece of a question, or a question that will be reported
    /// when the call that writes it ends.
    Bytes(Question),
}

/// What a thread had just taken in when it asked, or opened a connection to ask, or handed on what it had taken in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) taken: Taken,
    pub(super) adjacency: Adjacency,
    /// It was a question, not an answer.
    pub(super) is_question: bool,
    /// The thread, and when it asked, opened the connection or handed on.
    pub(super) at: (ThreadId, u64),
}

/// What is known about the parent when a request is asked, or a program started.
#[derive(Clone, Copy, Debug)]
pub(in crate::detect) struct Asking {
    pub(super) process: ProcessId,
    pub(super) thread: ThreadId,
    /// When the call that asked began.
    pub(super) asked_ns: u64,
    /// What the thread had just taken in.
    pub(super) begun: Option<Begun>,
    /// The only question that the thread, or a task that handed it the work, had taken in and not answered.
    pub(super) own: Option<Asked>,
    /// Where it asked; `None`: it started a program.
    pub(super) place: Option<Place>,
}

impl Asking {
    /// The process that asked.
    pub(in crate::detect) fn process(&self) -> ProcessId {
        self.process
    }

    /// The thread that asked.
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

    /// Whether later records may show more about which questions were being served when the request was asked.
    pub(in crate::detect) fn took_bytes(&self) -> bool {
        matches!(self.begun, Some(Begun { taken: Taken::Bytes(_), .. }))
    }
}

/// The call that received the last of an answer, or waited for a program.
#[derive(Clone, Copy, Debug)]
pub(in crate::detect) struct Heard {
    pub(in crate::detect) thread: ThreadId,
    pub(in crate::detect) exit_ns: u64,
    /// The channel of the answer; `None`: the call waited for a program to end.
    pub(in crate::detect) channel: Option<Object>,
}

/// The question for which a request was asked.
#[derive(Clone, Copy, Debug)]
pub(in crate::detect) enum Judged {
    For {
        link: Link,
        certainty: Certainty,
    },
    /// Nothing shows that it was for any question.
    Nobody,
    /// For a question that has been taken in, but was not reported.
    Untold,
}

/// All evidence of the question for which a request was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    pub(super) begun: Option<Told>,
    pub(super) ended: Option<Told>,
    /// The only question served from when it was asked until it was answered.
    pub(super) only: Option<Asked>,
    pub(super) own: Option<Asked>,
    /// The thread that asked received the answer, and moved nothing else in between.
    pub(super) did_nothing_else: bool,
    /// The asker is a followed task that had taken in a question, or was handed work by a task that had. (A task that
    /// had heard an answer may also send what others ask on the same connection.)
    pub(super) by_task: bool,
}

impl Evidence {
    /// The question for which the request was asked, and how certain that is.
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
