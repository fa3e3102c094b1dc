//! What a thread takes in just before it gives something out, and what it gives out just after it took something in.
//!
//! A thread that goes on with a request reads what that request waits for, and writes what it leads to. With nothing else read
//! or written in between, and no rest, the two belong together. An event loop that finds several messages ready reads them all
//! and then works through them, in that order: of as many messages read as are written, each belongs to that in the same
//! place. How often each of these is right: `experiments/trees`.

use std::collections::VecDeque;

use crate::event::Object;
use crate::ownership::marks::{is_rest, rested_ns, Mark, MarkKind, Question};
use crate::timeline::gallop::{count_before, last_before};
use crate::timeline::{Thread, ThreadId, World, NEVER};

/// By what something given out is told to belong to something taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjacency {
    /// Nothing else was taken in or given out in between.
    Alone,
    /// The same, but the thread has looked for what else is ready in between, and may have gone on with that.
    Polled,
    /// Of several taken in, and as many given out, both are in the same place.
    InOrder,
}

/// What a thread gives out after it took something in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Its record may still come.
    NotYet,
    /// Nothing that tells.
    Nothing,
    /// From then on an answer to that question of which these bytes are the last that were read.
    Answer { of: Question, enter_ns: u64, adjacency: Adjacency },
}

/// Marks taken in with none given out, and no rest, in between: `[begin, end)`.
struct Batch {
    begin: usize,
    end: usize,
    /// They are all of one message, or of messages of one channel.
    single: bool,
}

impl Batch {
    /// The batch that mark `at`, of something taken in, belongs to.
    fn around(marks: &VecDeque<Mark>, at: usize) -> Batch {
        let (given, rests, object) = (marks[at].given, marks[at].rests, marks[at].moved.object);
        let begin = count_before(marks, |mark| mark.given < given || mark.rests < rests);
        // What is counted first is itself none.
        let begin = begin + usize::from(!marks[begin].takes_in());
        let end = count_before(marks, |mark| mark.given <= given && mark.rests <= rests);
        let single = marks.range(begin..end).all(|mark| mark.moved.object == object);
        Batch { begin, end, single }
    }
}

/// How something given out then, with nothing taken in or given out since the other time, belongs to what was.
fn alone(thread: &Thread, from_ns: u64, to_ns: u64) -> Adjacency {
    let polled = last_before(&thread.polled, |(enter_ns, _)| *enter_ns < to_ns);
    match polled.is_some_and(|(enter_ns, _)| *enter_ns >= from_ns) {
        true => Adjacency::Polled,
        false => Adjacency::Alone,
    }
}

/// What the thread took in for which it would give something out at that time.
pub fn taken_before(world: &World, id: ThreadId, at_ns: u64) -> Option<(&Mark, Adjacency)> {
    let thread = world.thread(id);
    let marks = &thread.marks.list;
    let last = count_before(marks, |mark| mark.exit_ns <= at_ns).checked_sub(1)?;
    if rested_ns(thread, marks[last].exit_ns, at_ns).is_some() {
        return None;
    }
    let taken = count_before(marks, |mark| mark.taken < marks[last].taken);
    let read =
        marks.get(taken).is_some_and(|mark| mark.takes_in() && mark.rests == marks[last].rests);
    if !read {
        return None;
    }
    let opens = &thread.marks.opens;
    let opened = count_before(opens, |enter_ns| *enter_ns < at_ns)
        .saturating_sub(count_before(opens, |enter_ns| *enter_ns < marks[last].exit_ns));
    let given = (marks[last].given - marks[taken].given).saturating_add(opened as u64);
    let batch = Batch::around(marks, taken);
    let place = usize::try_from(given).ok()?;
    match batch.single {
        true => {
            let adjacency = alone(thread, marks[batch.end - 1].exit_ns, at_ns);
            (place == 0).then(|| (&marks[batch.begin], adjacency))
        }
        false => {
            let at = batch.begin.checked_add(place).filter(|at| *at < batch.end)?;
            Some((&marks[at], Adjacency::InOrder))
        }
    }
}

/// What the thread gave out after the call that ended then and read bytes of that channel.
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
    let (rests, given) = (marks[at].rests, marks[at].given);
    let (place, count, adjacency) = match batch.single {
        true => (0, 1, None),
        false => (at - batch.begin, batch.end - batch.begin, Some(Adjacency::InOrder)),
    };
    // As many as were taken in, before the next is or it rests.
    let last = batch.end + count - 1;
    let Some(complete) = marks.get(last) else {
        let open = marks.back().is_some_and(|mark| mark.rests == rests)
            && marks.range(batch.end..).all(|mark| !mark.takes_in())
            && !is_over(world, thread);
        return if open { Given::NotYet } else { Given::Nothing };
    };
    let out = marks[batch.end + place];
    let whole = complete.rests == rests && complete.given == given + count as u64;
    match (out.kind, out.of) {
        (MarkKind::Answers, Some(of)) if whole => {
            let adjacency = adjacency.unwrap_or_else(|| alone(thread, heard_ns, out.enter_ns));
            Given::Answer { of, enter_ns: out.enter_ns, adjacency }
        }
        _ => Given::Nothing,
    }
}

/// What the thread gave out next, after it was given what it waited for at `woken_ns`.
pub fn given_next(world: &World, id: ThreadId, woken_ns: u64) -> Given {
    let thread = world.thread(id);
    let next =
        thread.marks.list.get(count_before(&thread.marks.list, |mark| mark.exit_ns <= woken_ns));
    match next {
        None if is_over(world, thread) => Given::Nothing,
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

/// Whether the thread has not moved anything on connections between two of its calls, other than on these channels.
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
