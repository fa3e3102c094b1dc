//! Users for the tests of this module.

use anyhow::Result;

use super::Owner;

pub(super) const SOMEBODY: u32 = 54_321; // an id that no user database has

pub(super) fn me() -> Owner {
    // SAFETY: these only return ids of the process.
    unsafe { Owner::of(libc::geteuid(), libc::getegid()) }
}

/// Returns another user; `None`, with a message, if this process may not switch users.
pub(super) fn somebody() -> Option<Owner> {
    if me().uid != 0 {
        eprintln!("skipped: needs root");
        return None;
    }
    Some(Owner::of(SOMEBODY, SOMEBODY))
}

pub(super) fn message<T>(result: Result<T>) -> String {
    format!("{:#}", result.err().expect("this must be refused"))
}
