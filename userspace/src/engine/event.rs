//! Raw records decoded into what the engine works on.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{bail, Context, Result};

use super::unsent::Unsent;
use crate::model::Kind;
use crate::records::*;

/// `S_IFIFO >> 12`, `S_IFSOCK >> 12`: values of [`Object::type_bits`].
pub const TYPE_FIFO: u16 = 1;
pub const TYPE_CHAR: u16 = 2;
pub const TYPE_DIRECTORY: u16 = 4;
pub const TYPE_BLOCK: u16 = 6;
pub const TYPE_FILE: u16 = 8;
pub const TYPE_SOCKET: u16 = 12;
/// Stream sockets by what they speak. As a channel (see [`Object::is_channel`]) `dev` is 0 and `ino`
/// a number of one direction of the connection; else they are the socket's inode.
pub const TYPE_UNIX: u16 = TYPE_SOCKET | 1 << 8;
pub const TYPE_TCP: u16 = TYPE_SOCKET | 2 << 8;
/// Sockets for datagrams; of Unix sockets also those for sequenced packets. Every datagram takes at
/// least one byte of its channel.
pub const TYPE_UDP: u16 = TYPE_SOCKET | 3 << 8;
pub const TYPE_UNIX_DGRAM: u16 = TYPE_SOCKET | 4 << 8;
/// An eventfd: `ino` is its number, and what goes through it are counts.
pub const TYPE_EVENTFD: u16 = 1 << 8;
/// A futex: `ino` is its address, `dev` the operation; see [`OpenCall::lock`].
pub const TYPE_FUTEX: u16 = 15;
/// A futex in memory that processes share: `dev` and the upper half of `ino` are those of the memory's
/// file, the lower half is where in it.
pub const TYPE_SHARED_WORD: u16 = TYPE_FUTEX | 1 << 8;

/// A kernel object behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Object {
    pub dev: u32,
    pub ino: u64,
    /// `S_IFMT >> 12` of the inode, or one of the constants above.
    pub type_bits: u16,
}

/// A file of a file system: the device and the number of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub dev: u32,
    pub ino: u64,
}

impl Object {
    pub fn is_socket(&self) -> bool {
        self.type_bits & 0xff == TYPE_SOCKET
    }

    /// Whether it is a socket for a stream of bytes, not one of its directions.
    pub fn is_stream(&self) -> bool {
        matches!(self.type_bits, TYPE_TCP | TYPE_UNIX) && !self.is_channel()
    }

    /// Which file it is, if it is what programs open by a name.
    pub fn file(&self) -> Option<FileId> {
        matches!(self.type_bits, TYPE_FILE | TYPE_CHAR | TYPE_DIRECTORY | TYPE_BLOCK)
            .then_some(FileId { dev: self.dev, ino: self.ino })
    }

    pub fn is_datagram(&self) -> bool {
        matches!(self.type_bits, TYPE_UDP | TYPE_UNIX_DGRAM)
    }

    /// Whether bytes take their way through the network stack.
    pub fn is_network(&self) -> bool {
        matches!(self.type_bits, TYPE_TCP | TYPE_UDP)
    }

    /// Whether it carries something from thread to thread, in one direction: a pipe, half of a
    /// connection, an eventfd.
    pub fn is_channel(&self) -> bool {
        matches!(self.type_bits, TYPE_FIFO | TYPE_EVENTFD) || (self.is_socket() && self.dev == 0)
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.type_bits == TYPE_FUTEX {
            return write!(f, "{:#x}", self.ino);
        }
        if self.type_bits == TYPE_SHARED_WORD {
            return write!(f, "shm:[{}]+{:#x}", self.ino >> 32, self.ino & 0xffff_ffff);
        }
        let kind = match self.type_bits {
            TYPE_FIFO => "pipe",
            TYPE_EVENTFD => "eventfd",
            TYPE_CHAR => "char",
            TYPE_FILE => "file",
            TYPE_UNIX if self.is_channel() => return write!(f, "unix"),
            TYPE_TCP if self.is_channel() => return write!(f, "tcp"),
            TYPE_UDP if self.is_channel() => return write!(f, "udp"),
            TYPE_UNIX_DGRAM if self.is_channel() => return write!(f, "unix"),
            TYPE_UNIX | TYPE_UNIX_DGRAM => "unix",
            TYPE_TCP => "tcp",
            TYPE_UDP => "udp",
            TYPE_SOCKET => "socket",
            0 => "anon", // eventfd, epoll, timerfd, ...
            TYPE_DIRECTORY => "dir",
            TYPE_BLOCK => "block",
            _ => "object",
        };
        write!(f, "{kind}:[{}]", self.ino)
    }
}

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
    /// Of a [`TYPE_SHARED_WORD`] the value it was expected to have, and a write is a wake-up.
    pub fd: i32,
    pub is_write: bool,
    /// For channels: the number of the first byte moved.
    pub offset: u64,
    pub bytes: u64,
    /// For connections: the channel of the other direction.
    pub reverse: Option<Object>,
    /// A datagram without payload: what it moved is its one byte of the channel.
    pub empty: bool,
    /// For connections: the inode of the socket; 0: not known.
    pub socket: u32,
    /// Of a write to a TCP connection.
    pub unsent: Unsent,
}

