//! Which requests were made for which: a row for each way from the outermost request, with its latencies.

use serde_json::{json, Value};

use crate::axis::log_ns;
use crate::gather::{Gathered, Group};
use crate::label::{label, shorter};
use crate::links::Node;
use rpcprobe_report::{count, format_exact, format_ns, format_rate};

/// Rows at most.
const ROWS: usize = 30;

pub fn figure(gathered: &Gathered, group: &Group) -> Value {
    let (nodes, all) = gathered.links.nodes(ROWS);
    let places: Vec<usize> = (0..nodes.len()).collect();
    let names: Vec<String> = nodes.iter().map(name).collect();
    let told: Vec<String> = nodes.iter().map(in_words).collect();
    let chosen = |node: &Node| {
        node.kind == group.key.kind
            && (group.key.method.is_none() || node.method == group.key.method)
    };
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (place, node) in nodes.iter().enumerate() {
        x.extend([Some(node.latency_ns[0].max(1)), Some(node.latency_ns[2].max(1)), None]);
        y.extend([Some(place), Some(place), None]);
    }
    let colors: Vec<&str> =
        nodes.iter().map(|node| if chosen(node) { "#1f6fb4" } else { "#9aa7b2" }).collect();
    let least = nodes.iter().map(|node| node.latency_ns[0]).min().unwrap_or(1_000);
    let most = nodes.iter().map(|node| node.latency_ns[2]).max().unwrap_or(1_000_000);
    let data = json!([
        {
            "type": "scatter", "mode": "lines", "name": "p10 to p99", "x": x, "y": y, "hoverinfo": "skip",
            "line": {"color": "#9aa7b2", "width": 4}, "showlegend": false,
        },
        {
            "type": "scatter", "mode": "markers", "name": "median", "showlegend": false,
            "x": nodes.iter().map(|node| node.latency_ns[1].max(1)).collect::<Vec<_>>(), "y": places,
            "customdata": nodes.iter().map(|node| node.requests).collect::<Vec<_>>(),
            "hovertext": told, "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {"color": colors, "size": 10},
        },
    ]);
    let note = match (nodes.iter().any(|node| node.depth > 0), all > nodes.len()) {
        (false, _) => "No request is known to have been made for another one.".to_owned(),
        (true, true) => format!("{} of {} ways are shown", nodes.len(), format_exact(all as u64)),
        (true, false) => String::new(),
    };
    let last = nodes.len().max(1) as f64 - 0.5;
    json!({
        "data": data,
        "layout": {
            "showlegend": false, "hovermode": "closest",
            "xaxis": log_ns(least, most, "median, p10 to p99"),
            "yaxis": {
                "tickvals": places, "ticktext": names, "range": [last, -0.5], "automargin": true,
                "zeroline": false,
            },
            "meta": {"rows": nodes.len(), "note": note},
        },
    })
}

/// `└ http1 × 300`, and below that `GET /a`; deeper ones further in.
fn name(node: &Node) -> String {
    let indent = "\u{2003}".repeat(node.depth.saturating_sub(1));
    let branch = if node.depth > 0 { "└ " } else { "" };
    let method =
        node.method.as_deref().map_or(String::new(), |of| format!("<br>{indent}{}", shorter(of)));
    format!("{indent}{branch}{} × {}{method}", node.kind, format_exact(node.requests))
}

fn in_words(node: &Node) -> String {
    let method =
        node.method.as_deref().map_or(String::new(), |method| format!(" {}", label(method)));
    let [p10, p50, p99] = node.latency_ns.map(format_ns);
    let each = node.of.map_or(String::new(), |of| {
        let rate = format_rate(node.requests as f64 / of.max(1) as f64);
        format!("<br>{} for each one above", rate.trim_end_matches("/s"))
    });
    let detached = match node.detached {
        0 => String::new(),
        n => format!("<br>{} ended after the one above was answered", format_exact(n)),
    };
    format!(
        "<b>{}{method}</b><br>{}{each}<br>p10 {p10}, median {p50}, p99 {p99}{detached}",
        node.kind,
        count(node.requests, "request")
    )
}
