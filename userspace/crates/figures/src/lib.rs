//! Every figure of a capture, in plotly's format: `{"data": [...], "layout": {...}}`.
//!
//! The tables are read in two passes. [`Scan`] reads the requests and determines the groups of requests, their
//! percentiles, and the requests to draw one by one. [`Gather`] watches the requests being added up
//! ([`rpcprobe_report::Adder`]) and keeps sums, counts and some requests. Each further module makes one figure from the
//! gathered data, for one [`Selection`]. The place that shows a figure computes nothing.
//!
//! Figures hold times in the unit of their axis, relative to the start of the capture or the request. Whole numbers are
//! below 2^53.

mod axis;
mod band;
mod bins;
mod breakdown;
pub mod compare;
mod cpu;
mod gather;
mod label;
mod latency;
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

/// The figures of a capture. [`TABLE`] describes each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    Latency,
    Breakdown,
    Methods,
    Requests,
    Overtime,
    Cpu,
    Tree,
    Timeline,
    Shift,
    Waterfall,
}

/// What a figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The requests of one kind, or those of one kind and method.
    Group,
    Request,
    /// Two captures, or the sides of an `ab`.
    Sides,
}

struct Entry {
    figure: Name,
    /// The stable name of the figure.
    name: &'static str,
    subject: Subject,
    /// One-line description of the figure.
    shows: &'static str,
}

const fn entry(figure: Name, name: &'static str, subject: Subject, shows: &'static str) -> Entry {
    Entry { figure, name, subject, shows }
}

/// Every figure, in the order of [`Name`], which is the order on the page.
const TABLE: [Entry; 10] = [
    entry(Name::Latency, "latency", Subject::Group, "How long requests take"),
    entry(Name::Breakdown, "breakdown", Subject::Group, "Where the time goes, by percentile band"),
    entry(Name::Methods, "methods", Subject::Group, "Where the time goes, by method"),
    entry(
        Name::Requests,
        "requests",
        Subject::Group,
        "Requests over time, by their largest category",
    ),
    entry(Name::Overtime, "overtime", Subject::Group, "Where the time goes, over time"),
    entry(Name::Cpu, "cpu", Subject::Group, "Who had the CPU while requests waited for one"),
    entry(Name::Tree, "tree", Subject::Group, "Which requests were made for which"),
    entry(Name::Timeline, "timeline", Subject::Request, "The time line of one request"),
    entry(
        Name::Shift,
        "shift",
        Subject::Sides,
        "By how much each percentile differs, of two captures or an ab",
    ),
    entry(
        Name::Waterfall,
        "waterfall",
        Subject::Sides,
        "What the mean changed by, category by category, of two captures or an ab",
    ),
];

impl Name {
    pub const ALL: [Name; TABLE.len()] = {
        let mut all = [Name::Latency; TABLE.len()];
        let mut i = 0;
        while i < all.len() {
            all[i] = TABLE[i].figure;
            assert!(all[i] as usize == i, "the table is in another order");
            i += 1;
        }
        all
    };

    /// The figures that show a group of requests.
    pub fn of_groups() -> impl Iterator<Item = Name> {
        Name::ALL.into_iter().filter(|name| name.subject() == Subject::Group)
    }

    fn entry(self) -> &'static Entry {
        &TABLE[self as usize]
    }

    /// The stable name of the figure.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    pub fn subject(self) -> Subject {
        self.entry().subject
    }

    /// One-line description of the figure.
    pub fn shows(self) -> &'static str {
        self.entry().shows
    }
}

impl clap::ValueEnum for Name {
    fn value_variants<'a>() -> &'a [Name] {
        &Name::ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()).help(self.shows()))
    }
}

/// The requests of a group that a figure shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    pub band: Band,
    /// Show the time in this category instead of the whole latency. Only for figures of a single quantity.
    pub category: Option<Category>,
}

/// Draws a figure of a group. `None` for figures of one request ([`Drawn::figure`]) or of two sides ([`compare`]).
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
