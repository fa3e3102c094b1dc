//! The tables of a report.

use comfy_table::Cell;

use super::breakdown::{KindBreakdown, Part, PhasePart};
use super::groups::{largest, Group, GroupPart, Groups};
use super::layout::fit;
use super::sums::Distribution;
use super::tail::{Tail, TailPart};
use super::text::{escape, indented, marks, table, tinted};
use super::units::{format_exact, format_ns, format_rate, format_share, format_signed_ns};
use super::words::{marked, part_name, place};
use super::Style;
use rpcprobe_model::Category;

/// Maximum number of rows of a table, unless all are wanted.
const PART_ROWS: usize = 15;
/// Minimum and maximum number of rows.
const GROUP_ROWS: (usize, usize) = (4, 10);
const TAIL_ROWS: usize = 6;
/// Parts and groups below 1/`SMALL` of the whole are combined.
const SMALL: u64 = 100;

/// Rows and columns of text, some in the colour of a category.
pub(super) struct Rows<'h> {
    pub header: &'h [&'h str],
    /// Columns aligned to the right.
    pub right: &'h [usize],
    /// Columns that may be cut, each with the minimum number of characters to keep.
    pub shrink: &'h [(usize, usize)],
    pub rows: Vec<Vec<String>>,
    /// The category of each row, which colours the column `tinted`.
    pub categories: Vec<Option<Category>>,
    pub tinted: usize,
}

impl Rows<'_> {
    pub fn push(&mut self, category: Option<Category>, row: Vec<String>) {
        self.rows.push(row);
        self.categories.push(category);
    }

    pub fn text(mut self, style: Style) -> String {
        const INDENT: &str = "  ";
        // Two blanks after each column except the last, where they are trimmed.
        let taken = INDENT.len() + 2 * (self.header.len() - 1);
        fit(self.header, &mut self.rows, self.shrink, taken, style);
        let mut table = table(self.header, self.right, style);
        for (row, category) in self.rows.into_iter().zip(self.categories) {
            let cells = row.into_iter().enumerate().map(|(i, text)| match category {
                Some(category) if i == self.tinted => tinted(text, category, style),
                _ => Cell::new_owned(text),
            });
            table.add_row(cells.collect::<Vec<_>>());
        }
        indented(&table, INDENT)
    }
}

/// Returns the kind's categories, those with the most time first. The small ones share a line,
/// unless `all` is set.
pub(super) fn parts(kind: &KindBreakdown, all: bool, style: Style) -> String {
    let whole_ns = kind.latency.total_ns;
    let mut parts: Vec<&Part> = kind.parts.iter().collect();
    let shown = if all {
        parts.len()
    } else {
        parts.sort_by_key(|part| std::cmp::Reverse(part.per_request.total_ns));
        let large = |part: &&&Part| !is_small(part.per_request.total_ns, whole_ns);
        parts.iter().take_while(large).count().min(PART_ROWS)
    };
    // Hiding a single part would save no line, because a line says what is hidden.
    let shown = if parts.len() - shown == 1 { parts.len() } else { shown };
    let (shown, small) = parts.split_at(shown);
    let mut rows = Rows {
        header: &["category", "side", "p50", "p90", "p99", "max", "share"],
        right: &[2, 3, 4, 5, 6],
        shrink: &[(1, 6)],
        rows: Vec::new(),
        categories: Vec::new(),
        tinted: 0,
    };
    for part in shown {
        let side = part.side.map_or("-".to_owned(), |side| place(side, part.comm.as_deref()));
        let mut row = vec![part_name(part), side];
        row.extend(figures(&part.per_request, whole_ns));
        rows.push(Some(part.category), row);
    }
    let mut row = vec!["total".to_owned(), String::new()];
    row.extend(figures(&kind.latency, whole_ns));
    rows.push(None, row);
    let mut text = rows.text(style);
    if !small.is_empty() {
        let ns: u128 = small.iter().map(|part| u128::from(part.per_request.total_ns)).sum();
        let each = match small.iter().all(|part| is_small(part.per_request.total_ns, whole_ns)) {
            true => " under 1 % each",
            false => "",
        };
        let unattributed = small.iter().filter(|part| part.category == Category::Unattributed);
        let unattributed_ns: u64 = unattributed.map(|part| part.per_request.total_ns).sum();
        let line = format!(
            "  {} more{each}: {} together (unattributed: {}); --all shows them\n",
            small.len(),
            format_share(ns, whole_ns),
            format_share(unattributed_ns, whole_ns)
        );
        // The line goes above the total, which includes these parts.
        let total = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
        text.insert_str(total, &line);
    }
    text
}

