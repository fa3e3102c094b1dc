//! Threads that were handed something for this request after something else had woken them and before they ran: bytes
//! or, where tasks are followed, what another task gives them. The task of a shared connection is an example: one
//! request gives it back just before the next one asks on it.

use crate::ownership::handed::{again, hands, is_task, woken_since_ns, MOST_RIVALS};
use crate::timeline::gallop::{count_before, latest_before};
use crate::walk::*;

impl Walk<'_> {
    /// The step to the thread that handed `thread` something for this request after `wake`, if there is one. From then
    /// on `thread` waited for a CPU. `message`: the bytes that ended the sleep, the thread that sent them, and when.
    pub(super) fn handed_since(
        &mut self,
        thread: ThreadId,
        (off, wake): (&Off, Wake),
        message: Option<(Object, ThreadId, u64)>,
        at_ns: u64,
        depth: usize,
    ) -> Result<Option<Step>, NotYet> {
        if let Some((_, sender, handed_ns)) = message.filter(|(.., ns)| *ns > wake.at_ns) {
            let handed_ns = handed_ns.max(off.start_ns.max(self.goal.start_ns));
            self.run_queue(thread, off, handed_ns, at_ns, Category::RunqueueWakeup)?;
            self.output.rule = Rule::Message;
            return Ok(Some(Step::Joined(sender, handed_ns)));
        }
        self.handed_again(thread, off, wake, at_ns, depth)
    }

    /// The same for the last waker whose path leads to the request and that woke the task again, or woke it while it
    /// still ran, so that it did not rest: it had something else to do first.
    fn handed_again(
        &mut self,
        thread: ThreadId,
        off: &Off,
        wake: Wake,
        at_ns: u64,
        depth: usize,
    ) -> Result<Option<Step>, NotYet> {
        let t = self.world.thread(thread);
        if t.woken_again.is_empty() {
            return Ok(None);
        }
        let since_ns = woken_since_ns(t, off, &wake);
        let as_it_ran = since_ns < off.start_ns;
        let begin_ns = self.goal.start_ns;
        let by = again(self.world, thread, (since_ns, off.end_ns)).rev();
        let by = by.filter(|(waker, ns)| as_it_ran || *waker != wake.waker && *ns > wake.at_ns);
        for (waker, handed_ns) in
            by.filter(|(_, ns)| *ns > begin_ns && *ns < at_ns).take(MOST_RIVALS)
        {
            if handed_ns < off.start_ns && self.moves_ours(t, (handed_ns, off.start_ns)) {
                continue; // it was at work for the request then, and goes on
            }
            let mark = self.output.out.len();
            let ready_ns = handed_ns.max(off.start_ns).min(at_ns);
            self.run_queue(thread, off, ready_ns, at_ns, Category::RunqueueWakeup)?;
            self.queue(thread, (handed_ns, ready_ns), Category::QueueApp, OTHERS_TURN, Rule::Turn);
            let wake = Wake { at_ns: handed_ns, waker, flags: 0, block: 0 };
            let span = (handed_ns, handed_ns);
            if let Some(step) = self.through_waker(thread, off, wake, span, depth)? {
                return Ok(Some(step));
            }
            self.output.out.truncate(mark);
        }
        Ok(None)
    }

    /// The step to the thread that last moved the request's messages, if that thread ran while the task had been woken
    /// by another one and did not run yet. It then gave the task in memory, as through a channel with room, what the
    /// task does next for the request. The kernel and the runtime show no wake-up of a task that is awake. `mark`: the
    /// number of segments before the task's wait for a CPU.
    pub(super) fn given_while_ready(
        &mut self,
        thread: ThreadId,
        (off, wake): (&Off, Wake),
        at_ns: u64,
        mark: usize,
    ) -> Result<Option<Step>, NotYet> {
        let Some((giver, given_ns)) = self.giver_while_ready(thread, (off, wake), at_ns) else {
            return Ok(None);
        };
        self.output.out.truncate(mark);
        self.output.likely = true;
        self.run_queue(thread, off, given_ns, at_ns, Category::RunqueueWakeup)?;
        self.output.rule = Rule::InMemory;
        Ok(Some(Step::Joined(giver, given_ns)))
    }

    /// The thread of [`Walk::given_while_ready`], and the latest time at which it can have given the task something.
    /// The thread has not turned to another request. The task, which waited for whatever it is given, has not run since
    /// the thread had the request.
    fn giver_while_ready(
        &self,
        thread: ThreadId,
        (off, wake): (&Off, Wake),
        at_ns: u64,
    ) -> Option<(ThreadId, u64)> {
        let t = self.world.thread(thread);
        if !self.applies(Rule::InMemory)
            || !is_task(self.world, thread)
            || !hands(off)
            || Some(t.process) != self.goal.server_process
            || !self.goes_on_with_it(t, at_ns)
        {
            return None;
        }
        let of_server = |id: ThreadId| self.world.thread(id).process == t.process;
        let (giver, had_ns) = self.last_worked(of_server, at_ns)?;
        let has_run = off.why != Why::Born && off.start_ns > had_ns;
        if [thread, wake.waker].contains(&giver) || !is_task(self.world, giver) || has_run {
            return None;
        }
        let giver_of = self.world.thread(giver);
        let last = latest_before(&giver_of.off, |off| off.start_ns < at_ns).next();
        let away = last.filter(|off| off.end_ns >= at_ns);
        let given_ns = away.map_or(at_ns, |off| off.start_ns);
        let marks = &giver_of.marks.list;
        let later = count_before(marks, |mark| mark.exit_ns <= had_ns);
        let mut since = marks.range(later..).take_while(|mark| mark.enter_ns < given_ns);
        let has_turned = since.any(|mark| !self.of_goal(mark));
        let is_since = given_ns > wake.at_ns.max(self.goal.start_ns);
        (is_since && !has_turned).then_some((giver, given_ns))
    }

    /// Whether the next message that a task moves, before it rests, is of the request.
    fn goes_on_with_it(&self, task: &Thread, at_ns: u64) -> bool {
        let marks = &task.marks.list;
        let next = marks.get(count_before(marks, |mark| mark.exit_ns < at_ns));
        let first = count_before(&task.off, |off| off.start_ns < at_ns);
        let rest = { task.off.range(first..) }.find(|off| off.why != Why::Preempted);
        let until_ns = rest.map_or(u64::MAX, |off| off.start_ns);
        next.is_some_and(|mark| mark.enter_ns < until_ns && self.of_goal(mark))
    }

    /// Whether a thread moved bytes of the request in `[from_ns, to_ns)`.
    fn moves_ours(&self, thread: &Thread, (from_ns, to_ns): (u64, u64)) -> bool {
        let next = count_before(&thread.calls, |call| call.exit_ns < from_ns);
        let mut calls = thread.calls.range(next..).take_while(|call| call.enter_ns < to_ns);
        calls.any(|call| self.is_ours(call))
    }
}
