//! Distinguishes a signal sent to this process alone from one sent to its whole process group.
//!
//! The target is in our process group. A signal to the group reaches the target directly. Passing
//! it on would deliver it twice, which means something else to many programs. A signal to us alone
//! would never reach the target. The signal itself does not show how it was sent. So a process that
//! does nothing (the witness) stays in the group with all signals blocked: if the signal is also
//! pending there, it was sent to the group. This also covers senders that signal each process of a
//! control group.

use std::fs;
use std::io;

use libc::{c_int, pid_t};

use super::{signals, RELAYED};

/// Makes the witness forget the signals it has seen. The witness uses no other signal.
const FORGET: c_int = libc::SIGURG;

/// The witness process; ends when this is dropped, or when the thread that started it ends.
#[derive(Debug)]
pub(super) struct GroupSignal {
    pid: pid_t,
}

impl GroupSignal {
    pub(super) fn start() -> io::Result<GroupSignal> {
        let arguments = argument_area();
        // Blocked before the fork, so that no signal can arrive before the witness is ready.
        let mask = signals::change_mask(libc::SIG_SETMASK, &signals::all());
        // SAFETY: only a query.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child only makes async-signal-safe calls and does not return.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            watch(parent, arguments);
        }
        let error = io::Error::last_os_error();
        signals::change_mask(libc::SIG_SETMASK, &mask);
        if pid == -1 {
            return Err(error);
        }
        Ok(GroupSignal { pid })
    }

    /// Returns the signals that were sent to the group since [`GroupSignal::forget`]: bit `n - 1`
    /// is signal `n`. No signals if the witness is gone.
    pub(super) fn seen(&self) -> u64 {
        let Ok(status) = fs::read_to_string(format!("/proc/{}/status", self.pid)) else { return 0 };
        status
            .lines()
            .find_map(|line| line.strip_prefix("ShdPnd:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .map_or(0, |mask| mask & !signals::bit(FORGET))
    }

    /// Makes the witness forget the signals seen so far. This takes effect a little later.
    pub(super) fn forget(&self) {
        // SAFETY: takes numbers only; the process is our child, so the id is not reused.
        unsafe { libc::kill(self.pid, FORGET) };
    }
}

impl Drop for GroupSignal {
    fn drop(&mut self) {
        // SAFETY: as above; no status is asked for.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// The code of the witness.
fn watch(parent: pid_t, arguments: Option<(usize, usize)>) -> ! {
    // SAFETY: async-signal-safe calls with valid pointers. The arguments are memory that the kernel
    // put there for this process, writable, and not used by the witness.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        // A program that looks for rpcprobe by name or command line, to signal it, must not find
        // the witness.
        libc::prctl(libc::PR_SET_NAME, c"signal-witness".as_ptr());
        if let Some((start, length)) = arguments {
            std::ptr::with_exposed_provenance_mut::<u8>(start).write_bytes(0, length);
        }
        // Our copies would keep pipes open after all others have closed them.
        if libc::syscall(libc::SYS_close_range, 0, c_int::MAX, 0) != 0 {
            for fd in 0..1024 {
                libc::close(fd);
            }
        }
        let (forget, relayed) = (signals::set(&[FORGET]), signals::set(&RELAYED));
        let no_wait = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            if libc::sigwaitinfo(&forget, std::ptr::null_mut()) == FORGET {
                while libc::sigtimedwait(&relayed, std::ptr::null_mut(), &no_wait) > 0 {}
            }
        }
    }
}

/// Returns address and length of the memory that is shown as our command line.
fn argument_area() -> Option<(usize, usize)> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Fields are counted after the name, which may contain anything: field 3 of proc(5) is number
    // 0.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().skip(48 - 3);
    let start: usize = fields.next()?.parse().ok()?;
    let end: usize = fields.next()?.parse().ok()?;
    (start != 0 && start < end).then_some((start, end - start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_witness_sees_remembers_and_forgets() {
        let witness = GroupSignal::start().unwrap();
        assert_eq!(witness.seen(), 0);
        // SAFETY: takes numbers only.
        unsafe { libc::kill(witness.pid, libc::SIGTERM) };
        assert_eq!(witness.seen(), signals::bit(libc::SIGTERM));
        witness.forget();
        let start = Instant::now();
        while witness.seen() != 0 {
            assert!(start.elapsed() < Duration::from_secs(5));
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_witness_is_not_found_by_our_name() {
        let witness = GroupSignal::start().unwrap();
        let start = Instant::now();
        let of = |file| fs::read(format!("/proc/{}/{file}", witness.pid)).unwrap();
        while fs::read_dir(format!("/proc/{}/fd", witness.pid)).unwrap().count() != 0 {
            assert!(start.elapsed() < Duration::from_secs(5));
            std::thread::yield_now();
        }
        assert_eq!(of("comm"), b"signal-witness\n");
        assert!(of("cmdline").iter().all(|&byte| byte == 0));
    }

    #[test]
    fn the_witness_ends_with_its_owner() {
        let pid = GroupSignal::start().unwrap().pid;
        assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    }
}
