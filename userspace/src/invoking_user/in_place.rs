//! Writes a single file completely or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{anyhow, bail, Context, Result};

use super::{reason, OutputDir, Owner};

/// Writes a file as the user who invoked us, in one step: a previous file stays until the new one is complete. Returns
/// the result of `write` and the size of the file in bytes. Only its owner can read the file, unless its contents are
/// `shared`.
///
/// # Errors
/// The user may not write it; it is a symbolic link or not a regular file; `write` fails. No partly written file is
/// left.
pub fn in_place<T>(
    file: &Path,
    shared: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<(T, u64)> {
    let shown = file.display();
    let owner = Owner::invoking();
    let name = file.file_name().ok_or_else(|| anyhow!("{shown} is no name of a file"))?.to_owned();
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = owner
        .run(|| fs::canonicalize(parent))?
        .map_err(|error| anyhow!("cannot write {shown}: {}", reason(&error)))?;
    // Replacing a device, or the file that a link points to, is never intended.
    match owner.run(|| fs::symlink_metadata(parent.join(&name)))? {
        Ok(found) if found.is_symlink() => bail!("{shown} is a symbolic link"),
        Ok(found) if !found.is_file() => bail!("{shown} exists and is no regular file"),
        _ => {}
    }
    let dir = OutputDir::open(owner, &parent)?;
    let mut tmp = OsString::from(".");
    tmp.push(&name);
    tmp.push(format!(".{}.tmp", std::process::id()));
    let written = || -> Result<(T, u64)> {
        let file: File = dir.create_file(&tmp)?;
        file.set_permissions(fs::Permissions::from_mode(if shared { 0o644 } else { 0o600 }))?;
        let mut out = BufWriter::new(&file);
        let told = write(&mut out)?;
        out.flush()?;
        drop(out);
        dir.replace_file(&name, &tmp)?;
        Ok((told, file.metadata()?.len()))
    };
    let result = written();
    if result.is_err() {
        // Usually the file does not exist.
        let _ = dir.remove_file(&tmp);
    }
    result.with_context(|| format!("cannot write {shown}"))
}
