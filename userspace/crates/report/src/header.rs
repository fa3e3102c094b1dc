//! The first lines of a report: what was captured, what is missing, what it cost.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;

use super::breakdown::{Breakdown, KindBreakdown};
use super::layout::wrap;
use super::overview::Reported;
use super::survey::Query;
use super::text::{alarm, bold, escape, wait_status};
use super::units::{count, format_exact, format_ns, format_share, format_start};
use super::{words, Style};
use rpcprobe_capture::manifest::{Attached, Hook, Manifest, Scope, TableUse};
use rpcprobe_model::Kind;

/// Maximum number of CPUs whose losses are listed one by one.
const LOSSES_LISTED: usize = 4;

/// What a reader must know before any figure, line by line. The texts are escaped.
pub struct Preamble {
    /// For each capture: its command, and the circumstances.
    pub captures: Vec<(String, String)>,
    /// What the filter selects; `None` without a filter.
    pub filter: Option<String>,
    /// The number of requests, which ends are traced, and what was lost.
    pub summary: String,
    pub probe_cost: String,
    /// What makes the figures doubtful or incomplete.
    pub problems: Vec<String>,
}

impl Preamble {
    pub fn of(of: &Reported) -> Preamble {
        let Reported { manifests, query, breakdown, .. } = of;
        let cost = probe_cost(manifests, breakdown, query);
        Preamble {
            captures: manifests.iter().map(|of| (command(of), circumstances(of))).collect(),
            filter: (!query.filter.is_empty()).then(|| filter(query, breakdown)),
            summary: summary(manifests, breakdown),
            probe_cost: format!("{cost}{}", waited_behind_probe(breakdown)),
            problems: problems(manifests, breakdown),
        }
    }
}

/// Writes the header: some lines about each capture and its requests, then a line for each thing that the reader must
/// know before the figures.
///
/// # Errors
/// When `out` cannot be written.
pub(super) fn header(out: &mut dyn Write, of: &Reported, style: Style) -> Result<()> {
    let Preamble { captures, filter, summary, probe_cost, problems } = Preamble::of(of);
    for (command, circumstances) in captures {
        for line in wrap(&command, "  ", style).lines() {
            writeln!(out, "{}", bold(line, style))?;
        }
        write!(out, "{}", wrap(&circumstances, "  ", style))?;
    }
    for line in filter.iter().chain([&summary, &probe_cost]) {
        write!(out, "{}", wrap(line, "  ", style))?;
    }
    for problem in problems {
        let text = wrap(&format!("! {problem}"), "  ", style);
        write!(out, "{}", text.replacen('!', &alarm("!", style), 1))?;
    }
    Ok(())
}

/// Returns the command of a capture, or what it was attached to.
pub fn command(manifest: &Manifest) -> String {
    let command: Vec<_> = manifest.command.argv.iter().map(|word| escape(word)).collect();
    let command = if command.is_empty() { "(attached)".to_owned() } else { command.join(" ") };
    match &manifest.command.attached {
        Some(attached) => format!("{command} ({})", attached_to(attached)),
        None => command,
    }
}

fn filter(query: &Query, breakdown: &Breakdown) -> String {
    let may = match breakdown.may_pass {
        0 => String::new(),
        n => format!(" ({} of them may: they are incomplete)", format_exact(n)),
    };
    format!(
        "Filter: {}: {} of {} pass{may}",
        query.filter,
        format_exact(breakdown.passing),
        count(breakdown.in_capture, "request")
    )
}

/// Maximum number of names listed for an attached capture.
const NAMES_LISTED: usize = 4;

/// Describes what a capture was attached to, such as `redis-server/812, 3 redis-benchmark; 9 threads`.
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

