//! `--btf FILE`: reads the layout of the kernel's structures from a file, which has complete type information (BTF) or
//! the part of it that `bpftool gen min_core_btf` leaves. libbpf reads the file instead of the kernel's own BTF when it
//! adjusts the programs' accesses (`btf_custom_path`). Attaching still requires the kernel's own BTF: the kernel knows
//! a target by its number there (`check_attach_btf_id()`, kernel/bpf/verifier.c).

use std::path::Path;

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::btf::types::Struct;
use libbpf_rs::btf::{Btf, HasSize};

use super::Config;

/// Checks that a file has the layout of the running kernel's structures, as far as their sizes show.
///
/// # Errors
/// The file cannot be read, is not complete BTF, or describes something else.
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
    // Every program reads fields of these.
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

/// The error for a kernel without its own type information, if a file was given.
pub(super) fn not_replaced(error: anyhow::Error, config: &Config) -> anyhow::Error {
    match config.btf {
        None => error,
        Some(_) => anyhow!(
            "{error:#}; --btf replaces only the kernel's structure layouts, and not what BTF tracepoints attach to"
        ),
    }
}

fn size_bytes(btf: &Btf<'_>, name: &str) -> Option<usize> {
    btf.type_by_name::<Struct<'_>>(name).map(|of| of.size())
}
