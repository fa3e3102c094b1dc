//! `rpcprobe export DIR`

use std::path::{Path, PathBuf};

use anyhow::{ensure, Result};
use flate2::write::GzEncoder;
use flate2::Compression;

use super::{complain, directory, report::Capture};
use crate::cli::ExportArgs;
use crate::export::{self, Chosen, Format, Source, Which};
use crate::interrupt;
use crate::invoking_user::in_place;
use crate::output::{self, Batches};
use crate::progress::{Progress, Work};
use crate::report::{count, format_exact, format_ns, RequestFilter};

pub fn export(args: ExportArgs) -> Result<i32> {
    let capture = Capture::of(&directory::open(args.dir.as_deref())?)?;
    let filter = RequestFilter::from(args.filter);
    let which = match (args.slowest, args.window) {
        (Some(most), _) => Which::Slowest(usize::try_from(most)?),
        (None, Some(window)) => Which::Window { from_ns: window.from_ns, to_ns: window.to_ns },
        (None, None) => Which::All,
    };
    let rows = || output::stream_requests(&capture.requests);
    let chosen = export::choose(rows, &filter, which, capture.manifest.start_ns)?;
    if chosen.may_belong > 0 {
        let which = count(chosen.may_belong, "incomplete request");
        complain(&format_args!(
            "{which} not exported: the latency is not known, so the selection cannot be decided"
        ));
    }
    // On a signal, unfinished files are removed.
    interrupt::catch();
    if let Some(file) = &args.perfetto {
        trace(&capture, &chosen, filter.to_string(), file)?;
    }
    for (base, format) in [(&args.csv, Format::Csv), (&args.json, Format::JsonLines)] {
        if let Some(base) = base {
            let tables = [
                ("requests", output::request_batches(&capture.requests)?),
                ("segments", output::segment_batches(&capture.segments)?),
            ];
            for (name, batches) in tables {
                table(&capture, &chosen, batches, &beside(base, name, format)?, format)?;
            }
        }
    }
    interrupt::release();
    Ok(0)
}

fn trace(capture: &Capture, chosen: &Chosen, filter: String, file: &Path) -> Result<()> {
    let progress = Progress::of(Work::Exporting, capture.manifest.counts.requests, true);
    let (left_out, bytes) = in_place(file, capture.is_shared, |out| {
        let source = Source {
            manifest: &capture.manifest,
            chosen,
            filter,
            rows: progress.each(output::stream_requests(&capture.requests)?),
            segments: output::stream_segments(&capture.segments)?,
        };
        let go_on = || Ok(interrupt::check()?);
        if file.extension().is_none_or(|ending| ending != "gz") {
            return export::write_trace(out, source, &go_on);
        }
        let mut compressed = GzEncoder::new(out, Compression::default());
        let left_out = export::write_trace(&mut compressed, source, &go_on)?;
        compressed.finish()?;
        Ok(left_out)
    })?;
    drop(progress);
    told(file, bytes, chosen);
    if left_out.pieces > 0 {
        complain(&format_args!(
            "the tracks of threads lack {} of {} that were finished long after they began",
            format_ns(left_out.ns),
            count(left_out.pieces, "piece")
        ));
    }
    if chosen.links.left_out > 0 {
        let which = count(chosen.links.left_out, "request");
        complain(&format_args!("{which} have no arrow from the request they were made for"));
    }
    Ok(())
}

fn table(
    capture: &Capture,
    chosen: &Chosen,
    batches: Batches,
    file: &Path,
    format: Format,
) -> Result<()> {
    let ((), bytes) = in_place(file, capture.is_shared, |out| {
        export::write_rows(out, batches, &chosen.ids, format, &|| Ok(interrupt::check()?))
    })?;
    told(file, bytes, chosen);
    Ok(())
}

fn told(file: &Path, bytes: u64, chosen: &Chosen) {
    let requests = match chosen.requests == chosen.in_capture {
        true => count(chosen.requests, "request"),
        false => {
            format!("{} of {}", format_exact(chosen.requests), count(chosen.in_capture, "request"))
        }
    };
    let size = match bytes {
        0..100_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    };
    complain(&format_args!("{}: {requests} ({size})", file.display()));
}

/// Returns `slow.requests.csv` for `slow` or `slow/`.
///
/// # Errors
/// `base` does not end in a name.
fn beside(base: &Path, table: &str, format: Format) -> Result<PathBuf> {
    ensure!(base.file_name().is_some(), "{} is no name for files", base.display());
    let base: PathBuf = base.components().collect();
    let mut name = base.into_os_string();
    name.push(format!(".{table}.{}", format.ending()));
    Ok(PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_lie_beside_each_other() {
        let of = |base| beside(Path::new(base), "requests", Format::Csv).ok();
        assert_eq!(of("slow"), Some("slow.requests.csv".into()));
        assert_eq!(of("a/slow/"), Some("a/slow.requests.csv".into()));
        for wrong in [".", "..", "/", "a/.."] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
