//! Text from outside, as shown in figures.

use rpcprobe_report::{escape, format_share};

/// Maximum number of characters of a name beside an axis.
const SHORT: usize = 30;
const SHORTER: usize = 20;

/// Escapes text so that plotly shows it literally: plotly interprets `<b>`, `<br>` and others as markup, and resolves
/// names of entities. Characters that steer terminals or reorder lines are escaped first, as in all of our output.
pub fn label(text: &str) -> String {
    marked_up(&escape(text))
}

/// Escapes text like [`label`], and leaves out the middle of a long text.
pub fn short(text: &str) -> String {
    cut(text, SHORT)
}

/// Like [`short`], for places with less room.
pub fn shorter(text: &str) -> String {
    cut(text, SHORTER)
}

/// Formats a share in per cent; shares that would round to nothing are `<0.1 %`.
pub fn share(part: impl Into<u128>, whole: impl Into<u128>) -> String {
    marked_up(&format_share(part, whole))
}

fn cut(text: &str, most: usize) -> String {
    let text: Vec<char> = escape(text).chars().collect();
    if text.len() <= most {
        return marked_up(&text.into_iter().collect::<String>());
    }
    let head: String = text[..most / 2].iter().collect();
    let tail: String = text[text.len() - (most - most / 2 - 1)..].iter().collect();
    marked_up(&format!("{head}…{tail}"))
}

fn marked_up(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text() {
        let hostile = "<b>x</b>&amp;\n\u{2028}\"'</script><script>alert(1)</script>";
        let shown = label(hostile);
        assert!(!shown.contains(['<', '>', '\n', '\u{2028}']), "{shown}");
        assert!(shown.starts_with("&lt;b&gt;x&lt;/b&gt;&amp;amp;\\n\\u{2028}"), "{shown}");
    }

    #[test]
    fn long_names_keep_both_ends() {
        let name: String = ('a'..='z').chain('a'..='z').collect();
        let shown = short(&name);
        assert_eq!(shown.chars().count(), SHORT);
        assert!(shown.starts_with("abc") && shown.ends_with("xyz"));
    }
}
