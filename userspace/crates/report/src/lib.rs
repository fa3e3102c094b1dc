//! Output for readers: the report of a capture, its list of requests, the time line of one request.
//!
//! Everything is written to a `Write` that the caller chooses. Text from outside (names, paths,
//! reasons) is escaped before it can reach a terminal. Figures that depend on modelled evidence
//! carry `~`.

mod adder;
mod breakdown;
mod contents;
mod covered;
mod explain;
mod filter;
pub mod fit;
mod groups;
mod header;
mod held_back;
pub mod ids;
mod json;
mod kind_sums;
pub mod largest;
pub mod layout;
mod ledger;
mod nothing;
mod overview;
pub mod palette;
mod programs;
mod relatives;
mod requests;
mod stacks;
pub mod sums;
mod survey;
mod tables;
mod tail;
pub mod text;
mod threads;
pub mod tree;
pub mod units;
pub mod values;
pub mod whatif;
mod words;

pub use adder::{Adder, Watch};
pub use breakdown::ORDER;
pub use breakdown::{Breakdown, Ends, KindBreakdown, Part, PhasePart, WaitedFor, Waits};
pub use contents::contents;
pub use explain::{explain, Explained};
pub use filter::{EndPattern, Passes, Pattern, RequestFilter, StatusPattern};
pub use groups::{Group, GroupBy, GroupPart, Groups, Others};
pub use header::{command, Preamble};
pub use json::{explain_value, explanations_json, report_value, reports_json, requests_json};
pub use ledger::ledger_line;
pub use nothing::nothing_found;
pub use overview::{answers, report, title, Answer, Reported};
pub use programs::Programs;
pub use relatives::Relatives;
pub use requests::{modelled, requests, select, Marks, RequestOptions, Selection, SortKey};
pub use stacks::{stack_ids, ShownStacks};
pub use sums::Distribution;
pub use survey::{Contents, Facts, KindPlan, Plan, Query, Survey};
pub use tail::{Band, Tail, TailPart, FEWEST};
pub use text::{end, escape, evidence_mark, marks};
pub use threads::ProbeThreads;
pub use tree::Outlines;
pub use units::{
    count, format_at, format_exact, format_ns, format_rate, format_share, format_signed_ns,
    nearest_rank, parse_ns,
};
pub use words::{evidence_in_full, evidence_shares, marked, part_name, place, slowest};

/// How text is formatted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether to use ANSI colours.
    pub color: bool,
    /// Width of the terminal in columns; `None` if the output is no terminal, and lines may have
    /// any length.
    pub width: Option<u16>,
}

#[cfg(test)]
pub mod fixtures;
