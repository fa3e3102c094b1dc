//! The first lines of a report: what was captured, what is missing, what it cost.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use super::breakdown::{Breakdown, KindBreakdown};
use super::text::{alarm, bold, escape, wait_status};
use super::units::{count, format_exact, format_ns, format_share, format_start};
use super::Style;
use crate::capture::manifest::{Attached, Hook, Manifest};
use crate::model::Kind;

/// CPUs whose losses are listed one by one.
const LOSSES_LISTED: usize = 4;

/// Writes the header: three lines, then one for each thing the reader must know before the figures.
pub(super) fn header(
    out: &mut dyn Write,
    manifest: &Manifest,
    breakdown: &Breakdown,
    style: Style,
) -> Result<()> {
    let command: Vec<_> = manifest.command.argv.iter().map(|word| escape(word)).collect();
    let command = if command.is_empty() { "(attached)".to_owned() } else { command.join(" ") };
    let command = match &manifest.command.attached {
        Some(attached) => format!("{command} ({})", attached_to(attached)),
        None => command,
    };
    writeln!(out, "{}", bold(&command, style))?;
    writeln!(out, "{}", circumstances(manifest))?;
    writeln!(out, "{}", summary(manifest, breakdown))?;
    for problem in problems(manifest, breakdown) {
        writeln!(out, "{} {problem}", alarm("!", style))?;
    }
    Ok(())
}

/// Names listed of what a capture was attached to.
const NAMES_LISTED: usize = 4;

/// `redis-server/812, 3 redis-benchmark; 9 threads`
fn attached_to(attached: &Attached) -> String {
    let mut by_name: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for process in &attached.processes {
        by_name.entry(&process.comm).or_default().push(process.pid);
    }
    let mut names: Vec<_> = by_name
        .iter()
        .take(NAMES_LISTED)
        .map(|(name, pids)| match &pids[..] {
            [pid] => format!("{}/{pid}", escape(name)),
            pids => format!("{} {}", format_exact(pids.len() as u64), escape(name)),
        })
        .collect();
    match by_name.len().saturating_sub(NAMES_LISTED) {
        0 => {}
        more => names.push(format!("{more} other names")),
    }
    format!("{}; {}", names.join(", "), count(attached.threads, "thread"))
}

fn circumstances(manifest: &Manifest) -> String {
    let host = &manifest.host;
    let cpus = match host.cpus {
        0 => String::new(),
        cpus => count(cpus.into(), "CPU"),
    };
    let mut parts = vec![
        escape(&host.name),
        format!("{} {}", escape(&host.kernel), escape(&host.machine)),
        cpus,
        escape(&manifest.start_utc),
        format!("{} captured", format_ns(manifest.duration_ns)),
    ];
    parts.extend(manifest.command.wait_status.map(wait_status));
    parts.extend(
        manifest.command.attached.as_ref().map(|of| format!("ended {}", escape(&of.ended))),
    );
    parts.extend(manifest.options.stacks.map(|_| "with stacks".to_owned()));
    parts.extend(manifest.labels.iter().map(|(k, v)| format!("{}={}", escape(k), escape(v))));
    parts.retain(|part| !part.trim().is_empty());
    parts.join(" · ")
}

fn summary(manifest: &Manifest, breakdown: &Breakdown) -> String {
    let total: u64 = breakdown.kinds.iter().map(|kind| kind.requests).sum();
    let incomplete: u64 = breakdown.kinds.iter().map(|kind| kind.incomplete).sum();
    let kinds: Vec<_> = breakdown
        .kinds
        .iter()
        .map(|kind| format!("{} {}", format_exact(kind.requests), kind.kind))
        .collect();
    let requests = match total {
        0 => "no requests found".to_owned(),
        _ => format!("{} ({})", count(total, "request"), kinds.join(", ")),
    };
    let complete = match (total, incomplete) {
        (0, _) => String::new(),
        (_, 0) => ", all complete".to_owned(),
        _ => format!(", {} incomplete", format_exact(incomplete)),
    };
    let lost = count(manifest.counts.records_lost, "record");
    format!("{requests}{complete} · {lost} lost · {}", probe_cost(manifest, breakdown))
}

