//! A task: where it is, and what it is told when others ready it.

use rpcprobe_record::{WAKING_HARDIRQ, WAKING_SOFTIRQ};

use crate::event::{TaskWait, TaskWaitSort, What};
use crate::runtime_tasks::at::At;
use crate::task_wait;

/// Where a task waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Park {
    pub(super) wait: Option<TaskWait>,
    pub(super) since_ns: u64,
    /// A timer ended it.
    pub(super) ran_out: bool,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) number: u32,
    /// The thread that runs it.
    pub(super) on: Option<u32>,
    pub(super) parked: Option<Park>,
    pub(super) is_of_runtime: bool,
    /// It was readied while it ran: by whom, and what it is going to wait for.
    pub(super) early: Option<(u32, TaskWait)>,
    /// It has been readied since it parked.
    pub(super) is_readied: bool,
    /// When the wait began after which it runs, if another task ended that and it has not said what it was for.
    pub(super) waited_since_ns: Option<u64>,
    /// It is over when it waits again.
    pub(super) runs_once: bool,
}

impl Task {
    pub(super) fn new(number: u32) -> Task {
        let (on, parked, is_of_runtime) = (None, None, false);
        let (early, is_readied, waited_since_ns, runs_once) = (None, false, None, false);
        Task { number, on, parked, is_of_runtime, early, is_readied, waited_since_ns, runs_once }
    }

    /// It runs, and is going to find that ready.
    pub(super) fn readied_early(&mut self, waker: u32, wait: TaskWait, at: At<'_>) {
        self.early.get_or_insert((waker, wait));
        self.handed_more(waker, wait, at);
    }

    /// It is ready, or runs: what it is handed now it may go on with all the same.
    fn handed_more(&self, waker: u32, wait: TaskWait, mut at: At<'_>) {
        if wait.sort() == TaskWaitSort::Channel && waker != self.number {
            at.tell(What::WokenAgain { waker, wakee: self.number });
        }
    }

    /// It is asleep, and had waited for that.
    pub(super) fn woken(&mut self, waker: u32, wait: TaskWait, mut at: At<'_>) {
        if std::mem::replace(&mut self.is_readied, true) {
            return self.handed_more(waker, wait, at); // that did not end its wait
        }
        let flags = match wait.sort() {
            TaskWaitSort::Timer => WAKING_HARDIRQ,
            TaskWaitSort::Descriptor => WAKING_SOFTIRQ,
            _ => 0,
        };
        if flags == 0 && self.parked.is_some_and(|park| park.wait.is_none()) {
            self.parked = None; // it begins
        }
        if let Some(park) = &mut self.parked {
            // Whoever lets go of a semaphore may wake others by other means, too.
            let is_other = wait.sort() == TaskWaitSort::Waiters && park.wait != Some(wait);
            let wait = if is_other { TaskWait::AWAIT } else { wait };
            if park.wait.replace(wait) != Some(wait) {
                let (tid, since_ns, nr) = (self.number, park.since_ns, task_wait::nr_of(park.wait));
                at.tell(What::Waited { tid, since_ns, nr });
            }
        }
        at.tell(What::Waking { waker, wakee: self.number, flags, block: 0 });
    }
}

/// How a goroutine is woken: of which sort its wait is, and whether a goroutine did it that is the runtime's.
pub(super) fn waking_of_goroutine(sort: Option<TaskWaitSort>, by_runtime: Option<bool>) -> u8 {
    match (sort, by_runtime) {
        // The collector looks what is ready when it lets all go on.
        (Some(TaskWaitSort::Descriptor), None | Some(true)) => WAKING_SOFTIRQ,
        (_, Some(_)) => 0,
        (Some(TaskWaitSort::Timer | TaskWaitSort::Channel) | None, None) => WAKING_HARDIRQ,
        (Some(_), None) => WAKING_SOFTIRQ,
    }
}
