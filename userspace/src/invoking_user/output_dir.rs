//! The directory of a capture.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Result};

use super::{reason, Owner};

/// The files of a capture, beginning with the one that makes it complete. Each can also exist with `.tmp` appended
/// while it is being written.
pub const CAPTURE_FILES: [&str; 7] = [
    "manifest.json",
    "events.bin",
    "requests.parquet",
    "segments.parquet",
    "stacks.parquet",
    "threads.parquet",
    "symbols.parquet",
];

/// Who may read a capture. A capture reveals paths, URLs and who ran what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Its owner only.
    Private,
    /// Every user of the machine.
    Shared,
}

impl Sharing {
    /// The sharing of an existing capture, from the mode of its directory.
    fn of(directory: &fs::Metadata) -> Sharing {
        match directory.mode() & 0o004 {
            0 => Sharing::Private,
            _ => Sharing::Shared,
        }
    }

    fn directory_mode(self) -> u32 {
        match self {
            Sharing::Private => 0o700,
            Sharing::Shared => 0o755,
        }
    }

    fn file_mode(self) -> u32 {
        match self {
            Sharing::Private => 0o600,
            Sharing::Shared => 0o644,
        }
    }
}

/// The directory of a capture, held open. Whatever happens to its path later, its files are created, read and replaced
/// in this directory, as its [`Owner`].
#[derive(Debug)]
pub struct OutputDir {
    owner: Owner,
    path: PathBuf,
    dir: File,
    sharing: Sharing,
    /// Whether we created the directory, so that we may remove it.
    made: bool,
}

impl OutputDir {
    /// Creates the directory, as `owner`, for a capture that is shared as `sharing` says. Its parent must exist.
    ///
    /// With `force` the directory may exist if it is empty or holds a capture. That capture stays as it is:
    /// [`OutputDir::remove_former`] removes it when it is certain that there will be another.
    ///
    /// # Errors
    ///
    /// `path` exists without `force`, is a symbolic link, belongs to another user, or contains anything other than a
    /// capture; or the owner may not create it.
    pub fn create(
        owner: Owner,
        path: impl AsRef<Path>,
        force: bool,
        sharing: Sharing,
    ) -> Result<OutputDir> {
        let path = trimmed(path.as_ref())?;
        if let Some(made) = OutputDir::make(&owner, &path, sharing)? {
            return Ok(made);
        }
        let dir = owner.try_run(|| {
            refuse_non_directory(&path)?;
            if !force {
                bail!("{} exists; use --force to overwrite the capture in it", path.display());
            }
            open_dir(&path, "output directory")
        })?;
        OutputDir { owner, path, dir, sharing, made: false }.checked()
    }

    /// Creates the first directory of `base`, `base.2`, `base.3` and so on that does not exist.
    ///
    /// # Errors
    ///
    /// The owner may not create it.
    pub fn create_numbered(owner: Owner, base: &str, sharing: Sharing) -> Result<OutputDir> {
        let mut number = 1_u64;
        loop {
            let path = match number {
                1 => PathBuf::from(base),
                _ => PathBuf::from(format!("{base}.{number}")),
            };
            if let Some(made) = OutputDir::make(&owner, &path, sharing)? {
                return Ok(made);
            }
            number += 1;
        }
    }

    /// Creates a directory; `None` if something with that name exists.
    fn make(owner: &Owner, path: &Path, sharing: Sharing) -> Result<Option<OutputDir>> {
        let dir = owner.try_run(|| {
            match DirBuilder::new().mode(sharing.directory_mode()).create(path) {
                Ok(()) => open_dir(path, "output directory").map(Some),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
                Err(error) => {
                    bail!("cannot create output directory {}: {}", path.display(), reason(&error))
                }
            }
        })?;
        let (owner, path) = (owner.clone(), path.to_owned());
        dir.map(|dir| OutputDir { owner, path, dir, sharing, made: true }.checked()).transpose()
    }

