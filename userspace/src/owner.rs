//! Writing files as the user who invoked the program.
//!
//! Tracing needs root, so the program is usually started with `sudo`, but a capture belongs to the
//! user. Files are therefore created with the file-system credentials of that user: the kernel then
//! refuses whatever the user could not have done, however the directories around are rigged, and
//! the result belongs to the user without a `chown`.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Context, Result};

/// The files of a capture; each can also exist with `.tmp` appended while it is being replaced.
pub const CAPTURE_FILES: [&str; 6] = [
    "manifest.json",
    "events.bin",
    "requests.parquet",
    "segments.parquet",
    "stacks.parquet",
    "symbols.parquet",
];

/// What the system says about an error, without Rust's " (os error N)".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(code) => text.trim_end_matches(&format!(" (os error {code})")).to_owned(),
        None => text,
    }
}

/// A user of this machine, as the user database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: OsString,
    pub uid: libc::uid_t,
    /// Primary group.
    pub gid: libc::gid_t,
}

impl User {
    /// The user of that login name.
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

    /// The user of that id; `None` without an entry, or when the user database cannot be read.
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
                return vec![self.gid]; // beyond what the kernel takes: fewer rights, never more
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
            // POSIX leaves open how "no such user" is said; these are what systems return.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The user to whom what we write belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: libc::uid_t,
    pub gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl Owner {
    /// Who invoked the program: under `sudo` the user who called `sudo`, else the real user.
    pub fn invoking() -> Owner {
        // SAFETY: these only return ids of the process.
        let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
        let number =
            |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u32>().ok());
        invoking_of(uid, gid, number("SUDO_UID"), number("SUDO_GID"))
    }

    /// The user of these ids, with the groups that the group database has for that user.
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
    /// The credentials before are restored when `work` returns or panics. Without effect when they
    /// are already those of this user. `work` should only deal with files.
    ///
    /// # Errors
    ///
    /// The credentials could not be switched; `work` has not run then.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _restored_on_drop = Switched::to(self)
            .with_context(|| format!("cannot access files as uid {} gid {}", self.uid, self.gid))?;
        Ok(work())
    }

    /// Makes this whole process, which must have one thread, one of this user: there is no way back.
    ///
    /// # Errors
    ///
    /// The system does not let us. Whatever was given up by then stays given up.
    pub fn become_for_good(&self) -> Result<()> {
        // SAFETY: these only return or take ids.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        if (uid, gid) == (self.uid, self.gid) {
            return Ok(());
        }
        set_groups(&self.groups)
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

    /// Like [`Owner::run`] for work that can fail by itself.
    fn try_run<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.run(work)?
    }
}

fn invoking_of(uid: u32, gid: u32, sudo_uid: Option<u32>, sudo_gid: Option<u32>) -> Owner {
    // Only root gets these variables from sudo; anybody else may have made them up. The highest
    // number is no id but "leave unchanged".
    match (uid, sudo_uid, sudo_gid) {
        (0, Some(uid), Some(gid)) if uid != u32::MAX && gid != u32::MAX => Owner::of(uid, gid),
        _ => Owner::of(uid, gid),
    }
}

/// Credentials of this thread to go back to.
struct Switched {
    uid: libc::uid_t,
    gid: libc::gid_t,
    groups: Vec<libc::gid_t>,
}

impl Switched {
    /// `None` when there is nothing to switch.
    fn to(owner: &Owner) -> Result<Option<Switched>> {
        let (uid, gid) = (fsuid(), fsgid());
        if (uid, gid) == (owner.uid, owner.gid) {
            return Ok(None);
        }
        let previous_groups = groups()?;
        set_groups(&owner.groups)
            .map_err(|error| anyhow!("cannot set the groups: {}", reason(&error)))?;
        // From here on there is something to restore, and `before` does, whatever fails.
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
            // Cannot happen, as we could switch before; to go on as somebody else would be worse.
            eprintln!("rpcprobe: cannot go back to uid {} gid {}", self.uid, self.gid);
            std::process::abort();
        }
    }
}

