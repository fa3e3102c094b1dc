//! `report`: the table of a whole capture.

use std::io::Write;

use anyhow::Result;
use comfy_table::Cell;

use super::breakdown::{Breakdown, Distribution, KindBreakdown, Part, PhasePart, Waits};
use super::header::header;
use super::text::{bold, escape, indented, marks, table, tinted, MODELLED, SAMPLED};
use super::units::{count, format_exact, format_ns, format_share};
use super::values::EXACT_VALUES;
use super::Style;
use crate::capture::manifest::Manifest;
use crate::model::Certainty;

/// Parts named in the one-line answer.
const ANSWER_PARTS: usize = 3;

/// Writes the report of a capture: what must be known first, where the time went in a line, then a
/// section for each kind of request.
///
/// # Errors
/// When `out` cannot be written.
pub fn report(
    out: &mut dyn Write,
    manifest: &Manifest,
    breakdown: &Breakdown,
    style: Style,
) -> Result<()> {
    header(out, manifest, breakdown, style)?;
    let with_figures: Vec<_> =
        breakdown.kinds.iter().filter(|kind| kind.requests > kind.incomplete).collect();
    if !with_figures.is_empty() {
        writeln!(out)?;
    }
    for kind in &with_figures {
        let of = match with_figures.len() {
            1 => String::new(),
            _ => format!(" ({})", kind.kind),
        };
        writeln!(out, "{}", bold(&format!("Where the time went{of}: {}", answer(kind)), style))?;
    }
    for kind in &breakdown.kinds {
        section(out, kind, style)?;
    }
    footnotes(out, breakdown)
}

fn answer(kind: &KindBreakdown) -> String {
    let mut parts: Vec<_> =
        kind.parts.iter().filter(|part| part.per_request.total_ns > 0).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.per_request.total_ns));
    if parts.is_empty() {
        return "nowhere, every latency is 0".to_owned();
    }
    let named: Vec<_> = parts
        .iter()
        .take(ANSWER_PARTS)
        .map(|part| {
            let share = format_share(part.per_request.total_ns, kind.latency.total_ns);
            format!("{share} {} {}", side(part), part_name(part))
        })
        .collect();
    named.join(", ")
}

/// How sure it is that they are requests: nothing where all are.
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

fn section(out: &mut dyn Write, kind: &KindBreakdown, style: Style) -> Result<()> {
    let complete = kind.requests - kind.incomplete;
    writeln!(out)?;
    let title = format!("{}: {}", kind.kind, count(kind.requests, "request"));
    write!(out, "{}", bold(&title, style))?;
    write!(out, "{}", certainties(kind))?;
    if kind.incomplete > 0 {
        let least = kind.incomplete_max_lower_bound_ns.unwrap_or(0);
        write!(
            out,
            ", {} complete and in the figures; {} incomplete, the longest lasted ≥ {}",
            format_exact(complete),
            format_exact(kind.incomplete),
            format_ns(least)
        )?;
    }
    writeln!(out)?;
    if complete == 0 {
        return Ok(());
    }
    let Distribution { p50_ns, p90_ns, p99_ns, max_ns, mean_ns, .. } = kind.latency;
    writeln!(
        out,
        "  latency  p50 {}   p90 {}   p99 {}   max {}   mean {}",
        format_ns(p50_ns),
        format_ns(p90_ns),
        format_ns(p99_ns),
        format_ns(max_ns),
        format_ns(mean_ns.round() as u64)
    )?;
    writeln!(out)?;
    write!(out, "{}", parts_table(kind, style))?;
    if !kind.phases.is_empty() {
        writeln!(out)?;
        write!(out, "{}", phases_table(kind, style))?;
    }
    if !kind.waits.is_empty() {
        writeln!(out, "\n  {}", bold("who had the CPU meanwhile", style))?;
        for waits in &kind.waits {
            writeln!(out, "  {}", waits_line(waits))?;
        }
    }
    Ok(())
}

fn parts_table(kind: &KindBreakdown, style: Style) -> String {
    let header = ["category", "side", "p50", "p90", "p99", "max", "share"];
    let mut table = table(&header, &[2, 3, 4, 5, 6], style);
    for part in &kind.parts {
        let mut row = vec![
            tinted(part_name(part), part.category, style),
            Cell::new(part.side.map_or("-", |side| side.name())),
        ];
        row.extend(figures(&part.per_request, kind.latency.total_ns));
        table.add_row(row);
    }
    let mut row = vec![Cell::new("total"), Cell::new("")];
    row.extend(figures(&kind.latency, kind.latency.total_ns));
    table.add_row(row);
    indented(&table, "  ")
}

fn figures(of: &Distribution, whole_ns: u64) -> [Cell; 5] {
    [
        Cell::new(format_ns(of.p50_ns)),
        Cell::new(format_ns(of.p90_ns)),
        Cell::new(format_ns(of.p99_ns)),
        Cell::new(format_ns(of.max_ns)),
        Cell::new(format_share(of.total_ns, whole_ns)),
    ]
}

fn phases_table(kind: &KindBreakdown, style: Style) -> String {
    let mut table = table(&["phase", "mean", "p50", "share"], &[1, 2, 3], style);
    let mut row = |name: String, of: &Distribution| {
        table.add_row(vec![
            Cell::new_owned(name),
            Cell::new(format_ns(of.mean_ns.round() as u64)),
            Cell::new(format_ns(of.p50_ns)),
            Cell::new(format_share(of.total_ns, kind.latency.total_ns)),
        ]);
    };
    for phase in &kind.phases {
        row(phase_name(phase), &phase.per_request);
    }
    row("total".to_owned(), &kind.latency);
    indented(&table, "  ")
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
    format!("{} {}{mark}: {}", waits.side, waits.category, names.join(", "))
}

