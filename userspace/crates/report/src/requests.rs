//! `requests`: the list of requests, sorted and filtered.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::str::FromStr;

use anyhow::Result;
use comfy_table::Cell;

use super::filter::{Passes, RequestFilter};
use super::fit::{cells, cut, fit, Fate};
use super::text::{end, escape, indented, table, tinted};
use super::units::{count, format_exact, format_ns, format_share, format_start};
use super::Style;
use rpcprobe_capture::manifest::Manifest;
use rpcprobe_model::{Category, Evidence, Request, Segment};
use rpcprobe_tables::RequestRow;

/// Which requests to list, and in which order.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    pub sort: SortKey,
    /// Reverse the usual order.
    pub reverse: bool,
    /// Maximum number of rows.
    pub limit: Option<usize>,
    /// Conditions on the requests.
    pub filter: RequestFilter,
    /// Only incomplete requests.
    pub incomplete: bool,
    /// List only this many complete requests, those with the largest latency (incomplete ones if `incomplete` is set).
    /// Takes precedence over `sort`, `reverse` and `limit`.
    pub slowest: Option<usize>,
}

/// The sort key of requests. Times and sums put the largest first, `Start` and `Id` the smallest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortKey {
    #[default]
    Latency,
    Start,
    Id,
    Category(Category),
}

impl FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<SortKey, String> {
        match text {
            "latency" => Ok(SortKey::Latency),
            "start" => Ok(SortKey::Start),
            "id" => Ok(SortKey::Id),
            _ => Category::from_name(text).map(SortKey::Category).ok_or_else(|| {
                let names: Vec<_> = Category::ALL.iter().map(|c| c.name()).collect();
                format!("not latency, start, id or a category ({})", names.join(", "))
            }),
        }
    }
}

/// For each request that has any, the categories that depend on modelled evidence: one bit each, by position in
/// [`Category::ALL`].
pub type Marks = HashMap<u64, u64>;

const _: () = assert!(Category::ALL.len() <= 64);

/// Finds the modelled categories of the requests `ids` in one pass.
///
/// # Errors
/// Passes on errors of `segments`.
pub fn modelled(
    segments: impl IntoIterator<Item = Result<(u64, Segment)>>,
    ids: &HashSet<u64>,
) -> Result<Marks> {
    let mut marks = Marks::new();
    for item in segments {
        let (id, segment) = item?;
        if segment.evidence == Evidence::Modelled && ids.contains(&id) {
            *marks.entry(id).or_default() |= 1 << segment.category as u64;
        }
    }
    Ok(marks)
}

/// Whether a category of a request depends on modelled evidence.
pub(super) fn is_modelled(marks: &Marks, request_id: u64, category: Category) -> bool {
    marks.get(&request_id).is_some_and(|bits| bits >> (category as u64) & 1 == 1)
}

/// A row that passed the filters.
pub(super) struct Selected {
    pub(super) row: RequestRow,
    /// Only a lower bound of the latency is known, so the row may or may not pass.
    pub(super) uncertain: bool,
}

/// The rows to list, and the total numbers of rows.
pub struct Selection {
    pub(super) listed: Vec<Selected>,
    pub(super) matching: usize,
    pub(super) in_capture: usize,
    /// Incomplete requests that are not listed among the largest latencies, but may belong there.
    pub(super) may_belong: usize,
    /// The largest latency that one of these requests has reached.
    pub(super) may_belong_ns: u64,
}

impl Selection {
    /// Ids of the listed requests.
    pub fn ids(&self) -> HashSet<u64> {
        self.listed.iter().map(|selected| selected.row.request.request_id).collect()
    }

    /// The listed rows, in order.
    pub fn into_rows(self) -> Vec<RequestRow> {
        self.listed.into_iter().map(|selected| selected.row).collect()
    }
}

