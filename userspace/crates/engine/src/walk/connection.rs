//! Rule `connection`: a request that its server asks for on a connection, as soon as the answer to another request's
//! question has come on it, has waited for that connection.
//!
//! A server with more requests than connections to another server (a pool of connections, as pgbouncer's) lets requests
//! wait in its memory. When an answer makes a connection free, the same turn of the event loop gives it to a request
//! that waits. So the rest that this answer ended was not for a timer, nor for the request's own client; it lasted
//! because the connection was in use. A connection that was idle in the meantime, or on which several questions are
//! under way at a time, is no reason to wait; nor is any if the server had another one that was idle.

use crate::ownership::marks::{is_rest, rested_ns, Mark, MarkKind};
use crate::walk::*;

/// `detail` of such a wait.
const IN_USE: &str = "for a connection to another server: it was in use for other requests";

/// Limit of the connections of a process that are checked for one that was free.
const MOST_CONNECTIONS: usize = 64;

impl Walk<'_> {
    /// Step for a thread that rested in `off`, until `woken_ns`: since it last worked for the request, the connection on
    /// which it asked for it next was in use for others.
    pub(super) fn waited_for_connection(
        &mut self,
        thread: ThreadId,
        off: &Off,
        woken_ns: u64,
    ) -> Option<Step> {
        let process = self.world.thread(thread).process;
        let may_be = Some(process) == self.goal.server_process
            && self.world.process_of(thread).asks
            && self.applies(Rule::Connection)
            && polls(off)
            && self.had_all(off.start_ns);
        if !may_be {
            return None;
        }
        let of_process = |id: ThreadId| self.world.thread(id).process == process;
        let asked = *self.asked_next(thread, off.end_ns)?;
        self.note_past();
        // The path may have come here by another request's work.
        if !self.came_from(thread, asked.enter_ns) {
            return None;
        }
        let channel = self.world.channels.get(&asked.moved.object)?;
        let heard_ns = self.freed_ns(thread, channel, asked.enter_ns)?;
        if heard_ns <= off.end_ns {
            return None;
        }
        let (worker, worked_ns) = self.last_worked(of_process, off.start_ns)?;
        let from_ns = self.let_go_ns(worker, worked_ns)?.min(off.start_ns);
        let at_will = last_before(&channel.asked_at_will, |enter_ns| *enter_ns <= asked.enter_ns);
        if at_will.is_some_and(|enter_ns| *enter_ns > from_ns)
            || self.another_is_free(process, asked.moved.object, off.start_ns)
        {
            return None;
        }
        self.queue(thread, (from_ns, woken_ns), Category::QueueApp, IN_USE, Rule::Connection);
        self.output.rule = Rule::Connection;
        Some(Step::Joined(worker, from_ns))
    }

    /// Whether the process had another connection to the same server that nobody used at that time.
    fn another_is_free(&self, process: ProcessId, asked: Object, at_ns: u64) -> bool {
        let to = |object: &Object| {
            let channel = self.world.channels.get(object)?;
            Some(channel.ends.map(|[_, to]| to))
        };
        let to_same = to(&asked);
        let all =
            self.world.processes[process as usize].asks_on.iter().rev().take(MOST_CONNECTIONS);
        let mut others = all.filter(|on| **on != asked && to(on) == to_same);
        others.any(|on| self.is_free(on, at_ns))
    }

    /// Whether a connection was idle: the last question on it was answered, and the next one was asked at will, if any.
    fn is_free(&self, asked: &Object, at_ns: u64) -> bool {
        let Some(channel) = self.world.channels.get(asked) else { return false };
        let Some(answers) = channel.reverse.and_then(|back| self.world.channels.get(&back)) else {
            return false;
        };
        let next = count_before(&channel.writes, |write| write.enter_ns < at_ns);
        let last = next.checked_sub(1).map(|last| channel.writes[last].enter_ns);
        let heard = last_before(&answers.reads, |read| read.exit_ns <= at_ns);
        let is_answered = last.zip(heard).is_some_and(|(last, heard)| heard.enter_ns > last);
        let at_will = &channel.asked_at_will;
        is_answered
            && match channel.writes.get(next).map(|next| next.enter_ns) {
                Some(next) => at_will.get(count_before(at_will, |ns| *ns < next)) == Some(&next),
                None => !channel.closed,
            }
    }

    /// What the thread next asked for the request, after a rest that ended at `since_ns` and before the next one.
    fn asked_next(&self, thread: ThreadId, since_ns: u64) -> Option<&Mark> {
        let t = self.world.thread(thread);
        let marks = &t.marks.list;
        let known = self.next_for_its_sake(thread, since_ns).and_then(|next_ns| {
            let first = count_before(marks, |mark| mark.exit_ns < next_ns);
            let mut call = marks.range(first..).take_while(|mark| mark.exit_ns == next_ns);
            call.find(|mark| mark.kind == MarkKind::Asks && self.of_goal(mark))
        });
        let asked = known.or_else(|| self.asked_before_answer(thread))?;
        let is_next =
            asked.enter_ns >= since_ns && rested_ns(t, since_ns + 1, asked.enter_ns).is_none();
        is_next.then_some(asked)
    }

    /// Whether the path leads back through what the thread did since `since_ns`.
    fn came_from(&self, thread: ThreadId, since_ns: u64) -> bool {
        let mut here = self.output.out.iter().rev().take_while(|raw| raw.thread == thread);
        here.any(|raw| raw.end_ns > since_ns)
    }

    /// The question whose answer the thread had just heard when it answered the request.
    fn asked_before_answer(&self, thread: ThreadId) -> Option<&Mark> {
        let answer = self.goal.messages.get(1)?;
        let answers = self.world.channels.get(&answer.object)?;
        let write = Channel::find(&answers.writes, answer.from)?;
        let marks = &self.world.thread(thread).marks.list;
        let last = count_before(marks, |mark| mark.enter_ns < write.enter_ns).checked_sub(1)?;
        let heard = marks.get(last).filter(|mark| mark.kind == MarkKind::Hears)?;
        let heard_from = self.world.channels.get(&heard.moved.object)?;
        let asked = self.world.channels.get(&heard_from.reverse?)?;
        let asked = last_before(&asked.writes, |asked| asked.enter_ns < heard.enter_ns)?;
        let mut call = self.world.thread(thread).marks.of_call(asked.enter_ns);
        call.find(|mark| mark.kind == MarkKind::Asks && write.thread == thread)
    }

    /// When the answer to another request's question was read on that connection, last before `asked_ns`.
    fn freed_ns(&self, thread: ThreadId, channel: &Channel, asked_ns: u64) -> Option<u64> {
        let answers = self.world.channels.get(&channel.reverse?)?;
        let heard = last_before(&answers.reads, |read| read.enter_ns < asked_ns)?;
        let mut marks = self.world.thread(thread).marks.of_call(heard.enter_ns);
        let is_own = marks.any(|mark| mark.kind == MarkKind::Hears && self.of_goal(mark));
        (heard.thread == thread && !is_own).then_some(heard.exit_ns)
    }
}

/// Whether a thread rested until any of its connections was ready. A thread that rests in a read serves the request that
/// it reads the answer for.
fn polls(off: &Off) -> bool {
    is_rest(off) && off.call.is_some_and(|call| waits(call.nr, call.object) == Waits::Readiness)
}
