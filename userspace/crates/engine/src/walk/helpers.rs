//! Rule `helper`: a thread of the request is off its CPU because another thread that works for the same
//! request has it.
//!
//! On one CPU, a woken thread may run at once in place of its waker. What looks like a preemption is then the request's
//! own work, done by the woken thread, the helper. A thread is a helper if the preempted thread, or another helper,
//! woke it out of its sleep for the request, and neither has turned to another request since, except to one that was
//! made for this one. A wait for a lock does not count as such a sleep, because the thread that ends it hands on no
//! work. All of this is inferred, so it is marked as modelled.

use crate::ownership::marks::{rested_ns, Mark, MarkKind};
use crate::walk::*;

/// Limit of the chain of helpers that woke each other.
const MOST_HELPERS: usize = 64;
/// Limit of the off-CPU intervals searched for the wake-up since which a thread works.
const MOST_SLEEPS: usize = 64;

impl Walk<'_> {
    /// Whether `who`, which had the CPU of `preempted` at that time, worked for the request.
    pub(super) fn helps(&self, who: ThreadId, at_ns: u64, preempted: ThreadId) -> bool {
        if !self.applies(Rule::Helper) {
            return false;
        }
        let (mut who, mut at_ns) = (who, at_ns);
        for _ in 0..MOST_HELPERS {
            let Some(wake) = self.woken_to_help(who, at_ns) else { return false };
            if self.works_for_others(wake.waker, wake.at_ns) {
                return false;
            }
            if wake.waker == preempted {
                return true;
            }
            (who, at_ns) = (wake.waker, wake.at_ns);
        }
        false
    }

    /// When a thread answered a request that was made for this one, if that was the last message it moved in that span.
    pub(super) fn answered_for_it(&self, who: ThreadId, span: (u64, u64)) -> Option<u64> {
        let marks = &self.world.thread(who).marks.list;
        let last = last_before(marks, |mark| mark.exit_ns <= span.1)?;
        let answers = last.kind == MarkKind::Answers && last.exit_ns > span.0;
        (answers && self.made.has(&last.moved)).then_some(last.exit_ns)
    }

    /// The wake-up since which a thread does what it does, if it may be for the request.
    fn woken_to_help(&self, who: ThreadId, at_ns: u64) -> Option<Wake> {
        let t = self.world.thread(who);
        if !t.traced || who == IDLE || self.works_for_others(who, at_ns) {
            return None;
        }
        let latest = latest_before(&t.off, |off| off.start_ns < at_ns).take(MOST_SLEEPS);
        // After a wait for a lock, or for a page, the thread goes on with what it did before.
        let slept = { latest }.find(|off| match off.why {
            Why::Preempted | Why::Slept { uninterruptible: true, .. } => false,
            _ => !self.waited_for_lock(who, off),
        })?;
        let wake = slept.wake.filter(|wake| wake.by_waker() && wake.at_ns >= self.goal.start_ns)?;
        (wake.waker != who && !self.before_asked(wake.waker, wake.at_ns)).then_some(wake)
    }

    fn waited_for_lock(&self, who: ThreadId, off: &Off) -> bool {
        let futex =
            || off.call.zip(off.wake).is_some_and(|(call, wake)| self.is_lock(who, &call, &wake));
        futex()
            || classify::off_cpu::kernel_lock(self.world, who, off).is_some()
            || classify::off_cpu::waited_in(self.world, who, off).is_some()
    }

    /// Whether the thread's messages show that it worked for another request then.
    fn works_for_others(&self, thread: ThreadId, at_ns: u64) -> bool {
        if let Some(Turn::Others { .. }) = self.turn(thread, at_ns) {
            return true;
        }
        let t = self.world.thread(thread);
        let last = last_before(&t.marks.list, |mark| mark.exit_ns <= at_ns);
        // Work after an answer, without a rest in between, is not for the request.
        let is_strange = |mark: &Mark| {
            mark.kind == MarkKind::Answers || !self.of_goal(mark) && !self.made.has(&mark.moved)
        };
        last.is_some_and(|mark| rested_ns(t, mark.exit_ns, at_ns).is_none() && is_strange(mark))
            || self.serves_a_stranger(thread, at_ns)
    }
}
