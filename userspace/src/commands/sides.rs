//! Two sides beside each other, for a page and for the figures of a comparison.

use std::path::{Path, PathBuf};

use anyhow::{bail, Result};

use super::diff;
use crate::compare::plan;
use crate::compare::{
    in_words, write, Basis, Comparison, KindComparison, PartChange, ShiftPoint, Verdict,
};
use crate::figures::compare::{shift, waterfall, Point, Step};
use crate::invoking_user::{OutputDir, Owner};
use crate::page::{Compared, OfKind};
use crate::report::{RequestFilter, Style};

/// Width of the comparison's text in a page, in columns.
const COLUMNS: u16 = 110;

/// The captures of both sides, and their comparison.
pub struct Sides {
    pub a: Vec<PathBuf>,
    pub b: Vec<PathBuf>,
    pub comparison: Comparison,
}

/// Compares two captures, or the captures in the directory of an `ab`. `None` if at most one
/// directory is given and it is not that of an `ab`.
///
/// # Errors
/// The captures cannot be read or compared, or more than two are given.
pub fn of(dirs: &[PathBuf], filter: &RequestFilter) -> Result<Option<Sides>> {
    match dirs {
        [] => Ok(None),
        [one] => of_ab(one, filter),
        [a, b] => {
            let (a, b) = (vec![a.clone()], vec![b.clone()]);
            let comparison = diff::of_directories(&a, &b, filter)?;
            Ok(Some(Sides { a, b, comparison }))
        }
        _ => bail!(
            "at most two captures can be shown beside each other, or the directory of an `ab`"
        ),
    }
}

fn of_ab(path: &Path, filter: &RequestFilter) -> Result<Option<Sides>> {
    let dir = OutputDir::open(Owner::invoking(), path)?;
    let Some(plan) = plan::read(&dir)? else { return Ok(None) };
    let whole: Vec<_> = plan.pairs.iter().filter(|pair| pair.is_whole()).collect();
    let a = whole.iter().map(|pair| path.join(&pair.a)).collect();
    let b = whole.iter().map(|pair| path.join(&pair.b)).collect();
    Ok(Some(Sides { a, b, comparison: diff::of_ab(path, filter)? }))
}

/// Converts a comparison for a page.
///
/// # Errors
/// Only if memory runs out.
pub fn compared(comparison: &Comparison) -> Result<Compared> {
    let mut text = Vec::new();
    write(&mut text, comparison, false, Style { color: false, width: Some(COLUMNS) })?;
    let figures = |kind: &KindComparison| {
        let shift = (!kind.shift.is_empty()).then(|| shift_of(comparison, kind));
        let waterfall = waterfall_of(comparison, kind);
        OfKind { kind: kind.kind, b_kind: kind.b_kind, shift, waterfall }
    };
    Ok(Compared {
        text: String::from_utf8_lossy(&text).into_owned(),
        verdict: in_words(comparison),
        figures: comparison.kinds.iter().map(figures).collect(),
    })
}

/// Draws the shift function of a kind.
pub fn shift_of(comparison: &Comparison, kind: &KindComparison) -> serde_json::Value {
    let point = |of: &ShiftPoint| Point {
        percent: of.percent,
        a_ns: of.a_ns,
        change_ns: of.change_ns,
        interval_ns: of.interval_ns,
    };
    let points: Vec<Point> = kind.shift.iter().map(point).collect();
    let has_band = points.iter().any(|point| point.interval_ns.is_some());
    let note = match (has_band, comparison.basis) {
        (false, _) => "No band: too few runs or requests for intervals.",
        (true, Basis::OneCaptureEach) => {
            "Band: 95 % for each percentile by itself, within these captures only."
        }
        (true, _) => "Band: 95 % for each percentile by itself, over the pairs of runs.",
    };
    shift(&points, note)
}

/// Draws the change of a kind's mean, category by category.
pub fn waterfall_of(comparison: &Comparison, kind: &KindComparison) -> serde_json::Value {
    let mean = kind.statistics.iter().find(|of| of.statistic.quantile().is_none());
    let Some(mean) = mean else { return waterfall(0, 0, &[], "") };
    let no_verdict = comparison.verdict == Verdict::NoVerdict;
    let step = |part: &PartChange| Step {
        category: part.category,
        side: part.side,
        change_ns: part.change.change_ns,
        interval_ns: part.change.interval_ns,
        modelled: part.modelled,
        verdict: match (part.change.shown, no_verdict) {
            (true, _) => "changed".to_owned(),
            (false, true) => "no verdict".to_owned(),
            (false, false) => "no difference shown".to_owned(),
        },
    };
    let steps: Vec<Step> = mean.parts.iter().map(step).collect();
    let note = "This describes the change; it does not prove a cause.";
    waterfall(mean.total.a_ns, mean.total.b_ns, &steps, note)
}
