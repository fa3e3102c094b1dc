//! The limit of open files: the probe needs descriptors for every program, map, hook and CPU.

use anyhow::{bail, Result};

use super::hooks::HOOKS;

/// A program and a link for each hook, the maps, the rings, software events on each CPU, and what
/// the program itself has open.
fn needed(cpus: u32) -> u64 {
    2 * HOOKS.len() as u64 + 8 * u64::from(cpus) + 64
}

/// Raises the limit of open files to the hard limit. The target gets back the limit that we
/// inherited.
///
/// # Errors
/// The hard limit is too low.
pub fn allow(cpus: u32) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a valid rlimit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
    check(limit.rlim_max, needed(cpus))
}

fn check(most: u64, needed: u64) -> Result<()> {
    if most < needed {
        bail!(
            "the hard limit of open files is {most} and the probe needs {needed}; raise it \
             (`ulimit -n`, or LimitNOFILE= of a systemd unit)"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_is_told() {
        assert!(check(1024, 1024).is_ok());
        let told = check(123, 200).unwrap_err().to_string();
        assert!(told.contains("123") && told.contains("200"), "{told}");
    }
}
