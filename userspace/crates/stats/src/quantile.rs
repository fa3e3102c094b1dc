//! Quantiles as weighted means of sorted values, so that they can be decomposed like means.
//!
//! Harrell and Davis (Biometrika 69, 1982): `Q(p) = sum of w_i x_(i)`, where `w_i` is the mass of Beta((n+1)p,
//! (n+1)(1-p)) in `[(i-1)/n, i/n]`. The weights depend only on ranks. If each value is a sum of parts, the same weights
//! applied to the parts give numbers that sum to the quantile.
//!
//! Near an end of the sample the trimmed variant is used (Akinshin, "Trimmed Harrell-Davis quantile estimator based on
//! the highest density interval of the given width", 2022), so that one outlier cannot move the estimate.

use statrs::function::beta::beta_reg;
use statrs::function::gamma::ln_gamma;

/// If there are fewer values than this on the nearer side of a quantile, the weights are trimmed.
const TRIMMED_BELOW: f64 = 30.0;
/// Up to this many values, the weights are differences of the Beta distribution's cumulative function; beyond it, the
/// density at the middle of each cell. The midpoint rule's relative error in a cell is about 1/(24 n p (1-p)): below
/// 0.1 % for p = 0.99 here, and the weights are normalised.
const CUMULATIVE_UP_TO: usize = 4_096;
/// Weights below this fraction of the largest weight are left out.
const NEGLIGIBLE: f64 = 1e-12;

/// Weights of consecutive ranks. They sum to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct RankWeights {
    /// Rank of the first weight, counted from 0.
    first: usize,
    weights: Vec<f64>,
}

/// Returns the weights for the quantile `p` of `count` values.
///
/// # Panics
/// If `count` is 0, or `p` is not strictly between 0 and 1.
pub fn harrell_davis(count: usize, p: f64) -> RankWeights {
    assert!(count > 0 && p > 0.0 && p < 1.0, "no quantile {p} of {count} values");
    if count == 1 {
        return RankWeights { first: 0, weights: vec![1.0] };
    }
    let n = count as f64;
    let beta = Beta { a: (n + 1.0) * p, b: (n + 1.0) * (1.0 - p) };
    let trimmed = n * p.min(1.0 - p) < TRIMMED_BELOW;
    let (low, high) = if trimmed { beta.densest(1.0 / n.sqrt()) } else { (0.0, 1.0) };
    let (first, mut weights) = match trimmed || count <= CUMULATIVE_UP_TO {
        true => by_cumulative(count, beta, low, high),
        false => by_density(count, beta, p),
    };
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    RankWeights { first, weights }
}

fn by_cumulative(count: usize, beta: Beta, low: f64, high: f64) -> (usize, Vec<f64>) {
    let n = count as f64;
    let first = ((low * n).floor() as usize).min(count - 1);
    let last = ((high * n).ceil() as usize).clamp(first + 1, count);
    let at = |i: usize| beta.cumulative((i as f64 / n).clamp(low, high));
    let bounds: Vec<f64> = (first..=last).map(at).collect();
    (first, bounds.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).collect())
}

fn by_density(count: usize, beta: Beta, p: f64) -> (usize, Vec<f64>) {
    let n = count as f64;
    let at = |rank: usize| beta.log_density((rank as f64 + 0.5) / n);
    let middle = ((p * n) as usize).min(count - 1);
    let floor = at(middle) + NEGLIGIBLE.ln();
    let first = (0..middle).rev().take_while(|rank| at(*rank) > floor).last().unwrap_or(middle);
    let last = (middle..count).take_while(|rank| at(*rank) > floor).last().unwrap_or(middle);
    let largest = at(middle);
    (first, (first..=last).map(|rank| (at(rank) - largest).exp()).collect())
}

impl RankWeights {
    /// Gives equal values equal weights, so that the parts of a quantile do not depend on the order in
    /// which equal values were sorted.
    ///
    /// `sorted`: all values, ascending.
    pub fn averaged_over_ties<T: PartialEq>(self, sorted: &[T]) -> RankWeights {
        let mut first = self.first;
        let mut last = self.first + self.weights.len() - 1;
        while first > 0 && sorted[first - 1] == sorted[first] {
            first -= 1;
        }
        while last + 1 < sorted.len() && sorted[last + 1] == sorted[last] {
            last += 1;
        }
        let mut weights: Vec<f64> = (first..=last).map(|rank| self.at(rank)).collect();
        let mut from = 0;
        for group in sorted[first..=last].chunk_by(|a, b| a == b) {
            let of_group = &mut weights[from..from + group.len()];
            let mean = of_group.iter().sum::<f64>() / group.len() as f64;
            of_group.fill(mean);
            from += group.len();
        }
        RankWeights { first, weights }
    }

    /// The weight of the value with this rank, counted from 0.
    pub fn at(&self, rank: usize) -> f64 {
        rank.checked_sub(self.first).and_then(|i| self.weights.get(i)).copied().unwrap_or(0.0)
    }

    /// Returns the quantile. `sorted`: all values, ascending.
    pub fn of(&self, sorted: &[u64]) -> f64 {
        let values = &sorted[self.first..self.first + self.weights.len()];
        values.iter().zip(&self.weights).map(|(value, weight)| *value as f64 * weight).sum()
    }
}

#[derive(Clone, Copy)]
struct Beta {
    a: f64,
    b: f64,
}

impl Beta {
    fn cumulative(self, x: f64) -> f64 {
        match x {
            x if x <= 0.0 => 0.0,
            x if x >= 1.0 => 1.0,
            x => beta_reg(self.a, self.b, x),
        }
    }

