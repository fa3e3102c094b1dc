//! Histograms on a logarithmic axis of nanoseconds.

use std::sync::OnceLock;

/// Bins per factor of 10.
const PER_DECADE: u32 = 40;
/// Covers 12 days; longer values are counted in the last bin.
const DECADES: u32 = 15;

/// Lower bounds of the bins, ascending. They are whole nanoseconds, so rounding never decides which bin a value belongs
/// to. Values of 0 are in the first bin.
fn edges() -> &'static [u64] {
    static EDGES: OnceLock<Vec<u64>> = OnceLock::new();
    EDGES.get_or_init(|| {
        let edge = |i: u32| 10_f64.powf(f64::from(i) / f64::from(PER_DECADE)).round() as u64;
        let mut edges: Vec<u64> = (0..=PER_DECADE * DECADES).map(edge).collect();
        edges.dedup();
        edges.insert(0, 0);
        edges
    })
}

/// Number of values in each bin.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    counts: Vec<u64>,
    pub total: u64,
}

impl Counts {
    pub fn add(&mut self, ns: u64) {
        let bin = edges().partition_point(|edge| *edge <= ns) - 1;
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += 1;
        self.total += 1;
    }

    /// Adds `count` values of 0.
    pub fn add_zeros(&mut self, count: u64) {
        if self.counts.is_empty() {
            self.counts.push(0);
        }
        self.counts[0] += count;
        self.total += count;
    }

    pub fn plus(&mut self, other: &Counts) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, more)| *sum += more);
        self.total += other.total;
    }

    /// Returns the bins from the first with a value above 0 to the last, each merged from `merged` bins: (begin, end,
    /// count).
    pub fn bins(&self, merged: usize) -> Vec<(u64, u64, u64)> {
        let edges = edges();
        let end = |bin: usize| edges.get(bin).copied().unwrap_or(u64::MAX);
        let Some(first) = (1..self.counts.len()).find(|bin| self.counts[*bin] > 0) else {
            return Vec::new();
        };
        let first = 1 + (first - 1) / merged * merged;
        (first..self.counts.len())
            .step_by(merged)
            .map(|bin| {
                let to = (bin + merged).min(self.counts.len());
                (edges[bin], end(bin + merged), self.counts[bin..to].iter().sum())
            })
            .collect()
    }

    /// Number of values of 0.
    pub fn zeros(&self) -> u64 {
        self.counts.first().copied().unwrap_or(0)
    }

    /// How many bins to merge: the fewer values there are, the wider the bins.
    pub fn merged(&self) -> usize {
        match self.total {
            0..1_000 => 4,
            1_000..20_000 => 2,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_its_bin() {
        let values = [0, 1, 2, 9, 10, 11, 99, 100, 12_345, 999_999, 1_000_000, u64::MAX];
        let mut counts = Counts::default();
        values.iter().for_each(|ns| counts.add(*ns));
        assert_eq!((counts.total, counts.zeros()), (12, 1));
        for merged in [1, 2, 4] {
            let bins = counts.bins(merged);
            assert_eq!(bins.iter().map(|(.., count)| count).sum::<u64>(), 11);
            assert!(bins.windows(2).all(|pair| pair[0].1 == pair[1].0), "{bins:?}");
            for (from, to, count) in &bins {
                let within =
                    values[1..values.len() - 1].iter().filter(|ns| (from..to).contains(ns));
                assert!(*to > 1_000_000_000_000_000 || within.count() as u64 == *count);
            }
        }
        assert!(Counts::default().bins(1).is_empty());
    }
}
