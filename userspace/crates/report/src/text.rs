//! Text on a terminal: escapes text from outside, colours it, aligns tables.

use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table};

use super::palette::color_of;
use super::Style;
use rpcprobe_model::{Category, End, Evidence};

/// Mark of figures that depend, in whole or in part, on modelled evidence.
pub(super) const MODELLED: &str = "~";
/// Mark of figures that depend on sampled evidence.
pub(super) const SAMPLED: &str = "*";

/// Replaces everything that could steer a terminal or reorder a line by a visible escape.
///
/// Programs choose their own names and paths, so these may contain any byte. Control characters
/// (C0, DEL, C1) and invisible or direction-changing characters become `\x1b` or `\u{202e}`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let code = u32::from(c);
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            _ if c.is_control() => out.push_str(&format!("\\x{code:02x}")),
            '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}' => out.push_str(&format!("\\u{{{code:x}}}")),
            _ => out.push(c),
        }
    }
    out
}

/// Formats an end as `comm/tid`, or `-`.
pub fn end(end: Option<&End>) -> String {
    end.map_or("-".to_owned(), |end| format!("{}/{}", escape(&end.comm), end.tid))
}

/// Returns the marks that follow a name whose figures are not all measured.
pub fn marks(modelled: bool, sampled: bool) -> &'static str {
    match (modelled, sampled) {
        (false, false) => "",
        (true, false) => " ~",
        (false, true) => " *",
        (true, true) => " ~*",
    }
}

/// The mark of one kind of evidence.
pub fn evidence_mark(evidence: Evidence) -> &'static str {
    marks(evidence == Evidence::Modelled, evidence == Evidence::Sampled)
}

/// Describes a status encoded as in wait(2).
pub fn wait_status(status: i32) -> String {
    match status & 0x7f {
        0 => format!("exit {}", status >> 8 & 0xff),
        signal => format!("signal {signal}"),
    }
}

pub fn bold(text: &str, style: Style) -> String {
    ansi("1", text, style)
}

/// Formats text that the reader must not overlook.
pub fn alarm(text: &str, style: Style) -> String {
    ansi("1;31", text, style)
}

fn ansi(code: &str, text: &str, style: Style) -> String {
    if style.color {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Makes a table without lines. `header` names the columns; those in `right` are aligned to the
/// right.
pub fn table(header: &[&str], right: &[usize], style: Style) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if style.color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.set_header(header.iter().map(|name| heading(name, style)));
    for (i, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn heading(name: &str, style: Style) -> Cell {
    let cell = Cell::new(name);
    if style.color {
        cell.add_attribute(Attribute::Bold)
    } else {
        cell
    }
}

/// A cell in the colour of its category.
pub fn tinted(text: String, category: Category, style: Style) -> Cell {
    let cell = Cell::new_owned(text);
    if style.color {
        cell.fg(color_of(category))
    } else {
        cell
    }
}

/// Returns the lines of a table, indented, without trailing blanks.
pub fn indented(table: &Table, indent: &str) -> String {
    let lines = table.lines().map(|line| format!("{indent}{}\n", line.trim_end()));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        let hostile = "a\x1b[31mb\nc\r\t\u{7f}\u{9b}2J\u{202e}d\u{2066}\u{feff}é漢";
        let safe = escape(hostile);
        assert_eq!(safe, "a\\x1b[31mb\\nc\\r\\t\\x7f\\x9b2J\\u{202e}d\\u{2066}\\u{feff}é漢");
        assert!(!safe.chars().any(char::is_control));
    }

    #[test]
    fn statuses() {
        assert_eq!(wait_status(0), "exit 0");
        assert_eq!(wait_status(3 << 8), "exit 3");
        assert_eq!(wait_status(9), "signal 9");
        assert_eq!(wait_status(139), "signal 11");
    }
}
