//! Text and tables in HTML.

use rpcprobe_report::escape;

/// Escapes text so that a browser shows it literally. Characters that steer terminals or reorder lines are escaped
/// first, as in all of our output.
pub fn text(text: &str) -> String {
    entities(&escape(text))
}

/// Escapes text for HTML only; everything else must already be escaped.
pub fn entities(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// A table whose cells are HTML. Columns in `right` hold numbers.
pub struct Table<'t> {
    pub caption: String,
    pub header: &'t [&'t str],
    pub right: &'t [usize],
    pub rows: Vec<Vec<String>>,
}

impl Table<'_> {
    pub fn html(&self) -> String {
        let class = |column: usize| if self.right.contains(&column) { " class=n" } else { "" };
        let mut out = format!("<div class=scroll><table><caption>{}</caption>\n<tr>", self.caption);
        for (column, name) in self.header.iter().enumerate() {
            out += &format!("<th scope=col{}>{name}", class(column));
        }
        for row in &self.rows {
            out += "\n<tr>";
            for (column, cell) in row.iter().enumerate() {
                match column {
                    0 => out += &format!("<th scope=row>{cell}"),
                    _ => out += &format!("<td{}>{cell}", class(column)),
                }
            }
        }
        out + "\n</table></div>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text() {
        let hostile = "</script><script>alert(1)</script>\n\u{2028}\"'&";
        let shown = text(hostile);
        assert!(!shown.contains(['<', '>', '\n', '\u{2028}', '"', '\'']), "{shown}");
        assert!(shown.ends_with("\\n\\u{2028}&quot;&#39;&amp;"), "{shown}");
    }
}