/// Chooses the rows to list, of a capture that started at `capture_start_ns`. With a limit, memory is bounded by the
/// limit and not by the number of rows.
///
/// # Errors
/// Passes on errors of `rows`.
pub fn select(
    rows: impl IntoIterator<Item = Result<RequestRow>>,
    options: &RequestOptions,
    capture_start_ns: u64,
) -> Result<Selection> {
    let (sort, reverse, limit) = match options.slowest {
        Some(n) => (SortKey::Latency, false, Some(n)),
        None => (options.sort, options.reverse, options.limit),
    };
    let falling = matches!(sort, SortKey::Latency | SortKey::Category(_)) != reverse;
    let order = |a: &Selected, b: &Selected| {
        let by_key = key(&a.row, sort).cmp(&key(&b.row, sort));
        let by_key = if falling { by_key.reverse() } else { by_key };
        // Ties are broken by id, so that equal keys always come in the same order.
        by_key.then(a.row.request.request_id.cmp(&b.row.request.request_id))
    };
    let by_largest = sort == SortKey::Latency && falling;
    let mut selection = Selection {
        listed: Vec::new(),
        matching: 0,
        in_capture: 0,
        may_belong: 0,
        may_belong_ns: 0,
    };
    for row in rows {
        let row = row?;
        selection.in_capture += 1;
        let passes = options.filter.passes(&row.request, capture_start_ns);
        if passes == Passes::No || (options.incomplete && row.request.complete) {
            continue;
        }
        selection.matching += 1;
        // Only a lower bound of the latency is known: the request may be among the slowest, or not.
        if options.slowest.is_some() && !options.incomplete && !row.request.complete {
            selection.leave_out(&row.request);
            continue;
        }
        selection.listed.push(Selected { row, uncertain: passes == Passes::Maybe });
        if limit.is_some_and(|n| selection.listed.len() >= n.saturating_mul(2).max(CUT_AT_ROWS)) {
            selection.cut(limit, by_largest, order);
        }
    }
    selection.cut(limit, by_largest, order);
    Ok(selection)
}

/// Minimum number of collected rows before rows beyond the limit are dropped.
const CUT_AT_ROWS: usize = 1024;

impl Selection {
    /// Sorts the rows and drops those beyond the limit.
    fn cut(
        &mut self,
        limit: Option<usize>,
        by_largest: bool,
        order: impl Fn(&Selected, &Selected) -> Ordering,
    ) {
        self.listed.sort_by(order);
        let kept = limit.unwrap_or(usize::MAX).min(self.listed.len());
        let cut = self.listed.split_off(kept);
        for cut in cut.iter().filter(|cut| by_largest && !cut.row.request.complete) {
            self.leave_out(&cut.row.request);
        }
    }

    /// Counts an incomplete request that is not listed.
    fn leave_out(&mut self, request: &Request) {
        self.may_belong += 1;
        self.may_belong_ns = self.may_belong_ns.max(request.latency_ns);
    }
}

fn key(row: &RequestRow, sort: SortKey) -> u64 {
    match sort {
        SortKey::Latency => row.request.latency_ns,
        SortKey::Start => row.request.start_ns,
        SortKey::Id => row.request.request_id,
        SortKey::Category(category) => row.category_ns[category as usize].unwrap_or(0),
    }
}

/// Writes the list of requests. `selection` comes from [`select`], `marks` from [`modelled`].
///
/// # Errors
/// When `out` cannot be written.
pub fn requests(
    out: &mut dyn Write,
    manifest: &Manifest,
    selection: &Selection,
    marks: &Marks,
    style: Style,
) -> Result<()> {
    writeln!(
        out,
        "{} of {}{}",
        format_exact(selection.listed.len() as u64),
        count(selection.matching as u64, "matching request"),
        if selection.matching < selection.in_capture {
            format!(" ({} in the capture)", format_exact(selection.in_capture as u64))
        } else {
            String::new()
        }
    )?;
    if !selection.listed.is_empty() {
        write!(out, "{}", listing(manifest, &selection.listed, marks, style))?;
    }
    let listed = selection.listed.iter();
    if listed.clone().any(|selected| selected.uncertain) {
        writeln!(out, "? incomplete, its latency known only from below: it may match")?;
    }
    if listed.clone().any(|selected| top(&selected.row, marks).is_some_and(|top| top.modelled)) {
        writeln!(out, "~ in whole or in part modelled, not measured")?;
    }
    if selection.may_belong > 0 {
        writeln!(
            out,
            "{} may belong here: one lasted ≥ {} (--incomplete)",
            count(selection.may_belong as u64, "incomplete request"),
            format_ns(selection.may_belong_ns)
        )?;
    }
    Ok(())
}

/// The columns, whether they are aligned to the right, and what happens to them if there is not enough room.
const COLUMNS: [(&str, bool, Fate); 10] = [
    ("id", true, Fate::Stays),
    ("kind", false, Fate::Later),
    ("start", true, Fate::Later),
    ("latency", true, Fate::Stays),
    ("complete", false, Fate::First),
    ("client", false, Fate::Cut(10)),
    ("server", false, Fate::Cut(10)),
    ("bytes", true, Fate::First),
    ("most time in", false, Fate::Cut(14)),
    ("why incomplete", false, Fate::Cut(14)),
];

