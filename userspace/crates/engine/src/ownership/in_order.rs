//! Infers for which of several messages, taken in together, a thread gives something out: from the order in which it
//! works through them.
//!
//! An event loop that finds several messages ready reads them all, and then goes on with each. It goes on with those of
//! one kind, questions or answers, in the order in which it read them. Which kind comes first differs from program to
//! program: HAProxy asks for the sake of all questions before it passes any answer on. So what was taken in and what
//! was given out are paired kind by kind: a question with what is asked for its sake, an answer with the answer that it
//! leads to. They are paired only if, of both kinds, as many were given out as were taken in. Otherwise something was
//! given out for other reasons, or is still to come, and every later place belongs to another message.
//! `experiments/trees` measures how often this is right.

use rustc_hash::FxHashSet;

use crate::event::Object;
use crate::ownership::marks::{is_rest, Mark, MarkKind, Question};
use crate::timeline::gallop::{count_before, History};
use crate::timeline::{Thread, ThreadId, World};

/// If more messages are taken in together, their order is no evidence.
const MOST_TOGETHER: usize = 1024;

/// Marks of messages taken in, with nothing given out and no rest in between: `[begin, end)`.
pub(super) struct Batch {
    pub(super) begin: usize,
    pub(super) end: usize,
    /// All of them are of one message, or of messages of one channel.
    pub(super) single: bool,
}

impl Batch {
    /// The batch to which mark `at`, of something taken in, belongs.
    pub(super) fn around(marks: &History<Mark>, at: usize) -> Batch {
        let (given, rests, object) = (marks[at].given, marks[at].rests, marks[at].moved.object);
        let begin = count_before(marks, |mark| mark.given < given || mark.rests < rests);
        // The first mark with these counts may give something out itself; then it is not part of the batch.
        let begin = begin + usize::from(!marks[begin].takes_in());
        let end = count_before(marks, |mark| mark.given <= given && mark.rests <= rests);
        let single = marks.range(begin..end).all(|mark| mark.moved.object == object);
        Batch { begin, end, single }
    }

    /// Whether the batch contains questions, by the thread's running count of marks that are no questions.
    fn has_questions(&self, marks: &History<Mark>) -> bool {
        let (first, last) = (&marks[self.begin], &marks[self.end - 1]);
        let others = last.turns - first.turns + u64::from(first.kind != MarkKind::Takes);
        others < (self.end - self.begin) as u64
    }
}

/// What the order shows.
#[derive(Clone, Copy, Debug)]
pub enum Placed<T> {
    /// More may be given out.
    NotYet,
    Nothing,
    At(T),
}

/// Something given out: a connection opened to ask on it, a question, or an answer.
#[derive(Clone, Copy)]
struct Out {
    enter_ns: u64,
    /// The question that it answers, if known; outer `None`: it asks.
    answers: Option<Option<Question>>,
}

impl Out {
    /// The channel of the question that it answers.
    fn answered_on(&self) -> Option<Object> {
        self.answers.flatten().map(|of| of.object)
    }
}

/// A batch, and what was given out after it, before anything else was taken in and before the thread rested.
struct Round {
    /// Marks of questions that are not answered in the same round: other servers are asked for their sake.
    takes: Vec<usize>,
    hears: Vec<usize>,
    asks: Vec<Out>,
    answers: Vec<Out>,
}

impl Round {
    /// The round of a batch, with what was given out before `until_ns`.
    fn of(world: &World, id: ThreadId, batch: &Batch, until_ns: u64) -> Option<Round> {
        if batch.end - batch.begin > MOST_TOGETHER {
            return None;
        }
        let marks = &world.thread(id).marks.list;
        let taken = |kind| (batch.begin..batch.end).filter(move |at| marks[*at].kind == kind);
        let asked_on: FxHashSet<Object> =
            taken(MarkKind::Takes).map(|at| marks[at].moved.object).collect();
        let is_here =
            |out: &Out| out.answered_on().is_some_and(|object| asked_on.contains(&object));
        let (here, others): (Vec<Out>, Vec<Out>) =
            given_out(world, id, batch, until_ns).into_iter().partition(is_here);
        let answered: FxHashSet<Object> = here.iter().filter_map(Out::answered_on).collect();
        let is_open = |at: &usize| !answered.contains(&marks[*at].moved.object);
        let takes = taken(MarkKind::Takes).filter(is_open).collect();
        let (asks, answers) = others.into_iter().partition(|out| out.answers.is_none());
        Some(Round { takes, hears: taken(MarkKind::Hears).collect(), asks, answers })
    }

    /// Whether as much was given out as was taken in, of both kinds.
    fn is_paired(&self) -> bool {
        self.takes.len() == self.asks.len() && self.hears.len() == self.answers.len()
    }
}

