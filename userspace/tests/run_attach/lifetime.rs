//! How an `attach` capture begins and ends, and that the targets are not affected.

use std::fs;
use std::process::Stdio;

use tempfile::TempDir;

use crate::common::capture::{Capture, NAME};
use crate::common::needs_kernel;
use crate::common::process::{kill, until};
use crate::{attach, by_pid, compare, for_half_a_second, whole, Load};

/// What /proc says of a process, without fields that change by themselves.
fn trace_of(pid: u32) -> Vec<String> {
    let mut told = Vec::new();
    for list in ["fd", "task", "map_files"] {
        let entries = fs::read_dir(format!("/proc/{pid}/{list}")).expect("the process lives");
        let mut names: Vec<_> = entries
            .map(|entry| {
                let path = entry.expect("an entry").path();
                format!("{} {:?}", path.display(), fs::read_link(&path).ok())
            })
            .collect();
        names.sort_unstable();
        told.extend(names);
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    // SigQ counts the pending signals of all processes of the user.
    let varying = ["State", "Vm", "Rss", "SigQ", "voluntary_", "nonvoluntary_", "Cpus_"];
    let lines = status.lines().filter(|line| !varying.iter().any(|v| line.starts_with(v)));
    told.extend(lines.map(str::to_string));
    told
}

#[test]
fn the_target_keeps_no_trace_and_ends_neither_with_nor_by_us() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::echo("-t unix -c 2");
    let pids = load.pids();
    let before: Vec<_> = pids.iter().map(|pid| trace_of(*pid)).collect();
    // The capture runs until a signal arrives.
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let parent = TempDir::new().expect("a temporary directory");
        let mut child = attach(parent.path(), &by_pid(&pids));
        let child = child.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let events = parent.path().join(NAME).join("events.bin");
        until("the capture runs", || fs::metadata(&events).is_ok_and(|file| file.len() > 1 << 20));
        kill(child.id() as i32, signal);
        let output = child.wait_with_output().expect("rpcprobe ends");
        let capture = Capture::in_directory(parent, output).succeeded();
        let (manifest, requests) = whole(&capture);
        assert!(compare(&load, &manifest, &requests) > 50);
        assert_eq!(manifest.command.attached.expect("attached").ended, "by a signal");
    }
    let after: Vec<_> = pids.iter().map(|pid| trace_of(*pid)).collect();
    assert_eq!(before, after);
    let logged = |load: &Load| load.logged().values().map(Vec::len).sum::<usize>();
    let count = logged(&load);
    until("they go on", || logged(&load) > count + 50);
}

#[test]
fn a_capture_ends_with_the_last_process() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::echo("-t tcp -c 2");
    let clients = load.pids()[2..].to_vec();
    let parent = TempDir::new().expect("a temporary directory");
    let mut child = attach(parent.path(), &by_pid(&clients));
    let child = child.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let events = parent.path().join(NAME).join("events.bin");
    until("the capture runs", || fs::metadata(&events).is_ok_and(|file| file.len() > 1 << 20));
    for client in clients {
        kill(client as i32, libc::SIGKILL);
    }
    let output = child.wait_with_output().expect("rpcprobe ends");
    let capture = Capture::in_directory(parent, output).succeeded();
    let manifest = capture.manifest();
    capture.checked();
    assert_eq!(manifest.command.attached.expect("attached").ended, "with the last process");
}

#[test]
fn two_captures_at_once_do_not_mind_each_other() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::echo("-t unix -c 2");
    let arguments = for_half_a_second(by_pid(&load.pids()));
    let start = || {
        let parent = TempDir::new().expect("a temporary directory");
        let mut child = attach(parent.path(), &arguments);
        let child = child.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        (parent, child)
    };
    let both = [start(), start()];
    for (parent, child) in both {
        let output = child.wait_with_output().expect("rpcprobe ends");
        let capture = Capture::in_directory(parent, output).succeeded();
        let (manifest, requests) = whole(&capture);
        assert!(compare(&load, &manifest, &requests) > 50);
    }
}