    fn log_density(self, x: f64) -> f64 {
        let Beta { a, b } = self;
        ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b)
            + (a - 1.0) * x.ln()
            + (b - 1.0) * (1.0 - x).ln()
    }

    /// Returns the interval of this width with the most mass of the distribution.
    fn densest(self, width: f64) -> (f64, f64) {
        let Beta { a, b } = self;
        if width >= 1.0 {
            return (0.0, 1.0);
        }
        if a <= 1.0 {
            return (0.0, width);
        }
        if b <= 1.0 {
            return (1.0 - width, 1.0);
        }
        // The density has one maximum, which lies within the interval. At the best position, the density is equal at
        // both ends.
        let mode = (a - 1.0) / (a + b - 2.0);
        let (mut low, mut high) = ((mode - width).max(0.0), mode.min(1.0 - width));
        for _ in 0..100 {
            let middle = (low + high) / 2.0;
            match self.log_density(middle) < self.log_density(middle + width) {
                true => low = middle,
                false => high = middle,
            }
        }
        (low, low + width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, within: f64) -> bool {
        (a - b).abs() <= within * b.abs().max(1.0)
    }

    /// The masses of Beta(2.5, 2.5) in quarters, in closed form: F(x) = (2/pi)(asin(sqrt x) - sqrt(x(1-x)) (1-2x)(1 +
    /// 8x(1-x)/3)).
    #[test]
    fn weights_are_masses_of_the_beta_distribution() {
        let cumulative = |x: f64| {
            let y = x * (1.0 - x);
            (x.sqrt().asin() - y.sqrt() * (1.0 - 2.0 * x) * (1.0 + 8.0 * y / 3.0))
                / std::f64::consts::FRAC_PI_2
        };
        let beta = Beta { a: 2.5, b: 2.5 };
        let (first, weights) = by_cumulative(4, beta, 0.0, 1.0);
        assert_eq!((first, weights.len()), (0, 4));
        for (i, weight) in weights.iter().enumerate() {
            let (from, to) = (i as f64 / 4.0, (i + 1) as f64 / 4.0);
            assert!(close(*weight, cumulative(to) - cumulative(from), 1e-9), "{i}");
        }
    }

    #[test]
    fn both_ways_to_the_weights_agree() {
        let count = CUMULATIVE_UP_TO;
        for p in [0.5, 0.9, 0.99] {
            let n = count as f64;
            let beta = Beta { a: (n + 1.0) * p, b: (n + 1.0) * (1.0 - p) };
            let normalised = |(first, weights): (usize, Vec<f64>)| {
                let sum: f64 = weights.iter().sum();
                RankWeights { first, weights: weights.iter().map(|w| w / sum).collect() }
            };
            let a = normalised(by_cumulative(count, beta, 0.0, 1.0));
            let b = normalised(by_density(count, beta, p));
            let values: Vec<u64> = (0..count as u64).map(|i| i * i).collect();
            assert!(close(a.of(&values), b.of(&values), 1e-5), "{p}");
        }
    }

    #[test]
    fn quantiles_of_known_samples() {
        let of = |count: u64, p| {
            let values: Vec<u64> = (1..=count).map(|i| i * 1_000).collect();
            harrell_davis(values.len(), p).of(&values)
        };
        assert_eq!(of(1, 0.99), 1_000.0);
        assert!(close(of(2, 0.5), 1_500.0, 1e-9));
        for count in [3, 10, 99, 1_000, 4_096, 4_097, 200_000] {
            assert!(close(of(count, 0.5), (count + 1) as f64 * 500.0, 1e-6), "{count}");
            for p in [0.9, 0.99] {
                // The error is within the spacing of the values and the estimator's own bias.
                let exact = p * count as f64 * 1_000.0;
                assert!((of(count, p) - exact).abs() <= 1_000.0 + 0.02 * exact, "{count} {p}");
            }
        }
    }

    #[test]
    fn trimmed_weights_lie_in_an_interval_of_that_width() {
        for (count, p) in [(300_usize, 0.99), (1_000, 0.99), (20, 0.5), (100, 0.1)] {
            let trimmed = harrell_davis(count, p);
            let most = (count as f64).sqrt().ceil() as usize + 2;
            assert!(trimmed.weights.len() <= most, "{count} {p}: {}", trimmed.weights.len());
            assert!(trimmed.at((p * count as f64) as usize) > 0.0);
        }
        assert!(harrell_davis(4_000, 0.5).weights.len() > 400);
    }

    #[test]
    fn equal_values_share_their_weight() {
        let sorted = [1, 5, 5, 5, 5, 5, 5, 9];
        let weights = harrell_davis(8, 0.5).averaged_over_ties(&sorted);
        let middle: Vec<f64> = (1..7).map(|rank| weights.at(rank)).collect();
        assert!(middle.iter().all(|weight| *weight == middle[0]));
        let sum: f64 = (0..8).map(|rank| weights.at(rank)).sum();
        assert!(close(sum, 1.0, 1e-12));
        let all_equal = harrell_davis(5_000, 0.99).averaged_over_ties(&[7; 5_000]);
        assert!(close(all_equal.at(0), 1.0 / 5_000.0, 1e-9));
    }

    #[test]
    fn weights_sum_to_one_for_every_count() {
        for count in [1, 2, 3, 7, 30, 299, 300, 3_001, 4_096, 4_097, 1_000_000] {
            for p in [0.01, 0.5, 0.9, 0.99, 0.999] {
                let weights = harrell_davis(count, p);
                let sum: f64 = weights.weights.iter().sum();
                assert!(close(sum, 1.0, 1e-9), "{count} {p} {sum}");
                assert!(weights.weights.iter().all(|weight| *weight >= 0.0));
                assert!(weights.first + weights.weights.len() <= count);
            }
        }
    }
}
