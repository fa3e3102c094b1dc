//! The contents of a capture, for a filter that matches nothing.

use std::io::Write;

use anyhow::Result;

use super::largest::Largest;
use super::layout::wrap;
use super::survey::Contents;
use super::text::escape;
use super::units::{format_exact, format_ns};
use super::Style;

/// Maximum number of names listed of each sort.
const LISTED: usize = 8;

/// Writes the contents.
///
/// # Errors
/// When `out` cannot be written.
pub fn contents(out: &mut dyn Write, contents: &Contents, style: Style) -> Result<()> {
    if contents.kinds.is_empty() {
        return Ok(writeln!(out, "There are no requests in this capture.")?);
    }
    writeln!(out, "No request passes the filter. There are:")?;
    let kinds: Vec<_> =
        contents.kinds.iter().map(|(kind, n)| (kind.name(), u128::from(*n))).collect();
    let names = |of: &Largest| of.sorted().into_iter().map(|(n, c)| (n.to_owned(), c)).collect();
    let lists: [(&str, Vec<(String, u128)>); 5] = [
        ("kind", kinds.into_iter().map(|(name, n)| (name.to_owned(), n)).collect()),
        ("method", names(&contents.methods)),
        ("status", names(&contents.statuses)),
        ("client", names(&contents.clients)),
        ("server", names(&contents.servers)),
    ];
    for (what, list) in lists {
        if list.is_empty() {
            continue;
        }
        let mut shown: Vec<_> = list
            .iter()
            .take(LISTED)
            .map(|(name, n)| format!("{} ({})", escape(name), format_exact(*n)))
            .collect();
        match list.len().saturating_sub(LISTED) {
            0 => {}
            more => shown.push(format!("{more} others")),
        }
        write!(out, "{}", wrap(&format!("  {what:<8} {}", shown.join(", ")), "    ", style))?;
    }
    let time = |ns: i128| {
        let sign = if ns < 0 { "-" } else { "" };
        format!("{sign}{}", format_ns(ns.unsigned_abs()))
    };
    if let Some((first, last)) = contents.starts_ns {
        writeln!(out, "  started  {} to {} into the capture", time(first), time(last))?;
    }
    if let Some((least, most)) = contents.latencies_ns {
        writeln!(out, "  latency  {} to {}", format_ns(least), format_ns(most))?;
    }
    Ok(())
}
