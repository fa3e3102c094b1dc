//! Fits a table into the terminal: first columns are left out, then texts are cut. Cells are never wrapped.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Blanks between columns.
const GAP: usize = 2;

/// What happens to a column if there is not enough room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The column stays as it is.
    Stays,
    /// Its texts are cut, to this width at the least.
    Cut(usize),
    /// The column is left out before any text is cut.
    First,
    /// The column is left out if cutting is not enough.
    Later,
}

/// Computes the width of each column from the columns' widths and fates; `None` if the column is left out. Of columns
/// with the same fate, those further right are left out first.
pub(crate) fn fit(columns: &[(usize, Fate)], room: usize) -> Vec<Option<usize>> {
    let mut widths: Vec<_> = columns.iter().map(|(width, _)| Some(*width)).collect();
    let of = |fate| move |at: &usize| columns[*at].1 == fate;
    for at in (0..columns.len()).rev().filter(of(Fate::First)) {
        if total(&widths) > room {
            widths[at] = None;
        }
    }
    let least = |at: usize| match columns[at] {
        (width, Fate::Cut(least)) => width.min(least),
        (width, _) => width,
    };
    for at in (0..columns.len()).rev().filter(of(Fate::Later)) {
        let at_least: Vec<_> =
            widths.iter().enumerate().map(|(at, kept)| kept.map(|_| least(at))).collect();
        if total(&at_least) > room {
            widths[at] = None;
        }
    }
    // Removes one cell at a time, from the widest column that may still be cut.
    for _ in room..total(&widths).max(room) {
        let cut =
            (0..columns.len()).filter(|&at| widths[at].is_some_and(|width| width > least(at)));
        let Some(widest) = cut.max_by_key(|&at| widths[at]) else { break };
        widths[widest] = widths[widest].map(|width| width - 1);
    }
    widths
}

fn total(widths: &[Option<usize>]) -> usize {
    let kept = widths.iter().flatten();
    (kept.clone().sum::<usize>() + kept.count() * GAP).saturating_sub(GAP)
}

/// Number of terminal columns that the text takes.
pub fn cells(text: &str) -> usize {
    text.width()
}

/// Returns the text, with `…` in place of the part that does not fit.
pub fn cut(text: &str, width: usize) -> String {
    if cells(text) <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |c: &char| match left.checked_sub(c.width().unwrap_or(0)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    let kept: String = text.chars().take_while(fits).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_go_before_texts_are_cut_and_others_after() {
        let columns = [
            (3, Fate::Stays),
            (12, Fate::Later),
            (8, Fate::First),
            (30, Fate::Cut(10)),
            (20, Fate::Cut(10)),
            (9, Fate::First),
        ];
        let all = 3 + 12 + 8 + 30 + 20 + 9 + 5 * GAP;
        let fit = |room| fit(&columns, room);
        let kept = [Some(3), Some(12), Some(8), Some(30), Some(20), Some(9)];
        assert_eq!(fit(all), kept);
        assert_eq!(fit(usize::MAX), kept);
        assert_eq!(fit(all - 1), [Some(3), Some(12), Some(8), Some(30), Some(20), None]);
        assert_eq!(fit(65), [Some(3), Some(12), None, Some(24), Some(20), None]);
        assert_eq!(fit(41), [Some(3), Some(12), None, Some(10), Some(10), None]);
        assert_eq!(fit(40), [Some(3), None, None, Some(17), Some(16), None]);
        assert_eq!(fit(0), [Some(3), None, None, Some(10), Some(10), None]);
        for room in 27..=all {
            assert!(total(&fit(room)) <= room, "{room}");
        }
    }

    #[test]
    fn cut_texts_say_so() {
        assert_eq!(cut("server/102", 10), "server/102");
        assert_eq!(cut("server/102", 9), "server/1…");
        assert_eq!(cut("the capture ended", 5), "the…");
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(cut("漢字漢字", 4), "漢…");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".to_owned(), "…".to_owned()));
    }
}