// The wrappers of the C library change all threads, these system calls only the calling one.

fn set_fsuid(uid: libc::uid_t) -> libc::uid_t {
    // SAFETY: takes no pointers; returns the previous id, also when it changes nothing.
    unsafe { libc::syscall(libc::SYS_setfsuid, uid) as libc::uid_t }
}

fn set_fsgid(gid: libc::gid_t) -> libc::gid_t {
    // SAFETY: takes no pointers; returns the previous id, also when it changes nothing.
    unsafe { libc::syscall(libc::SYS_setfsgid, gid) as libc::gid_t }
}

fn fsuid() -> libc::uid_t {
    set_fsuid(libc::uid_t::MAX) // not an id, so this only asks
}

fn fsgid() -> libc::gid_t {
    set_fsgid(libc::gid_t::MAX)
}

fn set_groups(groups: &[libc::gid_t]) -> io::Result<()> {
    // SAFETY: the pointer is to as many groups as the first argument says.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn groups() -> io::Result<Vec<libc::gid_t>> {
    // SAFETY: a size of 0 asks for the number only, nothing is written.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).map_err(|_| io::Error::last_os_error())?];
    // SAFETY: there is room for `count` groups.
    let count = unsafe { libc::getgroups(count, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).map_err(|_| io::Error::last_os_error())?);
    Ok(groups)
}

/// Whether this thread may read or write files whatever their permissions say.
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

/// The directory of a capture, held open: whatever happens to its path later, its files are
/// created, read and replaced in this directory, as its [`Owner`].
#[derive(Debug)]
pub struct OutputDir {
    owner: Owner,
    path: PathBuf,
    dir: File,
    /// We made it, so we may take it away again.
    made: bool,
}

