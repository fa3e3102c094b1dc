//! Handles signals that ask the process to end while it has work that must be left in order. The first signal is noted,
//! and the work stops where it checks for it. A second signal ends the process at once.

use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

use crate::target::signals;

const SIGNALS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signal that arrived; 0 if none.
static NOTED: AtomicI32 = AtomicI32::new(0);

/// The work was stopped by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    pub signal: c_int,
}

impl Interrupted {
    /// The exit status that shells report for a process ended by this signal.
    pub fn exit_code(self) -> i32 {
        128 + self.signal
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// From here on the signals are noted, except those that are ignored.
pub fn catch() {
    for signal in SIGNALS.into_iter().filter(|&signal| !signals::is_ignored(signal)) {
        act(signal, note as extern "C" fn(c_int) as libc::sighandler_t);
    }
}

/// Like [`catch`], for work that runs until it is asked to end. Shells without job control let programs started with
/// `&` ignore SIGINT; a SIGINT that is sent nevertheless is meant for this process.
pub fn catch_also_in_background() {
    if signals::is_ignored(libc::SIGINT) {
        act(libc::SIGINT, libc::SIG_DFL);
    }
    catch();
}

/// Returns whether the work may go on.
///
/// # Errors
/// A signal arrived.
pub fn check() -> Result<(), Interrupted> {
    match NOTED.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Interrupted { signal }),
    }
}

/// Marks the signal, if any, as dealt with: [`release`] does not raise it.
pub fn answered() {
    NOTED.store(0, Ordering::Relaxed);
}

/// From here on the signals end the process as usual. A signal that was noted is returned.
///
/// # Errors
/// A signal arrived.
pub fn end_catching() -> Result<(), Interrupted> {
    for signal in SIGNALS.into_iter().filter(|&signal| !signals::is_ignored(signal)) {
        act(signal, libc::SIG_DFL);
    }
    check()
}

/// From here on the signals end the process as usual, including a signal that was noted but not checked for.
pub fn release() {
    if let Err(Interrupted { signal }) = end_catching() {
        // SAFETY: takes a number only.
        unsafe { libc::raise(signal) };
    }
}

/// Async-signal-safe.
extern "C" fn note(signal: c_int) {
    NOTED.store(signal, Ordering::Relaxed);
}

fn act(signal: c_int, handler: libc::sighandler_t) {
    // SAFETY: all-zero is a valid sigaction; the handler is async-signal-safe, or the default one.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}
