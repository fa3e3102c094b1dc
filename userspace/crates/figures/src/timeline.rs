//! Requests over time: each request is a point in the colour of its largest category.

use serde_json::{json, Value};

use crate::axis::{log_ns, Unit};
use crate::gather::{Gathered, Group};
use crate::request::Drawn;
use crate::Selection;
use rpcprobe_model::Category;
use rpcprobe_report::palette::hex;
use rpcprobe_report::{count, format_exact};

pub fn figure(gathered: &Gathered, group: &Group, selection: Selection) -> Value {
    let place = gathered.groups.iter().position(|of| std::ptr::eq(of, group));
    let points: Vec<&Drawn> = gathered
        .drawn
        .iter()
        .filter(|of| {
            let key = &group.key;
            let is_of = of.request.kind == key.kind
                && (key.method.is_none() || of.request.method == key.method);
            is_of && place.is_some() && selection.band.holds(group.bounds.band(&of.request))
        })
        .collect();
    let unit = Unit::of(group.starts_ns.1);
    let mut by_category: std::collections::BTreeMap<Option<Category>, Vec<&Drawn>> =
        std::collections::BTreeMap::new();
    for point in &points {
        by_category.entry(point.largest()).or_default().push(point);
    }
    let trace = |(category, points): (&Option<Category>, &Vec<&Drawn>)| {
        let name = category.map_or("no time", Category::name);
        let x: Vec<f64> = points.iter().map(|of| unit.value(of.offset_ns)).collect();
        let y: Vec<u64> = points.iter().map(|of| of.request.latency_ns.max(1)).collect();
        let told: Vec<String> = points.iter().map(|of| of.in_short()).collect();
        let ids: Vec<Value> = points.iter().map(|of| json!([of.id.0, of.id.1])).collect();
        json!({
            "type": "scatter", "mode": "markers", "name": name, "x": x, "y": y, "customdata": ids,
            "hovertext": told, "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {
                "color": category.map_or("#6e6e6e".to_owned(), hex), "size": 6, "opacity": 0.85,
            },
            "meta": {"category": name},
        })
    };
    let data: Vec<Value> = by_category.iter().map(trace).collect();
    let of = group.band(selection.band);
    let note = match of.requests > points.len() as u64 {
        true => format!(
            "{} of {} drawn: the slowest, and an even sample of the others",
            format_exact(points.len() as u64),
            count(of.requests, "request")
        ),
        false => String::new(),
    };
    json!({
        "data": data,
        "layout": {
            "showlegend": false, "hovermode": "closest",
            "xaxis": {"title": {"text": format!("begin, {} since the start of the capture", unit.name)}},
            "yaxis": log_ns(of.min_ns, of.max_ns, "latency"),
            "meta": {"note": note},
        },
    })
}
