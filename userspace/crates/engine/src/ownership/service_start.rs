//! Finds where a server's work for a request begins if nothing woke the thread that does it.
//!
//! A thread that takes work from a queue in memory without sleeping, or that read several messages before it answered
//! the first, leaves no event where it turns to the next request. It cannot have turned to that request before it
//! answered the previous one, so the service can begin at its last answer to another request. Until then the request
//! waited in the server.

use crate::event::{Call, Io, Object};
use crate::timeline::gallop::count_before;
use crate::timeline::{Carries, Channel, ProcessId, ThreadId, World};
use crate::walk::Goal;

/// If `call` of `thread` answers another request while this request's message has already been received by another
/// thread of the server: that other thread, and when it had the message. (If one thread has received both, its marks
/// decide.)
pub fn waiting_inside(
    world: &World,
    goal: &Goal,
    thread: ThreadId,
    call: &Call,
) -> Option<(ThreadId, u64)> {
    let process = world.thread(thread).process;
    let mut writes = call.transfers().filter(|io| io.is_write);
    if goal.only_asks(process) || writes.clone().any(|io| goal.has(io)) {
        return None;
    }
    writes.find(|io| is_answer(world, io))?;
    received(world, goal, process, call.exit_ns).filter(|(reader, _)| *reader != thread)
}

/// Limit of the calls that are searched for a thread's next answer.
const MOST_CALLS: usize = 256;

/// Whether a thread was working for another request at `at_ns`, while its server had already received this request: the
/// thread answered the other request next, and had not received this request itself. A thread that it woke then was not
/// handed this request in memory.
pub fn busy_with_another(world: &World, goal: &Goal, thread: ThreadId, at_ns: u64) -> bool {
    let t = world.thread(thread);
    let received = received(world, goal, t.process, at_ns);
    if goal.only_asks(t.process) || received.is_none_or(|(reader, _)| reader == thread) {
        return false;
    }
    let next = count_before(&t.calls, |call| call.enter_ns < at_ns);
    let mut later = t.calls.range(next..).take(MOST_CALLS);
    let answer = later.find(|call| answers(world, call));
    answer.is_some_and(|call| !call.transfers().any(|io| goal.has(io)))
}

/// The thread of the process that received the end of the question before `before_ns`, and when it had it.
pub fn received(
    world: &World,
    goal: &Goal,
    process: ProcessId,
    before_ns: u64,
) -> Option<(ThreadId, u64)> {
    let asked = goal.messages.first()?;
    let channel = world.channels.get(&asked.object)?;
    Channel::overlapping(&channel.reads, asked.from, asked.to)
        .filter(|read| world.thread(read.thread).process == process)
        .filter(|read| goal.start_ns < read.exit_ns && read.exit_ns < before_ns)
        .max_by_key(|read| read.exit_ns)
        .map(|read| (read.thread, read.exit_ns))
}

/// Whether the call answers a request.
pub fn answers(world: &World, call: &Call) -> bool {
    call.transfers().any(|io| io.is_write && is_answer(world, io))
}

/// Whether the bytes are an answer. On a connection: the other end opened it, or answers were seen in this
/// direction, or the other end wrote first (in HTTP/2, the server may). On a pipe: answers were seen on it.
fn is_answer(world: &World, io: &Io) -> bool {
    match io.reverse {
        Some(reverse) => carries_answers(world, io.object, reverse),
        None => world.channels.get(&io.object).is_some_and(|channel| channel.answers),
    }
}

/// Whether `object`, one direction of a connection, carries a server's answers; `reverse` is the other direction.
pub fn carries_answers(world: &World, object: Object, reverse: Object) -> bool {
    let (Some(channel), Some(asked)) = (world.channels.get(&object), world.channels.get(&reverse))
    else {
        // Nothing came the other way as yet: this is the first question.
        return world.channels.get(&object).is_some_and(|c| c.role == Some(Carries::Answers));
    };
    let opened = |channel: &Channel| channel.connected.is_some() || channel.accepted.is_some();
    match (opened(channel), opened(asked)) {
        (by_writer, by_other) if by_writer != by_other => by_other,
        _ if channel.role != asked.role => channel.role == Some(Carries::Answers),
        _ if channel.taken.is_some() != asked.taken.is_some() => asked.taken.is_some(),
        _ if channel.answers != asked.answers => channel.answers,
        _ => asked.first_write_ns.is_some_and(|asked_ns| {
            channel.first_write_ns.is_none_or(|first_ns| asked_ns < first_ns)
        }),
    }
}
