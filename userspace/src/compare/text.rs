//! Writes a comparison for people: first the answer, then its basis, then the tables.

use std::io::Write;

use anyhow::Result;
use comfy_table::Cell;

use super::comparison::{
    Basis, Change, Comparison, KindComparison, MethodChange, MixOfMethods, NameChange, PartChange,
    StatisticComparison, Verdict,
};
use super::names::Says;
use super::Statistic;
use crate::report::fit::cut;
use crate::report::layout::wrap;
use crate::report::text::{alarm, bold, escape, indented, marks, table, tinted};
use crate::report::units::{count, format_exact};
use crate::report::{format_ns, Style};

/// Maximum number of parts named in the answer.
const ANSWER_PARTS: usize = 3;
/// Parts with a change below this share of the total are combined in one line.
const LEAST_LISTED: f64 = 0.005;
/// Maximum number of rows of a table of parts.
const MOST_PARTS: usize = 12;
/// Number of cells for a name.
const NAME_CELLS: usize = 40;

/// Writes the comparison. `all`: also the parts of every statistic, and parts that hardly changed.
///
/// # Errors
/// When `out` cannot be written.
pub fn write(out: &mut dyn Write, comparison: &Comparison, all: bool, style: Style) -> Result<()> {
    for (name, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        let runs = match comparison.basis {
            Basis::OneCaptureEach => escape(&side.runs.join(", ")),
            _ => count(side.runs.len() as u64, "run"),
        };
        let line = wrap(&format!("{name}  {} · {runs}", escape(&side.what)), "   ", style);
        write!(out, "{}{}", bold(name, style), line.strip_prefix(name).unwrap_or(&line))?;
    }
    write!(out, "{}", wrap(&basis(comparison), "  ", style))?;
    for warning in &comparison.warnings {
        let line = wrap(&format!("! {}", escape(warning)), "  ", style);
        write!(out, "{}{}", alarm("!", style), line.strip_prefix('!').unwrap_or(&line))?;
    }
    writeln!(out)?;
    for kind in &comparison.kinds {
        for line in wrap(&answer(comparison, kind), "  ", style).lines() {
            writeln!(out, "{}", bold(line, style))?;
        }
    }
    for of in &comparison.not_compared {
        let (of_a, of_b) = (comparison.a.runs.len(), comparison.b.runs.len());
        let why = format!(
            "{}: not compared, only {} of {of_a} runs of A and {} of {of_b} of B have such requests",
            of.kind, of.a_runs, of.b_runs,
        );
        write!(out, "{}", wrap(&why, "  ", style))?;
    }
    for kind in &comparison.kinds {
        section(out, comparison, kind, all, style)?;
    }
    footnotes(out, comparison, style)
}

/// Returns the answer for each kind, then the basis, then what the reader must know before anything else.
pub fn in_words(comparison: &Comparison) -> Vec<String> {
    let answers = comparison.kinds.iter().map(|kind| answer(comparison, kind));
    let warnings = comparison.warnings.iter().map(|warning| escape(warning));
    answers.chain([basis(comparison)]).chain(warnings).collect()
}

fn basis(comparison: &Comparison) -> String {
    let pairs = count(comparison.pairs as u64, "pair");
    let on_what = match comparison.basis {
        Basis::RandomPairs => {
            format!("{pairs} of runs, the order within each pair drawn at random")
        }
        Basis::Neighbours => {
            format!("{pairs} of runs next to each other in time; whether their order was random is not known")
        }
        Basis::Unpaired => "unpaired runs".to_owned(),
        Basis::OneCaptureEach => "one capture a side".to_owned(),
    };
    match &comparison.no_verdict {
        Some(why) if comparison.basis == Basis::OneCaptureEach => {
            format!("No verdict: {why}; `rpcprobe ab` makes runs that can be compared")
        }
        Some(why) => format!("{on_what}. No verdict: {why}"),
        None => on_what,
    }
}

