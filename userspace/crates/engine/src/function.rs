//! Kernel functions that are hooked directly: see `--direct-hooks`.

/// A kernel function that is hooked directly, on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// A copy between user memory and kernel memory; the event's number is that of the bytes.
    Copy,
    Wait(KernelWait),
    /// What a call does below the layers that all files share.
    Transport(Transport),
}

/// What a function that sleeps for one thing only waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelWait {
    /// Until a transaction is on the disk; the event's number is the transaction's.
    Commit,
    /// Until a journal admits a change: a transaction is being closed, or there is no room.
    Handle,
    /// Until another call releases a socket.
    Socket,
}

impl KernelWait {
    /// The function's name in Linux.
    pub fn name(self) -> &'static str {
        match self {
            KernelWait::Commit => "jbd2_log_wait_commit",
            KernelWait::Handle => "start_this_handle",
            KernelWait::Socket => "__lock_sock",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Open,
    PipeRead,
    PipeWrite,
    TcpReceive,
    TcpSend,
}

impl Transport {
    /// The function's name in Linux, whatever it was called on the kernel of a capture.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Open => "do_sys_openat2",
            Transport::PipeRead => "pipe_read",
            Transport::PipeWrite => "pipe_write",
            Transport::TcpReceive => "tcp_recvmsg",
            Transport::TcpSend => "tcp_sendmsg",
        }
    }
}
