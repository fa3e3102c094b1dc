//! Names of the places in stacks: the contents of `symbols.parquet`.
//!
//! The names are looked up once, at the end of a capture ([`resolve`]); afterwards the table serves
//! on any machine. A place without a name is shown as `[module+0xoffset]` or `[unknown]`. Names are
//! never guessed.

mod calls;
pub mod places;
pub mod resolve;

use std::fs::{File, Permissions};
use std::io::BufReader;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};

pub use crate::engine::symbols::{is_way_to_sleep, Line, Place, Symbols};

use crate::attribute::{tmp, EVENTS, SYMBOLS};
use crate::invoking_user::{OutputDir, Owner};
use crate::output;

/// Looks up every place in the capture's stacks and writes `symbols.parquet`; returns what went
/// wrong. See [`resolve::resolve`] for when to call it.
///
/// # Errors
/// The events cannot be read, or the file cannot be written.
pub fn write(dir: &OutputDir, reader: &Owner) -> Result<Vec<String>> {
    let events = BufReader::with_capacity(1 << 20, dir.open_file(EVENTS)?);
    let (symbols, warnings) = resolve::resolve(&places::places(events)?, reader);
    let tmp = tmp(SYMBOLS);
    dir.remove_file(&tmp)?;
    let file = dir.create_file(&tmp)?;
    let written = keep_private(&file).and_then(|()| output::write_symbols(file, &symbols));
    if written.is_err() {
        let _ = dir.remove_file(&tmp);
    }
    written?;
    dir.replace_file(SYMBOLS, tmp)?;
    Ok(warnings)
}

/// Makes a file private that has kernel addresses. They reveal the location of the kernel, which it
/// hides from the users of the machine.
///
/// # Errors
/// The file's permissions cannot be changed.
pub fn keep_private(file: &File) -> Result<()> {
    let private = Permissions::from_mode(0o600);
    file.set_permissions(private).context("cannot make a file private that has kernel addresses")
}
