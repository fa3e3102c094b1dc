//! One function per command. Each returns the process's exit status.

mod ab;
mod attach;
mod attribute;
mod diff;
mod directory;
mod doctor;
mod explain;
mod export;
mod figure;
mod gathered;
mod generate;
mod page;
mod report;
mod request_ids;
mod requests;
mod run;
mod runs;
mod sides;
mod usage;
mod whatif;

use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{bail, Context, Result};

use crate::attribute::MANIFEST;
use crate::capture::manifest::{Manifest, FORMAT_VERSION};
use crate::cli::Command;
use crate::compare::{self, Comparison};
use crate::interrupt::Interrupted;
use crate::invoking_user::OutputDir;
use crate::report as reports;
use crate::report::Style;
use usage::{usage, Usage};

/// Runs a command.
///
/// # Errors
/// An error to be printed as one line; the exit status is then [`exit_code`].
pub fn dispatch(command: Command) -> Result<i32> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Attach(args) => attach::attach(args),
        Command::Report(args) => report::report(args),
        Command::Requests(args) => requests::requests(args),
        Command::Explain(args) => explain::explain(args),
        Command::Figure(args) => figure::figure(args),
        Command::Export(args) => export::export(args),
        Command::Attribute(args) => attribute::attribute(args),
        Command::Ab(args) => ab::ab(args),
        Command::Diff(args) => diff::diff(args),
        Command::Whatif(args) => whatif::whatif(args),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Generate(args) => generate::generate(&args),
    }
}

/// The process's exit status after an error.
pub fn exit_code(error: &anyhow::Error) -> i32 {
    match (error.downcast_ref::<Interrupted>(), error.is::<Usage>()) {
        (Some(interrupted), _) => interrupted.exit_code(),
        (None, true) => Usage::EXIT_CODE,
        (None, false) => 1,
    }
}

/// Writes one line to standard error. Unlike `eprintln!` it does not panic if writing fails, for
/// example after a terminal has hung up.
pub fn complain(what: &dyn std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "rpcprobe: {what}");
}

/// Reads the manifest of a capture.
///
/// # Errors
/// It is missing, damaged, or of another version.
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

/// Returns the path of one of the capture's tables.
///
/// # Errors
/// The table does not exist: the capture has not been attributed yet.
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

/// Prints the report of a capture.
fn print_report(
    stream: impl Write + IsTerminal + std::os::fd::AsFd,
    dir: &OutputDir,
    json: bool,
) -> Result<()> {
    let capture = report::Capture::of(dir)?;
    let shown = report::Shown { all: false, json, style: style(&stream) };
    report::write(&mut BufWriter::new(stream), &[vec![capture]], &reports::Query::default(), shown)
}

/// Prints a value as JSON, followed by a line end.
fn print_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    Ok(writeln!(out)?)
}

/// Prints a comparison to standard output.
fn print_comparison(comparison: &Comparison, all: bool, json: bool) -> Result<()> {
    let stdout = std::io::stdout();
    let style = style(&stdout);
    let mut out = BufWriter::new(stdout.lock());
    match json {
        true => print_json(&mut out, comparison)?,
        false => compare::write(&mut out, comparison, all, style)?,
    }
    Ok(out.flush()?)
}

/// Splits the words at the `---` between two sides.
///
/// # Errors
/// There is no `---`, more than one, or nothing before or after it.
fn two_sides(words: &[OsString]) -> Result<(Vec<&OsStr>, Vec<&OsStr>)> {
    let sides: Vec<Vec<&OsStr>> = words
        .split(|word| word == "---")
        .map(|side| side.iter().map(OsString::as_os_str).collect())
        .collect();
    match <[Vec<&OsStr>; 2]>::try_from(sides) {
        Ok([a, b]) if !a.is_empty() && !b.is_empty() => Ok((a, b)),
        Ok(_) => bail!("nothing stands on one side of the `---`"),
        Err(sides) if sides.len() < 2 => bail!("A and B need `---` between them: -- A... --- B..."),
        Err(_) => bail!("more than one `---`: put a command that has one in `sh -c '...'`"),
    }
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
