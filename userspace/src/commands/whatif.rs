//! `rpcprobe whatif DIR --without CATEGORY...`

use std::io::{BufWriter, Write};

use anyhow::{Context, Result};

use super::directory;
use crate::attribute::{REQUESTS, SEGMENTS};
use crate::cli::WhatifArgs;
use crate::output;
use crate::report::{Passes, RequestFilter};
use crate::whatif;

pub fn whatif(args: WhatifArgs) -> Result<i32> {
    let dir = directory::open(args.dir.as_deref())?;
    let manifest = super::manifest(&dir)?;
    let filter = RequestFilter::from(args.filter);
    let rows = output::stream_requests(&super::table(&dir, REQUESTS)?)?;
    let segments = output::stream_segments(&super::table(&dir, SEGMENTS)?)?;
    let wanted = |request: &_| filter.passes(request, manifest.start_ns) != Passes::No;
    let estimate = whatif::whatif(rows, segments, &args.without, &wanted)
        .with_context(|| dir.path().display().to_string())?;
    let stdout = std::io::stdout();
    let style = super::style(&stdout);
    let mut out = BufWriter::new(stdout.lock());
    match args.json {
        true => super::print_json(&mut out, &estimate)?,
        false => whatif::write(&mut out, &estimate, style)?,
    }
    out.flush()?;
    Ok(0)
}
