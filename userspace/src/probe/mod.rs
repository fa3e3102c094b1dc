//! The kernel side, loaded and attached: [`Probe`]. What it sends arrives through [`rings`].

pub mod calibrate;
pub mod direct;
pub mod files;
pub mod hooks;
pub mod kernel_types;
mod layouts;
pub mod mappings;
mod messages;
mod misses;
mod open_files;
mod opened;
mod perf_event;
pub mod rings;
pub mod running;
pub mod runtimes;
pub mod snapshot;
pub mod tables;

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::btf::types::{MemberAttr, Struct};
use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, MapCore, MapFlags, Object};

use crate::capture::manifest::{Hook, ProgramRuns, Sleeps, Stacks};
use crate::report::escape;
use crate::request_filter::Rule;
use hooks::{HookSpec, Means, HOOKS};
use kernel_types::KernelTypes;
use messages::{last_libbpf_message, load, quiet_libbpf};
use opened::Opened;
use rings::{Layout, Mapping, Rings};

/// The compiled kernel side (`bpf/`).
static OBJECT: &[u8] = include_bytes!(env!("RPCPROBE_BPF_OBJECT"));

const MAX_CPUS: u32 = 512; // bpf/cpu.h

/// User options for the probe.
#[derive(Clone, Debug)]
pub struct Config {
    /// Scheduler records of traced threads only.
    pub scope_target: bool,
    pub keep_paths: bool,
    /// What requests call, from HTTP/2 header blocks and HTTP/1 request lines.
    pub keep_methods: bool,
    /// A power of two and a multiple of the page size.
    pub ring_bytes_per_cpu: u32,
    /// Stacks to take, if any.
    pub stacks: Option<Stacks>,
    /// The target runs already.
    pub attaching: bool,
    /// The requests to look for, when all is captured.
    pub requests: Vec<Rule>,
    /// A file with the layout of the kernel's structures, which replaces the kernel's own.
    pub btf: Option<PathBuf>,
    /// Functions to hook directly, if any.
    pub direct: Option<direct::Asked>,
    /// Follow tasks of runtimes.
    pub tasks: bool,
    /// Report on standard error what takes long.
    pub told: bool,
}

impl Config {
    /// Whether the hook serves what was asked for.
    fn wants(&self, spec: &HookSpec) -> bool {
        match spec.means {
            Means::CpuClock => self.sample_hz() > 0,
            Means::Iterator(_) => self.attaching,
            Means::Tracepoint(_) | Means::FunctionEntry(_) | Means::FunctionExit(_) => true,
            Means::SoftwareEvent(_) => true,
        }
    }

    fn sample_hz(&self) -> u32 {
        self.stacks.map_or(0, |stacks| stacks.sample_hz)
    }
}

/// The states of these sleeps, in the form that the kernel side expects: TASK_INTERRUPTIBLE 1, TASK_UNINTERRUPTIBLE 2
/// (include/linux/sched.h).
fn states(sleeps: Sleeps) -> u8 {
    match sleeps {
        Sleeps::None => 0,
        Sleeps::Uninterruptible => 2,
        Sleeps::All => 3,
    }
}

/// The attached programs. Dropping it detaches everything: nothing is pinned.
pub struct Probe {
    object: Object,
    links: Vec<Link>,
    /// By the thread that is watched.
    watchpoints: HashMap<u32, Link>,
    layout: Layout,
    /// Every hook and how it is attached, or why not.
    pub hooks: Vec<Hook>,
}

