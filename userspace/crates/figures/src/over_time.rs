//! Where the time goes over time: the mean latency of the requests that begin in each time step, by
//! category.

use serde_json::{json, Value};

use crate::axis::{linear, rounded, Unit};
use crate::gather::{Group, STEPS};
use crate::label;
use crate::Selection;
use rpcprobe_model::Category;
use rpcprobe_report::palette::hex;
use rpcprobe_report::{count, format_at, format_ns};

pub fn figure(group: &Group, selection: Selection) -> Value {
    let band = group.band(selection.band);
    let (from_ns, to_ns) = group.starts_ns;
    let whole_ns = to_ns - from_ns + 1;
    let unit = Unit::of(to_ns);
    let at = |step: usize| from_ns + (u128::from(whole_ns) * step as u128 / STEPS as u128) as u64;
    let x: Vec<f64> = band
        .steps
        .keys()
        .map(|step| rounded(unit.value(at(*step)) / 2.0 + unit.value(at(*step + 1)) / 2.0))
        .collect();
    let mean = |ns: u128, requests: u64| (ns / u128::from(requests.max(1))) as u64;
    let sum = |step: &crate::gather::Step| step.ns.values().sum::<u128>();
    let largest = band.steps.values().map(|step| mean(sum(step), step.requests)).max().unwrap_or(0);
    let high = Unit::of(largest);
    let has = |category: &&Category| band.parts.contains_key(category);
    let trace = |category: &Category| {
        let (mut y, mut told) = (Vec::new(), Vec::new());
        for (place, step) in &band.steps {
            let ns = step.ns.get(category).copied().unwrap_or(0);
            y.push(rounded(high.value(mean(ns, step.requests))));
            told.push(format!(
                "<b>{category}</b><br>{} from {} on<br>{} of {} per request ({})",
                count(step.requests, "request"),
                format_at(at(*place), to_ns.max(1)),
                format_ns(mean(ns, step.requests)),
                format_ns(mean(sum(step), step.requests)),
                label::share(ns, sum(step)),
            ));
        }
        json!({
            "type": "bar", "name": category.name(), "x": x, "y": y, "hovertext": told,
            "hovertemplate": "%{hovertext}<extra></extra>",
            "width": rounded(unit.value(whole_ns) / STEPS as f64).max(0.0001),
            "marker": {"color": hex(*category), "line": {"width": 0}},
            "meta": {"category": category.name()},
        })
    };
    let data: Vec<Value> = Category::ALL.iter().filter(has).map(trace).collect();
    json!({
        "data": data,
        "layout": {
            "barmode": "stack", "bargap": 0, "showlegend": false, "hovermode": "closest",
            "xaxis": linear(
                from_ns, from_ns + whole_ns, unit, &format!("begin, {} since the start of the capture", unit.name),
            ),
            "yaxis": {"title": {"text": format!("mean latency, {}", high.name)}, "rangemode": "tozero"},
        },
    })
}
