//! Stable names: of categories, rules, sides, kinds and the like, as files and reports have them.

use serde::{Deserialize, Serialize};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every value, in the order reports show them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The stable name.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// The value of that name, if there is one.
            pub fn from_name(text: &str) -> Option<$name> {
                match text { $($text => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                $name::from_name(text).ok_or_else(|| format!("`{text}` is no such name"))
            }
        }
    };
}

named! {
    /// Where a piece of latency went. A segment has exactly one.
    Category {
        /// On CPU in user mode.
        User = "user",
        KernelPipe = "kernel.pipe",
        KernelUnix = "kernel.unix",
        KernelTcp = "kernel.tcp",
        KernelUdp = "kernel.udp",
        KernelVfs = "kernel.vfs",
        KernelExec = "kernel.exec",
        KernelMm = "kernel.mm",
        KernelFutex = "kernel.futex",
        KernelPoll = "kernel.poll",
        KernelSched = "kernel.sched",
        KernelOther = "kernel.other",
        /// Moving payload between user and kernel memory.
        Copy = "copy",
        /// Page-fault handling on CPU.
        Fault = "fault",
        /// Runnable after a wake-up, not yet running.
        RunqueueWakeup = "runqueue.wakeup",
        /// Runnable after losing the CPU.
        RunqueuePreempted = "runqueue.preempted",
        /// Hard and soft interrupts on behalf of others.
        Interrupt = "interrupt",
        /// Time the hypervisor took.
        Steal = "steal",
        Lock = "lock",
        Journal = "journal",
        BlockIo = "block_io",
        Writeback = "writeback",
        QueueAccept = "queue.accept",
        QueueSocket = "queue.socket",
        QueuePipe = "queue.pipe",
        QueueApp = "queue.app",
        WireQdisc = "wire.qdisc",
        WireLink = "wire.link",
        WireStack = "wire.stack",
        /// A timer the program asked for.
        Sleep = "sleep",
        /// Waiting for a peer outside the capture.
        IdlePeer = "idle.peer",
        /// None of the above could be shown; the reason is in `detail`.
        Unattributed = "unattributed",
    }
}

impl Category {
    /// Whether the thread has a CPU meanwhile, and the time is not taken from it.
    pub fn is_on_cpu(self) -> bool {
        use Category::*;
        match self {
            User | KernelPipe | KernelUnix | KernelTcp | KernelUdp | KernelVfs | KernelExec
            | KernelMm | KernelFutex | KernelPoll | KernelSched | KernelOther | Copy | Fault
            | Interrupt => true,
            RunqueueWakeup | RunqueuePreempted | Steal | Lock | Journal | BlockIo | Writeback
            | QueueAccept | QueueSocket | QueuePipe | QueueApp | WireQdisc | WireLink
            | WireStack | Sleep | IdlePeer | Unattributed => false,
        }
    }
}

named! {
    /// How a segment is known.
    Evidence {
        /// Bracketed by hooks.
        Measured = "measured",
        Sampled = "sampled",
        Modelled = "modelled",
    }
}

named! {
    /// By which rule of `docs/design.md` the walk came to what a segment shows: for work, how it came to the
    /// thread; for a wait, what made it one.
    Rule {
        /// The thread had the answer at the end of the request.
        End = "end",
        /// Woken by the message's sender.
        Message = "message",
        /// A read found its bytes ready.
        Ready = "ready",
        /// Bytes of an untraced peer came to the socket.
        Arrival = "arrival",
        /// The answer to what was asked for the request was read.
        Asked = "asked",
        /// A connection waited to be accepted, or was.
        Accept = "accept",
        /// Woken by a thread whose own way leads into the request.
        WakeUp = "wake-up",
        /// It had the CPU of a thread that had woken it for the request.
        Helper = "helper",
        /// Work that was queued for a kernel worker.
        WorkQueue = "work-queue",
        /// A child had ended, or was waited for.
        Child = "child",
        /// Ended by another thread's exit_group().
        GroupExit = "group-exit",
        /// Taken from memory, unseen, after an answer to another request.
        InMemory = "in-memory",
        /// The thread served others meanwhile.
        Turn = "turn",
        /// Its thread rested until a timer was due.
        Timer = "timer",
        /// Its work is another request's own already.
        Claimed = "claimed",
        /// Runnable, behind whoever had the CPU.
        RunQueue = "run-queue",
        /// On its way through the network.
        Wire = "wire",
        /// A wait kept as it is.
        Charge = "charge",
        /// Nothing shows how the walk goes on.
        Lost = "lost",
    }
}

named! {
    /// Whose time a segment is.
    Side {
        Client = "client",
        Server = "server",
        Middle = "middle",
        Kernel = "kernel",
        Device = "device",
        Network = "network",
    }
}

named! {
    /// What made two messages, or a fork and a wait, one request.
    Kind {
        Exec = "exec",
        Pipe = "pipe",
        Unix = "unix",
        Tcp = "tcp",
        Udp = "udp",
        Http1 = "http1",
        Http2 = "http2",
        OncRpc = "oncrpc",
        Resp = "resp",
        File = "file",
        /// Turns passed by a futex in shared memory.
        Shm = "shm",
        Span = "span",
        /// Input read on descriptor 0 to output written on descriptor 1.
        Stdio = "stdio",
        /// The whole life of the target.
        Process = "process",
    }
}

impl Kind {
    /// Whether requests of the kind are given only where there are none of the others.
    pub fn is_fallback(self) -> bool {
        matches!(self, Kind::Stdio | Kind::Process)
    }

    /// Whether requests of the kind are programs' lives, which enclose what else is asked meanwhile.
    pub fn is_life(self) -> bool {
        matches!(self, Kind::Exec | Kind::Process | Kind::Stdio)
    }
}

named! {
    /// How sure it is that a request is one, of that kind.
    Certainty {
        /// Its begin and end are told by what cannot be mistaken: a framing known from a connection's first
        /// bytes, a reply's number, a fork and a wait.
        Sure = "sure",
        /// By the order of messages, or a framing that was taken up in mid-connection.
        Likely = "likely",
        /// Which end asks is not known.
        Guessed = "guessed",
    }
}

named! {
    /// What kept the kernel from sending bytes that a program had written.
    HeldBy {
        /// The receiver has no room for them.
        Window = "window",
        /// As many packets as the congestion window allows are under way.
        Congestion = "congestion",
        /// Nagle's algorithm: a small packet waits until the one before is acknowledged.
        Nagle = "nagle",
        /// Less than a packet, and the program may have more (TCP_CORK, MSG_MORE).
        Cork = "cork",
        /// Pacing, or enough of the connection's is in the device's queue.
        Pacing = "pacing",
    }
}
