//! Signals that ask to end while there is something to leave in order: the first is noted, and the
//! work stops where it asks for it; a second one ends the process at once.

use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_int;

use crate::target::signals;

const SIGNALS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signal that came; 0: none.
static NOTED: AtomicI32 = AtomicI32::new(0);

/// The work was stopped by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    pub signal: c_int,
}

impl Interrupted {
    /// The exit status that shells give to what a signal ended.
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

/// From here on the signals are noted, but for those that are ignored.
pub fn catch() {
    for signal in SIGNALS.into_iter().filter(|&signal| !signals::is_ignored(signal)) {
        act(signal, note as extern "C" fn(c_int) as libc::sighandler_t);
    }
}

/// The same for what runs until it is asked to end: shells without job control have what they start with `&` ignore SIGINT, and whoever
/// sends one nevertheless means us.
pub fn catch_also_in_background() {
    if signals::is_ignored(libc::SIGINT) {
        act(libc::SIGINT, libc::SIG_DFL);
    }
    catch();
}

/// Whether to go on.
///
/// # Errors
/// A signal came.
pub fn check() -> Result<(), Interrupted> {
    match NOTED.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Interrupted { signal }),
    }
}

/// The signal that came, if any, has been dealt with: [`release`] does not raise it.
pub fn answered() {
    NOTED.store(0, Ordering::Relaxed);
}

/// From here on the signals end the process as ever; one that was noted is given back.
///
/// # Errors
/// A signal came.
pub fn end_catching() -> Result<(), Interrupted> {
    for signal in SIGNALS.into_iter().filter(|&signal| !signals::is_ignored(signal)) {
        act(signal, libc::SIG_DFL);
    }
    check()
}

/// From here on the signals end the process as ever: also one that was noted, and not asked for.
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
    // SAFETY: all-zero is a valid sigaction; the handler is async-signal-safe, or none.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}
