//! Time axes.

use serde_json::{json, Value};

use rpcprobe_report::format_ns;

/// Returns a logarithmic axis of nanoseconds that covers `from_ns` to `to_ns`. Ticks are labelled `10 us`, not `10k`.
pub fn log_ns(from_ns: u64, to_ns: u64, title: &str) -> Value {
    let (from, to) = (from_ns.max(1) as f64, to_ns.max(1) as f64);
    let (mut low, mut high) = (from.log10() - 0.05, to.log10() + 0.05);
    // For one value, or values close together: widens the axis so that ticks are in view.
    if high - low < 1.0 {
        let middle = (low + high) / 2.0;
        (low, high) = (middle - 0.5, middle + 0.5);
    }
    // As dense as labels fit beside each other on a narrow screen (390 px, the notebooks' test).
    let steps: &[u64] = match high - low {
        ..1.3 => &[1, 2, 5],
        ..2.3 => &[1, 3],
        _ => &[1],
    };
    let decades = (0..19_u32).flat_map(|decade| steps.iter().map(move |s| s * 10_u64.pow(decade)));
    let ticks: Vec<u64> =
        decades.filter(|ns| (low..=high).contains(&(*ns as f64).log10())).collect();
    let texts: Vec<String> = ticks.iter().map(|ns| tick(*ns)).collect();
    json!({
        "type": "log",
        "title": {"text": title},
        "range": [rounded(low), rounded(high)],
        "tickvals": ticks,
        "ticktext": texts,
    })
}

/// Formats a tick, such as `10 us` or `2 ms`.
fn tick(ns: u64) -> String {
    let text = format_ns(ns);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// Returns a linear time axis with round ticks. For bars, plotly itself would put the ticks at the bars.
pub fn linear(from_ns: u64, to_ns: u64, unit: Unit, title: &str) -> Value {
    const TICKS: f64 = 7.0;
    let (from, to) = (unit.value(from_ns), unit.value(to_ns.max(from_ns + 1)));
    let step = (to - from) / TICKS;
    let decade = 10_f64.powf(step.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|of| of * decade).find(|of| *of >= step);
    let step = step.unwrap_or(10.0 * decade);
    let first = (from / step).ceil() as u64;
    let ticks = (first..).map(|i| i as f64 * step).take_while(|at| *at <= to);
    let ticks: Vec<f64> = ticks.take(2 * TICKS as usize).collect();
    // As many decimals as distinguish neighbouring ticks.
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    json!({
        "title": {"text": title}, "range": [rounded(from), to],
        "ticktext": ticks.iter().map(|at| format!("{at:.decimals$}")).collect::<Vec<_>>(),
        "tickvals": ticks,
    })
}

/// Rounds to four decimals, to keep the JSON short.
pub fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// A unit suited to times up to `whole_ns`.
#[derive(Clone, Copy)]
pub struct Unit {
    pub name: &'static str,
    ns: u64,
}

impl Unit {
    pub fn of(whole_ns: u64) -> Unit {
        match whole_ns {
            0..1_000 => Unit { name: "ns", ns: 1 },
            1_000..1_000_000 => Unit { name: "us", ns: 1_000 },
            1_000_000..1_000_000_000 => Unit { name: "ms", ns: 1_000_000 },
            _ => Unit { name: "s", ns: 1_000_000_000 },
        }
    }

    /// Returns the nearest `f64`. Times below 2^53 ns convert back to the same nanoseconds.
    pub fn value(self, ns: u64) -> f64 {
        ns as f64 / self.ns as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_in_sight() {
        for (from_ns, to_ns) in [(0, 0), (1, 1), (999, 1_001), (5, 90_000_000_000), (7, u64::MAX)] {
            let axis = log_ns(from_ns, to_ns, "latency");
            let ticks = axis["tickvals"].as_array().expect("ticks").len();
            assert!((2..=20).contains(&ticks), "{from_ns} {to_ns}: {axis}");
        }
        assert_eq!(tick(20_000), "20 us");
        assert_eq!(tick(1_000), "1 us");
        assert_eq!(tick(100), "100 ns");
    }
}