    /// Refuses a directory of another user, and one that contains anything other than a capture. A directory that we
    /// created is checked too: in a directory that others may write to, it can have been exchanged before we opened it.
    fn checked(self) -> Result<OutputDir> {
        let shown = self.path.display();
        let found = self
            .dir
            .metadata()
            .map_err(|error| anyhow!("cannot use output directory {shown}: {}", reason(&error)))?;
        if self.owner.uid != 0 && found.uid() != self.owner.uid {
            bail!("{shown} belongs to uid {}, not to uid {}", found.uid(), self.owner.uid);
        }
        for (name, is_dir) in self.entries()? {
            if is_dir || !is_capture_file(&name) {
                bail!(
                    "{shown} holds {}, which is not part of a capture; not overwriting it",
                    name.to_string_lossy()
                );
            }
        }
        Ok(self)
    }

    /// Opens the directory of an existing capture. Files written to it are shared like the directory.
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
        let found = dir.metadata().map_err(|error| {
            anyhow!("cannot use capture {}: {}", path.display(), reason(&error))
        })?;
        Ok(OutputDir { owner, path, dir, sharing: Sharing::of(&found), made: false })
    }

    /// Removes the capture that was here before, and gives the directory the mode of the new one. Files with `.tmp`
    /// appended belong to the new capture and stay. A symbolic link is removed itself, not the file that it points to.
    ///
    /// # Errors
    ///
    /// The owner may not change the mode, or may not remove one of the files. If the first removal fails, all files are
    /// still there. In any case, what is left is not taken for a complete capture unless it is one.
    pub fn remove_former(&self) -> Result<()> {
        let mode = fs::Permissions::from_mode(self.sharing.directory_mode());
        let changed = self.owner.run(|| self.dir.set_permissions(mode))?;
        changed.map_err(|error| {
            anyhow!("cannot change the mode of {}: {}", self.path.display(), reason(&error))
        })?;
        CAPTURE_FILES.iter().try_for_each(|name| self.remove_file(name))
    }

    /// Removes everything of a capture that never began: the files it had started to write, and the directory if
    /// [`OutputDir::create`] created it. Best effort, because there already is a more important error to report.
    pub fn discard(self) {
        for name in CAPTURE_FILES {
            let _ = self.remove_file(format!("{name}.tmp"));
        }
        if self.made {
            // Refused unless empty, so nothing is lost if the directory was exchanged for another.
            let _ = self.owner.run(|| fs::remove_dir(&self.path));
        }
    }

    /// Removes the capture and its directory.
    ///
    /// # Errors
    /// The owner may not remove it, or the directory contains something else.
    pub fn remove_whole(self) -> Result<()> {
        for name in CAPTURE_FILES {
            self.remove_file(format!("{name}.tmp"))?;
        }
        self.remove_former()?;
        let removed = self.owner.run(|| fs::remove_dir(&self.path))?;
        let shown = self.path.display();
        removed.map_err(|error| anyhow!("cannot remove {shown}: {}", reason(&error)))
    }

    /// Path of the directory as given, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Who may read the capture.
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The owner of the files.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Creates a file that must not exist, for writing and reading. Its mode matches the directory's, whatever the
    /// umask.
    ///
    /// # Errors
    ///
    /// The file exists, even as a dangling symbolic link, or the owner may not create it.
    pub fn create_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let file = self.open_at(name.as_ref(), flags).and_then(|file| {
            file.set_permissions(fs::Permissions::from_mode(self.sharing.file_mode()))?;
            Ok(file)
        });
        file.map_err(|error| self.failed("create", name.as_ref(), &error))
    }

    /// Opens a file for reading. It must be a regular file.
    ///
    /// # Errors
    ///
    /// There is no such file, it is of another kind, or the owner may not read it.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<File> {
        // Without O_NONBLOCK, a FIFO in place of the file would make the open wait.
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

    /// Lists the directory: names, and whether each is a directory.
    fn entries(&self) -> Result<Vec<(OsString, bool)>> {
        // Listed through the descriptor, because the path may lead elsewhere by now.
        let listing = format!("/proc/self/fd/{}", self.dir.as_raw_fd());
        let entries = self.owner.run(|| -> io::Result<Vec<_>> {
            fs::read_dir(listing)?
                .map(|entry| entry.and_then(|e| Ok((e.file_name(), e.file_type()?.is_dir()))))
                .collect()
        })?;
        entries.map_err(|error| {
            let why = match fs::symlink_metadata("/proc/self/fd") {
                Ok(_) => reason(&error),
                Err(_) => "/proc is not mounted".to_string(),
            };
            anyhow!("cannot list {}: {why}", self.path.display())
        })
    }

    fn open_at(&self, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
        let name = plain(name)?;
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        const MODE: libc::mode_t = 0o600;
        let fd = self.as_owner(|dir| {
            // SAFETY: the name is a C string that lives through the call.
            unsafe { libc::openat(dir, name.as_ptr(), flags, MODE) }
        })?;
        // SAFETY: the descriptor was just opened and nobody else has it.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes a system call that takes the directory's descriptor, with the owner's credentials.
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

/// Removes from the path what makes the kernel follow a symbolic link in its last component (`x/`, `x/.`).
fn trimmed(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        bail!("the name of the output directory is empty");
    }
    Ok(path.components().collect())
}