/// Returns the answer for a kind, such as
/// `B's median is 41.0 us lower (-6.1 %, 95 % interval -7.0 to -5.2 %): journal (server) -38.0 us, ...`
fn answer(comparison: &Comparison, kind: &KindComparison) -> String {
    let title = match kind.kind == kind.b_kind {
        true => kind.kind.to_string(),
        false => format!("{} against {}", kind.kind, kind.b_kind),
    };
    let in_order = [Statistic::P50, Statistic::Mean, Statistic::P90, Statistic::P99];
    let find = |wanted| kind.statistics.iter().find(|of| of.statistic == wanted);
    let first = in_order.into_iter().filter_map(find).find(|of| of.is_changed());
    let median_or_mean = in_order.into_iter().find_map(find);
    let said = match (comparison.verdict, kind.verdict, first, median_or_mean) {
        (Verdict::NoVerdict, _, _, Some(of)) => difference(of, comparison.basis),
        (_, Verdict::Changed, Some(of), _) => difference(of, comparison.basis),
        (.., Some(of)) => no_difference(of),
        _ => "no figures".to_owned(),
    };
    format!("{title}: {said}")
}

fn difference(of: &StatisticComparison, basis: Basis) -> String {
    let Change { change_ns, interval_ns, a_ns, shown, p, .. } = of.total;
    let total = of.statistic.in_words();
    let relative = |ns: f64| format!("{:+.1}", ns / a_ns.max(1) as f64 * 100.0);
    let interval = interval_ns.map(|(low, high)| {
        let within =
            if basis == Basis::OneCaptureEach { " within these captures only" } else { "" };
        format!(", 95 % interval {} to {} %{within}", relative(low), relative(high))
    });
    let interval = interval.unwrap_or_default();
    let size = format_ns(change_ns.unsigned_abs());
    let percent = relative(change_ns as f64);
    let whole = match change_ns.signum() {
        0 => format!("B's {total} is the same"),
        sign => {
            let direction = if sign < 0 { "lower" } else { "higher" };
            format!("B's {total} is {size} {direction} ({percent} %{interval})")
        }
    };
    let is_shown = |part: &&PartChange| part.change.shown;
    match (shown, p) {
        (false, Some(_)) => {
            let parts: Vec<_> =
                of.parts.iter().filter(is_shown).take(ANSWER_PARTS).map(part_words).collect();
            match parts.is_empty() {
                true => format!("{whole}; not beyond chance"),
                false => {
                    format!("changed: {}. {whole}, as a whole not beyond chance", parts.join(", "))
                }
            }
        }
        _ => {
            let parts: Vec<_> = of
                .parts
                .iter()
                .filter(|part| part.change.change_ns != 0)
                .take(ANSWER_PARTS)
                .map(part_words)
                .collect();
            match parts.is_empty() {
                true => whole,
                false => format!("{whole}: {}", parts.join(", ")),
            }
        }
    }
}

fn part_words(part: &PartChange) -> String {
    let mark = marks(part.modelled, false);
    format!("{} ({}){mark} {}", part.category, part.side, signed(part.change.change_ns))
}

fn no_difference(of: &StatisticComparison) -> String {
    let Change { a_ns, detectable_ns, .. } = of.total;
    let total = of.statistic.in_words();
    match detectable_ns {
        Some(ns) => format!(
            "no difference shown. A change of the {total} by {} ({:.1} %) would have been shown in 8 of 10 \
             such comparisons",
            format_ns(ns as u64),
            ns / a_ns.max(1) as f64 * 100.0
        ),
        None => "no difference shown".to_owned(),
    }
}

fn section(
    out: &mut dyn Write,
    comparison: &Comparison,
    kind: &KindComparison,
    all: bool,
    style: Style,
) -> Result<()> {
    let title = format!("{}: {} of A", kind.kind, count(kind.a_requests, "request"));
    let of_b = match kind.kind == kind.b_kind {
        true => format!("{} of B", format_exact(kind.b_requests)),
        false => format!("{}: {} of B", kind.b_kind, format_exact(kind.b_requests)),
    };
    let cost = kind.a_probe_cost_ns.zip(kind.b_probe_cost_ns).map(|(a, b)| {
        let ns = |ns: f64| format_ns(ns.max(0.0).round() as u64);
        format!("; probe cost about {} and {} per request", ns(a), ns(b))
    });
    writeln!(out, "\n{}", bold(&format!("{title}, {of_b}{}", cost.unwrap_or_default()), style))?;
    writeln!(out)?;
    write!(out, "{}", totals(comparison, kind, style))?;
    let first = [Statistic::P50, Statistic::Mean, Statistic::P90, Statistic::P99].into_iter();
    let mut wanted: Vec<_> =
        first.filter_map(|s| kind.statistics.iter().find(|of| of.statistic == s)).collect();
    // If no difference is shown, the parts of the difference are noise.
    let tells = all || kind.verdict != Verdict::NoDifferenceShown;
    if !tells {
        wanted.clear();
    } else if !all {
        let one = wanted.iter().position(|of| of.is_changed()).unwrap_or(0);
        wanted = wanted.into_iter().skip(one).take(1).collect();
    }
    for of in wanted {
        writeln!(out)?;
        write!(out, "{}", parts(of, all, style))?;
    }
    if !kind.names.is_empty() && tells {
        writeln!(out, "\n  {}", bold("who and what is named in waits, per request", style))?;
        write!(out, "{}", names(&kind.names, style))?;
    }
    if let (Some(mix), true) = (&kind.methods, tells) {
        writeln!(
            out,
            "\n  {}",
            bold(
                &format!(
                    "of the mean's change: mix of methods {}, within methods {}",
                    signed(mix.mix_ns),
                    signed(mix.within_ns)
                ),
                style
            )
        )?;
        write!(out, "{}", methods(mix, all, style))?;
    }
    Ok(())
}

