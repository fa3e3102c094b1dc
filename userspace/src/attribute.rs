//! From `events.bin` to the two Parquet files and the figures of the manifest.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal, Read};
use std::rc::Rc;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use crate::capture::manifest::{Loss, Manifest};
use crate::capture::reader::Reader;
use crate::engine::event::{self, Event, What};
use crate::engine::stacks::Stacks;
use crate::engine::Engine;
use crate::model::{check_conservation, Request, Segment};
use crate::output;
use crate::owner::OutputDir;
use crate::symbols::Symbols;

pub const EVENTS: &str = "events.bin";
pub const MANIFEST: &str = "manifest.json";
pub const REQUESTS: &str = "requests.parquet";
pub const SEGMENTS: &str = "segments.parquet";
pub const STACKS: &str = "stacks.parquet";
pub const SYMBOLS: &str = "symbols.parquet";

/// Attributes the events in `dir`, replaces its Parquet files, and brings `manifest` up to date
/// (in memory; see [`write_manifest`]).
///
/// # Errors
/// Damaged or truncated events, naming the file and where; files that cannot be written. The
/// former Parquet files then stay as they were.
pub fn attribute(dir: &OutputDir, manifest: &mut Manifest, allow_truncated: bool) -> Result<()> {
    let events = dir.open_file(EVENTS)?;
    let size_bytes = events.metadata().map_or(0, |metadata| metadata.len());
    let progress = progress(size_bytes);
    let input = BufReader::with_capacity(1 << 20, progress.wrap_read(events));
    let written = write_tables(dir, manifest, input, allow_truncated);
    progress.finish_and_clear();
    match written {
        Ok(tables) => tables.iter().try_for_each(|name| dir.replace_file(name, tmp(name))),
        Err(error) => {
            for name in [REQUESTS, SEGMENTS, STACKS] {
                let _ = dir.remove_file(tmp(name));
            }
            Err(error)
        }
    }
}

/// Writes `manifest.json` whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_manifest(dir: &OutputDir, manifest: &Manifest) -> Result<()> {
    let name = tmp(MANIFEST);
    let _ = dir.remove_file(&name);
    let file = dir.create_file(&name)?;
    let written = write_json(file, manifest);
    if written.is_err() {
        let _ = dir.remove_file(&name);
    }
    written.with_context(|| format!("cannot write {}", dir.path().join(MANIFEST).display()))?;
    dir.replace_file(MANIFEST, name)
}

fn write_json(file: File, manifest: &Manifest) -> Result<()> {
    use std::io::Write;
    let mut out = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut out, manifest)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

fn tmp(name: &str) -> String {
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

/// Writes the tables under their temporary names; returns which.
fn write_tables(
    dir: &OutputDir,
    manifest: &mut Manifest,
    input: impl Read,
    allow_truncated: bool,
) -> Result<&'static [&'static str]> {
    for name in [REQUESTS, SEGMENTS, STACKS] {
        let _ = dir.remove_file(tmp(name));
    }
    let requests = BufWriter::new(dir.create_file(tmp(REQUESTS))?);
    let segments = BufWriter::new(dir.create_file(tmp(SEGMENTS))?);
    let mut writer = output::Writer::new(requests, segments)?;

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
        writer.push(request, segments)
    };
    let events = dir.path().join(EVENTS);
    // Whatever became of its names, a capture without stacks has none to look for.
    let symbols = match dir.open_file(SYMBOLS) {
        Ok(_) => Rc::new(output::read_symbols(&dir.path().join(SYMBOLS))?),
        Err(_) => Rc::default(),
    };
    let given = Given {
        symbols: Some(&symbols),
        copy_ns_per_byte: manifest.calibration.copy_ns_per_byte,
        losses: &manifest.losses,
        whole_machine: manifest.options.scope == "machine",
        allow_truncated,
    };
    let tally = pass(input, &given, &mut sink).with_context(|| events.display().to_string())?;
    writer.finish()?;

    counts.records = tally.records;
    counts.records_late = tally.late;
    counts.switches_missed = tally.switches_missed;
    counts.syscalls = tally.syscalls;
    counts.switches = tally.switches;
    counts.wakings = tally.wakings;
    counts.faults = tally.faults;
    counts.interrupts = tally.interrupts;
    counts.sleep_stacks = tally.sleep_stacks;
    counts.samples = tally.samples;
    counts.sampling_ns = tally.sampling_ns;
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
    if counts.sleep_stacks + counts.samples == 0 {
        return Ok(&[REQUESTS, SEGMENTS]);
    }
    output::write_stacks(dir.create_file(tmp(STACKS))?, &tally.stacks)?;
    Ok(&[REQUESTS, SEGMENTS, STACKS])
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
    pub sleep_stacks: u64,
    pub samples: u64,
    /// Time in the interrupts that took samples.
    pub sampling_ns: u64,
    /// Those that segments refer to.
    pub stacks: Stacks,
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
    /// Names of what stacks lead to.
    pub symbols: Option<&'a Rc<Symbols>>,
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
    engine.world.stacks.symbols = given.symbols.map(Rc::clone).unwrap_or_default();
    let mut tally = Tally::default();
    let mut sampling = Sampling::default();
    while let Some(item) = reader.next_record()? {
        let Some(event) = event::decode(item.cpu, &item.record)? else { continue };
        match &event.what {
            What::Call { .. } => tally.syscalls += 1,
            What::Fault { .. } => tally.faults += 1,
            What::Irq { enter_ns, hard, .. } => {
                tally.interrupts += 1;
                tally.sampling_ns += sampling.ended(&event, *enter_ns, *hard);
            }
            What::Stack { .. } => tally.sleep_stacks += 1,
            What::Sample { interrupted_ns, .. } => {
                tally.samples += 1;
                sampling.begun.insert(event.cpu, *interrupted_ns);
            }
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
    tally.stacks = std::mem::take(&mut engine.world.stacks);
    Ok(tally)
}

/// Finds the interrupts that took samples: their time is what sampling costs.
#[derive(Default)]
struct Sampling {
    /// By CPU: begin of the interrupt that took its last sample.
    begun: HashMap<u32, u64>,
}

impl Sampling {
    /// Time of an interrupt that ended, if it took a sample.
    fn ended(&mut self, event: &Event, enter_ns: u64, hard: bool) -> u64 {
        match self.begun.get(&event.cpu) {
            Some(&begun_ns) if hard && begun_ns == enter_ns => {
                self.begun.remove(&event.cpu);
                event.ts_ns.saturating_sub(enter_ns)
            }
            _ => 0,
        }
    }
}
