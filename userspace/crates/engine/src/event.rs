//! The events that the engine works on, decoded from records.

mod task_change;

use std::net::SocketAddr;
use std::sync::Arc;

pub use crate::function::*;
pub use crate::object::*;
pub use crate::protocols::{Method, Protocol, Unit};
use crate::send_limit::SendLimit;
use crate::task_wait::task_wait;
pub use rpcprobe_model::GapWhy;
pub use rpcprobe_record::{TaskWait, TaskWaitSort};
pub use task_change::TaskChange;

/// A system call under way: known when its thread leaves the CPU inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenCall {
    pub nr: u16,
    pub enter_ns: u64,
    pub object: Option<Object>,
    /// The descriptor; for a futex the value it was expected to have.
    pub fd: i32,
}

impl OpenCall {
    /// What kind of lock the thread waits for; `None`: for a condition variable, semaphore or the like.
    ///
    /// By convention of glibc (lll_lock_wait) and Go, 2 in the word means "locked, and somebody waits", and
    /// the wait is a plain FUTEX_WAIT. (Waits with a bitset for a 2 may be of Rust's mutexes, or of
    /// condition variables.) glibc's rwlocks wait with a bitset for a 3 to change
    /// (pthread_rwlock_common.c: 1 | PTHREAD_RWLOCK_FUTEX_USED). PI futexes are always locks
    /// (include/uapi/linux/futex.h).
    pub fn lock(&self) -> Option<&'static str> {
        if let Some(wait) = task_wait(self.nr) {
            return (wait.sort() == TaskWaitSort::Lock).then(|| wait.name());
        }
        const FUTEX_WAIT: u32 = 0;
        const FUTEX_LOCK_PI: u32 = 6;
        const FUTEX_WAIT_BITSET: u32 = 9;
        const FUTEX_LOCK_PI2: u32 = 13;
        let object = self.object.filter(|object| object.type_bits == TYPE_FUTEX)?;
        match (object.dev & 0x7f, self.fd) {
            (FUTEX_WAIT, 2) => Some("mutex"),
            (FUTEX_WAIT_BITSET, 3) => Some("rwlock"),
            (FUTEX_LOCK_PI | FUTEX_LOCK_PI2, _) => Some("mutex"),
            _ => None,
        }
    }
}

/// Bytes moved by a system call through a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    pub object: Object,
    /// The descriptor. For a [`TYPE_SHARED_WORD`] the value that the word was expected to have; a write is then a
    /// wake-up.
    pub fd: i32,
    pub is_write: bool,
    /// For channels: the number of the first byte moved.
    pub offset: u64,
    pub bytes: u64,
    /// For connections: the channel of the other direction.
    pub reverse: Option<Object>,
    /// A datagram without payload: `bytes` is the one byte that it takes of its channel.
    pub empty: bool,
    /// For connections: the inode of the socket; 0: not known.
    pub socket: u32,
    /// For a write to a TCP connection: what the kernel had not sent when the call ended.
    pub unsent: SendLimit,
}

impl Io {
    /// Whether it moved bytes through a channel.
    pub fn is_transfer(&self) -> bool {
        self.object.is_channel() && self.bytes > 0
    }
}

/// What only few calls have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rare {
    /// What the call moved before its `io`: several datagrams, or the other side of a splice.
    pub more: Box<[Io]>,
    /// The call accepted a connection that was established at this time (0: not known). Its socket is the object of
    /// `io`.
    pub accepted_of_ns: Option<u64>,
    /// The file that the call opened.
    pub opened: Option<FileId>,
}

/// A finished system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub nr: u16,
    pub enter_ns: u64,
    pub exit_ns: u64,
    pub ret: i64,
    /// The thread exited inside it; `ret` means nothing.
    pub unfinished: bool,
    /// `ret` is the pid a waitid() collected.
    pub reaped: bool,
    /// The call waits for readiness, with a timeout.
    pub has_timeout: bool,
    /// The call waits for a futex for some 5 ms at most. Threads of CPython wait this long for the interpreter's lock
    /// before they ask its holder to release it.
    pub has_switch_interval: bool,
    pub io: Option<Io>,
    /// What only few calls have.
    pub rare: Option<Box<Rare>>,
    /// The path that the call named, or the path by which `io`'s object was opened, if known.
    pub path: Option<Arc<str>>,
}

impl Call {
    /// A call from `enter_ns` to `exit_ns` with nothing else known.
    pub fn new(nr: u16, (enter_ns, exit_ns): (u64, u64), ret: i64) -> Call {
        Call {
            nr,
            enter_ns,
            exit_ns,
            ret,
            unfinished: false,
            reaped: false,
            has_timeout: false,
            has_switch_interval: false,
            io: None,
            rare: None,
            path: None,
        }
    }

