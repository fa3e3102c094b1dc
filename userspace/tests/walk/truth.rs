//! What really happened in a simulated machine, nanosecond by nanosecond: never derived from events.

use rpcprobe::model::{Category, Kind};

/// Index into [`Truth::tasks`]; 0 is the idle task of every CPU.
pub type TaskNo = usize;
pub type CallNo = usize;
pub type AwayNo = usize;

pub const IDLE_TASK: TaskNo = 0;

/// The innermost thing a task did in a nanosecond.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doing {
    Unborn,
    User,
    Call,
    Fault,
    Softirq,
    Hardirq,
    /// Off the CPU.
    Away(AwayNo),
}

#[derive(Clone, Copy, Debug)]
pub struct Tick {
    pub doing: Doing,
    /// The system call it was in, whatever ran on top of it.
    pub call: Option<CallNo>,
    /// For which requests: a number of [`super::load::facts::Facts::whose`].
    pub whose: u32,
}

/// Why a task was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    Preempted,
    Born,
    Dead,
    Timer,
    Mutex,
    /// A semaphore that is used as a lock.
    SemaphoreLock,
    /// A condition variable, the end of a thread, ...: any other futex.
    Condition,
    /// poll() and eventfds.
    Readiness,
    /// Bytes, or room for them, in a pipe.
    Pipe,
    Child,
    /// A device or the journal, not to be interrupted; `iowait` as the kernel accounts it.
    Disk {
        iowait: bool,
    },
    Other,
}

#[derive(Clone, Copy, Debug)]
pub struct Wakeup {
    pub at_ns: u64,
    pub waker: TaskNo,
    /// The waker did it: not an interrupt that hit it, but for softirqs in its own call.
    pub own: bool,
}

/// Time off the CPU: `[from_ns, to_ns)`.
#[derive(Clone, Debug)]
pub struct Away {
    pub from_ns: u64,
    pub to_ns: u64,
    pub why: Why,
    pub wakeup: Option<Wakeup>,
    /// Where it came back.
    pub cpu: usize,
    /// Between run queues, where that is told: when, from, to.
    pub moves: Vec<(u64, usize, usize)>,
    pub call: Option<CallNo>,
}

impl Away {
    /// On whose run queue it was in the nanosecond that begins then.
    pub fn queue_at(&self, at_ns: u64) -> usize {
        match self.moves.iter().find(|(moved_ns, ..)| *moved_ns > at_ns) {
            Some((_, from, _)) => *from,
            None => self.cpu,
        }
    }
}

pub const EVENTFDS: usize = 1000;

/// Bytes `[from, to)` of a pipe moved by a call.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// From [`EVENTFDS`] on: an eventfd.
    pub pipe: usize,
    pub is_write: bool,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Debug)]
pub struct Call {
    pub task: TaskNo,
    pub category: Category,
    pub enter_ns: u64,
    pub exit_ns: u64,
    pub transfer: Option<Transfer>,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub tid: u32,
    pub tgid: u32,
    pub traced: bool,
    pub jbd2: bool,
    /// By time since the start.
    pub ticks: Vec<Tick>,
    pub aways: Vec<AwayNo>,
}

/// A request the simulation performed.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub kind: Kind,
    pub start_ns: u64,
    pub end_ns: u64,
    /// Who had the answer at the end.
    pub client: TaskNo,
    pub server_tgid: u32,
    /// The process it was about, for `exec`.
    pub child: Option<TaskNo>,
    /// Pipe and bytes of each of its messages.
    pub messages: Vec<(usize, u64, u64)>,
}

#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub start_ns: u64,
    pub tasks: Vec<Task>,
    pub calls: Vec<Call>,
    pub aways: Vec<Away>,
    /// Who ran on each CPU, by time since the start; `None` until its first switch.
    pub cpus: Vec<Vec<Option<TaskNo>>>,
    pub asked: Vec<Asked>,
    /// Calls that raced on a pipe ended in another order than that of their bytes: the kernel side,
    /// which counts when they end, takes the bytes of one for those of another.
    pub miscounted: bool,
}

impl Truth {
    /// What a task did in the nanosecond that ends at `at_ns`.
    pub fn before(&self, task: TaskNo, at_ns: u64) -> Tick {
        self.tasks[task].ticks[(at_ns - 1 - self.start_ns) as usize]
    }

    /// The call that wrote a byte of a pipe.
    pub fn writer(&self, pipe: usize, at: u64) -> Option<CallNo> {
        self.calls.iter().position(|call| {
            call.transfer.is_some_and(|t| t.pipe == pipe && t.is_write && t.from <= at && at < t.to)
        })
    }
}
