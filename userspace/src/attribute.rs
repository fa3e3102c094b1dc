//! From `events.bin` to the two Parquet files and the figures of the manifest.

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Read};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use crate::capture::manifest::{Loss, Manifest};
use crate::capture::reader::Reader;
use crate::engine::event::{self, Event, What};
use crate::engine::Engine;
use crate::model::{check_conservation, Request, Segment};
use crate::output;
use crate::owner::OutputDir;

pub const EVENTS: &str = "events.bin";
pub const MANIFEST: &str = "manifest.json";
pub const REQUESTS: &str = "requests.parquet";
pub const SEGMENTS: &str = "segments.parquet";

/// Attributes the events in `dir`, brings `manifest` up to date, and replaces the Parquet files and
/// `manifest.json`: all three or none, so that they agree.
///
/// # Errors
/// Damaged or truncated events, naming the file and where; files that cannot be written. The
/// former files then stay as they were.
pub fn attribute(dir: &OutputDir, manifest: &mut Manifest, allow_truncated: bool) -> Result<()> {
    let events = dir.open_file(EVENTS)?;
    let size_bytes = events.metadata().map_or(0, |metadata| metadata.len());
    let progress = progress(size_bytes);
    let input = BufReader::with_capacity(1 << 20, progress.wrap_read(events));
    let written = write_tables(dir, manifest, input, allow_truncated);
    progress.finish_and_clear();
    let names = [MANIFEST, REQUESTS, SEGMENTS];
    // The manifest first: tables that are missing are noticed, figures that are missing are not.
    keep(dir, &names, written.and_then(|()| write_json(dir, manifest)))
}

/// Writes `manifest.json` whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_manifest(dir: &OutputDir, manifest: &Manifest) -> Result<()> {
    keep(dir, &[MANIFEST], write_json(dir, manifest))
}

/// Puts files in place if all of them could be written, and leaves nothing of them otherwise.
fn keep(dir: &OutputDir, names: &[&str], written: Result<()>) -> Result<()> {
    let kept =
        written.and_then(|()| names.iter().try_for_each(|name| dir.replace_file(name, tmp(name))));
    if kept.is_err() {
        for name in names {
            let _ = dir.remove_file(tmp(name));
        }
    }
    kept
}

fn write_json(dir: &OutputDir, manifest: &Manifest) -> Result<()> {
    use std::io::Write;
    let file = create_tmp(dir, MANIFEST)?;
    let write = || -> Result<()> {
        let mut out = BufWriter::new(file);
        serde_json::to_writer_pretty(&mut out, manifest)?;
        writeln!(out)?;
        Ok(out.into_inner().map_err(|error| error.into_error())?.sync_data()?)
    };
    write().with_context(|| format!("cannot write {}", dir.path().join(MANIFEST).display()))
}

/// A file to be put in place by [`keep`]; what an interrupted run has left of it is removed.
fn create_tmp(dir: &OutputDir, name: &str) -> Result<File> {
    let _ = dir.remove_file(tmp(name));
    dir.create_file(tmp(name))
}

/// The name of a file of the capture while it is being written.
pub(crate) fn tmp(name: &str) -> String {
    format!("{name}.tmp")
}