    /// See [`Rare::more`].
    pub fn more(&self) -> &[Io] {
        self.rare.as_ref().map_or(&[], |rare| &rare.more)
    }

    /// See [`Rare::accepted_of_ns`].
    pub fn accepted_of_ns(&self) -> Option<u64> {
        self.rare.as_ref().and_then(|rare| rare.accepted_of_ns)
    }

    /// See [`Rare::opened`].
    pub fn opened(&self) -> Option<FileId> {
        self.rare.as_ref().and_then(|rare| rare.opened)
    }

    /// For adding what only few calls have.
    pub fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether the call can have read anything.
    pub fn may_read(&self) -> bool {
        self.rare.is_some() || self.io.as_ref().is_some_and(|io| !io.is_write)
    }

    /// What the call moved through channels, in order.
    pub fn transfers(&self) -> impl DoubleEndedIterator<Item = &Io> + Clone {
        let all = self.more().iter().chain(&self.io);
        all.filter(|io| io.is_transfer() && !self.unfinished)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Lost {
        count: u64,
        first_ns: u64,
        last_ns: u64,
    },
    Switch {
        prev: u32,
        next: u32,
        /// How long `next` waited for the CPU, by the scheduler's account.
        waited_ns: Option<u32>,
        state: u16,
        preempt: bool,
        iowait: bool,
        call: Option<OpenCall>,
    },
    /// `block`: number of the block request whose completion caused the wake-up, or 0.
    Waking {
        waker: u32,
        wakee: u32,
        flags: u8,
        block: u32,
    },
    /// A runtime's task that had been woken, and has not slept since, was woken once more. Each waker handed it
    /// something.
    WokenAgain {
        waker: u32,
        wakee: u32,
    },
    Fork {
        parent: u32,
        child: u32,
        child_tgid: u32,
        flags: u8,
        enter_ns: u64,
        comm: Box<str>,
    },
    Exec(Box<Exec>),
    Exit {
        tid: u32,
        tgid: u32,
        code: i32,
        traced: bool,
    },
    Rename {
        tid: u32,
        comm: Box<str>,
    },
    Call {
        tid: u32,
        call: Call,
    },
    /// A transfer of a call that is not in the call's own record, which is still to come.
    Transfer {
        tid: u32,
        io: Io,
    },
    /// Bytes up to `end` of a channel have been in its reader's socket since `arrived_ns`, and no traced thread has
    /// written them.
    Arrival {
        object: Object,
        end: u64,
        arrived_ns: u64,
    },
    /// A packet of a traced sender was given to its device's driver, or was received from another device on this
    /// machine.
    Packet {
        object: Object,
        packet: Packet,
    },
    Fault {
        tid: u32,
        enter_ns: u64,
        ip: u64,
        flags: u8,
    },
    Irq {
        tid: u32,
        enter_ns: u64,
        hard: bool,
        number: u16,
    },
    Task {
        tid: u32,
        tgid: u32,
        kthread: bool,
        comm: Box<str>,
    },
    Block(Box<Block>),
    Journal {
        tid: u32,
        dev: u32,
        transaction: u32,
        phase: u16,
    },
    Contention {
        tid: u32,
        enter_ns: u64,
        flags: u16,
    },
    Throttle {
        tid: u32,
    },
    /// A thread has run through a function that is hooked directly; [`Function`] says what `number` is.
    Function {
        tid: u32,
        enter_ns: u64,
        function: Function,
        number: u64,
    },
    /// A kernel worker has done work that a traced thread had queued.
    Work {
        tid: u32,
        queuer: u32,
        queued_ns: u64,
        started_ns: u64,
    },
    Channel(Box<Named>),
    /// A thread that already ran is traced from now on. `asleep`: the state in which it sleeps, if it does; `call`: the
    /// call that it is in, if any.
    Marked {
        tid: u32,
        tgid: u32,
        asleep: Option<u16>,
        call: Option<OpenCall>,
    },
    /// A file that was open before the capture.
    File {
        file: FileId,
        path: Arc<str>,
    },
    /// Which end asks, on channels that are older than the capture.
    Role {
        asked: Option<Object>,
        answer: Option<Object>,
    },
    /// The kernel stack with which the thread leaves the CPU to sleep, at the time of its switch.
    Stack {
        tid: u32,
        kernel: Box<[u64]>,
    },
    /// A sample: the stacks of a thread that the CPU clock interrupted.
    Sample {
        tid: u32,
        interrupted_ns: u64,
        kernel: Box<[u64]>,
        user: Box<[u64]>,
    },
    Mapping(Box<Mapping>),
    /// The hypervisor took `taken_ns` of a thread's time on its CPU, in `[since_ns, until_ns)`.
    Steal {
        tid: u32,
        since_ns: u64,
        until_ns: u64,
        taken_ns: u64,
    },
    /// A thread had got its CPU by a switch that was not seen, at `arrived_ns` (0: not known). The last switch seen on
    /// that CPU, at `since_ns`, had given it to `last`.
    UnseenSwitch {
        tid: u32,
        last: u32,
        since_ns: u64,
        arrived_ns: u64,
        waited_ns: Option<u32>,
    },
    /// A runnable thread was moved from the run queue of one CPU to that of another.
    Migrate {
        tid: u32,
        from_cpu: u32,
        to_cpu: u32,
    },
    /// A frame or a message's head inside a byte stream.
    Unit(Box<Unit>),
    /// It is no longer known where messages begin on a channel.
    Gap {
        channel: Object,
        why: GapWhy,
    },
    /// A channel is encrypted, as a thread has found that moved bytes through it.
    Encrypted {
        tid: u32,
        channel: Object,
        /// Offset of a record of its handshake; `None`: of data, and the handshake may have come before the capture.
        handshake: Option<u64>,
    },
    /// The method that a unit's message calls, or how its request ended.
    Method(Box<Method>),
    /// What a thread did with a runtime's task. [`crate::runtime_tasks`] translates it to what the kernel reports of
    /// threads.
    RuntimeTask {
        tid: u32,
        tgid: u32,
        /// Distinguishes the task from the other live tasks of the process; 0: the task that the thread runs.
        address: u64,
        change: TaskChange,
    },
    /// The reason for a task's wait that began at `since_ns`, which was not known before; `nr` stands for it like a
    /// call's number.
    Waited {
        tid: u32,
        since_ns: u64,
        nr: u16,
    },
}

/// The readable name of a connection's direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub object: Object,
    pub name: Box<str>,
    /// On the network: the addresses of its source and destination.
    pub ends: Option<[SocketAddr; 2]>,
    /// The connection is a new one between the ends of an earlier one, and its bytes have later numbers.
    pub is_anew: bool,
}

