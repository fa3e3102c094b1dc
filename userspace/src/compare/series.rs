//! The requests of one capture in order of time, for intervals that speak of this capture only.

use std::collections::BTreeMap;

use super::{Part, Statistic};
use crate::stats::bootstrap::{block_length, blocks, resampled_means, resampled_quantiles};

/// Resamples of an interval.
const RESAMPLES: usize = 1_000;

/// Latencies in order of time, and sums over blocks of neighbours.
#[derive(Clone, Debug)]
pub struct Series {
    /// By place in time, the rank of the latency.
    ranks: Vec<u32>,
    sorted_ns: Vec<u64>,
    /// By place in the file, the block.
    block_of: Vec<u32>,
    bounds: Vec<usize>,
    /// Sums of each part, by block.
    sums_ns: BTreeMap<Part, Vec<f64>>,
    pub block_length: usize,
}

/// Resampled figures of one side.
pub struct Resampled {
    pub means: BTreeMap<Part, Vec<f64>>,
    /// By [`Statistic`].
    pub totals: [Option<Vec<f64>>; 4],
    /// As [`super::shift::GRID`].
    pub quantiles: Vec<Vec<f64>>,
}

impl Series {
    /// `start_ns` and `ranks` in the order of the file; `sorted_ns`: the latencies, ascending.
    pub fn new(start_ns: &[u64], ranks: &[u32], sorted_ns: Vec<u64>) -> Series {
        let mut order: Vec<u32> = (0..start_ns.len() as u32).collect();
        order.sort_by_key(|i| start_ns[*i as usize]);
        let in_time: Vec<u32> = order.iter().map(|i| ranks[*i as usize]).collect();
        let as_numbers: Vec<f64> = in_time.iter().map(|rank| f64::from(*rank)).collect();
        let block_length = block_length(&as_numbers);
        let bounds = blocks(order.len(), block_length);
        let mut block_of = vec![0; order.len()];
        for (block, range) in bounds.windows(2).enumerate() {
            order[range[0]..range[1]].iter().for_each(|i| block_of[*i as usize] = block as u32);
        }
        Series {
            ranks: in_time,
            sorted_ns,
            block_of,
            bounds,
            sums_ns: BTreeMap::new(),
            block_length,
        }
    }

    pub fn requests(&self) -> u64 {
        self.ranks.len() as u64
    }

    /// Takes the parts of the request at that place of the file.
    pub fn add(&mut self, at: usize, parts: &[(Part, u128)]) {
        let blocks = self.bounds.len() - 1;
        for (part, ns) in parts {
            let sums = self.sums_ns.entry(*part).or_insert_with(|| vec![0.0; blocks]);
            sums[self.block_of[at] as usize] += *ns as f64;
        }
    }

    /// `None` where the capture is too short for intervals. Series that are compared with each other need
    /// different seeds.
    pub fn resampled(&self, seed: u64) -> Option<Resampled> {
        let counts: Vec<usize> = self.bounds.windows(2).map(|b| b[1] - b[0]).collect();
        let mut sums: Vec<Vec<f64>> = self.sums_ns.values().cloned().collect();
        let of_block = |block| sums.iter().map(|of_part| of_part[block]).sum::<f64>();
        let totals: Vec<f64> = (0..counts.len()).map(of_block).collect();
        sums.push(totals);
        let mut means = resampled_means(&sums, &counts, RESAMPLES, seed)?;
        let total = means.pop();
        let mut quantiles: Vec<f64> = Statistic::ALL.iter().filter_map(|s| s.quantile()).collect();
        quantiles.extend(super::shift::quantiles());
        let found = resampled_quantiles(
            &self.ranks,
            &self.sorted_ns,
            &self.bounds,
            &quantiles,
            RESAMPLES,
            seed,
        )?;
        let mut found = found.into_iter();
        let totals = Statistic::ALL.map(|statistic| match statistic.quantile() {
            None => total.clone(),
            Some(_) => found.next(),
        });
        let means = self.sums_ns.keys().copied().zip(means).collect();
        Some(Resampled { means, totals, quantiles: found.collect() })
    }
}
