//! `rpcprobe report DIR...`

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;

use super::{gathered, page};
use crate::attribute::{REQUESTS, SEGMENTS, THREADS};
use crate::capture::manifest::Manifest;
use crate::cli::ReportArgs;
use crate::engine::ownership::ledger::Account;
use crate::invoking_user::{OutputDir, Sharing};
use crate::output;
use crate::progress::{Progress, Work};
use crate::report::{
    self, Adder, Contents, Facts, GroupBy, Outlines, ProbeThreads, Programs, Query, Reported,
    Survey,
};

pub fn report(args: ReportArgs) -> Result<i32> {
    let query = Query { filter: args.filter.into(), by: args.by };
    if args.html.is_some() || args.open {
        let wanted = page::Wanted { file: args.html, open: args.open };
        return page::write(&args.dirs, query, wanted);
    }
    let captures = gathered::open(&args.dirs)?;
    let together: Vec<Vec<Capture>> = match query.by {
        Some(GroupBy::Label) => vec![captures],
        _ => captures.into_iter().map(|capture| vec![capture]).collect(),
    };
    let stdout = std::io::stdout();
    let shown = Shown { all: args.all, json: args.json, style: super::style(&stdout) };
    write(&mut BufWriter::new(stdout.lock()), &together, &query, shown)?;
    Ok(0)
}

/// How reports are written.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    pub all: bool,
    pub json: bool,
    pub style: report::Style,
}

/// A capture and the paths of its tables.
pub struct Capture {
    pub directory: PathBuf,
    pub manifest: Manifest,
    pub requests: PathBuf,
    pub segments: PathBuf,
    threads: PathBuf,
    /// Whether every user of the machine may read the capture.
    pub is_shared: bool,
}

impl Capture {
    /// # Errors
    /// The capture is not finished, not attributed, or of another version.
    pub fn of(dir: &OutputDir) -> Result<Capture> {
        Ok(Capture {
            directory: dir.path().to_owned(),
            is_shared: dir.sharing() == Sharing::Shared,
            manifest: super::manifest(dir)?,
            requests: super::table(dir, REQUESTS)?,
            segments: super::table(dir, SEGMENTS)?,
            threads: dir.path().join(THREADS),
        })
    }

    /// Returns what a report must know about the capture itself.
    ///
    /// # Errors
    /// The ledger is damaged or of another format.
    pub fn facts(&self) -> Result<Facts> {
        let labels = self.manifest.labels.iter();
        let labels: Vec<_> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        Ok(Facts {
            start_ns: self.manifest.start_ns,
            duration_ns: self.manifest.duration_ns,
            label: (!labels.is_empty()).then(|| labels.join(", ")),
            probe: ProbeThreads::of(&self.manifest),
            programs: Programs::of(&accounts(std::slice::from_ref(self))?),
        })
    }
}

/// Writes reports: one for each list of captures. The captures of a list are added up.
///
/// # Errors
/// When a table cannot be read, or `out` cannot be written.
pub fn write(
    out: &mut dyn Write,
    together: &[Vec<Capture>],
    query: &Query,
    shown: Shown,
) -> Result<()> {
    let mut values = Vec::new();
    for (i, captures) in together.iter().enumerate() {
        let breakdown = added_up(captures, query)?;
        let nothing = breakdown.passing == 0 && !query.filter.is_empty();
        let contents = if nothing { Some(contents(captures)?) } else { None };
        let manifests = captures.iter().map(|capture| &capture.manifest).collect();
        let (breakdown, contents) = (&breakdown, contents.as_ref());
        let accounts = if query.filter.is_empty() { accounts(captures)? } else { Vec::new() };
        let of = Reported { manifests, query, breakdown, contents, accounts: &accounts };
        if shown.json {
            values.push(report::report_value(&of)?);
        } else {
            if i > 0 {
                writeln!(out)?;
            }
            report::report(out, &of, shown.all, shown.style)?;
        }
    }
    if shown.json {
        report::reports_json(out, values)?;
    }
    Ok(out.flush()?)
}

fn added_up(captures: &[Capture], query: &Query) -> Result<report::Breakdown> {
    let mut survey = Survey::new(query, outlines(captures)?);
    for capture in captures {
        survey.capture(output::stream_requests(&capture.requests)?, &capture.facts()?)?;
    }
    let mut adder = Adder::new(query, survey.finish());
    let whole = captures.iter().map(|capture| capture.manifest.counts.requests);
    let progress = Progress::of(Work::AddingUp, whole.fold(0, u64::saturating_add), true);
    for capture in captures {
        let rows = progress.each(output::stream_requests(&capture.requests)?);
        let segments = output::stream_segments(&capture.segments)?;
        adder.capture(rows, segments, capture.facts()?)?;
    }
    Ok(adder.finish())
}

/// Reads what must be known about all requests of these captures before the first one is added up.
///
/// # Errors
/// A table is damaged or of another format.
pub fn outlines(captures: &[Capture]) -> Result<Outlines> {
    let mut outlines = Outlines::default();
    for capture in captures {
        outlines.capture(output::stream_outlines(&capture.requests)?)?;
    }
    Ok(outlines)
}

/// Reads the ledgers. Captures that are older than the ledger have none.
pub fn accounts(captures: &[Capture]) -> Result<Vec<Account>> {
    let mut accounts = Vec::new();
    for threads in captures.iter().map(|capture| &capture.threads) {
        if threads.exists() {
            accounts.extend(output::read_threads(threads)?);
        }
    }
    Ok(accounts)
}

fn contents(captures: &[Capture]) -> Result<Contents> {
    let mut contents = Contents::default();
    for capture in captures {
        let rows = output::stream_requests(&capture.requests)?;
        contents.capture(rows, capture.manifest.start_ns)?;
    }
    Ok(contents)
}
