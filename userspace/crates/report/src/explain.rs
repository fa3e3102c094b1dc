//! `explain`: the time line of one request.

use std::io::Write;

use anyhow::Result;
use comfy_table::Cell;

use super::held_back;
use super::layout::wrap;
use super::relatives::Relatives;
use super::requests::{bytes, latency};
use super::stacks::{stack, summary, Last, ShownStacks};
use super::text::{alarm, bold, end, escape, evidence_mark, indented, marks, table, tinted};
use super::units::{count, format_at, format_exact, format_ns, format_share, format_start};
use super::{words, Style};
use rpcprobe_capture::manifest::Manifest;
use rpcprobe_model::{
    check_conservation, Category, Certainty, Evidence, Kind, Moved, Request, Segment, Taken,
};

/// Maximum number of lines, unless all segments are wanted.
const MAX_LINES: usize = 60;
/// Number of longest lines kept for a request with more lines. With the groups between them, they are fewer than
/// [`MAX_LINES`].
const LONGEST_KEPT: usize = 25;
/// Adjacent segments of one thread share a line if each is shorter than 1/`CRUMBS_ON_CPU` of the request on a CPU, or
/// 1/`CRUMBS` in any other category.
const CRUMBS_ON_CPU: u64 = 20;
const CRUMBS: u64 = 200;
/// Number of categories named for a group.
const GROUP_CATEGORIES: usize = 4;

/// Minimum and maximum number of cells of a bar.
const BAR: std::ops::RangeInclusive<usize> = 10..=60;
/// Room for the text at the end of a line; with less room, the text gets its own line.
const DETAIL_CELLS: usize = 32;

/// The sum of a request's segments, and the reason if they do not tile the request.
pub(super) struct Sum {
    pub(super) sum_ns: u128,
    /// `None` if the segments tile the request exactly.
    pub(super) fault: Option<String>,
}

/// Adds up the segments and compares them with the request.
pub(super) fn sum(request: &Request, segments: &[Segment]) -> Sum {
    let sum_ns = segments.iter().map(|segment| u128::from(segment.duration_ns)).sum();
    let fault = check_conservation(request, segments).err();
    Sum { sum_ns, fault }
}

/// A request with everything that is shown about it.
pub struct Explained<'a> {
    pub manifest: &'a Manifest,
    pub request: &'a Request,
    pub segments: &'a [Segment],
    pub stacks: &'a ShownStacks,
    pub relatives: &'a Relatives,
}

/// Writes one request's time line. Consecutive short segments of a thread share a line. If there are still more than 60
/// lines, the longest lines are kept, and the lines between them are put together. With `all`, every segment has its
/// own line.
///
/// # Errors
/// When `out` cannot be written.
pub fn explain(out: &mut dyn Write, of: &Explained, all: bool, style: Style) -> Result<()> {
    let Explained { request, segments, stacks, .. } = *of;
    heading(out, of, style)?;
    of.relatives.children(out, request, all, style)?;
    writeln!(out)?;
    let lines = if all { singles(segments) } else { lines(request, segments) };
    let last = Last::default();
    let more = |out: &mut dyn Write, line: &[Segment]| match line {
        [one] => stack(out, one, stacks, all, &last),
        _ => Ok(()),
    };
    time_line(out, request, &lines, (&more, all), style)?;
    total(out, request, segments, style)?;
    if lines.len() < segments.len() {
        writeln!(
            out,
            "{} in {} lines; --all shows each",
            count(segments.len() as u64, "segment"),
            lines.len()
        )?;
    }
    summary(out, segments, stacks)?;
    let any = |evidence| segments.iter().any(|segment| segment.evidence == evidence);
    if any(Evidence::Modelled) {
        writeln!(out, "~ in whole or in part modelled, not measured")?;
    }
    let sampled = |s: &Segment| matches!(s.stack, Some(used) if used.taken != Taken::AtSleep);
    if any(Evidence::Sampled) || segments.iter().any(sampled) {
        writeln!(out, "* in whole or in part sampled, not measured")?;
    }
    if segments.iter().any(sampled) {
        writeln!(
            out,
            "  callers by frame pointers: of code built without them, some or all are missing"
        )?;
    }
    Ok(())
}

