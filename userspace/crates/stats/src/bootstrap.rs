//! Confidence intervals from one series of requests, by block bootstrap.
//!
//! Neighbouring requests are alike, so whole blocks of requests are drawn. A block is as long as the series' memory.
//! Such an interval describes only the capture that it comes from, and no other run.

/// Minimum number of blocks for an interval.
pub const FEWEST_BLOCKS: usize = 10;
/// Maximum work for one interval, in values drawn.
const DRAWN: usize = 200_000_000;
/// Number of classes into which ranks are sorted. It limits the resolution of resampled quantiles.
const CLASSES: usize = 4_096;

/// The block length of Politis and White ("Automatic block-length selection for the dependent bootstrap", 2004,
/// corrected 2009), for blocks laid in a circle. `series` is in time order. It should hold ranks instead of latencies,
/// so that a few huge values do not hide the memory of all others. The result is at least 1 and at most a third of the
/// series.
pub fn block_length(series: &[f64]) -> usize {
    let n = series.len();
    if n < 4 {
        return 1;
    }
    let size = n as f64;
    let mean = series.iter().sum::<f64>() / size;
    let covariance = |lag: usize| {
        let pairs = series[..n - lag].iter().zip(&series[lag..]);
        pairs.map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>() / size
    };
    let variance = covariance(0);
    if variance <= 0.0 {
        return 1;
    }
    let quiet_lags = (size.log10().sqrt().ceil() as usize).max(5);
    let most = (size.sqrt().ceil() as usize + quiet_lags).min(n - 1);
    let threshold = 2.0 * (size.log10() / size).sqrt();
    // Finds the last lag that matters: it is followed by `quiet_lags` lags in a row that do not.
    let (mut covariances, mut quiet, mut last) = (vec![variance], 0, 0);
    for lag in 1..=most {
        let of_lag = covariance(lag);
        covariances.push(of_lag);
        if (of_lag / variance).abs() < threshold {
            quiet += 1;
            if quiet == quiet_lags {
                break;
            }
        } else {
            (quiet, last) = (0, lag);
        }
    }
    let bandwidth = (2 * last.max(1)).min(covariances.len() - 1);
    // A flat-topped window.
    let window = |lag: usize| (2.0 * (1.0 - lag as f64 / bandwidth as f64)).clamp(0.0, 1.0);
    let (mut spectrum, mut slope) = (variance, 0.0);
    for (lag, of_lag) in covariances.iter().enumerate().take(bandwidth + 1).skip(1) {
        spectrum += 2.0 * window(lag) * of_lag;
        slope += 2.0 * window(lag) * lag as f64 * of_lag;
    }
    let length = (2.0 * slope * slope / (4.0 / 3.0 * spectrum * spectrum)).cbrt() * size.cbrt();
    let most = (n / 3).max(1);
    match length.is_finite() {
        true => (length.ceil() as usize).clamp(1, most),
        false => most,
    }
}

/// Returns where the blocks of a series begin, and the end of the series. There are as many blocks as fit, with lengths
/// that differ by at most 1.
pub fn blocks(count: usize, length: usize) -> Vec<usize> {
    let blocks = (count / length.max(1)).max(1);
    (0..=blocks).map(|i| i * count / blocks).collect()
}

/// Returns the means of resamples of a series that is given by the sums of its blocks.
///
/// `sums[quantity][block]`, `counts[block]`. Series that are compared with each other need different seeds. Returns
/// `[quantity][resample]`; `None` if there are too few blocks.
pub fn resampled_means(
    sums: &[Vec<f64>],
    counts: &[usize],
    resamples: usize,
    seed: u64,
) -> Option<Vec<Vec<f64>>> {
    if counts.len() < FEWEST_BLOCKS {
        return None;
    }
    let mut random = fastrand::Rng::with_seed(seed);
    let mut means = vec![Vec::with_capacity(resamples); sums.len()];
    for _ in 0..resamples {
        let drawn: Vec<usize> = counts.iter().map(|_| random.usize(..counts.len())).collect();
        let count: usize = drawn.iter().map(|block| counts[*block]).sum();
        for (of_quantity, means) in sums.iter().zip(&mut means) {
            let sum: f64 = drawn.iter().map(|block| of_quantity[*block]).sum();
            means.push(sum / count.max(1) as f64);
        }
    }
    Some(means)
}

