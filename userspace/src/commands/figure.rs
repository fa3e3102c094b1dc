//! `rpcprobe figure NAME DIR...`

use std::collections::BTreeSet;
use std::io::{BufWriter, Write};

use anyhow::{bail, Result};
use serde_json::Value;

use super::gathered::{self, Figures};
use super::request_ids;
use crate::cli::FigureArgs;
use crate::figures::{figure as figure_of, Drawn, GroupKey, Name, Selection};
use crate::output;
use crate::report::{Query, RequestFilter};

pub fn figure(args: FigureArgs) -> Result<i32> {
    let stdout = std::io::stdout();
    let mut out = BufWriter::new(stdout.lock());
    let Some(name) = args.name else {
        for name in Name::ALL {
            writeln!(out, "{:<10} {}", name.name(), name.shows())?;
        }
        out.flush()?;
        return Ok(0);
    };
    let mut filter = RequestFilter::from(args.filter);
    filter.ids = request_ids::of(&args.id, args.ids.as_deref())?;
    let value = match name {
        Name::Shift | Name::Waterfall => of_sides(name, &args.dirs, &filter)?,
        Name::Timeline => time_line(&args.dirs, filter)?,
        _ => {
            let selection =
                Selection { band: args.band.unwrap_or_default(), category: args.category };
            of_group(name, &args.dirs, filter, selection)?
        }
    };
    if args.json {
        super::print_json(&mut out, &value)?;
    } else {
        serde_json::to_writer(&mut out, &value)?;
        writeln!(out)?;
    }
    out.flush()?;
    Ok(0)
}

fn of_group(
    name: Name,
    dirs: &[std::path::PathBuf],
    filter: RequestFilter,
    selection: Selection,
) -> Result<Value> {
    let query = Query { filter, by: None };
    let captures = gathered::open(dirs)?;
    if let Some(ids) = &query.filter.ids {
        request_ids::check(&captures, ids)?;
    }
    let figures = Figures::of(captures, query)?;
    let groups = &figures.gathered.groups;
    let kinds: Vec<_> = groups.iter().filter(|group| group.key.method.is_none()).collect();
    let group = match &kinds[..] {
        [] if figures.query.filter.is_empty() => bail!("there are no complete requests"),
        [] => bail!("no complete request passes the filter: {}", figures.query.filter),
        // The first kind is the one a report begins with.
        [first, ..] => *first,
    };
    let GroupKey { kind, .. } = &group.key;
    if let [_, others @ ..] = &kinds[..] {
        if !others.is_empty() && name != Name::Tree {
            let others: Vec<_> = others.iter().map(|of| of.key.kind.name()).collect();
            super::complain(&format_args!(
                "of {kind} requests; --kind selects others ({})",
                others.join(", ")
            ));
        }
    }
    if selection.band != Default::default() && !group.bands().contains(&selection.band) {
        bail!("{} {kind} requests are too few for percentile bands", group.requests);
    }
    match figure_of(name, &figures.gathered, group, selection) {
        Some(figure) => Ok(figure),
        None => bail!("`{}` is of one request", name.name()),
    }
}

/// Draws a figure of the first kind that both sides have.
fn of_sides(name: Name, dirs: &[std::path::PathBuf], filter: &RequestFilter) -> Result<Value> {
    let Some(sides) = super::sides::of(dirs, filter)? else {
        bail!("`{}` is of two captures, or of the directory of an `ab`", name.name());
    };
    let comparison = &sides.comparison;
    let Some(kind) = comparison.kinds.first() else { bail!("no kind of request is compared") };
    Ok(match name {
        Name::Shift => super::sides::shift_of(comparison, kind),
        _ => super::sides::waterfall_of(comparison, kind),
    })
}

/// Draws the time line of the request with the given id, or else of the slowest request that
/// passes.
fn time_line(dirs: &[std::path::PathBuf], filter: RequestFilter) -> Result<Value> {
    let captures = gathered::open(dirs)?;
    let [capture] = &captures[..] else { bail!("a time line is of one request of one capture") };
    let ids = filter.ids.as_ref().map(BTreeSet::len);
    let id = match (ids, filter.ids.as_ref().and_then(BTreeSet::first)) {
        (None, _) => slowest(capture, &filter)?,
        (Some(1), Some(id)) => *id,
        _ => bail!("a time line is of one request: give one --id"),
    };
    let rows = output::stream_requests(&capture.requests)?;
    let mut found = None;
    for row in rows {
        let row = row?;
        if row.request.request_id == id {
            found = Some(row.request);
            break;
        }
    }
    let Some(request) = found else { bail!("there is no request {id}") };
    let segments = output::read_segments_of(&capture.segments, id)?;
    match Drawn::of(0, capture.manifest.start_ns, request, &segments).figure() {
        Some(figure) => Ok(figure),
        None => bail!("request {id} has no segments"),
    }
}

fn slowest(capture: &super::report::Capture, filter: &RequestFilter) -> Result<u64> {
    let mut slowest: Option<(u64, std::cmp::Reverse<u64>)> = None;
    for row in output::stream_requests(&capture.requests)? {
        let request = row?.request;
        let passes = filter.passes(&request, capture.manifest.start_ns);
        if request.complete && passes == crate::report::Passes::Yes {
            let one = (request.latency_ns, std::cmp::Reverse(request.request_id));
            slowest = slowest.max(Some(one));
        }
    }
    match slowest {
        Some((_, std::cmp::Reverse(id))) => Ok(id),
        None => bail!("no complete request passes"),
    }
}
