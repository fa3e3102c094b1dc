//! What a record of a runtime's task tells.

use rpcprobe_record::TaskWait;

/// What becomes of a runtime's task, by the thread that does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskChange {
    /// It runs on that thread.
    Runs,
    /// The thread leaves it asleep, for that if it is known.
    Parks(Option<TaskWait>),
    /// The thread leaves it runnable.
    Yields,
    /// The thread leaves it for good.
    Ends,
    /// The thread makes it runnable. What it had waited for, where it does not say so as it parks.
    Readied(Option<TaskWait>),
    /// The thread has made it, runnable.
    Born,
    /// The thread has made it, asleep: it may be told of later, or never.
    Made,
    /// It runs on that thread, and the one that the thread ran before waits.
    Steps,
    /// As that, of Node's: it had waited for that, and the loop has found it ready.
    StepsAfter(TaskWait),
    /// It is no task: that thread runs the timers that are due.
    Timers,
    /// It is no task: that thread has gone on with what waited for a timer, and may come to the next one.
    Drained,
    /// Readied by that thread, or born if nothing is known of it.
    Queued,
    /// It is no task: a timer is due, whose callback will step so.
    Due,
    /// The one that the thread runs had waited for that.
    Waited(Option<TaskWait>),
}
