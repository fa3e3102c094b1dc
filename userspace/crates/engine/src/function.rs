//! Functions of the kernel that are hooked themselves: see `--direct-hooks`.

/// Functions of the kernel that are hooked themselves, on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Between user memory and the kernel's; its number is that of the bytes.
    Copy,
    Wait(KernelWait),
    /// What a call does below the layers that all files have in common.
    Transport(Transport),
}

/// What a function waits for that sleeps for one thing only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelWait {
    /// Until a transaction is on the disk; its number is the transaction's.
    Commit,
    /// Until a journal lets a change in: a transaction that is being closed, or no room.
    Handle,
    /// Until another call lets go of a socket.
    Socket,
}

impl KernelWait {
    /// What Linux calls the function.
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
    /// What Linux calls its function, whatever it was called on the kernel of a capture.
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
