//! Fits text into a terminal: words are wrapped at blanks, and text that is too long is cut with an ellipsis.

use super::Style;

/// Units that stay on one line with their number.
const UNITS: [&str; 6] = ["ns", "us", "ms", "s", "%", "us,"];

/// Number of cells of a line, if the output is a terminal.
pub fn columns(style: Style) -> Option<usize> {
    style.width.map(|width| usize::from(width).max(20))
}

/// Shortens text to at most `width` characters. A longer text loses its middle, so that both ends can be read.
pub fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let head = text.chars().take(head);
    let tail = text.chars().skip(length - tail);
    head.chain(['…']).chain(tail).take(width).collect()
}

/// Wraps text into lines of at most `style.width` characters, each with a line end. Lines after the first begin with
/// `indent`. No word is broken, and no number is separated from its unit; only a word longer than a line is cut.
pub fn wrap(text: &str, indent: &str, style: Style) -> String {
    let Some(width) = columns(style) else { return format!("{text}\n") };
    let mut out = String::new();
    let mut line = String::new();
    for word in words(text) {
        let room = width - if out.is_empty() { 0 } else { indent.chars().count() };
        let word = cut(word, room);
        let taken = line.chars().count() + word.chars().count() + usize::from(!line.is_empty());
        if !line.is_empty() && taken > room {
            end_line(&mut out, &line, indent);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += &word;
    }
    end_line(&mut out, &line, indent);
    out
}

fn end_line(out: &mut String, line: &str, indent: &str) {
    if !out.is_empty() {
        out.push_str(indent);
    }
    out.push_str(line);
    out.push('\n');
}

/// Splits text at its blanks, except those between a number and its unit. Leading blanks stay.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut from = 0;
    let begin = text.len() - text.trim_start_matches(' ').len();
    let mut blanks = text[begin..].match_indices(' ').map(|(at, _)| begin + at).peekable();
    while let Some(at) = blanks.next() {
        let next = &text[at + 1..blanks.peek().map_or(text.len(), |next| *next)];
        let unit = next.trim_end_matches([',', '.', ';', ':', ')']);
        let after_number = text[from..at].ends_with(|c: char| c.is_ascii_digit());
        if !(after_number && UNITS.contains(&unit)) {
            words.push(&text[from..at]);
            from = at + 1;
        }
    }
    words.push(&text[from..]);
    words
}

/// Shortens text at its end.
fn cut_end(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect(),
        false => text.to_owned(),
    }
}

/// Makes a table fit by cutting its cells, column by column in the order of `shrink`, each to no less than its minimum
/// number of characters. Cells of the last column are cut at their end. `taken` is the width that the table needs
/// besides the content of its cells.
pub fn fit(
    header: &[&str],
    rows: &mut [Vec<String>],
    shrink: &[(usize, usize)],
    taken: usize,
    style: Style,
) {
    let Some(width) = columns(style) else { return };
    let length = |text: &str| text.chars().count();
    let widest = |rows: &[Vec<String>], column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| length(cell));
        cells.chain(header.get(column).map(|name| length(name))).max().unwrap_or(0)
    };
    for &(column, least) in shrink {
        let whole: usize = (0..header.len()).map(|i| widest(rows, i)).sum::<usize>() + taken;
        let Some(over) = whole.checked_sub(width).filter(|over| *over > 0) else { return };
        let room = widest(rows, column).saturating_sub(over).max(least);
        for row in rows.iter_mut() {
            if let Some(cell) = row.get_mut(column) {
                let is_last = column + 1 == header.len();
                *cell = if is_last { cut_end(cell, room) } else { cut(cell, room) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn narrow(width: u16) -> Style {
        Style { color: false, width: Some(width) }
    }

    #[test]
    fn long_words_lose_their_middle() {
        assert_eq!(cut("abcdefgh", 8), "abcdefgh");
        assert_eq!(cut("abcdefgh", 5), "ab…gh");
        assert_eq!(cut("abcdefgh", 4), "ab…h");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("…".into(), String::new()));
    }

    #[test]
    fn lines_break_at_blanks_and_not_before_units() {
        let text = "The slowest take 4.10 ms more than typical ones";
        assert_eq!(
            wrap(text, "  ", narrow(23)),
            "The slowest take\n  4.10 ms more than\n  typical ones\n"
        );
        assert_eq!(wrap(text, "  ", Style::default()), format!("{text}\n"));
        assert_eq!(wrap("  a b", "", narrow(20)), "  a b\n");
        assert_eq!(wrap("", "", narrow(20)), "\n");
        let long = wrap(&"x".repeat(50), "", narrow(20));
        assert_eq!(long.trim_end().chars().count(), 20);
    }

    #[test]
    fn tables_shrink_where_they_may() {
        let mut rows = vec![vec!["GET /a/very/long/path".to_owned(), "12".to_owned()]];
        fit(&["method", "n"], &mut rows, &[(0, 10)], 4, narrow(20));
        assert_eq!(
            rows[0],
            ["GET /a/…ng/path", "12"][..].iter().map(|s| cut(s, 14)).collect::<Vec<_>>()
        );
    }
}
