//! Distributions of gaps, as histograms.

/// Which steps of a request a gap lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gap {
    /// From its receipt to its first child.
    First,
    /// From the last answer to the next child.
    Next,
    /// From one child to another that is asked before that is answered.
    Beside,
    /// From the last answer to its own.
    Last,
    /// From its receipt to its answer, of one that has no children.
    Only,
}

/// Gaps are told apart by a seventh, from a microsecond to ten seconds; shorter and longer ones are the shortest and the
/// longest.
const RATIO: f64 = 1.15;
const SHORTEST_NS: f64 = 1_000.0;
const BINS: usize = 116;
/// Of all gaps, the part that is of any length; and as many are added to those that were seen.
const ANY_PART: f64 = 0.02;
const ANY: f64 = 0.05;

/// The distribution of one kind of gap.
#[derive(Clone, Debug)]
pub struct Density {
    counts: [f64; BINS],
    total: f64,
    /// The logarithm of the density per nanosecond.
    scores: [f64; BINS],
}

impl Default for Density {
    fn default() -> Density {
        let mut density = Density { counts: [0.0; BINS], total: 0.0, scores: [0.0; BINS] };
        density.settle();
        density
    }
}

fn bin(gap_ns: u64) -> usize {
    let bin = (gap_ns as f64 / SHORTEST_NS).max(1.0).ln() / RATIO.ln();
    (bin as usize).min(BINS - 1)
}

impl Density {
    pub fn add(&mut self, gap_ns: u64) {
        self.counts[bin(gap_ns)] += 1.0;
        self.total += 1.0;
    }

    /// Makes of what was added what is looked up.
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
        let mut density = Density::default();
        (0..100).for_each(|_| density.add(2_000_000));
        density.settle();
        let of = |gap_ns| density.score(gap_ns);
        assert!(of(2_100_000) > of(1_500_000) + 3.0);
        assert!(of(2_100_000) > of(20_000_000) + 3.0);
    }

    #[test]
    fn any_length_has_a_place() {
        for gap_ns in [0, 1, 999, 1_000, 20_000_000_000, u64::MAX] {
            assert!(Density::default().score(gap_ns).is_finite());
        }
        assert!(bin(9_999_999_999) < BINS && bin(9_000_000_000) > BINS - 3);
    }
}
