//! `rpcprobe requests DIR`

use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;

use crate::attribute::{REQUESTS, SEGMENTS};
use crate::cli::RequestsArgs;
use crate::output;
use crate::report::{self, Marks, RequestOptions};

pub fn requests(args: RequestsArgs) -> Result<i32> {
    let dir = super::open(&args.dir)?;
    let manifest = super::manifest(&dir)?;
    let options = RequestOptions {
        sort: args.sort,
        reverse: args.reverse,
        limit: (args.limit > 0).then_some(args.limit),
        kinds: args.kind,
        incomplete: args.incomplete,
        min_latency_ns: args.min,
        max_latency_ns: args.max,
        slowest: args.slowest,
    };
    let rows = output::stream_requests(&super::table(&dir, REQUESTS)?)?;
    let selection = report::select(rows, &options)?;
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

/// So many requests are looked up one by one, not in a pass over all segments.
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
