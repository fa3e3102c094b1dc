//! The calls that moved a request's messages, looked up once for its walk.

use crate::ownership::sakes::Sake;
use crate::walk::*;

/// Limit of what was asked next for questions on the same connection, among which the request's is searched.
const MOST_SAKES: usize = 64;

/// The calls that moved messages of the request, and what was asked for it.
pub(super) struct Moves<'w> {
    /// The channel of its question.
    asked: Option<&'w Channel>,
    /// The end and the thread of each call, in order.
    calls: &'w [(u64, ThreadId)],
}

impl<'w> Moves<'w> {
    /// `calls`: empty memory for them.
    pub(super) fn of(
        world: &'w World,
        goal: &Goal,
        calls: &'w mut Vec<(u64, ThreadId)>,
    ) -> Moves<'w> {
        for message in &goal.messages {
            let Some(channel) = world.channels.get(&message.object) else { continue };
            for list in [&channel.reads, &channel.writes] {
                let moved = Channel::overlapping(list, message.from, message.to);
                calls.extend(moved.map(|moved| (moved.exit_ns, moved.thread)));
            }
        }
        calls.sort_unstable();
        let asked = goal.messages.first().and_then(|asked| world.channels.get(&asked.object));
        Moves { asked, calls }
    }
}

impl Walk<'_> {
    /// Whether anything was asked for what came on the connection of the request's question.
    pub(super) fn has_asked(&self) -> bool {
        self.moves.asked.is_some_and(|channel| !channel.sakes.is_empty())
    }

    /// The last thread, of those that satisfy `is_one`, that moved a message of the request, or one for its sake, up to
    /// `at_ns`; and the end of that call.
    pub(super) fn last_worked(
        &self,
        is_one: impl Fn(ThreadId) -> bool,
        at_ns: u64,
    ) -> Option<(ThreadId, u64)> {
        let calls = self.moves.calls.iter().rev();
        let last = { calls }.find(|(exit_ns, thread)| *exit_ns <= at_ns && is_one(*thread));
        let (asked, sakes) = (self.goal.messages.first()?, &self.moves.asked?.sakes);
        let sakes = sakes.range(..count_before(sakes, |sake| sake.exit_ns <= at_ns));
        let last_ns = last.map(|(ns, _)| *ns);
        let since = sakes.rev().take_while(|sake| Some(sake.exit_ns) > last_ns);
        let mut since = since.filter(|sake| is_one(sake.thread));
        since
            .find(|sake| asked.from < sake.of.to && sake.of.from < asked.to)
            .map(|sake| (sake.thread, sake.exit_ns))
            .or(last.map(|(ns, thread)| (*thread, *ns)))
    }

    /// When the thread, after `since_ns`, first asked something for the request, or heard the answer.
    pub(super) fn next_for_its_sake(&self, thread: ThreadId, since_ns: u64) -> Option<u64> {
        let (asked, sakes) = (self.goal.messages.first()?, &self.moves.asked?.sakes);
        let sakes = sakes.range(count_before(sakes, |sake| sake.exit_ns <= since_ns)..);
        let is_its = |sake: &&Sake| {
            sake.thread == thread && asked.from < sake.of.to && sake.of.from < asked.to
        };
        let sakes = sakes.take_while(|sake| sake.exit_ns <= self.goal.end_ns);
        sakes.take(MOST_SAKES).find(is_its).map(|sake| sake.exit_ns)
    }
}
