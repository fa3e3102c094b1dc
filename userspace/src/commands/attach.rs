//! `rpcprobe attach --pid PID...`

use anyhow::Result;

use super::complain;
use super::run::{config, finish};
use crate::cli::AttachArgs;
use crate::owner::{OutputDir, Owner};
use crate::probe::check_privilege;
use crate::select::{select, Selected, Selection};
use crate::session;

pub fn attach(args: AttachArgs) -> Result<i32> {
    check_privilege()?;
    let AttachArgs { pid: pids, comm: comms, port: ports, cgroup: cgroups, duration, capture } =
        args;
    let selection = Selection { pids, comms, ports, cgroups };
    let selected = select(&selection)?;
    let config = config(&capture, true)?;
    let dir = OutputDir::create(Owner::invoking(), &capture.output, capture.force)?;
    let begun = |processes: &[Selected], threads: u64| {
        if !capture.quiet {
            let ends = if duration.is_none() { "; Ctrl-C ends the capture" } else { "" };
            let processes = processes.len();
            complain(&format_args!("attached (processes: {processes}, threads: {threads}){ends}"));
        }
    };
    match session::attach(&selection, selected, duration, &config, capture.label, &dir, begun) {
        Ok(outcome) => {
            finish(&dir, outcome, capture.quiet, capture.json)?;
            Ok(0)
        }
        Err(error) => {
            dir.discard();
            Err(error)
        }
    }
}
