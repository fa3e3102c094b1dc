//! Rule `timer`: a request that its server goes on with after a rest that ran out has waited for a timer of the
//! program's own.
//!
//! An event loop, or a runtime that runs tasks on threads of its own (Go's, tokio's), serves others while a request waits
//! for time to pass. While a thread of it rests, nothing that it has is ready to run, so the request did not wait
//! for its turn; and what ended the rest is that a timer was due. Which request's is not seen: it is taken to be that
//! of the one that the thread goes on with.

use crate::ownership::marks::{is_rest, Mark, MarkKind};
use crate::walk::*;

/// `detail` of such a wait: the rest ran out; or it ended sooner, for another request.
const TIMER: &str = "a timer of the program's: its thread rested until the timeout";
const PERHAPS: &str =
    "a timer of the program's, as it seems: its thread rested, and a timer was pending";

/// Limit of the wakers looked at.
const MOST_WAKERS: usize = 8;

impl Walk<'_> {
    /// `thread` rested in `off`, not yet at work for the request or not any more, and a timer was pending: the request waited
    /// for that since it was last worked for.
    pub(super) fn waited_for_timer(
        &mut self,
        thread: ThreadId,
        off: &Off,
        woken_ns: u64,
    ) -> Option<Step> {
        let process = self.world.thread(thread).process;
        if Some(process) != self.goal.server_process {
            return None;
        }
        let ran_out = self.ran_out(thread, off)?;
        let of_process = |id: ThreadId| self.world.thread(id).process == process;
        let (worker, worked_ns) = self.last_worked(of_process, off.start_ns)?;
        let from_ns = self.let_go_ns(worker, worked_ns)?;
        let rested_ns = off.call.map_or(off.start_ns, |call| call.enter_ns);
        if from_ns >= off.start_ns || worker == thread && from_ns >= rested_ns {
            return None; // the thread's own wait
        }
        let detail = Some(self.output.names.texts.add(if ran_out { TIMER } else { PERHAPS }));
        self.output.wait_rule = Some(Rule::Timer);
        let (category, evidence) = (Category::Sleep, Evidence::Modelled);
        self.emit(thread, from_ns, woken_ns, category, detail, None, None, off.cpu, evidence);
        self.output.rule = Rule::Timer;
        Some(Step::Joined(worker, from_ns))
    }

    /// Whether a rest ended because its time was over, rather than for another request while a timer was still
    /// pending; `None`: neither.
    fn ran_out(&self, thread: ThreadId, off: &Off) -> Option<bool> {
        if !self.applies(Rule::Timer) || !is_rest(off) {
            return None;
        }
        if classify::off_cpu::timed_out(self.world, thread, off) {
            return Some(true);
        }
        let call = classify::on_cpu::call_at(self.world.thread(thread), off.end_ns);
        let pending = matches!(call, InCall::Closed(call) if call.has_timeout && !call.unfinished);
        (pending && self.rested_for_another(thread, off)).then_some(false)
    }

    /// The last rest with a timer pending that led to what a thread did up to `to_ns`, if it began after `from_ns`: its own, or
    /// that of who woke it, or of who woke that one. Its thread and its end. What waited in the server's memory by
    /// then did not wait for that thread.
    pub(super) fn timer_pending_until(
        &self,
        mut thread: ThreadId,
        (from_ns, mut to_ns): (u64, u64),
    ) -> Option<(ThreadId, u64)> {
        for _ in 0..MOST_WAKERS {
            let t = self.world.thread(thread);
            let mut slept = latest_before(&t.off, |off| off.end_ns < to_ns);
            let off = slept.find(|off| waits_for_bytes(off))?;
            if off.start_ns <= from_ns {
                return None;
            }
            if self.ran_out(thread, off).is_some() {
                return Some((thread, off.end_ns));
            }
            let wake = off.wake.filter(|wake| wake.by_waker() && wake.waker != thread)?;
            if self.world.thread(wake.waker).process != t.process {
                return None;
            }
            (thread, to_ns) = (wake.waker, wake.at_ns.min(off.end_ns));
        }
        None
    }

    /// When a thread that moved a message of the request, up to `worked_ns`, stopped working for it, as far as that shows:
    /// it slept, or turned to another.
    fn let_go_ns(&self, worker: ThreadId, worked_ns: u64) -> Option<u64> {
        let t = self.world.thread(worker);
        let first = count_before(&t.off, |off| off.end_ns <= worked_ns);
        let mut later = t.off.range(first..).filter(|off| off.start_ns >= worked_ns);
        let slept_ns = later.find(|off| waits_for_bytes(off)).map(|off| off.start_ns);
        let marks = &t.marks.list;
        let next = count_before(marks, |mark| mark.exit_ns <= worked_ns);
        let turns = next.checked_sub(1).map(|own| marks[own].turns);
        let in_batch = |mark: &Mark| mark.kind == MarkKind::Takes && Some(mark.turns) == turns;
        let mut after = marks.range(next..);
        let other = after.find(|mark| !in_batch(mark) && !self.of_goal(mark));
        let turned_ns = other.map(|mark| mark.enter_ns);
        match (slept_ns, turned_ns) {
            (Some(slept_ns), Some(turned_ns)) => Some(slept_ns.min(turned_ns)),
            (slept_ns, turned_ns) => slept_ns.or(turned_ns),
        }
    }
}
