//! The requests of one capture in time order, for intervals that hold for this capture only.

use std::collections::BTreeMap;

use super::{Part, Statistic};
use crate::stats::bootstrap::{block_length, blocks, resampled_means, resampled_quantiles};

/// Number of resamples for an interval.
const RESAMPLES: usize = 1_000;

/// Latencies in time order, and sums over blocks of neighbouring requests.
#[derive(Clone, Debug)]
pub struct Series {
    /// Ranks of the latencies, in time order.
    ranks: Vec<u32>,
    sorted_ns: Vec<u64>,
    /// Block of each request, in the order of the file.
    block_of: Vec<u32>,
    bounds: Vec<usize>,
    /// Sums of each part, by block.
    sums_ns: BTreeMap<Part, Vec<f64>>,
    pub block_length: usize,
}

/// Resampled figures of one side.
pub struct Resampled {
    pub means: BTreeMap<Part, Vec<f64>>,
    /// Totals by [`Statistic`].
    pub totals: [Option<Vec<f64>>; 4],
    /// As in [`super::shift::GRID`].
    pub quantiles: Vec<Vec<f64>>,
}

impl Series {
    /// `start_ns` and `ranks` are in the order of the file; `sorted_ns` holds the latencies in ascending order.
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

    /// Adds the parts of the request at this position in the file.
    pub fn add(&mut self, at: usize, parts: &[(Part, u128)]) {
        let blocks = self.bounds.len() - 1;
        for (part, ns) in parts {
            let sums = self.sums_ns.entry(*part).or_insert_with(|| vec![0.0; blocks]);
            sums[self.block_of[at] as usize] += *ns as f64;
        }
    }

    /// Resamples the series; `None` if the capture is too short for intervals. Series that are compared with each other
    /// need different seeds.
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
