//! Figures of a comparison of two sides: the shift function, and the change by category.

use serde_json::{json, Value};

use crate::axis::{rounded, Unit};
use rpcprobe_model::{Category, Side};
use rpcprobe_report::palette::hex;
use rpcprobe_report::{format_ns, format_signed_ns, marks};

/// Maximum number of steps of a waterfall.
const STEPS: usize = 12;

/// One quantile and its change from A to B.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub percent: u32,
    pub a_ns: f64,
    pub change_ns: f64,
    /// 95 % interval of the change.
    pub interval_ns: Option<(f64, f64)>,
}

/// The change of one category at one side of the requests.
#[derive(Clone, Debug)]
pub struct Step {
    pub category: Category,
    pub side: Side,
    pub change_ns: i64,
    /// 95 % interval of the change.
    pub interval_ns: Option<(f64, f64)>,
    pub modelled: bool,
    /// The verdict as text: whether the change is shown to be real.
    pub verdict: String,
}

fn signed(ns: f64) -> String {
    let ns = ns.round() as i64;
    format!("{}{}", if ns > 0 { "+" } else { "" }, format_signed_ns(ns))
}

fn unit_of(values: impl Iterator<Item = f64>) -> Unit {
    Unit::of(values.map(f64::abs).fold(0.0, f64::max) as u64)
}

fn value(unit: Unit, ns: f64) -> f64 {
    rounded(ns * unit.value(1))
}

/// Draws the difference of quantiles over p, with its confidence band. `note` says what the band is based on.
pub fn shift(points: &[Point], note: &str) -> Value {
    let unit = unit_of(in_sight(points).0.into_iter());
    let x: Vec<u32> = points.iter().map(|point| point.percent).collect();
    let told: Vec<String> = points
        .iter()
        .map(|point| {
            let Point { percent, a_ns, change_ns, interval_ns } = *point;
            let interval = interval_ns.map_or("no interval".to_owned(), |(low, high)| {
                format!("95 %: {} to {}", signed(low), signed(high))
            });
            let (a, b) =
                (format_ns(a_ns.max(0.0) as u64), format_ns((a_ns + change_ns).max(0.0) as u64));
            format!("<b>p{percent}: {}</b><br>A {a}, B {b}<br>{interval}", signed(change_ns))
        })
        .collect();
    let mut data = Vec::new();
    let with: Vec<&Point> = points.iter().filter(|point| point.interval_ns.is_some()).collect();
    if !with.is_empty() {
        let edge = |of: fn((f64, f64)) -> f64| -> Vec<f64> {
            with.iter().filter_map(|point| point.interval_ns).map(|i| value(unit, of(i))).collect()
        };
        let x: Vec<u32> = with.iter().map(|point| point.percent).collect();
        data.push(json!({
            "type": "scatter", "mode": "lines", "name": "95 %", "x": x, "y": edge(|(low, _)| low),
            "line": {"width": 0, "color": "#5a7185"}, "hoverinfo": "skip", "showlegend": false,
        }));
        data.push(json!({
            "type": "scatter", "mode": "lines", "name": "95 %", "x": x, "y": edge(|(_, high)| high),
            "line": {"width": 0, "color": "#5a7185"}, "fill": "tonexty", "hoverinfo": "skip", "showlegend": false,
        }));
    }
    let y: Vec<f64> = points.iter().map(|point| value(unit, point.change_ns)).collect();
    let (range, cut) = in_sight(points);
    let note = match cut {
        true => format!("{note} It goes beyond the figure."),
        false => note.to_owned(),
    };
    data.push(json!({
        "type": "scatter", "mode": "lines+markers", "name": "B - A", "x": x, "y": y, "hovertext": told,
        "hovertemplate": "%{hovertext}<extra></extra>", "line": {"color": "#5a7185", "width": 2},
        "marker": {"size": 6}, "showlegend": false,
    }));
    json!({
        "data": if points.is_empty() { Vec::new() } else { data },
        "layout": {
            "hovermode": "closest", "showlegend": false,
            "xaxis": {"title": {"text": "percentile of the latency"}, "range": [0, 100]},
            "yaxis": {"title": {"text": format!("B - A, {}", unit.name)}, "zeroline": true, "zerolinewidth": 2,
                "range": range.map(|ns| value(unit, ns))},
            "meta": {"note": note},
        },
    })
}

/// Returns the range of the axis, and whether part of the confidence band lies outside it. The band of the highest
/// percentiles may be so wide that nothing else would be visible.
fn in_sight(points: &[Point]) -> ([f64; 2], bool) {
    /// The axis extends beyond the changes by at most this many times their span.
    const BAND: f64 = 1.5;
    let fold = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((0.0_f64, 0.0_f64), |(low, high), ns| (low.min(ns), high.max(ns)))
    };
    let (low, high) = fold(&mut points.iter().map(|point| point.change_ns));
    let ends = points.iter().filter_map(|point| point.interval_ns);
    let (least, most) = fold(&mut ends.flat_map(|(low, high)| [low, high]));
    let room = (high - low).max(1.0) * BAND;
    let (from, to) = (least.max(low - room).min(low), most.min(high + room).max(high));
    let margin = (to - from) * 0.05;
    ([from - margin, to + margin], least < low - room || most > high + room)
}

