//! `rpcprobe requests DIR`

use std::collections::{BTreeMap, HashSet};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;

use super::directory;
use crate::attribute::{REQUESTS, SEGMENTS};
use crate::cli::RequestsArgs;
use crate::model::Kind;
use crate::output;
use crate::report::{self, Marks, RequestOptions};

pub fn requests(args: RequestsArgs) -> Result<i32> {
    let dir = directory::open(args.dir.as_deref())?;
    let manifest = super::manifest(&dir)?;
    if let Some(none) = none_of(&args.filter.kind, &manifest.counts.requests_by_kind) {
        super::complain(&none);
    }
    let options = RequestOptions {
        sort: args.sort,
        reverse: args.reverse,
        limit: (args.limit > 0).then_some(args.limit),
        filter: args.filter.into(),
        incomplete: args.incomplete,
        slowest: args.slowest,
    };
    let rows = output::stream_requests(&super::table(&dir, REQUESTS)?)?;
    let selection = report::select(rows, &options, manifest.start_ns)?;
    let marks = marks(&super::table(&dir, SEGMENTS)?, &selection.ids())?;
    let stdout = std::io::stdout();
    let style = super::style(&stdout);
    let mut out = BufWriter::new(stdout.lock());
    if args.json {
        report::requests_json(&mut out, &manifest, &selection, &marks)?;
    } else {
        report::requests(&mut out, &manifest, &selection, &marks, style)?;
    }
    out.flush()?;
    Ok(0)
}

/// Says which of the requested kinds have no requests in the capture, and which kinds have some.
fn none_of(kinds: &[Kind], by_kind: &BTreeMap<String, u64>) -> Option<String> {
    let none: Vec<String> = (kinds.iter().filter(|kind| !by_kind.contains_key(kind.name())))
        .map(|kind| format!("`{kind}`"))
        .collect();
    let has: Vec<String> =
        by_kind.iter().map(|(kind, number)| format!("{kind} {number}")).collect();
    let has = if has.is_empty() { "none of any kind".to_owned() } else { has.join(", ") };
    (!none.is_empty()).then(|| {
        format!(
            "no request of kind {}; this capture has {}",
            none.join(" or "),
            report::escape(&has)
        )
    })
}

/// Up to this many requests are looked up one by one instead of in a pass over all segments.
const FEW: usize = 64;

fn marks(segments: &Path, ids: &HashSet<u64>) -> Result<Marks> {
    if ids.len() > FEW {
        return report::modelled(output::stream_segments(segments)?, ids);
    }
    let mut marks = Marks::new();
    for &id in ids {
        let of_one = output::read_segments_of(segments, id)?;
        marks.extend(report::modelled(of_one.into_iter().map(|one| Ok((id, one))), ids)?);
    }
    Ok(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_a_capture_has_none_of() {
        let has = BTreeMap::from([("exec".to_owned(), 3), ("pipe".to_owned(), 300)]);
        assert_eq!(none_of(&[], &has), None);
        assert_eq!(none_of(&[Kind::Pipe], &has), None);
        assert_eq!(
            none_of(&[Kind::Udp, Kind::Pipe, Kind::Tcp], &has).unwrap(),
            "no request of kind `udp` or `tcp`; this capture has exec 3, pipe 300"
        );
        assert_eq!(
            none_of(&[Kind::Pipe], &BTreeMap::new()).unwrap(),
            "no request of kind `pipe`; this capture has none of any kind"
        );
    }
}
