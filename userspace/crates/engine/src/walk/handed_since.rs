//! Threads that were handed something for this request after something else had woken them, and before they ran: bytes, or, where tasks
//! are followed, what another task gives them. A connection's task is so: one request gives it back just as the next one asks on it.

use crate::ownership::handed::{again, hands, is_task, woken_since_ns, MOST_RIVALS};
use crate::timeline::gallop::{count_before, latest_before};
use crate::walk::*;

impl Walk<'_> {
    /// The step to whoever handed the thread something for this request after `wake`, if anybody did: from then on it
    /// waited for a CPU. `message`: the bytes that ended the sleep, who sent them, and when.
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

    /// The same of the last of those that woke a task again and whose path leads to the request; or that woke it as it still ran,
    /// so that it did not rest: it had something else to do first.
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

    /// The step to who had moved the request's messages last, if that ran as a task had been woken by another and did not run yet: it
    /// was given then, in memory, as through a channel with room, what it does next for the request, and the kernel and the runtime
    /// show no wake-up of one that is awake. `mark`: the segments before its wait for a CPU.
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

    /// Who that was, and the last that it can have been: it has not turned to another request, and the task, which waited for whatever
    /// it is given, has not run since it had the request.
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

    /// Whether a thread moved bytes of the request then.
    fn moves_ours(&self, thread: &Thread, (from_ns, to_ns): (u64, u64)) -> bool {
        let next = count_before(&thread.calls, |call| call.exit_ns < from_ns);
        let mut calls = thread.calls.range(next..).take_while(|call| call.enter_ns < to_ns);
        calls.any(|call| self.is_ours(call))
    }
}
