//! Reads captures for comparisons.

use anyhow::Result;

use crate::attribute::{REQUESTS, SEGMENTS};
use crate::capture::manifest::Manifest;
use crate::compare::Run;
use crate::invoking_user::OutputDir;
use crate::output;
use crate::report::{Passes, RequestFilter};

/// Sums up a capture.
///
/// # Errors
/// Files that are missing, damaged or of another format; the error names them.
pub(super) fn read(
    dir: &OutputDir,
    manifest: Manifest,
    filter: &RequestFilter,
    with_series: bool,
) -> Result<Run> {
    let rows = output::stream_requests(&super::table(dir, REQUESTS)?)?;
    let segments = output::stream_segments(&super::table(dir, SEGMENTS)?)?;
    let start_ns = manifest.start_ns;
    let wanted = |request: &_| filter.passes(request, start_ns) != Passes::No;
    let name = dir.path().display().to_string();
    Run::of(name, manifest, rows, segments, &wanted, with_series)
}
