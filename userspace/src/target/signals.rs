//! Signal sets and dispositions.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, sigset_t};

/// The highest signal number.
pub(super) const LAST: c_int = 64;

/// The signal's bit in a mask as shown by the kernel.
pub(super) fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Returns the set of these signals. Async-signal-safe.
pub(crate) fn set(signals: &[c_int]) -> sigset_t {
    // SAFETY: the set is integers, for which zero is valid, and initialised by sigemptyset.
    unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for &signal in signals {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Returns the set of all signals. Async-signal-safe.
pub(super) fn all() -> sigset_t {
    let mut set = set(&[]);
    // SAFETY: the set is valid.
    unsafe { libc::sigfillset(&mut set) };
    set
}

/// Changes which signals are blocked on this thread; `how` as for sigprocmask(2). Returns the
/// previous mask. Async-signal-safe.
pub(crate) fn change_mask(how: c_int, set: &sigset_t) -> sigset_t {
    let mut before = self::set(&[]);
    // SAFETY: both sets are valid. Only a wrong `how` could make this fail.
    unsafe { libc::pthread_sigmask(how, set, &mut before) };
    before
}

/// The signals blocked on this thread.
pub(super) fn mask() -> sigset_t {
    change_mask(libc::SIG_BLOCK, &set(&[]))
}

/// Whether the process ignores the signal. Async-signal-safe.
pub(crate) fn is_ignored(signal: c_int) -> bool {
    let mut action = KernelAction::default();
    change_action(signal, ptr::null(), &mut action) && action[0] == libc::SIG_IGN
}

/// Makes the process ignore the signal, or take its default action. Async-signal-safe.
pub(super) fn set_ignored(signal: c_int, ignored: bool) {
    let mut action = KernelAction::default();
    action[0] = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    change_action(signal, &action, ptr::null_mut());
}

/// The action as the kernel takes it: the handler, then flags and mask, whose order differs between
/// architectures but does not matter when they are zero. Large enough for all architectures.
type KernelAction = [usize; 8];

/// Called directly, because the C library hides two signals that it uses itself, and it changes
/// their disposition when the first thread is created.
fn change_action(signal: c_int, new: *const KernelAction, old: *mut KernelAction) -> bool {
    const MASK_BYTES: usize = 8;
    // SAFETY: each pointer is null or to an action; no action of ours has a handler to run.
    unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, old, MASK_BYTES) == 0 }
}

/// Returns a descriptor that is readable while one of these signals is pending, and that returns
/// the information about it. The signals must be blocked.
pub(crate) fn descriptor(signals: &[c_int]) -> io::Result<File> {
    let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
    // SAFETY: the set is valid.
    let fd = unsafe { libc::signalfd(-1, &set(signals), flags) };
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and nobody else has it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Name of the signal, as `kill -l` shows it.
pub(super) fn name(signal: c_int) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGSTKFLT => "SIGSTKFLT",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGPROF => "SIGPROF",
        libc::SIGIO => "SIGIO",
        libc::SIGPWR => "SIGPWR",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}
