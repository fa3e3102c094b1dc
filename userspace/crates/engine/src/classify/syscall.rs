//! Table of system calls: name, category of their kernel time, and what they wait for.

use std::borrow::Cow;

use crate::event::{
    Object, TYPE_FIFO, TYPE_SOCKET, TYPE_TCP, TYPE_UDP, TYPE_UNIX, TYPE_UNIX_DGRAM,
};
use crate::task_wait::{is_task_wait, task_wait};
use rpcprobe_model::Category;
use rpcprobe_record::{TaskWait, TaskWaitSort};

/// x86-64 numbers the engine itself must know.
pub const NR_CLOSE: u16 = 3;
pub const NR_SHUTDOWN: u16 = 48;
pub const NR_CONNECT: u16 = 42;
pub const NR_CLONE: u16 = 56;
pub const NR_EXECVE: u16 = 59;
pub const NR_EXIT: u16 = 60;
pub const NR_WAIT4: u16 = 61;
pub const NR_EXIT_GROUP: u16 = 231;
pub const NR_WAITID: u16 = 247;
pub const NR_EXECVEAT: u16 = 322;

/// include/uapi/asm-generic/errno.h
pub const ETIMEDOUT: i64 = 110;

/// include/linux/interrupt.h
pub const SOFTIRQ_NET_RX: u16 = 3;

/// The name, or `syscall_N`.
pub fn name(nr: u16) -> Cow<'static, str> {
    if is_task_wait(nr) {
        return Cow::Borrowed(task_wait(nr).map_or("a wait of a task's", TaskWait::name));
    }
    match syscalls::x86_64::Sysno::new(usize::from(nr)) {
        Some(number) => Cow::Borrowed(number.name()),
        None => Cow::Owned(format!("syscall_{nr}")),
    }
}

/// What a thread asleep in a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    Timer,
    Futex,
    /// poll, select, epoll: whatever becomes ready first, or a timer.
    Readiness,
    /// Bytes, or room for bytes, in a pipe, socket, terminal.
    Peer,
    Child,
    Other,
}

/// Category of CPU time spent in the call.
pub fn category(nr: u16, object: Option<Object>) -> Category {
    use syscalls::x86_64::Sysno as S;
    match object.map(|object| object.type_bits) {
        Some(TYPE_FIFO) => return Category::KernelPipe,
        Some(TYPE_UNIX | TYPE_UNIX_DGRAM) => return Category::KernelUnix,
        Some(TYPE_UDP) => return Category::KernelUdp,
        Some(TYPE_TCP) => return Category::KernelTcp,
        Some(TYPE_SOCKET) => return Category::KernelOther,
        _ => {}
    }
    let Some(number) = S::new(usize::from(nr)) else { return Category::KernelOther };
    match number {
        S::pipe | S::pipe2 => Category::KernelPipe,
        S::clone
        | S::clone3
        | S::fork
        | S::vfork
        | S::execve
        | S::execveat
        | S::exit
        | S::exit_group
        | S::wait4
        | S::waitid
        | S::kill
        | S::tgkill
        | S::set_tid_address
        | S::set_robust_list
        | S::rseq
        | S::prctl
        | S::arch_prctl
        | S::pidfd_open => Category::KernelExec,
        S::mmap
        | S::munmap
        | S::mprotect
        | S::mremap
        | S::madvise
        | S::brk
        | S::mlock
        | S::munlock
        | S::msync
        | S::mincore
        | S::membarrier => Category::KernelMm,
        S::futex | S::futex_waitv => Category::KernelFutex,
        S::poll
        | S::ppoll
        | S::select
        | S::pselect6
        | S::epoll_wait
        | S::epoll_pwait
        | S::epoll_pwait2
        | S::epoll_ctl
        | S::epoll_create
        | S::epoll_create1 => Category::KernelPoll,
        S::sched_yield
        | S::nanosleep
        | S::clock_nanosleep
        | S::sched_setaffinity
        | S::sched_getaffinity
        | S::sched_setscheduler
        | S::pause => Category::KernelSched,
        S::read
        | S::write
        | S::readv
        | S::writev
        | S::pread64
        | S::pwrite64
        | S::preadv
        | S::pwritev
        | S::preadv2
        | S::pwritev2
        | S::open
        | S::openat
        | S::openat2
        | S::creat
        | S::close
        | S::close_range
        | S::stat
        | S::fstat
        | S::lstat
        | S::newfstatat
        | S::statx
        | S::lseek
        | S::access
        | S::faccessat
        | S::faccessat2
        | S::rename
        | S::renameat
        | S::renameat2
        | S::unlink
        | S::unlinkat
        | S::mkdir
        | S::mkdirat
        | S::rmdir
        | S::fsync
        | S::fdatasync
        | S::sync
        | S::syncfs
        | S::sync_file_range
        | S::truncate
        | S::ftruncate
        | S::fallocate
        | S::getdents
        | S::getdents64
        | S::readlink
        | S::readlinkat
        | S::dup
        | S::dup2
        | S::dup3
        | S::fcntl
        | S::ioctl
        | S::link
        | S::linkat
        | S::symlink
        | S::symlinkat
        | S::chmod
        | S::fchmod
        | S::chown
        | S::fchown
        | S::getcwd
        | S::chdir
        | S::fchdir
        | S::sendfile
        | S::splice
        | S::tee
        | S::copy_file_range
        | S::fadvise64
        | S::statfs
        | S::fstatfs
        | S::utimensat
        | S::flock => Category::KernelVfs,
        _ => Category::KernelOther,
    }
}