/// Returns the quantiles of resamples of a series.
///
/// `ranks`: the rank of each value of the series, in time order. `sorted`: the values. Returns `[quantile][resample]`;
/// `None` if there are too few blocks.
pub fn resampled_quantiles(
    ranks: &[u32],
    sorted: &[u64],
    bounds: &[usize],
    quantiles: &[f64],
    resamples: usize,
    seed: u64,
) -> Option<Vec<Vec<f64>>> {
    let blocks = bounds.len().saturating_sub(1);
    if blocks < FEWEST_BLOCKS {
        return None;
    }
    let n = sorted.len();
    let classes = CLASSES.min(n);
    let class = |rank: u32| rank as usize * classes / n;
    let value = |class: usize| sorted[((class * 2 + 1) * n / (classes * 2)).min(n - 1)] as f64;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut found = vec![Vec::with_capacity(resamples); quantiles.len()];
    let mut counts = vec![0_u32; classes];
    for _ in 0..resamples.min(DRAWN / n.max(1)).max(100) {
        counts.fill(0);
        let mut drawn = 0_u64;
        for _ in 0..blocks {
            let block = random.usize(..blocks);
            for rank in &ranks[bounds[block]..bounds[block + 1]] {
                counts[class(*rank)] += 1;
            }
            drawn += (bounds[block + 1] - bounds[block]) as u64;
        }
        for (p, found) in quantiles.iter().zip(&mut found) {
            let wanted = (p * drawn as f64).ceil().max(1.0) as u64;
            let mut passed = 0;
            let reached = counts.iter().position(|count| {
                passed += u64::from(*count);
                passed >= wanted
            });
            found.push(value(reached.unwrap_or(classes - 1)));
        }
    }
    Some(found)
}

/// Returns the middle 95 % of `b - a`; `a` and `b` must be drawn independently of each other.
pub fn interval_of_difference(a: &[f64], b: &[f64]) -> Option<(f64, f64)> {
    let mut differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
    differences.sort_by(f64::total_cmp);
    let last = differences.len().checked_sub(1)?;
    let at = |p: f64| differences[(p * last as f64).round() as usize];
    Some((at(0.025), at(0.975)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x_t = r x_(t-1) + noise.
    fn autoregressive(count: usize, r: f64, seed: u64) -> Vec<f64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut x = 0.0;
        let mut next = || {
            x = r * x + (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            x
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn blocks_are_as_long_as_the_memory() {
        assert!(block_length(&autoregressive(10_000, 0.0, 1)) <= 6);
        // For an AR(1) the optimum is cbrt(6 r^2 n / ((1-r^2)... )): 0.9 at 10,000 gives about 180 / 2.
        let long = block_length(&autoregressive(10_000, 0.9, 2));
        assert!((40..250).contains(&long), "{long}");
        assert!(block_length(&autoregressive(10_000, 0.5, 3)) < long);
        assert_eq!(block_length(&[1.0; 50]), 1);
        assert_eq!(block_length(&[]), 1);
    }

    #[test]
    fn intervals_of_a_series_with_memory_cover_its_mean() {
        let trials = 200;
        let covered = (0..trials)
            .filter(|seed| {
                let series = autoregressive(4_000, 0.8, 100 + seed);
                let bounds = blocks(series.len(), block_length(&series));
                let sums: Vec<f64> =
                    bounds.windows(2).map(|b| series[b[0]..b[1]].iter().sum()).collect();
                let counts: Vec<usize> = bounds.windows(2).map(|b| b[1] - b[0]).collect();
                let means = resampled_means(&[sums], &counts, 400, 1).unwrap();
                let (low, high) = interval_of_difference(&vec![0.0; 400], &means[0]).unwrap();
                low <= 0.0 && 0.0 <= high
            })
            .count();
        assert!(covered >= 180, "{covered} of {trials}");
    }

    #[test]
    fn quantiles_of_resamples_lie_around_the_quantile() {
        let sorted: Vec<u64> = (0..10_000).collect();
        let ranks: Vec<u32> = (0..10_000_u32).map(|i| i * 7919 % 10_000).collect();
        let bounds = blocks(ranks.len(), 5);
        let found = resampled_quantiles(&ranks, &sorted, &bounds, &[0.5, 0.99], 200, 1).unwrap();
        for (p, found) in [0.5, 0.99].into_iter().zip(found) {
            let mean = found.iter().sum::<f64>() / found.len() as f64;
            assert!((mean - p * 10_000.0).abs() < 60.0, "{p}: {mean}");
            assert!(found.iter().any(|value| *value != found[0]));
        }
        assert!(resampled_quantiles(&ranks, &sorted, &[0, 10_000], &[0.5], 10, 1).is_none());
    }

    #[test]
    fn blocks_cover_the_series() {
        assert_eq!(blocks(10, 3), [0, 3, 6, 10]);
        assert_eq!(blocks(2, 3), [0, 2]);
        assert_eq!(blocks(0, 1), [0, 0]);
    }
}
