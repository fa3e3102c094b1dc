//! `rpcprobe diff A B`

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{bail, Result};

use super::{complain, runs};
use crate::capture::manifest::Manifest;
use crate::cli::DiffArgs;
use crate::compare::plan::{self, Plan};
use crate::compare::selector::Selector;
use crate::compare::{compare, Basis, Comparison, Run};
use crate::invoking_user::{OutputDir, Owner};
use crate::report::RequestFilter;

pub fn diff(args: DiffArgs) -> Result<i32> {
    let filter = RequestFilter::from(args.filter);
    let (all, json) = (args.all, args.json);
    let comparison = if !args.sides.is_empty() {
        let (a, b) = super::two_sides(&args.sides)?;
        let paths = |words: &[&OsStr]| words.iter().map(PathBuf::from).collect::<Vec<_>>();
        of_directories(&paths(&a), &paths(&b), &filter)?
    } else if !args.a.is_empty() {
        let side = |conditions| Selector::new(conditions, &filter);
        of_selectors(&args.captures, &side(&args.a), &side(&args.b))?
    } else {
        match &args.captures[..] {
            [a, b] => of_directories(std::slice::from_ref(a), std::slice::from_ref(b), &filter)?,
            [one] => of_ab(one, &filter)?,
            [] => bail!("which captures? `rpcprobe diff BEFORE AFTER` compares two"),
            _ => bail!(
                "which captures are A and which B? `rpcprobe diff -- A... --- B...`, or --a and --b with \
                 a label"
            ),
        }
    };
    super::print_comparison(&comparison, all, json)?;
    Ok(0)
}

fn open(path: &Path) -> Result<(OutputDir, Manifest)> {
    let dir = OutputDir::open(Owner::invoking(), path)?;
    let manifest = super::manifest(&dir)?;
    Ok((dir, manifest))
}

/// The command of a capture, or what it was attached to.
fn what(run: &Run) -> String {
    run.manifest.command.argv.join(" ")
}

fn whats(runs: &[Run]) -> String {
    let different: BTreeSet<String> = runs.iter().map(what).collect();
    match different.len() {
        1 => different.into_iter().next().unwrap_or_default(),
        more => format!("{more} different commands"),
    }
}

pub(super) fn of_directories(
    a: &[PathBuf],
    b: &[PathBuf],
    filter: &RequestFilter,
) -> Result<Comparison> {
    let with_series = a.len() == 1 && b.len() == 1;
    let read = |paths: &[PathBuf]| -> Result<Vec<Run>> {
        let one = |path: &PathBuf| {
            let (dir, manifest) = open(path)?;
            runs::read(&dir, manifest, filter, with_series)
        };
        paths.iter().map(one).collect()
    };
    let (a, b) = (read(a)?, read(b)?);
    if with_series {
        return compare(whats(&a), &a, whats(&b), &b, Basis::OneCaptureEach);
    }
    match neighbours(&a, &b) {
        Some((a, b)) => compare(whats(&a), &a, whats(&b), &b, Basis::Neighbours),
        None => compare(whats(&a), &a, whats(&b), &b, Basis::Unpaired),
    }
}

/// Returns the runs as pairs, if in time order every two runs are one of A and one of B.
fn neighbours(a: &[Run], b: &[Run]) -> Option<(Vec<Run>, Vec<Run>)> {
    let sides = a.iter().map(|run| (run, true)).chain(b.iter().map(|run| (run, false)));
    let mut in_time: Vec<(&Run, bool)> = sides.collect();
    // UTC times in this form sort in time order. Runs with the same time are ordered by the clock,
    // which is the same within one boot.
    in_time.sort_by(|(x, _), (y, _)| {
        let when = |run: &Run| (run.manifest.start_utc.clone(), run.manifest.start_ns);
        when(x).cmp(&when(y))
    });
    let mut pairs = (Vec::new(), Vec::new());
    for pair in in_time.chunks(2) {
        let [(first, first_is_a), (second, second_is_a)] = pair else { return None };
        let (a, b) = match (first_is_a, second_is_a) {
            (true, false) => (first, second),
            (false, true) => (second, first),
            _ => return None,
        };
        pairs.0.push(Run::clone(a));
        pairs.1.push(Run::clone(b));
    }
    Some(pairs)
}

/// Compares groups of requests: each capture contributes to A, to B, or to both.
fn of_selectors(paths: &[PathBuf], a: &Selector, b: &Selector) -> Result<Comparison> {
    if paths.is_empty() {
        bail!("which captures? `rpcprobe diff DIR --a {} --b {}`", a.text(), b.text());
    }
    let opened: Vec<_> = paths.iter().map(|path| open(path)).collect::<Result<_>>()?;
    let taking =
        |side: &Selector| opened.iter().filter(|(_, manifest)| side.takes(manifest)).count();
    let (in_a, in_b) = (taking(a), taking(b));
    for (name, side, count) in [("A", a, in_a), ("B", b, in_b)] {
        if count == 0 {
            bail!("no capture is {name} ({}): none of {} has that label", side.text(), paths.len());
        }
    }
    let with_series = in_a == 1 && in_b == 1;
    let (mut of_a, mut of_b, mut every_one_both) = (Vec::new(), Vec::new(), true);
    for (dir, manifest) in &opened {
        for (side, runs) in [(a, &mut of_a), (b, &mut of_b)] {
            match side.takes(manifest) {
                true => runs.push(runs::read(dir, manifest.clone(), &side.filter, with_series)?),
                false => every_one_both = false,
            }
        }
    }
    let (of_a, of_b, basis) = match (with_series, every_one_both, neighbours(&of_a, &of_b)) {
        (true, ..) => (of_a, of_b, Basis::OneCaptureEach),
        // Two groups of one run form a pair.
        (false, true, _) => (of_a, of_b, Basis::Neighbours),
        (false, false, Some((a, b))) => (a, b, Basis::Neighbours),
        (false, false, None) => (of_a, of_b, Basis::Unpaired),
    };
    compare(a.text().to_owned(), &of_a, b.text().to_owned(), &of_b, basis)
}

/// Compares the captures that `rpcprobe ab` left.
pub(super) fn of_ab(path: &Path, filter: &RequestFilter) -> Result<Comparison> {
    let dir = OutputDir::open(Owner::invoking(), path)?;
    let Some(plan) = plan::read(&dir)? else {
        bail!(
            "{} is one capture, or none: `rpcprobe diff {} OTHER` compares two",
            path.display(),
            path.display()
        );
    };
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let Plan { a: a_command, b: b_command, pairs, .. } = plan;
    let whole = pairs.iter().filter(|pair| pair.is_whole());
    let with_series = whole.clone().count() == 1;
    for pair in whole {
        for (name, runs) in [(&pair.a, &mut a), (&pair.b, &mut b)] {
            let (dir, manifest) = open(&path.join(name))?;
            runs.push(runs::read(&dir, manifest, filter, with_series)?);
        }
    }
    if let Some(left_out) = plan::left_out(&pairs) {
        complain(&left_out);
    }
    compare(a_command.join(" "), &a, b_command.join(" "), &b, plan::basis(a.len()))
}
