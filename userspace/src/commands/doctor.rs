//! `rpcprobe doctor`: what this kernel allows, and what that means for each category.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::capture::manifest::{Hook, Sleeps, Stacks};
use crate::cli::DoctorArgs;
use crate::probe::{self, hooks::HOOKS, Config};
use crate::report::escape;

/// What was found, and what follows.
#[derive(Debug, Serialize)]
struct Findings {
    kernel: String,
    machine: String,
    root: bool,
    btf: Option<String>,
    /// The file that tells the layout of structures instead of the kernel (`--btf`).
    btf_file: Option<PathBuf>,
    lockdown: Option<String>,
    hooks: Vec<Hook>,
    /// Whether all programs were loaded and attached just now.
    loads: Result<(), String>,
    /// Likewise with what `--stacks` adds.
    stacks: Result<(), String>,
    categories: Vec<CategoryEvidence>,
}

#[derive(Debug, Serialize)]
struct CategoryEvidence {
    category: &'static str,
    evidence: &'static str,
    how: String,
}

pub fn doctor(args: DoctorArgs) -> Result<i32> {
    let findings = examine(args.types.btf);
    let ok = findings.loads.is_ok();
    let stdout = std::io::stdout();
    let mut out = std::io::BufWriter::new(stdout.lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &findings)?;
        writeln!(out)?;
    } else {
        print(&mut out, &findings)?;
    }
    out.flush()?;
    Ok(if ok { 0 } else { 1 })
}

fn examine(btf_file: Option<PathBuf>) -> Findings {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    let btf = probe::kernel_btf();
    let hooks = match &btf {
        Ok(btf) => HOOKS
            .iter()
            .map(|spec| probe::describe(spec, probe::hook_present(spec, btf).err()))
            .collect(),
        Err(_) => Vec::new(),
    };
    let loads = |stacks| {
        let (scope_target, keep_paths, ring_bytes_per_cpu) = (false, true, 64 << 10);
        let (keep_methods, attaching) = (true, true); // needs more
        let config = Config {
            scope_target,
            keep_paths,
            keep_methods,
            ring_bytes_per_cpu,
            stacks,
            attaching,
            requests: Vec::new(),
            btf: btf_file.clone(),
        };
        let probe = probe::Probe::attach(&config);
        probe.map(drop).map_err(|error| format!("{error:#}"))
    };
    let stacks = loads(Some(Stacks { sample_hz: 1, sleeps: Sleeps::All }));
    let loads = stacks.clone().or_else(|_| loads(None));
    let categories = categories(&hooks);
    Findings {
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        machine: std::env::consts::ARCH.into(),
        root: probe::check_privilege().is_ok(),
        btf: btf.err().map(|error| format!("{error:#}")),
        btf_file,
        lockdown: read("/sys/kernel/security/lockdown").and_then(|text| {
            let begin = text.find('[')? + 1;
            let end = text.find(']')?;
            text.get(begin..end).map(str::to_string)
        }),
        hooks,
        loads,
        stacks,
        categories,
    }
}

fn categories(hooks: &[Hook]) -> Vec<CategoryEvidence> {
    let has = |name: &str| hooks.iter().any(|h| h.name == name && h.attached_as.is_some());
    let measured =
        |category, how: &str| CategoryEvidence { category, evidence: "measured", how: how.into() };
    let without =
        |category, how: &str| CategoryEvidence { category, evidence: "none", how: how.into() };
    vec![
        measured("user", "between system calls, faults and interrupts of a running thread"),
        measured("kernel.*", "sys_enter to sys_exit, less what nests inside"),
        CategoryEvidence {
            category: "copy",
            evidence: "modelled",
            how: "pipes: bytes x the calibrated rate".into(),
        },
        if has("page_fault_user") && has("sw:minor-faults") {
            measured("fault", "page_fault_user/kernel to the software fault event")
        } else {
            without("fault", "faults count as user or kernel time here")
        },
        measured("runqueue.wakeup", "sched_waking to sched_switch; `by` from the CPU's switches"),
        measured("runqueue.preempted", "sched_switch out while runnable to sched_switch in"),
        if has("softirq_entry") && has("local_timer_entry") {
            measured("interrupt", "entry and exit of soft, device and timer interrupts")
        } else {
            without("interrupt", "interrupts count as the interrupted work here")
        },
        measured("steal", "as the guest's kernel is told, when that is most of a stretch"),
        measured("lock", "futex waits; `by` is the waker"),
        measured("journal", "uninterruptible waits ended by a jbd2 thread"),
        measured("block_io", "uninterruptible waits accounted as I/O"),
        measured("queue.pipe", "end of the write to begin of the read"),
        measured("sleep", "waits in nanosleep, or ended by a timer"),
        measured("idle.peer", "waits ended from outside the traced processes; opaque inside"),
    ]
}

fn print(out: &mut dyn Write, findings: &Findings) -> Result<()> {
    match &findings.loads {
        Ok(()) => writeln!(out, "rpcprobe works here: all programs load and attach.")?,
        Err(why) => writeln!(out, "rpcprobe does not work here: {why}")?,
    }
    writeln!(out)?;
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    writeln!(out, "kernel    {} ({})", findings.kernel, findings.machine)?;
    writeln!(out, "root      {}", yes(findings.root))?;
    writeln!(out, "BTF       {}", findings.btf.as_deref().unwrap_or("yes"))?;
    if let Some(file) = &findings.btf_file {
        writeln!(out, "layouts   {} (--btf)", escape(&file.to_string_lossy()))?;
    }
    writeln!(out, "lockdown  {}", findings.lockdown.as_deref().unwrap_or("not in use"))?;
    match &findings.stacks {
        Ok(()) => writeln!(out, "stacks    yes")?,
        Err(why) => writeln!(out, "stacks    no: {why}")?,
    }
    if !findings.hooks.is_empty() {
        writeln!(out, "\nHooks")?;
        let width = findings.hooks.iter().map(|hook| hook.name.len()).max().unwrap_or(0);
        for hook in &findings.hooks {
            let means = hook.attached_as.as_deref().unwrap_or("absent");
            let note = match &hook.why_not {
                Some(why) => format!("{}: {why}", hook.purpose),
                None => hook.purpose.clone(),
            };
            writeln!(out, "  {:width$}  {means:10}  {note}", hook.name)?;
        }
        writeln!(out, "\nCategories")?;
        let width = findings.categories.iter().map(|c| c.category.len()).max().unwrap_or(0);
        for c in &findings.categories {
            writeln!(out, "  {:width$}  {:10}  {}", c.category, c.evidence, c.how)?;
        }
    }
    Ok(())
}
