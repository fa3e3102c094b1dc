//! `rpcprobe requests DIR`

use std::io::{BufWriter, Write};

use anyhow::Result;

use crate::attribute::{REQUESTS, SEGMENTS};
use crate::cli::RequestsArgs;
use crate::output;
use crate::report::{self, RequestOptions};

pub fn requests(args: RequestsArgs) -> Result<i32> {
    let dir = super::open(&args.dir)?;
    let manifest = super::manifest(&dir)?;
    let rows = output::read_requests(&super::table(&dir, REQUESTS)?)?;
    let marks = report::modelled(output::stream_segments(&super::table(&dir, SEGMENTS)?)?)?;
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
    let stdout = std::io::stdout();
    let style = super::style(&stdout);
    let mut out = BufWriter::new(stdout.lock());
    if args.json {
        report::requests_json(&mut out, &manifest, &rows, &marks, &options)?;
    } else {
        report::requests(&mut out, &manifest, &rows, &marks, &options, style)?;
    }
    out.flush()?;
    Ok(0)
}