/// Code that appears in a process, or (`code` is `None`) a new, empty address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub tgid: u32,
    pub code: Option<Code>,
}

/// Bytes of a file at `[start, end)`, from `file_offset` on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    pub start: u64,
    pub end: u64,
    pub file_offset: u64,
    pub module: Module,
}

/// A file with code: which one, and what its path was in the process that mapped it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Module {
    pub path: Box<str>,
    /// `build-id:HEX` or `inode:MAJOR:MINOR:NUMBER`.
    pub identity: Box<str>,
}

/// A packet with bytes `[from, end)` of a channel on its way from one device to the next: when the first device got it
/// and began to send it, and when it was received, if that was on this machine. A packet has one of these for each
/// device that sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub from: u64,
    pub end: u64,
    pub queued_ns: u64,
    pub sent_ns: u64,
    pub received_ns: Option<u64>,
    /// The bytes had been sent before.
    pub again: bool,
    /// A router on this machine forwarded it.
    pub forwarded: bool,
    /// Distinguishes the devices that forward it.
    pub device: u32,
}

impl Packet {
    /// Bytes `[from, end)`, sent for the first time; their receipt is not known.
    pub fn new((from, end): (u64, u64), (queued_ns, sent_ns): (u64, u64)) -> Packet {
        let (received_ns, again, forwarded, device) = (None, false, false, 1);
        Packet { from, end, queued_ns, sent_ns, received_ns, again, forwarded, device }
    }
}

/// A block request, reported at its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub number: u32,
    pub queued_ns: u64,
    pub issued_ns: u64,
    pub done_ns: u64,
    pub sector: u64,
    pub bytes: u32,
    /// major << 20 | minor
    pub dev: u32,
    /// REQ_OP_*, include/linux/blk_types.h
    pub op: u16,
    /// The thread that was current when the request was issued.
    pub tid: u32,
}

impl std::fmt::Display for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let op = match self.op {
            0 => "read",
            1 => "write",
            3 => "discard",
            _ => "request",
        };
        let (major, minor) = (self.dev >> 20, self.dev & 0xf_ffff);
        match self.bytes {
            0 => write!(f, "flush of {major}:{minor}"),
            bytes => {
                write!(f, "{op} of {bytes} bytes at sector {} of {major}:{minor}", self.sector)
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Exec {
    pub tid: u32,
    pub old_tid: u32,
    pub traced: bool,
    /// First instruction of the program, and base of its dynamic loader (0: static).
    pub entry: u64,
    pub interp_base: u64,
    pub comm: Box<str>,
    pub path: Option<Box<str>>,
}

/// One thing that happened: on `cpu`, at `ts_ns` (for calls, faults and interrupts their end).
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub ts_ns: u64,
    pub cpu: u32,
    pub what: What,
}

/// The bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