fn heading(out: &mut dyn Write, of: &Explained, style: Style) -> Result<()> {
    let Explained { manifest, request, relatives, .. } = *of;
    let title =
        format!("request {} ({}), {}", request.request_id, request.kind, latency(request, false));
    let text = format!(
        "{title} = {} ns, at {} of the capture",
        format_exact(request.latency_ns),
        format_start(request.start_ns, manifest.start_ns)
    );
    write!(out, "{}", wrap(&text, "  ", style).replacen(&title, &bold(&title, style), 1))?;
    if !request.complete {
        let reason = escape(&words::reason(request.reason.as_ref()));
        let text = format!("incomplete: {reason}; the latency is a lower bound");
        for line in wrap(&text, "  ", style).lines() {
            writeln!(out, "{}", alarm(line, style))?;
        }
    }
    if let Some(told) = held_back::answer(request) {
        let text = wrap(&format!("! {told}"), "  ", style);
        write!(out, "{}", text.replacen('!', &alarm("!", style), 1))?;
    }
    let ends = [end(request.client.as_ref()), end(request.server.as_ref())];
    let mut facts = vec![format!("client {} · server {}", ends[0], ends[1])];
    if request.certainty != Certainty::Sure {
        facts.push(format!("{} a {} request", request.certainty, request.kind));
    }
    facts.extend(request.channel.as_deref().map(|text| format!("channel {}", escape(text))));
    facts.extend(request.stream_id.map(|id| format!("stream {id}")));
    facts.extend(request.xid.map(|xid| format!("xid {xid:#x}")));
    let again = request.retransmissions.filter(|&times| times > 0);
    facts.extend(again.map(|times| match request.kind {
        Kind::OncRpc => format!("sent {times} more times"),
        _ => format!("{times} more datagrams before an answer"),
    }));
    facts.extend(request.method.as_deref().map(|text| format!("method {}", escape(text))));
    facts.extend(request.status.map(|status| match request.kind {
        Kind::Exec | Kind::Process => super::text::wait_status(status),
        _ => format!("status {status}"),
    }));
    if request.request_bytes.is_some() || request.response_bytes.is_some() {
        facts.push(format!("bytes {} (request/response)", bytes(request)));
    }
    if request.records_lost > 0 {
        facts.push(format!("{} lost meanwhile", count(request.records_lost, "record")));
    }
    facts.extend(relatives.parent(request));
    write!(out, "{}", wrap(&facts.join(" · "), "  ", style))?;
    let ends = [("client", request.client_moved), ("server", request.server_moved)];
    let told = ends.into_iter().filter_map(|(who, moved)| {
        let Moved { bytes, cpu_ns, copy_ns, samples } = moved?;
        let (cpu, copy) = (format_ns(cpu_ns), format_ns(copy_ns));
        let sampled = match samples.all {
            0 => String::new(),
            all => format!(" ({} of {} there)", samples.copying, count(all, "sample")),
        };
        let bytes = count(bytes, "byte");
        Some(format!("the {who} {bytes} in calls of {cpu} CPU, ~{copy} of it copying{sampled}"))
    });
    let told: Vec<String> = told.collect();
    if !told.is_empty() {
        write!(out, "{}", wrap(&format!("moved: {}", told.join("; ")), "  ", style))?;
    }
    Ok(())
}

fn singles(segments: &[Segment]) -> Vec<&[Segment]> {
    segments.chunks(1).collect()
}

