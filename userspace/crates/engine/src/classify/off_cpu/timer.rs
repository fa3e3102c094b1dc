//! Waits of runtimes' tasks for timers. If only one thread of a program polls, it checks which timers are due between
//! polls only. If that thread did not rest in the last poll, the timer may have been due at any time since the poll
//! before. If it has run other tasks since the last poll, the timer may have been due at any time since that poll.

use crate::classify::off_cpu::{Part, Wait};
use crate::ownership::handed::is_task;
use crate::task_wait::is_task_wait;
use crate::timeline::gallop::count_before;
use crate::timeline::ThreadId;
use rpcprobe_model::Category;

/// Limit of the threads of a process that are examined.
const MOST_THREADS: usize = 64;

/// Added to `detail` for the time in which the timer may already have been due.
const PERHAPS_DUE: &str = "or its timer was due, and the loop busy";

impl Wait<'_> {
    /// A wait for a timer.
    pub(super) fn for_timer(&self, detail: String) -> Vec<Part> {
        let (from_ns, to_ns) = (self.from_ns, self.to_ns);
        let since_ns = self.looked_before().map_or(to_ns, |ns| ns.clamp(from_ns, to_ns));
        let perhaps = format!("{detail}, {PERHAPS_DUE}");
        let mut parts = self.whole(Category::Sleep, detail, None, None);
        parts[0].to_ns = since_ns;
        if since_ns < to_ns {
            let mut rest = self.whole(Category::Sleep, perhaps, None, None);
            rest[0].from_ns = since_ns;
            rest[0].is_inferred = true;
            parts.append(&mut rest);
        }
        parts.retain(|part| part.from_ns < part.to_ns);
        parts
    }

    /// The earliest time at which the task's timer may have been due, if the loop that found it due was busy from then
    /// on.
    fn looked_before(&self) -> Option<u64> {
        self.off.call.filter(|call| is_task_wait(call.nr))?;
        let wake = self.off.wake?;
        let of_loop = self.world.thread(wake.waker);
        // If several threads poll, any of them may have checked the timers.
        let threads = &self.world.process_of(wake.waker).threads;
        let polls =
            |id: &&ThreadId| self.world.thread(**id).polls > 0 && !is_task(self.world, **id);
        if threads.iter().take(MOST_THREADS).filter(polls).count() != 1 {
            return None;
        }
        let polls = count_before(&of_loop.polled, |(_, exit_ns)| *exit_ns <= wake.at_ns);
        let (enter_ns, exit_ns) = *of_loop.polled.get(polls.checked_sub(1)?)?;
        let off = of_loop.off_before(exit_ns);
        let rested = off.is_some_and(|off| off.start_ns >= enter_ns && off.call.is_some());
        if !rested {
            // A loop that checks the timers just before it polls (Node's) runs what is due then, which may take a
            // while.
            return Some(of_loop.polled.get(polls.checked_sub(2)?)?.1);
        }
        // The loop rests at most until the next timer is due. Since then it may have run other tasks before it checked
        // the timers (Node's loop does).
        let next = of_loop.off.get(count_before(&of_loop.off, |off| off.start_ns < exit_ns));
        next.filter(|off| off.start_ns < wake.at_ns).map(|_| exit_ns)
    }
}
