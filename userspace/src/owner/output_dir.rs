//! The directory of a capture.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Result};

use super::{reason, Owner};

/// The files of a capture, the one first that makes it whole; each can also exist with `.tmp`
/// appended while it is being written.
pub const CAPTURE_FILES: [&str; 6] = [
    "manifest.json",
    "events.bin",
    "requests.parquet",
    "segments.parquet",
    "stacks.parquet",
    "symbols.parquet",
];

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
    /// With `force` the directory may exist if it is empty or a capture, which stays as it is:
    /// [`OutputDir::remove_former`] makes room when it is sure that there will be another.
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
        for (name, is_dir) in out.entries()? {
            if is_dir || !is_capture_file(&name) {
                bail!(
                    "{shown} holds {}, which is not part of a capture; not overwriting it",
                    name.to_string_lossy()
                );
            }
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

    /// Removes the capture that was here before. Files with `.tmp` appended are of the one to
    /// come. A symbolic link is removed itself, not what it leads to.
    ///
    /// # Errors
    ///
    /// The owner may not remove one of its files. If that is the first, all are still there; in any
    /// case what is left is not taken for a whole capture unless it is one.
    pub fn remove_former(&self) -> Result<()> {
        CAPTURE_FILES.iter().try_for_each(|name| self.remove_file(name))
    }

    /// Leaves nothing behind of a capture that never began: what it had started to write goes, and
    /// the directory if [`OutputDir::create`] made it. Best effort: there is a better error to
    /// report already.
    pub fn discard(self) {
        for name in CAPTURE_FILES {
            let _ = self.remove_file(format!("{name}.tmp"));
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

    /// What the directory holds: names, and whether each is a directory.
    fn entries(&self) -> Result<Vec<(OsString, bool)>> {
        // By way of the descriptor: the path may lead elsewhere by now.
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
    use std::io::{Read, Write};
    use std::os::unix::fs::{symlink, PermissionsExt};

    use super::super::test_users::{me, message, somebody, SOMEBODY};
    use super::*;

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
        fs::write(path.join("manifest.json"), "old").unwrap();
        let again = OutputDir::create(me(), &path, true).unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 3);
        again.remove_former().unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "of the one to come");
        again.discard();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);

        fs::create_dir(path.join("manifest.json")).unwrap();
        assert_eq!(
            message(OutputDir::create(me(), &path, true)),
            format!(
                "{shown} holds manifest.json, which is not part of a capture; not overwriting it"
            )
        );
        fs::remove_dir(path.join("manifest.json")).unwrap();

        out.create_file("events.bin").unwrap();
        fs::write(path.join("thesis.tex"), "").unwrap();
        assert_eq!(
            message(OutputDir::create(me(), &path, true)),
            format!("{shown} holds thesis.tex, which is not part of a capture; not overwriting it")
        );
        assert!(path.join("events.bin").exists());
    }

    #[test]
    fn what_a_planted_link_leads_to_is_not_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, victim) = (scratch.path().join("out"), scratch.path().join("victim"));
        let out = OutputDir::create(me(), &path, false).unwrap();
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
