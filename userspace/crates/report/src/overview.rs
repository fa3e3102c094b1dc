//! `report`: one capture or several, as text.

use std::io::Write;

use anyhow::Result;

use super::breakdown::{Breakdown, KindBreakdown, Waits};
use super::header::header;
use super::layout::wrap;
use super::ledger::ledger;
use super::nothing::nothing_found;
use super::sums::Distribution;
use super::survey::{Contents, Query};
use super::text::{bold, escape, marks};
use super::units::{count, format_exact, format_ns, format_share};
use super::values::EXACT_VALUES;
use super::{tables, words, Style};
use rpcprobe_capture::manifest::Manifest;
use rpcprobe_engine::ownership::ledger::Account;
use rpcprobe_model::{Certainty, Kind};

/// The subject of a report.
pub struct Reported<'a> {
    /// Manifests of the captures that were added up; at least one.
    pub manifests: Vec<&'a Manifest>,
    pub query: &'a Query,
    pub breakdown: &'a Breakdown,
    /// The contents of the capture, if nothing passes the filter.
    pub contents: Option<&'a Contents>,
    /// What traced threads' CPU time was used for; empty if that is not known, or if only part is reported on.
    pub accounts: &'a [Account],
}

/// Writes a report: first what must be known, then a line about where the time went, then a section for each kind of
/// request. With `all`, nothing is left out.
///
/// # Errors
/// When `out` cannot be written.
pub fn report(out: &mut dyn Write, of: &Reported, all: bool, style: Style) -> Result<()> {
    let Reported { breakdown, query, .. } = of;
    header(out, of, style)?;
    if let Some(contents) = of.contents {
        return super::contents::contents(out, contents, style);
    }
    if breakdown.kinds.is_empty() {
        for line in of.manifests.iter().flat_map(|manifest| nothing_found(manifest)) {
            write!(out, "{}", wrap(&line, "  ", style))?;
        }
    }
    let answers = answers(breakdown);
    if !answers.is_empty() {
        writeln!(out)?;
    }
    for Answer { whole, tail, .. } in &answers {
        write!(out, "{}", bold_lines(&wrap(whole, "  ", style), style))?;
        if let Some(text) = tail {
            write!(out, "{}", wrap(text, "  ", style))?;
        }
    }
    for kind in &breakdown.kinds {
        section(out, kind, query, all, style)?;
    }
    let tree = &breakdown.tree;
    let told = match all {
        true => tree.tells_anything(),
        false => tree.is_worth_telling() && query.by.is_none(),
    };
    if told {
        write!(out, "\n{}", super::tree::tree(tree, all, style))?;
    }
    if !of.accounts.is_empty() && !answers.is_empty() {
        writeln!(out)?;
        ledger(out, of.accounts, all, style)?;
    }
    footnotes(out, of, all, style)
}

/// Where the time of a kind's requests went, in words.
pub struct Answer {
    pub kind: Kind,
    pub whole: String,
    /// What the slowest requests have more than typical ones; `None` if there is no difference.
    pub tail: Option<String>,
}

/// Returns the answers for each kind that has complete requests.
pub fn answers(breakdown: &Breakdown) -> Vec<Answer> {
    let kinds: Vec<_> = breakdown.kinds.iter().filter(|kind| kind.complete() > 0).collect();
    let several = kinds.len() > 1;
    let answer = |kind: &&KindBreakdown| {
        let of = if several { format!(" ({})", kind.kind) } else { String::new() };
        Answer {
            kind: kind.kind,
            whole: format!("Where the time went{of}: {}", words::answer(kind)),
            tail: words::tail(kind, &of),
        }
    };
    kinds.iter().map(answer).collect()
}

fn bold_lines(text: &str, style: Style) -> String {
    text.lines().map(|line| format!("{}\n", bold(line, style))).collect()
}