/// When the thread took something else in after a batch, rested, or ended; `None`: it has done none of these.
fn ended_ns(thread: &Thread, batch: &Batch) -> Option<u64> {
    let marks = &thread.marks.list;
    let last = &marks[batch.end - 1];
    let next = marks.get(count_before(marks, |mark| mark.taken <= last.taken));
    let next_ns = next.map(|mark| mark.enter_ns);
    { next_ns.into_iter().chain(rest_after(thread, last.exit_ns)).chain(thread.exited_ns) }.min()
}

/// What the thread gave out after a batch and before `until_ns`.
fn given_out(world: &World, id: ThreadId, batch: &Batch, until_ns: u64) -> Vec<Out> {
    let thread = world.thread(id);
    let marks = &thread.marks.list;
    let from_ns = marks[batch.end - 1].exit_ns;
    let within = |at_ns: u64| at_ns < until_ns;
    let given = marks.range(batch.end..).take_while(|mark| within(mark.enter_ns));
    let given = given.filter(|mark| !goes_on(world, id, mark)).map(|mark| Out {
        enter_ns: mark.enter_ns,
        answers: (mark.kind == MarkKind::Answers).then_some(mark.of),
    });
    let opens = &thread.marks.opens;
    let opened = opens.range(count_before(opens, |enter_ns| *enter_ns < from_ns)..);
    let opened = opened.copied().take_while(|enter_ns| within(*enter_ns));
    let opened = opened.map(|enter_ns| Out { enter_ns, answers: None });
    let mut outs: Vec<Out> = given.chain(opened).collect();
    outs.sort_by_key(|out| out.enter_ns);
    outs
}

/// When the thread first rested after `from_ns`.
fn rest_after(thread: &Thread, from_ns: u64) -> Option<u64> {
    let off = &thread.off;
    let mut after = off.range(count_before(off, |off| off.end_ns <= from_ns)..);
    after.find(|off| is_rest(off)).map(|off| off.start_ns)
}

/// Whether a mark is the first question on a connection that the thread itself had opened for it. Such a question is
/// asked when the connection is established, not in its turn.
fn goes_on(world: &World, id: ThreadId, mark: &Mark) -> bool {
    let channel = world.channels.get(&mark.moved.object).filter(|_| mark.kind == MarkKind::Asks);
    channel.is_some_and(|channel| {
        channel.first_since_connected_ns == Some(mark.enter_ns)
            && channel.connected.is_some_and(|opened| opened.thread == id)
    })
}

/// The question of a batch for whose sake the thread asks, or opens a connection, at `at_ns`: as far as it is shown by
/// what was given out before.
pub(super) fn seems_for<'world>(
    world: &'world World,
    id: ThreadId,
    batch: &Batch,
    at_ns: u64,
) -> Option<&'world Mark> {
    let marks = &world.thread(id).marks.list;
    if !batch.has_questions(marks) {
        return None; // as of every client, which may have hundreds of answers in a batch
    }
    let round = Round::of(world, id, batch, at_ns)?;
    let at = round.takes.get(round.asks.len())?;
    marks.get(*at)
}

/// The same, by everything that was given out after the batch.
pub(super) fn question_of<'world>(
    world: &'world World,
    id: ThreadId,
    batch: &Batch,
    at_ns: u64,
) -> Placed<&'world Mark> {
    let thread = world.thread(id);
    let Some(until_ns) = ended_ns(thread, batch) else { return Placed::NotYet };
    let round = Round::of(world, id, batch, until_ns).filter(Round::is_paired);
    let mark = round.and_then(|round| {
        let place = round.asks.iter().position(|out| out.enter_ns == at_ns)?;
        thread.marks.list.get(*round.takes.get(place)?)
    });
    mark.map_or(Placed::Nothing, Placed::At)
}

/// The answer that the thread gave for what it had heard in mark `at` of a batch: the question that it answers, and
/// when it began.
pub(super) fn answer_after(
    world: &World,
    id: ThreadId,
    batch: &Batch,
    at: usize,
) -> Placed<(Question, u64)> {
    let Some(until_ns) = ended_ns(world.thread(id), batch) else { return Placed::NotYet };
    let answer = Round::of(world, id, batch, until_ns).and_then(|mut round| {
        // A heard answer may lead to another question instead. If the batch has answers only, that question is in its
        // place, too.
        if round.takes.is_empty() && round.hears.len() == round.asks.len() + round.answers.len() {
            round.answers.append(&mut round.asks);
            round.answers.sort_by_key(|out| out.enter_ns);
        }
        let place = round.hears.iter().position(|heard| *heard == at)?;
        let out = round.is_paired().then(|| round.answers[place])?;
        Some((out.answers.flatten()?, out.enter_ns))
    });
    answer.map_or(Placed::Nothing, Placed::At)
}
