//! Rule `connection`: a request that its server asks for on a connection, as soon as the answer to another request's
//! question has come on it, has waited for that connection.
//!
//! A server with more requests than connections to another server (a pool of connections, as pgbouncer's) lets requests
//! wait in its memory. When an answer makes a connection free, the same turn of the event loop gives it to a request
//! that waits. So the rest that this answer ended was not for a timer, nor for the request's own client; it lasted
//! because the connection was in use. A connection that was idle in the meantime, or on which several questions are
//! under way at a time, is no reason to wait; nor is any if the server had another one that was idle.
//!
//! Where threads or tasks share the connections, a thread that waits for one sleeps until another thread of the server,
//! which has just heard the answer to its own question, wakes it. Where several threads poll, and go on with whatever is
//! ready, the thread that asks for the request need not have had it before; then the call that asks shows the wait.

use crate::ownership::handed::{is_task, was_given_by};
use crate::ownership::marks::{is_rest, rested_ns, Mark, MarkKind};
use crate::walk::*;

/// `detail` of such a wait.
const IN_USE: &str = "for a connection to another server: it was in use for other requests";

/// Limit of the messages of a waker that are examined for the answer that it heard last.
const MOST_ANSWERED: usize = 8;

/// Limit of the messages of an event loop that are examined for the answer that it passes on.
const MOST_IN_TURN: usize = 64;

