//! `requests`: the list of requests, sorted and filtered.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::str::FromStr;

use anyhow::Result;
use comfy_table::{Cell, ColumnConstraint, ContentArrangement};

use super::text::{end, escape, indented, table, tinted};
use super::units::{count, format_exact, format_ns, format_share, format_start};
use super::Style;
use crate::capture::manifest::Manifest;
use crate::model::{Category, Evidence, Kind, Request, Segment};
use crate::output::RequestRow;

/// What to list, and in which order.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    pub sort: SortKey,
    /// The other way round than usual.
    pub reverse: bool,
    /// Rows at most.
    pub limit: Option<usize>,
    /// Only these kinds; all when empty.
    pub kinds: Vec<Kind>,
    /// Only incomplete requests.
    pub incomplete: bool,
    /// Bounds of the latency, both included.
    pub min_latency_ns: Option<u64>,
    pub max_latency_ns: Option<u64>,
    /// The so many with the largest latency; wins over `sort`, `reverse` and `limit`.
    pub slowest: Option<usize>,
}

/// What requests are sorted by. Times and sums put the largest first, `Start` and `Id` the smallest.
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

/// For each request that has any, the categories that rest on modelled evidence: one bit each, by
/// position in [`Category::ALL`].
pub type Marks = HashMap<u64, u64>;

const _: () = assert!(Category::ALL.len() <= 64);

/// Finds the modelled categories of these requests in one pass.
///
/// # Errors
/// Passes on what `segments` fails with.
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

/// Whether a category of a request rests on modelled evidence.
pub(super) fn is_modelled(marks: &Marks, request_id: u64, category: Category) -> bool {
    marks.get(&request_id).is_some_and(|bits| bits >> (category as u64) & 1 == 1)
}

/// A row that passed the filters.
pub(super) struct Selected {
    pub(super) row: RequestRow,
    /// Its latency is only known from below, so that it may or may not pass.
    pub(super) uncertain: bool,
}

/// The rows to list, and how many there are in all.
pub struct Selection {
    pub(super) listed: Vec<Selected>,
    pub(super) matching: usize,
    pub(super) in_capture: usize,
    /// Incomplete requests cut off by a limit on the largest latencies: they may belong to the list.
    pub(super) may_belong: usize,
}

impl Selection {
    /// Those that are listed.
    pub fn ids(&self) -> HashSet<u64> {
        self.listed.iter().map(|selected| selected.row.request.request_id).collect()
    }
}

/// Chooses the rows to list. Where there is a limit, memory is bounded by it and not by the rows.
///
/// # Errors
/// Passes on what `rows` fails with.
pub fn select(
    rows: impl IntoIterator<Item = Result<RequestRow>>,
    options: &RequestOptions,
) -> Result<Selection> {
    let (sort, reverse, limit) = match options.slowest {
        Some(n) => (SortKey::Latency, false, Some(n)),
        None => (options.sort, options.reverse, options.limit),
    };
    let falling = matches!(sort, SortKey::Latency | SortKey::Category(_)) != reverse;
    let order = |a: &Selected, b: &Selected| {
        let by_key = key(&a.row, sort).cmp(&key(&b.row, sort));
        let by_key = if falling { by_key.reverse() } else { by_key };
        // By id then, so that equal keys always come in one order.
        by_key.then(a.row.request.request_id.cmp(&b.row.request.request_id))
    };
    let by_largest = sort == SortKey::Latency && falling;
    let mut selection = Selection { listed: Vec::new(), matching: 0, in_capture: 0, may_belong: 0 };
    for row in rows {
        let row = row?;
        selection.in_capture += 1;
        let of_kind = options.kinds.is_empty() || options.kinds.contains(&row.request.kind);
        let passes = latency_passes(&row.request, options);
        if !of_kind || (options.incomplete && row.request.complete) || passes == Passes::No {
            continue;
        }
        selection.matching += 1;
        selection.listed.push(Selected { row, uncertain: passes == Passes::Maybe });
        if limit.is_some_and(|n| selection.listed.len() >= n.saturating_mul(2).max(CUT_AT_ROWS)) {
            selection.cut(limit, by_largest, order);
        }
    }
    selection.cut(limit, by_largest, order);
    Ok(selection)
}

/// Rows taken at least before those that will not be listed are dropped.
const CUT_AT_ROWS: usize = 1024;