fn is_small(ns: u64, whole_ns: u64) -> bool {
    ns.saturating_mul(SMALL) < whole_ns || ns == 0
}

fn figures(of: &Distribution, whole_ns: u64) -> [String; 5] {
    [
        format_ns(of.p50_ns),
        format_ns(of.p90_ns),
        format_ns(of.p99_ns),
        format_ns(of.max_ns),
        format_share(of.total_ns, whole_ns),
    ]
}

/// Returns the groups of a kind, those with the most time first.
pub(super) fn groups(groups: &Groups, whole_ns: u64, all: bool, style: Style) -> String {
    let by = groups.by.name();
    let header = [by, "count", "rate", "p50", "p99", "time", "most of it"];
    let mut rows = Rows {
        header: &header,
        right: &[1, 2, 3, 4, 5],
        shrink: &[(0, 12), (6, 20), (0, 8), (6, 8)],
        rows: Vec::new(),
        categories: Vec::new(),
        tinted: 6,
    };
    let large = |group: &&Group| !is_small(group.latency.total_ns, whole_ns);
    let shown = match all {
        true => groups.listed.len(),
        false => groups.listed.iter().take_while(large).count().clamp(GROUP_ROWS.0, GROUP_ROWS.1),
    };
    let shown = shown.min(groups.listed.len());
    // Hiding a single group would save no line, because a line says what is hidden.
    let one_more = groups.listed.len() == shown + 1 && groups.others.is_none();
    let (shown, rest) = groups.listed.split_at(shown + usize::from(one_more));
    for group in shown {
        let name = group.name.as_deref().map_or_else(|| format!("(no {by})"), escape);
        let percentiles = [group.latency.p50_ns, group.latency.p99_ns].map(format_ns);
        row(&mut rows, name, percentiles, &Summed::of(group), whole_ns);
    }
    let others = groups.others.as_ref();
    let folded = rest.iter().chain(others.map(|others| &others.group));
    if let Some(sum) = folded.map(Summed::of).reduce(Summed::plus) {
        let names = rest.len() as u64 + others.map_or(0, |others| others.names);
        let at_least = if others.is_none_or(|of| of.names_are_exact) { "" } else { "over " };
        let percentiles = match (rest, others) {
            ([], Some(others)) => {
                [others.group.latency.p50_ns, others.group.latency.p99_ns].map(format_ns)
            }
            _ => ["-".to_owned(), "-".to_owned()],
        };
        let name = format!("{at_least}{} others", format_exact(names));
        row(&mut rows, name, percentiles, &sum, whole_ns);
    }
    rows.text(style)
}

fn row(rows: &mut Rows, name: String, percentiles: [String; 2], sum: &Summed, whole_ns: u64) {
    let [p50, p99] = percentiles;
    let most = largest(&sum.parts);
    rows.push(
        most.as_ref().map(|part| part.category),
        vec![
            name,
            format_exact(sum.requests),
            sum.rate_per_s.map_or("-".to_owned(), format_rate),
            p50,
            p99,
            format_share(sum.total_ns, whole_ns),
            most.map_or("-".to_owned(), |part| {
                let percent = (part.total_ns as f64 * 100.0 / sum.total_ns.max(1) as f64).round();
                let name = marked(part.category, part.modelled_ns, part.sampled_ns);
                format!("{percent:.0} % {} {name}", part.side)
            }),
        ],
    );
}

/// The figures of groups that can be added up.
struct Summed {
    requests: u64,
    rate_per_s: Option<f64>,
    total_ns: u64,
    parts: Vec<GroupPart>,
}

impl Summed {
    fn of(group: &Group) -> Summed {
        Summed {
            requests: group.requests,
            rate_per_s: group.rate_per_s,
            total_ns: group.latency.total_ns,
            parts: group.parts.clone(),
        }
    }

