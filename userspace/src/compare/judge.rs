//! Decides whether differences are beyond chance and large enough to matter.

use super::{Part, Statistic};
use crate::stats::sign_flips::{sign_flips, Tested};

/// A change counts as one up to this family-wise probability.
pub const LEVEL: f64 = 0.01;
/// Changes below this fraction of the mean latency are never called changes. It is the smallest change that tools of
/// this kind can promise between builds of one program (`experiments/compare` measures it).
pub const LEAST_OF_MEAN: f64 = 0.01;
/// Added to each standard error, as a fraction of the mean latency: a tenth of the smallest change that counts.
/// Quantities that vary less cannot become extreme by chance.
const FLOOR: f64 = LEAST_OF_MEAN / 10.0;
/// Standard normal quantile for a power of 80 %.
const POWER_80: f64 = 0.84;

/// A tested quantity: a statistic of one kind, in total (`None`) or for one part. `kind` is the index in the
/// comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    pub kind: usize,
    pub statistic: Statistic,
    pub part: Option<Part>,
}

/// The differences of all quantities, one per pair of runs.
#[derive(Default)]
pub struct Judge {
    quantities: Vec<Quantity>,
    /// In units of A's mean latency of the kind, so that kinds with any latency form one family.
    differences: Vec<Vec<f64>>,
    unit_ns: Vec<f64>,
}

/// The result for one quantity, in ns.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    pub p: f64,
    pub interval_95_ns: Option<(f64, f64)>,
    /// A change of this size would have been detected in 8 of 10 such comparisons; `None` if there are too few pairs to
    /// detect any.
    pub detectable_ns: Option<f64>,
}

/// The results for all quantities.
pub struct Judgement {
    quantities: Vec<Quantity>,
    judged: Vec<Judged>,
    pub flips: u64,
}

impl Judge {
    /// Adds a quantity. `differences_ns`: B - A, one per pair; `mean_ns`: A's mean latency of the kind.
    pub fn add(&mut self, quantity: Quantity, differences_ns: &[f64], mean_ns: f64) {
        let unit_ns = if mean_ns > 0.0 { mean_ns } else { 1.0 };
        self.quantities.push(quantity);
        self.differences.push(differences_ns.iter().map(|ns| ns / unit_ns).collect());
        self.unit_ns.push(unit_ns);
    }

    pub fn judge(self) -> Judgement {
        let family = sign_flips(&self.differences, FLOOR, LEVEL);
        let judged = family.tested.iter().zip(&self.unit_ns).map(|(tested, unit_ns)| {
            let Tested { p, interval_95, standard_error, .. } = *tested;
            let detectable = family.critical_t.zip(standard_error).map(|(t, error)| {
                let beyond_chance = (t + POWER_80) * (error + FLOOR);
                beyond_chance.max(LEAST_OF_MEAN) * unit_ns
            });
            Judged {
                p,
                interval_95_ns: interval_95.map(|(low, high)| (low * unit_ns, high * unit_ns)),
                detectable_ns: detectable,
            }
        });
        Judgement { judged: judged.collect(), quantities: self.quantities, flips: family.flips }
    }
}

impl Judgement {
    pub fn of(&self, quantity: Quantity) -> Option<Judged> {
        let at = self.quantities.iter().position(|other| *other == quantity)?;
        self.judged.get(at).copied()
    }
}