impl Selection {
    /// Puts the rows in order and drops those beyond the limit.
    fn cut(
        &mut self,
        limit: Option<usize>,
        by_largest: bool,
        order: impl Fn(&Selected, &Selected) -> Ordering,
    ) {
        self.listed.sort_by(order);
        let kept = limit.unwrap_or(usize::MAX).min(self.listed.len());
        let cut = self.listed.drain(kept..);
        self.may_belong += cut.filter(|cut| by_largest && !cut.row.request.complete).count();
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passes {
    No,
    Maybe,
    Yes,
}

/// The latency of an incomplete request is a lower bound: it surely passes a minimum it has already
/// reached, surely fails a maximum it has already passed, and nothing else is known.
fn latency_passes(request: &Request, options: &RequestOptions) -> Passes {
    let known_ns = request.latency_ns;
    let min = match options.min_latency_ns {
        Some(min_ns) if known_ns < min_ns => {
            if request.complete {
                Passes::No
            } else {
                Passes::Maybe
            }
        }
        _ => Passes::Yes,
    };
    let max = match options.max_latency_ns {
        Some(max_ns) if known_ns > max_ns => Passes::No,
        Some(_) if !request.complete => Passes::Maybe,
        _ => Passes::Yes,
    };
    match (min, max) {
        (Passes::No, _) | (_, Passes::No) => Passes::No,
        (Passes::Yes, Passes::Yes) => Passes::Yes,
        _ => Passes::Maybe,
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
            "{} not listed may have lasted longer than those that are",
            count(selection.may_belong as u64, "incomplete request")
        )?;
    }
    Ok(())
}

fn listing(manifest: &Manifest, listed: &[Selected], marks: &Marks, style: Style) -> String {
    let reasons = listed.iter().any(|selected| !selected.row.request.complete);
    let mut header = vec![
        "id",
        "kind",
        "start",
        "latency",
        "complete",
        "client",
        "server",
        "bytes",
        "most time in",
    ];
    if reasons {
        header.push("why incomplete");
    }
    let mut table = table(&header, &[0, 2, 3, 7], style);
    if let Some(width) = style.width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        // Numbers are not to be broken; names may be.
        for column in [0, 1, 2, 3, 4, 7] {
            if let Some(column) = table.column_mut(column) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
    }
    for selected in listed {
        table.add_row(line(manifest, selected, marks, reasons, style));
    }
    indented(&table, "")
}

fn line(
    manifest: &Manifest,
    selected: &Selected,
    marks: &Marks,
    reasons: bool,
    style: Style,
) -> Vec<Cell> {
    let request = &selected.row.request;
    let top = top(&selected.row, marks);
    let mut cells = vec![
        Cell::new(request.request_id),
        Cell::new(request.kind),
        Cell::new(format_start(request.start_ns, manifest.start_ns)),
        Cell::new(latency(request, selected.uncertain)),
        Cell::new(if request.complete { "yes" } else { "no" }),
        Cell::new(end(request.client.as_ref())),
        Cell::new(end(request.server.as_ref())),
        Cell::new(bytes(request)),
        top.map_or(Cell::new("-"), |top| tinted(top.text, top.category, style)),
    ];
    if reasons {
        cells.push(Cell::new(request.reason.as_deref().map(escape).unwrap_or_default()));
    }
    cells
}

/// `≥` before a lower bound, `?` after one that leaves open whether the request passes a filter.
pub(super) fn latency(request: &Request, uncertain: bool) -> String {
    let bound = if request.complete { "" } else { "≥ " };
    let mark = if uncertain { " ?" } else { "" };
    format!("{bound}{}{mark}", format_ns(request.latency_ns))
}

/// Request and response, `request/response`.
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

/// The category with most time, and its share.
fn top(row: &RequestRow, marks: &Marks) -> Option<Top> {
    let sums = Category::ALL.iter().zip(row.category_ns);
    let known = sums.filter_map(|(category, ns)| Some((*category, ns.filter(|ns| *ns > 0)?)));
    // The first of equals.
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
mod tests {
    use super::super::samples::{manifest, stream, ten, text, unfinished, PLAIN};
    use super::*;

    fn rows() -> (Vec<RequestRow>, Marks) {
        let (mut rows, segments) = stream(&ten());
        rows.push(unfinished(11, 3_100));
        (rows, modelled(segments, &(1..=11).collect()).unwrap())
    }

    fn selected(rows: Vec<RequestRow>, options: &RequestOptions) -> Selection {
        select(rows.into_iter().map(Ok), options).unwrap()
    }

    fn ids(options: &RequestOptions) -> Vec<(u64, bool)> {
        let (rows, _) = rows();
        let listed = selected(rows, options).listed;
        listed.iter().map(|one| (one.row.request.request_id, one.uncertain)).collect()
    }

    #[test]
    fn sorts() {
        let by = |sort, reverse| {
            let options = RequestOptions { sort, reverse, limit: Some(3), ..Default::default() };
            ids(&options).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert_eq!(by(SortKey::Latency, false), [10, 9, 8]);
        assert_eq!(by(SortKey::Latency, true), [1, 2, 3]);
        assert_eq!(by(SortKey::Start, false), [1, 2, 3]);
        assert_eq!(by(SortKey::Id, true), [11, 10, 9]);
        assert_eq!(by(SortKey::Category(Category::User), false), [10, 9, 8]);
        assert_eq!("user".parse(), Ok(SortKey::Category(Category::User)));
        assert!("nonsense".parse::<SortKey>().is_err());
    }

    #[test]
    fn latency_of_incomplete_requests_is_three_valued() {
        let between = |min_latency_ns, max_latency_ns| {
            ids(&RequestOptions {
                min_latency_ns,
                max_latency_ns,
                sort: SortKey::Id,
                ..Default::default()
            })
        };
        // Known to have lasted 3.1 us at least: surely more than 3 us, perhaps more than 9 us.
        assert!(between(Some(3_000), None).contains(&(11, false)));
        assert_eq!(between(Some(9_000), None), [(9, false), (10, false), (11, true)]);
        // Perhaps less than 4 us, surely not less than 2 us.
        assert!(between(None, Some(4_000)).contains(&(11, true)));
        assert_eq!(between(None, Some(2_000)), [(1, false), (2, false)]);
        assert_eq!(between(Some(9_000), Some(3_000)), []);
    }

    #[test]
    fn the_list() {
        let (rows, marks) = rows();
        let options = RequestOptions {
            min_latency_ns: Some(9_500),
            sort: SortKey::Id,
            ..RequestOptions::default()
        };
        let selection = selected(rows, &options);
        let text = text(|out| requests(out, &manifest(), &selection, &marks, PLAIN));
        let expected = "\
2 of 2 matching requests (11 in the capture)
id  kind        start      latency  complete  client      server       bytes  most time in  why incomplete
10  pipe  +0.010000 s      10.0 us  yes       client/101  server/102  64/128  user 60.0 %
11  pipe  +0.011000 s  ≥ 3.10 us ?  no        client/101  server/102  64/128  -             records lost
? incomplete, its latency known only from below: it may match
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_cut_admits_what_it_cannot_know() {
        let (rows, marks) = rows();
        let options = RequestOptions { slowest: Some(2), ..RequestOptions::default() };
        let selection = selected(rows, &options);
        let text = text(|out| requests(out, &manifest(), &selection, &marks, PLAIN));
        assert!(text.contains("1 incomplete request not listed may have lasted longer"), "{text}");
    }

    #[test]
    fn modelled_categories_are_marked() {
        let (mut rows, marks) = rows();
        assert!(is_modelled(&marks, 1, Category::Copy));
        assert!(!is_modelled(&marks, 1, Category::User));
        rows[0].category_ns[Category::User as usize] = None;
        rows[0].category_ns[Category::RunqueueWakeup as usize] = Some(0);
        let options = RequestOptions { sort: SortKey::Id, limit: Some(1), ..Default::default() };
        let selection = selected(rows, &options);
        let text = text(|out| requests(out, &manifest(), &selection, &marks, PLAIN));
        assert!(text.contains("copy ~ 10.0 %") && text.contains("~ in whole or in part modelled"));
    }

    #[test]
    fn hostile_names_and_narrow_terminals() {
        let (mut rows, marks) = rows();
        rows[0].request.client.as_mut().unwrap().comm = "\x1b]0;x\x07\n".into();
        let selection = selected(rows, &RequestOptions::default());
        for width in [1, 40, 80, 200] {
            let style = Style { color: false, width: Some(width) };
            let text = text(|out| requests(out, &manifest(), &selection, &marks, style));
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        }
    }
    /// However many rows are seen before those that belong to the list.
    #[test]
    fn a_limit_bounds_what_is_kept() {
        let row = |id: u64, complete: bool| {
            let mut row = unfinished(id, 10 * (id % 5000));
            row.request.complete = complete;
            row.request.reason = (!complete).then(|| "records lost".to_owned());
            row
        };
        let rows: Vec<_> = (1..=10_000).map(|id| row(id, id % 100 != 0)).collect();
        let options = |limit| RequestOptions { limit, ..RequestOptions::default() };
        let all = selected(rows.clone(), &options(None));
        let some = selected(rows, &options(Some(700)));
        assert!(some.listed.capacity() < 4 * CUT_AT_ROWS);
        let ids = |selection: &Selection| -> Vec<u64> {
            selection.listed.iter().map(|selected| selected.row.request.request_id).collect()
        };
        assert_eq!(ids(&some), ids(&all)[..700]);
        assert_eq!((some.matching, some.in_capture), (10_000, 10_000));
        let listed = some.listed.iter().filter(|selected| !selected.row.request.complete).count();
        assert_eq!(some.may_belong + listed, 100);
    }
}