fn listing(manifest: &Manifest, listed: &[Selected], marks: &Marks, style: Style) -> String {
    let reasons = listed.iter().any(|selected| !selected.row.request.complete);
    let columns = &COLUMNS[..if reasons { COLUMNS.len() } else { COLUMNS.len() - 1 }];
    let rows: Vec<_> = listed.iter().map(|selected| line(manifest, selected, marks)).collect();
    let widest = |at: usize| {
        let texts = rows.iter().map(|(texts, _)| cells(&texts[at]));
        texts.chain([cells(columns[at].0)]).max().unwrap_or(0)
    };
    let wanted: Vec<_> = (0..columns.len()).map(|at| (widest(at), columns[at].2)).collect();
    let widths = fit(&wanted, style.width.map_or(usize::MAX, usize::from));

    let kept: Vec<_> =
        widths.iter().enumerate().filter_map(|(at, width)| Some((at, (*width)?))).collect();
    let header: Vec<_> = kept.iter().map(|(at, _)| columns[*at].0).collect();
    let right: Vec<_> = (0..kept.len()).filter(|&nth| columns[kept[nth].0].1).collect();
    let mut table = table(&header, &right, style);
    if let Some(last) = table.column_iter_mut().last() {
        last.set_padding((0, 0)); // padding would need room
    }
    for (texts, category) in &rows {
        table.add_row(kept.iter().map(|&(at, width)| {
            let text = cut(&texts[at], width);
            match category.filter(|_| at == MOST_TIME) {
                Some(category) => tinted(text, category, style),
                None => Cell::new_owned(text),
            }
        }));
    }
    let mut list = indented(&table, "");
    let left_out: Vec<_> = (columns.iter().zip(&widths))
        .filter_map(|((name, ..), width)| width.is_none().then_some(*name))
        .collect();
    if !left_out.is_empty() {
        list += &format!("no room for: {} (--json has all)\n", left_out.join(", "));
    }
    list
}

/// The column in [`COLUMNS`] that gets the colour of the category.
const MOST_TIME: usize = 8;

/// Returns the texts of a row, and the category with the most time.
fn line(
    manifest: &Manifest,
    selected: &Selected,
    marks: &Marks,
) -> ([String; COLUMNS.len()], Option<Category>) {
    let request = &selected.row.request;
    let top = top(&selected.row, marks);
    let category = top.as_ref().map(|top| top.category);
    let texts = [
        request.request_id.to_string(),
        request.kind.to_string(),
        format_start(request.start_ns, manifest.start_ns),
        latency(request, selected.uncertain),
        if request.complete { "yes" } else { "no" }.to_owned(),
        end(request.client.as_ref()),
        end(request.server.as_ref()),
        bytes(request),
        top.map_or("-".to_owned(), |top| top.text),
        request.reason.as_ref().map(|why| escape(&why.to_string())).unwrap_or_default(),
    ];
    (texts, category)
}

/// Formats a latency, with `≥` before a lower bound, and `?` after one that leaves open whether the request passes a
/// filter.
pub(super) fn latency(request: &Request, uncertain: bool) -> String {
    let bound = if request.complete { "" } else { "≥ " };
    let mark = if uncertain { " ?" } else { "" };
    format!("{bound}{}{mark}", format_ns(request.latency_ns))
}

/// Sizes of request and response: `request/response`.
pub(super) fn bytes(request: &Request) -> String {
    let text = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    match (request.request_bytes, request.response_bytes) {
        (None, None) => "-".to_owned(),
        (sent, received) => format!("{}/{}", text(sent), text(received)),
    }
}

struct Top {
    category: Category,
    text: String,
    modelled: bool,
}

/// Returns the category with the most time, and its share.
fn top(row: &RequestRow, marks: &Marks) -> Option<Top> {
    let sums = Category::ALL.iter().zip(row.category_ns);
    let known = sums.filter_map(|(category, ns)| Some((*category, ns.filter(|ns| *ns > 0)?)));
    // Of equal categories, the first.
    let (category, ns) = known.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    let modelled = is_modelled(marks, row.request.request_id, category);
    let share = format_share(ns, row.request.latency_ns);
    Some(Top {
        category,
        text: format!("{category}{} {share}", super::text::marks(modelled, false)),
        modelled,
    })
}

#[cfg(test)]
mod tests;
