//! What a thread takes in just before it gives something out, and what it gives out just after it took something in.
//!
//! A thread that goes on with a request reads what the request waits for, and writes what follows from it. If nothing
//! else is read or written in between, and the thread does not rest, the two belong together. If several messages are
//! taken in together, the order decides ([`crate::ownership::in_order`]). `experiments/trees` measures how often each
//! of these is right.

use crate::event::Object;
use crate::ownership::in_order::{answer_after, question_of, seems_for, Batch, Placed};
use crate::ownership::marks::{is_rest, rested_ns, Mark, MarkKind, Question};
use crate::timeline::gallop::{count_before, last_before};
use crate::timeline::{Thread, ThreadId, World, NEVER};

/// The evidence by which something given out belongs to something taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjacency {
    /// Nothing else was taken in or given out in between.
    Alone,
    /// The same, but the thread has looked for what else is ready in between, and may have gone on with that.
    Polled,
    /// Several messages of that kind were taken in, and as many given out, and both are in the same place.
    InOrder,
}

/// What a thread gives out after it took something in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Its record may still come.
    NotYet,
    /// The same, and nothing shows until the thread's [`Progress`] differs.
    NotYetInOrder,
    /// Nothing that is evidence.
    Nothing,
    /// An answer that began at `enter_ns`, to the question of which the bytes `of` are the last that were read.
    Answer { of: Question, enter_ns: u64, adjacency: Adjacency },
}

/// How far a thread is: whether it has taken something in, rested or ended since. Until then it may give out more for
/// what it has taken in, and its order shows nothing ([`Placed::NotYet`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    taken: Option<u64>,
    off_ns: Option<(u64, u64)>,
    exited: bool,
}

impl Progress {
    pub fn of(thread: &Thread) -> Progress {
        Progress {
            taken: thread.marks.list.back().map(|mark| mark.taken),
            off_ns: thread.off.back().map(|off| (off.start_ns, off.end_ns)),
            exited: thread.exited_ns.is_some(),
        }
    }
}

/// By which evidence something given out at `to_ns` belongs to what was taken in at `from_ns`, if nothing was taken in
/// or given out in between.
fn alone(thread: &Thread, from_ns: u64, to_ns: u64) -> Adjacency {
    let polled = last_before(&thread.polled, |(enter_ns, _)| *enter_ns < to_ns);
    match polled.is_some_and(|(enter_ns, _)| *enter_ns >= from_ns) {
        true => Adjacency::Polled,
        false => Adjacency::Alone,
    }
}

/// The batch that the thread had taken in last before `at_ns`, if it has not rested since.
fn last_batch(thread: &Thread, at_ns: u64) -> Option<Batch> {
    let marks = &thread.marks.list;
    let last = count_before(marks, |mark| mark.exit_ns <= at_ns).checked_sub(1)?;
    if rested_ns(thread, marks[last].exit_ns, at_ns).is_some() {
        return None;
    }
    let taken = count_before(marks, |mark| mark.taken < marks[last].taken);
    let read =
        marks.get(taken).is_some_and(|mark| mark.takes_in() && mark.rests == marks[last].rests);
    read.then(|| Batch::around(marks, taken))
}

/// What the thread took in for which it asks, or opens a connection to ask, at `at_ns`. If its place among several
/// decides, only what was given out before counts (see [`placed_before`]).
pub fn taken_before(world: &World, id: ThreadId, at_ns: u64) -> Option<(&Mark, Adjacency)> {
    let thread = world.thread(id);
    let batch = last_batch(thread, at_ns)?;
    if !batch.single {
        return seems_for(world, id, &batch, at_ns).map(|mark| (mark, Adjacency::InOrder));
    }
    let marks = &thread.marks.list;
    let last_ns = marks[batch.end - 1].exit_ns;
    let given = marks.range(batch.end..).any(|mark| mark.exit_ns <= at_ns);
    let opens = &thread.marks.opens;
    let opened = count_before(opens, |enter_ns| *enter_ns < at_ns)
        > count_before(opens, |enter_ns| *enter_ns < last_ns);
    (!given && !opened).then(|| (&marks[batch.begin], alone(thread, last_ns, at_ns)))
}

