//! The shift function: by how much each quantile differs (Rousselet, Pernet and Wilcox, 2017).

use serde::Serialize;

use crate::stats::bootstrap::interval_of_difference;
use crate::stats::quantile::harrell_davis;
use crate::stats::sign_flips::interval_95;

/// Percentage of requests below each quantile.
pub const GRID: [u32; 20] =
    [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 99];

/// One quantile, from A to B. The values are averages over the runs of a side, of quantiles by
/// Harrell and Davis.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ShiftPoint {
    pub percent: u32,
    pub a_ns: f64,
    pub b_ns: f64,
    pub change_ns: f64,
    /// 95 % interval, for this quantile by itself.
    pub interval_ns: Option<(f64, f64)>,
}

/// The quantiles of [`GRID`], from 0 to 1.
pub fn quantiles() -> Vec<f64> {
    GRID.iter().map(|percent| f64::from(*percent) / 100.0).collect()
}

/// Returns the quantiles of one run in the order of [`GRID`], as far as it has enough requests: at
/// least three beyond the quantile.
pub fn of_run(sorted_ns: &[u64]) -> Vec<f64> {
    let count = sorted_ns.len();
    let told = |p: &f64| count as f64 * (1.0 - p) >= 3.0 - 1e-9;
    let quantiles = quantiles().into_iter().take_while(told);
    quantiles.map(|p| harrell_davis(count, p).averaged_over_ties(sorted_ns).of(sorted_ns)).collect()
}

/// Resamples of one capture, by quantile.
type Resamples<'r> = &'r [Vec<f64>];

/// Compares the quantiles that all runs have enough requests for. `resampled`: for one capture per
/// side, the resamples by quantile.
pub fn shift(
    a: &[&[f64]],
    b: &[&[f64]],
    paired: bool,
    resampled: Option<(Resamples, Resamples)>,
) -> Vec<ShiftPoint> {
    let told = a.iter().chain(b).map(|run| run.len()).min().unwrap_or(0);
    let average = |runs: &[&[f64]], at: usize| {
        runs.iter().map(|run| run[at]).sum::<f64>() / runs.len().max(1) as f64
    };
    let point = |(at, percent): (usize, &u32)| {
        let (a_ns, b_ns) = (average(a, at), average(b, at));
        let interval_ns = match (paired, resampled) {
            (true, _) => {
                let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b[at] - a[at]).collect();
                interval_95(&differences)
            }
            (false, Some((a, b))) => {
                a.get(at).zip(b.get(at)).and_then(|(a, b)| interval_of_difference(a, b))
            }
            (false, None) => None,
        };
        ShiftPoint { percent: *percent, a_ns, b_ns, change_ns: b_ns - a_ns, interval_ns }
    };
    GRID.iter().take(told).enumerate().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_of_all_quantiles_is_found() {
        let run = |more: u64| -> Vec<f64> {
            let sorted: Vec<u64> = (0..1_000).map(|i| 1_000 + i * 10 + more).collect();
            of_run(&sorted)
        };
        let (a, b): (Vec<_>, Vec<_>) = (0..8).map(|i| (run(i), run(500 + i))).unzip();
        let slices = |runs: &'static [Vec<f64>]| runs.iter().map(Vec::as_slice).collect::<Vec<_>>();
        let (a, b) = (slices(a.leak()), slices(b.leak()));
        let points = shift(&a, &b, true, None);
        assert_eq!(points.len(), GRID.len());
        for point in &points {
            assert!((point.change_ns - 500.0).abs() < 1e-6, "{point:?}");
            let (low, high) = point.interval_ns.expect("8 pairs have one");
            assert!(low <= 500.0 + 1e-6 && high >= 500.0 - 1e-6, "{point:?}");
        }
        assert!((points[9].a_ns - 6_000.0).abs() < 20.0, "the median: {:?}", points[9]);
        assert_eq!(of_run(&[1, 2, 3, 4]).len(), 5);
        assert!(of_run(&[]).is_empty());
    }
}
