//! Where a server's work for a request begins, when nothing woke the thread that does it.
//!
//! A thread that takes work from a queue in memory without sleeping, or that read several messages
//! before it answered the first, leaves no event where it takes up the next. But it had not, before
//! it had answered somebody else: its last answer to another request is where this one's service can
//! begin. Until then the request was in the server's hands and waited there.

use super::event::{Call, Io};
use super::walk::Goal;
use super::world::{Channel, ProcessId, ThreadId, World};

/// If `call` of `thread` answers another request while this one's message is already in the server:
/// the thread that received it, and when it had it.
pub fn waiting_inside(
    world: &World,
    goal: &Goal,
    thread: ThreadId,
    call: &Call,
) -> Option<(ThreadId, u64)> {
    let process = world.thread(thread).process;
    let mut writes = call.transfers().filter(|io| io.is_write);
    if process == goal.client_process || writes.clone().any(|io| goal.has(io)) {
        return None;
    }
    writes.find(|io| is_answer(world, io))?;
    received(world, goal, process, call.exit_ns)
}

/// The thread of the process that received the end of what was asked, and when it had it: before
/// `before_ns`.
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

/// Whether the bytes are a server's: on a connection, the other end spoke first; of a pipe it is known
/// once an answer came through it.
fn is_answer(world: &World, io: &Io) -> bool {
    let Some(channel) = world.channels.get(&io.object) else { return false };
    let Some(reverse) = io.reverse else { return channel.answers };
    let asked_ns = world.channels.get(&reverse).and_then(|asked| asked.first_write_ns);
    asked_ns.is_some_and(|asked_ns| channel.first_write_ns.is_none_or(|ns| asked_ns < ns))
}
