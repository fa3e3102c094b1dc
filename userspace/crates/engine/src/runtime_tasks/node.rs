//! Node's event loop: streams and timers as tasks. The loop reports that a stream was ready when it takes the stream,
//! and that it runs the timers that are due. A timer is reported when it has run its callback; then the loop goes on
//! with what waited for the timer.

use super::{At, RuntimeTasks};
use crate::classify::syscall::{waits, Waits};
use crate::event::{Call, TaskWait};

/// The first address of timers (`TIMER` of `bpf/node.bpf.c`).
const FIRST_TIMER: u64 = 1 << 63;
/// Limit of the timers that are remembered while they have not run. It is not reported which of them the program has
/// given up.
const MOST_TIMERS: usize = 1 << 16;

impl RuntimeTasks {
    /// A task has been made, perhaps a timer.
    pub(super) fn made_timer(&mut self, who: (u32, u64)) {
        if who.1 < FIRST_TIMER {
            return;
        }
        self.timers.push_back(who);
        if self.timers.len() > MOST_TIMERS {
            if let Some(oldest) = self.timers.pop_front() {
                self.made_by.remove(&oldest);
            }
        }
    }

    /// Notes when a loop has learned what is ready.
    pub(super) fn looked(&mut self, tid: u32, call: &Call, ts_ns: u64) {
        if waits(call.nr, None) == Waits::Readiness {
            if let Some(looked_ns) = self.looked_ns.get_mut(&tid) {
                *looked_ns = ts_ns;
            }
        }
    }

    /// The loop runs timers that are due. Each timer is reported when it has run.
    pub(super) fn timers(&mut self, tid: u32, at: At<'_>) {
        let now_ns = at.ts_ns;
        self.looked_ns.entry(tid).or_default();
        self.rests(tid, Some(TaskWait::AWAIT), at);
        self.in_timers.insert(tid, now_ns);
    }

    /// The step of a stream that is ready, or of a timer that has run its callback.
    pub(super) fn steps_after(
        &mut self,
        who: (u32, u64),
        tid: u32,
        wait: TaskWait,
        mut at: At<'_>,
    ) {
        let looked_ns = *self.looked_ns.entry(tid).or_default();
        let due_ns = match wait {
            // If no timer of this number was made, another timer has been given up.
            TaskWait::TIMER if !self.is_known(who) => return,
            TaskWait::TIMER => self.in_timers.get(&tid).copied(),
            _ => {
                self.in_timers.remove(&tid);
                Some(looked_ns)
            }
        };
        let running = self.running.get(&tid).map(|(running, _)| *running);
        let Some(due_ns) = due_ns.filter(|_| running != Some(who)) else { return };
        if let Some(running) = running {
            self.parks(running, tid, Some(TaskWait::AWAIT), at.again());
        }
        let now_ns = at.ts_ns;
        let task = self.found(who, &mut at);
        task.runs_once = wait == TaskWait::TIMER;
        if let Some(park) = task.parked {
            let ts_ns = due_ns.clamp(park.since_ns, now_ns);
            task.woken(tid, wait, At { ts_ns, ..at.again() });
        }
        self.runs(who, tid, at);
    }
}
