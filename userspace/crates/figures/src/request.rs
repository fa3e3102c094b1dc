//! The time line of one request: a lane for each thread, with the critical path through the lanes.

use serde_json::{json, Value};

use crate::axis::Unit;
use crate::band::Band;
use crate::label::{self, label, short};
use crate::scan::Id;
use rpcprobe_model::{Category, Certainty, Evidence, Request, Segment, Side};
use rpcprobe_report::palette::hex;
use rpcprobe_report::sums::Sum;
use rpcprobe_report::{
    count, end, escape, evidence_mark, format_at, format_exact, format_ns, marks,
};

/// Maximum number of segments drawn of a request: the longest ones.
const MOST: usize = 250;
/// Maximum number of segments held; beyond it, only the longest are kept.
const HELD: usize = 4_096;
/// Maximum number of threads with a lane of their own: those with the most time.
const LANES: usize = 12;
/// Number of categories named in a short description.
const NAMED: usize = 4;

/// The segments of a request, or its longest segments.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    segments: Vec<Segment>,
    all: u64,
    all_ns: u64,
}

impl Kept {
    pub fn add(&mut self, segment: &Segment) {
        self.all += 1;
        self.all_ns += segment.duration_ns;
        self.segments.push(segment.clone());
        if self.segments.len() > HELD {
            self.cut();
        }
    }

    /// Keeps the segments of a request.
    pub fn of(segments: &[Segment]) -> Kept {
        let mut kept = Kept::default();
        segments.iter().for_each(|segment| kept.add(segment));
        kept
    }

    fn cut(&mut self) {
        self.segments.sort_by_key(|of| (std::cmp::Reverse(of.duration_ns), of.start_ns));
        self.segments.truncate(MOST);
        self.segments.sort_by_key(|of| of.start_ns);
    }

    fn longest(&self) -> Vec<&Segment> {
        let mut segments: Vec<&Segment> = self.segments.iter().collect();
        segments.sort_by_key(|of| (std::cmp::Reverse(of.duration_ns), of.start_ns));
        segments.truncate(MOST);
        segments.sort_by_key(|of| of.start_ns);
        segments
    }
}

/// A request that is drawn as a point and, if its segments are kept, as a time line.
pub struct Drawn {
    pub id: Id,
    /// Begin of the request, relative to the start of the capture.
    pub offset_ns: u64,
    pub request: Request,
    /// Categories that have time, largest first.
    pub parts: Vec<(Category, Sum)>,
    /// The groups that the request belongs to, and its band in each.
    pub places: Vec<(usize, Band)>,
    /// `None` if no time line is kept.
    pub kept: Option<Kept>,
}

impl Drawn {
    /// Makes a [`Drawn`] of one request with all its segments.
    pub fn of(capture: usize, start_ns: u64, request: Request, segments: &[Segment]) -> Drawn {
        let mut parts: Vec<(Category, Sum)> = Vec::new();
        for segment in segments {
            match parts.iter_mut().find(|(of, _)| *of == segment.category) {
                Some((_, sum)) => sum.add(segment),
                None => {
                    let mut sum = Sum::default();
                    sum.add(segment);
                    parts.push((segment.category, sum));
                }
            }
        }
        parts.sort_by_key(|(category, sum)| (std::cmp::Reverse(sum.ns), *category));
        Drawn {
            id: (capture, request.request_id),
            offset_ns: request.start_ns.saturating_sub(start_ns),
            request,
            parts,
            places: Vec::new(),
            kept: Some(Kept::of(segments)),
        }
    }

    pub fn largest(&self) -> Option<Category> {
        self.parts.first().map(|(category, _)| *category)
    }

    /// Short description: id, method, latency, largest categories.
    pub fn in_short(&self) -> String {
        let request = &self.request;
        let method =
            request.method.as_deref().map_or(String::new(), |of| format!(" {}", label(of)));
        let parts: Vec<String> = self
            .parts
            .iter()
            .take(NAMED)
            .map(|(category, sum)| {
                let marks = marks(sum.modelled_ns > 0, sum.sampled_ns > 0);
                let share = label::share(sum.ns, request.latency_ns);
                format!("<br>{} {category}{marks} ({share})", format_ns(sum.ns))
            })
            .collect();
        format!(
            "<b>request {}: {}{method}</b><br>{}, begins at {}{}",
            request.request_id,
            request.kind,
            format_ns(request.latency_ns),
            format_at(self.offset_ns, 1_000_000_000),
            parts.concat()
        )
    }