/// Per request where the capture has one kind besides the whole process, else in total: requests
/// of different kinds contain each other, so a cost "per request" would be of none of them.
fn probe_cost(manifest: &Manifest, breakdown: &Breakdown) -> String {
    let cost_ns = manifest.probe_cost_ns();
    let mut inner = breakdown.kinds.iter().filter(|kind| kind.kind != Kind::Process);
    match (inner.next(), inner.next()) {
        (Some(kind), None) => {
            let each_ns = cost_ns / kind.requests.max(1);
            let mean_ns = kind.latency.mean_ns as u64;
            let share = match mean_ns {
                0 => String::new(),
                _ => format!(", {} of the mean latency", format_share(each_ns, mean_ns)),
            };
            format!("probe cost about {} per request (estimated{share})", format_ns(each_ns))
        }
        _ => format!(
            "probe cost about {} in total (estimated, {} of the time captured)",
            format_ns(cost_ns),
            format_share(cost_ns, manifest.duration_ns)
        ),
    }
}

fn problems(manifest: &Manifest, breakdown: &Breakdown) -> Vec<String> {
    let mut problems = Vec::new();
    if breakdown.not_conserved > 0 {
        let example = breakdown.not_conserved_example.as_deref().unwrap_or("");
        problems.push(format!(
            "{} DO NOT ADD UP: {}",
            count(breakdown.not_conserved, "complete request"),
            escape(example)
        ));
    }
    if breakdown.orphan_segments > 0 {
        let orphans = count(breakdown.orphan_segments, "segment");
        problems.push(format!("{orphans} of requests that are not in the capture"));
    }
    let found: u64 = breakdown.kinds.iter().map(|kind| kind.requests).sum();
    let promised = manifest.counts.requests;
    if promised != 0 && promised != found {
        problems.push(format!("the manifest counts {promised} requests, the file holds {found}"));
    }
    problems.extend(incomplete(&breakdown.kinds));
    problems.extend(losses(manifest));
    if manifest.counts.switches_missed > 0 {
        let missed = count(manifest.counts.switches_missed, "context-switch record");
        problems.push(format!(
            "{missed} never came: times they touch are unattributed or without `by`"
        ));
    }
    let stolen_ns = manifest.counts.steal_unplaced_ns;
    if stolen_ns.saturating_mul(1000) > manifest.duration_ns {
        problems.push(format!(
            "the hypervisor took another {} of CPU time, nobody knows when: it counts as whatever \
             ran then",
            format_ns(stolen_ns)
        ));
    }
    if manifest.counts.records_late > 0 {
        let late = count(manifest.counts.records_late, "record");
        problems.push(format!("{late} came too late to be put in order"));
    }
    if manifest.options.scope == "target" {
        problems.push(
            "scheduler records of the target only (--scope target): who else had a CPU has no name"
                .to_owned(),
        );
    }
    problems.extend(manifest.hooks.iter().filter_map(missing_hook));
    problems.extend(manifest.warnings.iter().map(|warning| escape(warning)));
    problems
}

fn incomplete(kinds: &[KindBreakdown]) -> Option<String> {
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, n) in kinds.iter().flat_map(|kind| &kind.incomplete_reasons) {
        *reasons.entry(reason).or_default() += n;
    }
    let total: u64 = reasons.values().sum();
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let list: Vec<_> = reasons
        .into_iter()
        .map(|(reason, n)| format!("{} ({})", escape(reason), format_exact(n)))
        .collect();
    (total > 0).then(|| {
        format!(
            "{}, not in the figures below: {}",
            count(total, "incomplete request"),
            list.join("; ")
        )
    })
}

fn losses(manifest: &Manifest) -> Option<String> {
    if manifest.counts.records_lost == 0 && manifest.losses.is_empty() {
        return None;
    }
    let at = |ns| format_start(ns, manifest.start_ns);
    let mut list: Vec<_> = manifest
        .losses
        .iter()
        .take(LOSSES_LISTED)
        .map(|loss| {
            let (from, to) = (at(loss.first_ns), at(loss.last_ns));
            format!("{} on CPU {} from {from} to {to}", format_exact(loss.count), loss.cpu)
        })
        .collect();
    match manifest.losses.len().saturating_sub(LOSSES_LISTED) {
        0 => {}
        more => list.push(format!("{more} more such gaps in manifest.json")),
    }
    if list.is_empty() {
        list.push("where is not known".to_owned());
    }
    let lost = count(manifest.counts.records_lost, "record");
    Some(format!("{lost} lost: {}", list.join("; ")))
}

/// A hook that is not attached and without which something cannot be told.
fn missing_hook(hook: &Hook) -> Option<String> {
    if hook.attached_as.is_some() || hook.purpose.is_empty() {
        return None;
    }
    let why = hook.why_not.as_deref().unwrap_or("no reason given");
    Some(format!(
        "not attached: {} ({}); without it cannot be told: {}",
        escape(&hook.name),
        escape(why),
        escape(&hook.purpose)
    ))
}