impl Io {
    /// Whether it moved bytes through a channel.
    pub fn is_transfer(&self) -> bool {
        self.object.is_channel() && self.bytes > 0
    }
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
    pub io: Option<Io>,
    /// What it moved before `io`: several datagrams, or the other side of a splice.
    pub more: Box<[Io]>,
    /// It accepted the connection whose socket is `io`'s object, which came to be then (0: not known).
    pub accepted_of_ns: Option<u64>,
    /// What it opened.
    pub opened: Option<FileId>,
    /// What it named or, of `io`'s object, the name by which that was opened, if known.
    pub path: Option<Arc<str>>,
}

impl Call {
    /// What it moved through channels, in order.
    pub fn transfers(&self) -> impl DoubleEndedIterator<Item = &Io> + Clone {
        let all = self.more.iter().chain(&self.io);
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
        /// For the CPU, `next`, by the scheduler's account.
        waited_ns: Option<u32>,
        state: u16,
        preempt: bool,
        iowait: bool,
        call: Option<OpenCall>,
    },
    /// `block`: number of the block request whose completion caused it, or 0.
    Waking {
        waker: u32,
        wakee: u32,
        flags: u8,
        block: u32,
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
        call: Box<Call>,
    },
    /// What a call moved besides what its own record, still to come, tells.
    Transfer {
        tid: u32,
        io: Io,
    },
    /// Bytes up to `end` of a channel are in the socket of who reads it, since `arrived_ns`, and nobody traced
    /// has written them.
    Arrival {
        object: Object,
        end: u64,
        arrived_ns: u64,
    },
    /// A packet of a traced sender was given to its device's driver, or came out of another here.
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
    /// A kernel worker has done what a traced thread had queued.
    Work {
        tid: u32,
        queuer: u32,
        queued_ns: u64,
        started_ns: u64,
    },
    /// What people call a connection's direction.
    Channel {
        object: Object,
        name: Box<str>,
        /// Of the network: from where to where it leads.
        ends: Option<[SocketAddr; 2]>,
    },
    /// A thread that runs already is traced from now on. It sleeps, in that state, maybe in a call.
    Marked {
        tid: u32,
        tgid: u32,
        asleep: Option<u16>,
        call: Option<OpenCall>,
    },
    /// Who asks on channels that are older than the capture.
    /// A file that was open before the capture.
    File {
        file: FileId,
        path: Arc<str>,
    },
    Role {
        asked: Option<Object>,
        answer: Option<Object>,
    },
    /// The kernel stack with which the thread leaves the CPU to sleep, at the time of its switch.
    Stack {
        tid: u32,
        kernel: Box<[u64]>,
    },
    /// Where the CPU clock found a thread.
    Sample {
        tid: u32,
        interrupted_ns: u64,
        kernel: Box<[u64]>,
        user: Box<[u64]>,
    },
    Mapping(Box<Mapping>),
    /// The hypervisor took that much of a thread's time on its CPU, in `[since_ns, until_ns)`.
    Steal {
        tid: u32,
        since_ns: u64,
        until_ns: u64,
        taken_ns: u64,
    },
    /// A thread had got its CPU unseen, at `arrived_ns` (0: not known); the last switch seen there,
    /// at `since_ns`, had given it to `last`.
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
    /// What a unit's message calls, or how its request ended.
    Method(Box<Method>),
}

/// What a byte stream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Http2,
    OncRpc,
    Http1,
    Resp,
}