impl Probe {
    /// Loads and attaches everything.
    ///
    /// # Errors
    /// Missing privilege or BTF, a refused program, or a required hook this kernel lacks.
    pub fn attach(config: &Config) -> Result<Probe> {
        let Opened { open, layout, specs, absent, direct } = Opened::new(config)?;
        let object = load(open).map_err(|error| {
            anyhow!("the kernel refused the programs: {error}\n{}", last_libbpf_message())
        })?;

        let (links, watchpoints, hooks) = (Vec::new(), HashMap::new(), Vec::new());
        let mut probe = Probe { object, links, watchpoints, layout, hooks };
        for spec in specs {
            let why_not = match absent.iter().find(|(program, _)| *program == spec.program) {
                Some((_, why)) => Some(why.clone()),
                None => probe
                    .attach_hook(spec, config.sample_hz())
                    .err()
                    .map(|error| format!("{error:#}")),
            };
            if let (true, Some(why)) = (spec.required, &why_not) {
                bail!("cannot attach {} ({}): {why}", spec.program, spec.purpose);
            }
            probe.hooks.push(describe(spec, why_not));
        }
        if let Some(direct) = direct {
            let (links, hooks) = direct.attach(&probe.object);
            probe.links.extend(links);
            probe.hooks.extend(hooks);
        }
        Ok(probe)
    }

    /// Marks a process as traced; its children and threads will be too. Call before it runs.
    pub fn trace(&self, pid: u32) -> Result<()> {
        let pidfd = pidfd_open(pid).with_context(|| format!("cannot open process {pid}"))?;
        let (tasks, states) = (self.map("tasks")?, self.map("states")?);
        let mut state = vec![0u8; states.value_size() as usize];
        let fd_offset =
            field_offset("task_state", "fd").context("the BPF object has no such field")?;
        state[fd_offset..fd_offset + 4].copy_from_slice(&(-1i32).to_ne_bytes());
        // As begin_tracing() does, bpf/tasks.h.
        let variables = Mapping::of_variables(&self.variables()?)?;
        let marks = bss_offset("marks").context("the BPF object has no `marks`")?;
        let (fresh_state, generation) = (variables.word(marks), variables.word(marks + 8));
        let index = fresh_state.fetch_add(1, Ordering::SeqCst) + 1;
        let marked =
            states.update(&(index as u32).to_ne_bytes(), &state, MapFlags::ANY).and_then(|()| {
                let key = pidfd.as_raw_fd().to_ne_bytes();
                tasks.update(&key, &index.to_ne_bytes(), MapFlags::ANY)
            });
        marked.with_context(|| format!("cannot mark process {pid} as traced"))?;
        generation.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Detaches all hooks; the records in the rings stay readable.
    pub fn detach(&mut self) {
        self.links.clear();
        self.watchpoints.clear();
    }

    /// The rings, one per CPU.
    pub fn rings(&self) -> Result<Rings> {
        let at =
            |name: &str| bss_offset(name).with_context(|| format!("no {name} in the BPF object"));
        Rings::new(
            self.layout,
            self.map("rings")?.as_fd(),
            &self.variables()?,
            (at("ring_heads")?, at("ring_tails")?),
        )
    }

    /// How many CPUs this machine may have.
    pub fn cpus(&self) -> u32 {
        self.layout.cpus
    }

    /// Losses that no record has reported yet: (cpu, count, first_ns, last_ns). Includes every CPU that the kernel side
    /// knows, also those without a ring, whose losses no record can report.
    pub fn untold_losses(&self) -> Result<Vec<(u32, u64, u64, u64)>> {
        let offset = bss_offset("ring_heads").context("the BPF object has no `ring_heads`")?;
        let value = self.variables()?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.context("empty .bss")?;
        let word = |at: usize| -> u64 {
            value.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().expect("8 bytes")))
        };
        Ok((0..MAX_CPUS)
            .map(|cpu| {
                let at = offset + cpu as usize * 64;
                (cpu, word(at + 8), word(at + 16), word(at + 24))
            })
            .filter(|loss| loss.1 != 0)
            .collect())
    }

    /// The cost of the programs so far, in other threads' time and in traced threads'.
    pub fn program_runs(&self) -> Result<(ProgramRuns, ProgramRuns)> {
        let costs = bss_offset("cpu_costs").context("the BPF object has no `cpu_costs`")?;
        let value = self.variables()?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?;
        let value = value.context("empty .bss")?;
        // struct cpu_cost, bpf/cost.h
        let sum = |at: usize| -> u64 {
            (0..MAX_CPUS as usize)
                .filter_map(|cpu| value.get(costs + 128 * cpu + at..)?.first_chunk::<8>())
                .fold(0, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
        };
        let of = |whose: usize| ProgramRuns {
            runs: sum(8 + 8 * whose),
            timed: sum(64 + 8 * whose),
            timed_ns: sum(80 + 8 * whose).saturating_sub(sum(96 + 8 * whose)),
            breakpoints: if whose == 1 { sum(24) } else { 0 },
            watchpoints: if whose == 1 { sum(32) } else { 0 },
        };
        Ok((of(0), of(1)))
    }

    /// The map behind the kernel side's global variables.
    fn variables(&self) -> Result<libbpf_rs::Map<'_>> {
        self.object
            .maps()
            .find(|map| map.name().to_string_lossy().ends_with(".bss"))
            .context("the BPF object has no .bss")
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .with_context(|| format!("the BPF object has no map `{name}`"))
    }

    fn attach_hook(&mut self, spec: &HookSpec, sample_hz: u32) -> Result<()> {
        let program = self
            .object
            .progs_mut()
            .find(|program| program.name() == spec.program)
            .with_context(|| format!("the BPF object has no program {}", spec.program))?;
        let event_on: &dyn Fn(u32) -> Result<OwnedFd> = match spec.means {
            Means::Tracepoint(_) | Means::FunctionEntry(_) | Means::FunctionExit(_) => {
                self.links.push(program.attach_trace()?);
                return Ok(());
            }
            Means::SoftwareEvent(config) => &move |cpu| perf_event::count_each(config, cpu),
            Means::CpuClock => &move |cpu| perf_event::cpu_clock(sample_hz, cpu),
            Means::Iterator(_) => return Ok(()),
        };
        for cpu in online_cpus()? {
            let event = event_on(cpu)?;
            self.links.push(program.attach_perf_event(event.as_raw_fd())?);
            // From here on the link owns the descriptor (bpf_link_perf_detach()).
            let _ = event.into_raw_fd();
        }
        Ok(())
    }
}