/// Groups neighbouring segments into lines: short segments of one thread and, if there are still too many lines,
/// everything between the longest lines.
fn lines<'s>(request: &Request, segments: &'s [Segment]) -> Vec<&'s [Segment]> {
    let is_crumb = |segment: &Segment| {
        let so_many = if segment.category.is_on_cpu() { CRUMBS_ON_CPU } else { CRUMBS };
        segment.duration_ns.saturating_mul(so_many) < request.latency_ns
    };
    let folded: Vec<&[Segment]> = segments
        .chunk_by(|a, b| {
            (a.tid, a.side, a.phase) == (b.tid, b.side, b.phase) && is_crumb(a) && is_crumb(b)
        })
        .collect();
    if folded.len() <= MAX_LINES {
        return folded;
    }
    let duration_ns =
        |line: &[Segment]| line.iter().map(|s| u128::from(s.duration_ns)).sum::<u128>();
    let mut longest: Vec<usize> = (0..folded.len()).collect();
    longest.sort_by_key(|i| std::cmp::Reverse(duration_ns(folded[*i])));
    longest.truncate(LONGEST_KEPT);
    longest.sort_unstable();
    let mut lines = Vec::new();
    let (mut from, mut at) = (0, 0);
    for (i, line) in folded.iter().enumerate() {
        let to = at + line.len();
        if longest.binary_search(&i).is_ok() {
            if from < at {
                lines.push(&segments[from..at]);
            }
            lines.push(line);
            from = to;
        }
        at = to;
    }
    if from < segments.len() {
        lines.push(&segments[from..]);
    }
    lines
}

/// One line of the time line, as text.
struct Line {
    start_ns: u64,
    duration_ns: u128,
    category: Category,
    at: String,
    lasts: String,
    share: String,
    what: String,
    side: String,
    thread: String,
    cpu: String,
    detail: String,
}

fn line(request: &Request, segments: &[Segment], rules: bool) -> Option<Line> {
    let first = segments.first()?;
    let duration_ns = segments.iter().map(|segment| u128::from(segment.duration_ns)).sum();
    let longest = segments.iter().max_by_key(|segment| segment.duration_ns)?;
    let same = |text: &dyn Fn(&Segment) -> String| {
        let one = text(first);
        if segments.iter().all(|segment| text(segment) == one) {
            one
        } else {
            "…".to_owned()
        }
    };
    let (what, detail) = match segments {
        [one] => (format!("{}{}", one.category, evidence_mark(one.evidence)), detail(one, rules)),
        _ => {
            let any = |evidence| segments.iter().any(|segment| segment.evidence == evidence);
            let marks = marks(any(Evidence::Modelled), any(Evidence::Sampled));
            let on_cpu = segments.iter().all(|segment| segment.category.is_on_cpu());
            let what = if on_cpu { "on CPU " } else { "" };
            (format!("{what}({} segments){marks}", segments.len()), group_detail(segments))
        }
    };
    Some(Line {
        start_ns: first.start_ns,
        duration_ns,
        category: longest.category,
        at: format_at(first.start_ns.saturating_sub(request.start_ns), request.latency_ns),
        lasts: format_ns(duration_ns),
        share: format_share(duration_ns, request.latency_ns),
        what,
        side: same(&|segment| segment.side.to_string()),
        thread: same(&|segment| format!("{}/{}", escape(&segment.comm), segment.tid)),
        cpu: same(&|segment| segment.cpu.map_or("-".to_owned(), |cpu| cpu.to_string())),
        detail,
    })
}

fn detail(segment: &Segment, rules: bool) -> String {
    let mut parts = Vec::new();
    parts.extend(segment.phase.map(|phase| format!("[{}]", escape(phase))));
    parts.extend(segment.detail.as_deref().map(escape));
    parts.extend(segment.by.as_ref().map(|by| format!("by {}", escape(&by.to_string()))));
    parts.extend(segment.cause.as_deref().map(|cause| match segment.waited_because() {
        Some(cause) => format!("because: {}", escape(cause)),
        None => escape(cause),
    }));
    parts.extend((segment.shared > 1).then(|| format!("shared by {}", segment.shared)));
    parts.extend(segment.rule.filter(|_| rules).map(|rule| format!("rule: {rule}")));
    parts.join(" · ")
}