    fn plus(mut self, other: Summed) -> Summed {
        for part in other.parts {
            let same = |of: &&mut GroupPart| (of.category, of.side) == (part.category, part.side);
            match self.parts.iter_mut().find(same) {
                Some(sum) => {
                    sum.total_ns = sum.total_ns.saturating_add(part.total_ns);
                    sum.modelled_ns = sum.modelled_ns.saturating_add(part.modelled_ns);
                    sum.sampled_ns = sum.sampled_ns.saturating_add(part.sampled_ns);
                }
                None => self.parts.push(part),
            }
        }
        Summed {
            requests: self.requests + other.requests,
            rate_per_s: self.rate_per_s.zip(other.rate_per_s).map(|(a, b)| a + b),
            total_ns: self.total_ns.saturating_add(other.total_ns),
            parts: self.parts,
        }
    }
}

/// Returns what the slowest requests have more or less of than typical ones, the largest
/// differences first.
pub(super) fn tail(tail: &Tail, all: bool, style: Style) -> String {
    let whole_ns = tail.difference_ns.unsigned_abs();
    let mut parts: Vec<&TailPart> = tail.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.difference_ns.unsigned_abs()));
    let large = |part: &&&TailPart| !is_small(part.difference_ns.unsigned_abs(), whole_ns);
    let shown = match all {
        true => parts.len(),
        false => parts.iter().take_while(large).count().min(TAIL_ROWS),
    };
    let shown = if parts.len() - shown == 1 { parts.len() } else { shown };
    let (shown, rest) = parts.split_at(shown);
    let mut rows = Rows {
        header: &["category", "side", "typical", "slowest", "more", "of more"],
        right: &[2, 3, 4, 5],
        shrink: &[(1, 6)],
        rows: Vec::new(),
        categories: Vec::new(),
        tinted: 0,
    };
    let figures = |typical_ns: u64, tail_ns: u64, more_ns: i64| {
        let sign = if more_ns < 0 { "-" } else { "" };
        [
            format_ns(typical_ns),
            format_ns(tail_ns),
            format_signed_ns(more_ns),
            format!("{sign}{}", format_share(more_ns.unsigned_abs(), whole_ns)),
        ]
    };
    for part in shown {
        let name = marked(part.category, part.modelled_ns, part.sampled_ns);
        let mut row = vec![name, place(part.side, part.comm.as_deref())];
        row.extend(figures(part.typical_ns, part.tail_ns, part.difference_ns));
        rows.push(Some(part.category), row);
    }
    if !rest.is_empty() {
        let mut row = vec![format!("{} more", rest.len()), String::new()];
        row.extend(figures(
            rest.iter().map(|part| part.typical_ns).sum(),
            rest.iter().map(|part| part.tail_ns).sum(),
            rest.iter().map(|part| part.difference_ns).sum(),
        ));
        rows.push(None, row);
    }
    let mut row = vec!["mean latency".to_owned(), String::new()];
    row.extend(figures(tail.typical.mean_ns, tail.tail.mean_ns, tail.difference_ns));
    rows.push(None, row);
    rows.text(style)
}

/// Returns the phases of processes, in time order.
pub(super) fn phases(kind: &KindBreakdown, style: Style) -> String {
    let mut rows = Rows {
        header: &["phase", "mean", "p50", "share"],
        right: &[1, 2, 3],
        shrink: &[(0, 8)],
        rows: Vec::new(),
        categories: Vec::new(),
        tinted: 0,
    };
    let mut row = |name: String, of: &Distribution| {
        let mean = format_ns(of.mean_ns.round() as u64);
        let share = format_share(of.total_ns, kind.latency.total_ns);
        rows.push(None, vec![name, mean, format_ns(of.p50_ns), share]);
    };
    for phase in &kind.phases {
        row(phase_name(phase), &phase.per_request);
    }
    row("total".to_owned(), &kind.latency);
    rows.text(style)
}

fn phase_name(phase: &PhasePart) -> String {
    let name = phase.phase.map_or("(no phase)".to_owned(), escape);
    format!("{name}{}", marks(phase.modelled_ns > 0, phase.sampled_ns > 0))
}