/// What a sleep inside the call means.
pub fn waits(nr: u16, object: Option<Object>) -> Waits {
    use syscalls::x86_64::Sysno as S;
    let Some(number) = S::new(usize::from(nr)) else {
        return match task_wait(nr).map(TaskWait::sort) {
            Some(TaskWaitSort::Descriptor) => Waits::Readiness,
            Some(TaskWaitSort::Timer) => Waits::Timer,
            Some(
                TaskWaitSort::Lock
                | TaskWaitSort::Runtime(_)
                | TaskWaitSort::Channel
                | TaskWaitSort::Waiters
                | TaskWaitSort::Room
                | TaskWaitSort::Task,
            ) => Waits::Futex,
            None => Waits::Other,
        };
    };
    match number {
        S::nanosleep | S::clock_nanosleep => Waits::Timer,
        S::futex | S::futex_waitv => Waits::Futex,
        S::poll
        | S::ppoll
        | S::select
        | S::pselect6
        | S::epoll_wait
        | S::epoll_pwait
        | S::epoll_pwait2
        | S::pause
        | S::rt_sigtimedwait
        | S::rt_sigsuspend => Waits::Readiness,
        S::wait4 | S::waitid => Waits::Child,
        S::recvfrom
        | S::recvmsg
        | S::recvmmsg
        | S::sendto
        | S::sendmsg
        | S::sendmmsg
        | S::accept
        | S::accept4
        | S::connect
        | S::splice
        | S::tee
        | S::vmsplice => Waits::Peer,
        // Pipes, sockets and character devices; a regular file waits for its device.
        S::read | S::write | S::readv | S::writev | S::preadv2 | S::pwritev2 => match object {
            Some(object) if object.is_socket() || matches!(object.type_bits, 1 | 2) => Waits::Peer,
            // Neither file nor directory nor block device: eventfd, signalfd, timerfd, inotify.
            Some(object) if !matches!(object.type_bits, 4 | 6 | 8) => Waits::Readiness,
            _ => Waits::Other,
        },
        _ => Waits::Other,
    }
}

/// Whether the call makes a process or a thread.
pub fn makes_thread(nr: u16) -> bool {
    const NR_FORK: u16 = 57;
    const NR_VFORK: u16 = 58;
    const NR_CLONE3: u16 = 435;
    matches!(nr, NR_CLONE | NR_FORK | NR_VFORK | NR_CLONE3)
}

/// Whether the call makes a descriptor. It may enlarge the process's table of descriptors, or wait until another thread
/// has (fs/file.c, `expand_files()`).
pub fn makes_descriptor(nr: u16) -> bool {
    opens_file(nr) || makes_other_descriptor(nr)
}

