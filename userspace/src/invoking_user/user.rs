//! The user database: names, ids, groups.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use anyhow::{anyhow, bail, Result};

use super::reason;

/// A user of this machine, from the user database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: OsString,
    pub uid: libc::uid_t,
    /// Primary group.
    pub gid: libc::gid_t,
}

impl User {
    /// Looks up the user with this login name.
    ///
    /// # Errors
    ///
    /// There is no such user, or the user database cannot be read.
    pub fn lookup(name: impl AsRef<OsStr>) -> Result<User> {
        let name = name.as_ref();
        let shown = name.to_string_lossy();
        let c_name = CString::new(name.as_bytes())
            .map_err(|_| anyhow!("unknown user {shown}: the name has a NUL byte"))?;
        let found = passwd_entry(|entry, buffer, result| {
            // SAFETY: all pointers are valid for the call, and the length is that of the buffer.
            unsafe {
                libc::getpwnam_r(
                    c_name.as_ptr(),
                    entry,
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    result,
                )
            }
        });
        match found {
            Ok(Some(user)) => Ok(user),
            Ok(None) => bail!("unknown user {shown}"),
            Err(error) => bail!("cannot look up user {shown}: {}", reason(&error)),
        }
    }

    /// Looks up the user with this id; `None` without an entry, or if the user database cannot be
    /// read.
    pub fn by_uid(uid: libc::uid_t) -> Option<User> {
        let found = passwd_entry(|entry, buffer, result| {
            // SAFETY: all pointers are valid for the call, and the length is that of the buffer.
            unsafe {
                libc::getpwuid_r(uid, entry, buffer.as_mut_ptr().cast(), buffer.len(), result)
            }
        });
        found.ok().flatten()
    }

    /// All groups of the user: the primary one and those of the group database.
    pub fn groups(&self) -> Vec<libc::gid_t> {
        let Ok(name) = CString::new(self.name.as_bytes()) else { return vec![self.gid] };
        let mut groups: Vec<libc::gid_t> = vec![0; 64];
        loop {
            let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
            // SAFETY: `groups` has room for `count` entries, which is all that is written.
            let result = unsafe {
                libc::getgrouplist(name.as_ptr(), self.gid, groups.as_mut_ptr(), &mut count)
            };
            let count = usize::try_from(count).unwrap_or(0);
            if result >= 0 {
                groups.truncate(count);
                return groups;
            }
            if groups.len() >= 1 << 17 {
                return vec![self.gid]; // more than the kernel accepts: fewer rights, never more
            }
            let room = count.max(groups.len() * 2);
            groups.resize(room, 0);
        }
    }
}

/// Runs one of the `getpw*_r` functions with a buffer that is large enough.
fn passwd_entry(
    mut query: impl FnMut(*mut libc::passwd, &mut [u8], *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<User>> {
    let mut buffer = vec![0u8; 1024];
    loop {
        // SAFETY: passwd is integers and pointers, for which zero is a valid value.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut result = std::ptr::null_mut();
        match query(&mut entry, &mut buffer, &mut result) {
            0 if result.is_null() => return Ok(None),
            0 => {
                // SAFETY: on success pw_name points to a C string inside `buffer`, still alive.
                let name = unsafe { CStr::from_ptr(entry.pw_name) };
                return Ok(Some(User {
                    name: OsStr::from_bytes(name.to_bytes()).to_owned(),
                    uid: entry.pw_uid,
                    gid: entry.pw_gid,
                }));
            }
            libc::EINTR => {}
            libc::ERANGE if buffer.len() < 1 << 24 => {
                let room = buffer.len() * 4;
                buffer.resize(room, 0);
            }
            // POSIX does not define how "no such user" is reported; systems return these.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_users::{message, SOMEBODY};
    use super::*;

    #[test]
    fn users_are_looked_up() {
        let root = User::lookup("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups().contains(&0));
        assert_eq!(User::by_uid(0).unwrap().name, "root");
        assert_eq!(message(User::lookup("no-such-user")), "unknown user no-such-user");
        assert!(User::by_uid(SOMEBODY).is_none());
    }
}
