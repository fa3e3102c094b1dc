//! Marks: the instants at which a thread's messages show for which request it works.
//!
//! Each call by which a thread moves a message on a connection leaves a mark on its time line: a question that it takes
//! in as a server, an answer that it gives, a question that it asks as a client for the sake of what it serves, or the
//! answer that it hears to such a question. Between two marks of one request, with no other request's marks in between,
//! a thread works for that request; see [`crate::walk`].

use crate::classify::syscall::{is_write, waits, Waits};
use crate::event::{Call, Io, Object};
use crate::ownership::handed::{handed_by, handed_by_several, handed_through, is_task};
use crate::ownership::sakes::Sake;
use crate::ownership::service_start;
use crate::timeline::gallop::{count_before, History};
use crate::timeline::{Channel, Off, Thread, ThreadId, Transfer, Why, World};

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

/// Bytes of a channel: a question, or whatever else a call moved.
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
    /// The question served by the process for whose sake it was moved, if that is known.
    pub of: Option<Question>,
    /// No other question had been taken in that it might be for as well.
    pub sure: bool,
    /// Number of the thread's marks up to and including this one that are not [`MarkKind::Takes`].
    pub turns: u64,
    /// Number of rests (see [`is_rest`]) of the thread before this mark.
    pub rests: u64,
    /// How often the thread had polled for what is ready before this mark: the number of its turn, if it is an event
    /// loop.
    pub polls: u64,
    /// Number of the thread's marks up to and including this one that take something in.
    pub taken: u64,
    /// Number of those that give something out, and of connections that the thread has opened.
    pub given: u64,
    /// Number of marks before this one with as many turns and rests.
    pub alike: u32,
}

impl Mark {
    /// Whether it takes something in: a question, or an answer.
    pub fn takes_in(&self) -> bool {
        matches!(self.kind, MarkKind::Takes | MarkKind::Hears)
    }
}

/// The marks of a thread.
#[derive(Debug, Default)]
pub struct Marks {
    /// In order of time.
    pub list: History<Mark>,
    /// When the thread began to open connections, to ask on them.
    pub opens: History<u64>,
    turns: u64,
    taken: u64,
    given: u64,
    /// It has taken in a question.
    takes: bool,
    /// It has answered a question. Tasks that are handed what others take in do so, too.
    answers: bool,
    /// It has asked a question, or heard the answer to one.
    asks: bool,
}

/// Whether a sleep is a rest: the thread waits for whatever comes next (not for room in a buffer that it writes
/// to).
pub fn is_rest(off: &Off) -> bool {
    let slept = matches!(off.why, Why::Slept { uninterruptible: false, .. });
    slept
        && off.call.is_some_and(|call| match waits(call.nr, call.object) {
            Waits::Readiness => true,
            Waits::Peer => !is_write(call.nr),
            _ => false,
        })
}

/// The end of the last rest in `[from_ns, to_ns]`.
pub fn rested_ns(thread: &Thread, from_ns: u64, to_ns: u64) -> Option<u64> {
    let ended = count_before(&thread.off, |off| off.end_ns <= to_ns);
    let off = thread.off.range(..ended).rev().take_while(|off| off.end_ns > from_ns);
    { off }.find(|off| is_rest(off)).map(|off| off.end_ns)
}

impl Marks {
    /// The marks of the call that began at `enter_ns`.
    pub(crate) fn of_call(&self, enter_ns: u64) -> impl Iterator<Item = &Mark> {
        let first = count_before(&self.list, |mark| mark.enter_ns < enter_ns);
        self.list.range(first..).take_while(move |mark| mark.enter_ns == enter_ns)
    }

    /// Whether the thread takes in questions for others, as a reactor does: it has answered none, and has asked nothing.
    pub fn only_takes(&self) -> bool {
        self.takes && !self.answers && !self.asks
    }

    /// Whether the thread is only a client: all that it has moved are questions that it asked and answers to them, or
    /// it has only opened connections for that.
    pub(crate) fn is_clients(&self) -> bool {
        !self.takes && !self.answers && (!self.list.is_empty() || !self.opens.is_empty())
    }

    /// Whether it has taken in a question, or answered one.
    pub(crate) fn serves(&self) -> bool {
        self.takes || self.answers
    }

    /// Whether it has taken in a question.
    pub(crate) fn takes_questions(&self) -> bool {
        self.takes
    }

    /// The thread has opened a connection.
    pub(crate) fn opened(&mut self, enter_ns: u64) {
        self.given += 1;
        self.opens.push_back(enter_ns);
    }
}