fn group_detail(segments: &[Segment]) -> String {
    let mut sums = [(0_u128, false, false); Category::ALL.len()];
    for segment in segments {
        let (ns, modelled, sampled) = &mut sums[segment.category as usize];
        *ns += u128::from(segment.duration_ns);
        *modelled |= segment.evidence == Evidence::Modelled;
        *sampled |= segment.evidence == Evidence::Sampled;
    }
    let mut sums: Vec<_> = Category::ALL.iter().zip(sums).filter(|(_, (ns, ..))| *ns > 0).collect();
    sums.sort_by_key(|(_, (ns, ..))| std::cmp::Reverse(*ns));
    let rest_ns: u128 = sums.iter().skip(GROUP_CATEGORIES).map(|(_, (ns, ..))| ns).sum();
    // The rest is marked as modelled if any of it is modelled.
    let rest = sums.iter().skip(GROUP_CATEGORIES);
    let (rest_modelled, rest_sampled) = rest
        .fold((false, false), |(m, s), (_, (_, modelled, sampled))| (m | modelled, s | sampled));
    let mut parts: Vec<_> = sums
        .iter()
        .take(GROUP_CATEGORIES)
        .map(|(category, (ns, modelled, sampled))| {
            format!("{category}{} {}", marks(*modelled, *sampled), format_ns(*ns))
        })
        .collect();
    if rest_ns > 0 {
        parts.push(format!("other{} {}", marks(rest_modelled, rest_sampled), format_ns(rest_ns)));
    }
    parts.join(", ")
}

/// Writes the text that follows the line of these segments.
type More<'m> = &'m dyn Fn(&mut dyn Write, &[Segment]) -> Result<()>;

