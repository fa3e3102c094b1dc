//! The comparison itself: what text shows and JSON carries.

use serde::Serialize;

use super::names::Says;
use super::shift::ShiftPoint;
use super::Statistic;
use crate::model::{Category, Kind, Side};

/// On what the comparison rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Run i of A and run i of B were one after the other, in an order drawn at random.
    RandomPairs,
    /// They were next to each other in time, in an order that nobody is known to have drawn.
    Neighbours,
    /// Several runs a side that are no pairs: no test.
    Unpaired,
    /// One capture a side: intervals within these captures only.
    OneCaptureEach,
}

/// Whether there is a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Changed,
    NoDifferenceShown,
    /// What was compared cannot tell.
    NoVerdict,
}

/// Two sides compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub a: SideSummary,
    pub b: SideSummary,
    pub basis: Basis,
    /// Pairs of runs that were tested; 0 where there is no test.
    pub pairs: usize,
    /// The probability at which a change is called one, and the smallest these pairs can give.
    pub level: f64,
    pub smallest_p: f64,
    /// Flips of signs that were tried.
    pub flips: u64,
    pub verdict: Verdict,
    /// Why there is no verdict.
    pub no_verdict: Option<String>,
    pub kinds: Vec<KindComparison>,
    /// Kinds that are not in every run of both sides: not compared.
    pub not_compared: Vec<NotCompared>,
    /// What the reader must know first.
    pub warnings: Vec<String>,
}

/// One side.
#[derive(Clone, Debug, Serialize)]
pub struct SideSummary {
    /// The command, or what was selected.
    pub what: String,
    /// Directories of its captures.
    pub runs: Vec<String>,
}

/// A kind of request that only part of the runs has.
#[derive(Clone, Debug, Serialize)]
pub struct NotCompared {
    pub kind: Kind,
    /// Runs that have complete requests of it.
    pub a_runs: usize,
    pub b_runs: usize,
}

/// The requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindComparison {
    pub kind: Kind,
    /// Another one than `kind`, where each side has one kind only.
    pub b_kind: Kind,
    pub a_requests: u64,
    pub b_requests: u64,
    pub a_incomplete: u64,
    pub b_incomplete: u64,
    /// The probe's own cost on an average request, the median of the runs; `None` where it cannot be told
    /// per kind.
    pub a_probe_cost_ns: Option<f64>,
    pub b_probe_cost_ns: Option<f64>,
    /// Changes below this are never called changes.
    pub least_ns: f64,
    pub verdict: Verdict,
    pub statistics: Vec<StatisticComparison>,
    /// Statistics for which the runs have too few requests.
    pub too_few_for: Vec<Statistic>,
    /// Why one capture a side has no intervals; `None` where it has, or where runs are the units.
    pub no_intervals: Option<NoIntervals>,
    pub names: Vec<NameChange>,
    /// `None`: no methods, or only one.
    pub methods: Option<MixOfMethods>,
    /// Quantile by quantile, those that all runs can tell.
    pub shift: Vec<ShiftPoint>,
}

/// A capture whose requests are too few for intervals, given how long neighbours are alike.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NoIntervals {
    pub a_requests: u64,
    pub b_requests: u64,
    /// Requests in a row that count as one observation, of both sides the more.
    pub block_requests: u64,
    /// Blocks that an interval needs.
    pub blocks_needed: u64,
}

/// One statistic: its parts' `a_ns`, `b_ns` and `change_ns` sum to those of `total`.
#[derive(Clone, Debug, Serialize)]
pub struct StatisticComparison {
    pub statistic: Statistic,
    pub total: Change,
    /// Largest change first.
    pub parts: Vec<PartChange>,
}

impl StatisticComparison {
    /// Whether the total or any part of it changed.
    pub fn is_changed(&self) -> bool {
        self.total.shown || self.parts.iter().any(|part| part.change.shown)
    }
}

/// From A to B. Averages over the runs of a side, rounded so that they add up.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Change {
    pub a_ns: i64,
    pub b_ns: i64,
    pub change_ns: i64,
    /// Of A's total of this statistic.
    pub change_of_total: Option<f64>,
    /// 95 %, for this quantity by itself.
    pub interval_ns: Option<(f64, f64)>,
    /// Family-wise: over all quantities of the comparison.
    pub p: Option<f64>,
    /// `p` is at most the level and the change large enough to matter.
    pub shown: bool,
    /// What would have been shown in 8 of 10 such comparisons.
    pub detectable_ns: Option<f64>,
}

/// One category at one side.
#[derive(Clone, Debug, Serialize)]
pub struct PartChange {
    pub category: Category,
    pub side: Side,
    #[serde(flatten)]
    pub change: Change,
    /// Of the total's change; `None` where that is 0.
    pub share_of_change: Option<f64>,
    /// Not all of it is measured.
    pub modelled: bool,
}

/// Who or what is named in waits, per request on average.
#[derive(Clone, Debug, Serialize)]
pub struct NameChange {
    pub category: Category,
    pub side: Side,
    pub says: Says,
    pub name: String,
    pub a_ns: f64,
    pub b_ns: f64,
    pub change_ns: f64,
}

/// The change of the mean split into another mix of methods and changes within them; all of it sums to
/// the change of the mean.
#[derive(Clone, Debug, Serialize)]
pub struct MixOfMethods {
    pub mix_ns: i64,
    pub within_ns: i64,
    /// Largest contribution first.
    pub methods: Vec<MethodChange>,
}

/// One method.
#[derive(Clone, Debug, Serialize)]
pub struct MethodChange {
    /// `None`: not known.
    pub method: Option<String>,
    /// So many more methods are in this line; 0 for a line of one.
    pub others: usize,
    pub a_share: f64,
    pub b_share: f64,
    /// `None`: it has no such requests.
    pub a_mean_ns: Option<f64>,
    pub b_mean_ns: Option<f64>,
    pub mix_ns: i64,
    pub within_ns: i64,
}
