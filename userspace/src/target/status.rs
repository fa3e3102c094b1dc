//! How the target ended, and how to end in the same way.

use std::fmt;
use std::io::{self, Write};
use std::process;

use libc::c_int;

use super::signals;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitStatus(c_int);

impl WaitStatus {
    /// Takes the status that wait(2) returned for a process that ended.
    pub fn from_raw(raw: i32) -> WaitStatus {
        WaitStatus(raw)
    }

    /// The status as wait(2) returns it.
    pub fn raw(self) -> i32 {
        self.0
    }

    /// The exit status, 0 to 255; `None` if the process was killed by a signal.
    pub fn code(self) -> Option<i32> {
        libc::WIFEXITED(self.0).then(|| libc::WEXITSTATUS(self.0))
    }

    /// Number of the signal that killed the process; `None` if it exited.
    pub fn signal(self) -> Option<i32> {
        libc::WIFSIGNALED(self.0).then(|| libc::WTERMSIG(self.0))
    }

    /// Whether the process exited with status 0.
    pub fn success(self) -> bool {
        self.code() == Some(0)
    }

    /// Ends this process in the same way, so that our parent sees what it would have seen of the
    /// target: the same exit status, or death by the same signal (but without a core dump, which
    /// would be ours). Destructors do not run.
    pub fn exit_like(self) -> ! {
        let Some(signal) = self.signal() else { process::exit(self.code().unwrap_or(1)) };
        let _ = io::stdout().flush();
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limit is valid; the other calls take numbers only.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::prctl(libc::PR_SET_DUMPABLE, 0); // if core dumps go to a pipe, limits have no effect
        }
        signals::set_ignored(signal, false);
        signals::change_mask(libc::SIG_UNBLOCK, &signals::set(&[signal]));
        // SAFETY: takes a number only.
        unsafe { libc::raise(signal) };
        // Still running: the first process of a container cannot kill itself. Shells report the
        // signal this way.
        process::exit(128 + signal)
    }
}

impl fmt::Display for WaitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code(), self.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}"),
            (_, Some(signal)) => match signals::name(signal) {
                Some(name) => write!(f, "killed by {name}"),
                None => write!(f, "killed by signal {signal}"),
            },
            _ => write!(f, "ended with wait status {:#x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_described() {
        let text = |raw| WaitStatus::from_raw(raw).to_string();
        assert_eq!(text(3 << 8), "exited with status 3");
        assert_eq!(text(libc::SIGTERM), "killed by SIGTERM");
        assert_eq!(text(libc::SIGSEGV | 0x80), "killed by SIGSEGV");
        assert_eq!(text(40), "killed by signal 40");
        assert!(WaitStatus::from_raw(0).success());
        assert!(!WaitStatus::from_raw(libc::SIGTERM).success());
    }

    #[test]
    fn ending_likewise_is_seen_by_the_parent() {
        for raw in [0, 3 << 8, 255 << 8, libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, 40] {
            // SAFETY: the child only ends.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                signals::change_mask(libc::SIG_BLOCK, &signals::set(&[libc::SIGTERM]));
                signals::set_ignored(libc::SIGTERM, true);
                let status = WaitStatus::from_raw(raw);
                if status.signal().is_some() {
                    status.exit_like();
                }
                // exit_like would run the exit handlers of the test harness.
                // SAFETY: takes a number only.
                unsafe { libc::_exit(status.code().unwrap_or(99)) };
            }
            let mut seen = 0;
            // SAFETY: `seen` is valid, `pid` is a child of ours.
            assert_eq!(unsafe { libc::waitpid(pid, &mut seen, 0) }, pid);
            assert_eq!(seen, raw);
        }
    }
}
