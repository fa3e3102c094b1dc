//! Where a thread's messages show whose work it does.
//!
//! Each call by which a thread moves a message on a connection leaves a mark on its time line: a question
//! that it takes in as a server, an answer that it gives, a question that it asks as a client for the sake of
//! what it serves, the answer to that. Between two marks of one request, with none of another's in between, a
//! thread works for it; see [`super::walk`].

use std::collections::VecDeque;

use super::event::{Call, Io, Object};
use super::recent::{count_before, last_before};
use super::serve;
use super::syscall::{waits, Waits};
use super::world::{Off, Thread, ThreadId, Why, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A server reads a question.
    Takes,
    /// A server writes an answer.
    Answers,
    /// A client writes a question.
    Asks,
    /// A client reads an answer.
    Hears,
}

/// Bytes of a channel of questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    pub object: Object,
    pub from: u64,
    pub to: u64,
}

/// A call that moved a message.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    pub enter_ns: u64,
    pub exit_ns: u64,
    pub kind: MarkKind,
    /// What it moved.
    pub moved: Question,
    /// For the sake of which question that the process serves, where that is known.
    pub of: Option<Question>,
    /// How many marks of the thread, with this one, are of another kind than [`MarkKind::Takes`].
    pub turns: u64,
    /// How often the thread had slept until something was ready, by then.
    pub rests: u64,
}

/// The marks of a thread.
#[derive(Debug, Default)]
pub struct Marks {
    /// In order of time.
    pub list: VecDeque<Mark>,
    turns: u64,
}

/// A server's thread asked somebody, or heard from somebody, for the sake of a question.
#[derive(Clone, Copy, Debug)]
pub struct Sake {
    pub of: Question,
    pub thread: ThreadId,
    pub exit_ns: u64,
}

/// Whether a thread that sleeps so waits for whatever comes next.
pub fn is_rest(off: &Off) -> bool {
    let slept = matches!(off.why, Why::Slept { uninterruptible: false, .. });
    slept
        && off.call.is_some_and(|call| {
            matches!(waits(call.nr, call.object), Waits::Readiness | Waits::Peer)
        })
}

/// The end of the last such sleep in `[from_ns, to_ns]`.
pub fn rested_ns(thread: &Thread, from_ns: u64, to_ns: u64) -> Option<u64> {
    let ended = count_before(&thread.off, |off| off.end_ns <= to_ns);
    let off = thread.off.range(..ended).rev().take_while(|off| off.end_ns > from_ns);
    { off }.find(|off| is_rest(off)).map(|off| off.end_ns)
}

impl World {
    /// A thread has moved bytes on a connection.
    pub(super) fn mark(&mut self, thread: ThreadId, call: &Call, io: &Io) {
        let Some(reverse) = io.reverse else { return };
        let carries_answers = serve::carries_answers(self, io.object, reverse);
        let kind = match (io.is_write, carries_answers) {
            (true, true) => MarkKind::Answers,
            (true, false) => MarkKind::Asks,
            (false, true) => MarkKind::Hears,
            (false, false) => MarkKind::Takes,
        };
        let moved =
            Question { object: io.object, from: io.offset, to: io.offset.saturating_add(io.bytes) };
        let asked = match kind {
            MarkKind::Takes | MarkKind::Asks => io.object,
            MarkKind::Answers | MarkKind::Hears => reverse,
        };
        let of = match kind {
            MarkKind::Takes => Some(moved),
            MarkKind::Answers => self.channels.get(&asked).and_then(|channel| channel.taken),
            MarkKind::Asks => self.works_for(thread, call.enter_ns),
            MarkKind::Hears => self.channels.get(&asked).and_then(|channel| channel.asked_for),
        };
        let channel = self.channels.entry(asked).or_default();
        match kind {
            MarkKind::Takes => channel.taken = Some(moved),
            MarkKind::Asks => channel.asked_for = of,
            MarkKind::Answers | MarkKind::Hears => {}
        }
        if let Some(of) = of.filter(|_| matches!(kind, MarkKind::Asks | MarkKind::Hears)) {
            let sakes = &mut self.channels.entry(of.object).or_default().sakes;
            sakes.push_back(Sake { of, thread, exit_ns: call.exit_ns });
        }
        let thread = &mut self.threads[thread as usize];
        let rests = thread.rests;
        let marks = &mut thread.marks;
        marks.turns += u64::from(kind != MarkKind::Takes);
        let (enter_ns, exit_ns, turns) = (call.enter_ns, call.exit_ns, marks.turns);
        marks.list.push_back(Mark { enter_ns, exit_ns, kind, moved, of, turns, rests });
    }

    /// For the sake of which question a thread works, as far as its own marks tell or those of who woke it.
    fn works_for(&self, id: ThreadId, at_ns: u64) -> Option<Question> {
        let thread = self.thread(id);
        let last = last_before(&thread.marks.list, |mark| mark.exit_ns <= at_ns);
        let own = last.filter(|mark| rested_ns(thread, mark.exit_ns, at_ns).is_none());
        if let Some(mark) = own {
            return mark.of.filter(|_| mark.kind != MarkKind::Answers);
        }
        let off = thread.off_before(at_ns).filter(|off| off.end_ns <= at_ns)?;
        let wake = off.wake.filter(|wake| wake.by_waker() && wake.waker != id)?;
        let waker = self.thread(wake.waker);
        let last = last_before(&waker.marks.list, |mark| mark.exit_ns <= wake.at_ns)?;
        let rested = rested_ns(waker, last.exit_ns, wake.at_ns).is_some();
        let hands = waker.process == thread.process && !rested && last.kind != MarkKind::Answers;
        last.of.filter(|_| hands)
    }
}
