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

/// What to list, and in which order.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    pub sort: SortKey,
    /// The other way round than usual.
    pub reverse: bool,
    /// Rows at most.
    pub limit: Option<usize>,
    /// Which requests.
    pub filter: RequestFilter,
    /// Only incomplete requests.
    pub incomplete: bool,
    /// The so many complete ones with the largest latency (incomplete ones if only these are asked for);
    /// wins over `sort`, `reverse` and `limit`.
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
    /// Incomplete requests that are not among the largest latencies listed: they may belong to the list.
    pub(super) may_belong: usize,
    /// The largest latency that one of them has reached.
    pub(super) may_belong_ns: u64,
}

impl Selection {
    /// Those that are listed.
    pub fn ids(&self) -> HashSet<u64> {
        self.listed.iter().map(|selected| selected.row.request.request_id).collect()
    }

    /// The rows that are listed, in order.
    pub fn into_rows(self) -> Vec<RequestRow> {
        self.listed.into_iter().map(|selected| selected.row).collect()
    }
}

/// Chooses the rows to list, of a capture that started at `capture_start_ns`. Where there is a limit, memory is bounded by it and not by the rows.
///
/// # Errors
/// Passes on what `rows` fails with.
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
        // By id then, so that equal keys always come in one order.
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
        // Only a lower bound of its latency is known: it may be the slowest, or not.
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

/// The columns, whether they are aligned to the right, and what may become of them.
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
        last.set_padding((0, 0)); // what follows would take room
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

/// Which of [`COLUMNS`] has the colour of a category.
const MOST_TIME: usize = 8;

/// The texts of a row, and the category with most time.
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
    use super::super::fixtures::{manifest, stream, ten, text, unfinished, PLAIN, START_NS};
    use super::*;

    fn rows() -> (Vec<RequestRow>, Marks) {
        let (mut rows, segments) = stream(&ten());
        rows.push(unfinished(11, 3_100));
        (rows, modelled(segments, &(1..=11).collect()).unwrap())
    }

    fn selected(rows: Vec<RequestRow>, options: &RequestOptions) -> Selection {
        select(rows.into_iter().map(Ok), options, START_NS).unwrap()
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
            let filter = RequestFilter { min_latency_ns, max_latency_ns, ..Default::default() };
            ids(&RequestOptions { filter, sort: SortKey::Id, ..Default::default() })
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
            filter: RequestFilter { min_latency_ns: Some(9_500), ..Default::default() },
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
        let said = "1 incomplete request may belong here: one lasted ≥ 3.10 us (--incomplete)\n";
        assert!(text.ends_with(said), "{text}");
    }

    #[test]
    fn the_slowest_are_complete_unless_asked_otherwise() {
        let (mut rows, _) = rows();
        rows.push(unfinished(12, 1_000_000));
        let slowest = |slowest, incomplete| {
            let options =
                RequestOptions { slowest: Some(slowest), incomplete, ..RequestOptions::default() };
            let selection = selected(rows.clone(), &options);
            let id = |one: &Selected| one.row.request.request_id;
            let listed: Vec<u64> = selection.listed.iter().map(id).collect();
            (listed, selection.matching, selection.may_belong, selection.may_belong_ns)
        };
        assert_eq!(slowest(3, false), (vec![10, 9, 8], 12, 2, 1_000_000));
        assert_eq!(slowest(20, false).0.len(), 10);
        assert_eq!(slowest(20, false).2, 2);
        assert_eq!(slowest(1, true), (vec![12], 2, 1, 3_100));
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
    fn what_has_no_room_is_left_out_or_cut_and_not_broken() {
        let (mut rows, marks) = rows();
        let long = "a-service-with-a-long-name";
        rows[9].request.client.as_mut().unwrap().comm = long.into();
        let options = RequestOptions { sort: SortKey::Id, reverse: true, ..Default::default() };
        let selection = selected(rows, &options);
        let list = |width| {
            let style = Style { color: false, width };
            let text = text(|out| requests(out, &manifest(), &selection, &marks, style));
            text.lines().take(4).map(str::to_owned).collect::<Vec<_>>()
        };
        let expected = [
            "11 of 11 matching requests",
            "id  kind        start    latency  client       server      most time in  why incomplete",
            "11  pipe  +0.011000 s  ≥ 3.10 us  client/101   server/102  -             records lost",
            "10  pipe  +0.010000 s    10.0 us  a-service-…  server/102  user 60.0 %",
        ];
        assert_eq!(list(Some(87)), expected);
        let at_80 = list(Some(80));
        assert!(at_80.iter().all(|line| cells(line) <= 80), "{at_80:#?}");
        assert!(at_80[1].starts_with("id  kind    latency  client  "), "{at_80:#?}");
        let at_200 = list(Some(200));
        assert_eq!(at_200, list(None));
        assert!(at_200[3].contains(&format!("{long}/101")) && at_200[1].contains("bytes"));
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
            row.request.reason = (!complete).then(|| "records lost".into());
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
