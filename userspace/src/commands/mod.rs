//! One function a command. Each returns the process's exit status.

mod attach;
mod attribute;
mod doctor;
mod explain;
mod report;
mod requests;
mod run;

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::attribute::{MANIFEST, REQUESTS, SEGMENTS};
use crate::capture::manifest::{Manifest, FORMAT_VERSION};
use crate::cli::Command;
use crate::output;
use crate::owner::{OutputDir, Owner};
use crate::report as reports;
use crate::report::Style;

/// Runs a command.
///
/// # Errors
/// To be printed as one line; the exit status is then 1.
pub fn dispatch(command: Command) -> Result<i32> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Attach(args) => attach::attach(args),
        Command::Report(args) => report::report(args),
        Command::Requests(args) => requests::requests(args),
        Command::Explain(args) => explain::explain(args),
        Command::Attribute(args) => attribute::attribute(args),
        Command::Doctor(args) => doctor::doctor(args),
    }
}

/// Says one line on standard error. Unlike `eprintln!` it does not panic when there is nobody to
/// hear it, as after a terminal has hung up.
pub fn complain(what: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "rpcprobe: {what}");
}

/// An existing capture.
///
/// # Errors
/// No such directory, or it holds no capture.
fn open(path: &Path) -> Result<OutputDir> {
    OutputDir::open(Owner::invoking(), path)
}

/// Its manifest.
///
/// # Errors
/// Missing, damaged, or of another version.
fn manifest(dir: &OutputDir) -> Result<Manifest> {
    let shown = dir.path().join(MANIFEST);
    let file = dir.open_file(MANIFEST).with_context(|| {
        format!("{} is not a finished capture (it has no {MANIFEST})", dir.path().display())
    })?;
    let manifest: Manifest = serde_json::from_reader(std::io::BufReader::new(file))
        .with_context(|| format!("{} is damaged", shown.display()))?;
    if manifest.format_version != FORMAT_VERSION {
        bail!(
            "{}: capture format version {}, this program reads {FORMAT_VERSION}",
            shown.display(),
            manifest.format_version
        );
    }
    Ok(manifest)
}

/// Path of one of its tables.
///
/// # Errors
/// There is none: what was captured is yet to be attributed.
fn table(dir: &OutputDir, name: &str) -> Result<PathBuf> {
    let path = dir.path().join(name);
    if std::fs::symlink_metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        bail!(
            "{} does not exist; `rpcprobe attribute {}` makes it",
            path.display(),
            dir.path().display()
        );
    }
    Ok(path)
}

/// Writes the report of a capture.
fn write_report(out: &mut dyn Write, dir: &OutputDir, json: bool, style: Style) -> Result<()> {
    let manifest = manifest(dir)?;
    let rows = output::stream_requests(&table(dir, REQUESTS)?)?;
    let segments = output::stream_segments(&table(dir, SEGMENTS)?)?;
    let breakdown = reports::breakdown(rows, segments)?;
    if json {
        reports::report_json(out, &manifest, &breakdown)?;
    } else {
        reports::report(out, &manifest, &breakdown, style)?;
    }
    Ok(out.flush()?)
}

/// Style for a stream: colour only on a terminal, and not when NO_COLOR is set.
fn style(stream: &(impl IsTerminal + std::os::fd::AsFd)) -> Style {
    if !stream.is_terminal() {
        return Style::default();
    }
    // SAFETY: all-zero is a valid winsize, and the kernel fills no more than one.
    let size = unsafe {
        use std::os::fd::AsRawFd;
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(stream.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size);
        size
    };
    Style {
        color: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        width: (size.ws_col > 0).then_some(size.ws_col),
    }
}