/// Fails with a hint when the process may not load tracing programs.
pub fn check_privilege() -> Result<()> {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        bail!("rpcprobe needs root to load its probes; try: sudo {} ...", for_sudo());
    }
    Ok(())
}

/// Where sudo looks for programs, whatever the user's PATH has: `secure_path` of Debian's sudoers.
const SUDO_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// What to call this program after `sudo`: in a virtual environment sudo does not find it by its name.
fn for_sudo() -> String {
    let ours = std::env::current_exe().unwrap_or_default();
    match ours.parent() {
        Some(folder) if !SUDO_PATH.iter().any(|of| folder == Path::new(of)) => {
            escape(&ours.to_string_lossy())
        }
        _ => "rpcprobe".to_owned(),
    }
}

/// The kernel's type information.
///
/// # Errors
/// As [`KernelTypes::read`].
pub fn kernel_types() -> Result<KernelTypes> {
    quiet_libbpf();
    KernelTypes::read()
}

/// The hooks for this kernel.
pub fn chosen(types: &KernelTypes) -> Vec<&'static HookSpec> {
    choose(|spec| hook_present(spec, types).is_ok())
}

/// Chooses between a tracepoint and the functions in its place: the tracepoint if the kernel has it, else the
/// functions. Both, if the kernel has none of them, to report what is missing.
fn choose(present: impl Fn(&HookSpec) -> bool) -> Vec<&'static HookSpec> {
    let has_tracepoint = |of: &str| {
        let is_it = |spec: &&HookSpec| matches!(spec.means, Means::Tracepoint(name) if name == of);
        HOOKS.iter().filter(is_it).any(&present)
    };
    let is_chosen = |spec: &&HookSpec| match (spec.instead_of, spec.means) {
        (Some(tracepoint), _) => !has_tracepoint(tracepoint),
        (None, Means::Tracepoint(name)) => {
            let in_its_place = |other: &&HookSpec| other.instead_of == Some(name);
            has_tracepoint(name) || !HOOKS.iter().filter(in_its_place).any(&present)
        }
        (None, _) => true,
    };
    HOOKS.iter().filter(is_chosen).collect()
}

