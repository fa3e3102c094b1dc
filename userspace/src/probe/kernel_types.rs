//! What is known of the kernel's types: what the kernel itself says, and a file in its place (`--btf`).

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::btf::types::{Func, Struct};
use libbpf_rs::btf::{Btf, HasSize};

use super::quiet_libbpf;

const NOT_WITHOUT_OWN: &str =
    "BTF tracepoints and iterators need the kernel's own type information";

/// Type information (BTF) of the running kernel.
pub struct KernelTypes {
    /// The kernel's own, or why there is none.
    own: Result<Btf<'static>, String>,
    /// Tells the layout of structures instead.
    file: Option<PathBuf>,
}

impl KernelTypes {
    /// Reads the kernel's own type information, and checks `file`, if there is one: whole, or as
    /// `bpftool gen min_core_btf` makes it from a whole one.
    ///
    /// # Errors
    /// The file cannot be read, is not BTF, or is not of this kernel. Without a file: the kernel was built
    /// without CONFIG_DEBUG_INFO_BTF, or its BTF cannot be read.
    pub fn read(file: Option<&Path>) -> Result<KernelTypes> {
        quiet_libbpf();
        let own = read_own();
        match (file, own) {
            (None, own) => Ok(KernelTypes { own: Ok(own?), file: None }),
            (Some(file), own) => {
                check(file, own.as_ref().ok())?;
                let own = own.map_err(|error| format!("{error:#}"));
                Ok(KernelTypes { own, file: Some(file.to_owned()) })
            }
        }
    }

    /// What the kernel itself says. What programs attach to is looked up here, whatever the file says: the
    /// kernel knows the target of a BTF tracepoint or iterator by its number in its own type information
    /// (`check_attach_btf_id()`, kernel/bpf/verifier.c).
    ///
    /// # Errors
    /// There is none.
    pub fn own(&self) -> Result<&Btf<'static>, String> {
        self.own.as_ref().map_err(|_| NOT_WITHOUT_OWN.to_string())
    }

    /// Fails where no program could attach.
    ///
    /// # Errors
    /// The kernel has no type information of its own.
    pub fn attachable(&self) -> Result<()> {
        let instead = "--btf replaces only what it says of the layout of structures";
        self.own.as_ref().map(drop).map_err(|why| anyhow!("{NOT_WITHOUT_OWN}: {why}; {instead}"))
    }

    /// Where the layout of structures is to be taken from, if not from the kernel.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether programs may call bpf_rdonly_cast() (Linux 6.2). It takes the number of a type, which in a file
    /// is another.
    pub fn can_cast(&self) -> bool {
        let has = |own: &Btf<'_>| own.type_by_name::<Func<'_>>("bpf_rdonly_cast").is_some();
        self.file.is_none() && self.own.as_ref().is_ok_and(has)
    }
}

fn read_own() -> Result<Btf<'static>> {
    let path = own_path();
    if let Err(error) = std::fs::File::open(&path) {
        bail!(
            "cannot read the kernel's type information {}: {error}; \
             rpcprobe needs a kernel built with CONFIG_DEBUG_INFO_BTF=y",
            path.display()
        );
    }
    Btf::from_path(&path).with_context(|| {
        format!("the kernel's type information {} cannot be parsed", path.display())
    })
}

/// Where libbpf looks first; RPCPROBE_BTF overrides it for tests of the error.
fn own_path() -> PathBuf {
    std::env::var_os("RPCPROBE_BTF").unwrap_or_else(|| "/sys/kernel/btf/vmlinux".into()).into()
}

/// Checks that a file tells the layout of the running kernel's structures, as far as their sizes show.
fn check(file: &Path, own: Option<&Btf<'_>>) -> Result<()> {
    let shown = file.display();
    let opened = std::fs::File::open(file).and_then(|file| file.metadata());
    match opened {
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
        if let Some(here) = own.and_then(|own| size_bytes(own, name)).filter(|here| *here != there)
        {
            bail!(
                "the type information {shown} (--btf) is of another kernel: its struct {name} has {there} bytes, \
                 the running kernel's {here}"
            );
        }
    }
    Ok(())
}

fn size_bytes(btf: &Btf<'_>, name: &str) -> Option<usize> {
    btf.type_by_name::<Struct<'_>>(name).map(|of| of.size())
}
