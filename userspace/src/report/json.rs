//! The same three reports as JSON: one document each, units in the names of the keys.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::breakdown::Breakdown;
use super::explain::sum;
use super::requests::{is_modelled, Marks, Selection};
use super::stacks::ShownStacks;
use crate::capture::manifest::{Command, Hook, Host, Loss, Manifest, Stacks};
use crate::model::{Category, Evidence, Request, Segment, Taken};
use crate::output::ShownFrame;

#[derive(Serialize)]
struct Report<'a> {
    capture: Capture<'a>,
    #[serde(flatten)]
    breakdown: &'a Breakdown,
}

#[derive(Serialize)]
struct Capture<'a> {
    command: &'a Command,
    host: &'a Host,
    labels: &'a BTreeMap<String, String>,
    start_ns: u64,
    start_utc: &'a str,
    duration_ns: u64,
    scope: &'a str,
    stacks: Option<Stacks>,
    sleep_stacks: u64,
    samples: u64,
    /// The interrupts that took the samples; part of the probe's cost.
    sampling_ns: u64,
    requests: u64,
    requests_incomplete: u64,
    records: u64,
    records_lost: u64,
    records_late: u64,
    losses: &'a [Loss],
    warnings: &'a [String],
    hooks_not_attached: Vec<&'a Hook>,
    /// Events x calibrated cost, over the whole capture.
    probe_cost_estimated_ns: u64,
}

#[derive(Serialize)]
struct Requests<'a> {
    matching: usize,
    in_capture: usize,
    /// Incomplete requests cut off by a limit that may have lasted longer than those listed.
    unlisted_may_belong: usize,
    requests: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    request: &'a Request,
    start_offset_ns: i128,
    /// `false`: matches. `true`: incomplete, and may match.
    may_match: bool,
    /// Categories that apply and have time.
    category_ns: BTreeMap<&'static str, u64>,
    modelled_categories: Vec<&'static str>,
}

#[derive(Serialize)]
struct Explanation<'a> {
    request: &'a Request,
    start_offset_ns: i128,
    segments: Vec<Piece<'a>>,
    sum_ns: u64,
    /// Whether the segments tile the request exactly.
    conserved: bool,
    /// Where they do not.
    fault: Option<String>,
}

#[derive(Serialize)]
struct Piece<'a> {
    seq: usize,
    offset_ns: u64,
    #[serde(flatten)]
    segment: &'a Segment,
    #[serde(skip_serializing_if = "Option::is_none")]
    stack: Option<Stack<'a>>,
}

#[derive(Serialize)]
struct Stack<'a> {
    /// `measured`: the thread went to sleep there; `sampled`: samples found it there.
    evidence: Evidence,
    /// Samples in these functions, of those in the segment.
    samples: Option<u64>,
    samples_in_segment: Option<u64>,
    /// Innermost first.
    frames: &'a [ShownFrame],
}

/// Writes what [`super::report`] shows, as one JSON document.
///
/// # Errors
/// When `out` cannot be written.
pub fn report_json(out: &mut dyn Write, manifest: &Manifest, breakdown: &Breakdown) -> Result<()> {
    let counts = &manifest.counts;
    let capture = Capture {
        command: &manifest.command,
        host: &manifest.host,
        labels: &manifest.labels,
        start_ns: manifest.start_ns,
        start_utc: &manifest.start_utc,
        duration_ns: manifest.duration_ns,
        scope: &manifest.options.scope,
        stacks: manifest.options.stacks,
        sleep_stacks: counts.sleep_stacks,
        samples: counts.samples,
        sampling_ns: counts.sampling_ns,
        requests: breakdown.kinds.iter().map(|kind| kind.requests).sum(),
        requests_incomplete: breakdown.kinds.iter().map(|kind| kind.incomplete).sum(),
        records: counts.records,
        records_lost: counts.records_lost,
        records_late: counts.records_late,
        losses: &manifest.losses,
        warnings: &manifest.warnings,
        hooks_not_attached: manifest.hooks.iter().filter(|h| h.attached_as.is_none()).collect(),
        probe_cost_estimated_ns: manifest.probe_cost_ns(),
    };
    document(out, &Report { capture, breakdown })
}

/// Writes the rows [`super::requests`] lists, as one JSON document.
///
/// # Errors
/// When `out` cannot be written.
pub fn requests_json(
    out: &mut dyn Write,
    manifest: &Manifest,
    selection: &Selection,
    marks: &Marks,
) -> Result<()> {
    let listed = selection.listed.iter().map(|selected| {
        let request = &selected.row.request;
        let sums = Category::ALL.iter().zip(selected.row.category_ns);
        let modelled = |category: &&Category| is_modelled(marks, request.request_id, **category);
        Row {
            request,
            start_offset_ns: offset(request, manifest),
            may_match: selected.uncertain,
            category_ns: sums
                .filter_map(|(category, ns)| Some((category.name(), ns.filter(|ns| *ns > 0)?)))
                .collect(),
            modelled_categories: Category::ALL
                .iter()
                .filter(modelled)
                .map(|category| category.name())
                .collect(),
        }
    });
    document(
        out,
        &Requests {
            matching: selection.matching,
            in_capture: selection.in_capture,
            unlisted_may_belong: selection.may_belong,
            requests: listed.collect(),
        },
    )
}

