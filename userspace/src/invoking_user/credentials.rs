//! File-system credentials of one thread: switched for a while, then restored.

use std::io;

use anyhow::{anyhow, bail, Result};

use super::{reason, Owner};

/// The thread's previous credentials, restored when dropped.
pub(super) struct Switched {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl Switched {
    /// Switches to the credentials of `owner`; `None` if there is nothing to switch.
    pub(super) fn to(owner: &Owner) -> Result<Option<Switched>> {
        let (uid, gid) = (fsuid(), fsgid());
        if (uid, gid) == (owner.uid, owner.gid) {
            return Ok(None);
        }
        let previous_groups = groups()?;
        set_groups(&owner.groups)
            .map_err(|error| anyhow!("cannot set the groups: {}", reason(&error)))?;
        // From here on there is something to restore. Dropping `before` restores it, whatever
        // fails.
        let before = Some(Switched { uid, gid, groups: previous_groups });
        set_fsgid(owner.gid);
        set_fsuid(owner.uid);
        if (fsuid(), fsgid()) != (owner.uid, owner.gid) {
            bail!("the system did not switch the user");
        }
        if owner.uid != 0 && overrides_permissions()? {
            bail!("the process would keep its privilege to override permissions");
        }
        Ok(before)
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        set_fsuid(self.uid);
        set_fsgid(self.gid);
        let groups_restored = set_groups(&self.groups).is_ok();
        if !groups_restored || (fsuid(), fsgid()) != (self.uid, self.gid) {
            // This cannot happen, because switching worked before. Continuing as another user would
            // be worse.
            eprintln!("rpcprobe: cannot go back to uid {} gid {}", self.uid, self.gid);
            std::process::abort();
        }
    }
}

// The wrappers of the C library change all threads. These system calls change only the calling
// thread.

fn set_fsuid(uid: libc::uid_t) -> libc::uid_t {
    // SAFETY: takes no pointers; returns the previous id, also when it changes nothing.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) as libc::uid_t }
}

fn set_fsgid(gid: libc::gid_t) -> libc::gid_t {
    // SAFETY: takes no pointers; returns the previous id, also when it changes nothing.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) as libc::gid_t }
}

fn fsuid() -> libc::uid_t {
    set_fsuid(libc::uid_t::MAX) // not a valid id, so this only queries
}

fn fsgid() -> libc::gid_t {
    set_fsgid(libc::gid_t::MAX)
}

pub(super) fn set_groups(groups: &[libc::gid_t]) -> io::Result<()> {
    // SAFETY: the pointer is to as many groups as the first argument says.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn groups() -> io::Result<Vec<libc::gid_t>> {
    // SAFETY: a size of 0 only queries the number; nothing is written.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).map_err(|_| io::Error::last_os_error())?];
    // SAFETY: there is room for `count` groups.
    let count = unsafe { libc::getgroups(count, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).map_err(|_| io::Error::last_os_error())?);
    Ok(groups)
}

/// Whether this thread may read or write files regardless of their permissions.
fn overrides_permissions() -> io::Result<bool> {
    const VERSION_3: u32 = 0x2008_0522;
    const DAC_OVERRIDE_AND_READ_SEARCH: u32 = 1 << 1 | 1 << 2;
    let header: [u32; 2] = [VERSION_3, 0];
    // Effective, permitted, inheritable; then the same for capabilities 32 to 63.
    let mut sets = [0u32; 6];
    // SAFETY: both arrays have the layout that version 3 of the interface defines.
    let result = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(sets[0] & DAC_OVERRIDE_AND_READ_SEARCH != 0)
}

#[cfg(test)]
mod tests {
    use super::super::test_users::{me, somebody, SOMEBODY};
    use super::*;

    #[test]
    fn no_switch_to_oneself() {
        assert_eq!(me().run(fsuid).unwrap(), me().uid);
    }

    #[test]
    fn an_impossible_switch_is_an_error() {
        if me().uid == 0 {
            eprintln!("skipped: root can switch");
            return;
        }
        assert!(Owner::of(SOMEBODY, SOMEBODY).run(|| ()).is_err());
        assert_eq!(fsuid(), me().uid);
    }

    #[test]
    fn a_switch_is_limited_to_the_closure_and_thread() {
        let Some(owner) = somebody() else { return };
        let before = (fsuid(), fsgid(), groups().unwrap());
        owner
            .run(|| {
                assert_eq!((fsuid(), fsgid()), (SOMEBODY, SOMEBODY));
                assert_eq!(groups().unwrap(), [SOMEBODY]);
                assert!(!overrides_permissions().unwrap());
                assert_eq!(owner.run(fsuid).unwrap(), SOMEBODY);
                assert_eq!(fsuid(), SOMEBODY);
            })
            .unwrap();
        assert_eq!((fsuid(), fsgid(), groups().unwrap()), before);

        let (entered, wait_entered) = std::sync::mpsc::channel();
        let (leave, wait_leave) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            owner.run(|| {
                entered.send(()).unwrap();
                wait_leave.recv().unwrap()
            })
        });
        wait_entered.recv().unwrap();
        assert_eq!((fsuid(), fsgid(), groups().unwrap()), before);
        leave.send(()).unwrap();
        other.join().unwrap().unwrap();
    }

    #[test]
    fn a_panic_restores() {
        let Some(owner) = somebody() else { return };
        let before = (fsuid(), fsgid(), groups().unwrap());
        let panicked = std::panic::catch_unwind(|| owner.run(|| panic!("for the test")));
        assert!(panicked.is_err());
        assert_eq!((fsuid(), fsgid(), groups().unwrap()), before);
        assert!(overrides_permissions().unwrap());
    }
}
