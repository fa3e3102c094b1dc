//! Which requests were made for which, and how much of a request's time was taken by the requests made for it.
//!
//! [`Outlines`] reads all requests beforehand: it determines which requests have children, which processes serve, and
//! which methods take the most time. [`Links`] keeps, for each complete request with a parent or children, what is
//! needed to find its relatives, until all of the capture have been read. [`sums`] adds up the requests with the same
//! path from the outermost request. A step of the path is the server that a request asked (its back end) and what it
//! asked for (its method). Requests without a parent or children are added up at once.

mod back_ends;
mod id_masks;
mod links;
mod methods;
mod names;
mod outlines;
mod sums;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;

pub use links::Links;
pub use outlines::Outlines;
pub(super) use text::tree;
pub use text::{HEADER, NUMBERS};

use super::units::{format_exact, format_share};
use rpcprobe_model::{Certainty, Kind};

/// Maximum number of rows that are kept: those with the most time.
const ROWS: usize = 200;

/// Below this number of requests, counts are shown instead of shares.
const FEW: u64 = 100;

/// Rows of requests; each row is followed by the rows of the requests that were made for it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tree {
    pub rows: Vec<Row>,
    /// Number of further rows, each with less time.
    pub left_out: u64,
    /// Requests eight or more generations below the outermost, which are in no row.
    pub deeper: u64,
}

/// Complete requests with the same path from the outermost request: all of one back end, or those that call one of its
/// methods.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// 0 for an outermost row.
    pub level: usize,
    /// The row is part of the row one level up: it covers those of the same requests that call one method. Its requests
    /// were not made for the requests of that row.
    pub is_part: bool,
    pub kind: Kind,
    /// The server that was asked: its name and where it listens, as far as known.
    pub server: Option<String>,
    /// `None` if the requests have no method, or several.
    pub method: Option<String>,
    /// Whether `method` is `None` because the row combines methods that have little time each.
    pub is_others: bool,
    pub requests: u64,
    /// Requests that ended after their parent was answered.
    pub detached: u64,
    pub p10_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub total_ns: u64,
    /// The requests that these were made for; `None` for an outermost row.
    pub above: Option<Above>,
    /// Time during which at least one child was under way, summed over the row's requests, in nanoseconds.
    pub children_ns: u64,
    /// Confidence in the parents of the requests.
    pub parents: Parents,
    /// Index of the row one level up.
    #[serde(skip)]
    pub up: Option<usize>,
}

/// The requests that the requests of a row were made for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Above {
    /// All requests of the row above, whether or not any was made for them.
    pub requests: u64,
    pub total_ns: u64,
    /// The part of `total_ns` during which at least one of this row's requests was under way.
    pub took_ns: u64,
    pub took_share: f64,
}

/// Numbers of requests by the confidence in their parents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Parents {
    pub sure: u64,
    pub likely: u64,
    pub guessed: u64,
    /// Requests made by a process that serves requests, whose parent is not known.
    pub not_known: u64,
}

impl Parents {
    fn count(&mut self, certainty: Certainty) {
        *match certainty {
            Certainty::Sure => &mut self.sure,
            Certainty::Likely => &mut self.likely,
            Certainty::Guessed => &mut self.guessed,
        } += 1;
    }

    /// Describes the confidences: `sure`, `97.0 % likely, 3.0 % guessed`, `3 not known`; `-` for an outermost row.
    pub fn in_words(&self) -> String {
        let Parents { sure, likely, guessed, not_known } = *self;
        let all = sure + likely + guessed;
        let kinds = [(sure, "sure"), (likely, "likely"), (guessed, "guessed")];
        let mut parts: Vec<String> = kinds
            .into_iter()
            .filter(|(of, _)| *of > 0)
            .map(|(of, name)| match (of == all, all < FEW) {
                (true, _) => name.to_owned(),
                (false, true) => format!("{of} {name}"),
                (false, false) => format!("{} {name}", format_share(of, all)),
            })
            .collect();
        if not_known > 0 {
            parts.push(format!("{} not known", format_exact(not_known)));
        }
        if parts.is_empty() {
            parts.push("-".to_owned());
        }
        parts.join(", ")
    }
}

impl Tree {
    /// Returns the indices of the rows with the most time, at most `most`, including the rows above them; and the
    /// number of remaining rows.
    pub fn largest(&self, most: usize) -> (Vec<usize>, u64) {
        let mut by_time: Vec<usize> = (0..self.rows.len()).collect();
        by_time.sort_by_key(|at| (std::cmp::Reverse(self.rows[*at].total_ns), *at));
        let mut shown = vec![false; self.rows.len()];
        let mut count = 0;
        for at in by_time {
            let way = std::iter::successors(Some(at), |at| self.rows[*at].up);
            let new: Vec<usize> = way.take_while(|at| !shown[*at]).collect();
            if count + new.len() > most {
                break;
            }
            count += new.len();
            new.into_iter().for_each(|at| shown[at] = true);
        }
        let places = (0..self.rows.len()).filter(|at| shown[*at]).collect();
        (places, (self.rows.len() - count) as u64 + self.left_out)
    }
}
