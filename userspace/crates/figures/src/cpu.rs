//! Who had the CPU while requests waited for it.

use std::collections::BTreeMap;

use serde_json::{json, Value};

use crate::axis::{rounded, Unit};
use crate::gather::Group;
use crate::label::{self, label, short};
use crate::Selection;
use rpcprobe_model::Category;
use rpcprobe_report::format_ns;
use rpcprobe_report::palette::hex;

/// Maximum number of names listed one by one.
const LISTED: usize = 10;

pub fn figure(group: &Group, selection: Selection) -> Value {
    let band = group.band(selection.band);
    let after = [Category::RunqueueWakeup, Category::RunqueuePreempted];
    let mut names: BTreeMap<&str, [u128; 2]> = BTreeMap::new();
    for (at, largest) in band.had_cpu.iter().enumerate() {
        for (name, ns) in largest.iter().flat_map(|largest| largest.sorted()) {
            names.entry(name).or_default()[at] += ns;
        }
    }
    let mut names: Vec<(&str, [u128; 2])> = names.into_iter().collect();
    names.sort_by_key(|(name, ns)| (std::cmp::Reverse(ns[0] + ns[1]), *name));
    let rest = names.split_off(names.len().min(LISTED));
    let mut rows: Vec<(String, String, [u128; 2])> = names
        .into_iter()
        .map(|(name, ns)| match name {
            "" => ("(not known)".to_owned(), "(not known)".to_owned(), ns),
            name => (short(name), label(name), ns),
        })
        .collect();
    if !rest.is_empty() {
        let name = format!("{} others", rest.len());
        let sum = |at: usize| rest.iter().map(|(_, ns)| ns[at]).sum();
        rows.push((name.clone(), name, [sum(0), sum(1)]));
    }
    for i in 0..rows.len() {
        if rows[..i].iter().any(|row| row.0 == rows[i].0) {
            rows[i].0 += &format!(" ({})", i + 1);
        }
    }
    let requests = u128::from(band.requests.max(1));
    let whole: u128 = rows.iter().map(|(.., ns)| ns[0] + ns[1]).sum();
    let most = rows.iter().map(|(.., ns)| ns[0] + ns[1]).max().unwrap_or(0);
    let unit = Unit::of(u64::try_from(most / requests).unwrap_or(u64::MAX));
    let y: Vec<&String> = rows.iter().map(|(name, ..)| name).collect();
    let trace = |(at, category): (usize, &Category)| {
        let mean = |ns: u128| rounded(ns as f64 / requests as f64 / (1.0 / unit.value(1)));
        let x: Vec<f64> = rows.iter().map(|(.., ns)| mean(ns[at])).collect();
        let told: Vec<String> = rows
            .iter()
            .map(|(_, name, ns)| {
                format!(
                    "<b>{name}</b><br>{category}: {} per request<br>{} of all waiting for a CPU",
                    format_ns(ns[at] / requests),
                    label::share(ns[at], whole)
                )
            })
            .collect();
        json!({
            "type": "bar", "orientation": "h", "name": category.name(), "x": x, "y": y,
            "hovertext": told, "hovertemplate": "%{hovertext}<extra></extra>",
            "customdata": rows.iter().map(|(.., ns)| u64::try_from(ns[at]).unwrap_or(u64::MAX)).collect::<Vec<_>>(),
            "marker": {"color": hex(*category)}, "meta": {"category": category.name()},
        })
    };
    let data: Vec<Value> = match rows.is_empty() {
        true => Vec::new(),
        false => after.iter().enumerate().map(trace).collect(),
    };
    let note = if rows.is_empty() { "No request waited for a CPU." } else { "" };
    json!({
        "data": data,
        "layout": {
            "barmode": "stack", "bargap": 0.3, "showlegend": false, "hovermode": "closest",
            "xaxis": {"title": {"text": format!("wait per request, {}", unit.name)}, "rangemode": "tozero"},
            "yaxis": {"type": "category", "autorange": "reversed", "automargin": true},
            "meta": {"rows": rows.len(), "note": note},
        },
    })
}