fn totals(comparison: &Comparison, kind: &KindComparison, style: Style) -> String {
    let tested = comparison.pairs > 0;
    let mut header = vec!["latency", "A", "B", "change", "of A", "95 % interval"];
    header.extend(tested.then_some("p"));
    let mut table = table(&header, &[1, 2, 3, 4, 5, 6], style);
    for StatisticComparison { statistic, total, .. } in &kind.statistics {
        let interval = total.interval_ns.map_or("-".to_owned(), |(low, high)| {
            format!("{} to {}", signed(low.round() as i64), signed(high.round() as i64))
        });
        let mut row = vec![
            Cell::new(statistic.name()),
            Cell::new(format_ns(total.a_ns.unsigned_abs())),
            Cell::new(format_ns(total.b_ns.unsigned_abs())),
            Cell::new(signed(total.change_ns)),
            Cell::new(percent(total.change_of_total)),
            Cell::new(interval),
        ];
        row.extend(tested.then(|| Cell::new(probability(total))));
        table.add_row(row);
    }
    let mut text = indented(&table, "  ");
    if !kind.too_few_for.is_empty() {
        let list: Vec<_> = kind.too_few_for.iter().map(|statistic| statistic.name()).collect();
        text.push_str(&format!("  too few requests a run for {}\n", list.join(" and ")));
    }
    if let Some(no) = &kind.no_intervals {
        let why = format!(
            "No intervals: {} requests of A and {} of B, of which up to {} in a row are alike, make fewer than {} \
             independent blocks; a longer capture has enough",
            format_exact(no.a_requests),
            format_exact(no.b_requests),
            format_exact(no.block_requests),
            no.blocks_needed
        );
        text.push_str(&wrap(&why, "  ", style));
    }
    text
}

fn parts(of: &StatisticComparison, all: bool, style: Style) -> String {
    let tested = of.total.p.is_some();
    let heading = format!("{} made of", of.statistic.in_words());
    let mut header = vec![heading.as_str(), "A", "B", "change", "of change"];
    header.extend(tested.then_some("p"));
    let mut table = table(&header, &[1, 2, 3, 4, 5], style);
    let least_ns = of.total.a_ns.max(of.total.b_ns) as f64 * LEAST_LISTED;
    let matters = |part: &PartChange| {
        let sides = part.change.a_ns.abs().max(part.change.b_ns.abs());
        part.change.shown
            || part.change.change_ns.unsigned_abs() as f64 >= least_ns
            || sides as f64 >= 10.0 * least_ns
    };
    let (mut listed, mut rest): (Vec<_>, Vec<_>) =
        of.parts.iter().partition(|part| all || matters(part));
    if !all && listed.len() > MOST_PARTS {
        rest.splice(0..0, listed.split_off(MOST_PARTS));
    }
    let cells = |name: Cell, change: &Change, share: Option<f64>| {
        let mut row = vec![
            name,
            Cell::new(signless(change.a_ns)),
            Cell::new(signless(change.b_ns)),
            Cell::new(signed(change.change_ns)),
            Cell::new(share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))),
        ];
        row.extend(tested.then(|| {
            Cell::new(if change.p.is_some() { probability(change) } else { String::new() })
        }));
        row
    };
    for part in listed {
        let name = format!("{} {}{}", part.category, part.side, marks(part.modelled, false));
        table.add_row(cells(
            tinted(name, part.category, style),
            &part.change,
            part.share_of_change,
        ));
    }
    if !rest.is_empty() {
        let sum = |of: fn(&Change) -> i64| rest.iter().map(|part| of(&part.change)).sum::<i64>();
        let change = Change {
            a_ns: sum(|c| c.a_ns),
            b_ns: sum(|c| c.b_ns),
            change_ns: sum(|c| c.change_ns),
            ..Change::default()
        };
        let share =
            (of.total.change_ns != 0).then(|| change.change_ns as f64 / of.total.change_ns as f64);
        let name = format!("{} that hardly changed", count(rest.len() as u64, "other"));
        table.add_row(cells(Cell::new(name), &change, share));
    }
    let whole = (of.total.change_ns != 0).then_some(1.0);
    table.add_row(cells(Cell::new("total"), &of.total, whole));
    indented(&table, "  ")
}

