//! What a record reports of a runtime's task.

use rpcprobe_record::TaskWait;

/// What a thread does with a runtime's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// The task runs on the thread.
    Runs,
    /// The thread leaves it asleep, for this reason if it is known.
    Parks(Option<TaskWait>),
    /// The thread leaves it runnable.
    Yields,
    /// The thread leaves it for good.
    Ends,
    /// The thread makes it runnable. The value is what it had waited for, if the runtime does not say so when a task
    /// parks.
    Readied(Option<TaskWait>),
    /// The thread has made it, and it is runnable.
    Born,
    /// The thread has made it, and it is asleep. It may be reported later, or never.
    Made,
    /// The task runs on the thread, and the task that the thread ran before waits.
    Steps,
    /// As `Steps`, in Node: the task had waited for this, and the loop has found it ready.
    StepsAfter(TaskWait),
    /// Concerns no task: the thread runs the timers that are due.
    Timers,
    /// Concerns no task: the thread has continued what waited for a timer, and may come to the next timer.
    Drained,
    /// The thread has readied it or, if nothing is known of it, made it.
    Queued,
    /// The task that the thread runs has given this stream something to write, which the loop will do (uvloop).
    Gives,
    /// Concerns no task: a timer is due, and the next step of this address is its callback.
    Due,
    /// The task that the thread runs had waited for this.
    Waited(Option<TaskWait>),
}
