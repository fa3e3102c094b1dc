//! Every figure of a capture, as plotly has it: `{"data": [...], "layout": {...}}`.
//!
//! Two looks at the tables: [`Scan`] reads the requests and decides which groups of them there are, where their
//! percentiles lie and which requests are drawn one by one; [`Gather`] watches them being added up
//! ([`rpcprobe_report::Adder`]) and keeps sums, counts and some requests. Each module after that makes one figure of
//! what was gathered, for one [`Selection`]. Nothing is computed where a figure is shown.
//!
//! Figures hold times in the unit of their axis, relative to the start of the capture or the request; whole numbers
//! are below 2^53.

mod axis;
mod band;
mod bins;
mod breakdown;
pub mod compare;
mod cpu;
mod gather;
mod label;
mod latency;
mod links;
mod over_time;
mod request;
mod scan;
#[cfg(test)]
mod tests;
mod timeline;
mod tree;

use serde_json::Value;

use rpcprobe_model::Category;

pub use band::Band;
pub use gather::{Gather, Gathered, Group};
pub use label::label;
pub use request::Drawn;
pub use scan::{GroupKey, Plan, Scan};

/// The figures of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Name {
    /// How long requests take: cumulative share and counts, on a logarithmic axis
    Latency,
    /// Where the time goes, for requests of each percentile band
    Breakdown,
    /// Where the time goes, for each method
    Methods,
    /// Requests over time, coloured by their largest category
    Requests,
    /// Where the time goes, over time
    Overtime,
    /// Who had the CPU while requests waited for one
    Cpu,
    /// Which requests were made for which
    Tree,
    /// The time line of one request
    Timeline,
    /// Of two captures, or an `ab`: by how much each percentile differs
    Shift,
    /// Of two captures, or an `ab`: what the mean changed by, category by category
    Waterfall,
}

impl Name {
    /// Those of a group of requests.
    pub const OF_GROUPS: [Name; 7] = [
        Name::Latency,
        Name::Breakdown,
        Name::Methods,
        Name::Requests,
        Name::Overtime,
        Name::Cpu,
        Name::Tree,
    ];

    pub const ALL: [Name; 10] = [
        Name::Latency,
        Name::Breakdown,
        Name::Methods,
        Name::Requests,
        Name::Overtime,
        Name::Cpu,
        Name::Tree,
        Name::Timeline,
        Name::Shift,
        Name::Waterfall,
    ];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Name::Latency => "latency",
            Name::Breakdown => "breakdown",
            Name::Methods => "methods",
            Name::Requests => "requests",
            Name::Overtime => "overtime",
            Name::Cpu => "cpu",
            Name::Tree => "tree",
            Name::Timeline => "timeline",
            Name::Shift => "shift",
            Name::Waterfall => "waterfall",
        }
    }

    /// What it shows, in a line.
    pub fn shows(self) -> &'static str {
        match self {
            Name::Latency => "How long requests take",
            Name::Breakdown => "Where the time goes, by percentile band",
            Name::Methods => "Where the time goes, by method",
            Name::Requests => "Requests over time, by their largest category",
            Name::Overtime => "Where the time goes, over time",
            Name::Cpu => "Who had the CPU while requests waited for one",
            Name::Tree => "Which requests were made for which",
            Name::Timeline => "The time line of one request",
            Name::Shift => "By how much each percentile differs, of two captures or an ab",
            Name::Waterfall => {
                "What the mean changed by, category by category, of two captures or an ab"
            }
        }
    }
}

/// Which of a group's requests a figure is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    pub band: Band,
    /// The time in this category, instead of the whole latency; of figures of one quantity only.
    pub category: Option<Category>,
}

/// A figure of a group; `None` of those that are of one request ([`Drawn::figure`]) or of two sides ([`compare`]).
pub fn figure(
    name: Name,
    gathered: &Gathered,
    group: &Group,
    selection: Selection,
) -> Option<Value> {
    Some(match name {
        Name::Latency => latency::figure(group, selection),
        Name::Breakdown => breakdown::by_band(group, selection),
        Name::Methods => breakdown::by_method(gathered, group, selection),
        Name::Requests => timeline::figure(gathered, group, selection),
        Name::Overtime => over_time::figure(group, selection),
        Name::Cpu => cpu::figure(group, selection),
        Name::Tree => tree::figure(gathered, group),
        Name::Timeline | Name::Shift | Name::Waterfall => return None,
    })
}