    /// The heading of the time line.
    pub fn heading(&self) -> String {
        let request = &self.request;
        let method = request.method.as_deref().map_or(String::new(), |of| format!(" {of}"));
        format!(
            "request {}: {}{method}, {} = {} ns",
            request.request_id,
            request.kind,
            format_ns(request.latency_ns),
            format_exact(request.latency_ns)
        )
    }

    /// Client and server, and other known facts about the request.
    pub fn facts(&self) -> String {
        let request = &self.request;
        let mut facts = vec![format!(
            "client {} · server {}",
            end(request.client.as_ref()),
            end(request.server.as_ref())
        )];
        if request.certainty != Certainty::Sure {
            facts.push(format!("{} a {} request", request.certainty, request.kind));
        }
        facts.extend(request.channel.as_deref().map(|text| format!("channel {}", escape(text))));
        facts.extend(request.parent_request_id.map(|id| match request.detached {
            true => format!("begun by request {id}, which did not wait for it"),
            false => format!("part of request {id}"),
        }));
        facts.join(" · ")
    }

    /// Draws the time line; `None` if the request's segments are not kept.
    pub fn figure(&self) -> Option<Value> {
        let kept = self.kept.as_ref()?;
        Some(time_line(&self.request, kept))
    }
}

/// A lane of the time line. All devices share one lane, and the network has one lane.
#[derive(Clone, Debug, PartialEq)]
struct Lane {
    side: Side,
    tid: Option<u32>,
    name: String,
    ns: u64,
}

/// Position of a side's lanes, from top to bottom.
fn order(side: Side) -> usize {
    [Side::Client, Side::Middle, Side::Server, Side::Kernel, Side::Device, Side::Network]
        .iter()
        .position(|of| *of == side)
        .unwrap_or(usize::MAX)
}

fn lane_of(segment: &Segment) -> (Side, Option<u32>) {
    match segment.side {
        Side::Device | Side::Network => (segment.side, None),
        side => (side, Some(segment.tid)),
    }
}

/// Returns the lanes, and for each segment the index of its lane.
fn lanes(segments: &[&Segment]) -> (Vec<Lane>, Vec<usize>) {
    let mut lanes: Vec<Lane> = Vec::new();
    for segment in segments {
        let (side, tid) = lane_of(segment);
        match lanes.iter_mut().find(|lane| (lane.side, lane.tid) == (side, tid)) {
            Some(lane) => lane.ns += segment.duration_ns,
            None => {
                let name = match tid {
                    Some(tid) => format!("{side}<br>{}/{tid}", short(&segment.comm)),
                    None => side.to_string(),
                };
                lanes.push(Lane { side, tid, name, ns: segment.duration_ns });
            }
        }
    }
    let mut least = 0;
    if lanes.len() > LANES {
        let mut times: Vec<u64> = lanes.iter().map(|lane| lane.ns).collect();
        times.sort_unstable_by_key(|ns| std::cmp::Reverse(*ns));
        least = times[LANES - 2];
    }
    // Ordered by side; within a side, by first appearance.
    let mut shown: Vec<Lane> =
        lanes.iter().filter(|lane| lane.ns >= least).take(LANES).cloned().collect();
    shown.sort_by_key(|lane| order(lane.side));
    let others = lanes.len() - shown.len();
    let rest = shown.len();
    if others > 0 {
        let name = count(others as u64, "other thread");
        shown.push(Lane { side: Side::Middle, tid: None, name, ns: 0 });
    }
    let place = |segment: &&Segment| {
        let (side, tid) = lane_of(segment);
        let own = shown[..rest].iter().position(|lane| (lane.side, lane.tid) == (side, tid));
        own.unwrap_or(rest)
    };
    let places = segments.iter().map(place).collect();
    (shown, places)
}