/// Says how confident the detection of the requests is; empty if all are sure.
fn certainties(kind: &KindBreakdown) -> String {
    let all: Vec<_> = kind.certainties.iter().collect();
    match all[..] {
        [(Certainty::Sure, _)] | [] => String::new(),
        [(certainty, _)] => format!(" ({certainty})"),
        _ => {
            let each = |(certainty, number): &(&Certainty, &u64)| {
                format!("{} {certainty}", format_exact(**number))
            };
            format!(" ({})", all.iter().map(each).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Says how many requests of a kind there are, between which ends, and how many are in the figures.
pub fn title(kind: &KindBreakdown) -> String {
    let mut title = format!(
        "{}: {}, {}{}",
        kind.kind,
        count(kind.requests, "request"),
        words::who(kind.kind, &kind.ends),
        certainties(kind)
    );
    if kind.incomplete > 0 {
        title += &format!(
            "; {} complete and in the figures, {} incomplete, the longest lasted ≥ {}",
            format_exact(kind.complete()),
            format_exact(kind.incomplete),
            format_ns(kind.incomplete_max_lower_bound_ns.unwrap_or(0))
        );
    }
    title
}

fn section(
    out: &mut dyn Write,
    kind: &KindBreakdown,
    query: &Query,
    all: bool,
    style: Style,
) -> Result<()> {
    writeln!(out)?;
    write!(out, "{}", bold_lines(&wrap(&title(kind), "  ", style), style))?;
    if kind.complete() == 0 {
        return Ok(());
    }
    write!(out, "{}", wrap(&latency(&kind.latency), "  ", style))?;
    let whole_ns = kind.latency.total_ns;
    if let Some(groups) = &kind.groups {
        let only = groups.listed.len() == 1 && groups.others.is_none() && query.by.is_none();
        match (only, &groups.listed[..]) {
            (true, [group]) => {
                let name = group.name.as_deref().map_or("none".to_owned(), escape);
                let line = format!("  {}   {name}", groups.by.name());
                write!(out, "{}", wrap(&line, "  ", style))?;
            }
            _ => write!(out, "\n{}", tables::groups(groups, whole_ns, all, style))?,
        }
    }
    // A user who asks for groups wants to see only those, unless everything is wanted.
    if query.by.is_some() && !all {
        return Ok(());
    }
    writeln!(out)?;
    write!(out, "{}", tables::parts(kind, all, style))?;
    if !kind.phases.is_empty() {
        write!(out, "\n{}", tables::phases(kind, style))?;
    }
    let waits: Vec<_> = kind.waits.iter().filter(|w| all || w.total_ns >= whole_ns / 100).collect();
    if !waits.is_empty() {
        writeln!(out, "\n  {}", bold("who had the CPU meanwhile", style))?;
        for waits in waits {
            write!(out, "{}", wrap(&waits_line(waits), "    ", style))?;
        }
    }
    if let Some(tail) = kind.tail.as_ref().filter(|tail| tail.difference_ns > 0) {
        let title = format!(
            "  the {} ({} of {} or more) beside typical ones ({} of {} to {})",
            words::slowest(tail, kind.complete()),
            count(tail.tail.requests, "request"),
            format_ns(tail.tail.from_ns),
            format_exact(tail.typical.requests),
            format_ns(tail.typical.from_ns),
            format_ns(tail.typical.to_ns)
        );
        writeln!(out)?;
        write!(out, "{}", bold_lines(&wrap(&title, "  ", style), style))?;
        write!(out, "{}", tables::tail(tail, all, style))?;
    }
    Ok(())
}

fn latency(of: &Distribution) -> String {
    format!(
        "  latency  p50 {}   p90 {}   p99 {}   max {}   mean {}",
        format_ns(of.p50_ns),
        format_ns(of.p90_ns),
        format_ns(of.p99_ns),
        format_ns(of.max_ns),
        format_ns(of.mean_ns.round() as u64)
    )
}

fn waits_line(waits: &Waits) -> String {
    let names: Vec<_> = waits
        .top
        .iter()
        .map(|name| {
            let comm = name.comm.as_deref().map_or("(not known)".to_owned(), escape);
            format!("{} {comm}", format_share(name.ns, waits.total_ns))
        })
        .collect();
    let mark = marks(waits.modelled_ns > 0, false);
    format!("  {} {}{mark}: {}", waits.side, waits.category, names.join(", "))
}

fn footnotes(out: &mut dyn Write, of: &Reported<'_>, all: bool, style: Style) -> Result<()> {
    let Reported { breakdown, query, .. } = of;
    if breakdown.kinds.iter().all(|kind| kind.complete() == 0) {
        return Ok(());
    }
    let many = breakdown.kinds.iter().any(|kind| kind.requests > EXACT_VALUES as u64);
    let within = if many { "; of so many, within 0.1 %" } else { "" };
    let text = format!("Percentiles are per request, 0 where one has none of a category{within}.");
    write!(out, "\n{}", wrap(&text, "  ", style))?;
    let evidence = match (query.by.is_some(), all) {
        (_, true) => words::evidence_in_full(breakdown),
        (true, false) => Vec::new(),
        (false, false) => words::evidence_shares(breakdown),
    };
    let would_tell = match query.by {
        Some(_) => None,
        None => words::tasks_would_tell(breakdown, &of.manifests),
    };
    for text in evidence.into_iter().chain(would_tell) {
        write!(out, "{}", wrap(&text, "  ", style))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::filter::RequestFilter;
    use super::super::fixtures::{
        broken_down, manifest, segment, ten, text, tiled, troubled, unfinished, PLAIN,
    };
    use super::*;
    use rpcprobe_model::{Category, Segment, Side};
    use rpcprobe_tables::RequestRow;

    fn of(manifest: &Manifest, requests: &[(RequestRow, Vec<Segment>)], style: Style) -> String {
        let query = Query::default();
        let breakdown = broken_down(requests, &query);
        let manifests = vec![manifest];
        let of = Reported {
            manifests,
            query: &query,
            breakdown: &breakdown,
            contents: None,
            accounts: &[],
        };
        text(|out| report(out, &of, false, style))
    }

    #[test]
    fn the_whole_report() {
        let expected = "\
./frpc -m 3
host · Linux 6.18.1 x86_64 · 4 CPUs · 2025-01-02T03:04:05Z · 12.3 ms captured · exit 0
10 requests (10 pipe), all complete · both ends traced · 0 records lost
probe cost about 100 ns per request (estimated, 1.8 % of the mean latency)

Where the time went: 60.0 % user (client), 30.0 % runqueue.wakeup (client), 10.0 % copy ~ (server)

pipe: 10 requests, client to server (likely)
  latency  p50 5.00 us   p90 9.00 us   p99 10.0 us   max 10.0 us   mean 5.50 us

  category         side        p50      p90      p99      max    share
  user             client  3.00 us  5.40 us  6.00 us  6.00 us   60.0 %
  runqueue.wakeup  client  1.50 us  2.70 us  3.00 us  3.00 us   30.0 %
  copy ~           server   500 ns   900 ns  1.00 us  1.00 us   10.0 %
  unattributed     -          0 ns     0 ns     0 ns     0 ns    0.0 %
  total                    5.00 us  9.00 us  10.0 us  10.0 us  100.0 %

  who had the CPU meanwhile
  client runqueue.wakeup: 65.5 % kworker/0:1, 34.5 % sh

Percentiles are per request, 0 where one has none of a category.
~ modelled, not measured: 10.0 % of the time (copy)
";
        assert_eq!(of(&manifest(), &ten(), PLAIN), expected);
    }

    #[test]
    fn what_is_wrong_comes_first() {
        let mut requests = ten();
        requests[0].1.clear();
        requests.push((unfinished(11, 3_100_000), Vec::new()));
        let text = of(&troubled(), &requests, PLAIN);
        let head: Vec<_> = text.lines().take(10).collect();
        assert!(head[0].ends_with("3 \\x1b[2J"), "{text}");
        assert!(
            head[2].contains(
                "11 requests (11 pipe), 1 incomplete · both ends traced · 7 records lost"
            ),
            "{text}"
        );
        assert!(head[4].starts_with("! 1 complete request DO NOT ADD UP: request 1: "), "{text}");
        assert_eq!(head[5], "! 1 incomplete request, not in the figures below: records lost (1)");
        assert_eq!(head[6], "! 7 records lost: 7 on CPU 1 from +0.000001 s to +0.000002 s");
        assert_eq!(head[7], "! 2 records came too late to be put in order");
        assert!(head[8].contains("fentry/pipe_write (refused)"), "{text}");
        assert_eq!(head[9], "! ended early\\u{202e}");
        assert!(text.contains(
            "10 complete and in the figures, 1 incomplete, the longest lasted ≥ 3.10 ms"
        ));
    }

    #[test]
    fn several_kinds_outermost_first() {
        let mut requests = ten();
        requests[9].0.request.kind = Kind::Exec;
        requests[9].0.request.certainty = Certainty::Sure;
        requests[1].0.request.certainty = Certainty::Guessed;
        requests[8].0.request.kind = Kind::Tcp;
        let text = of(&manifest(), &requests, PLAIN);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
        assert!(at("Where the time went (exec)") < at("Where the time went (pipe)"));
        assert!(
            at("\nexec: 1 request, client to server\n")
                < at("\npipe: 8 requests, client to server (7 likely, 1 guessed)\n")
        );
        assert!(at("\npipe: ") < at("\ntcp: "));
        assert!(text.contains("(no phase)"));
        assert!(text.contains("in total (estimated"));
    }

    #[test]
    fn nothing_found_is_said() {
        let text = of(&manifest(), &[], PLAIN);
        assert!(text.contains("no requests found · 0 records lost"));
        assert!(!text.contains("Percentiles"));
    }

    #[test]
    fn only_incomplete() {
        let text = of(&manifest(), &[(unfinished(1, 5), Vec::new())], PLAIN);
        assert!(text.contains("1 request (1 pipe), 1 incomplete"), "{text}");
        assert!(!text.contains("Where the time went"));
    }

    #[test]
    fn colour_only_when_asked() {
        let color = Style { color: true, width: None };
        assert!(of(&manifest(), &ten(), color).contains("\x1b["));
        assert!(!of(&troubled(), &ten(), PLAIN).contains('\x1b'));
    }

    /// 300 requests with several methods. Every fiftieth is slowed by a lock; all of them wait for a CPU that rpcprobe
    /// had.
    fn with_methods() -> Vec<(RequestRow, Vec<Segment>)> {
        let of = |category, ns| segment(category, Side::Server, ns);
        let request = |id: u64| {
            let slow = id.is_multiple_of(50);
            let mut wait = of(Category::RunqueueWakeup, 300);
            wait.by = Some("rpcprobe/7".into());
            let mut parts = vec![of(Category::User, 10_000 + id % 7), wait];
            let mut middle = of(Category::KernelVfs, 50);
            (middle.side, middle.comm) = (Side::Middle, "postgres".into());
            parts.push(middle);
            if slow {
                let mut lock = of(Category::Lock, 900_000);
                lock.by = Some("writer/9".into());
                parts.push(lock);
            }
            let (mut row, segments) = tiled(id, parts);
            row.request.kind = Kind::Http1;
            let path = "/a/path/that/is/much/longer/than/any/terminal/is/wide/so/it/must/be/cut";
            row.request.method = Some(match slow {
                true => "GET /slow".to_owned(),
                false => format!("GET {path}/{}", id % 20),
            });
            (row, segments)
        };
        (1..=300).map(request).collect()
    }

    #[test]
    fn a_slow_method_and_its_cause_come_first() {
        let text = of(&manifest(), &with_methods(), PLAIN);
        let said = "The slowest 1 %, mostly GET /slow, take 900 us more than typical ones: \
                    lock (server, mostly held by writer) +900 us";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("  GET /slow"), "{text}");
        assert!(text.contains("waited 300 ns"), "{text}");
        assert!(!text.contains("postgres"), "{text}");
        let query = Query::default();
        let breakdown = broken_down(&with_methods(), &query);
        let (manifest, contents) = (manifest(), None);
        let of = Reported {
            manifests: vec![&manifest],
            query: &query,
            breakdown: &breakdown,
            contents,
            accounts: &[],
        };
        let all = self::text(|out| report(out, &of, true, PLAIN));
        assert!(all.contains("kernel.vfs       middle: postgres"), "{all}");
    }

    /// The mark must be in each line that names the category.
    #[test]
    fn what_is_inferred_is_marked_where_it_is_read_first() {
        let mut requests = with_methods();
        let locks = requests.iter_mut().flat_map(|(_, segments)| segments);
        for lock in locks.filter(|segment| segment.category == Category::Lock) {
            lock.evidence = rpcprobe_model::Evidence::Modelled;
        }
        let text = of(&manifest(), &requests, PLAIN);
        assert!(text.contains("lock ~ (server, mostly held by writer) +900 us"), "{text}");
        let most = text.lines().find(|line| line.starts_with("  GET /slow"));
        assert!(most.is_some_and(|line| line.ends_with("99 % server lock ~")), "{text}");
        let tail = text.lines().filter(|line| line.starts_with("  lock"));
        assert!(
            tail.clone().count() == 2 && tail.clone().all(|line| line.starts_with("  lock ~ ")),
            "{text}"
        );
    }

    /// The hint is left out if tasks were followed, or if it is not known whether they were.
    #[test]
    fn that_tasks_would_tell_of_waits_is_said_where_they_were_not_followed() {
        let mut requests = with_methods();
        let locks = requests.iter_mut().flat_map(|(_, segments)| segments);
        for lock in locks.filter(|segment| segment.category == Category::Lock) {
            lock.evidence = rpcprobe_model::Evidence::Modelled;
        }
        for (tasks, said) in [(Some(false), true), (Some(true), false), (None, false)] {
            let mut manifest = manifest();
            manifest.options.tasks = tasks;
            let text = of(&manifest, &requests, PLAIN);
            assert_eq!(text.contains("a capture with --tasks tells"), said, "{text}");
        }
        let mut manifest = manifest();
        manifest.options.tasks = Some(false);
        let measured = of(&manifest, &with_methods(), PLAIN);
        assert!(!measured.contains("--tasks"), "{measured}");
    }

    #[test]
    fn every_line_fits_the_terminal() {
        let width = 80;
        let narrow = Style { color: false, width: Some(width) };
        for requests in [with_methods(), ten(), Vec::new()] {
            let text = of(&troubled(), &requests, narrow);
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{line}");
            }
            assert!(!text.contains("NaN"), "{text}");
        }
    }

    #[test]
    fn a_filter_is_told_and_counted() {
        let filter = RequestFilter { min_latency_ns: Some(9_500), ..RequestFilter::default() };
        let query = Query { filter, by: None };
        let mut requests = ten();
        requests.push((unfinished(11, 3_100), Vec::new()));
        let breakdown = broken_down(&requests, &query);
        let (manifest, contents) = (manifest(), None);
        let of = Reported {
            manifests: vec![&manifest],
            query: &query,
            breakdown: &breakdown,
            contents,
            accounts: &[],
        };
        let text = text(|out| report(out, &of, false, PLAIN));
        let said = "Filter: latency >= 9.50 us: 2 of 11 requests pass (1 of them may: they are \
                    incomplete)";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("p50 10.0 us"), "{text}");
    }
}