/// Whether the call opens a file, for which it may wait for the file system as well.
fn opens_file(nr: u16) -> bool {
    use syscalls::x86_64::Sysno as S;
    matches!(S::new(usize::from(nr)), Some(S::open | S::openat | S::openat2 | S::creat))
}

/// Whether the call makes a descriptor (fcntl: with F_DUPFD), and no file system takes part.
pub fn makes_other_descriptor(nr: u16) -> bool {
    use syscalls::x86_64::Sysno as S;
    matches!(
        S::new(usize::from(nr)),
        Some(
            S::socket
                | S::socketpair
                | S::accept
                | S::accept4
                | S::dup
                | S::dup2
                | S::dup3
                | S::fcntl
                | S::pipe
                | S::pipe2
                | S::eventfd
                | S::eventfd2
                | S::epoll_create
                | S::epoll_create1
                | S::timerfd_create
                | S::signalfd
                | S::signalfd4
                | S::inotify_init
                | S::inotify_init1
                | S::memfd_create
                | S::pidfd_open
        )
    )
}

/// write, writev, pwrite64, pwritev, pwritev2, sendto, sendmsg, sendmmsg, sendfile
pub fn is_write(nr: u16) -> bool {
    matches!(nr, 1 | 18 | 20 | 40 | 44 | 46 | 296 | 307 | 328)
}

/// read, readv, recvfrom
pub fn reads_bytes(nr: u16) -> bool {
    matches!(nr, 0 | 19 | 45)
}

/// close, shutdown
pub fn ends_connection(nr: u16) -> bool {
    matches!(nr, NR_CLOSE | NR_SHUTDOWN)
}

/// Calls that send a signal to a process or a thread.
pub fn sends_signal(nr: u16) -> bool {
    use syscalls::x86_64::Sysno as S;
    matches!(
        S::new(usize::from(nr)),
        Some(
            S::kill
                | S::tkill
                | S::tgkill
                | S::rt_sigqueueinfo
                | S::rt_tgsigqueueinfo
                | S::pidfd_send_signal
        )
    )
}

/// Calls that hand over pages instead of copying their contents.
pub fn moves_pages(nr: u16) -> bool {
    use syscalls::x86_64::Sysno as S;
    const CALLS: [u16; 4] =
        [S::sendfile as u16, S::splice as u16, S::tee as u16, S::vmsplice as u16];
    CALLS.contains(&nr)
}

/// Calls that make or use a ring of requests that the kernel carries out by itself.
pub fn is_io_uring(nr: u16) -> bool {
    use syscalls::x86_64::Sysno as S;
    [S::io_uring_setup as u16, S::io_uring_enter as u16].contains(&nr)
}

/// Calls that start writeback and wait for the kernel thread that does it.
pub fn waits_for_writeback(nr: u16) -> bool {
    use syscalls::x86_64::Sysno as S;
    matches!(
        S::new(usize::from(nr)),
        Some(S::sync | S::syncfs | S::fsync | S::fdatasync | S::sync_file_range | S::msync)
    )
}

/// Calls that wait, in an interruptible sleep, for file accesses that were submitted before.
pub fn waits_for_asynchronous_io(nr: u16) -> bool {
    use syscalls::x86_64::Sysno as S;
    let calls = [S::io_getevents, S::io_pgetevents, S::io_uring_enter];
    S::new(usize::from(nr)).is_some_and(|call| calls.contains(&call))
}

/// Calls that read or write a file's data: a block request that ends their wait is their own.
pub fn waits_for_own_data(nr: u16) -> bool {
    use syscalls::x86_64::Sysno as S;
    waits_for_writeback(nr)
        || matches!(
            S::new(usize::from(nr)),
            Some(
                S::read
                    | S::write
                    | S::readv
                    | S::writev
                    | S::pread64
                    | S::pwrite64
                    | S::preadv
                    | S::pwritev
                    | S::preadv2
                    | S::pwritev2
                    | S::sendfile
                    | S::copy_file_range
                    | S::execve
            )
        )
}
