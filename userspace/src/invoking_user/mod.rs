//! Writes files as the user who invoked the program.
//!
//! Tracing needs root, so the program is usually started with `sudo`, but a capture belongs to the
//! user. Files are therefore created with the file-system credentials of that user. The kernel then
//! refuses whatever the user could not have done, however the directories around are rigged. The
//! result belongs to the user without a `chown`.

mod credentials;
pub mod environment;
mod in_place;
mod output_dir;
#[cfg(test)]
mod test_users;
mod user;

use std::io;

use anyhow::{anyhow, bail, Context, Result};

pub use in_place::in_place;
pub use output_dir::{OutputDir, Sharing, CAPTURE_FILES};
pub use user::User;

use credentials::Switched;

/// The system's description of an error, without Rust's " (os error N)".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => text.trim_end_matches(&format!(" (os error {code})")).to_owned(),
        None => text,
    }
}

/// The user who owns what we write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: libc::uid_t,
    pub gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl Owner {
    /// The user who invoked the program: under `sudo` the user who called `sudo`, else the real
    /// user.
    pub fn invoking() -> Owner {
        // SAFETY: these only return ids of the process.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        let number =
            |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u32>().ok());
        invoking_of(uid, gid, number("SUDO_UID"), number("SUDO_GID"))
    }

    /// The user with these ids, with the groups that the group database lists for that user.
    pub fn of(uid: libc::uid_t, gid: libc::gid_t) -> Owner {
        let groups = match User::by_uid(uid) {
            Some(user) => User { gid, ..user }.groups(),
            None => vec![gid],
        };
        Owner { uid, gid, groups }
    }

    /// Runs `work` with the file-system credentials of this user, on this thread only: the kernel
    /// checks every access to files as if that user had asked, and new files belong to that user.
    ///
    /// The previous credentials are restored when `work` returns or panics. There is no effect if
    /// they are already those of this user. `work` should only deal with files.
    ///
    /// # Errors
    ///
    /// The credentials could not be switched; then `work` has not run.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _restored_on_drop = Switched::to(self)
            .with_context(|| format!("cannot access files as uid {} gid {}", self.uid, self.gid))?;
        Ok(work())
    }

    /// Makes this whole process, which must have only one thread, a process of this user. This
    /// cannot be undone.
    ///
    /// # Errors
    ///
    /// The system does not allow it. Privileges that were given up by then stay given up.
    pub fn become_for_good(&self) -> Result<()> {
        // SAFETY: these only return or take ids.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        if (uid, gid) == (self.uid, self.gid) {
            return Ok(());
        }
        credentials::set_groups(&self.groups)
            .map_err(|error| anyhow!("cannot set the groups: {}", reason(&error)))?;
        // SAFETY: as above.
        let done = unsafe {
            libc::setresgid(self.gid, self.gid, self.gid) == 0
                && libc::setresuid(self.uid, self.uid, self.uid) == 0
        };
        if !done {
            bail!("cannot become uid {}: {}", self.uid, reason(&io::Error::last_os_error()));
        }
        Ok(())
    }

    /// Like [`Owner::run`], for work that can itself fail.
    fn try_run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run(work)?
    }
}

fn invoking_of(uid: u32, gid: u32, sudo_uid: Option<u32>, sudo_gid: Option<u32>) -> Owner {
    // Only for root does sudo set these variables; any other user may have made them up. The
    // highest number is not an id but means "leave unchanged".
    match (uid, sudo_uid, sudo_gid) {
        (0, Some(uid), Some(gid)) if uid != u32::MAX && gid != u32::MAX => Owner::of(uid, gid),
        _ => Owner::of(uid, gid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_invoking_user_is_who_called_sudo() {
        let ids = |owner: Owner| (owner.uid, owner.gid);
        assert_eq!(ids(invoking_of(0, 0, Some(1000), Some(1001))), (1000, 1001));
        assert_eq!(ids(invoking_of(0, 0, Some(1000), None)), (0, 0));
        assert_eq!(ids(invoking_of(0, 0, None, None)), (0, 0));
        assert_eq!(ids(invoking_of(0, 0, Some(u32::MAX), Some(0))), (0, 0));
        assert_eq!(ids(invoking_of(7, 8, Some(0), Some(0))), (7, 8));
    }
}
