//! Text from outside in a figure.

use rpcprobe_report::{escape, format_share};

/// Characters of a name beside an axis, at most.
const SHORT: usize = 30;
const SHORTER: usize = 20;

/// Text as plotly shows it as it is: plotly takes `<b>`, `<br>` and others for markup, and names of entities for what
/// they name. What steers terminals or reorders lines is escaped first, as in all of our output.
pub fn label(text: &str) -> String {
    marked_up(&escape(text))
}

/// The same, its middle left out where it is long.
pub fn short(text: &str) -> String {
    cut(text, SHORT)
}

/// For a place with less room.
pub fn shorter(text: &str) -> String {
    cut(text, SHORTER)
}

/// A share in per cent, of which the smallest is `<0.1 %`.
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
