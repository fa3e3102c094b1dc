//! Sums of nanoseconds, and the statistics derived from them.

use serde::Serialize;

use super::values::Values;
use rpcprobe_model::{Category, Evidence, Segment, Side};

/// Identifies a part of a latency.
pub type Key = (Category, Side);

/// Percentiles by nearest rank; requests without the part count as 0. Each percentile is a value that occurred (no
/// interpolation). With more than [`EXACT_VALUES`](super::values::EXACT_VALUES) values, it is within 0.1 % of such a
/// value. Nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    pub mean_ns: f64,
    pub total_ns: u64,
}

/// A sum of durations, with its modelled and sampled parts.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub ns: u128,
    pub modelled_ns: u128,
    pub sampled_ns: u128,
}

impl Sum {
    /// The sum of one measured duration.
    pub fn measured(ns: u64) -> Sum {
        Sum { ns: ns.into(), ..Sum::default() }
    }

    pub fn plus(&mut self, other: &Sum) {
        self.ns += other.ns;
        self.modelled_ns += other.modelled_ns;
        self.sampled_ns += other.sampled_ns;
    }

    pub fn add(&mut self, segment: &Segment) {
        let ns = u128::from(segment.duration_ns);
        self.ns += ns;
        match segment.evidence {
            Evidence::Measured => {}
            Evidence::Sampled => self.sampled_ns += ns,
            Evidence::Modelled => self.modelled_ns += ns,
        }
    }
}

/// Sums over requests, with the values above 0.
#[derive(Default)]
pub struct Sums {
    per_request_ns: Values,
    pub sum: Sum,
}

impl Sums {
    pub fn add(&mut self, sum: Sum) {
        if sum.ns > 0 {
            self.per_request_ns.push(clamp(sum.ns));
        }
        self.sum.plus(&sum);
    }

    /// The distribution over `count` requests; requests that were not added count as 0.
    pub fn distribution(&mut self, count: u64) -> Distribution {
        let values = &mut self.per_request_ns;
        Distribution {
            p50_ns: values.nearest_rank(count, 50),
            p90_ns: values.nearest_rank(count, 90),
            p99_ns: values.nearest_rank(count, 99),
            max_ns: values.max(),
            mean_ns: ratio(self.sum.ns, u128::from(count)),
            total_ns: clamp(self.sum.ns),
        }
    }
}

/// Returns 0 if `whole` is 0.
pub fn ratio(part: u128, whole: u128) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

pub fn clamp(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}
