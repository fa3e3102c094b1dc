//! `rpcprobe report DIR... --html FILE`

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{anyhow, bail, Context, Result};

use super::complain;
use super::gathered::{self, Figures};
use super::sides;
use crate::invoking_user::{OutputDir, Owner};
use crate::page::{self, Page, Side};
use crate::report::Query;

/// Where the page goes, and whether it is opened.
pub struct Wanted {
    pub file: Option<PathBuf>,
    pub open: bool,
}

pub fn write(dirs: &[PathBuf], query: Query, wanted: Wanted) -> Result<i32> {
    let sides = sides::of(dirs, &query.filter)?;
    let (names, figures): (&[&str], Vec<Figures>) = match &sides {
        None => (&[""], vec![Figures::of(gathered::open(dirs)?, query)?]),
        Some(sides) => {
            let of = |dirs: &[PathBuf]| Figures::of(gathered::open(dirs)?, query.clone());
            (&["A", "B"], vec![of(&sides.a)?, of(&sides.b)?])
        }
    };
    let file = wanted.file.unwrap_or_else(|| beside(dirs, &figures[0]));
    let page = Page {
        sides: figures
            .iter()
            .zip(names)
            .map(|(of, name)| Side {
                name,
                reported: of.reported(),
                gathered: &of.gathered,
                directories: of.directories(),
            })
            .collect(),
        compared: sides.map(|sides| sides::compared(&sides.comparison)).transpose()?,
        command: command(),
    };
    let shared = figures.iter().flat_map(|of| &of.captures).all(|capture| capture.is_shared);
    let bytes = in_place(&file, shared, &|out| page::write(out, &page))?;
    complain(&format_args!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6));
    if wanted.open {
        open(&file)?;
    }
    Ok(0)
}

/// `rpcprobe.out.html` beside `rpcprobe.out`: the first directory that was named, or else the one that was found.
fn beside(dirs: &[PathBuf], figures: &Figures) -> PathBuf {
    let found = &figures.captures[0].directory;
    // Without a slash at its end.
    let dir: PathBuf = dirs.first().unwrap_or(found).components().collect();
    let mut name = dir.into_os_string();
    name.push(".html");
    PathBuf::from(name)
}

/// As it was given, to be told in the page.
fn command() -> String {
    let words: Vec<String> = std::env::args_os()
        .enumerate()
        .map(|(i, word)| match i {
            0 => "rpcprobe".to_owned(),
            _ => word.to_string_lossy().into_owned(),
        })
        .collect();
    words.join(" ")
}

/// Writes a file as the user who invoked us, in one step: what was there before stays until the new one is whole. How
/// many bytes it has. It is for its owner only, unless what it tells of is `shared`.
///
/// # Errors
/// The user may not; it is a symbolic link or no regular file; `write` fails. Nothing is left half written.
fn in_place(
    file: &Path,
    shared: bool,
    write: &dyn Fn(&mut dyn Write) -> Result<()>,
) -> Result<u64> {
    let shown = file.display();
    let owner = Owner::invoking();
    let name = file.file_name().ok_or_else(|| anyhow!("{shown} is no name of a file"))?.to_owned();
    let parent = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = owner.run(|| fs::canonicalize(parent))?.map_err(|error| {
        anyhow!("cannot write {shown}: {}", crate::invoking_user::reason(&error))
    })?;
    // To put a file in place of a device, or of what a link leads to, is never what is meant.
    match owner.run(|| fs::symlink_metadata(parent.join(&name)))? {
        Ok(found) if found.is_symlink() => bail!("{shown} is a symbolic link"),
        Ok(found) if !found.is_file() => bail!("{shown} exists and is no regular file"),
        _ => {}
    }
    let dir = OutputDir::open(owner, &parent)?;
    let mut tmp = std::ffi::OsString::from(".");
    tmp.push(&name);
    tmp.push(format!(".{}.tmp", std::process::id()));
    let written = || -> Result<u64> {
        let file: File = dir.create_file(&tmp)?;
        file.set_permissions(fs::Permissions::from_mode(if shared { 0o644 } else { 0o600 }))?;
        let mut out = BufWriter::new(&file);
        write(&mut out)?;
        out.flush()?;
        drop(out);
        dir.replace_file(&name, &tmp)?;
        Ok(file.metadata()?.len())
    };
    let result = written();
    if result.is_err() {
        // Most often it is not there.
        let _ = dir.remove_file(&tmp);
    }
    result.with_context(|| format!("cannot write {shown}"))
}

/// Shows a page in the user's browser.
fn open(file: &Path) -> Result<()> {
    let owner = Owner::invoking();
    let mut command = Command::new("xdg-open");
    command.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: only returns an id.
    if unsafe { libc::getuid() } != owner.uid {
        command.gid(owner.gid).uid(owner.uid);
    }
    let status = command
        .status()
        .with_context(|| format!("cannot run xdg-open; open {} in a browser", file.display()))?;
    if !status.success() {
        bail!("xdg-open found no browser; open {} in one", file.display());
    }
    Ok(())
}
