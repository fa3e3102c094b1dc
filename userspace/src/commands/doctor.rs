//! `rpcprobe doctor`: what this kernel allows, and what that means for each category.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

use crate::capture::manifest::{Hook, Sleeps, Stacks};
use crate::cli::DoctorArgs;
use crate::probe::direct::By;
use crate::probe::hooks::DIRECT_HOOKS;
use crate::probe::{self, Config};
use crate::report::escape;

/// What was found, and what follows from it.
#[derive(Debug, Serialize)]
struct Findings {
    kernel: String,
    machine: String,
    root: bool,
    btf: Option<String>,
    /// The file that describes the layout of structures instead of the kernel (`--btf`).
    btf_file: Option<PathBuf>,
    lockdown: Lockdown,
    /// The hooks as they were just attached or, if that failed, as they would be.
    hooks: Vec<Hook>,
    /// Whether all programs could be loaded and attached.
    loads: Result<(), String>,
    /// The same, including what `--stacks` adds.
    stacks: Result<(), String>,
    /// The functions that `--direct-hooks` hooks, tried by each means.
    direct: Vec<Direct>,
    categories: Vec<CategoryEvidence>,
}

/// A function that can be hooked directly, or why it cannot.
#[derive(Debug, Serialize)]
struct Direct {
    function: String,
    sort: String,
    purpose: &'static str,
    fentry: Result<(), String>,
    kprobe: Result<(), String>,
}

/// The kernel's lockdown (kernel_lockdown(7)), which in mode `confidentiality` refuses programs that read kernel
/// memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Lockdown {
    /// `none`, `integrity` or `confidentiality`.
    Mode(String),
    /// The kernel was built or started without lockdown.
    NotInUse,
    /// Why the mode cannot be read.
    Unknown(String),
}

/// Where security modules show their state, if it is mounted.
const SECURITY: &str = "/sys/kernel/security";

/// Determines the lockdown mode. `mounts` is /proc/self/mounts, `file` is the result of reading `lockdown` in
/// securityfs.
fn lockdown(mounts: &str, file: std::io::Result<String>) -> Lockdown {
    let mounted = mounts.lines().any(|line| {
        let mut words = line.split(' ').skip(1);
        words.next() == Some(SECURITY) && words.next() == Some("securityfs")
    });
    match file {
        Ok(text) => match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
            Some((mode, _)) => Lockdown::Mode(mode.to_owned()),
            None => Lockdown::Unknown(format!("{SECURITY}/lockdown has {:?}", text.trim())),
        },
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Lockdown::Unknown(format!("{SECURITY}/lockdown: {error}"))
        }
        Err(_) if mounted => Lockdown::NotInUse,
        Err(_) => Lockdown::Unknown(format!("securityfs is not mounted at {SECURITY}")),
    }
}

impl std::fmt::Display for Lockdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lockdown::Mode(mode) => f.write_str(mode),
            Lockdown::NotInUse => f.write_str("not in use"),
            Lockdown::Unknown(why) => write!(f, "not known: {why}"),
        }
    }
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
    let types = probe::kernel_types();
    let config = |stacks| {
        let (scope_target, keep_paths, ring_bytes_per_cpu) = (false, true, 64 << 10);
        let (keep_methods, attaching) = (true, true); // attaching needs more
        Config {
            scope_target,
            keep_paths,
            keep_methods,
            ring_bytes_per_cpu,
            stacks,
            attaching,
            requests: Vec::new(),
            btf: btf_file.clone(),
            direct: None,
            tasks: false,
            told: false,
        }
    };
    let loads = |stacks| {
        let probe = probe::Probe::attach(&config(stacks));
        probe.map(|probe| probe.hooks.clone()).map_err(|error| format!("{error:#}"))
    };
    let stacks = loads(Some(Stacks { sample_hz: 1, sleeps: Sleeps::All }));
    let loads = stacks.clone().or_else(|_| loads(None));
    let hooks = match (&loads, &types) {
        (Ok(attached), _) => attached.clone(),
        (Err(_), Ok(types)) => {
            let expected = |spec| probe::describe(spec, probe::hook_present(spec, types).err());
            probe::chosen(types).into_iter().map(expected).collect()
        }
        (Err(_), Err(_)) => Vec::new(),
    };
    let categories = categories(&hooks);
    Findings {
        kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        machine: std::env::consts::ARCH.into(),
        root: probe::check_privilege().is_ok(),
        btf: types.err().map(|error| format!("{error:#}")),
        btf_file: btf_file.clone(),
        lockdown: lockdown(
            &read("/proc/self/mounts").unwrap_or_default(),
            std::fs::read_to_string(format!("{SECURITY}/lockdown")),
        ),
        hooks,
        loads: loads.map(drop),
        stacks: stacks.map(drop),
        direct: direct(&config(None)),
        categories,
    }
}

