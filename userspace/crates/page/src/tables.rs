//! The figures of a report as tables: the content of the page without JavaScript.

use crate::html::{entities, text, Table};
use rpcprobe_figures::{Band, Gathered, Group};
use rpcprobe_report::palette::hex;
use rpcprobe_report::sums::Distribution;
use rpcprobe_report::tree::{Tree, HEADER, NUMBERS};
use rpcprobe_report::{
    count, format_exact, format_ns, format_rate, format_share, marked, marks, part_name, place,
    slowest, title, Breakdown, Groups, KindBreakdown, Tail,
};

/// Maximum number of groups listed.
const GROUPS: usize = 20;
/// Maximum number of requests listed.
const REQUESTS: usize = 12;
/// Maximum number of rows of the tree.
const TREE: usize = 60;

/// All tables of a capture.
pub fn all(breakdown: &Breakdown, gathered: &Gathered) -> String {
    let mut out = String::new();
    for kind in breakdown.kinds.iter().filter(|kind| kind.complete() > 0) {
        out += &format!("<h3>{}</h3>\n", entities(&title(kind)));
        out += &parts(kind);
        let group = gathered.groups.iter().find(|group| group.key.kind == kind.kind);
        if let Some(group) = group {
            out += &bands(group);
        }
        if let Some(groups) = &kind.groups {
            out += &by_group(groups, kind.latency.total_ns);
        }
        if let Some(tail) = &kind.tail {
            out += &difference(tail, kind);
        }
        if !kind.waits.is_empty() {
            out += &had_cpu(kind);
        }
        if let Some(group) = group {
            out += &requests(group, gathered);
        }
    }
    out + &tree(&breakdown.tree)
}

fn tree(tree: &Tree) -> String {
    if !tree.tells_anything() {
        return String::new();
    }
    let (places, left_out) = tree.largest(TREE);
    let cells = |at: &usize| tree.rows[*at].cells().iter().map(|cell| entities(cell)).collect();
    let rows = places.iter().map(cells).collect();
    let notes: Vec<String> = tree.notes(left_out).iter().map(|note| entities(note)).collect();
    let caption = format!("which requests were made for which ({})", notes.join("; "));
    Table { caption, header: &HEADER, right: &NUMBERS, rows }.html()
}

fn figures(of: &Distribution, whole_ns: u64) -> Vec<String> {
    let mut cells: Vec<String> =
        [of.p50_ns, of.p90_ns, of.p99_ns, of.max_ns].map(format_ns).to_vec();
    cells.push(format_share(of.total_ns, whole_ns));
    cells
}

fn swatch(category: rpcprobe_model::Category) -> String {
    format!("<i style=\"background:{}\"></i>", hex(category))
}

fn parts(kind: &KindBreakdown) -> String {
    let whole_ns = kind.latency.total_ns;
    let mut parts: Vec<_> = kind.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.per_request.total_ns));
    let mut rows: Vec<Vec<String>> = parts
        .into_iter()
        .map(|part| {
            let side = part.side.map_or("-".into(), |side| place(side, part.comm.as_deref()));
            let name = entities(&part_name(part));
            let mut row = vec![format!("{}{name}", swatch(part.category)), entities(&side)];
            row.extend(figures(&part.per_request, whole_ns));
            let total_ns = part.per_request.total_ns;
            row.push(evidence(part.modelled_ns, part.sampled_ns, total_ns));
            row
        })
        .collect();
    let mut total = vec!["total".into(), String::new()];
    total.extend(figures(&kind.latency, whole_ns));
    total.push(String::new());
    rows.push(total);
    let caption = format!("{}: latency by category and side, per request", kind.kind);
    let header = ["category", "side", "p50", "p90", "p99", "max", "share", "evidence"];
    Table { caption, header: &header, right: &[2, 3, 4, 5, 6], rows }.html()
}

fn evidence(modelled_ns: u64, sampled_ns: u64, whole_ns: u64) -> String {
    let share = |ns: u64, how| (ns > 0).then(|| format!("{} {how}", format_share(ns, whole_ns)));
    let parts: Vec<String> = [share(modelled_ns, "modelled"), share(sampled_ns, "sampled")]
        .into_iter()
        .flatten()
        .collect();
    match (whole_ns, parts.is_empty()) {
        (0, _) => "-".to_owned(),
        (_, true) => "measured".to_owned(),
        _ => parts.join(", "),
    }
}

