//! The comparison itself, as shown in text and written as JSON.

use serde::Serialize;

use super::names::Says;
use super::shift::ShiftPoint;
use super::Statistic;
use crate::model::{Category, Kind, Side};

/// The basis of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Run i of A and run i of B followed each other, in an order drawn at random.
    RandomPairs,
    /// The runs of a pair were adjacent in time, but it is not known whether their order was drawn at random.
    Neighbours,
    /// Several runs per side that do not form pairs: no test.
    Unpaired,
    /// One capture per side: intervals hold within these captures only.
    OneCaptureEach,
}

/// Whether there is a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Changed,
    NoDifferenceShown,
    /// The compared captures do not allow a verdict.
    NoVerdict,
}

/// Two sides compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub a: SideSummary,
    pub b: SideSummary,
    pub basis: Basis,
    /// Number of pairs of runs that were tested; 0 if there is no test.
    pub pairs: usize,
    /// The probability up to which a change counts as one, and the smallest probability that these pairs can give.
    pub level: f64,
    pub smallest_p: f64,
    /// Number of sign flips that were tried.
    pub flips: u64,
    pub verdict: Verdict,
    /// Why there is no verdict.
    pub no_verdict: Option<String>,
    pub kinds: Vec<KindComparison>,
    /// Kinds that are not in every run of both sides, and therefore not compared.
    pub not_compared: Vec<NotCompared>,
    /// What the reader must know before anything else.
    pub warnings: Vec<String>,
}

/// One side of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct SideSummary {
    /// The command, or the selection.
    pub what: String,
    /// Directories of the side's captures.
    pub runs: Vec<String>,
}

/// A kind of request that only some of the runs have.
#[derive(Clone, Debug, Serialize)]
pub struct NotCompared {
    pub kind: Kind,
    /// Number of runs that have complete requests of this kind.
    pub a_runs: usize,
    pub b_runs: usize,
}

/// The requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindComparison {
    pub kind: Kind,
    /// Differs from `kind` if each side has only one kind.
    pub b_kind: Kind,
    pub a_requests: u64,
    pub b_requests: u64,
    pub a_incomplete: u64,
    pub b_incomplete: u64,
    /// The probe's own cost per average request, as the median of the runs; `None` if it cannot be determined per kind.
    pub a_probe_cost_ns: Option<f64>,
    pub b_probe_cost_ns: Option<f64>,
    /// Smaller changes are never called changes.
    pub least_ns: f64,
    pub verdict: Verdict,
    pub statistics: Vec<StatisticComparison>,
    /// Statistics for which the runs do not have enough requests.
    pub too_few_for: Vec<Statistic>,
    /// Why one capture per side has no intervals; `None` if it has intervals, or if runs are the units.
    pub no_intervals: Option<NoIntervals>,
    pub names: Vec<NameChange>,
    /// `None` if there are no methods, or only one.
    pub methods: Option<MixOfMethods>,
    /// The change of each quantile that all runs have enough requests for.
    pub shift: Vec<ShiftPoint>,
}

/// A capture with too few requests for intervals, because neighbouring requests are alike over too long a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NoIntervals {
    pub a_requests: u64,
    pub b_requests: u64,
    /// Number of successive requests that count as one observation; the larger of both sides.
    pub block_requests: u64,
    /// Number of blocks that an interval needs.
    pub blocks_needed: u64,
}

/// One statistic. The `a_ns`, `b_ns` and `change_ns` of its parts sum to those of `total`.
#[derive(Clone, Debug, Serialize)]
pub struct StatisticComparison {
    pub statistic: Statistic,
    pub total: Change,
    /// The largest change first.
    pub parts: Vec<PartChange>,
}

impl StatisticComparison {
    /// Whether the total or any part of it changed.
    pub fn is_changed(&self) -> bool {
        self.total.shown || self.parts.iter().any(|part| part.change.shown)
    }
}

/// The change from A to B. Values are averages over the runs of a side, rounded so that they add up.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Change {
    pub a_ns: i64,
    pub b_ns: i64,
    pub change_ns: i64,
    /// The change as a fraction of A's total of this statistic.
    pub change_of_total: Option<f64>,
    /// 95 % interval, for this quantity by itself.
    pub interval_ns: Option<(f64, f64)>,
    /// Family-wise probability, over all quantities of the comparison.
    pub p: Option<f64>,
    /// Whether `p` is at most the level and the change is large enough to matter.
    pub shown: bool,
    /// The change that would have been shown in 8 of 10 such comparisons.
    pub detectable_ns: Option<f64>,
}

/// The change of one category at one side.
#[derive(Clone, Debug, Serialize)]
pub struct PartChange {
    pub category: Category,
    pub side: Side,
    #[serde(flatten)]
    pub change: Change,
    /// Share of the total's change; `None` if the total did not change.
    pub share_of_change: Option<f64>,
    /// Whether part of it is not measured.
    pub modelled: bool,
}

/// The time of a name in waits, per request on average.
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

/// The change of the mean, split into a different mix of methods and changes within the methods. The parts sum to the
/// change of the mean.
#[derive(Clone, Debug, Serialize)]
pub struct MixOfMethods {
    pub mix_ns: i64,
    pub within_ns: i64,
    /// The largest contribution first.
    pub methods: Vec<MethodChange>,
}

/// The contribution of one method.
#[derive(Clone, Debug, Serialize)]
pub struct MethodChange {
    /// `None` if the method is not known.
    pub method: Option<String>,
    /// Number of further methods in this line; 0 for a single method.
    pub others: usize,
    pub a_share: f64,
    pub b_share: f64,
    /// `None` if the side has no requests of this method.
    pub a_mean_ns: Option<f64>,
    pub b_mean_ns: Option<f64>,
    pub mix_ns: i64,
    pub within_ns: i64,
}
