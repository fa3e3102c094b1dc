//! Stable names of categories, rules, sides, kinds and so on, as used in files and reports.

use serde::{Deserialize, Serialize};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// All values, in the order in which reports show them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The stable name.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// Returns the value with this name, if there is one.
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
        /// Handling a page fault, on CPU.
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
        /// Waiting for a timer that the program asked for.
        Sleep = "sleep",
        /// Waiting for a peer outside the capture.
        IdlePeer = "idle.peer",
        /// None of the above could be shown; the reason is in `detail`.
        Unattributed = "unattributed",
    }
}

impl Category {
    /// Whether the thread is on a CPU, and the CPU is not taken from it, during this time.
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
    /// How the category of a segment is known.
    Evidence {
        /// Bracketed by hooks.
        Measured = "measured",
        Sampled = "sampled",
        Modelled = "modelled",
    }
}

named! {
    /// The rule of `docs/design.md` by which the walk arrived at a segment. For work: how the walk came to the thread.
    /// For a wait: why it is shown as a wait.
    Rule {
        /// The thread had the answer at the end of the request.
        End = "end",
        /// Woken by the message's sender.
        Message = "message",
        /// A read found its bytes already there.
        Ready = "ready",
        /// Bytes of an untraced peer arrived at the socket.
        Arrival = "arrival",
        /// The answer to a question asked for the request was read.
        Asked = "asked",
        /// A connection waited to be accepted, or was accepted.
        Accept = "accept",
        /// Woken by a thread whose own path leads into the request.
        WakeUp = "wake-up",
        /// The thread had the CPU of a thread that had woken it for the request.
        Helper = "helper",
        /// Work that was queued for a kernel worker.
        WorkQueue = "work-queue",
        /// A child had ended, or its end was waited for.
        Child = "child",
        /// Ended by another thread's exit_group().
        GroupExit = "group-exit",
        /// The request was taken from memory, unseen, after an answer to another request.
        InMemory = "in-memory",
        /// The thread served other requests in the meantime.
        Turn = "turn",
        /// The server asked for the request as soon as a connection was free that it had used for others until then.
        Connection = "connection",
        /// The server's thread rested until a timer was due.
        Timer = "timer",
        /// The work is already another request's own.
        Claimed = "claimed",
        /// Runnable, behind the thread that had the CPU.
        RunQueue = "run-queue",
        /// On the way through the network.
        Wire = "wire",
        /// A wait that the walk keeps as one wait.
        Charge = "charge",
        /// Nothing shows how the walk continues.
        Lost = "lost",
    }
}

named! {
    /// At which end of the request, or where else, a segment's time was spent.
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
    /// What makes two messages, or a fork and a wait, one request.
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
        /// Turns that are passed by a futex in shared memory.
        Shm = "shm",
        Span = "span",
        /// From input read on descriptor 0 to output written on descriptor 1.
        Stdio = "stdio",
        /// The whole life of the target.
        Process = "process",
    }
}

impl Kind {
    /// Whether requests of this kind are reported only if there are none of other kinds.
    pub fn is_fallback(self) -> bool {
        matches!(self, Kind::Stdio | Kind::Process)
    }

    /// Whether requests of this kind are programs' lives, which enclose all other requests made in the meantime.
    pub fn is_life(self) -> bool {
        matches!(self, Kind::Exec | Kind::Process | Kind::Stdio)
    }
}

named! {
    /// Confidence that a detected request is real and of the reported kind.
    Certainty {
        /// Begin and end are identified without doubt: by a framing known from a connection's first bytes, a reply's
        /// number, or a fork and a wait.
        Sure = "sure",
        /// Inferred from the order of messages, or from a framing that was picked up in mid-connection.
        Likely = "likely",
        /// It is not known which end asks.
        Guessed = "guessed",
    }
}

named! {
    /// Why the kernel did not send bytes that a program had written.
    HeldBy {
        /// The receiver has no room for the bytes.
        Window = "window",
        /// The congestion window is full: as many packets as it allows are under way.
        Congestion = "congestion",
        /// Nagle's algorithm: a small packet waits until the previous one is acknowledged.
        Nagle = "nagle",
        /// Less than a full packet, and the program may add more (TCP_CORK, MSG_MORE).
        Cork = "cork",
        /// Pacing, or enough of the connection's data is already in the device's queue.
        Pacing = "pacing",
    }
}