fn bands(group: &Group) -> String {
    let row = |band: &Band| {
        let sums = group.band(*band);
        let mut largest: Vec<_> = sums.parts.iter().collect();
        largest.sort_by_key(|(category, part)| (std::cmp::Reverse(part.sum.ns), **category));
        let parts: Vec<String> = largest
            .iter()
            .take(4)
            .map(|(category, part)| {
                let marks = marks(part.sum.modelled_ns > 0, part.sum.sampled_ns > 0);
                let share = format_share(part.sum.ns, sums.latency_ns);
                format!("{}{category}{marks} {share}", swatch(**category))
            })
            .collect();
        let mean = sums.latency_ns / u128::from(sums.requests.max(1));
        vec![
            band.shown().to_owned(),
            format_exact(sums.requests),
            format_ns(sums.min_ns),
            format_ns(sums.max_ns),
            format_ns(mean),
            parts.join(", "),
        ]
    };
    let rows =
        group.bands().iter().filter(|band| group.band(**band).requests > 0).map(row).collect();
    let caption = format!("{}: percentile bands", group.key.kind);
    let header = ["band", "requests", "from", "to", "mean", "most of it"];
    Table { caption, header: &header, right: &[1, 2, 3, 4], rows }.html()
}

fn by_group(groups: &Groups, whole_ns: u64) -> String {
    let by = groups.by.name();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for group in groups.listed.iter().take(GROUPS) {
        let name = group.name.as_deref().map_or_else(|| format!("(no {by})"), text);
        let most = group.largest.as_ref().map_or("-".to_owned(), |part| {
            let share = format_share(part.total_ns, group.latency.total_ns);
            let name = entities(&marked(part.category, part.modelled_ns, part.sampled_ns));
            format!("{}{share} {} {name}", swatch(part.category), part.side)
        });
        rows.push(vec![
            name,
            format_exact(group.requests),
            group.rate_per_s.map_or("-".to_owned(), format_rate),
            format_ns(group.latency.p50_ns),
            format_ns(group.latency.p99_ns),
            format_share(group.latency.total_ns, whole_ns),
            most,
        ]);
    }
    let more = groups.listed.len().saturating_sub(GROUPS) as u64
        + groups.others.as_ref().map_or(0, |others| others.names);
    let more = if more > 0 { format!(" ({} more)", format_exact(more)) } else { String::new() };
    let caption = format!("by {by}{more}");
    let header = [by, "requests", "rate", "p50", "p99", "time", "most of it"];
    Table { caption, header: &header, right: &[1, 2, 3, 4, 5], rows }.html()
}

fn difference(tail: &Tail, kind: &KindBreakdown) -> String {
    let mut parts: Vec<_> = tail.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.difference_ns.unsigned_abs()));
    let signed = |ns: i64| rpcprobe_report::format_signed_ns(ns);
    let mut rows: Vec<Vec<String>> = parts
        .into_iter()
        .map(|part| {
            let name = marked(part.category, part.modelled_ns, part.sampled_ns);
            let name = format!("{}{}", swatch(part.category), entities(&name));
            let side = entities(&place(part.side, part.comm.as_deref()));
            let (typical, slow) = (format_ns(part.typical_ns), format_ns(part.tail_ns));
            vec![name, side, typical, slow, signed(part.difference_ns)]
        })
        .collect();
    let (typical, slow) = (format_ns(tail.typical.mean_ns), format_ns(tail.tail.mean_ns));
    rows.push(vec![
        "mean latency".into(),
        String::new(),
        typical,
        slow,
        signed(tail.difference_ns),
    ]);
    let caption = format!(
        "the {} ({}) beside typical ones ({} from p40 to p60), means",
        slowest(tail, kind.complete()),
        count(tail.tail.requests, "request"),
        format_exact(tail.typical.requests)
    );
    let header = ["category", "side", "typical", "slowest", "more"];
    Table { caption, header: &header, right: &[2, 3, 4], rows }.html()
}

fn had_cpu(kind: &KindBreakdown) -> String {
    let mut rows = Vec::new();
    for waits in &kind.waits {
        for waited in &waits.top {
            rows.push(vec![
                format!("{}{} {}", swatch(waits.category), waits.side, waits.category),
                waited.comm.as_deref().map_or("(not known)".to_owned(), text),
                format_ns(waited.ns),
                format_share(waited.ns, waits.total_ns),
            ]);
        }
    }
    let caption = "who had the CPU meanwhile".to_owned();
    let header = ["waiting", "who", "time", "share"];
    Table { caption, header: &header, right: &[2, 3], rows }.html()
}

fn requests(group: &Group, gathered: &Gathered) -> String {
    let rows = group
        .slowest
        .iter()
        .take(REQUESTS)
        .map(|at| {
            let drawn = &gathered.drawn[*at];
            let request = &drawn.request;
            let parts: Vec<String> = drawn
                .parts
                .iter()
                .take(4)
                .map(|(category, sum)| {
                    let marks = marks(sum.modelled_ns > 0, sum.sampled_ns > 0);
                    let share = format_share(sum.ns, request.latency_ns);
                    format!("{}{category}{marks} {share}", swatch(*category))
                })
                .collect();
            vec![
                request.request_id.to_string(),
                request.method.as_deref().map_or("-".to_owned(), text),
                format_ns(request.latency_ns),
                format_ns(drawn.offset_ns),
                parts.join(", "),
            ]
        })
        .collect();
    let caption = format!("{}: the slowest requests", group.key.kind);
    let header = ["request", "method", "latency", "begins at", "most of it"];
    Table { caption, header: &header, right: &[2, 3], rows }.html()
}
