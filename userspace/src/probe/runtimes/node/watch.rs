//! Watches the timers of Node's event loops, each by a watchpoint on the count of them.

use std::collections::HashSet;
use std::os::fd::{AsRawFd, IntoRawFd};

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::{Link, MapCore, MapFlags};

use super::super::note;
use super::environment::{timers, words};
use super::event_loop;
use crate::probe::{perf_event, Probe};
use crate::records::{self, RecHdr, RecRuntimeTask, REC_RUNTIME_TASK, RUNTIME_TASK_TIMERS};

const PROGRAM: &str = "on_node_timer";
/// bpf/node.h
const MOST_LOOPS: usize = 256;

/// As often is looked whether a program that has just begun has its loop.
const MOST_LOOKS: u32 = 100;

/// Threads that run timers.
#[derive(Debug, Default)]
pub struct Loops {
    /// Those that were found, by thread and process.
    seen: HashSet<(u32, u32)>,
    /// Which of them are still to be watched, and where a timer of the loop's is.
    found: Vec<(u32, u32, u64)>,
    /// Processes that may not have theirs yet: where it is to be in their file, and how often to look.
    begun: Vec<(u32, u64, u32)>,
}

impl Loops {
    /// Takes note of a record that tells of a loop.
    pub fn see(&mut self, hdr: &RecHdr, record: &[u8]) {
        if hdr.kind != REC_RUNTIME_TASK || hdr.flags != RUNTIME_TASK_TIMERS {
            return;
        }
        let Some((told, _)) = records::read::<RecRuntimeTask>(record) else { return };
        if self.seen.len() < MOST_LOOPS && self.seen.insert((hdr.tid, told.tgid)) {
            self.found.push((hdr.tid, told.tgid, told.address));
        }
    }

    /// A process with a loop in that place of its file runs.
    pub fn begins(&mut self, pid: u32, place: u64) {
        self.seen.retain(|(_, of)| *of != pid); // by the program before
        self.begun.push((pid, place, MOST_LOOKS));
    }

    /// Watches those that have been found since.
    pub fn watch(&mut self, probe: &mut Probe) {
        for (pid, place, looks) in std::mem::take(&mut self.begun) {
            match event_loop::timer(pid, place) {
                Some(timer) if self.seen.insert((pid, pid)) => self.found.push((pid, pid, timer)),
                None if looks > 1 => self.begun.push((pid, place, looks - 1)),
                _ => {}
            }
        }
        for (tid, pid, timer) in std::mem::take(&mut self.found) {
            let link = watch_timers(probe, tid, pid, timer);
            let told = link.map(|link| {
                probe.links.push(link);
                "watchpoint"
            });
            note(probe, format!("timers of Node, process {pid}"), told);
        }
    }
}

fn watch_timers(probe: &Probe, tid: u32, pid: u32, timer: u64) -> Result<Link> {
    let words = words(pid, timer)?;
    let [count, pad] = [timers(pid, words)?, 0];
    // struct node_loop, bpf/node.h
    let mut value = [words.async_ids.to_ne_bytes(), words.timers.to_ne_bytes()].concat();
    value.extend([count.to_ne_bytes(), pad.to_ne_bytes()].concat());
    let loops = probe.map("node_loops")?;
    loops.update(&tid.to_ne_bytes(), &value, MapFlags::ANY).context("node_loops")?;
    watch(probe, words.timers, tid).context("cannot watch the count of its timers")
}

/// Runs the program each time that thread writes to those four bytes.
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