/// Returns an error that describes a path that exists but is not a directory.
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

/// Checks that a name stays inside its directory.
fn plain(name: &OsStr) -> io::Result<CString> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    }
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "has a NUL byte"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::{symlink, PermissionsExt};

    use super::super::test_users::{me, message, somebody, SOMEBODY};
    use super::*;

    fn create(owner: Owner, path: impl AsRef<Path>, force: bool) -> Result<OutputDir> {
        OutputDir::create(owner, path, force, Sharing::Private)
    }

    fn mode(path: impl AsRef<Path>) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_capture_is_private_unless_shared_and_stays_so() {
        let scratch = tempfile::tempdir().unwrap();
        for (sharing, modes) in
            [(Sharing::Private, (0o700, 0o600)), (Sharing::Shared, (0o755, 0o644))]
        {
            let path = scratch.path().join(format!("{sharing:?}"));
            let out = OutputDir::create(me(), &path, false, sharing).unwrap();
            drop(out.create_file("events.bin").unwrap());
            assert_eq!((mode(&path), mode(path.join("events.bin"))), modes);
            let again = OutputDir::open(me(), &path).unwrap();
            drop(again.create_file("requests.parquet").unwrap());
            assert_eq!((mode(&path), mode(path.join("requests.parquet"))), modes);
        }
        // The mode changes when the new capture begins, not before.
        let path = scratch.path().join("Shared");
        let private = OutputDir::create(me(), &path, true, Sharing::Private).unwrap();
        drop(private.create_file("events.bin.tmp").unwrap());
        assert_eq!((mode(&path), mode(path.join("events.bin.tmp"))), (0o755, 0o600));
        private.remove_former().unwrap();
        assert_eq!(mode(&path), 0o700);
        let shared = OutputDir::create(me(), &path, true, Sharing::Shared).unwrap();
        shared.remove_former().unwrap();
        assert_eq!(mode(&path), 0o755);
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
            message(create(owner.clone(), &refused, false)),
            format!("cannot create output directory {}: Permission denied", refused.display())
        );

        let out = create(owner.clone(), open.join("out"), false).unwrap();
        drop(out.create_file("events.bin").unwrap());
        for path in [out.path().to_owned(), out.path().join("events.bin")] {
            let found = fs::symlink_metadata(path).unwrap();
            assert_eq!((found.uid(), found.gid()), (SOMEBODY, SOMEBODY));
        }
        create(owner.clone(), open.join("out"), true).unwrap();

        // A directory of another user, and a link planted in the middle of the path.
        let foreign = open.join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o777)).unwrap();
        let text = message(create(owner.clone(), &foreign, true));
        assert!(text.ends_with("belongs to uid 0, not to uid 54321"), "{text}");
        symlink(scratch.path(), open.join("link")).unwrap();
        let text = message(create(owner, open.join("link/out"), false));
        assert!(text.ends_with("Permission denied"), "{text}");
    }

    #[test]
    fn an_existing_directory_needs_force_and_must_be_a_capture() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        let shown = path.display();
        let out = create(me(), &path, false).unwrap();
        assert_eq!(
            message(create(me(), &path, false)),
            format!("{shown} exists; use --force to overwrite the capture in it")
        );
        out.create_file("events.bin").unwrap();
        out.create_file("manifest.json.tmp").unwrap();
        fs::write(path.join("manifest.json"), "old").unwrap();
        let again = create(me(), &path, true).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
        again.remove_former().unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "of the one to come");
        again.discard();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);

        fs::create_dir(path.join("manifest.json")).unwrap();
        assert_eq!(
            message(create(me(), &path, true)),
            format!(
                "{shown} holds manifest.json, which is not part of a capture; not overwriting it"
            )
        );
        fs::remove_dir(path.join("manifest.json")).unwrap();

        out.create_file("events.bin").unwrap();
        fs::write(path.join("thesis.tex"), "").unwrap();
        assert_eq!(
            message(create(me(), &path, true)),
            format!("{shown} holds thesis.tex, which is not part of a capture; not overwriting it")
        );
        assert!(path.join("events.bin").exists());
    }

    #[test]
    fn numbered_directories_take_nothing_that_is_there() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().join("out");
        let name = |out: OutputDir| out.path().file_name().unwrap().to_owned();
        let next =
            || OutputDir::create_numbered(me(), base.to_str().unwrap(), Sharing::Private).unwrap();
        assert_eq!(name(next()), "out");
        fs::write(scratch.path().join("out.2"), "precious").unwrap();
        symlink(scratch.path(), scratch.path().join("out.3")).unwrap();
        assert_eq!(name(next()), "out.4");
        // All at once: each gets its own directory.
        let mut names: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> = (0..8).map(|_| scope.spawn(|| name(next()))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 8);
    }

    #[test]
    fn what_a_planted_link_leads_to_is_not_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, victim) = (scratch.path().join("out"), scratch.path().join("victim"));
        let out = create(me(), &path, false).unwrap();
        fs::write(&victim, "precious").unwrap();
        for name in CAPTURE_FILES {
            symlink(&victim, path.join(name)).unwrap();
        }
        out.remove_former().unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn other_kinds_of_files_are_refused_as_directory() {
        let scratch = tempfile::tempdir().unwrap();
        let real = scratch.path().join("real");
        fs::create_dir(&real).unwrap();
        let link = scratch.path().join("link");
        symlink(&real, &link).unwrap();
        for path in [link.clone(), link.join(""), link.join(".")] {
            for result in [create(me(), &path, true), OutputDir::open(me(), &path)].map(message) {
                let expected =
                    format!("{} is a symbolic link; name the directory itself", link.display());
                assert_eq!(result, expected);
            }
        }
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(
            message(create(me(), &file, true)),
            format!("{} exists and is not a directory", file.display())
        );
        assert_eq!(
            message(OutputDir::open(me(), scratch.path().join("none"))),
            format!(
                "cannot open capture {}/none: No such file or directory",
                scratch.path().display()
            )
        );
        assert!(create(me(), "", false).is_err());
    }

    #[test]
    fn files_are_created_replaced_and_read() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("out");
        let out = create(me(), &path, false).unwrap();
        out.create_file("manifest.json").unwrap().write_all(b"old").unwrap();
        assert!(message(out.create_file("manifest.json")).ends_with("File exists"));
        out.create_file("manifest.json.tmp").unwrap().write_all(b"new").unwrap();
        out.replace_file("manifest.json", "manifest.json.tmp").unwrap();

        // The open directory counts, not what its path now leads to.
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
        let out = create(me(), &path, false).unwrap();
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