impl OutputDir {
    /// Creates the directory, as `owner`. Its parent must exist.
    ///
    /// With `force` the directory may exist if it is empty or a capture; its files are removed.
    ///
    /// # Errors
    ///
    /// `path` exists without `force`, is a symbolic link, belongs to another user, holds anything
    /// but a capture, or the owner may not create it.
    pub fn create(owner: Owner, path: impl AsRef<Path>, force: bool) -> Result<OutputDir> {
        let path = trimmed(path.as_ref())?;
        let shown = path.display();
        let mut made = false;
        let dir = owner.try_run(|| {
            match DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => made = true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    refuse_non_directory(&path)?;
                    if !force {
                        bail!("{shown} exists; use --force to overwrite the capture in it");
                    }
                }
                Err(error) => bail!("cannot create output directory {shown}: {}", reason(&error)),
            }
            open_dir(&path, "output directory")
        })?;
        let out = OutputDir { owner, path: path.clone(), dir, made };

        // Also for a directory that we made: in a directory that others may write to, it can have
        // been exchanged before we opened it.
        let found = out
            .dir
            .metadata()
            .map_err(|error| anyhow!("cannot use output directory {shown}: {}", reason(&error)))?;
        if out.owner.uid != 0 && found.uid() != out.owner.uid {
            bail!("{shown} belongs to uid {}, not to uid {}", found.uid(), out.owner.uid);
        }
        let names = out.names()?;
        if let Some(name) = names.iter().find(|name| !is_capture_file(name)) {
            bail!(
                "{shown} holds {}, which is not part of a capture; not overwriting it",
                name.to_string_lossy()
            );
        }
        for name in names {
            out.remove_file(&name)?;
        }
        Ok(out)
    }

    /// Opens the directory of an existing capture.
    ///
    /// # Errors
    ///
    /// `path` is not a directory (a symbolic link to one is refused), or the owner may not read it.
    pub fn open(owner: Owner, path: impl AsRef<Path>) -> Result<OutputDir> {
        let path = trimmed(path.as_ref())?;
        let dir = owner.try_run(|| {
            if fs::symlink_metadata(&path).is_ok() {
                refuse_non_directory(&path)?;
            }
            open_dir(&path, "capture")
        })?;
        Ok(OutputDir { owner, path, dir, made: false })
    }

    /// Leaves nothing behind of a capture that never began: its files go, and the directory if
    /// [`OutputDir::create`] made it. Best effort: there is a better error to report already.
    pub fn discard(self) {
        for name in self.names().unwrap_or_default() {
            let _ = self.remove_file(&name);
        }
        if self.made {
            // Refused unless empty, so a directory exchanged for another loses nothing.
            let _ = self.owner.run(|| fs::remove_dir(&self.path));
        }
    }

    /// Path of the directory, as it was given, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To whom the files belong.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Creates a file that must not exist, for writing and reading.
    ///
    /// # Errors
    ///
    /// The file exists, even as a dangling symbolic link, or the owner may not create it.
    pub fn create_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        self.open_at(name.as_ref(), flags)
            .map_err(|error| self.failed("create", name.as_ref(), &error))
    }

    /// Opens a file for reading. It must be a regular file.
    ///
    /// # Errors
    ///
    /// There is no such file, it is of another kind, or the owner may not read it.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        // A FIFO in place of the file would make the open wait without O_NONBLOCK.
        let name = name.as_ref();
        let file = match self.open_at(name, libc::O_RDONLY | libc::O_NONBLOCK) {
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                bail!("cannot open {}: it is a symbolic link", self.path.join(name).display())
            }
            result => result.map_err(|error| self.failed("open", name, &error))?,
        };
        let found = file.metadata().map_err(|error| self.failed("open", name, &error))?;
        if !found.is_file() {
            bail!("cannot open {}: it is not a regular file", self.path.join(name).display());
        }
        Ok(file)
    }

    /// Puts the file `tmp` in place of `name` in one step, whether `name` exists or not.
    ///
    /// # Errors
    ///
    /// There is no file `tmp`, or the owner may not do this.
    pub fn replace_file(&self, name: impl AsRef<OsStr>, tmp: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        let replaced = plain(tmp.as_ref()).and_then(|from| {
            let to = plain(name)?;
            self.as_owner(|dir| {
                // SAFETY: both names are C strings that live through the call.
                unsafe { libc::renameat(dir, from.as_ptr(), dir, to.as_ptr()) }
            })
        });
        replaced.map(drop).map_err(|error| self.failed("replace", name, &error))
    }

    /// Removes a file; it is not an error if there is none.
    ///
    /// # Errors
    ///
    /// It is a directory, or the owner may not remove it.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        let removed = plain(name).and_then(|file| {
            // SAFETY: the name is a C string that lives through the call.
            self.as_owner(|dir| unsafe { libc::unlinkat(dir, file.as_ptr(), 0) })
        });
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", name, &error))
            }
            _ => Ok(()),
        }
    }

    /// What the directory holds.
    fn names(&self) -> Result<Vec<OsString>> {
        // By way of the descriptor: the path may lead elsewhere by now.
        let listing = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        let names = self.owner.run(|| -> io::Result<Vec<OsString>> {
            fs::read_dir(listing)?.map(|entry| Ok(entry?.file_name())).collect()
        })?;
        names.map_err(|error| anyhow!("cannot list {}: {}", self.path.display(), reason(&error)))
    }

    fn open_at(&self, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
        let name = plain(name)?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        const MODE: libc::mode_t = 0o644;
        let fd = self.as_owner(|dir| {
            // SAFETY: the name is a C string that lives through the call.
            unsafe { libc::openat(dir, name.as_ptr(), flags, MODE) }
        })?;
        // SAFETY: the descriptor was just opened and nobody else has it.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes a system call that takes the directory, as the owner.
    fn as_owner(&self, call: impl FnOnce(RawFd) -> libc::c_int) -> io::Result<libc::c_int> {
        let result = self.owner.run(|| match call(self.dir.as_raw_fd()) {
            -1 => Err(io::Error::last_os_error()),
            result => Ok(result),
        });
        result.unwrap_or_else(|error| Err(io::Error::other(format!("{error:#}"))))
    }

    fn failed(&self, verb: &str, name: &OsStr, error: &io::Error) -> anyhow::Error {
        anyhow!("cannot {verb} {}: {}", self.path.join(name).display(), reason(error))
    }
}

