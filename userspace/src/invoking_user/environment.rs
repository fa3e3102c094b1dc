//! The environment in which sudo was called. sudo passes on little of it, and not the variables that name the user's
//! browser and screen.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Maximum number of processes between sudo and this process: a shell or two, and what sudo itself forks.
const MOST_ANCESTORS: usize = 8;

/// Returns the variables with which the nearest sudo among our ancestors was started; `None` if there is no sudo, or if
/// its variables cannot be read. Only for processes that run as that user, because the user chose the values.
pub fn of_caller() -> Option<Vec<(OsString, OsString)>> {
    let mut pid = std::os::unix::process::parent_id();
    for _ in 0..MOST_ANCESTORS {
        let process = procfs::process::Process::new(i32::try_from(pid).ok()?).ok()?;
        let stat = process.stat().ok()?;
        if stat.comm == "sudo" {
            return Some(variables(&fs::read(format!("/proc/{pid}/environ")).ok()?));
        }
        pid = u32::try_from(stat.ppid).ok().filter(|pid| *pid > 1)?;
    }
    None
}

/// Parses `NAME=value` texts, each ended by a NUL byte.
fn variables(environ: &[u8]) -> Vec<(OsString, OsString)> {
    let variable = |text: &[u8]| {
        let at = text.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let os = |bytes| OsStr::from_bytes(bytes).to_owned();
        Some((os(&text[..at]), os(&text[at + 1..])))
    };
    environ.split(|byte| *byte == 0).filter_map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_told_apart() {
        let told = variables(b"A=1\0B=x=y\0EMPTY=\0=odd\0no value\0\0");
        let told: Vec<_> = told.iter().map(|(k, v)| (k.to_str(), v.to_str())).collect();
        let some = |k, v| (Some(k), Some(v));
        assert_eq!(told, [some("A", "1"), some("B", "x=y"), some("EMPTY", "")]);
    }
}