/// Whether this kernel has what the hook attaches to; `Err` says what is missing.
pub fn hook_present(spec: &HookSpec, types: &KernelTypes) -> Result<(), String> {
    let or = |present: bool, why: String| if present { Ok(()) } else { Err(why) };
    match spec.means {
        Means::Tracepoint(name) => or(
            types.tracepoint(name).is_some(),
            format!("this kernel has no tracepoint {name}, nor has a module that is loaded"),
        ),
        Means::FunctionEntry(name) | Means::FunctionExit(name) => {
            or(types.has_function(name), format!("this kernel has no function {name}"))
        }
        Means::SoftwareEvent(config) => openable(perf_event::count_each(config, 0)),
        Means::CpuClock => openable(perf_event::cpu_clock(1, 0)),
        Means::Iterator(over) => or(
            types.has_struct(&format!("bpf_iter__{over}")),
            format!("this kernel has no BPF iterator {over}"),
        ),
    }
}

fn openable(event: Result<OwnedFd>) -> Result<(), String> {
    event.map(drop).map_err(|error| format!("{error:#}"))
}

/// The manifest's line for a hook.
pub fn describe(spec: &HookSpec, why_not: Option<String>) -> Hook {
    let (name, means) = match spec.means {
        Means::Tracepoint(name) => (name.to_string(), "tp_btf"),
        Means::FunctionEntry(name) => (name.to_string(), "fentry"),
        Means::FunctionExit(name) => (name.to_string(), "fexit"),
        Means::SoftwareEvent(5) => ("sw:minor-faults".to_string(), "perf_event"),
        Means::SoftwareEvent(6) => ("sw:major-faults".to_string(), "perf_event"),
        Means::SoftwareEvent(config) => (format!("sw:{config}"), "perf_event"),
        Means::CpuClock => ("sw:cpu-clock".to_string(), "perf_event"),
        Means::Iterator(over) => (format!("{over}:{}", spec.program), "iter"),
    };
    Hook {
        name,
        attached_as: why_not.is_none().then(|| means.to_string()),
        why_not,
        purpose: spec.purpose.to_string(),
    }
}

fn bss_offset(variable: &str) -> Option<usize> {
    section_offset(".bss", variable)
}

/// Offset of a variable within a data section of our object, from its BTF.
fn section_offset(section: &str, variable: &str) -> Option<usize> {
    use libbpf_rs::btf::types::{DataSec, Var};
    let btf = Btf::from_raw("rpcprobe", OBJECT).ok()??;
    let section: DataSec<'_> = btf.type_by_name(section)?;
    let offset = section.iter().find_map(|info| {
        let var: Var<'_> = btf.type_by_id(info.ty)?;
        (var.name()? == variable).then_some(info.offset as usize)
    });
    offset
}

/// Offset of a field of a struct of our object, in bytes, from its BTF.
fn field_offset(of: &str, field: &str) -> Option<usize> {
    let btf = Btf::from_raw("rpcprobe", OBJECT).ok()??;
    let of: Struct<'_> = btf.type_by_name(of)?;
    let member = of.iter().find(|member| member.name.is_some_and(|name| name == field))?;
    match member.attr {
        MemberAttr::Normal { offset } => Some(offset as usize / 8),
        MemberAttr::BitField { .. } => None,
    }
}

/// A descriptor of a process, which cannot refer to another process later.
pub fn pidfd_open(pid: u32) -> std::io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just returned to us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn possible_cpus() -> Result<u32> {
    libbpf_rs::num_possible_cpus().map(|n| n as u32).context("cannot count the CPUs")
}

