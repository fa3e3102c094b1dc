//! Type information (BTF) of the running kernel and of its modules.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use libbpf_rs::btf::types::{Func, Struct, Typedef};
use libbpf_rs::btf::Btf;

/// The kernel's type information and its modules', which is read when it is first asked for.
pub struct KernelTypes {
    kernel: Btf<'static>,
    modules: OnceCell<Vec<Module>>,
}

/// A loaded module's type information, as it is in /sys/kernel/btf.
struct Module {
    name: String,
    strings: Vec<u8>,
}

/// Where a tracepoint or a function is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Kernel,
    /// In this module.
    Module(String),
}

impl KernelTypes {
    /// # Errors
    /// The kernel was built without CONFIG_DEBUG_INFO_BTF, or its BTF cannot be read.
    pub fn read() -> Result<KernelTypes> {
        let path = kernel_path();
        if let Err(error) = std::fs::File::open(&path) {
            bail!(
                "cannot read the kernel's type information {}: {error}; \
                 rpcprobe needs a kernel built with CONFIG_DEBUG_INFO_BTF=y",
                path.display()
            );
        }
        let kernel = Btf::from_path(&path).with_context(|| {
            format!("the kernel's type information {} cannot be parsed", path.display())
        })?;
        Ok(KernelTypes { kernel, modules: OnceCell::new() })
    }

    /// Where a tracepoint is; `None`: neither in the kernel nor in a module that is loaded.
    pub fn tracepoint(&self, name: &str) -> Option<Place> {
        // The name by which a BTF raw tracepoint is found: `btf_trace_##call`, include/trace/bpf_probe.h.
        let name = format!("btf_trace_{name}");
        if self.kernel.type_by_name::<Typedef<'_>>(&name).is_some() {
            return Some(Place::Kernel);
        }
        self.in_module(&name)
    }

    /// Where a function is; `None`: neither in the kernel nor in a module that is loaded.
    pub fn function(&self, name: &str) -> Option<Place> {
        match self.has_function(name) {
            true => Some(Place::Kernel),
            false => self.in_module(name),
        }
    }

    fn in_module(&self, name: &str) -> Option<Place> {
        let modules = self.modules.get_or_init(modules);
        let found = modules.iter().find(|module| has_string(&module.strings, name));
        found.map(|module| Place::Module(module.name.clone()))
    }

    /// The kernel's own type information, without its modules'.
    pub fn kernel(&self) -> &Btf<'static> {
        &self.kernel
    }

    /// Whether the kernel itself has a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        self.kernel.type_by_name::<Func<'_>>(name).is_some()
    }

    pub fn has_struct(&self, name: &str) -> bool {
        self.kernel.type_by_name::<Struct<'_>>(name).is_some()
    }
}

/// Where libbpf looks first; RPCPROBE_BTF overrides it for tests of the error.
fn kernel_path() -> PathBuf {
    std::env::var_os("RPCPROBE_BTF").unwrap_or_else(|| "/sys/kernel/btf/vmlinux".into()).into()
}

/// All modules that have type information. A module that cannot be read is left out: it may have been unloaded
/// meanwhile.
fn modules() -> Vec<Module> {
    let Ok(entries) = std::fs::read_dir(Path::new("/sys/kernel/btf")) else { return Vec::new() };
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| name != "vmlinux")?;
        let strings = strings(&std::fs::read(entry.path()).ok()?)?.to_vec();
        Some(Module { name, strings })
    };
    entries.filter_map(|entry| read(entry.ok()?)).collect()
}

/// The section of names in raw type information: struct btf_header, include/uapi/linux/btf.h. A module's section has
/// only names that the kernel's lacks.
fn strings(raw: &[u8]) -> Option<&[u8]> {
    const MAGIC: u16 = 0xeb9f;
    let word = |at: usize| raw.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    if raw.get(..2)? != MAGIC.to_ne_bytes() {
        return None;
    }
    let begin = word(4)? as usize + word(16)? as usize;
    raw.get(begin..begin.checked_add(word(20)? as usize)?)
}

/// Whether a section of names, each ended by a zero, contains this name.
fn has_string(strings: &[u8], name: &str) -> bool {
    strings.split(|byte| *byte == 0).any(|of| of == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, four bytes of types, and names.
    fn raw(names: &[u8]) -> Vec<u8> {
        let mut raw = Vec::from(0xeb9fu16.to_ne_bytes());
        raw.extend([1, 0]);
        for word in [24, 0, 4, 4, names.len() as u32] {
            raw.extend(u32::to_ne_bytes(word));
        }
        raw.extend([0; 4]);
        raw.extend(names);
        raw
    }

    #[test]
    fn names_of_a_module_are_found_whole() {
        let raw = raw(b"\0btf_trace_jbd2_end_commit\0handle\0");
        let strings = strings(&raw).expect("well formed");
        assert!(has_string(strings, "btf_trace_jbd2_end_commit"));
        assert!(!has_string(strings, "btf_trace_jbd2_end"));
        assert!(!has_string(strings, "trace_jbd2_end_commit"));
    }

    #[test]
    fn what_is_no_type_information_has_no_names() {
        let whole = raw(b"\0a\0");
        assert_eq!(strings(&whole[..whole.len() - 1]), None, "cut off");
        assert_eq!(strings(b"\x7fELF and more of the kind, and so on"), None);
        assert_eq!(strings(&[]), None);
    }
}
