//! `rpcprobe explain [DIR] ID`, `rpcprobe explain [DIR] --slowest [N]`

use std::ffi::OsStr;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{bail, Context, Result};

use super::{directory, usage};
use crate::attribute::{REQUESTS, SEGMENTS, STACKS};
use crate::capture::manifest::Manifest;
use crate::cli::ExplainArgs;
use crate::invoking_user::OutputDir;
use crate::output::{self, RequestRow};
use crate::report::{self, escape, Contents, Explained, Relatives, RequestFilter, RequestOptions};

pub fn explain(args: ExplainArgs) -> Result<i32> {
    let filter = RequestFilter::from(args.filter);
    let (dir, wanted) = match (&args.target[..], args.slowest) {
        // Accepts `--slowest 3`, as `requests` does.
        ([n], Some(1)) if parsed(n).is_some() && !Path::new(n).exists() => {
            (None, Wanted::Slowest(number(n)? as usize, Box::new(filter)))
        }
        ([] | [_], Some(n)) => (args.target.first(), Wanted::Slowest(n, Box::new(filter))),
        ([id], None) if parsed(id).is_none() && Path::new(id).is_dir() => {
            return usage(which_of(&escape(&id.to_string_lossy())));
        }
        _ if args.slowest.is_some() => {
            return usage("--slowest stands in place of the number of a request: give one of both");
        }
        (_, None) if !filter.is_empty() => {
            return usage("a filter selects from the requests of --slowest: give that, too");
        }
        ([id], None) => (None, Wanted::Id(number(id)?)),
        ([dir, id], None) => (Some(dir), Wanted::Id(number(id)?)),
        _ => bail!("give a capture and a request's number"),
    };
    let dir = directory::open(dir.map(Path::new))?;
    let manifest = super::manifest(&dir)?;
    let stdout = std::io::stdout();
    let style = super::style(&stdout);
    let mut out = BufWriter::new(stdout.lock());
    let rows = match wanted {
        Wanted::Id(id) => vec![by_id(&dir, id)?],
        Wanted::Slowest(n, filter) => match slowest(&dir, &manifest, n, *filter)? {
            Ok(rows) => rows,
            Err(contents) if args.json => {
                drop(contents);
                Vec::new()
            }
            Err(contents) => {
                report::contents(&mut out, &contents, style)?;
                Vec::new()
            }
        },
    };
    let requests: Vec<_> = rows.iter().map(|row| &row.request).collect();
    let all_rows = output::stream_requests(&super::table(&dir, REQUESTS)?)?;
    let relatives = Relatives::of(&requests, all_rows)?;
    let mut values = Vec::new();
    for (i, (request, relatives)) in requests.into_iter().zip(&relatives).enumerate() {
        let segments =
            output::read_segments_of(&super::table(&dir, SEGMENTS)?, request.request_id)?;
        let wanted = report::stack_ids(&segments);
        let stacks = match wanted.is_empty() {
            true => report::ShownStacks::new(),
            false => output::read_stacks(&super::table(&dir, STACKS)?, &wanted)?,
        };
        let (manifest, segments, stacks) = (&manifest, &segments[..], &stacks);
        let explained = Explained { manifest, request, segments, stacks, relatives };
        if args.json {
            values.push(report::explain_value(&explained)?);
            continue;
        }
        if i > 0 {
            writeln!(out)?;
        }
        report::explain(&mut out, &explained, args.all, style)?;
    }
    if args.json {
        report::explanations_json(&mut out, values)?;
    }
    out.flush()?;
    Ok(0)
}

/// Which requests to explain.
enum Wanted {
    Id(u64),
    Slowest(usize, Box<RequestFilter>),
}

fn parsed(text: &OsStr) -> Option<u64> {
    text.to_str()?.parse().ok()
}

fn number(id: &OsStr) -> Result<u64> {
    parsed(id).with_context(|| {
        format!("{} is not the number of a request", escape(&id.to_string_lossy()))
    })
}

/// The message for a directory given without a request.
fn which_of(dir: &str) -> String {
    format!(
        "which request of {dir}? `rpcprobe explain {dir} ID` shows one, `rpcprobe explain {dir} --slowest` \
         the slowest; `rpcprobe requests {dir} --slowest 5` lists the slowest"
    )
}

fn by_id(dir: &OutputDir, id: u64) -> Result<RequestRow> {
    let mut read = 0;
    for row in output::stream_requests(&super::table(dir, REQUESTS)?)? {
        let row = row?;
        read += 1;
        if row.request.request_id == id {
            return Ok(row);
        }
    }
    bail!("{} has no request {id}; it has {read}", dir.path().display());
}

/// Returns the slowest complete requests that pass, slowest first; or the contents of the capture,
/// if none passes.
fn slowest(
    dir: &OutputDir,
    manifest: &Manifest,
    n: usize,
    filter: RequestFilter,
) -> Result<Result<Vec<RequestRow>, Contents>> {
    let requests = super::table(dir, REQUESTS)?;
    let options = RequestOptions { filter, slowest: Some(n), ..RequestOptions::default() };
    let complete = output::stream_requests(&requests)?
        .filter(|row| row.as_ref().map_or(true, |row| row.request.complete));
    let rows = report::select(complete, &options, manifest.start_ns)?.into_rows();
    if !rows.is_empty() || n == 0 {
        return Ok(Ok(rows));
    }
    let mut contents = Contents::default();
    contents.capture(output::stream_requests(&requests)?, manifest.start_ns)?;
    Ok(Err(contents))
}