/// The CPUs that are online, as opposed to those that could be added.
fn online_cpus() -> Result<Vec<u32>> {
    let path = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let parse = |s: &str| s.parse::<u32>().with_context(|| format!("{path}: {text:?}"));
        cpus.extend(parse(first)?..=parse(last)?);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    mod verifier_margins;

    use super::*;

    /// Names of the chosen hooks for sending, where the kernel has all but `absent`.
    fn chosen_without(absent: &[&str]) -> Vec<String> {
        let name = |spec: &HookSpec| describe(spec, None).name;
        let chosen = choose(|spec| !absent.contains(&name(spec).as_str()));
        chosen.into_iter().map(name).filter(|of| of.contains("send")).collect()
    }

    #[test]
    fn functions_are_hooked_where_the_tracepoint_is_not() {
        let functions = [
            "inet_sendmsg",
            "inet6_sendmsg",
            "unix_stream_sendmsg",
            "unix_dgram_sendmsg",
            "inet_sendpage",
            "unix_stream_sendpage",
        ];
        assert_eq!(chosen_without(&[]), ["sock_send_length"]);
        assert_eq!(chosen_without(&functions), ["sock_send_length"]);
        assert_eq!(chosen_without(&["sock_send_length"]), functions);
        // If one of the functions is missing, too, it is reported as missing.
        assert_eq!(chosen_without(&["sock_send_length", "inet_sendmsg"]), functions);
        let none = [&["sock_send_length"], &functions[..]].concat();
        assert_eq!(chosen_without(&none), none);
    }

    /// Tests take turns: libbpf has one place for its messages.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn config(stacks: Option<Stacks>, attaching: bool) -> Config {
        let (scope_target, keep_paths, ring_bytes_per_cpu) = (false, true, 1 << 20);
        let (keep_methods, requests) = (true, Vec::new());
        Config {
            scope_target,
            keep_paths,
            keep_methods,
            ring_bytes_per_cpu,
            stacks,
            attaching,
            requests,
            btf: None,
            direct: None,
            tasks: false,
            told: false,
        }
    }

    /// `None`, with a message, if the kernel does not allow it. Where captures are known to work,
    /// RPCPROBE_REQUIRE_KERNEL=1 makes that a failure.
    fn needed<T>(had: Result<T>) -> Option<T> {
        had.inspect_err(|error| {
            let required = std::env::var("RPCPROBE_REQUIRE_KERNEL").is_ok_and(|v| v == "1");
            assert!(!required, "{error:#}");
            println!("skipped: {error:#}");
        })
        .ok()
    }

    /// Starts a program on every CPU and waits for its end.
    fn use_every_cpu() {
        for cpu in online_cpus().expect("CPUs") {
            let mut command = std::process::Command::new("taskset");
            let status = command.args(["-c", &cpu.to_string(), "true"]).status();
            assert!(status.expect("taskset runs").success());
        }
    }

    #[test]
    fn records_that_find_a_ring_full_count_as_lost() {
        // One hook for each way of sending: a record whose size is known only at run time, and one of a fixed size.
        let _turn = TURN.lock();
        for program in ["on_sched_process_exec", "on_sched_process_exit"] {
            let Some(mut probe) = needed(Probe::attach(&config(None, false))) else { return };
            probe.detach();
            let spec = HOOKS.iter().find(|spec| spec.program == program).expect("a hook");
            probe.attach_hook(spec, 0).expect("it was attached before");
            use_every_cpu();
            assert_eq!(probe.untold_losses().expect("losses"), [], "there is room in the rings");

            let rings = probe.rings().expect("they can be mapped");
            (0..possible_cpus().expect("CPUs")).for_each(|cpu| rings.fill(cpu));
            use_every_cpu();
            let losses = probe.untold_losses().expect("losses");
            for cpu in online_cpus().expect("CPUs") {
                let of_cpu = losses.iter().find(|(of, ..)| *of == cpu);
                let Some(&(_, count, first_ns, last_ns)) = of_cpu else {
                    panic!("{program}: nothing lost on CPU {cpu}: {losses:?}");
                };
                assert!(count > 0 && 0 < first_ns && first_ns <= last_ns, "{losses:?}");
            }
        }
    }
}
