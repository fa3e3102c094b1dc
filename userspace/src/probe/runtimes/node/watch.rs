//! Watches the timers of Node's event loops, each loop by a watchpoint on its count of timers.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, IntoRawFd};

use anyhow::{anyhow, bail, ensure, Context, Result};
use libbpf_rs::{Link, MapCore, MapFlags};

use super::super::note;
use super::environment::{timers, words};
use super::event_loop;
use crate::probe::{perf_event, Probe};
use crate::records::{self, RecHdr, RecRuntimeTask};
use crate::records::{REC_EXIT, REC_RUNTIME_TASK, RUNTIME_TASK_TIMERS};

const PROGRAM: &str = "on_node_timer";
/// bpf/node.h
const MOST_LOOPS: usize = 256;
/// How many times to look for the loop of a program that has just begun.
const MOST_LOOKS: u32 = 100;

/// Threads that run timers.
#[derive(Debug, Default)]
pub struct Loops {
    /// Threads that were found and live: their numbers, and their processes.
    seen: HashSet<(u32, u32)>,
    /// Threads that are still to be watched, their processes, and the address of a timer of the
    /// loop.
    found: Vec<(u32, u32, u64)>,
    /// Processes that may not have a timer yet, the address of their loop, and how often to look.
    begun: Vec<(u32, u64, u32)>,
    /// Threads that have ended.
    ended: Vec<u32>,
}

impl Loops {
    /// Takes note of a record that tells of a loop, or that its thread has ended.
    pub fn see(&mut self, hdr: &RecHdr, record: &[u8]) {
        match hdr.kind {
            REC_RUNTIME_TASK if hdr.flags == RUNTIME_TASK_TIMERS => {
                let Some((told, _)) = records::read::<RecRuntimeTask>(record) else { return };
                self.find(hdr.tid, told.tgid, told.address);
            }
            REC_EXIT if self.seen.iter().any(|(tid, _)| *tid == hdr.tid) => {
                self.seen.retain(|(tid, _)| *tid != hdr.tid);
                self.ended.push(hdr.tid);
            }
            _ => {}
        }
    }

    fn find(&mut self, tid: u32, pid: u32, timer: u64) {
        if self.seen.insert((tid, pid)) {
            self.found.push((tid, pid, timer));
        }
    }

    /// Notes that a process runs which has a loop this far from its program's entry.
    pub fn begins(&mut self, pid: u32, from_entry: u64) {
        self.seen.retain(|(_, of)| *of != pid); // found in the program before
        self.found.retain(|(_, of, _)| *of != pid);
        if let Some(event_loop) = event_loop::address(pid, from_entry) {
            self.begun.push((pid, event_loop, MOST_LOOKS));
        }
    }

    /// Watches threads that have been found since, and stops watching those that have ended.
    pub fn watch(&mut self, probe: &mut Probe) {
        for tid in std::mem::take(&mut self.ended) {
            probe.watchpoints.remove(&tid);
            if let Ok(loops) = probe.map("node_loops") {
                let _ = loops.delete(&tid.to_ne_bytes()); // it may never have been watched
            }
        }
        for (pid, event_loop, looks) in std::mem::take(&mut self.begun) {
            match event_loop::timer(pid, event_loop) {
                Some(timer) => self.find(pid, pid, timer),
                None if looks > 1 => self.begun.push((pid, event_loop, looks - 1)),
                None => {}
            }
        }
        for (tid, pid, timer) in std::mem::take(&mut self.found) {
            let link = watch_timers(probe, tid, pid, timer);
            let told = link.map(|link| {
                probe.watchpoints.insert(tid, link);
                "watchpoint"
            });
            note(probe, format!("timers of Node, process {pid}"), told);
        }
    }
}

fn watch_timers(probe: &Probe, tid: u32, pid: u32, timer: u64) -> Result<Link> {
    ensure!(probe.watchpoints.len() < MOST_LOOPS, "{MOST_LOOPS} event loops are watched already");
    let words = words(pid, timer)?;
    let [count, pad] = [timers(pid, words)?, 0];
    // struct node_loop, bpf/node.h
    let mut value = [words.async_ids.to_ne_bytes(), words.timers.to_ne_bytes()].concat();
    value.extend([count.to_ne_bytes(), pad.to_ne_bytes()].concat());
    let loops = probe.map("node_loops")?;
    loops.update(&tid.to_ne_bytes(), &value, MapFlags::ANY).context("node_loops")?;
    watch(probe, words.timers, tid).context("cannot watch the count of its timers")
}

/// Runs the program each time the thread writes to the four bytes at that address.
pub fn watch(probe: &Probe, address: u64, tid: u32) -> Result<Link> {
    let mut programs = probe.object.progs_mut();
    let Some(program) = programs.find(|of| of.name() == PROGRAM) else {
        bail!("the BPF object has no program {PROGRAM}");
    };
    let event = perf_event::watch(address, tid)?;
    let link =
        program.attach_perf_event(event.as_raw_fd()).map_err(|error| anyhow!("{error:#}"))?;
    // From here on the link owns the descriptor (bpf_link_perf_detach()).
    let _ = event.into_raw_fd();
    Ok(link)
}