/// A bar on a terminal, drawn only when the work takes its time.
fn progress(size_bytes: u64) -> ProgressBar {
    if size_bytes < 16 << 20 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(
        "attributing {bar:30} {percent} % of {total_bytes}, {eta} left",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(size_bytes).with_style(style)
}

fn write_tables(
    dir: &OutputDir,
    manifest: &mut Manifest,
    input: impl Read,
    allow_truncated: bool,
) -> Result<()> {
    let unwritten = || format!("cannot write the tables of {}", dir.path().display());
    let files = [create_tmp(dir, REQUESTS)?, create_tmp(dir, SEGMENTS)?];
    let [requests, segments] = [files[0].try_clone()?, files[1].try_clone()?].map(BufWriter::new);
    let mut writer = output::Writer::new(requests, segments).with_context(unwritten)?;
    let mut failure = None;

    let counts = &mut manifest.counts;
    counts.requests = 0;
    counts.requests_incomplete = 0;
    counts.requests_by_kind.clear();
    let mut sink = |request: &Request, segments: &[Segment]| -> Result<()> {
        if let Err(fault) = check_conservation(request, segments) {
            anyhow::bail!("internal error, law of conservation broken: {fault}");
        }
        counts.requests += 1;
        counts.requests_incomplete += u64::from(!request.complete);
        *counts.requests_by_kind.entry(request.kind.name().into()).or_default() += 1;
        writer.push(request, segments).map_err(|error| {
            failure = Some(error);
            anyhow::anyhow!("the pass ends here")
        })
    };
    let events = dir.path().join(EVENTS);
    let given = Given {
        copy_ns_per_byte: manifest.calibration.copy_ns_per_byte,
        losses: &manifest.losses,
        whole_machine: manifest.options.scope == "machine",
        target_pid: Some(manifest.command.pid).filter(|pid| *pid != 0),
        allow_truncated,
    };
    let passed = pass(input, &given, &mut sink);
    // What cannot be written is no fault of the events.
    if let Some(failure) = failure {
        return Err(failure).with_context(unwritten);
    }
    let tally = passed.with_context(|| events.display().to_string())?;
    writer.finish().with_context(unwritten)?;
    // Some file systems find out only now that there is no room.
    files.iter().try_for_each(File::sync_data).with_context(unwritten)?;

    counts.records = tally.records;
    counts.records_late = tally.late;
    counts.switches_missed = tally.switches_missed;
    counts.syscalls = tally.syscalls;
    counts.switches = tally.switches;
    counts.wakings = tally.wakings;
    counts.faults = tally.faults;
    counts.interrupts = tally.interrupts;
    for loss in tally.losses {
        if !manifest.losses.contains(&loss) {
            manifest.losses.push(loss);
        }
    }
    counts.records_lost = manifest.losses.iter().map(|loss| loss.count).sum();
    let cut = "the events break off at byte ";
    manifest.warnings.retain(|warning| !warning.starts_with(cut));
    if let Some(offset) = tally.truncated_at {
        manifest.warnings.push(format!("{cut}{offset}: what came later is missing"));
    }
    Ok(())
}

/// What one pass over the events counted.
#[derive(Debug, Default)]
pub struct Tally {
    pub records: u64,
    pub late: u64,
    pub switches_missed: u64,
    pub syscalls: u64,
    pub switches: u64,
    pub wakings: u64,
    pub faults: u64,
    pub interrupts: u64,
    pub losses: Vec<Loss>,
    pub truncated_at: Option<u64>,
}

/// What a pass is told beforehand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// The calibrated rate behind modelled copies.
    pub copy_ns_per_byte: f64,
    /// Losses already known: a loss is told of by a later record, when the requests it touches may
    /// have been judged.
    pub losses: &'a [Loss],
    /// All context switches were recorded, not only those of traced threads.
    pub whole_machine: bool,
    /// The target, which was released when the capture began; needed if its first records are lost.
    pub target_pid: Option<u32>,
    pub allow_truncated: bool,
}

/// The losses that the records tell of.
///
/// # Errors
/// Damaged input.
pub fn losses(input: impl Read, allow_truncated: bool) -> Result<Vec<Loss>> {
    let mut reader = Reader::new(input, allow_truncated)?;
    let mut losses = Vec::new();
    while let Some(item) = reader.next_record()? {
        if let Some(Event { cpu, what: What::Lost { count, first_ns, last_ns }, .. }) =
            event::decode(item.cpu, &item.record)?
        {
            losses.push(Loss { cpu, count, first_ns, last_ns });
        }
    }
    Ok(losses)
}

/// Reads events and hands every explained request to `sink`.
///
/// # Errors
/// Damaged or truncated input, or whatever `sink` returns.
pub fn pass(
    input: impl Read,
    given: &Given<'_>,
    sink: &mut impl FnMut(&Request, &[Segment]) -> Result<()>,
) -> Result<Tally> {
    let mut reader = Reader::new(input, given.allow_truncated)?;
    let header = reader.header;
    let mut engine = Engine::new(header.cpus, header.start_ns, given.copy_ns_per_byte);
    engine.world.losses = given.losses.to_vec();
    engine.world.whole_machine = given.whole_machine;
    if let Some(pid) = given.target_pid {
        engine.expect_target(pid);
    }
    let mut tally = Tally::default();
    while let Some(item) = reader.next_record()? {
        let Some(event) = event::decode(item.cpu, &item.record)? else { continue };
        match &event.what {
            What::Call { .. } => tally.syscalls += 1,
            What::Fault { .. } => tally.faults += 1,
            What::Irq { .. } => tally.interrupts += 1,
            What::Switch { prev, next, .. } => {
                let traced = |tid| engine.world.is_traced_tid(tid);
                tally.switches += u64::from(traced(*prev)) + u64::from(traced(*next));
            }
            What::Waking { waker, .. } => {
                tally.wakings += u64::from(engine.world.is_traced_tid(*waker));
            }
            What::Lost { count, first_ns, last_ns } => tally.losses.push(Loss {
                cpu: event.cpu,
                count: *count,
                first_ns: *first_ns,
                last_ns: *last_ns,
            }),
            _ => {}
        }
        engine.push(&event, sink)?;
    }
    engine.finish(reader.end_ns(), sink)?;
    // A traced thread's absence from the CPU is two switches, out and in.
    tally.switches /= 2;
    tally.records = reader.records;
    tally.late = reader.late;
    tally.switches_missed = engine.world.missed_switches;
    tally.truncated_at = reader.truncated_at;
    Ok(tally)
}
