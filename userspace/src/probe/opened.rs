//! The BPF object as it will be loaded: its programs, their options, and the sizes of its tables.

use anyhow::{bail, Context, Result};
use libbpf_rs::{ObjectBuilder, OpenObject};

use super::hooks::{HookSpec, Means, HOOKS};
use super::kernel_types::KernelTypes;
use super::rings::Layout;
use super::{
    check_privilege, chosen, direct, hook_present, kernel_types, layouts, open_files,
    possible_cpus, runtimes, section_offset, states, tables, Config, MAX_CPUS, OBJECT,
};

/// The BPF object as it will be loaded.
pub(super) struct Opened {
    pub open: OpenObject,
    pub layout: Layout,
    /// Hooks that are to be attached.
    pub specs: Vec<&'static HookSpec>,
    /// Programs whose hooks this kernel does not have, and why.
    pub absent: Vec<(String, String)>,
    /// Functions to hook directly.
    pub direct: Option<direct::Chosen>,
}

impl Opened {
    pub fn new(config: &Config) -> Result<Opened> {
        let types = Opened::types(config)?;
        let direct = config.direct.as_ref();
        let direct = direct.map(|asked| direct::choose(asked, config, &types)).transpose()?;
        let specs = chosen(&types).into_iter().filter(|of| config.wants(of)).collect();
        Opened::with(config, &types, specs, direct)
    }

    /// Opens the object with direct hooks only, to see whether they can be attached.
    pub fn only(config: &Config, direct: &direct::Chosen) -> Result<OpenObject> {
        let types = Opened::types(config)?;
        Ok(Opened::with(config, &types, Vec::new(), Some(direct.clone()))?.open)
    }

    pub fn types(config: &Config) -> Result<KernelTypes> {
        check_privilege()?;
        kernel_types().map_err(|error| layouts::not_replaced(error, config))
    }

    pub fn with(
        config: &Config,
        types: &KernelTypes,
        specs: Vec<&'static HookSpec>,
        direct: Option<direct::Chosen>,
    ) -> Result<Opened> {
        let cpus = possible_cpus()?;
        if cpus > MAX_CPUS {
            bail!("this machine has {cpus} possible CPUs; at most {MAX_CPUS} are supported");
        }
        open_files::allow(cpus as u32)?;
        let mut builder = ObjectBuilder::default();
        builder.name("rpcprobe")?;
        if let Some(file) = &config.btf {
            layouts::check(file, types.kernel())?;
            builder.btf_custom_path(file)?;
        }
        let mut open =
            builder.open_memory(OBJECT).context("the built-in BPF object does not open")?;
        let absent = disable_absent_hooks(&mut open, types)?;
        let programs = direct.as_ref().map_or(Vec::new(), direct::Chosen::programs);
        disable_all_but(&mut open, &specs, &programs, config.tasks);
        if let Some(direct) = &direct {
            direct.aim(&mut open)?;
        }
        let layout = Layout::new(cpus, config.ring_bytes_per_cpu, random()?);
        set_options(&mut open, config, layout, types)?;
        make_rings(&mut open, layout)?;
        tables::make(&mut open, memory_bytes())?;
        Ok(Opened { open, layout, specs, absent, direct })
    }
}

/// Programs that are not to be attached are not even loaded.
fn disable_all_but(open: &mut OpenObject, specs: &[&HookSpec], direct: &[String], tasks: bool) {
    let wanted = |name: &std::ffi::OsStr| {
        specs.iter().any(|spec| name == spec.program)
            || direct.iter().any(|program| name == program.as_str())
            || tasks && name.to_str().is_some_and(runtimes::is_of_runtimes)
    };
    for mut program in open.progs_mut().filter(|program| !wanted(program.name())) {
        program.set_autoload(false);
    }
}

fn disable_absent_hooks(
    open: &mut OpenObject,
    types: &KernelTypes,
) -> Result<Vec<(String, String)>> {
    let mut absent = Vec::new();
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if direct::is_direct(&name) || runtimes::is_of_runtimes(&name) {
            continue;
        }
        let Some(spec) = HOOKS.iter().find(|spec| spec.program == name) else {
            bail!("program {name} of the BPF object is in no table");
        };
        if let Err(why) = hook_present(spec, types) {
            if !matches!(spec.means, Means::SoftwareEvent(_) | Means::CpuClock) {
                program.set_autoload(false);
            }
            absent.push((name, why));
        }
    }
    Ok(absent)
}

fn set_options(
    open: &mut OpenObject,
    config: &Config,
    layout: Layout,
    types: &KernelTypes,
) -> Result<()> {
    // bpf_rdonly_cast() takes the number of a type, which is another one in a file.
    let can_cast = config.btf.is_none() && types.has_function("bpf_rdonly_cast");
    let byte = |value: u8| vec![value];
    let options = [
        ("scope_target", byte(u8::from(config.scope_target))),
        ("keep_paths", byte(u8::from(config.keep_paths))),
        ("keep_methods", byte(u8::from(config.keep_methods))),
        ("attaching", byte(u8::from(config.attaching))),
        ("can_cast", byte(u8::from(can_cast))),
        ("stack_states", byte(config.stacks.map_or(0, |stacks| states(stacks.sleeps)))),
        ("ring_pieces", layout.pieces.to_ne_bytes().to_vec()),
        ("ring_bytes", layout.bytes.to_ne_bytes().to_vec()),
        ("ring_secret", layout.secret.to_ne_bytes().to_vec()),
        ("most_framers", tables::most_framers(memory_bytes()).to_ne_bytes().to_vec()),
    ];
    let mut rodata = open
        .maps_mut()
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .context("the BPF object has no .rodata")?;
    let bytes = rodata.initial_value_mut().context("the BPF object has no options")?;
    for (name, value) in options {
        let offset = section_offset(".rodata", name)
            .with_context(|| format!("the BPF object has no option {name}"))?;
        bytes[offset..offset + value.len()].copy_from_slice(&value);
    }
    Ok(())
}

fn make_rings(open: &mut OpenObject, layout: Layout) -> Result<()> {
    let mut rings = open
        .maps_mut()
        .find(|map| map.name() == "rings")
        .context("the BPF object has no map `rings`")?;
    rings.set_max_entries(layout.entries()).context("the rings are too large")
}

/// Memory for tables; 0: not known, so that tables are as small as they may be.
pub(super) fn memory_bytes() -> u64 {
    static BYTES: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *BYTES.get_or_init(|| crate::memory::limit_bytes().unwrap_or(0))
}

fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    // SAFETY: writes at most as many bytes as there are.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 4 {
        return Err(std::io::Error::last_os_error()).context("getrandom");
    }
    Ok(u32::from_ne_bytes(bytes))
}
