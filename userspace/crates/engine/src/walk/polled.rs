//! Part of rule `in-memory`: a thread that sleeps in a poll() of one connection sleeps for whoever sends on it next.
//!
//! Pools of threads wait for a moment for a connection's next request before they take up another connection (Puma
//! does, for 200 ms). This looks like a timer of the request that they go on with. But it did not have that thread
//! yet: it was in the server's memory.

use crate::ownership::marks::MarkKind;
use crate::walk::*;

/// `detail` of such a wait.
const WAITED: &str = "received, not yet served: its thread waited for bytes of another connection";

/// Limit of the messages that are examined for the last one on a connection.
const MOST_MARKS: usize = 64;

impl Walk<'_> {
    /// Step for a thread that polled one connection in `off`, which is another request's: this request waited in memory
    /// since a thread last worked for it. While a waker is explored, no path leads through such a sleep.
    pub(super) fn polled_for_another(
        &mut self,
        thread: ThreadId,
        off: &Off,
        woken_ns: u64,
        depth: usize,
    ) -> Option<Step> {
        let process = self.world.thread(thread).process;
        let in_server = Some(process) == self.goal.server_process;
        if !in_server || !self.applies(Rule::InMemory) || !self.polls_for_another(thread, off) {
            return None;
        }
        if depth > 0 {
            return Some(Step::Nowhere);
        }
        let of_process = |id: ThreadId| self.world.thread(id).process == process;
        let (worker, worked_ns) = self.last_worked(of_process, woken_ns)?;
        let from_ns = self.let_go_ns(worker, worked_ns)?.min(woken_ns);
        self.queue(thread, (from_ns, woken_ns), Category::QueueApp, WAITED, Rule::InMemory);
        self.output.rule = Rule::InMemory;
        Some(Step::Joined(worker, from_ns))
    }

    /// Whether a sleep was for bytes of one connection, and not for this request's question, nor for an answer to what
    /// was asked for its sake.
    pub(super) fn polls_for_another(&self, thread: ThreadId, off: &Off) -> bool {
        let Some(object) = off.polled() else { return false };
        let reverse = self.world.channels.get(&object).and_then(|channel| channel.reverse);
        let on_it = |of: Object| of == object || Some(of) == reverse;
        if self.goal.messages.iter().any(|message| on_it(message.object)) {
            return false;
        }
        let marks = &self.world.thread(thread).marks.list;
        let before = marks.range(..count_before(marks, |mark| mark.exit_ns <= off.start_ns));
        let last = before.rev().take(MOST_MARKS).find(|mark| on_it(mark.moved.object));
        last.is_some_and(|mark| match mark.kind {
            MarkKind::Takes | MarkKind::Answers => true,
            MarkKind::Asks | MarkKind::Hears => !self.of_goal(mark),
        })
    }
}
