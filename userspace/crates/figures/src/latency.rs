//! How long requests take: the cumulative share above, the counts below, on one logarithmic axis.

use serde_json::{json, Value};

use crate::axis::{log_ns, rounded};
use crate::band::Band;
use crate::gather::{BandSums, Group};
use crate::label;
use crate::Selection;
use rpcprobe_report::palette::hex;
use rpcprobe_report::{count, format_exact, format_ns};

/// Colour of latencies, which have no category.
const COLOR: &str = "#5a7185";

pub fn figure(group: &Group, selection: Selection) -> Value {
    let band = group.band(selection.band);
    let (counts, zeros, what, color) = match selection.category {
        None => {
            (band.latencies.clone(), band.latencies.zeros(), "latency".to_owned(), COLOR.into())
        }
        Some(category) => {
            let counts = band.parts.get(&category).map(|part| part.per_request.clone());
            let counts = counts.unwrap_or_default();
            let zeros = band.requests - counts.total;
            (counts, zeros, format!("{category} per request"), hex(category))
        }
    };
    let whole = band.requests;
    let bins = counts.bins(counts.merged());
    // The exact share of requests below each edge.
    let (mut below, mut x, mut share, mut told) = (zeros, Vec::new(), Vec::new(), Vec::new());
    for (from_ns, to_ns, count) in &counts.bins(1) {
        if x.is_empty() {
            x.push((*from_ns).max(1));
            share.push(percent(below, whole));
            told.push(told_below(below, whole, *from_ns));
        }
        below += count;
        x.push(*to_ns);
        share.push(percent(below, whole));
        told.push(told_below(below, whole, *to_ns));
    }
    // One step per bin, and one more at the end, so that the last bin is drawn completely.
    let mut steps: Vec<u64> = bins.iter().map(|(from_ns, ..)| (*from_ns).max(1)).collect();
    let mut heights: Vec<u64> = bins.iter().map(|(.., count)| *count).collect();
    let mut counted: Vec<String> = bins
        .iter()
        .map(|(from_ns, to_ns, n)| {
            let share = label::share(*n, whole);
            format!(
                "{} of {} to {} ({share})",
                count(*n, "request"),
                format_ns(*from_ns),
                format_ns(*to_ns)
            )
        })
        .collect();
    if let (Some((_, to_ns, _)), Some(last)) = (bins.last(), counted.last().cloned()) {
        steps.push(*to_ns);
        heights.push(0);
        counted.push(last);
    }
    let mut data = vec![
        json!({
            "type": "scatter", "mode": "lines", "name": "at most", "showlegend": false,
            "x": x, "y": share, "text": told, "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": color, "width": 2}, "xaxis": "x", "yaxis": "y",
        }),
        json!({
            "type": "scatter", "mode": "lines", "name": "requests", "showlegend": false,
            "x": steps, "y": heights, "text": counted, "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": color, "width": 1, "shape": "hv"}, "fill": "tozeroy",
            "xaxis": "x", "yaxis": "y2",
        }),
    ];
    let (from_ns, to_ns) = match (bins.first(), bins.last()) {
        (Some((from_ns, ..)), Some((_, to_ns, _))) => (*from_ns, *to_ns),
        _ => (1_000, 1_000_000),
    };
    let mut axis = log_ns(from_ns, to_ns, &what);
    let mut shapes = Vec::new();
    if selection.category.is_none() && selection.band == Band::All {
        shapes = percentiles(group, &axis, &mut data);
    }
    axis["anchor"] = "y2".into();
    let none = match zeros {
        0 => String::new(),
        n => format!("{} of {} have none", format_exact(n), count(whole, "request")),
    };
    let mut layout = json!({
        "xaxis": axis,
        "yaxis": {"title": {"text": "requests below, %"}, "domain": [0.46, 1], "range": [0, 115], "tickvals": [0, 25, 50, 75, 100], "anchor": "x"},
        "yaxis2": {"title": {"text": "requests"}, "domain": [0, 0.38], "rangemode": "tozero", "anchor": "x"},
        "shapes": shapes,
        "hovermode": "x",
    });
    if !none.is_empty() {
        layout["annotations"] = json!([{
            "text": none, "xref": "paper", "yref": "paper", "x": 1, "y": 1.0, "xanchor": "right",
            "yanchor": "bottom", "showarrow": false,
        }]);
    }
    json!({"data": data, "layout": layout})
}

fn told_below(below: u64, whole: u64, ns: u64) -> String {
    format!("{} below {}", label::share(below, whole), format_ns(ns))
}

fn percent(part: u64, whole: u64) -> f64 {
    rounded(part as f64 * 100.0 / whole.max(1) as f64)
}

/// Part of the axis, from its beginning, where a name fits to the right of a point. On a phone a name takes a quarter
/// of the axis.
const ROOM_ON_THE_RIGHT: f64 = 0.7;

/// Position of a percentile's name. The curve rises, so it never passes below and to the right of a point, nor above
/// and to the left of it. Above 99 % there is room only above the 100 % line.
fn place(band: Band, at: f64) -> &'static str {
    match (band, at <= ROOM_ON_THE_RIGHT) {
        (Band::Top1, true) => "top right",
        (_, true) => "bottom right",
        (_, false) => "top left",
    }
}

/// Marks the percentiles at which the bands begin, which are those that reports show.
fn percentiles(group: &Group, axis: &Value, data: &mut Vec<Value>) -> Vec<Value> {
    let marks: Vec<(u64, f64, &str, Band)> = [Band::P50To90, Band::P90To99, Band::Top1]
        .iter()
        .zip([(50.0, "p50"), (90.0, "p90"), (99.0, "p99")])
        .filter_map(|(band, (share, name))| {
            Some((group.bounds.latencies(*band).0?.max(1), share, name, *band))
        })
        .collect();
    if marks.is_empty() {
        return Vec::new();
    }
    let edge = |i: usize| axis["range"][i].as_f64().unwrap_or(0.0);
    let at = |ns: u64| ((ns as f64).log10() - edge(0)) / (edge(1) - edge(0));
    let texts: Vec<String> =
        marks.iter().map(|(ns, _, name, _)| format!("{name} {}", format_ns(*ns))).collect();
    data.push(json!({
        "type": "scatter", "mode": "markers+text", "name": "percentiles", "showlegend": false,
        "x": marks.iter().map(|(ns, ..)| ns).collect::<Vec<_>>(),
        "y": marks.iter().map(|(_, share, ..)| share).collect::<Vec<_>>(),
        "text": texts, "textfont": {"size": 11},
        "textposition": marks.iter().map(|(ns, .., band)| place(*band, at(*ns))).collect::<Vec<_>>(),
        "hoverinfo": "skip", "cliponaxis": false,
        "marker": {"color": COLOR, "size": 8}, "xaxis": "x", "yaxis": "y",
    }));
    let line = |(ns, ..): &(u64, f64, &str, Band)| {
        json!({
            "type": "line", "x0": ns, "x1": ns, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
            "line": {"color": COLOR, "width": 1, "dash": "dot"},
        })
    };
    marks.iter().map(line).collect()
}

/// Mean latency, rounded to nanoseconds.
pub fn mean_ns(band: &BandSums) -> u64 {
    let mean = (band.latency_ns + u128::from(band.requests / 2)) / u128::from(band.requests.max(1));
    u64::try_from(mean).unwrap_or(u64::MAX)
}
