//! `rpcprobe explain [DIR] ID`

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{bail, Context, Result};

use crate::attribute::{REQUESTS, SEGMENTS, STACKS};
use crate::cli::ExplainArgs;
use crate::output;
use crate::report;

pub fn explain(args: ExplainArgs) -> Result<i32> {
    let (dir, id) = match &args.target[..] {
        [id] => (PathBuf::from("rpcprobe.out"), id),
        [dir, id] => (PathBuf::from(dir), id),
        _ => unreachable!("clap allows one or two"),
    };
    let id: u64 = (id.to_str().and_then(|text| text.parse().ok()))
        .with_context(|| format!("{} is not the number of a request", id.to_string_lossy()))?;
    let dir = super::open(&dir)?;
    let manifest = super::manifest(&dir)?;
    let (mut found, mut read) = (None, 0);
    for row in output::stream_requests(&super::table(&dir, REQUESTS)?)? {
        let row = row?;
        read += 1;
        if row.request.request_id == id {
            found = Some(row);
            break;
        }
    }
    let Some(row) = found else {
        bail!("{} has no request {id}; it has {read}", dir.path().display());
    };
    let segments = output::read_segments_of(&super::table(&dir, SEGMENTS)?, id)?;
    let wanted = report::stack_ids(&segments);
    let stacks = match wanted.is_empty() {
        true => report::ShownStacks::new(),
        false => output::read_stacks(&super::table(&dir, STACKS)?, &wanted)?,
    };
    let stdout = std::io::stdout();
    let style = super::style(&stdout);
    let mut out = BufWriter::new(stdout.lock());
    if args.json {
        report::explain_json(&mut out, &manifest, &row.request, &segments, &stacks)?;
    } else {
        report::explain(&mut out, &manifest, &row.request, &segments, &stacks, args.all, style)?;
    }
    out.flush()?;
    Ok(0)
}
