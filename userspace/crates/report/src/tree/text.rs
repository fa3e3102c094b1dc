//! The tree as a table of a report.

use super::links::is_a_program;
use super::{Row, Tree};
use crate::layout::wrap;
use crate::tables::Rows;
use crate::text::{bold, escape};
use crate::units::{count, format_exact, format_ns, format_rate, format_share};
use crate::{words, Style};

/// Maximum number of rows, unless all are wanted.
const SHOWN: usize = 14;

impl Tree {
    /// Whether a report shows the tree unasked. It does if requests were made for other requests, or if the parents of
    /// some requests are not known. A program's requests during its life are not a reason, because they have their own
    /// sections.
    pub fn is_worth_telling(&self) -> bool {
        self.rows.iter().any(|row| {
            let for_requests =
                row.up.is_some_and(|up| !row.is_part && !is_a_program(self.rows[up].kind));
            for_requests || row.parents.not_known > 0
        })
    }
}

impl Row {
    /// The method, or a text for requests of various methods or without a method.
    pub fn what(&self) -> &str {
        match (&self.method, self.is_others) {
            (Some(method), _) => method,
            (None, true) => "(various methods)",
            (None, false) => "(no method)",
        }
    }

    /// Names the back end and the method, such as `http1 nginx 127.0.0.1:80 GET /a`; for a part of the row above, only
    /// the method.
    fn name(&self) -> String {
        if self.is_part {
            return escape(self.what());
        }
        let what = (self.method.is_some() || self.is_others).then(|| self.what());
        words::asked(self.kind, self.server.as_deref(), what)
    }

    /// Number of requests per request of the row above; `None` for an outermost row.
    pub fn for_each(&self) -> Option<String> {
        let above = self.above.as_ref()?;
        let rate = format_rate(self.requests as f64 / above.requests.max(1) as f64);
        Some(rate.trim_end_matches("/s").to_owned())
    }

    /// The share of the time of the row above during which one of these requests was under way.
    pub fn took(&self) -> Option<String> {
        let above = self.above.as_ref()?;
        Some(format_share(above.took_ns, above.total_ns))
    }
}

/// Headings of the columns of [`Row::cells`].
pub const HEADER: [&str; 7] =
    ["request", "count", "for each", "p50", "p99", "of its time", "how sure"];
/// The columns with numbers.
pub const NUMBERS: [usize; 5] = [1, 2, 3, 4, 5];

impl Row {
    /// Returns the cells of the row, as escaped text. Each level is indented further.
    pub fn cells(&self) -> Vec<String> {
        let indent = "\u{a0}\u{a0}".repeat(self.level.saturating_sub(1));
        let branch = if self.level > 0 { "└\u{a0}" } else { "" };
        vec![
            format!("{indent}{branch}{}", self.name()),
            format_exact(self.requests),
            self.for_each().unwrap_or_default(),
            format_ns(self.p50_ns),
            format_ns(self.p99_ns),
            self.took().unwrap_or_default(),
            self.parents.in_words(),
        ]
    }
}

impl Tree {
    /// Whether any request was made for another one, or may have been.
    pub fn tells_anything(&self) -> bool {
        self.rows.iter().any(|row| row.above.is_some() || row.parents.not_known > 0)
    }

    /// Notes about the table: the meaning of a column, what the table leaves out, and what it cannot show. `left_out`:
    /// number of rows that are not shown.
    pub fn notes(&self, left_out: u64) -> Vec<String> {
        let mut notes = vec![NOTE.to_owned()];
        let told =
            [(left_out, "more row", "with less time"), (self.deeper, "request", "further down")];
        let told = told.into_iter().filter(|(number, ..)| *number > 0);
        notes.extend(told.map(|(number, noun, what)| format!("{} {what}", count(number, noun))));
        let rows = self.rows.iter().filter(|row| !row.is_part);
        let not_known: u64 = rows.map(|row| row.parents.not_known).sum();
        if not_known > 0 {
            notes.push(format!(
                "! {} made by servers nobody knows for which of theirs, which took more than this says",
                count(not_known, "request")
            ));
        }
        notes
    }
}

const NOTE: &str =
    "of its time: of that of those one level up, how much at least one of these was under way";

/// Formats the rows with the most time, or all rows.
pub(in super::super) fn tree(tree: &Tree, all: bool, style: Style) -> String {
    let (places, left_out) = tree.largest(if all { usize::MAX } else { SHOWN });
    let mut rows = Rows {
        header: &HEADER,
        right: &NUMBERS,
        shrink: &[(0, 24), (6, 6)],
        rows: Vec::new(),
        categories: Vec::new(),
        tinted: 0,
    };
    places.iter().for_each(|at| rows.push(None, tree.rows[*at].cells()));
    let mut text = format!("  {}\n", bold("which requests were made for which", style));
    text += &rows.text(style).replace('\u{a0}', " ");
    for note in tree.notes(left_out) {
        text += &wrap(&format!("  {note}"), "  ", style);
    }
    text
}