/// Tries each function by each means. Empty for kernels about which nothing is known.
fn direct(config: &Config) -> Vec<Direct> {
    let tried = |by| probe::direct::try_all(config, by).unwrap_or_default();
    let means = |hook: Hook| match (hook.attached_as, hook.why_not) {
        (Some(_), _) => Ok(()),
        (None, why_not) => Err(why_not.unwrap_or_default()),
    };
    let both = tried(By::Fentry).into_iter().zip(tried(By::Kprobe));
    let each = DIRECT_HOOKS.iter().zip(both).map(|(spec, (fentry, kprobe))| Direct {
        function: fentry.name.clone(),
        sort: spec.sort.to_possible_value().map_or(String::new(), |value| value.get_name().into()),
        purpose: spec.purpose,
        fentry: means(fentry),
        kprobe: means(kprobe),
    });
    each.collect()
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
            how: "bytes x the calibrated rate; sockets: measured with --direct-hooks=copy".into(),
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
        } else if has("softirq_entry") && has("irq_handler_entry") {
            // On arm64, timers are devices (handle_percpu_devid_irq(), kernel/irq/chip.c).
            measured(
                "interrupt",
                "of soft and device interrupts; others count as the interrupted work",
            )
        } else {
            without("interrupt", "interrupts count as the interrupted work here")
        },
        measured(
            "steal",
            "steal time reported to the guest's kernel, where it fills most of a stretch without records",
        ),
        measured("lock", "futex waits; `by` is the waker"),
        if has("jbd2_start_commit") && has("jbd2_end_commit") {
            measured("journal", "uninterruptible waits ended by a jbd2 thread; `cause` its phase")
        } else {
            measured("journal", "uninterruptible waits ended by a jbd2 thread, phases not known")
        },
        measured("block_io", "uninterruptible waits accounted as I/O"),
        measured("queue.pipe", "end of the write to begin of the read"),
        if has("sock_send_length") && has("sock_recv_length") {
            measured("queue.socket", "end of the send, or arrival, to begin of the receive")
        } else if has("inet_sendmsg") && has("inet_recvmsg") {
            measured(
                "queue.socket",
                "end of the send, or arrival, to begin of the receive; by exits of inet_sendmsg, inet_recvmsg, ...",
            )
        } else {
            without("queue.socket", "no requests over sockets here")
        },
        if has("net_dev_start_xmit") && has("netif_receive_skb") {
            measured("wire.*", "packets' way between the devices of this machine")
        } else {
            without("wire.*", "packets are not followed here")
        },
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
    writeln!(out, "lockdown  {}", findings.lockdown)?;
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
        print_direct(out, &findings.direct)?;
        writeln!(out, "\nCategories")?;
        let width = findings.categories.iter().map(|c| c.category.len()).max().unwrap_or(0);
        for c in &findings.categories {
            writeln!(out, "  {:width$}  {:10}  {}", c.category, c.evidence, c.how)?;
        }
    }
    Ok(())
}

/// Prints a line for each function. If a means works for no function, prints the reason once.
fn print_direct(out: &mut dyn Write, direct: &[Direct]) -> Result<()> {
    let all_refused = |of: fn(&Direct) -> &Result<(), String>| {
        let mut refusals = direct.iter().map(|each| of(each).as_ref().err());
        let first = refusals.next()??;
        refusals.all(|why| why == Some(first)).then_some(first)
    };
    writeln!(out, "\nDirect hooks (--direct-hooks)")?;
    let (fentry, kprobe) = (all_refused(|each| &each.fentry), all_refused(|each| &each.kprobe));
    for (means, refused) in [("fentry", fentry), ("kprobe", kprobe)] {
        if let Some(why) = refused {
            writeln!(out, "  none by {means}: {}", escape(why))?;
        }
    }
    if fentry.is_some() && kprobe.is_some() {
        return Ok(());
    }
    let width = direct.iter().map(|each| each.function.len()).max().unwrap_or(0);
    for Direct { function, sort, purpose, fentry, kprobe } in direct {
        let by: Vec<_> = [("fentry", fentry), ("kprobe", kprobe)]
            .iter()
            .filter_map(|(means, tried)| tried.is_ok().then_some(*means))
            .collect();
        let note = match fentry.as_ref().err().filter(|_| by.is_empty()) {
            Some(why) => format!("{purpose}: {}", escape(why)),
            None => (*purpose).to_owned(),
        };
        let by = if by.is_empty() { "no".to_owned() } else { by.join(", ") };
        writeln!(out, "  {sort:7}  {function:width$}  {by:14}  {note}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    const MOUNTED: &str =
        "sysfs /sys sysfs rw 0 0\nsecurityfs /sys/kernel/security securityfs rw 0 0";

    #[test]
    fn lockdown_is_the_mode_in_brackets() {
        let file = Ok("none [integrity] confidentiality\n".to_owned());
        assert_eq!(lockdown(MOUNTED, file), Lockdown::Mode("integrity".into()));
        assert_eq!(lockdown(MOUNTED, Err(ErrorKind::NotFound.into())), Lockdown::NotInUse);
    }

    #[test]
    fn lockdown_that_cannot_be_seen_is_not_known() {
        let unknown = |mounts, file| match lockdown(mounts, file) {
            Lockdown::Unknown(why) => why,
            other => panic!("{other:?}"),
        };
        let absent = || Error::from(ErrorKind::NotFound);
        let elsewhere = "securityfs /mnt securityfs rw 0 0\nnone /sys/kernel/security tmpfs rw 0 0";
        for mounts in ["", elsewhere] {
            assert!(unknown(mounts, Err(absent())).contains("not mounted"), "{mounts}");
        }
        let denied = unknown(MOUNTED, Err(ErrorKind::PermissionDenied.into()));
        assert!(denied.contains("denied"), "{denied}");
        assert!(unknown(MOUNTED, Ok("nothing of the kind".into())).contains("kind"));
    }
}
