//! How long requests take: the cumulative share above, counts below, on one logarithmic axis.

use serde_json::{json, Value};

use crate::axis::{log_ns, rounded};
use crate::band::Band;
use crate::gather::{BandSums, Group};
use crate::label;
use crate::Selection;
use rpcprobe_report::palette::hex;
use rpcprobe_report::{count, format_exact, format_ns};

/// Of latencies, which are of no category.
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
    // The share of requests below each edge, exactly.
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
    // A step for each bin; one more at the end, so that the last is drawn whole.
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
    let mut shapes = Vec::new();
    if selection.category.is_none() && selection.band == Band::All {
        shapes = percentiles(group, (from_ns, to_ns), &mut data);
    }
    let mut axis = log_ns(from_ns, to_ns, &what);
    axis["anchor"] = "y2".into();
    let none = match zeros {
        0 => String::new(),
        n => format!("{} of {} have none", format_exact(n), count(whole, "request")),
    };
    let mut layout = json!({
        "xaxis": axis,
        "yaxis": {"title": {"text": "requests below, %"}, "domain": [0.5, 1], "range": [0, 102], "anchor": "x"},
        "yaxis2": {"title": {"text": "requests"}, "domain": [0, 0.42], "rangemode": "tozero", "anchor": "x"},
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

/// Marks where the bands begin: at the percentiles that reports give. Names are on the side that has room.
fn percentiles(group: &Group, (from_ns, to_ns): (u64, u64), data: &mut Vec<Value>) -> Vec<Value> {
    let marks: Vec<(u64, f64, &str)> = [Band::P50To90, Band::P90To99, Band::Top1]
        .iter()
        .zip([(50.0, "p50"), (90.0, "p90"), (99.0, "p99")])
        .filter_map(|(band, (share, name))| {
            Some((group.bounds.latencies(*band).0?.max(1), share, name))
        })
        .collect();
    if marks.is_empty() {
        return Vec::new();
    }
    let log = |ns: u64| (ns.max(1) as f64).ln();
    let middle = (log(from_ns) + log(to_ns)) / 2.0;
    let place = |ns: u64| if log(ns) > middle { "bottom left" } else { "bottom right" };
    let texts: Vec<String> =
        marks.iter().map(|(ns, _, name)| format!("{name} {}", format_ns(*ns))).collect();
    data.push(json!({
        "type": "scatter", "mode": "markers+text", "name": "percentiles", "showlegend": false,
        "x": marks.iter().map(|(ns, ..)| ns).collect::<Vec<_>>(),
        "y": marks.iter().map(|(_, share, _)| share).collect::<Vec<_>>(),
        "text": texts, "textposition": marks.iter().map(|(ns, ..)| place(*ns)).collect::<Vec<_>>(),
        "hoverinfo": "skip", "cliponaxis": false,
        "marker": {"color": COLOR, "size": 8}, "xaxis": "x", "yaxis": "y",
    }));
    let line = |(ns, ..): &(u64, f64, &str)| {
        json!({
            "type": "line", "x0": ns, "x1": ns, "y0": 0, "y1": 1, "yref": "paper", "layer": "below",
            "line": {"color": COLOR, "width": 1, "dash": "dot"},
        })
    };
    marks.iter().map(line).collect()
}

/// Mean latency, rounded.
pub fn mean_ns(band: &BandSums) -> u64 {
    let mean = (band.latency_ns + u128::from(band.requests / 2)) / u128::from(band.requests.max(1));
    u64::try_from(mean).unwrap_or(u64::MAX)
}
