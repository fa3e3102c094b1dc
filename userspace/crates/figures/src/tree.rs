//! Which requests were made for which. There is a row for each back end and method on the path from the outermost
//! request, with its latencies and its share of the time of the row above.

use serde_json::{json, Value};

use crate::axis::log_ns;
use crate::gather::{Gathered, Group};
use crate::label::{label, shorter};
use rpcprobe_report::tree::Row;
use rpcprobe_report::{count, format_exact, format_ns};

/// Maximum number of rows.
const ROWS: usize = 30;

pub fn figure(gathered: &Gathered, group: &Group) -> Value {
    let (kept, left_out) = gathered.tree.largest(ROWS);
    let rows: Vec<&Row> = kept.iter().map(|at| &gathered.tree.rows[*at]).collect();
    let places: Vec<usize> = (0..rows.len()).collect();
    let names: Vec<String> = rows.iter().map(|row| name(row)).collect();
    let told: Vec<String> = rows.iter().map(|row| in_words(row)).collect();
    let chosen = |row: &Row| {
        row.kind == group.key.kind && (group.key.method.is_none() || row.method == group.key.method)
    };
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (place, row) in rows.iter().enumerate() {
        x.extend([Some(row.p10_ns.max(1)), Some(row.p99_ns.max(1)), None]);
        y.extend([Some(place), Some(place), None]);
    }
    let colors: Vec<&str> =
        rows.iter().map(|row| if chosen(row) { "#1f6fb4" } else { "#9aa7b2" }).collect();
    let least = rows.iter().map(|row| row.p10_ns).min().unwrap_or(1_000);
    let most = rows.iter().map(|row| row.p99_ns).max().unwrap_or(1_000_000);
    let data = json!([
        {
            "type": "scatter", "mode": "lines", "name": "p10 to p99", "x": x, "y": y, "hoverinfo": "skip",
            "line": {"color": "#9aa7b2", "width": 4}, "showlegend": false,
        },
        {
            "type": "scatter", "mode": "markers", "name": "median", "showlegend": false,
            "x": rows.iter().map(|row| row.p50_ns.max(1)).collect::<Vec<_>>(), "y": places,
            "customdata": rows.iter().map(|row| row.requests).collect::<Vec<_>>(),
            "hovertext": told, "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {"color": colors, "size": 10},
        },
    ]);
    let note = match (rows.iter().any(|row| row.above.is_some()), left_out) {
        (false, _) => "No request is known to have been made for another one.".to_owned(),
        (true, 0) => String::new(),
        (true, more) => format!("{} more with less time are not shown", format_exact(more)),
    };
    let last = rows.len().max(1) as f64 - 0.5;
    json!({
        "data": data,
        "layout": {
            "showlegend": false, "hovermode": "closest",
            "xaxis": log_ns(least, most, "median, p10 to p99"),
            "yaxis": {
                "tickvals": places, "ticktext": names, "range": [last, -0.5], "automargin": true,
                "zeroline": false,
            },
            "meta": {"rows": rows.len(), "note": note},
        },
    })
}

/// Names a row, such as `└ http1 × 300: 62.0 %`, with the method and back end on a second line. Deeper rows are
/// indented.
fn name(row: &Row) -> String {
    let indent = "\u{2003}".repeat(row.level.saturating_sub(1));
    let branch = if row.level > 0 { "└ " } else { "" };
    let took = row.took().map_or(String::new(), |took| format!(": {took}"));
    let parts: Vec<&str> = match row.is_part {
        true => vec![row.what()],
        false => {
            let what = row.method.as_deref().or(row.is_others.then_some(row.what()));
            what.into_iter().chain(row.server.as_deref()).collect()
        }
    };
    let below = match parts.is_empty() {
        true => String::new(),
        false => format!("<br>{indent}{}", shorter(&parts.join(" "))),
    };
    format!("{indent}{branch}{} × {}{took}{below}", row.kind, format_exact(row.requests))
}

fn in_words(row: &Row) -> String {
    let what: Vec<String> = row.server.iter().chain(&row.method).map(|of| label(of)).collect();
    let what = if what.is_empty() { String::new() } else { format!(" {}", what.join(" ")) };
    let [p10, p50, p99] = [row.p10_ns, row.p50_ns, row.p99_ns].map(format_ns);
    let above = match (row.for_each(), row.took()) {
        (Some(each), Some(took)) => {
            format!("<br>{each} for each one above, under way in {took} of its time")
        }
        _ => String::new(),
    };
    let parents = match row.parents.in_words() {
        of if of == "-" => String::new(),
        of => format!("<br>made for it: {of}"),
    };
    let detached = match row.detached {
        0 => String::new(),
        n => format!("<br>{} ended after the one above was answered", format_exact(n)),
    };
    format!(
        "<b>{}{what}</b><br>{}{above}<br>p10 {p10}, median {p50}, p99 {p99}{parents}{detached}",
        row.kind,
        count(row.requests, "request")
    )
}
