//! Where the time goes: a bar of 100 % for each percentile band or each method.

use serde_json::{json, Value};

use crate::axis::rounded;
use crate::band::Band;
use crate::gather::{BandSums, Gathered, Group};
use crate::label::{self, label, short};
use crate::latency::mean_ns;
use crate::Selection;
use rpcprobe_model::Category;
use rpcprobe_report::palette::hex;
use rpcprobe_report::{count, format_exact, format_ns, marks};

const TOO_FEW: &str = "Fewer than 100 requests have no percentile bands.";

/// One bar.
struct Bar<'b> {
    name: String,
    of: String,
    sums: &'b BandSums,
    faint: bool,
}

/// Returns one trace for each category that occurs in any bar, in the order of reports.
fn traces(bars: &[Bar], lies: bool) -> Vec<Value> {
    let has = |category: &&Category| {
        bars.iter().any(|bar| bar.sums.parts.get(category).is_some_and(|part| part.sum.ns > 0))
    };
    let names: Vec<&String> = bars.iter().map(|bar| &bar.name).collect();
    let opacity: Vec<f64> = bars.iter().map(|bar| if bar.faint { 0.3 } else { 1.0 }).collect();
    let trace = |category: &Category| {
        let (mut shares, mut told, mut sums_ns) = (Vec::new(), Vec::new(), Vec::new());
        let (mut modelled, mut sampled) = (false, false);
        for Bar { sums, of, .. } in bars {
            let sum = sums.parts.get(category).map(|part| part.sum).unwrap_or_default();
            modelled |= sum.modelled_ns > 0;
            sampled |= sum.sampled_ns > 0;
            shares.push(rounded(sum.ns as f64 * 100.0 / sums.latency_ns.max(1) as f64));
            sums_ns.push(u64::try_from(sum.ns).unwrap_or(u64::MAX));
            let of_it = |ns: u128| label::share(ns, sum.ns);
            let evidence = match (sum.modelled_ns, sum.sampled_ns) {
                (0, 0) => "measured".to_owned(),
                (ns, 0) => format!("{} modelled", of_it(ns)),
                (0, ns) => format!("{} sampled", of_it(ns)),
                (a, b) => format!("{} modelled, {} sampled", of_it(a), of_it(b)),
            };
            told.push(format!(
                "<b>{category}</b>{}<br>{of}<br>{} of the time, {} per request<br>{evidence}",
                marks(sum.modelled_ns > 0, sum.sampled_ns > 0),
                label::share(sum.ns, sums.latency_ns),
                format_ns(sum.ns / u128::from(sums.requests.max(1))),
            ));
        }
        let (x, y) =
            if lies { (json!(shares), json!(names)) } else { (json!(names), json!(shares)) };
        json!({
            "type": "bar", "name": format!("{category}{}", marks(modelled, sampled)),
            "orientation": if lies { "h" } else { "v" }, "x": x, "y": y, "customdata": sums_ns,
            "hovertext": told, "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {"color": hex(*category), "opacity": opacity},
            "meta": {"category": category.name()},
        })
    };
    Category::ALL.iter().filter(has).map(trace).collect()
}

/// Draws a bar for each percentile band.
pub fn by_band(group: &Group, selection: Selection) -> Value {
    let bars: Vec<Bar> = group
        .bands()
        .iter()
        .map(|band| (*band, group.band(*band)))
        .filter(|(_, sums)| sums.requests > 0)
        .map(|(band, sums)| {
            let mean = format_ns(mean_ns(sums));
            Bar {
                name: format!("{}<br>{mean}", band.shown()),
                of: format!("{}: {}, mean {mean}", band.shown(), count(sums.requests, "request")),
                sums,
                faint: selection.band != Band::All && selection.band != band,
            }
        })
        .collect();
    let data = traces(&bars, false);
    json!({
        "data": data,
        "layout": {
            "barmode": "stack", "bargap": 0.25, "showlegend": false, "hovermode": "closest",
            "xaxis": {
                "type": "category", "title": {"text": "percentile band, and its mean latency"},
                "range": [if bars.len() == 1 { -1.5 } else { -0.6 }, bars.len() as f64 - if bars.len() == 1 { -0.5 } else { 0.4 }],
            },
            "meta": {"note": if group.bounds.are_known() { "" } else { TOO_FEW }},
            "yaxis": {"title": {"text": "share of the time, %"}, "range": [0, 100]},
        },
    })
}

/// Draws a bar for each method of the kind that is a group. Requests of other methods, or without a
/// method, are only counted in the note.
pub fn by_method(gathered: &Gathered, group: &Group, selection: Selection) -> Value {
    let of_kind: Vec<&Group> =
        gathered.groups.iter().filter(|of| of.key.kind == group.key.kind).collect();
    let chosen = |of: &Group| group.key.method.is_none() || group.key == of.key;
    let mut bars = Vec::new();
    for of in of_kind.iter().filter(|of| of.key.method.is_some() || of_kind.len() == 1) {
        let sums = of.band(selection.band);
        let (name, long) = match &of.key.method {
            Some(method) => (short(method), label(method)),
            None => (format!("all {}", of.key.kind), format!("all {} requests", of.key.kind)),
        };
        let mean = format_ns(mean_ns(sums));
        bars.push(Bar {
            name: format!("{name}<br>{} × {mean}", format_exact(sums.requests)),
            of: format!("{long}: {}, mean {mean}", count(sums.requests, "request")),
            sums,
            faint: !chosen(of),
        });
    }
    // Names that were shortened to the same text would share a bar.
    for i in 0..bars.len() {
        if bars[..i].iter().any(|bar| bar.name == bars[i].name) {
            bars[i].name += &format!(" ({})", i + 1);
        }
    }
    let data = traces(&bars, true);
    let rest: u64 = of_kind[0].requests
        - of_kind[1..].iter().map(|of| of.requests).sum::<u64>().min(of_kind[0].requests);
    let note = match rest {
        n if n > 0 && of_kind.len() > 1 => {
            format!("{} of other methods, or none, are not shown", count(n, "request"))
        }
        _ => String::new(),
    };
    json!({
        "data": data,
        "layout": {
            "barmode": "stack", "bargap": 0.3, "showlegend": false, "hovermode": "closest",
            "xaxis": {"title": {"text": "share of the time, %"}, "range": [0, 100]},
            "yaxis": {"type": "category", "autorange": "reversed", "automargin": true},
            "meta": {"rows": bars.len(), "note": note},
        },
    })
}
