//! `--btf FILE`: the layout of the kernel's structures from a file, whole type information (BTF) or what
//! `bpftool gen min_core_btf` leaves of it. libbpf reads it instead of the kernel's own when it adjusts the programs'
//! accesses (`btf_custom_path`). What there is to attach to only the kernel's own tells: its target is known to the
//! kernel by its number there (`check_attach_btf_id()`, kernel/bpf/verifier.c).

use std::path::Path;

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::btf::types::Struct;
use libbpf_rs::btf::{Btf, HasSize};

use super::Config;

/// Checks that a file tells the layout of the running kernel's structures, as far as their sizes show.
///
/// # Errors
/// It cannot be read, is not BTF or not all of it, or is of something else.
pub(super) fn check(file: &Path, own: &Btf<'_>) -> Result<()> {
    let shown = file.display();
    match std::fs::File::open(file).and_then(|file| file.metadata()) {
        Err(error) => bail!("cannot read the type information {shown} (--btf): {error}"),
        Ok(of) if of.is_dir() => bail!("the type information {shown} (--btf) is a directory"),
        Ok(_) => {}
    }
    let btf = Btf::from_path(file).with_context(|| {
        format!(
            "the type information {shown} (--btf) cannot be parsed; it is no BTF, or not all of it"
        )
    })?;
    // Of these every program reads some.
    for name in ["task_struct", "sock"] {
        let Some(there) = size_bytes(&btf, name) else {
            bail!(
                "the type information {shown} (--btf) is not of a kernel: it has no struct {name}"
            );
        };
        if let Some(here) = size_bytes(own, name).filter(|here| *here != there) {
            bail!(
                "the type information {shown} (--btf) is of another kernel: its struct {name} has {there} bytes, \
                 the running kernel's {here}"
            );
        }
    }
    Ok(())
}

/// The error for a kernel without type information of its own, if a file was given.
pub(super) fn not_replaced(error: anyhow::Error, config: &Config) -> anyhow::Error {
    match config.btf {
        None => error,
        Some(_) => anyhow!(
            "{error:#}; --btf replaces only what that says of the layout of structures, and not what BTF \
             tracepoints attach to"
        ),
    }
}

fn size_bytes(btf: &Btf<'_>, name: &str) -> Option<usize> {
    btf.type_by_name::<Struct<'_>>(name).map(|of| of.size())
}
