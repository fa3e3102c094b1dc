//! The same three reports (`report`, `requests`, `explain`) as JSON: one document each, with units
//! in the names of keys.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::breakdown::Breakdown;
use super::explain::{sum, Explained};
use super::filter::RequestFilter;
use super::overview::Reported;
use super::requests::{is_modelled, Marks, Selection};
use super::stacks::ShownStacks;
use rpcprobe_capture::manifest::{Command, Hook, Host, Loss, Manifest, Scope, Stacks, Warning};
use rpcprobe_model::{Category, Evidence, Request, Segment, Taken};
use rpcprobe_tables::ShownFrame;

#[derive(Serialize)]
struct Report<'a> {
    /// Set in a report on a single capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<Capture<'a>>,
    /// Filled in a report on several captures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    captures: Vec<Capture<'a>>,
    /// `null` if there is no filter.
    filter: Option<&'a RequestFilter>,
    #[serde(flatten)]
    breakdown: &'a Breakdown,
    /// The ledger. Empty with a filter, and for captures that are older than the ledger.
    threads: Vec<super::ledger::Told<'a>>,
}

/// One report for each of several captures, as a list.
#[derive(Serialize)]
struct Reports {
    reports: Vec<serde_json::Value>,
}

#[derive(Serialize)]
struct Capture<'a> {
    command: &'a Command,
    host: &'a Host,
    labels: &'a BTreeMap<String, String>,
    start_ns: u64,
    start_utc: &'a str,
    duration_ns: u64,
    scope: &'a Scope,
    stacks: Option<Stacks>,
    sleep_stacks: u64,
    samples: u64,
    /// Time of the interrupts that took the samples; part of the probe's cost.
    sampling_ns: u64,
    requests: u64,
    requests_incomplete: u64,
    records: u64,
    records_lost: u64,
    records_late: u64,
    /// Runs of hooks that the kernel skipped.
    runs_left_out: u64,
    framing_lost: &'a BTreeMap<String, u64>,
    channels_forgotten: u64,
    switches_missed: u64,
    steal_unplaced_ns: u64,
    losses: &'a [Loss],
    warnings: &'a [Warning],
    hooks_not_attached: Vec<&'a Hook>,
    /// Number of events times calibrated cost, over the whole capture.
    probe_cost_estimated_ns: u64,
}

#[derive(Serialize)]
struct Requests<'a> {
    matching: usize,
    in_capture: usize,
    /// Incomplete requests that the limit cut off and that may have lasted longer than those
    /// listed.
    unlisted_may_belong: usize,
    /// The largest latency that one of these requests has reached.
    unlisted_reached_ns: u64,
    requests: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    request: &'a Request,
    start_offset_ns: i128,
    /// `false` if the request matches; `true` if it is incomplete and may match.
    may_match: bool,
    /// The categories that apply and have time.
    category_ns: BTreeMap<&'static str, u64>,
    modelled_categories: Vec<&'static str>,
}

#[derive(Serialize)]
struct Explanation<'a> {
    request: &'a Request,
    start_offset_ns: i128,
    /// The request that this one was made for.
    parent: Option<&'a Request>,
    /// The requests made for this one.
    children: super::relatives::Told<'a>,
    segments: Vec<Piece<'a>>,
    sum_ns: u64,
    /// Whether the segments tile the request exactly.
    conserved: bool,
    /// Where the segments do not tile the request.
    fault: Option<String>,
}

/// One explanation for each of several requests, as a list.
#[derive(Serialize)]
struct Explanations {
    explanations: Vec<serde_json::Value>,
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
    /// `measured` if the thread went to sleep there; `sampled` if samples found it there.
    evidence: Evidence,
    /// Number of samples in these functions, and of all samples in the segment.
    samples: Option<u64>,
    samples_in_segment: Option<u64>,
    /// Innermost first.
    frames: &'a [ShownFrame],
}

/// Converts everything that [`super::report`] shows into one JSON document.
///
/// # Errors
/// When a value cannot be represented, which would be a defect.
pub fn report_value(of: &Reported) -> Result<serde_json::Value> {
    let (mut captures, mut capture) = (Vec::new(), None);
    match &of.manifests[..] {
        [manifest] => capture = Some(capture_of(manifest)),
        manifests => captures.extend(manifests.iter().map(|manifest| capture_of(manifest))),
    }
    let filter = Some(&of.query.filter).filter(|filter| !filter.is_empty());
    let threads = super::ledger::told(of.accounts);
    let report = Report { capture, captures, filter, breakdown: of.breakdown, threads };
    Ok(serde_json::to_value(report)?)
}