/// The path without what makes the kernel follow a symbolic link in its last component (`x/`,
/// `x/.`).
fn trimmed(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        bail!("the name of the output directory is empty");
    }
    Ok(path.components().collect())
}

/// Says what is wrong with a path that exists but is no directory.
fn refuse_non_directory(path: &Path) -> Result<()> {
    let shown = path.display();
    let found = fs::symlink_metadata(path)
        .map_err(|error| anyhow!("cannot use {shown}: {}", reason(&error)))?;
    if found.is_symlink() {
        bail!("{shown} is a symbolic link; name the directory itself");
    }
    if !found.is_dir() {
        bail!("{shown} exists and is not a directory");
    }
    Ok(())
}

fn open_dir(path: &Path, what: &str) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
        .map_err(|error| anyhow!("cannot open {what} {}: {}", path.display(), reason(&error)))
}

fn is_capture_file(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| CAPTURE_FILES.contains(&name.strip_suffix(".tmp").unwrap_or(name)))
}

/// A name that stays inside its directory.
fn plain(name: &OsStr) -> io::Result<CString> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    }
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "has a NUL byte"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::fs::{symlink, PermissionsExt};

    const SOMEBODY: u32 = 54_321; // an id that no user database has

    fn me() -> Owner {
        // SAFETY: these only return ids of the process.
        unsafe { Owner::of(libc::geteuid(), libc::getegid()) }
    }

    /// `None`, said aloud, when this process may not switch users.
    fn somebody() -> Option<Owner> {
        if me().uid != 0 {
            eprintln!("skipped: needs root");
            return None;
        }
        Some(Owner::of(SOMEBODY, SOMEBODY))
    }

    fn message<T>(result: Result<T>) -> String {
        format!("{:#}", result.err().expect("this must be refused"))
    }

    #[test]
    fn the_invoking_user_is_who_called_sudo() {
        let ids = |owner: Owner| (owner.uid, owner.gid);
        assert_eq!(ids(invoking_of(0, 0, Some(1000), Some(1001))), (1000, 1001));
        assert_eq!(ids(invoking_of(0, 0, Some(1000), None)), (0, 0));
        assert_eq!(ids(invoking_of(0, 0, None, None)), (0, 0));
        assert_eq!(ids(invoking_of(0, 0, Some(u32::MAX), Some(0))), (0, 0));
        assert_eq!(ids(invoking_of(7, 8, Some(0), Some(0))), (7, 8));
    }

    #[test]
    fn users_are_looked_up() {
        let root = User::lookup("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups().contains(&0));
        assert_eq!(User::by_uid(0).unwrap().name, "root");
        assert_eq!(message(User::lookup("no-such-user")), "unknown user no-such-user");
        assert!(User::by_uid(SOMEBODY).is_none());
    }

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

    #[test]
    fn files_belong_to_the_owner_and_permissions_count() {
        let Some(owner) = somebody() else { return };
        let scratch = tempfile::tempdir().unwrap();
        let open = scratch.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();

        let refused = scratch.path().join("refused");
        assert_eq!(
            message(OutputDir::create(owner.clone(), &refused, false)),
            format!("cannot create output directory {}: Permission denied", refused.display())
        );

        let out = OutputDir::create(owner.clone(), open.join("out"), false).unwrap();
        drop(out.create_file("events.bin").unwrap());
        for path in [out.path().to_owned(), out.path().join("events.bin")] {
            let found = fs::symlink_metadata(path).unwrap();
            assert_eq!((found.uid(), found.gid()), (SOMEBODY, SOMEBODY));
        }
        OutputDir::create(owner.clone(), open.join("out"), true).unwrap();

        // A directory of another user, and a link planted in the middle of the path.
        let foreign = open.join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o777)).unwrap();
        let text = message(OutputDir::create(owner.clone(), &foreign, true));
        assert!(text.ends_with("belongs to uid 0, not to uid 54321"), "{text}");
        symlink(scratch.path(), open.join("link")).unwrap();
        let text = message(OutputDir::create(owner, open.join("link/out"), false));
        assert!(text.ends_with("Permission denied"), "{text}");
    }

    #[test]
    fn an_existing_directory_needs_force_and_must_be_a_capture() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        let shown = path.display();
        let out = OutputDir::create(me(), &path, false).unwrap();
        assert_eq!(
            message(OutputDir::create(me(), &path, false)),
            format!("{shown} exists; use --force to overwrite the capture in it")
        );
        out.create_file("events.bin").unwrap();
        out.create_file("manifest.json.tmp").unwrap();
        let out = OutputDir::create(me(), &path, true).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);

        out.create_file("events.bin").unwrap();
        fs::write(path.join("thesis.tex"), "").unwrap();
        assert_eq!(
            message(OutputDir::create(me(), &path, true)),
            format!("{shown} holds thesis.tex, which is not part of a capture; not overwriting it")
        );
        assert!(path.join("events.bin").exists());
    }

    #[test]
    fn other_kinds_of_files_are_refused_as_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().join("real");
        fs::create_dir(&real).unwrap();
        let link = scratch.path().join("link");
        symlink(&real, &link).unwrap();
        for path in [link.clone(), link.join(""), link.join(".")] {
            for result in
                [OutputDir::create(me(), &path, true), OutputDir::open(me(), &path)].map(message)
            {
                let expected =
                    format!("{} is a symbolic link; name the directory itself", link.display());
                assert_eq!(result, expected);
            }
        }
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(
            message(OutputDir::create(me(), &file, true)),
            format!("{} exists and is not a directory", file.display())
        );
        assert_eq!(
            message(OutputDir::open(me(), scratch.path().join("none"))),
            format!(
                "cannot open capture {}/none: No such file or directory",
                scratch.path().display()
            )
        );
        assert!(OutputDir::create(me(), "", false).is_err());
    }

    #[test]
    fn files_are_created_replaced_and_read() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        let out = OutputDir::create(me(), &path, false).unwrap();
        out.create_file("manifest.json").unwrap().write_all(b"old").unwrap();
        assert!(message(out.create_file("manifest.json")).ends_with("File exists"));
        out.create_file("manifest.json.tmp").unwrap().write_all(b"new").unwrap();
        out.replace_file("manifest.json", "manifest.json.tmp").unwrap();

        // The open directory counts, not what its path has become.
        fs::rename(&path, scratch.path().join("moved")).unwrap();
        fs::create_dir(&path).unwrap();
        let mut text = String::new();
        OutputDir::open(me(), scratch.path().join("moved")).unwrap();
        out.open_file("manifest.json").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "new");
        out.remove_file("manifest.json").unwrap();
        out.remove_file("manifest.json").unwrap();
        assert!(out.replace_file("manifest.json", "manifest.json.tmp").is_err());
        for name in ["", ".", "..", "a/b", "/etc/passwd"] {
            assert!(out.create_file(name).is_err());
        }
    }

    #[test]
    fn links_and_special_files_are_not_opened() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        let out = OutputDir::create(me(), &path, false).unwrap();
        symlink("/etc/passwd", path.join("events.bin")).unwrap();
        assert_eq!(
            message(out.open_file("events.bin")),
            format!("cannot open {}/events.bin: it is a symbolic link", path.display())
        );
        symlink(scratch.path().join("planted"), path.join("manifest.json")).unwrap();
        assert!(out.create_file("manifest.json").is_err());
        assert!(!scratch.path().join("planted").exists());
        let fifo = CString::new(path.join("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a C string that lives through the call.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        assert!(message(out.open_file("fifo")).ends_with("it is not a regular file"));
    }
}
