//! Compares two sides: what changed, by how much, in which category, and whether the change is beyond chance.
//!
//! [`run`] sums up one capture: for each kind of request, the mean and quantiles of its latency, each split into
//! categories that add up to it. [`kinds`] and [`sides`] compare the runs of two sides with the statistics of
//! [`crate::stats`]. [`text`] writes the result for people. JSON is the [`Comparison`] itself.

mod comparison;
mod judge;
mod kinds;
mod names;
pub mod plan;
mod run;
pub mod selector;
mod series;
mod shift;
mod sides;
mod text;

pub use comparison::{Basis, Comparison, KindComparison, PartChange, Verdict};
pub use judge::LEVEL;
pub use kinds::compare;
pub use run::Run;
pub use shift::ShiftPoint;
pub use text::{in_words, write};

use serde::{Serialize, Serializer};

use crate::model::{Category, Side};

/// A statistic of a kind's latencies that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Statistic {
    Mean,
    P50,
    P90,
    P99,
}

impl Statistic {
    pub const ALL: [Statistic; 4] =
        [Statistic::Mean, Statistic::P50, Statistic::P90, Statistic::P99];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::Mean => "mean",
            Statistic::P50 => "p50",
            Statistic::P90 => "p90",
            Statistic::P99 => "p99",
        }
    }

    /// The name as used in a sentence.
    pub fn in_words(self) -> &'static str {
        match self {
            Statistic::P50 => "median",
            other => other.name(),
        }
    }

    /// The quantile, 0 to 1; `None` for the mean.
    pub fn quantile(self) -> Option<f64> {
        match self {
            Statistic::Mean => None,
            Statistic::P50 => Some(0.5),
            Statistic::P90 => Some(0.9),
            Statistic::P99 => Some(0.99),
        }
    }

    /// Whether this many requests are enough: at least three beyond a quantile.
    fn is_told_by(self, requests: usize) -> bool {
        match self.quantile() {
            None => requests > 0,
            Some(p) => requests as f64 * (1.0 - p) >= 3.0 - 1e-9,
        }
    }
}

impl Serialize for Statistic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A part of a latency: one category at one side.
pub type Part = (Category, Side);

#[cfg(test)]
mod tests;
