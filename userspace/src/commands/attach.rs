//! `rpcprobe attach --pid PID...`

use anyhow::Result;

use super::run::{config, finish};
use super::{complain, directory, print_report, usage};
use crate::cli::AttachArgs;
use crate::interrupt;
use crate::probe::check_privilege;
use crate::process_select::{select, Selected, Selection};
use crate::report::escape;
use crate::session;

pub fn attach(args: AttachArgs) -> Result<i32> {
    let AttachArgs {
        pid: pids,
        comm: comms,
        port: ports,
        cgroup: cgroups,
        bare,
        duration,
        capture,
    } = args;
    if let Some(word) = bare.first() {
        return usage(said_bare(word));
    }
    if pids.is_empty() && comms.is_empty() && ports.is_empty() && cgroups.is_empty() {
        return usage(
            "attach to which processes? Give --pid PID, --comm NAME, --port PORT or --cgroup PATH; see \
             `rpcprobe attach --help`",
        );
    }
    check_privilege()?;
    let selection = Selection { pids, comms, ports, cgroups };
    let selected = select(&selection)?;
    let config = config(&capture, true)?;
    interrupt::catch_also_in_background(); // otherwise a signal would leave an empty directory
    let dir = directory::create(&capture)?;
    let begun = |processes: &[Selected], threads: u64| {
        if !capture.quiet {
            let ends = if duration.is_none() { "; Ctrl-C ends the capture" } else { "" };
            let processes = processes.len();
            complain(&format_args!("attached (processes: {processes}, threads: {threads}){ends}"));
        }
    };
    match session::attach(&selection, selected, duration, &config, capture.label, &dir, begun) {
        Ok(outcome) => {
            finish(&dir, outcome, capture.quiet)?;
            // There is no target that needs standard output for itself.
            if !capture.quiet {
                print_report(std::io::stdout(), &dir, capture.json)?;
            }
            Ok(0)
        }
        Err(error) => {
            dir.discard();
            Err(error)
        }
    }
}

/// Suggests what a word without an option may mean.
fn said_bare(word: &str) -> String {
    let shown = escape(word);
    if word.starts_with('/') {
        return format!("is {shown} a cgroup? `rpcprobe attach --cgroup {shown}`");
    }
    match word.parse::<u64>() {
        Ok(_) => format!(
            "is {shown} the number of a process, or a port? `rpcprobe attach --pid {shown}` or `rpcprobe \
             attach --port {shown}`"
        ),
        Err(_) => format!("is {shown} the name of processes? `rpcprobe attach --comm {shown}`"),
    }
}