fn names(changes: &[NameChange], style: Style) -> String {
    let mut table = table(&["in", "", "A", "B", "change"], &[2, 3, 4], style);
    for NameChange { category, side, says, name, a_ns, b_ns, change_ns } in changes {
        let says = match says {
            Says::By => "by",
            Says::Cause => "because:",
        };
        table.add_row(vec![
            tinted(format!("{category} {side}"), *category, style),
            Cell::new(format!("{says} {}", cut(&escape(name), NAME_CELLS))),
            Cell::new(signless(a_ns.round() as i64)),
            Cell::new(signless(b_ns.round() as i64)),
            Cell::new(signed(change_ns.round() as i64)),
        ]);
    }
    indented(&table, "  ")
}

fn methods(mix: &MixOfMethods, all: bool, style: Style) -> String {
    const SHORT: usize = 8;
    let header = ["method", "share A", "B", "mean A", "B", "mix", "within"];
    let mut table = table(&header, &[1, 2, 3, 4, 5, 6], style);
    let listed = if all { mix.methods.len() } else { SHORT };
    for method in mix.methods.iter().take(listed) {
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        let mean =
            |mean: Option<f64>| mean.map_or("-".to_owned(), |ns| format_ns(ns.round() as u64));
        table.add_row(vec![
            Cell::new(method_name(method)),
            Cell::new(share(method.a_share)),
            Cell::new(share(method.b_share)),
            Cell::new(mean(method.a_mean_ns)),
            Cell::new(mean(method.b_mean_ns)),
            Cell::new(signed(method.mix_ns)),
            Cell::new(signed(method.within_ns)),
        ]);
    }
    let mut text = indented(&table, "  ");
    if mix.methods.len() > listed {
        text.push_str(&format!("  … {} more; --all shows them\n", mix.methods.len() - listed));
    }
    text
}

fn method_name(method: &MethodChange) -> String {
    match (&method.method, method.others) {
        (Some(name), 0) => cut(&escape(name), 28),
        (_, 0) => "(not known)".to_owned(),
        (_, others) => count(others as u64, "other"),
    }
}

fn footnotes(out: &mut dyn Write, comparison: &Comparison, style: Style) -> Result<()> {
    let mut notes = vec![
        "Averages over the runs of a side. Quantiles by Harrell and Davis, so that their parts sum to them; \
         that describes a change, it does not prove a cause."
            .to_owned(),
    ];
    if comparison.pairs > 0 {
        notes.push(format!(
            "p: the probability of a difference this large anywhere in the tables by chance ({} sign flips). \
             \"changed\": p is at most {}, and the change is at least 1 % of the mean latency and at least the \
             change of the probe's own cost.",
            format_exact(comparison.flips),
            comparison.level
        ));
    }
    writeln!(out)?;
    notes.iter().try_for_each(|note| Ok(write!(out, "{}", wrap(note, "  ", style))?))
}

/// Formats a time with its sign: `+5.10 us`, `-38.0 us`, `0 ns`.
fn signed(ns: i64) -> String {
    let sign = match ns.signum() {
        -1 => "-",
        0 => "",
        _ => "+",
    };
    format!("{sign}{}", format_ns(ns.unsigned_abs()))
}

/// Formats a time that can be negative only through rounding.
fn signless(ns: i64) -> String {
    match ns {
        ns if ns < 0 => signed(ns),
        ns => format_ns(ns as u64),
    }
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:+.1} %", part * 100.0))
}

fn probability(change: &Change) -> String {
    let p = change.p.unwrap_or(1.0);
    let text = if p < 0.0995 { format!("{p:.3}") } else { format!("{p:.2}") };
    if change.shown {
        format!("{text} changed")
    } else {
        text
    }
}