fn part_name(part: &Part) -> String {
    format!("{}{}", part.category, marks(part.modelled_ns > 0, part.sampled_ns > 0))
}

fn phase_name(phase: &PhasePart) -> String {
    let name = phase.phase.map_or("(no phase)".to_owned(), escape);
    format!("{name}{}", marks(phase.modelled_ns > 0, phase.sampled_ns > 0))
}

fn side(part: &Part) -> &'static str {
    part.side.map_or("", |side| side.name())
}

fn footnotes(out: &mut dyn Write, breakdown: &Breakdown) -> Result<()> {
    if breakdown.kinds.iter().all(|kind| kind.requests == kind.incomplete) {
        return Ok(());
    }
    let many = breakdown.kinds.iter().any(|kind| kind.requests > EXACT_VALUES as u64);
    let within = if many { "; of so many, within 0.1 %" } else { "" };
    writeln!(
        out,
        "\nPercentiles are per request, 0 where a request has none of a category{within}."
    )?;
    let marked = |figure: fn(&Part) -> u64| -> Vec<String> {
        let mut list = Vec::new();
        for kind in &breakdown.kinds {
            for part in kind.parts.iter().filter(|part| figure(part) > 0) {
                let share = format_share(figure(part), part.per_request.total_ns);
                list.push(format!("{} {} {} {share}", kind.kind, side(part), part.category));
            }
        }
        list
    };
    for (mark, how, figure) in [
        (MODELLED, "modelled, not measured", (|part| part.modelled_ns) as fn(&Part) -> u64),
        (SAMPLED, "sampled", |part| part.sampled_ns),
    ] {
        let list = marked(figure);
        if !list.is_empty() {
            writeln!(out, "{mark} {how}, in whole or in part: {}", list.join(", "))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::breakdown::breakdown;
    use super::super::samples::{manifest, stream, ten, text, troubled, unfinished, PLAIN};
    use super::*;
    use crate::model::{Kind, Segment};
    use crate::output::RequestRow;

    fn of(manifest: &Manifest, requests: &[(RequestRow, Vec<Segment>)], style: Style) -> String {
        let (rows, segments) = stream(requests);
        let breakdown = breakdown(rows.into_iter().map(Ok), segments).unwrap();
        text(|out| report(out, manifest, &breakdown, style))
    }

    #[test]
    fn the_whole_report() {
        let expected = "\
./frpc -m 3
host · Linux 6.18.1 x86_64 · 4 CPUs · 2025-01-02T03:04:05Z · 12.3 ms captured · exit 0
10 requests (10 pipe), all complete · 0 records lost · probe cost about 100 ns per request (estimated, 1.8 % of the mean latency)

Where the time went: 60.0 % client user, 30.0 % client runqueue.wakeup, 10.0 % server copy ~

pipe: 10 requests (likely)
  latency  p50 5.00 us   p90 9.00 us   p99 10.0 us   max 10.0 us   mean 5.50 us

  category         side        p50      p90      p99      max    share
  user             client  3.00 us  5.40 us  6.00 us  6.00 us   60.0 %
  copy ~           server   500 ns   900 ns  1.00 us  1.00 us   10.0 %
  runqueue.wakeup  client  1.50 us  2.70 us  3.00 us  3.00 us   30.0 %
  unattributed     -          0 ns     0 ns     0 ns     0 ns    0.0 %
  total                    5.00 us  9.00 us  10.0 us  10.0 us  100.0 %

  who had the CPU meanwhile
  client runqueue.wakeup: 65.5 % kworker/0:1, 34.5 % sh

Percentiles are per request, 0 where a request has none of a category.
~ modelled, not measured, in whole or in part: pipe server copy 100.0 %
";
        assert_eq!(of(&manifest(), &ten(), PLAIN), expected);
    }

    #[test]
    fn what_is_wrong_comes_first() {
        let mut requests = ten();
        requests[0].1.clear();
        requests.push((unfinished(11, 3_100_000), Vec::new()));
        let text = of(&troubled(), &requests, PLAIN);
        let head: Vec<_> = text.lines().take(9).collect();
        assert!(head[0].ends_with("3 \\x1b[2J"), "{text}");
        assert!(head[2].contains("11 requests (11 pipe), 1 incomplete · 7 records lost"), "{text}");
        assert!(head[3].starts_with("! 1 complete request DO NOT ADD UP: request 1: "), "{text}");
        assert_eq!(head[4], "! 1 incomplete request, not in the figures below: records lost (1)");
        assert_eq!(head[5], "! 7 records lost: 7 on CPU 1 from +0.000001 s to +0.000002 s");
        assert_eq!(head[6], "! 2 records came too late to be put in order");
        assert!(head[7].contains("fentry/pipe_write (refused)"), "{text}");
        assert_eq!(head[8], "! ended early\\u{202e}");
        assert!(text.contains(
            "10 complete and in the figures; 1 incomplete, the longest lasted ≥ 3.10 ms"
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
        assert!(at("\nexec: 1 request\n") < at("\npipe: 8 requests (7 likely, 1 guessed)\n"));
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
}