/// Draws the way from A's mean to B's mean, category by category. The steps add up exactly.
pub fn waterfall(a_ns: i64, b_ns: i64, steps: &[Step], note: &str) -> Value {
    let unit = unit_of([a_ns as f64, b_ns as f64].into_iter());
    let mut steps: Vec<&Step> = steps.iter().filter(|step| step.change_ns != 0).collect();
    steps.sort_by_key(|step| std::cmp::Reverse(step.change_ns.unsigned_abs()));
    let rest = steps.split_off(steps.len().min(STEPS));
    let rest_ns: i64 = rest.iter().map(|step| step.change_ns).sum();
    // Base, length, name, hover text, colour, category.
    type Bar = (i64, i64, String, String, String, Option<&'static str>);
    let whole = |ns: i64, name: &str| -> Bar {
        let told = format!("<b>{name}</b><br>mean {}", format_ns(ns.max(0) as u64));
        (
            0,
            ns,
            format!("{name}<br>{}", format_ns(ns.max(0) as u64)),
            told,
            "#5a7185".to_owned(),
            None,
        )
    };
    let mut bars = vec![whole(a_ns, "A")];
    let mut at_ns = a_ns;
    for step in &steps {
        let Step { category, side, change_ns, interval_ns, modelled, verdict } = step;
        let change = signed(*change_ns as f64);
        let name = format!("{category}{} {side}<br>{change}", marks(*modelled, false));
        let interval = interval_ns.map_or(String::new(), |(low, high)| {
            format!("<br>95 %: {} to {}", signed(low), signed(high))
        });
        let told = format!(
            "<b>{category}</b>{} {side}<br>{}{interval}<br>{verdict}",
            marks(*modelled, false),
            signed(*change_ns as f64)
        );
        bars.push((at_ns, *change_ns, name, told, hex(*category), Some(category.name())));
        at_ns += change_ns;
    }
    if !rest.is_empty() {
        let name = format!("{} others", rest.len());
        let change = signed(rest_ns as f64);
        let told = format!("<b>{name}</b><br>{change}");
        bars.push((
            at_ns,
            rest_ns,
            format!("{name}<br>{change}"),
            told,
            "#9aa7b2".to_owned(),
            None,
        ));
    }
    bars.push(whole(b_ns, "B"));
    let places: Vec<usize> = (0..bars.len()).collect();
    let trace = |place: usize| {
        let (base, length, _, told, color, category) = &bars[place];
        let mut trace = json!({
            "type": "bar", "orientation": "h", "base": [value(unit, *base as f64)],
            "x": [value(unit, *length as f64)], "y": [place], "customdata": [length], "width": 0.7,
            "hovertext": [told], "hovertemplate": "%{hovertext}<extra></extra>",
            "marker": {"color": color}, "showlegend": false,
        });
        if let Some(category) = category {
            trace["meta"] = json!({"category": category});
        }
        trace
    };
    let data: Vec<Value> = places.iter().map(|place| trace(*place)).collect();
    let last = bars.len() as f64 - 0.5;
    let (mut low, mut high, mut at) = (a_ns.min(b_ns), a_ns.max(b_ns), a_ns);
    for step in &steps {
        at += step.change_ns;
        (low, high) = (low.min(at), high.max(at));
    }
    // The axis begins at 0 if the changes are a visible part of the whole; otherwise it begins near the changes.
    let span = (high - low).max(1);
    let from = if span * 8 > high { 0 } else { low - span / 4 };
    json!({
        "data": data,
        "layout": {
            "barmode": "overlay", "showlegend": false, "hovermode": "closest",
            "xaxis": {
                "title": {"text": format!("mean latency, {}", unit.name)},
                "range": [value(unit, from as f64), value(unit, (high + span / 20) as f64)],
            },
            "yaxis": {
                "tickvals": places, "ticktext": bars.iter().map(|bar| &bar.2).collect::<Vec<_>>(),
                "range": [last, -0.5], "automargin": true, "zeroline": false, "showgrid": false,
            },
            "meta": {"rows": bars.len(), "note": note},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lead_from_one_mean_to_the_other() {
        let step = |change_ns| Step {
            category: Category::Lock,
            side: Side::Server,
            change_ns,
            interval_ns: Some((-1.0, 2.0)),
            modelled: true,
            verdict: "no difference shown".into(),
        };
        let steps: Vec<Step> =
            (1..=20).map(|i| step(if i % 3 == 0 { -i * 100 } else { i * 100 })).collect();
        let sum: i64 = steps.iter().map(|step| step.change_ns).sum();
        let figure = waterfall(50_000, 50_000 + sum, &steps, "");
        let data = figure["data"].as_array().expect("traces");
        assert_eq!(data.len(), STEPS + 3);
        let lengths: Vec<i64> =
            data.iter().map(|trace| trace["customdata"][0].as_i64().expect("whole")).collect();
        let (first, last) = (lengths[0], lengths[lengths.len() - 1]);
        assert_eq!(first + lengths[1..lengths.len() - 1].iter().sum::<i64>(), last);
    }
}