/// Writes reports: a single report as it is, several as a list.
///
/// # Errors
/// When `out` cannot be written.
pub fn reports_json(out: &mut dyn Write, reports: Vec<serde_json::Value>) -> Result<()> {
    one_or_list(out, reports, |reports| Reports { reports })
}

fn capture_of(manifest: &Manifest) -> Capture<'_> {
    let counts = &manifest.counts;
    Capture {
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
        requests: counts.requests,
        requests_incomplete: counts.requests_incomplete,
        records: counts.records,
        records_lost: counts.records_lost,
        records_late: counts.records_late,
        runs_left_out: counts.runs_left_out,
        framing_lost: &counts.framing_lost,
        channels_forgotten: counts.channels_forgotten,
        switches_missed: counts.switches_missed,
        steal_unplaced_ns: counts.steal_unplaced_ns,
        losses: &manifest.losses,
        warnings: &manifest.warnings,
        hooks_not_attached: manifest.hooks.iter().filter(|h| h.attached_as.is_none()).collect(),
        probe_cost_estimated_ns: manifest.probe_cost_ns(),
    }
}

/// Writes the rows that [`super::requests`] lists, as one JSON document.
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
            unlisted_reached_ns: selection.may_belong_ns,
            requests: listed.collect(),
        },
    )
}

/// Converts one request and all its segments into one JSON document.
///
/// # Errors
/// When a value cannot be represented, which would be a defect.
pub fn explain_value(of: &Explained) -> Result<serde_json::Value> {
    let Explained { manifest, request, segments, stacks, relatives } = *of;
    let sum = sum(request, segments);
    let pieces = segments.iter().enumerate().map(|(seq, segment)| Piece {
        seq,
        offset_ns: segment.start_ns.saturating_sub(request.start_ns),
        segment,
        stack: stack(segment, stacks),
    });
    Ok(serde_json::to_value(Explanation {
        request,
        start_offset_ns: offset(request, manifest),
        parent: relatives.parent.as_ref(),
        children: relatives.told(request, usize::MAX),
        segments: pieces.collect(),
        sum_ns: u64::try_from(sum.sum_ns).unwrap_or(u64::MAX),
        conserved: sum.fault.is_none(),
        fault: sum.fault,
    })?)
}

/// Writes the explanations of requests: a single one as it is, several as a list.
///
/// # Errors
/// When `out` cannot be written.
pub fn explanations_json(out: &mut dyn Write, values: Vec<serde_json::Value>) -> Result<()> {
    one_or_list(out, values, |explanations| Explanations { explanations })
}

fn one_or_list<L: Serialize>(
    out: &mut dyn Write,
    mut values: Vec<serde_json::Value>,
    list: impl Fn(Vec<serde_json::Value>) -> L,
) -> Result<()> {
    match (values.len(), values.pop()) {
        (1, Some(one)) => document(out, &one),
        (_, last) => {
            values.extend(last);
            document(out, &list(values))
        }
    }
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

    use super::super::fixtures::{
        broken_down, manifest, stream, ten, text, troubled, unfinished, START_NS,
    };
    use super::super::relatives::Relatives;
    use super::super::requests::{modelled, select, RequestOptions, SortKey};
    use super::super::stacks::ShownStacks;
    use super::super::survey::Query;
    use super::*;

    fn parse(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_report() {
        let mut all = ten();
        all.push((unfinished(11, 3_100), Vec::new()));
        let query = Query::default();
        let breakdown = broken_down(&all, &query);
        let (manifest, contents) = (troubled(), None);
        let of = Reported {
            manifests: vec![&manifest],
            query: &query,
            breakdown: &breakdown,
            contents,
            accounts: &[],
        };
        let json = parse(&text(|out| reports_json(out, vec![report_value(&of)?])));
        assert_eq!(json["in_capture"], 11);
        assert_eq!(json["filter"], Value::Null);
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
            filter: RequestFilter { min_latency_ns: Some(9_500), ..Default::default() },
            ..RequestOptions::default()
        };
        let selection = select(rows.into_iter().map(Ok), &options, START_NS).unwrap();
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
                let value = explain_value(&Explained {
                    manifest: &manifest(),
                    request: &row.request,
                    segments,
                    stacks: &ShownStacks::new(),
                    relatives: &Relatives::default(),
                })?;
                explanations_json(out, vec![value])
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
