//! What the program was started with, recorded before anything changes it.
//!
//! Before `main`, Rust's runtime ignores SIGPIPE and opens /dev/null in place of closed standard
//! descriptors; libraries may raise resource limits. The target must see none of that.

use std::sync::OnceLock;

use libc::{c_int, sigset_t};

use super::signals;

const LIMITS: usize = 16; // RLIM_NLIMITS of the kernel, the same on all architectures

/// Attributes that the target inherits and that are changed in this process.
pub(super) struct Inherited {
    pub(super) mask: sigset_t,
    /// Signals that were ignored. All others had their default action, because nothing else
    /// survives an exec. Bit `n - 1` is signal `n`.
    pub(super) ignored: u64,
    limits: [Option<libc::rlimit64>; LIMITS],
}

static INHERITED: OnceLock<Inherited> = OnceLock::new();

/// Runs before Rust's runtime does.
#[used]
#[link_section = ".init_array"]
static BEFORE_RUNTIME: extern "C" fn() = before_runtime;

extern "C" fn before_runtime() {
    occupy_standard_descriptors();
    get();
}

/// What this process inherited.
pub(super) fn get() -> &'static Inherited {
    INHERITED.get_or_init(|| Inherited {
        mask: signals::mask(),
        ignored: (1..=signals::LAST)
            .filter(|&signal| signals::is_ignored(signal))
            .fold(0, |ignored, signal| ignored | signals::bit(signal)),
        limits: std::array::from_fn(|resource| limit(resource as c_int, None).ok()),
    })
}

impl Inherited {
    /// Puts changed signal dispositions and limits back. Async-signal-safe.
    pub(super) fn restore_dispositions_and_limits(&self) {
        for signal in 1..=signals::LAST {
            let ignored = self.ignored & signals::bit(signal) != 0;
            if signals::is_ignored(signal) != ignored {
                signals::set_ignored(signal, ignored);
            }
        }
        for (resource, inherited) in self.limits.iter().enumerate() {
            let resource = resource as c_int;
            if let (Some(inherited), Ok(now)) = (inherited, limit(resource, None)) {
                if (inherited.rlim_cur, inherited.rlim_max) != (now.rlim_cur, now.rlim_max) {
                    let _ = limit(resource, Some(inherited)); // there is no way to report an error
                }
            }
        }
    }
}

/// Opens /dev/null on those of the descriptors 0 to 2 that are closed. Otherwise one of our files
/// could get such a number and receive what is written to standard output or error. The target's
/// exec closes them again.
fn occupy_standard_descriptors() {
    for fd in 0..=2 {
        // SAFETY: neither call takes pointers to memory that is written. The lower descriptors are
        // occupied, so the open returns `fd`.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) == -1 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            }
        }
    }
}

fn limit(resource: c_int, new: Option<&libc::rlimit64>) -> Result<libc::rlimit64, ()> {
    let mut old = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the new limit is null or valid, the old one is written by the call. Called directly
    // because the wrappers' types differ between C libraries.
    let result = unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, new, &mut old) };
    if result == 0 {
        Ok(old)
    } else {
        Err(())
    }
}