/// Limit of the threads that woke each other, and of a thread's sleeps, that are examined.
const MOST_WAKERS: usize = 8;
const MOST_SLEEPS: usize = 64;

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
        let may_be = self.asks_others(thread)
            && self.applies(Rule::Connection)
            && rests_in_poll(off)
            && self.ended_by_peer(thread, off)
            && self.had_all(off.start_ns);
        if !may_be {
            return None;
        }
        let of_process = |id: ThreadId| self.world.thread(id).process == process;
        self.note_past();
        let asked = *self.asked_next(thread, off.end_ns)?;
        // The path may have come here by another request's work.
        if !self.came_back_over(thread, asked.enter_ns) {
            return None;
        }
        let channel = self.world.channels.get(&asked.moved.object)?;
        let heard = self.freed(channel, asked.enter_ns).filter(|heard| heard.thread == thread)?;
        if heard.exit_ns <= off.end_ns || channel.is_shared {
            return None;
        }
        let (worker, worked_ns) = self.last_worked(of_process, off.start_ns)?;
        let from_ns = self.let_go_ns(worker, worked_ns)?.min(off.start_ns);
        let at_will = last_before(&channel.asked_at_will, |enter_ns| *enter_ns <= asked.enter_ns);
        let free = |at_ns: u64| self.another_is_free(process, asked.moved.object, at_ns);
        if at_will.is_some_and(|enter_ns| *enter_ns > from_ns)
            || free(from_ns)
            || free(off.start_ns)
        {
            return None;
        }
        self.queue(thread, (from_ns, woken_ns), Category::QueueApp, IN_USE, Rule::Connection);
        self.output.rule = Rule::Connection;
        Some(Step::Joined(worker, from_ns))
    }

    /// Step for a thread that slept in `off`, until `woken_ns`, for something that another thread does in memory, and was
    /// woken by a thread that had just heard the answer to another request's question: what the thread asked for next,
    /// or gave to another task to ask, was asked on that connection or another one to the same address, and none of these
    /// was free when it fell asleep. (A wait for what is known to be a lock is one: a lock may guard a connection.)
    pub(super) fn was_given_connection(
        &mut self,
        thread: ThreadId,
        (off, wake): (&Off, Wake),
        woken_ns: u64,
    ) -> Option<Step> {
        let process = self.world.thread(thread).process;
        let may_be = self.asks_others(thread)
            && self.applies(Rule::Connection)
            && waits_for_thread(off)
            && !off.call.is_some_and(|call| self.is_known_lock(thread, &call))
            && self.is_own(thread, wake)
            && self.had_all(off.start_ns);
        if !may_be {
            return None;
        }
        let freed = self.freed_by(off, wake)?;
        self.note_past();
        let (connection, asked_ns) = self.asks_next(thread, wake, freed)?;
        let channel = self.world.channels.get(&connection)?;
        if channel.is_shared
            || asked_ns >= self.goal.end_ns
            || self.is_free(channel, off.start_ns)
            || self.another_is_free(process, connection, off.start_ns)
        {
            return None;
        }
        let from_ns = off.start_ns.max(self.goal.start_ns);
        self.queue(thread, (from_ns, woken_ns), Category::QueueApp, IN_USE, Rule::Connection);
        self.output.rule = Rule::Connection;
        Some(Step::Joined(thread, from_ns))
    }

    /// Step for a thread of several that poll for whatever is ready, and run whichever task is ready then, at the begin of
    /// the call by which it asked for the request: if this was done as soon as the answer to another request's question
    /// had come on that connection, the request has waited for the connection since a thread last worked for it.
    pub(super) fn asked_when_freed(&mut self, thread: ThreadId, at_ns: u64) -> Option<Step> {
        let t = self.world.thread(thread);
        let process = t.process;
        if !self.may_pass_on(thread)
            || is_task(self.world, thread)
            || !self.applies(Rule::Connection)
        {
            return None;
        }
        let mut call = t.marks.of_call(at_ns);
        let asked = call.find(|mark| mark.kind == MarkKind::Asks && self.of_goal(mark))?;
        let connection = asked.moved.object;
        self.note_past();
        let channel = self.world.channels.get(&connection).filter(|channel| !channel.is_shared)?;
        let heard = self.freed(channel, at_ns)?;
        let before = last_before(&channel.writes, |write| write.enter_ns < at_ns);
        if before.is_some_and(|before| before.enter_ns > heard.enter_ns)
            || !self.is_polled_by_several(process)
            || !self.goes_on(thread, (heard.exit_ns, at_ns))
        {
            return None;
        }
        let of_process = |id: ThreadId| self.world.thread(id).process == process;
        let (worker, worked_ns) = self.last_worked(of_process, at_ns)?;
        let from_ns = self.let_go_ns(worker, worked_ns)?;
        if from_ns >= heard.exit_ns
            || !self.had_all(from_ns)
            || self.is_free(channel, from_ns)
            || self.another_is_free(process, connection, from_ns)
        {
            return None;
        }
        self.queue(thread, (from_ns, at_ns), Category::QueueApp, IN_USE, Rule::Connection);
        self.output.rule = Rule::Connection;
        Some(Step::Joined(worker, from_ns.max(self.goal.start_ns)))
    }

    /// Whether several threads of the process poll for what is ready, and move messages.
    fn is_polled_by_several(&self, process: ProcessId) -> bool {
        let threads = self.world.processes[process as usize].threads.iter();
        let polls = |&&id: &&ThreadId| {
            let t = self.world.thread(id);
            t.polls > 0 && !t.marks.list.is_empty()
        };
        threads.take(MOST_THREADS).filter(polls).nth(1).is_some()
    }

    /// Whether each rest of a thread in that time was ended by a thread of its own process.
    fn goes_on(&self, thread: ThreadId, (from_ns, to_ns): (u64, u64)) -> bool {
        let t = self.world.thread(thread);
        let slept = latest_before(&t.off, |off| off.start_ns < to_ns);
        let slept = slept.take_while(|off| off.end_ns > from_ns).take(MOST_SLEEPS);
        let own = |off: &Off| off.wake.is_some_and(|wake| self.is_own(thread, wake));
        { slept }.filter(|off| is_rest(off)).all(own)
    }

    /// Whether a thread of its own process woke the thread.
    fn is_own(&self, thread: ThreadId, wake: Wake) -> bool {
        let process = |id: ThreadId| self.world.thread(id).process;
        wake.by_waker() && process(wake.waker) == process(thread)
    }

    /// Whether the thread belongs to the request's server, and this asks others for what it serves.
    fn asks_others(&self, thread: ThreadId) -> bool {
        Some(self.world.thread(thread).process) == self.goal.server_process
            && self.world.process_of(thread).asks
    }

    /// The same for a thread that also polls for whatever is ready, as an event loop.
    pub(super) fn may_pass_on(&self, thread: ThreadId) -> bool {
        self.world.thread(thread).polls > 0 && self.asks_others(thread)
    }

    /// Whether what a mark moved may be for the request: it is not certain that it is for another one.
    fn may_be_its(&self, mark: &Mark) -> bool {
        mark.of.is_none() || !mark.sure || self.of_goal(mark)
    }

    /// The connection on which the thread that made the wake-up had just heard the answer to another request's question.
    /// It may have woken the waker for that, as locks do that are passed from thread to thread.
    fn freed_by(&self, off: &Off, mut wake: Wake) -> Option<Object> {
        for _ in 0..MOST_WAKERS {
            let waker = self.world.thread(wake.waker);
            let marks = &waker.marks.list;
            let last = count_before(marks, |mark| mark.exit_ns <= wake.at_ns);
            let before = marks.range(..last).rev().take(MOST_ANSWERED);
            let last = before.clone().next();
            // It may have answered before it gave the connection back.
            let heard = { before }.find(|mark| mark.kind != MarkKind::Answers);
            let heard = heard.filter(|mark| mark.kind == MarkKind::Hears && !self.of_goal(mark));
            if let Some(heard) = heard.filter(|heard| heard.exit_ns > off.start_ns) {
                return self.world.channels.get(&heard.moved.object)?.reverse;
            }
            let since_ns = last.map_or(0, |mark| mark.exit_ns).max(off.start_ns);
            let slept = latest_before(&waker.off, |slept| slept.end_ns <= wake.at_ns).next()?;
            wake = slept.wake.filter(|wake| wake.by_waker() && wake.at_ns >= since_ns)?;
        }
        None
    }

    /// The connection on which the next question was asked after that wake-up, by the thread or by a task that it woke
    /// for that, and when; if it may be for the request. This is the connection `freed`; or another thread was faster,
    /// and the thread got another connection to the same address.
    fn asks_next(&self, thread: ThreadId, wake: Wake, freed: Object) -> Option<(Object, u64)> {
        let t = self.world.thread(thread);
        let next = count_before(&t.marks.list, |mark| mark.enter_ns < wake.at_ns);
        let own = t.marks.list.get(next).filter(|next| next.kind == MarkKind::Asks);
        if let Some(own) = own.filter(|own| self.may_be_its(own)) {
            let connection = own.moved.object;
            let to = |connection| self.world.channels.get(&connection)?.ends.map(|[_, to]| to);
            let same = connection == freed || to(connection) == to(freed);
            return same.then_some((connection, own.enter_ns));
        }
        let writes = &self.world.channels.get(&freed)?.writes;
        let asked = writes.get(count_before(writes, |write| write.enter_ns < wake.at_ns))?;
        let mut call = self.world.thread(asked.thread).marks.of_call(asked.enter_ns);
        let is_its = call.any(|mark| mark.moved.object == freed && self.may_be_its(mark))
            && was_given_by(self.world, thread, (wake.at_ns, asked.enter_ns), asked.thread);
        is_its.then_some((freed, asked.enter_ns))
    }

    /// Whether a rest did not end by a timer, nor by another thread of the process (which may have had the request).
    fn ended_by_peer(&self, thread: ThreadId, off: &Off) -> bool {
        !classify::off_cpu::timed_out(self.world, thread, off)
            && !off.wake.is_some_and(|wake| self.is_own(thread, wake))
    }

    /// Whether the process had another connection to the same address that nobody used at that time, or may have had
    /// one: it has more than are looked at.
    fn another_is_free(&self, process: ProcessId, asked: Object, at_ns: u64) -> bool {
        let to = |channel: &Channel| channel.ends.map(|[_, to]| to);
        let to_same = self.world.channels.get(&asked).and_then(to);
        let all = self.world.processes[process as usize].asks_on.iter();
        let others = all.rev().filter(|on| **on != asked);
        let known = others.filter_map(|on| self.world.channels.get(on));
        let mut others = known.filter(|channel| to(channel) == to_same);
        others.by_ref().take(MOST_CONNECTIONS).any(|channel| self.is_free(channel, at_ns))
            || others.next().is_some()
    }

    /// Whether a connection was idle: the last question on it was answered, and the next one was asked at will, if any.
    /// What was moved long ago is forgotten. A connection that several clients use at a time is always free.
    fn is_free(&self, channel: &Channel, at_ns: u64) -> bool {
        if channel.is_shared {
            return true;
        }
        let Some(answers) = channel.reverse.and_then(|back| self.world.channels.get(&back)) else {
            return false;
        };
        let next = count_before(&channel.writes, |write| write.enter_ns < at_ns);
        let last = next.checked_sub(1).map(|last| channel.writes[last].enter_ns);
        let heard = last_before(&answers.reads, |read| read.exit_ns <= at_ns);
        let existed = channel.first_write_ns.is_some_and(|ns| ns < at_ns);
        let is_answered = match last {
            Some(last) => heard.is_some_and(|heard| heard.enter_ns > last),
            None => existed,
        };
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
        let asked = match self.next_for_its_sake(thread, since_ns) {
            Some(next_ns) => {
                let first = count_before(marks, |mark| mark.exit_ns < next_ns);
                let mut call = marks.range(first..).take_while(|mark| mark.exit_ns == next_ns);
                call.find(|mark| mark.kind == MarkKind::Asks && self.of_goal(mark))?
            }
            None => self.passed_on(thread)?.1,
        };
        let is_next = asked.enter_ns >= since_ns
            && rested_ns(t, since_ns, asked.enter_ns).is_none_or(|ns| ns == since_ns);
        is_next.then_some(asked)
    }

    /// Whether the path has come back over what the thread did at `at_ns`.
    fn came_back_over(&self, thread: ThreadId, at_ns: u64) -> bool {
        let mut here = self.output.out.iter().rev().take_while(|raw| raw.thread == thread);
        here.any(|raw| raw.end_ns > at_ns)
    }

    /// The answer that the thread passed on when it answered the request, and the question that it had asked for that,
    /// unless it was certainly another's.
    pub(super) fn passed_on(&self, thread: ThreadId) -> Option<(&Mark, &Mark)> {
        let [first, ..] = self.goal.messages[..] else { return None };
        let answer = self.goal.messages.iter().find(|message| message.object != first.object)?;
        let answers = self.world.channels.get(&answer.object)?;
        let write = Channel::find(&answers.writes, answer.from)?;
        let marks = &self.world.thread(thread).marks;
        let next = count_before(&marks.list, |mark| mark.enter_ns < write.enter_ns);
        let heard = heard_in_turn(&marks.list, next)?;
        let heard_from = self.world.channels.get(&heard.moved.object)?;
        let asked = self.world.channels.get(&heard_from.reverse?)?;
        let asked = last_before(&asked.writes, |asked| asked.enter_ns < heard.enter_ns)?;
        let mut call = marks.of_call(asked.enter_ns);
        let asked = call.find(|mark| mark.kind == MarkKind::Asks && self.may_be_its(mark));
        asked.filter(|_| write.thread == thread).map(|asked| (heard, asked))
    }

    /// The call that read the answer to another request's question on that connection, last before `asked_ns`.
    fn freed(&self, channel: &Channel, asked_ns: u64) -> Option<&Transfer> {
        let answers = self.world.channels.get(&channel.reverse?)?;
        let heard = last_before(&answers.reads, |read| read.enter_ns < asked_ns)?;
        let mut marks = self.world.thread(heard.thread).marks.of_call(heard.enter_ns);
        let is_own = marks.any(|mark| mark.kind == MarkKind::Hears && self.of_goal(mark));
        (!is_own).then_some(heard)
    }
}

/// The answer that a thread heard for the question that it answers by mark `answer`: answers that it has heard together
/// it passes on one after the other, in their order.
fn heard_in_turn(marks: &History<Mark>, answer: usize) -> Option<&Mark> {
    let mut before = marks.range(..answer).rev().take(MOST_IN_TURN).peekable();
    let mut answered = 0;
    while let Some(gave) = before.next_if(|mark| !mark.takes_in()) {
        answered += usize::from(gave.kind == MarkKind::Answers);
    }
    let taken = before.take_while(|mark| mark.takes_in());
    let heard: Vec<&Mark> = taken.filter(|mark| mark.kind == MarkKind::Hears).collect();
    heard.into_iter().rev().nth(answered)
}

/// Whether a thread rested until any of its connections was ready. A thread that rests in a read serves the request that
/// it reads the answer for.
fn rests_in_poll(off: &Off) -> bool {
    is_rest(off) && off.call.is_some_and(|call| waits(call.nr, call.object) == Waits::Readiness)
}