/// Writes one request and all its segments, as one JSON document.
///
/// # Errors
/// When `out` cannot be written.
pub fn explain_json(
    out: &mut dyn Write,
    manifest: &Manifest,
    request: &Request,
    segments: &[Segment],
    stacks: &ShownStacks,
) -> Result<()> {
    let sum = sum(request, segments);
    let pieces = segments.iter().enumerate().map(|(seq, segment)| Piece {
        seq,
        offset_ns: segment.start_ns.saturating_sub(request.start_ns),
        segment,
        stack: stack(segment, stacks),
    });
    document(
        out,
        &Explanation {
            request,
            start_offset_ns: offset(request, manifest),
            segments: pieces.collect(),
            sum_ns: u64::try_from(sum.sum_ns).unwrap_or(u64::MAX),
            conserved: sum.fault.is_none(),
            fault: sum.fault,
        },
    )
}

fn stack<'a>(segment: &Segment, stacks: &'a ShownStacks) -> Option<Stack<'a>> {
    let used = segment.stack?;
    let (evidence, samples, samples_in_segment) = match used.taken {
        Taken::AtSleep => (Evidence::Measured, None, None),
        Taken::Sampled { same, all } => (Evidence::Sampled, Some(same), Some(all)),
    };
    let frames = stacks.get(&used.stack_id)?;
    Some(Stack { evidence, samples, samples_in_segment, frames })
}

fn offset(request: &Request, manifest: &Manifest) -> i128 {
    i128::from(request.start_ns) - i128::from(manifest.start_ns)
}

fn document(out: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::breakdown::breakdown;
    use super::super::requests::{modelled, select, RequestOptions, SortKey};
    use super::super::samples::{manifest, stream, ten, text, troubled, unfinished};
    use super::*;

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_report() {
        let mut all = ten();
        all.push((unfinished(11, 3_100), Vec::new()));
        let (rows, segments) = stream(&all);
        let breakdown = breakdown(rows.into_iter().map(Ok), segments).unwrap();
        let json = parse(&text(|out| report_json(out, &troubled(), &breakdown)));
        assert_eq!(json["capture"]["requests"], 11);
        assert_eq!(json["capture"]["records_lost"], 7);
        assert_eq!(json["capture"]["hooks_not_attached"][0]["name"], "fentry/pipe_write");
        assert_eq!(json["not_conserved"], 0);
        let pipe = &json["kinds"][0];
        assert_eq!(pipe["kind"], "pipe");
        assert_eq!(pipe["latency"]["p50_ns"], 5_000);
        assert_eq!(pipe["incomplete_reasons"]["records lost"], 1);
        assert_eq!(pipe["parts"][1]["category"], "copy");
        assert_eq!(pipe["parts"][1]["modelled_ns"], pipe["parts"][1]["total_ns"]);
        assert_eq!(pipe["parts"][1]["side"], "server");
        assert_eq!(pipe["waits"][0]["top"][0]["comm"], "kworker/0:1");
    }

    #[test]
    fn a_list() {
        let (mut rows, segments) = stream(&ten());
        let marks = modelled(segments, &(1..=11).collect()).unwrap();
        rows.push(unfinished(11, 3_100));
        let options = RequestOptions {
            sort: SortKey::Id,
            min_latency_ns: Some(9_500),
            ..RequestOptions::default()
        };
        let selection = select(rows.into_iter().map(Ok), &options).unwrap();
        let json = parse(&text(|out| requests_json(out, &manifest(), &selection, &marks)));
        assert_eq!((&json["matching"], &json["in_capture"]), (&2.into(), &11.into()));
        let row = &json["requests"][0];
        assert_eq!(row["request_id"], 10);
        assert_eq!(row["start_offset_ns"], 10_000_000);
        assert_eq!(row["category_ns"]["user"], 6_000);
        assert_eq!(row["modelled_categories"][0], "copy");
        assert_eq!(row["may_match"], false);
        assert_eq!(json["requests"][1]["may_match"], true);
    }

    #[test]
    fn an_explanation() {
        let (row, mut segments) = ten().remove(0);
        let explain = |segments: &[Segment]| {
            parse(&text(|out| {
                explain_json(out, &manifest(), &row.request, segments, &ShownStacks::new())
            }))
        };
        let json = explain(&segments);
        assert_eq!(json["sum_ns"], 1_000);
        assert_eq!(json["conserved"], true);
        assert_eq!(json["segments"][1]["offset_ns"], 600);
        assert_eq!(json["segments"][1]["evidence"], "modelled");
        assert_eq!(json["request"]["latency_ns"], 1_000);
        segments.pop();
        assert_eq!(explain(&segments)["conserved"], false);
    }
}