fn summary(manifests: &[&Manifest], breakdown: &Breakdown) -> String {
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
    let lost = manifests.iter().map(|manifest| manifest.counts.records_lost).sum();
    let mut parts = vec![format!("{requests}{complete}"), ends(breakdown)];
    parts.push(format!("{} lost", count(lost, "record")));
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// Which ends are traced, stated for each kind if the kinds differ.
fn ends(breakdown: &Breakdown) -> String {
    let of = |kind: &KindBreakdown| (kind.kind, words::ends(kind.kind, &kind.ends));
    let mut of: Vec<_> = breakdown.kinds.iter().map(of).collect();
    of.retain(|(_, text)| !text.is_empty());
    match &of[..] {
        [] => String::new(),
        [(_, first), rest @ ..] if rest.iter().all(|(_, text)| text == first) => first.clone(),
        _ => of.iter().map(|(kind, text)| format!("{kind}: {text}")).collect::<Vec<_>>().join("; "),
    }
}

/// Returns the probe's cost per request if the capture has only one kind besides the whole process, and in total
/// otherwise: requests of different kinds contain each other, so a cost "per request" would apply to none of them. With
/// a filter, the cost is also given in total.
fn probe_cost(manifests: &[&Manifest], breakdown: &Breakdown, query: &Query) -> String {
    let cost_ns: u64 = manifests.iter().map(|manifest| manifest.probe_cost_ns()).sum();
    let captured_ns: u64 = manifests.iter().map(|manifest| manifest.duration_ns).sum();
    match the_kind(breakdown) {
        Some(kind) if query.filter.is_empty() => {
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
            format_share(cost_ns, captured_ns)
        ),
    }
}

/// Returns the only kind besides the whole process, if there is only one.
fn the_kind(breakdown: &Breakdown) -> Option<&KindBreakdown> {
    let mut inner = breakdown.kinds.iter().filter(|kind| kind.kind != Kind::Process);
    inner.next().filter(|_| inner.next().is_none())
}

/// Returns the time that requests waited for a CPU that our own threads had, which is also a cost of the probe. Empty
/// if it is less than a thousandth of the time.
fn waited_behind_probe(breakdown: &Breakdown) -> String {
    let measurable = |kind: &&KindBreakdown| {
        kind.behind_probe_ns > 0
            && u128::from(kind.behind_probe_ns) * 1_000 >= u128::from(kind.latency.total_ns)
    };
    let waited = |kind: &KindBreakdown| {
        let each_ns = kind.behind_probe_ns / kind.complete().max(1);
        (format_ns(each_ns), format_share(kind.behind_probe_ns, kind.latency.total_ns))
    };
    let kinds: Vec<_> = breakdown.kinds.iter().filter(measurable).collect();
    match (&kinds[..], the_kind(breakdown)) {
        ([], _) => String::new(),
        ([kind], Some(_)) => {
            let (each, share) = waited(kind);
            format!(
                ", and requests waited {each} ({share} of the mean latency) for a CPU that rpcprobe \
                 itself had"
            )
        }
        _ => {
            let each = |kind: &&KindBreakdown| {
                let (each, share) = waited(kind);
                format!("{} {each} each ({share})", kind.kind)
            };
            let list: Vec<_> = kinds.iter().map(each).collect();
            format!(", and requests waited for a CPU that rpcprobe itself had: {}", list.join(", "))
        }
    }
}

fn problems(manifests: &[&Manifest], breakdown: &Breakdown) -> Vec<String> {
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
    let found = breakdown.in_capture;
    let promised: u64 = manifests.iter().map(|manifest| manifest.counts.requests).sum();
    if promised != 0 && promised != found {
        problems.push(format!("the manifest counts {promised} requests, the file holds {found}"));
    }
    problems.extend(incomplete(&breakdown.kinds));
    problems.extend(super::held_back::answers(&breakdown.kinds));
    for manifest in manifests {
        problems_of(&mut problems, manifest);
    }
    problems
}

/// Adds the problems of one capture.
fn problems_of(problems: &mut Vec<String>, manifest: &Manifest) {
    problems.extend(losses(manifest));
    if manifest.counts.runs_left_out > 0 {
        problems.push(format!(
            "the kernel left out {} of a hook, in interrupts of the same hook: what they would have told is \
             missing",
            count(manifest.counts.runs_left_out, "run")
        ));
    }
    problems.extend(framing(manifest));
    if manifest.counts.channels_forgotten > 0 {
        problems.push(format!(
            "{} fell out of a full table of the kernel side and came back: requests over them are incomplete from \
             then on",
            count(manifest.counts.channels_forgotten, "pipe or connection")
        ));
    }
    problems.extend(manifest.tables.iter().filter_map(|table| full(table, manifest.duration_ns)));
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
    if manifest.options.scope == Scope::Target {
        problems.push(
            "scheduler records of the target only (--scope target): who else had a CPU has no name"
                .to_owned(),
        );
    }
    problems.extend(manifest.hooks.iter().filter_map(missing_hook));
    problems.extend(manifest.warnings.iter().map(|warning| escape(&warning.to_string())));
}

/// Says how often framing was lost (it was no longer known where messages begin), and why.
fn framing(manifest: &Manifest) -> Option<String> {
    let lost = &manifest.counts.framing_lost;
    let times: u64 = lost.values().sum();
    let list: Vec<_> =
        lost.iter().map(|(why, n)| format!("{} ({})", escape(why), format_exact(*n))).collect();
    (times > 0).then(|| {
        format!(
            "messages could not be followed inside a connection {}, and requests meanwhile are missing: {}",
            count(times, "time"),
            list.join("; ")
        )
    })
}

/// Reports a table that was too small. Evictions after an element's time of use are ignored, because they do no harm.
fn full(table: &TableUse, duration_ns: u64) -> Option<String> {
    let what = format!(
        "the table of {}, with room for {}",
        escape(&table.holds),
        format_exact(table.bound)
    );
    if table.refused > 0 {
        let refused = format_exact(table.refused);
        return Some(format!("{what}, had none {refused} times: what it tells of them is missing"));
    }
    let kept_ns = u128::from(duration_ns) * u128::from(table.bound) / u128::from(table.made.max(1));
    (table.let_go > 0 && kept_ns < u128::from(table.use_ns)).then(|| {
        format!(
            "{what}, let go of {}, after {} on average: what it tells of those still in use is missing",
            format_exact(table.let_go),
            format_ns(kept_ns as u64)
        )
    })
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

/// Reports a hook that is not attached and without which something cannot be determined.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn full_tables_and_lost_framing_are_told() {
        let mut manifest = fixtures::manifest();
        let told = |manifest: &Manifest| {
            let problems = problems(&[manifest], &Breakdown::default());
            let of = |problem: &String| problem.contains("table") || problem.contains("followed");
            problems.into_iter().filter(of).collect::<Vec<_>>()
        };
        assert_eq!(told(&manifest), [""; 0]);
        manifest.duration_ns = 1_000_000_000;
        let table = |made, let_go, refused| TableUse {
            name: "flows".into(),
            holds: "senders of datagrams".into(),
            bound: 16_384,
            use_ns: 10_000_000_000,
            made,
            let_go,
            refused,
        };
        // Room for 16 s of elements, room for 1.6 s, and a table that refused elements.
        manifest.tables = vec![table(1_024, 5, 0), table(10_240, 2_048, 0), table(9, 0, 1_234)];
        manifest.counts.channels_forgotten = 1;
        manifest.counts.framing_lost =
            [("bytes moved unseen".to_string(), 2), ("x".to_string(), 1)].into();
        assert_eq!(
            told(&manifest),
            [
                "messages could not be followed inside a connection 3 times, and requests meanwhile are \
                 missing: bytes moved unseen (2); x (1)",
                "1 pipe or connection fell out of a full table of the kernel side and came back: requests over \
                 them are incomplete from then on",
                "the table of senders of datagrams, with room for 16,384, let go of 2,048, after 1.60 s on \
                 average: what it tells of those still in use is missing",
                "the table of senders of datagrams, with room for 16,384, had none 1,234 times: what it tells of \
                 them is missing",
            ]
        );
    }

    #[test]
    fn runs_that_the_kernel_left_out_are_told() {
        let mut manifest = fixtures::manifest();
        let left_out = |manifest: &Manifest| {
            let problems = problems(&[manifest], &Breakdown::default());
            problems.into_iter().filter(|problem| problem.contains("left out")).collect::<Vec<_>>()
        };
        assert_eq!(left_out(&manifest), [""; 0]);
        manifest.counts.runs_left_out = 1_200;
        assert_eq!(
            left_out(&manifest),
            ["the kernel left out 1,200 runs of a hook, in interrupts of the same hook: what they would have \
              told is missing"]
        );
    }
}