impl World {
    /// Adds a mark: the thread has moved bytes on a connection.
    pub(crate) fn mark(&mut self, thread: ThreadId, call: &Call, io: &Io) {
        let Some(reverse) = io.reverse else { return };
        let process = self.threads[thread as usize].process;
        self.processes[process as usize].has_connections = true;
        let carries_answers = service_start::carries_answers(self, io.object, reverse);
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
        let known = |question: Option<Question>| question.map(|question| (question, true));
        let of = match kind {
            MarkKind::Takes => Some((moved, true)),
            MarkKind::Answers => {
                let taken = self.channels.get(&asked).and_then(|channel| channel.taken);
                known(taken.map(|taken| taken.by(call.enter_ns)))
            }
            MarkKind::Asks => self.works_for(thread, call.enter_ns),
            MarkKind::Hears => self.asks_for(asked),
        };
        if kind == MarkKind::Asks {
            self.list_asked(process, asked);
            self.note_use(thread, call, (asked, reverse), of);
        }
        let channel = self.channels.entry(asked).or_default();
        match kind {
            MarkKind::Takes => channel.take(moved, call.exit_ns),
            MarkKind::Asks => channel.asked_for = of,
            MarkKind::Answers | MarkKind::Hears => {}
        }
        let (of, sure) = (of.map(|(question, _)| question), of.is_none_or(|(_, sure)| sure));
        if kind == MarkKind::Answers && self.threads[thread as usize].marks.takes {
            let reader = of.and_then(|of| self.read_of(&of)).map(|read| read.thread);
            self.processes[process as usize].shares_work |= reader.is_some_and(|id| id != thread);
        }
        if let Some(of) = of.filter(|_| matches!(kind, MarkKind::Asks | MarkKind::Hears)) {
            let sakes = &mut self.channels.entry(of.object).or_default().sakes;
            sakes.push_back(Sake { of, thread, exit_ns: call.exit_ns });
        }
        let marks = &mut self.threads[thread as usize].marks;
        marks.takes |= kind == MarkKind::Takes;
        marks.answers |= kind == MarkKind::Answers;
        marks.asks |= matches!(kind, MarkKind::Asks | MarkKind::Hears);
        if let Some(of) = of.filter(|_| kind == MarkKind::Answers) {
            self.note_passed_on(thread, of.object);
        }
        self.leave_mark(thread, call, (kind, moved), (of, sure));
        if kind == MarkKind::Answers {
            self.heard_for_it(thread);
        }
    }

    /// Adds a mark to the time line of the thread that made the call.
    fn leave_mark(
        &mut self,
        thread: ThreadId,
        call: &Call,
        (kind, moved): (MarkKind, Question),
        (of, sure): (Option<Question>, bool),
    ) {
        let of_thread = &mut self.threads[thread as usize];
        let (rests, polls) = (of_thread.rests, of_thread.polls);
        let marks = &mut of_thread.marks;
        let takes_in = matches!(kind, MarkKind::Takes | MarkKind::Hears);
        marks.turns += u64::from(kind != MarkKind::Takes);
        marks.taken += u64::from(takes_in);
        marks.given += u64::from(!takes_in);
        let turns = marks.turns;
        let before = marks.list.back().filter(|mark| (mark.turns, mark.rests) == (turns, rests));
        let alike = before.map_or(0, |mark| mark.alike.saturating_add(1));
        marks.list.push_back(Mark {
            enter_ns: call.enter_ns,
            exit_ns: call.exit_ns,
            kind,
            moved,
            of,
            sure,
            turns,
            rests,
            polls,
            taken: marks.taken,
            given: marks.given,
            alike,
        });
    }

    /// A thread has closed a connection, of which it reads from the first direction and writes to the other. If it
    /// serves there, and the last question has not been answered, this is all the answer it gets (MySQL's COM_QUIT has
    /// none).
    pub(crate) fn mark_close(
        &mut self,
        thread: ThreadId,
        call: &Call,
        [asked, answers]: [Object; 2],
    ) {
        let Some(taken) = self.channels.get(&asked).and_then(|channel| channel.taken) else {
            return;
        };
        let of = taken.by(call.enter_ns);
        if self.is_answered_before(&of, call.enter_ns) {
            return;
        }
        let end = self.channels.get(&answers).and_then(|known| Some(known.writes.back()?.to));
        let nothing = Question { object: answers, from: end.unwrap_or(0), to: end.unwrap_or(0) };
        self.leave_mark(thread, call, (MarkKind::Answers, nothing), (Some(of), true));
    }

    /// The call that read the first byte of a question.
    pub(crate) fn read_of(&self, question: &Question) -> Option<&Transfer> {
        Channel::find(&self.channels.get(&question.object)?.reads, question.from)
    }

