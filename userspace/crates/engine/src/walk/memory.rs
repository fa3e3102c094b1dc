//! Requests that wait in their server's memory: one thread reads them and another takes them up, with no event in
//! between.

use crate::ownership::handed::is_task;
use crate::ownership::marks::{batch_begin, is_rest, rested_ns, MarkKind};
use crate::walk::*;

/// Limit of the sleeps that are examined for waits for locks.
const MOST_WAITS: usize = 64;

/// `detail` of a `queue.app` segment.
const RESTED: &str =
    "in the server's memory: its thread rested until something came for another request";

impl Walk<'_> {
    /// If a thread slept for work since before its server had read the request, and another thread of the server woke
    /// it, it did not sleep for the request: the request waited in memory, at least until `woken_ns`.
    pub(super) fn asleep_when_received(
        &mut self,
        thread: ThreadId,
        off: &Off,
        waker: ThreadId,
        woken_ns: u64,
    ) -> Option<Step> {
        let process = |thread: ThreadId| self.world.thread(thread).process;
        let for_work = off.call.is_some_and(|call| {
            matches!(waits(call.nr, call.object), Waits::Futex | Waits::Readiness | Waits::Peer)
        });
        if !for_work || process(waker) != process(thread) {
            return None;
        }
        let received = self.received_by_another(thread, woken_ns)?;
        match off.start_ns < received.1 {
            // The waker may have handed it the request, by what looked like a lock.
            true if self.attempts.strict => Some(Step::NoLock),
            true => Some(self.waited_in_memory(thread, received, woken_ns)),
            false => None,
        }
    }

    /// Whether the request was in its server's memory when a thread of the server rested. The thread waits for no peer: the
    /// server had read all of the question, it or at least this thread asks nobody, and it had not begun to answer (a peer
    /// may be slow to read an answer).
    pub(super) fn is_in_memory(&self, thread: ThreadId, off: &Off) -> bool {
        let process = self.world.thread(thread).process;
        self.applies(Rule::InMemory)
            && Some(process) == self.goal.server_process
            && (!self.world.process_of(thread).asks || self.world.thread(thread).marks.only_takes())
            && self.had_all(off.start_ns)
            && !self.had_begun_to_answer(off.start_ns)
    }

    fn had_begun_to_answer(&self, at_ns: u64) -> bool {
        self.goal.messages.iter().skip(1).any(|answer| {
            let channel = self.world.channels.get(&answer.object);
            let write = channel.and_then(|known| Channel::find(&known.writes, answer.from));
            write.is_some_and(|write| write.enter_ns < at_ns)
        })
    }

    /// Emits `[from_ns, to_ns)`, in which the request was in memory and a thread rested until something came for
    /// another request.
    pub(super) fn rested_meanwhile(
        &mut self,
        thread: ThreadId,
        off: &Off,
        (from_ns, to_ns): (u64, u64),
    ) {
        let detail = Some(self.output.names.fixed(RESTED));
        self.output.wait_rule = Some(Rule::InMemory);
        let (category, evidence) = (Category::QueueApp, Evidence::Modelled);
        self.emit(thread, from_ns, to_ns, category, detail, None, None, off.cpu, evidence);
    }

    /// A thread that answers another request next, without a sleep in between, works for that request: this one waited
    /// in memory. Applies only once nothing else leads back to the client.
    pub(super) fn at_work_for_another(
        &mut self,
        thread: ThreadId,
        at_ns: u64,
        depth: usize,
    ) -> Option<Step> {
        if self.attempts.strict {
            return None;
        }
        let t = self.world.thread(thread);
        let next = count_before(&t.marks.list, |mark| mark.exit_ns < at_ns);
        let next = t.marks.list.get(next)?;
        let gives = matches!(next.kind, MarkKind::Answers | MarkKind::Asks);
        let sleeps = t
            .off_before(next.enter_ns)
            .is_some_and(|off| off.end_ns >= at_ns && !matches!(off.why, Why::Preempted));
        if !gives || next.enter_ns < at_ns || sleeps || self.of_goal(next) {
            return None;
        }
        let received = self.received_by_another(thread, at_ns)?;
        match depth {
            0 => Some(self.waited_in_memory(thread, received, at_ns)),
            _ => Some(Step::Nowhere),
        }
    }

    /// Whether the next message that a thread of the server moves is another request's.
    pub(super) fn goes_on_with_another(&self, thread: ThreadId, at_ns: u64) -> bool {
        let t = self.world.thread(thread);
        let next = count_before(&t.marks.list, |mark| mark.exit_ns < at_ns);
        Some(t.process) == self.goal.server_process
            && t.marks.list.get(next).is_some_and(|next| !self.of_goal(next))
    }

    /// Whether the pass has gone too far through work that is not known to be for the request.
    pub(super) fn is_astray(&self) -> bool {
        let most = match self.attempts.strict {
            true => MOST_STEPS_ASTRAY,
            false if self.attempts.is_bounded => MOST_STEPS_ASTRAY_AGAIN,
            false => usize::MAX,
        };
        self.attempts.astray > most
    }

    /// Until when a task works for the request that it has read: then it waits, or takes up another request. For
    /// a thread this is known only if it waited for locks: see [`Walk::kept_until`].
    pub(super) fn worked_on_until(&self, reader: ThreadId, read_ns: u64) -> Option<u64> {
        if !is_task(self.world, reader) {
            return self.kept_until(reader, read_ns);
        }
        let t = self.world.thread(reader);
        let first = count_before(&t.off, |off| off.start_ns < read_ns);
        let rest = t.off.range(first..).find(|off| off.why != Why::Preempted)?;
        let later = count_before(&t.marks.list, |mark| mark.exit_ns <= read_ns);
        let mut later =
            t.marks.list.range(later..).take_while(|mark| mark.enter_ns < rest.start_ns);
        let others_ns = later.find(|mark| !self.of_goal(mark)).map(|mark| mark.enter_ns);
        Some(others_ns.unwrap_or(rest.start_ns))
    }

    /// The end of the last wait for a lock of a thread that has read the request, if it neither rested nor moved another
    /// message before: it had not handed the request on yet. A server's thread may execute a request and leave it to
    /// another one to answer, as MariaDB's pool does while the log is flushed.
    fn kept_until(&self, reader: ThreadId, read_ns: u64) -> Option<u64> {
        let t = self.world.thread(reader);
        let later = count_before(&t.marks.list, |mark| mark.exit_ns <= read_ns);
        let next = t.marks.list.range(later..).find(|mark| !self.of_goal(mark));
        let alone = later.checked_sub(1).is_some_and(|last| {
            let mut batch = t.marks.list.range(batch_begin(&t.marks.list, last)..=last);
            batch.all(|mark| self.of_goal(mark) && self.world.messages_of(mark) == 1)
        });
        // It may have worked for what it gives out next since it read the request.
        if !alone
            || next.is_some_and(|next| {
                next.kind != MarkKind::Takes && rested_ns(t, read_ns, next.enter_ns).is_none()
            })
        {
            return None;
        }
        let first = count_before(&t.off, |off| off.start_ns < read_ns);
        let slept =
            t.off.range(first..).take(MOST_WAITS).take_while(|off| {
                !is_rest(off) && next.is_none_or(|next| off.end_ns <= next.enter_ns)
            });
        let waited = slept.filter(|off| {
            let wake = off.wake.filter(|wake| wake.by_waker());
            wake.is_some_and(|wake| self.serves_another(reader, off, &wake))
        });
        waited.last().map(|off| off.end_ns)
    }

    /// The other thread of the server that read the end of the question, and when it had it: before `before_ns`.
    fn received_by_another(&self, thread: ThreadId, before_ns: u64) -> Option<(ThreadId, u64)> {
        let process = self.world.thread(thread).process;
        if !self.applies(Rule::InMemory) || Some(process) != self.goal.server_process {
            return None;
        }
        let received = service_start::received(self.world, self.goal, process, before_ns);
        received.filter(|(reader, _)| *reader != thread)
    }

    /// Step for a request that `reader` had read at `read_ns` and that waited until `to_ns` for `thread`, which worked
    /// for others. If a rest with a timer pending led to this work, the request waited since that rest.
    pub(super) fn waited_in_memory(
        &mut self,
        thread: ThreadId,
        (reader, read_ns): (ThreadId, u64),
        to_ns: u64,
    ) -> Step {
        let read_ns =
            self.worked_on_until(reader, read_ns).filter(|ns| *ns < to_ns).unwrap_or(read_ns);
        if let Some((rested, rested_ns)) = self.timer_pending_until(thread, (read_ns, to_ns)) {
            self.queue(thread, (rested_ns, to_ns), Category::QueueApp, UNSERVED, Rule::InMemory);
            return Step::Go(rested, rested_ns);
        }
        self.queue(thread, (read_ns, to_ns), Category::QueueApp, UNSERVED, Rule::InMemory);
        self.output.rule = Rule::InMemory;
        // Inferred: if the path from there does not lead on, this is not known either.
        self.join(reader);
        Step::Go(reader, read_ns)
    }
}
