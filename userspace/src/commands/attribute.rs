//! `rpcprobe attribute DIR`

use std::io::BufReader;

use anyhow::Result;

use super::directory;
use crate::attribute;
use crate::attribute::{Choices, MANIFEST};
use crate::capture::manifest::{Manifest, FORMAT_VERSION};
use crate::cli::AttributeArgs;
use crate::interrupt::{self, Interrupted};

pub fn attribute(args: AttributeArgs) -> Result<i32> {
    let dir = directory::open(args.dir.as_deref())?;
    // A capture that broke off has no manifest; only its events are available.
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
    interrupt::catch();
    let choices = Choices { allow_truncated: args.allow_truncated, every_piece: args.every_piece };
    let attributed = attribute::attribute(&dir, &mut manifest, choices, !args.quiet);
    attributed.map_err(|error| match error.is::<Interrupted>() {
        true => error.context(format!(
            "{shown} is as it was; `rpcprobe attribute {shown}` starts again",
            shown = dir.path().display()
        )),
        false => error,
    })?;
    interrupt::release();
    if !args.quiet {
        super::print_report(std::io::stdout(), &dir, args.json)?;
    }
    Ok(0)
}