    /// The question for which a thread works, by its own marks or those of its waker, and whether that is sure: no
    /// other question had been taken in that the work might be for.
    pub(crate) fn works_for(&self, id: ThreadId, at_ns: u64) -> Option<(Question, bool)> {
        let own = self.last_unless_rested(id, at_ns);
        let handed = || self.handed(id, own.map_or(0, |(_, mark)| mark.exit_ns), at_ns);
        let Some((index, mark)) = own else { return handed() };
        match mark.kind {
            // A task goes on with what it was handed. For a thread, there is too little evidence that it goes on with
            // anything.
            MarkKind::Answers if is_task(self, id) => handed(),
            MarkKind::Answers => None,
            MarkKind::Takes => Some((mark.of?, takes_alone(&self.thread(id).marks.list, index))),
            // A worker may be done with its part, and have been handed what another thread has just taken in.
            MarkKind::Asks | MarkKind::Hears => {
                handed().or_else(|| mark.of.map(|question| (question, mark.sure)))
            }
        }
    }

    /// Number of messages that a mark's call moved on its channel.
    pub(crate) fn messages_of(&self, mark: &Mark) -> u32 {
        let channel = self.channels.get(&mark.moved.object);
        channel.map_or(1, |channel| channel.messages(mark.moved.from, mark.moved.to))
    }

    /// How often a thread had polled for what is ready when it moved a message by a call that began or ended at
    /// `at_ns`.
    pub(crate) fn polls_at(&self, id: ThreadId, at_ns: u64) -> Option<u64> {
        let marks = &self.thread(id).marks.list;
        let next = count_before(marks, |mark| mark.exit_ns < at_ns);
        marks.range(next..).take_while(|mark| mark.enter_ns <= at_ns).find_map(|mark| {
            (mark.enter_ns == at_ns || mark.exit_ns == at_ns).then_some(mark.polls)
        })
    }

    /// When the thread's poll with this `number` returned, the poll before it, and so on; 0 where that is not known.
    pub(crate) fn polled<const COUNT: usize>(&self, id: ThreadId, number: u64) -> [u64; COUNT] {
        let thread = self.thread(id);
        let forgotten = thread.polls - thread.polled.len() as u64;
        std::array::from_fn(|back| {
            let at = number.checked_sub(forgotten + 1 + back as u64);
            at.and_then(|at| thread.polled.get(usize::try_from(at).ok()?))
                .map_or(0, |(_, exit_ns)| *exit_ns)
        })
    }

    /// The last mark of a thread, if it has not rested since.
    pub(crate) fn last_unless_rested(&self, id: ThreadId, at_ns: u64) -> Option<(usize, &Mark)> {
        let thread = self.thread(id);
        let marks = &thread.marks.list;
        let index = count_before(marks, |mark| mark.exit_ns <= at_ns).checked_sub(1)?;
        let mark = &marks[index];
        rested_ns(thread, mark.exit_ns, at_ns).is_none().then_some((index, mark))
    }

    /// The question that another thread of the process had just taken in, or gone on with, when it woke this thread
    /// after `since_ns`; or the question of a task that had handed on the work to the waker ([`handed_through`]).
    fn handed(&self, id: ThreadId, since_ns: u64, at_ns: u64) -> Option<(Question, bool)> {
        let several = handed_by_several(self, id, since_ns, at_ns);
        let first = handed_by(self, (id, since_ns, at_ns), &several)?;
        let others = handed_through(self, id, (since_ns, at_ns)).skip(1);
        let mut by = std::iter::once(first).chain(others);
        let (waker, (index, last)) = by
            .find_map(|(waker, woke_ns)| Some((waker, self.last_unless_rested(waker, woke_ns)?)))?;
        let may_hand = match last.kind {
            MarkKind::Answers => false,
            MarkKind::Takes => true,
            MarkKind::Asks | MarkKind::Hears => since_ns == 0,
        };
        let alone =
            last.kind != MarkKind::Takes || takes_alone(&self.thread(waker).marks.list, index);
        let question = last.of.filter(|_| may_hand);
        question.map(|question| (question, last.sure && alone && several.is_empty()))
    }
}

/// Whether the thread had taken in nothing on other connections since it last did anything else, or rested.
fn takes_alone(marks: &History<Mark>, last: usize) -> bool {
    let begin = batch_begin(marks, last);
    let mut batch = marks.range(begin..=last);
    batch.all(|mark| mark.moved.object == marks[last].moved.object)
}

/// The first mark of the questions that the thread took in since it last did anything else, or rested.
pub fn batch_begin(marks: &History<Mark>, last: usize) -> usize {
    // More of them may be forgotten by now.
    let begin = last.saturating_sub(marks[last].alike as usize);
    // The first one may itself be of something else.
    begin + usize::from(marks[begin].kind != MarkKind::Takes)
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
