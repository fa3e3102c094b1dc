//! Which requests were made for which, and how much of a request those took that were made for it.
//!
//! [`Outlines`] are told of all requests beforehand: which have others made for them, which processes serve, which methods
//! take most time. [`Links`] keeps of each complete request that has a parent or children what it takes to know which were
//! made for which, until all of a capture are there. [`sums`] adds up those with the same way from the outermost request,
//! where a step of the way is whom a request asked (its back end) and what for (its method); requests that have neither
//! are added up at once.

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

/// Rows that are kept: those with most time.
const ROWS: usize = 200;

/// Of fewer, their number says more than their share.
const FEW: u64 = 100;

/// Rows of requests, each followed by those of the requests that were made for them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tree {
    pub rows: Vec<Row>,
    /// Further rows, with less time each.
    pub left_out: u64,
    /// Requests more than eight generations below the outermost: in no row.
    pub deeper: u64,
}

/// Complete requests with the same way from the outermost: all of one back end, or those that call one method of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// 0: an outermost one.
    pub level: usize,
    /// It is part of the row one level up, the same requests' one method, not made for them.
    pub is_part: bool,
    pub kind: Kind,
    /// Whom they asked: the server's name and where it listens, as far as known.
    pub server: Option<String>,
    /// `None`: they have none, or several.
    pub method: Option<String>,
    /// Whether `method` is `None` because they have several: those of many that have little time each.
    pub is_others: bool,
    pub requests: u64,
    /// Those that ended after what they were made for was answered.
    pub detached: u64,
    pub p10_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub total_ns: u64,
    /// What they were made for; `None` of an outermost row.
    pub above: Option<Above>,
    /// While at least one request made for them was under way, over all of them, nanoseconds.
    pub children_ns: u64,
    /// How sure it is what they were made for.
    pub parents: Parents,
    /// The place of the row one level up.
    #[serde(skip)]
    pub up: Option<usize>,
}

/// What the requests of a row were made for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Above {
    /// All requests of the row above, whether any was made for them or not.
    pub requests: u64,
    pub total_ns: u64,
    /// How much of `total_ns` at least one of this row's requests was under way.
    pub took_ns: u64,
    pub took_share: f64,
}

/// Requests by how sure it is what they were made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Parents {
    pub sure: u64,
    pub likely: u64,
    pub guessed: u64,
    /// Made by a process that serves requests, nobody knows for which.
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

    /// `sure`, `97.0 % likely, 3.0 % guessed`, `3 not known`; `-` of an outermost row.
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
    /// The places of the rows with most time, at most so many, those above them among them; and how many rows there are
    /// besides.
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
