//! `rpcprobe attribute DIR`

use std::io::{BufReader, BufWriter};

use anyhow::Result;

use crate::attribute;
use crate::attribute::MANIFEST;
use crate::capture::manifest::{Manifest, FORMAT_VERSION};
use crate::cli::AttributeArgs;

pub fn attribute(args: AttributeArgs) -> Result<i32> {
    let dir = super::open(&args.dir)?;
    // A capture that broke off has no manifest; what its events say is all there is.
    let broken_off = args.allow_truncated && dir.open_file(MANIFEST).is_err();
    let mut manifest = if broken_off {
        let events = BufReader::new(dir.open_file(attribute::EVENTS)?);
        Manifest {
            format_version: FORMAT_VERSION,
            losses: attribute::losses(events, true)?,
            warnings: vec!["the capture broke off before its manifest was written".into()],
            ..Manifest::default()
        }
    } else {
        super::manifest(&dir)?
    };
    manifest.options.requests = args.wanted.request;
    attribute::attribute(&dir, &mut manifest, args.allow_truncated)?;
    if !args.quiet {
        let stdout = std::io::stdout();
        let style = super::style(&stdout);
        super::write_report(&mut BufWriter::new(stdout.lock()), &dir, args.json, style)?;
    }
    Ok(0)
}
