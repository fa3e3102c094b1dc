//! Reads captures for figures.

use std::path::PathBuf;

use anyhow::Result;

use super::report::Capture;
use crate::engine::ownership::ledger::Account;
use crate::figures::{Gather, Gathered, Scan};
use crate::output;
use crate::progress::{Progress, Work};
use crate::report::{Adder, Breakdown, Query, Reported, Survey};

/// The data behind a figure or a page.
pub struct Figures {
    pub captures: Vec<Capture>,
    pub query: Query,
    pub breakdown: Breakdown,
    pub gathered: Gathered,
    accounts: Vec<Account>,
}

impl Figures {
    /// Reads the captures: a few columns of their requests first, then all requests three times, and the segments once.
    ///
    /// # Errors
    /// A table is missing, damaged or of another format.
    pub fn of(captures: Vec<Capture>, query: Query) -> Result<Figures> {
        let rows = |capture: &Capture| output::stream_requests(&capture.requests);
        let mut survey = Survey::new(&query, super::report::outlines(&captures)?);
        for capture in &captures {
            survey.capture(rows(capture)?, &capture.facts()?)?;
        }
        let plan = survey.finish();
        let mut scan = Scan::new(&query, &plan.kinds);
        for capture in &captures {
            scan.capture(rows(capture)?, &capture.facts()?)?;
        }
        let mut gather = Gather::new(scan.finish());
        let mut adder = Adder::new(&query, plan).watched(&mut gather);
        let whole = captures.iter().map(|capture| capture.manifest.counts.requests);
        let progress = Progress::of(Work::AddingUp, whole.fold(0, u64::saturating_add), true);
        for capture in &captures {
            let segments = output::stream_segments(&capture.segments)?;
            adder.capture(progress.each(rows(capture)?), segments, capture.facts()?)?;
        }
        let breakdown = adder.finish();
        let accounts = match query.filter.is_empty() {
            true => super::report::accounts(&captures)?,
            false => Vec::new(),
        };
        let gathered = gather.finish(breakdown.tree.clone());
        Ok(Figures { breakdown, gathered, accounts, captures, query })
    }

    pub fn reported(&self) -> Reported<'_> {
        Reported {
            manifests: self.captures.iter().map(|capture| &capture.manifest).collect(),
            query: &self.query,
            breakdown: &self.breakdown,
            contents: None,
            accounts: &self.accounts,
        }
    }

    pub fn directories(&self) -> Vec<String> {
        let shown = |of: &Capture| of.directory.display().to_string();
        self.captures.iter().map(shown).collect()
    }
}

/// Opens the captures in these directories or, without any, the newest one in the current directory.
///
/// # Errors
/// A capture is missing, not finished or not attributed.
pub fn open(dirs: &[PathBuf]) -> Result<Vec<Capture>> {
    match dirs {
        [] => Ok(vec![Capture::of(&super::directory::open(None)?)?]),
        dirs => dirs.iter().map(|dir| Capture::of(&super::directory::open(Some(dir))?)).collect(),
    }
}