fn time_line(request: &Request, kept: &Kept) -> Value {
    let segments = kept.longest();
    let unit = Unit::of(request.latency_ns);
    let (lanes, places) = lanes(&segments);
    let offset = |ns: u64| ns.saturating_sub(request.start_ns);
    let mut data = Vec::new();
    // The critical path runs along each segment's lane and over to the lane of the next segment.
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (segment, place) in segments.iter().zip(&places) {
        x.extend([unit.value(offset(segment.start_ns)), unit.value(offset(segment.end_ns()))]);
        y.extend([*place, *place]);
    }
    for category in Category::ALL {
        for evidence in Evidence::ALL {
            let of: Vec<(&&Segment, &usize)> = segments
                .iter()
                .zip(&places)
                .filter(|(segment, _)| {
                    segment.category == *category && segment.evidence == *evidence
                })
                .collect();
            if of.is_empty() {
                continue;
            }
            let pattern = match evidence {
                Evidence::Measured => "",
                Evidence::Sampled => ".",
                Evidence::Modelled => "/",
            };
            data.push(json!({
                "type": "bar", "orientation": "h",
                "name": format!("{category}{}", evidence_mark(*evidence)),
                "base": of.iter().map(|(s, _)| unit.value(offset(s.start_ns))).collect::<Vec<_>>(),
                "x": of.iter().map(|(s, _)| unit.value(s.duration_ns)).collect::<Vec<_>>(),
                "y": of.iter().map(|(_, place)| place).collect::<Vec<_>>(),
                "hovertext": of.iter().map(|(s, _)| in_words(request, s)).collect::<Vec<_>>(),
                "hovertemplate": "%{hovertext}<extra></extra>", "width": 0.62,
                "marker": {
                    "color": hex(*category), "line": {"width": 0},
                    "pattern": {
                        "shape": pattern, "fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.7, "size": 6,
                        "solidity": 0.25,
                    },
                },
                "meta": {"category": category.name()}, "showlegend": false,
            }));
        }
    }
    data.push(json!({
        "type": "scatter", "mode": "lines", "name": "critical path", "x": x, "y": y, "hoverinfo": "skip",
        "line": {"color": "#808890", "width": 1.2}, "showlegend": false,
    }));
    let drawn_ns: u64 = segments.iter().map(|segment| segment.duration_ns).sum();
    let note = match kept.all > segments.len() as u64 {
        true => format!(
            "The {} longest of {} are drawn, {} of the time.",
            segments.len(),
            count(kept.all, "segment"),
            label::share(drawn_ns, kept.all_ns)
        ),
        false => String::new(),
    };
    let last = lanes.len().max(1) as f64 - 0.5;
    json!({
        "data": data,
        "layout": {
            "barmode": "overlay", "showlegend": false, "hovermode": "closest",
            "xaxis": {
                "title": {"text": format!("{} since the request began", unit.name)},
                "range": [0, unit.value(request.latency_ns.max(1))], "zeroline": false,
            },
            "yaxis": {
                "tickvals": (0..lanes.len()).collect::<Vec<_>>(),
                "ticktext": lanes.iter().map(|lane| &lane.name).collect::<Vec<_>>(),
                "range": [last, -0.5], "automargin": true, "zeroline": false, "showgrid": false,
            },
            "meta": {"rows": lanes.len(), "note": note},
        },
    })
}

/// Describes a segment with everything known about it.
fn in_words(request: &Request, segment: &Segment) -> String {
    let Segment { category, side, comm, tid, evidence, .. } = segment;
    let mut lines = vec![format!(
        "<b>{category}</b>{} {} ({})",
        evidence_mark(*evidence),
        format_ns(segment.duration_ns),
        label::share(segment.duration_ns, request.latency_ns)
    )];
    let cpu = segment.cpu.map_or(String::new(), |cpu| format!(", CPU {cpu}"));
    lines.push(format!(
        "{side} {}/{tid}{cpu}, at {}",
        label(comm),
        format_at(segment.start_ns.saturating_sub(request.start_ns), request.latency_ns)
    ));
    lines.extend(segment.phase.map(|phase| format!("phase: {}", label(phase))));
    lines.extend(segment.detail.as_deref().map(|text| wrapped(&label(text))));
    lines.extend(segment.by.as_ref().map(|by| format!("by: {}", label(&by.to_string()))));
    lines
        .extend(segment.cause.as_deref().map(|cause| wrapped(&format!("cause: {}", label(cause)))));
    if segment.shared > 1 {
        lines.push(format!("shared by {} requests", segment.shared));
    }
    let rule = segment.rule.map_or(String::new(), |rule| format!(", rule {rule}"));
    lines.push(format!("{evidence}{rule}"));
    lines.join("<br>")
}

/// Breaks text at blanks into lines that fit on a phone.
fn wrapped(text: &str) -> String {
    const LINE: usize = 56;
    let (mut out, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let more = word.chars().count() + 1;
        if length > 0 && length + more > LINE {
            out.push_str("<br>");
            length = 0;
        } else if length > 0 {
            out.push(' ');
        }
        out.push_str(word);
        length += more;
    }
    out
}
