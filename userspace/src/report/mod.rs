//! What a reader is told: the report of a capture, its list of requests, one request's time line.
//!
//! Everything is written to a `Write` the caller chooses. Text from outside (names, paths, reasons)
//! is escaped before it can reach a terminal; a figure that rests on modelled evidence carries `~`.

mod breakdown;
mod explain;
mod header;
mod ids;
mod json;
mod overview;
mod requests;
mod stacks;
mod text;
mod units;
mod values;

pub use breakdown::{
    breakdown, Breakdown, Distribution, KindBreakdown, Part, PhasePart, WaitedFor, Waits,
};
pub use explain::explain;
pub use json::{explain_json, report_json, requests_json};
pub use overview::report;
pub use requests::{modelled, requests, select, Marks, RequestOptions, Selection, SortKey};
pub use stacks::{stack_ids, ShownStacks};
pub use text::escape;
pub use units::{format_ns, format_share, nearest_rank, parse_ns};

/// How text is to look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether to use ANSI colours.
    pub color: bool,
    /// Columns of the terminal; `None` when there is none, and lines may be as long as they are.
    pub width: Option<u16>,
}

#[cfg(test)]
mod samples;