/// The same, by its place among several, once everything that was given out then is known.
pub fn placed_before(world: &World, id: ThreadId, at_ns: u64) -> Placed<&Mark> {
    match last_batch(world.thread(id), at_ns).filter(|batch| !batch.single) {
        Some(batch) => question_of(world, id, &batch, at_ns),
        None => Placed::Nothing,
    }
}

/// What the thread gave out after the call that ended at `heard_ns` and read bytes of `channel`.
pub fn given_after(world: &World, id: ThreadId, heard_ns: u64, channel: Object) -> Given {
    let thread = world.thread(id);
    let marks = &thread.marks.list;
    let from = count_before(marks, |mark| mark.exit_ns < heard_ns);
    let is =
        |mark: &Mark| mark.exit_ns == heard_ns && mark.takes_in() && mark.moved.object == channel;
    let same = marks.range(from..).take_while(|mark| mark.exit_ns == heard_ns);
    let Some(at) = same.clone().position(is).map(|at| from + at) else { return Given::Nothing };
    let read = marks[at].moved;
    let messages =
        world.channels.get(&channel).map_or(1, |known| known.messages(read.from, read.to));
    if messages > 1 {
        return Given::Nothing;
    }
    let batch = Batch::around(marks, at);
    if !batch.single {
        return match answer_after(world, id, &batch, at) {
            Placed::NotYet => Given::NotYetInOrder,
            Placed::Nothing => Given::Nothing,
            Placed::At((of, enter_ns)) => {
                Given::Answer { of, enter_ns, adjacency: Adjacency::InOrder }
            }
        };
    }
    let Some(out) = marks.get(batch.end) else {
        return if is_over(world, thread) { Given::Nothing } else { Given::NotYet };
    };
    let (rests, given) = (marks[at].rests, marks[at].given);
    let is_next = |out: &Mark| out.rests == rests && out.given == given + 1;
    match (out.kind, out.of) {
        (MarkKind::Answers, Some(of)) if is_next(out) => {
            let adjacency = alone(thread, heard_ns, out.enter_ns);
            Given::Answer { of, enter_ns: out.enter_ns, adjacency }
        }
        _ => Given::Nothing,
    }
}

/// What the thread gave out next, after it was woken at `woken_ns` with what it waited for.
pub fn given_next(world: &World, id: ThreadId, woken_ns: u64) -> Given {
    let thread = world.thread(id);
    let next =
        thread.marks.list.get(count_before(&thread.marks.list, |mark| mark.exit_ns <= woken_ns));
    // The rest from which it was woken lasts until the thread has a CPU. That rest does not count.
    let since = count_before(&thread.off, |off| off.start_ns < woken_ns);
    let is_over = || thread.exited_ns.is_some() || thread.off.range(since..).any(is_rest);
    match next {
        None if is_over() => Given::Nothing,
        None => Given::NotYet,
        Some(out) => match (out.kind, out.of) {
            (MarkKind::Answers, Some(of))
                if rested_ns(thread, woken_ns, out.enter_ns).is_none() =>
            {
                Given::Answer { of, enter_ns: out.enter_ns, adjacency: Adjacency::Alone }
            }
            _ => Given::Nothing,
        },
    }
}

/// Whether the thread, between two of its calls, moved messages on these channels only.
pub fn moved_nothing_else(
    world: &World,
    id: ThreadId,
    (asked_ns, heard_ns): (u64, u64),
    channels: &[Object],
) -> bool {
    let marks = &world.thread(id).marks.list;
    let first = count_before(marks, |mark| mark.exit_ns <= asked_ns);
    let mut between = marks.range(first..).take_while(|mark| mark.enter_ns < heard_ns);
    between.all(|mark| channels.contains(&mark.moved.object))
}

/// Whether the thread, since its last mark, has rested, is resting, or has ended.
fn is_over(world: &World, thread: &Thread) -> bool {
    let Some(last) = thread.marks.list.back() else { return true };
    let rests = thread.off.back().is_some_and(|off| off.end_ns == NEVER && is_rest(off));
    rests || thread.exited_ns.is_some() || rested_ns(thread, last.exit_ns, world.now_ns).is_some()
}
