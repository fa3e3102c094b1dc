//! Distributions of gaps, as histograms.

use crate::Step;

/// The steps of a request between which a gap lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gap {
    /// From its receipt to its first child.
    First,
    /// From the last answer to the next child.
    Next,
    /// From one child to another that is asked before the first one is answered.
    Beside,
    /// From the last answer to the request's own answer.
    Last,
    /// From the receipt of a request without children to its answer.
    Only,
}

/// The bins of gaps grow by a seventh, from a microsecond to ten seconds. Shorter gaps count in the first bin, longer
/// gaps in the last.
const RATIO: f64 = 1.15;
const SHORTEST_NS: f64 = 1_000.0;
const BINS: usize = 116;
/// Smoothing: the part of all gaps that is spread over all bins, and what is added to each bin.
const ANY_PART: f64 = 0.02;
const ANY: f64 = 0.05;

/// How far two steps are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    ns: u64,
    /// In turns of the loop, at most [`LAGS`] - 2; [`LAGS`] - 1: not known.
    lag: usize,
}

/// Number of lengths in turns that are distinguished.
const LAGS: usize = 6;

impl Length {
    pub fn between(from: Step, to: Step) -> Length {
        let lag = match (from.turn, to.turn) {
            (Some(from), Some(to)) => {
                (to.number.saturating_sub(from.number) as usize).min(LAGS - 2)
            }
            _ => LAGS - 1,
        };
        Length { ns: to.ns.saturating_sub(from.ns), lag }
    }
}

/// The distribution of one kind of gap: of the number of turns and, given that number, of the time.
#[derive(Clone, Debug)]
pub struct Density {
    by_lag: [Times; LAGS],
    /// The logarithm of how likely each number of turns is.
    lag_scores: [f64; LAGS],
}

impl Default for Density {
    fn default() -> Density {
        let mut density = Density { by_lag: Default::default(), lag_scores: [0.0; LAGS] };
        density.settle();
        density
    }
}

impl Density {
    pub fn add(&mut self, length: Length) {
        self.by_lag[length.lag].add(length.ns);
    }

    /// Computes, from what was added, what is looked up.
    pub fn settle(&mut self) {
        let total: f64 = self.by_lag.iter().map(|of| of.total).sum();
        for (times, score) in self.by_lag.iter_mut().zip(&mut self.lag_scores) {
            *score = ((times.total + ANY) / (total + ANY * LAGS as f64)).ln();
            times.settle();
        }
    }

    /// The logarithm of the density of such a gap, per nanosecond.
    pub fn score(&self, length: Length) -> f64 {
        self.lag_scores[length.lag] + self.by_lag[length.lag].score(length.ns)
    }
}

/// The distribution of times.
#[derive(Clone, Debug)]
struct Times {
    counts: [f64; BINS],
    total: f64,
    /// The logarithm of the density per nanosecond.
    scores: [f64; BINS],
}

impl Default for Times {
    fn default() -> Times {
        let mut times = Times { counts: [0.0; BINS], total: 0.0, scores: [0.0; BINS] };
        times.settle();
        times
    }
}

fn bin(gap_ns: u64) -> usize {
    let bin = (gap_ns as f64 / SHORTEST_NS).max(1.0).ln() / RATIO.ln();
    (bin as usize).min(BINS - 1)
}

impl Times {
    pub fn add(&mut self, gap_ns: u64) {
        self.counts[bin(gap_ns)] += 1.0;
        self.total += 1.0;
    }

    /// Computes, from what was added, what is looked up.
    pub fn settle(&mut self) {
        let any = ANY_PART * self.total / BINS as f64 + ANY;
        for at in 0..BINS {
            let count = |at: Option<usize>| at.and_then(|at| self.counts.get(at)).unwrap_or(&0.0);
            let beside = count(at.checked_sub(1)) + count(Some(at + 1));
            let smoothed = self.counts[at] / 2.0 + beside / 4.0;
            let width_ns = match at {
                0 => SHORTEST_NS * RATIO,
                _ => SHORTEST_NS * RATIO.powi(at as i32) * (RATIO - 1.0),
            };
            self.scores[at] = ((smoothed + any) / (self.total + 1.0) / width_ns).ln();
        }
    }

    /// The logarithm of the density of such a gap, per nanosecond.
    pub fn score(&self, gap_ns: u64) -> f64 {
        self.scores[bin(gap_ns)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_that_was_seen_is_likelier_than_others() {
        let mut density = Times::default();
        (0..100).for_each(|_| density.add(2_000_000));
        density.settle();
        let of = |gap_ns| density.score(gap_ns);
        assert!(of(2_100_000) > of(1_500_000) + 3.0);
        assert!(of(2_100_000) > of(20_000_000) + 3.0);
    }

    #[test]
    fn of_what_was_never_seen_no_length_in_turns_is_likelier_than_another() {
        let turn = |number| Some(crate::Turn { thread: 1, number, begun_ns: [0; crate::TURNS] });
        let of = |number| {
            Length::between(Step { ns: 0, turn: turn(0) }, Step { ns: 9, turn: turn(number) })
        };
        let likely: Vec<f64> = (0..5).map(|number| Density::default().score(of(number))).collect();
        assert!(likely.iter().all(|score| (score - likely[0]).abs() < 1e-9), "{likely:?}");
        let one_of_all = Times::default().score(9) - (LAGS as f64).ln();
        assert!((likely[0] - one_of_all).abs() < 1e-9);
    }

    #[test]
    fn any_length_has_a_place() {
        for gap_ns in [0, 1, 999, 1_000, 20_000_000_000, u64::MAX] {
            assert!(Times::default().score(gap_ns).is_finite());
        }
        assert!(bin(9_999_999_999) < BINS && bin(9_000_000_000) > BINS - 3);
    }
}