fn time_line(
    out: &mut dyn Write,
    request: &Request,
    parts: &[&[Segment]],
    (more, rules): (More<'_>, bool),
    style: Style,
) -> Result<()> {
    let lines: Vec<Line> = parts.iter().filter_map(|part| line(request, part, rules)).collect();
    if lines.is_empty() {
        writeln!(out, "  (no segments)")?;
        return Ok(());
    }
    let header = ["at", "lasts", "share", "where", "category", "side", "thread", "cpu"];
    let right = [0, 1, 2, 7];
    let mut rows: Vec<Vec<Cell>> = lines.iter().map(|line| cells(line, style)).collect();
    // Lays the table out once without bars, to find the room for them.
    let mut probe = table(&header, &right, style);
    probe.add_rows(rows.clone());
    let widths = probe.column_max_content_widths();
    let cells_of = |columns: usize| -> usize {
        let all = widths.iter().take(columns).map(|width| usize::from(*width) + 2).sum::<usize>();
        all - usize::from(widths[3]) - 2
    };
    let others = cells_of(header.len());
    let (columns, bar, place) = match style.width.map(usize::from) {
        None => (header.len(), 40, DetailPlace::Beside),
        Some(width) if width >= others + BAR.start() + DETAIL_CELLS => {
            (header.len(), (width - others - DETAIL_CELLS).min(*BAR.end()), DetailPlace::Beside)
        }
        Some(width) if width >= others + BAR.start() => {
            (header.len(), (width - others).min(*BAR.end()), DetailPlace::Below)
        }
        Some(width) => {
            let room = width.saturating_sub(cells_of(NARROW_COLUMNS));
            (NARROW_COLUMNS, room.clamp(*BAR.start(), *BAR.end()), DetailPlace::BelowWithThread)
        }
    };
    let right: Vec<usize> = right.into_iter().filter(|column| *column < columns).collect();
    rows.iter_mut().for_each(|row| row.truncate(columns));
    let mut table = table(&header[..columns], &right, style);
    for (line, mut row) in lines.iter().zip(rows) {
        row[3] = tinted(self::bar(request, line, bar), line.category, style);
        table.add_row(row);
    }
    let text = indented(&table, "");
    let mut rows = text.lines();
    if let Some(header) = rows.next() {
        writeln!(out, "{header}")?;
    }
    for ((row, line), part) in rows.zip(&lines).zip(parts) {
        let Line { side, thread, cpu, detail, .. } = line;
        match (place, detail.is_empty()) {
            (DetailPlace::Beside | DetailPlace::Below, true) => writeln!(out, "{row}")?,
            (DetailPlace::Beside, false) => writeln!(out, "{row}  {detail}")?,
            (DetailPlace::Below, false) => write!(out, "{row}\n{}", below(detail, style))?,
            (DetailPlace::BelowWithThread, _) => {
                let on = if cpu == "-" { String::new() } else { format!(" on CPU {cpu}") };
                let dot = if detail.is_empty() { "" } else { " · " };
                let text = format!("{side} {thread}{on}{dot}{detail}");
                write!(out, "{row}\n{}", below(&text, style))?;
            }
        }
        more(out, part)?;
    }
    Ok(())
}

/// Position of the details of a line of the time line.
#[derive(Clone, Copy)]
enum DetailPlace {
    Beside,
    Below,
    /// Below the line, with the thread's columns, for which there is no room either.
    BelowWithThread,
}

/// Number of a time line's columns up to the category.
const NARROW_COLUMNS: usize = 5;

/// Formats text as indented lines of its own.
fn below(text: &str, style: Style) -> String {
    const INDENT: &str = "    ";
    let width = style.width.map(|width| width.saturating_sub(INDENT.len() as u16));
    wrap(text, "", Style { width, ..style })
        .lines()
        .map(|line| format!("{INDENT}{line}\n"))
        .collect()
}

fn cells(line: &Line, style: Style) -> Vec<Cell> {
    vec![
        Cell::new(&line.at),
        Cell::new(&line.lasts),
        Cell::new(&line.share),
        Cell::new(""),
        tinted(line.what.clone(), line.category, style),
        Cell::new(&line.side),
        Cell::new(&line.thread),
        Cell::new(&line.cpu),
    ]
}

/// Draws a bar of `width` cells for the whole request. The time of the line is filled, with at least one cell.
fn bar(request: &Request, line: &Line, width: usize) -> String {
    let whole = u128::from(request.latency_ns).max(1);
    let cells = width as u128;
    let start_ns = u128::from(line.start_ns.saturating_sub(request.start_ns)).min(whole);
    let end_ns = (start_ns + line.duration_ns).min(whole);
    let from = (start_ns * cells / whole).min(cells - 1) as usize;
    let to = ((end_ns * cells).div_ceil(whole) as usize).clamp(from + 1, width);
    format!("{}{}{}", "·".repeat(from), "█".repeat(to - from), "·".repeat(width - to))
}

fn total(out: &mut dyn Write, request: &Request, segments: &[Segment], style: Style) -> Result<()> {
    let Sum { sum_ns, fault } = sum(request, segments);
    let latency_ns = u128::from(request.latency_ns);
    let parts = count(segments.len() as u64, "segment");
    let sum_text = format!("{} ns", format_exact(sum_ns));
    match fault {
        None if request.complete => writeln!(
            out,
            "total {}: the {parts} sum to {sum_text}, the latency exactly",
            format_ns(sum_ns)
        )?,
        None => writeln!(
            out,
            "total {}: the {parts} sum to {sum_text}, all that is known of the request",
            format_ns(sum_ns)
        )?,
        Some(_) if !request.complete => writeln!(
            out,
            "total {}: the {parts} sum to {sum_text} of at least {} ns; the request is incomplete",
            format_ns(sum_ns),
            format_exact(latency_ns)
        )?,
        Some(fault) => {
            let text = format!(
                "DOES NOT ADD UP: the {parts} sum to {sum_text}, the latency is {} ns, {} ns {}: {}",
                format_exact(latency_ns),
                format_exact(sum_ns.abs_diff(latency_ns)),
                if sum_ns > latency_ns { "too much" } else { "missing" },
                escape(&fault)
            );
            writeln!(out, "{}", alarm(&text, style))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