impl Protocol {
    /// What its requests are called.
    pub fn kind(self) -> Kind {
        match self {
            Protocol::Http2 => Kind::Http2,
            Protocol::OncRpc => Kind::OncRpc,
            Protocol::Http1 => Kind::Http1,
            Protocol::Resp => Kind::Resp,
        }
    }
}

/// Bytes `[from, to)` of a channel that are one frame or (part of) one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    pub channel: Object,
    pub reverse: Object,
    pub from: u64,
    pub to: u64,
    pub protocol: Protocol,
    /// Stream or XID.
    pub id: u32,
    /// `UNIT_*`, or of HTTP/2 that of the frame.
    pub kind: u8,
    /// Likewise.
    pub flags: u8,
    /// Bytes before it could not be followed.
    pub after_gap: bool,
    /// A [`Method`] of the same offset follows.
    pub named: bool,
    /// Whether the channel is known to be the client's, or known not to be.
    pub from_client: Option<bool>,
    pub numbers: [u32; 3],
    pub status_known: bool,
}

impl Unit {
    /// Whether a question or an answer begins with it.
    pub fn begins_message(&self) -> bool {
        /// HEADERS, RFC 9113, section 6.2
        const HEADERS: u8 = 1;
        match self.protocol {
            Protocol::Http2 => self.kind == HEADERS,
            _ => matches!(self.kind, UNIT_REQUEST | UNIT_RESPONSE),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    pub channel: Object,
    /// Where its unit begins.
    pub offset: u64,
    /// Stream.
    pub id: u32,
    /// Whether a request says so, or a response; `None`: neither is known.
    pub asks: Option<bool>,
    pub path: Option<Box<str>>,
    /// `:status`
    pub status: Option<i32>,
    /// `grpc-status`
    pub result: Option<i32>,
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

/// A packet with bytes `[from, end)` of a channel on its way from one device to the next: when the first got it,
/// began to send it, and when it was received, if that was on this machine. There are as many as it passes
/// devices that send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub from: u64,
    pub end: u64,
    pub queued_ns: u64,
    pub sent_ns: u64,
    pub received_ns: Option<u64>,
    /// The bytes had been sent before.
    pub again: bool,
    /// A router on this machine handed it on.
    pub forwarded: bool,
    /// Tells the devices apart that hand it on.
    pub device: u32,
}

/// A block request, told at its completion.
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
    /// Who was current at its issue.
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

/// Most a time or a pipe's offset can be: two of them add up without overflow, and each fits the
/// INT64 of the tables.
const MOST: u64 = i64::MAX as u64;

/// Decodes one record. `Ok(None)`: a kind this version does not know.
///
/// # Errors
/// The record is shorter than its kind, or says what cannot be.
pub fn decode(cpu: u32, record: &[u8]) -> Result<Option<Event>> {
    let (hdr, _) = read::<RecHdr>(record).context("a record without header")?;
    if hdr.ts_ns > MOST {
        bail!("a record of the impossible time {} ns", hdr.ts_ns);
    }
    let what = match hdr.kind {
        REC_LOST => {
            let r: RecLost = whole(record)?;
            What::Lost { count: r.count, first_ns: r.first_ns, last_ns: r.last_ns }
        }
        REC_SWITCH => {
            let r: RecSwitch = whole(record)?;
            switch(&hdr, r.next_tid, r.waited_ns, None)
        }
        REC_SWITCH_SYS => {
            let r: RecSwitchSys = whole(record)?;
            let object =
                (r.ino != 0).then_some(Object { dev: r.dev, ino: r.ino, type_bits: r.object_type });
            let call = OpenCall { nr: r.nr, enter_ns: r.enter_ns.min(hdr.ts_ns), object, fd: r.fd };
            switch(&hdr, r.next_tid, r.waited_ns, Some(call))
        }
        REC_WAKING => {
            let r: RecWaking = whole(record)?;
            What::Waking { waker: hdr.tid, wakee: r.wakee_tid, flags: hdr.flags, block: r.block }
        }
        REC_FORK => {
            let r: RecFork = whole(record)?;
            What::Fork {
                parent: hdr.tid,
                child: r.child_tid,
                child_tgid: r.child_tgid,
                flags: hdr.flags,
                enter_ns: r.enter_ns.min(hdr.ts_ns),
                comm: text(&r.comm).into(),
            }
        }
        REC_EXEC => {
            let (r, rest) = read::<RecExec>(record).context("a short exec record")?;
            What::Exec(Box::new(Exec {
                tid: hdr.tid,
                old_tid: r.old_tid,
                traced: hdr.flags & TASK_TRACED != 0,
                entry: r.entry,
                interp_base: r.interp_base,
                comm: text(&r.comm).into(),
                path: path(rest, r.path_bytes)?,
            }))
        }
        REC_EXIT => {
            let r: RecExit = whole(record)?;
            What::Exit {
                tid: hdr.tid,
                tgid: r.tgid,
                code: r.exit_code,
                traced: hdr.flags & TASK_TRACED != 0,
            }
        }
        REC_RENAME => {
            let r: RecRename = whole(record)?;
            What::Rename { tid: r.subject_tid, comm: text(&r.comm).into() }
        }
        REC_SYSCALL => call(&hdr, &whole::<RecSyscall>(record)?, None, None),
        REC_SYSCALL_IO => {
            let r: RecSyscallIo = whole(record)?;
            if r.offset > MOST {
                bail!("a record of the impossible offset {}", r.offset);
            }
            let moved = match r.object_type {
                TYPE_EVENTFD => u64::from(r.count),
                _ => u64::try_from(r.sys.ret).unwrap_or(0),
            };
            let io = Io {
                object: Object { dev: r.dev, ino: r.ino, type_bits: r.object_type },
                fd: r.fd,
                is_write: hdr.flags & SYSCALL_WRITE != 0,
                offset: r.offset,
                bytes: moved,
                reverse: None,
                empty: false,
                socket: 0,
                unsent: Unsent::default(),
            };
            call(&hdr, &r.sys, Some(io), None)
        }
        REC_SYSCALL_PATH => {
            let (r, rest) = read::<RecSyscallPath>(record).context("a short path record")?;
            let mut what = call(&hdr, &r.sys, None, path(rest, r.path_bytes)?);
            if let What::Call { call, .. } = &mut what {
                call.opened = (r.ino != 0).then_some(FileId { dev: r.dev, ino: r.ino });
            }
            what
        }
        REC_FAULT => {
            let r: RecFault = whole(record)?;
            What::Fault { tid: hdr.tid, enter_ns: r.enter_ns, ip: r.ip, flags: hdr.flags }
        }
        REC_IRQ => {
            let r: RecIrq = whole(record)?;
            What::Irq {
                tid: hdr.tid,
                enter_ns: r.enter_ns,
                hard: hdr.flags & IRQ_HARD != 0,
                number: hdr.aux,
            }
        }
        REC_STEAL => {
            let r: RecSteal = whole(record)?;
            let RecSteal { since_ns, until_ns, taken_ns, .. } = r;
            What::Steal { tid: hdr.tid, since_ns, until_ns, taken_ns }
        }
        REC_UNSEEN_SWITCH => {
            let r: RecUnseenSwitch = whole(record)?;
            let RecUnseenSwitch { since_ns, arrived_ns, last_tid: last, .. } = r;
            let waited_ns = known(r.waited_ns);
            What::UnseenSwitch { tid: hdr.tid, last, since_ns, arrived_ns, waited_ns }
        }
        REC_MIGRATE => {
            let RecMigrate { from_cpu, to_cpu, .. } = whole(record)?;
            What::Migrate { tid: hdr.tid, from_cpu, to_cpu }
        }
        REC_TASK => {
            let r: RecTask = whole(record)?;
            What::Task {
                tid: hdr.tid,
                tgid: r.tgid,
                kthread: hdr.flags & TASK_KTHREAD != 0,
                comm: text(&r.comm).into(),
            }
        }
        REC_BLOCK => {
            let r: RecBlock = whole(record)?;
            What::Block(Box::new(Block {
                number: r.number,
                queued_ns: r.queued_ns.min(hdr.ts_ns),
                issued_ns: r.issued_ns.min(hdr.ts_ns),
                done_ns: hdr.ts_ns,
                sector: r.sector,
                bytes: r.bytes,
                dev: r.dev,
                op: hdr.aux,
                tid: hdr.tid,
            }))
        }
        REC_JOURNAL => {
            let r: RecJournal = whole(record)?;
            What::Journal { tid: hdr.tid, dev: r.dev, transaction: r.transaction, phase: hdr.aux }
        }
        REC_CONTENTION => {
            let r: RecContention = whole(record)?;
            What::Contention { tid: hdr.tid, enter_ns: r.enter_ns, flags: hdr.aux }
        }
        REC_THROTTLE => What::Throttle { tid: hdr.tid },
        REC_WORK => {
            let r: RecWork = whole(record)?;
            What::Work {
                tid: hdr.tid,
                queuer: r.queuer_tid,
                queued_ns: r.queued_ns.min(hdr.ts_ns),
                started_ns: r.started_ns.min(hdr.ts_ns),
            }
        }
        REC_UNIT => {
            let r: RecUnit = whole(record)?;
            match unit(&hdr, &r)? {
                Some(unit) => What::Unit(Box::new(unit)),
                None => return Ok(None),
            }
        }
        REC_METHOD => {
            let (r, rest) = read::<RecMethod>(record).context("a short method record")?;
            let status = |flag| (hdr.flags & flag != 0).then_some(r.status);
            let asks = match hdr.flags & (METHOD_REQUEST | METHOD_RESPONSE) {
                METHOD_REQUEST => Some(true),
                METHOD_RESPONSE => Some(false),
                _ => None,
            };
            What::Method(Box::new(Method {
                channel: connection(r.channel, r.object_type),
                offset: r.offset,
                id: r.id,
                asks,
                path: path(rest, r.path_bytes)?,
                status: status(METHOD_STATUS),
                result: status(METHOD_RESULT),
            }))
        }
        REC_SYSCALL_SOCKET => {
            let r: RecSyscallSocket = whole(record)?;
            if r.end > MOST {
                bail!("a record of the impossible offset {}", r.end);
            }
            let bytes = u64::from(r.bytes).min(r.end);
            let io = Io {
                object: connection(r.channel, r.object_type),
                fd: r.fd,
                is_write: hdr.flags & SYSCALL_WRITE != 0,
                offset: r.end - bytes,
                bytes,
                reverse: Some(connection(r.reverse, r.object_type)),
                empty: hdr.flags & SYSCALL_EMPTY != 0,
                socket: r.ino,
                unsent: Unsent::from_record(r.held),
            };
            call(&hdr, &r.sys, Some(io), None)
        }
        REC_PACKET => {
            let r: RecPacket = whole(record)?;
            if r.end > MOST {
                bail!("a record of the impossible offset {}", r.end);
            }
            let packet = Packet {
                from: r.end - u64::from(r.bytes).min(r.end),
                end: r.end,
                queued_ns: r.queued_ns.min(hdr.ts_ns),
                sent_ns: r.sent_ns.clamp(r.queued_ns.min(hdr.ts_ns), hdr.ts_ns),
                received_ns: (r.received_ns != 0).then_some(hdr.ts_ns),
                again: hdr.flags & PACKET_AGAIN != 0,
                forwarded: hdr.flags & PACKET_FORWARDED != 0,
                device: r.device,
            };
            let type_bits = if hdr.flags & PACKET_UDP != 0 { TYPE_UDP } else { TYPE_TCP };
            What::Packet { object: connection(r.channel, type_bits), packet }
        }
        REC_ARRIVAL => {
            let r: RecArrival = whole(record)?;
            if r.end > MOST {
                bail!("a record of the impossible offset {}", r.end);
            }
            let object = connection(r.channel, TYPE_TCP);
            What::Arrival { object, end: r.end, arrived_ns: r.arrived_ns.min(hdr.ts_ns) }
        }
        REC_ACCEPT => {
            let r: RecAccept = whole(record)?;
            let io = Io {
                object: Object { dev: r.dev, ino: r.ino, type_bits: r.object_type },
                fd: i32::try_from(r.sys.ret).unwrap_or(-1),
                is_write: false,
                offset: 0,
                bytes: 0,
                reverse: None,
                empty: false,
                socket: 0,
                unsent: Unsent::default(),
            };
            let mut what = call(&hdr, &r.sys, Some(io), None);
            if let What::Call { call, .. } = &mut what {
                call.accepted_of_ns = Some(r.established_ns.min(hdr.ts_ns));
            }
            what
        }
        REC_TRANSFER => {
            let r: RecTransfer = whole(record)?;
            if r.end > MOST {
                bail!("a record of the impossible offset {}", r.end);
            }
            let bytes = u64::from(r.bytes).min(r.end);
            let (object, reverse) = match r.object_type {
                TYPE_FIFO => (Object { dev: r.dev, ino: r.channel, type_bits: TYPE_FIFO }, None),
                TYPE_SHARED_WORD => {
                    let ino = r.channel << 32 | (r.reverse & 0xffff_ffff);
                    (Object { dev: r.dev, ino, type_bits: TYPE_SHARED_WORD }, None)
                }
                _ => {
                    let reverse = connection(r.reverse, r.object_type);
                    (connection(r.channel, r.object_type), Some(reverse))
                }
            };
            let io = Io {
                object,
                fd: r.fd,
                is_write: hdr.flags & SYSCALL_WRITE != 0,
                offset: r.end - bytes,
                bytes,
                reverse,
                empty: hdr.flags & SYSCALL_EMPTY != 0,
                socket: 0,
                unsent: Unsent::from_record(r.held),
            };
            What::Transfer { tid: hdr.tid, io }
        }
        REC_CHANNEL => {
            let r: RecChannel = whole(record)?;
            let end = |address, port| SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port);
            let ends = [end(r.from, r.from_port), end(r.to, r.to_port)];
            let name = format!("{} > {}", ends[0], ends[1]);
            let object_type = if r.object_type == 0 { TYPE_TCP } else { r.object_type };
            let object = connection(r.channel, object_type);
            What::Channel { object, name: name.into(), ends: Some(ends) }
        }
        REC_UNIX_CHANNEL => {
            let (r, rest) = read::<RecUnixChannel>(record).context("a short channel record")?;
            let Some(bytes) = rest.get(..r.path_bytes as usize) else {
                bail!("a name longer than its record");
            };
            let name = match bytes {
                [] => format!("unix:[{}]", r.channel),
                [0, name @ ..] => format!("@{}", text(name)),
                name => text(name),
            };
            let object_type = if r.object_type == 0 { TYPE_UNIX } else { r.object_type };
            let object = connection(r.channel, object_type);
            What::Channel { object, name: name.into(), ends: None }
        }
        REC_MARKED => {
            let r: RecMarked = whole(record)?;
            let object =
                (r.ino != 0).then_some(Object { dev: r.dev, ino: r.ino, type_bits: r.object_type });
            let call = OpenCall { nr: r.nr, enter_ns: r.enter_ns.min(hdr.ts_ns), object, fd: r.fd };
            let has = |flag| hdr.flags & flag != 0;
            What::Marked {
                tid: hdr.tid,
                tgid: r.tgid,
                asleep: has(MARKED_ASLEEP).then_some(hdr.aux),
                call: has(MARKED_IN_SYSCALL).then_some(call),
            }
        }
        REC_ROLE => {
            let r: RecRole = whole(record)?;
            let channel = |number: u64| {
                let object = match r.object_type {
                    TYPE_FIFO => Object { dev: r.dev, ino: number, type_bits: TYPE_FIFO },
                    _ => connection(number, r.object_type),
                };
                (number != 0).then_some(object)
            };
            What::Role { asked: channel(r.asked), answer: channel(r.answer) }
        }
        REC_FILE => {
            let (r, rest) = read::<RecFile>(record).context("a short file record")?;
            let path = path(rest, r.path_bytes)?.unwrap_or_default();
            What::File { file: FileId { dev: r.dev, ino: r.ino }, path: path.into() }
        }
        REC_STACK => {
            let (_, rest) = read::<RecStack>(record).context("a short stack record")?;
            let (kernel, _) = frames(rest, u32::from(hdr.aux), KERNEL_FRAMES)?;
            What::Stack { tid: hdr.tid, kernel }
        }
        REC_SAMPLE => {
            let (r, rest) = read::<RecSample>(record).context("a short sample record")?;
            let (kernel, rest) = frames(rest, r.kernel_frames, KERNEL_FRAMES)?;
            let (user, _) = frames(rest, r.user_frames, USER_FRAMES)?;
            let interrupted_ns = r.interrupted_ns.min(hdr.ts_ns);
            What::Sample { tid: hdr.tid, interrupted_ns, kernel, user }
        }
        REC_MAPPING => {
            let (r, rest) = read::<RecMapping>(record).context("a short mapping record")?;
            let code = match hdr.flags & MAPPING_EXEC {
                0 => Some(code(&r, rest)?),
                _ => None,
            };
            What::Mapping(Box::new(Mapping { tgid: r.tgid, code }))
        }
        _ => return Ok(None),
    };
    Ok(Some(Event { ts_ns: hdr.ts_ns, cpu, what }))
}

fn unit(hdr: &RecHdr, r: &RecUnit) -> Result<Option<Unit>> {
    if r.offset >= MOST {
        bail!("a unit at the impossible offset {}", r.offset);
    }
    // What a program claims of its message's length may be anything.
    let to = r.offset.saturating_add(r.bytes).clamp(r.offset + 1, MOST);
    let protocol = match r.protocol {
        PROTOCOL_HTTP2 => Protocol::Http2,
        PROTOCOL_ONCRPC => Protocol::OncRpc,
        PROTOCOL_HTTP1 => Protocol::Http1,
        PROTOCOL_RESP => Protocol::Resp,
        _ => return Ok(None),
    };
    Ok(Some(Unit {
        channel: connection(r.channel, r.object_type),
        reverse: connection(r.reverse, r.object_type),
        from: r.offset,
        to,
        protocol,
        id: r.id,
        kind: r.kind,
        flags: r.flags,
        after_gap: hdr.flags & UNIT_AFTER_GAP != 0,
        named: hdr.flags & UNIT_NAMED != 0,
        from_client: match hdr.flags & (UNIT_FROM_CLIENT | UNIT_FROM_SERVER) {
            UNIT_FROM_CLIENT => Some(true),
            UNIT_FROM_SERVER => Some(false),
            _ => None,
        },
        numbers: r.numbers,
        status_known: r.status_known != 0,
    }))
}

/// A channel of a connection. Whatever a record claims, it is a socket's.
fn connection(number: u64, object_type: u16) -> Object {
    Object { dev: 0, ino: number, type_bits: object_type & 0xff00 | TYPE_SOCKET }
}

fn whole<T: zerocopy::FromBytes>(record: &[u8]) -> Result<T> {
    let (value, _) = read(record)
        .with_context(|| format!("a record of {} bytes is too short for its kind", record.len()))?;
    Ok(value)
}

fn known(ns: u32) -> Option<u32> {
    (ns != NOT_KNOWN_NS).then_some(ns)
}

fn switch(hdr: &RecHdr, next: u32, waited_ns: u32, call: Option<OpenCall>) -> What {
    What::Switch {
        prev: hdr.tid,
        next,
        waited_ns: known(waited_ns),
        state: hdr.aux,
        preempt: hdr.flags & SWITCH_PREEMPT != 0,
        iowait: hdr.flags & SWITCH_IOWAIT != 0,
        call,
    }
}

fn call(hdr: &RecHdr, sys: &RecSyscall, io: Option<Io>, path: Option<Box<str>>) -> What {
    What::Call {
        tid: hdr.tid,
        call: Box::new(Call {
            nr: hdr.aux,
            enter_ns: sys.enter_ns.min(hdr.ts_ns),
            exit_ns: hdr.ts_ns,
            ret: sys.ret,
            unfinished: hdr.flags & SYSCALL_UNFINISHED != 0,
            reaped: hdr.flags & SYSCALL_REAPED != 0,
            io,
            more: Box::default(),
            accepted_of_ns: None,
            opened: None,
            path: path.map(Arc::from),
        }),
    }
}

/// The first `count` addresses of `rest`, and what follows them.
fn frames(rest: &[u8], count: u32, most: usize) -> Result<(Box<[u64]>, &[u8])> {
    let count = count as usize;
    let Some((bytes, rest)) = rest.split_at_checked(count.min(most) * 8) else {
        bail!("a stack longer than its record");
    };
    if count > most {
        bail!("a stack of {count} frames");
    }
    let address = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    Ok((bytes.chunks_exact(8).map(address).collect(), rest))
}

fn code(r: &RecMapping, rest: &[u8]) -> Result<Code> {
    let identity = match r.build_id.get(..r.build_id_bytes as usize) {
        Some([]) => format!("inode:{}:{}:{}", r.dev >> 20, r.dev & 0xf_ffff, r.ino),
        Some(id) => format!("build-id:{}", hex(id)),
        None => bail!("a build id of {} bytes", r.build_id_bytes),
    };
    let path = path(rest, r.path_bytes)?.unwrap_or_default();
    Ok(Code {
        start: r.start,
        end: r.start.saturating_add(r.bytes),
        file_offset: r.file_offset,
        module: Module { path, identity: identity.into() },
    })
}

/// The bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn path(rest: &[u8], bytes: u32) -> Result<Option<Box<str>>> {
    if bytes == 0 {
        return Ok(None);
    }
    let Some(bytes) = rest.get(..bytes as usize) else { bail!("a path longer than its record") };
    Ok(Some(text(bytes).into()))
}
