//! A task: its state, and what is reported when others ready it.

use rpcprobe_record::{WAKING_HARDIRQ, WAKING_SOFTIRQ};

use crate::event::{TaskWait, TaskWaitSort, What};
use crate::runtime_tasks::at::At;
use crate::task_wait;

/// A task's wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Park {
    pub(super) wait: Option<TaskWait>,
    pub(super) since_ns: u64,
    /// A timer ended the wait.
    pub(super) ran_out: bool,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) number: u32,
    /// The thread that runs it.
    pub(super) on: Option<u32>,
    pub(super) parked: Option<Park>,
    pub(super) is_of_runtime: bool,
    /// The task was readied while it ran: by which thread or task, and what it is going to wait for.
    pub(super) early: Option<(u32, TaskWait)>,
    /// It has been readied since it parked.
    pub(super) is_readied: bool,
    /// When its last wait began, if another task ended that wait and its reason is not known.
    pub(super) waited_since_ns: Option<u64>,
    /// The task is over when it waits again.
    pub(super) runs_once: bool,
}

impl Task {
    pub(super) fn new(number: u32) -> Task {
        let (on, parked, is_of_runtime) = (None, None, false);
        let (early, is_readied, waited_since_ns, runs_once) = (None, false, None, false);
        Task { number, on, parked, is_of_runtime, early, is_readied, waited_since_ns, runs_once }
    }

    /// The task runs, and its next wait will find this ready.
    pub(super) fn readied_early(&mut self, waker: u32, wait: TaskWait, at: At<'_>) {
        self.early.get_or_insert((waker, wait));
        self.handed_more(waker, wait, at);
    }

    /// The task is ready, or runs. It may also go on with what it is handed now.
    fn handed_more(&self, waker: u32, wait: TaskWait, mut at: At<'_>) {
        if wait.sort() == TaskWaitSort::Channel && waker != self.number {
            at.tell(What::WokenAgain { waker, wakee: self.number });
        }
    }

    /// The task is asleep, and had waited for this.
    pub(super) fn woken(&mut self, waker: u32, wait: TaskWait, mut at: At<'_>) {
        if std::mem::replace(&mut self.is_readied, true) {
            return self.handed_more(waker, wait, at); // this did not end its wait
        }
        let flags = match wait.sort() {
            TaskWaitSort::Timer => WAKING_HARDIRQ,
            TaskWaitSort::Descriptor => WAKING_SOFTIRQ,
            _ => 0,
        };
        if flags == 0 && self.parked.is_some_and(|park| park.wait.is_none()) {
            self.parked = None; // the task begins
        }
        if let Some(park) = &mut self.parked {
            // A task that releases a semaphore may wake others by other means, too.
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

/// Flags of a goroutine's wake-up: by the sort of its wait, and by whether the waker is a goroutine, and one of the
/// runtime's.
pub(super) fn waking_of_goroutine(sort: Option<TaskWaitSort>, by_runtime: Option<bool>) -> u8 {
    match (sort, by_runtime) {
        // The collector looks which descriptors are ready when it lets all goroutines go on.
        (Some(TaskWaitSort::Descriptor), None | Some(true)) => WAKING_SOFTIRQ,
        (_, Some(_)) => 0,
        (Some(TaskWaitSort::Timer | TaskWaitSort::Channel) | None, None) => WAKING_HARDIRQ,
        (Some(_), None) => WAKING_SOFTIRQ,
    }
}
