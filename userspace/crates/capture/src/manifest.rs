//! `manifest.json`: describes a capture, how it was taken, and what it lost.
//!
//! The manifest is written by rename once the events are complete, so a directory with a manifest can be attributed.
//! Attribution writes it again, with its figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use rpcprobe_model::request_filter::Rule;
use rpcprobe_model::worded;
pub use rpcprobe_model::Loss;

/// Version of the layout of a capture directory.
pub const FORMAT_VERSION: u32 = 1;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    pub format_version: u32,
    /// Version of the program that took the capture.
    pub rpcprobe_version: String,
    pub host: Host,
    pub command: Command,
    pub labels: BTreeMap<String, String>,
    /// CLOCK_MONOTONIC when the target was released or, for running programs, once everything about them was known.
    /// `start_utc` is the same instant in UTC.
    pub start_ns: u64,
    pub start_utc: String,
    pub duration_ns: u64,
    pub options: Options,
    pub hooks: Vec<Hook>,
    /// The process that took the capture, while it ran.
    #[serde(default)]
    pub probe: ProbeProcess,
    pub counts: Counts,
    pub losses: Vec<Loss>,
    pub calibration: Calibration,
    /// Runs of the kernel-side programs in traced threads' time.
    #[serde(default)]
    pub programs: ProgramRuns,
    /// The kernel side's tables, with the elements they evicted or had no room for.
    #[serde(default)]
    pub tables: Vec<TableUse>,
    /// What made the capture end before the target did, or left part of it out; empty when the capture is complete.
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    pub kernel: String,
    pub machine: String,
    pub cpus: u32,
    /// The clock of every `_ns` field, and the hardware behind it.
    pub clock: String,
    pub clock_source: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Command {
    pub argv: Vec<String>,
    pub pid: u32,
    /// As wait(2) reports it; `None` when the capture ended before the target.
    pub wait_status: Option<i32>,
    /// Set if the target was already running: `argv` then says how it was selected, and `pid` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// The process that took a capture. Empty if the capture was taken inside a PID namespace, because the process's
/// numbers there differ from those in the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeProcess {
    pub pid: u32,
    pub tids: Vec<u32>,
}

/// What a capture was attached to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Attached {
    pub processes: Vec<Process>,
    /// Number of their threads when the capture began.
    pub threads: u64,
    /// Why the capture ended.
    pub ended: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    pub comm: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    pub scope: Scope,
    pub paths: bool,
    #[serde(default)]
    pub methods: bool,
    pub ring_bytes_per_cpu: u64,
    /// Whether tasks of runtimes were followed; `None` if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<bool>,
    /// Which stacks were taken; `None` if no stacks were taken.
    #[serde(default)]
    pub stacks: Option<Stacks>,
    /// The `--request` rules of the capture; if empty, all kinds of requests were looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<Rule>,
}

worded! {
    /// Whose scheduler records are kept. Not known (an empty text) for a capture that broke off.
    Scope {
        Machine = "machine",
        Target = "target",
    }
}

impl Default for Scope {
    fn default() -> Scope {
        Scope::Other("".into())
    }
}

worded! {
    /// What a reader must know about a capture as a whole. Attribution can be repeated; it replaces its own warnings.
    Warning {
        /// The file ends in the middle of a block.
        BreaksOff { offset: u64 } = "the events break off at byte {offset}: what came later is missing",
        /// Of all listening sockets of the network namespace.
        AcceptQueueFull { times: u64 } =
            "accept queues of the network namespace were full {times} times: the client of such a connection waits \
             for 0.2 s or more until TCP tries again, and no request of its server shows this",
        /// Users as `comm/pid`, with commas.
        Encrypted { users: String } =
            "connections of {users} are encrypted (TLS): the order of messages alone shows what is a request, and \
             several under way on one connection (HTTP/2) count as one",
        /// Likewise.
        SeveralDatagrams { users: String } =
            "datagrams to or from {users} came before the answer to the one before: these count as one request; if they \
             are several questions (DNS), requests are missing, and others have answers that are not theirs",
        /// Likewise.
        IoUring { users: String } = "io_uring is used by {users}: what moves that way is not followed",
    }
}

/// Which stacks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacks {
    /// Samples per second on each CPU; 0 if no samples are taken.
    pub sample_hz: u32,
    pub sleeps: Sleeps,
}

/// Sleeps of which the kernel stack is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Sleeps {
    /// None
    None,
    /// Only those that no signal ends: waits for devices, pages and kernel locks
    Uninterruptible,
    /// Every sleep
    All,
}

/// One hook: a place in the kernel, and how (or why not) it is attached.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Hook {
    pub name: String,
    /// `tp_btf`, `perf_event`, ...; `None` when not attached.
    pub attached_as: Option<String>,
    pub why_not: Option<String>,
    /// What cannot be determined without this hook.
    pub purpose: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    pub records: u64,
    pub records_lost: u64,
    pub raw_bytes: u64,
    pub stored_bytes: u64,
    /// Records of traced threads, grouped by cost: see [`Calibration`].
    pub syscalls: u64,
    pub switches: u64,
    pub wakings: u64,
    pub faults: u64,
    pub interrupts: u64,
    /// Filled in by attribution.
    pub requests: u64,
    pub requests_incomplete: u64,
    pub requests_by_kind: BTreeMap<String, u64>,
    /// Records that arrived too late to be put in order.
    pub records_late: u64,
    /// Runs of our programs that the kernel skipped: each would have left a record, or part of a record's content.
    #[serde(default)]
    pub runs_left_out: u64,
    /// How often framing was lost on a connection (where messages begin was no longer known), by reason.
    #[serde(default)]
    pub framing_lost: BTreeMap<String, u64>,
    /// Pipes and connections that were evicted from the kernel side's tables and came back: the count of their bytes
    /// begins anew.
    #[serde(default)]
    pub channels_forgotten: u64,
    /// Context switches that left no record although no record was lost.
    #[serde(default)]
    pub switches_missed: u64,
    /// Context switches that left no record but are known from the scheduler's own accounting.
    #[serde(default)]
    pub switches_restored: u64,
    /// Wake-ups of traced threads that left no record: their time is known, their waker is not.
    #[serde(default)]
    pub wakes_restored: u64,
    /// Time that the hypervisor took from traced threads and that could not be assigned to an instant.
    #[serde(default)]
    pub steal_unplaced_ns: u64,
    /// Kernel stacks taken at sleeps, samples taken, and time in the interrupts that took the samples.
    #[serde(default)]
    pub sleep_stacks: u64,
    #[serde(default)]
    pub samples: u64,
    #[serde(default)]
    pub sampling_ns: u64,
}

/// Use of one table of the kernel side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableUse {
    pub name: String,
    /// What one element holds.
    pub holds: String,
    /// Maximum number of elements at one time.
    pub bound: u64,
    /// How long an element is usually of use at most.
    pub use_ns: u64,
    /// Elements that were added.
    pub made: u64,
    /// Elements that were evicted for others; many of these may no longer have been of use.
    pub let_go: u64,
    /// Insertions that found no room, or a busy element.
    pub refused: u64,
}

/// Cost of the kernel-side programs, measured while they ran (bpf/cost.h). The programs of page faults are not
/// included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRuns {
    pub runs: u64,
    /// How many of the runs were timed, and the total time of those.
    pub timed: u64,
    pub timed_ns: u64,
    /// Runs caused by a breakpoint in a user-space program (`--tasks`).
    #[serde(default)]
    pub breakpoints: u64,
    /// Runs caused by a watchpoint: a thread wrote a watched word.
    #[serde(default)]
    pub watchpoints: u64,
}

impl ProgramRuns {
    /// The difference since `earlier`.
    pub fn since(self, earlier: ProgramRuns) -> ProgramRuns {
        ProgramRuns {
            runs: self.runs.saturating_sub(earlier.runs),
            timed: self.timed.saturating_sub(earlier.timed),
            timed_ns: self.timed_ns.saturating_sub(earlier.timed_ns),
            breakpoints: self.breakpoints.saturating_sub(earlier.breakpoints),
            watchpoints: self.watchpoints.saturating_sub(earlier.watchpoints),
        }
    }

    /// Mean time of a run; 0 when no run was timed.
    pub fn mean_ns(&self) -> f64 {
        match self.timed {
            0 => 0.0,
            timed => self.timed_ns as f64 / timed as f64,
        }
    }
}

/// Costs measured on this machine just before the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Added to one system call of a traced thread.
    pub syscall_ns: f64,
    /// Added by a run of a program, besides the program's own time: the call, and what the run displaces from the
    /// caches. Measured with round trips of a byte over pipes.
    #[serde(default, alias = "dispatch_ns")]
    pub around_run_ns: f64,
    /// Time that a program took in the same measurement.
    #[serde(default)]
    pub run_ns: f64,
    /// Added by a breakpoint in a user-space program (into the kernel and back), besides the run that it causes. Known
    /// only with `--tasks`.
    #[serde(default)]
    pub breakpoint_ns: f64,
    /// Added by a watchpoint, besides the run that it causes; 0 if this machine has no watchpoints.
    #[serde(default)]
    pub watchpoint_ns: f64,
    /// Added to one context switch with its wake-up.
    pub switch_ns: f64,
    /// Added to one page fault of a traced thread.
    pub fault_ns: f64,
    /// Copying one byte through a pipe, one way: the rate behind modelled `copy` segments.
    pub copy_ns_per_byte: f64,
    /// Duration of a call that moves one byte through a pipe, from its recorded entry to its recorded exit.
    #[serde(default)]
    pub transfer_ns: f64,
    /// As `copy_ns_per_byte` and `transfer_ns`, but through a stream socket.
    #[serde(default)]
    pub socket_copy_ns_per_byte: f64,
    #[serde(default)]
    pub socket_transfer_ns: f64,
    /// Time from the recorded end of a page fault to the recorded begin of the next one, in a loop that only touches
    /// pages. This is entry, return and our own hooks, which no hook can bracket.
    #[serde(default)]
    pub fault_outside_ns: f64,
    /// Time of those faults from their recorded begin to their recorded end.
    #[serde(default)]
    pub fault_inside_ns: f64,
    /// As `fault_outside_ns`, from the exit of a system call to the entry of the next.
    #[serde(default)]
    pub call_outside_ns: f64,
}

impl Manifest {
    /// Estimates the probe's own cost on the target over the whole capture. The cost of programs is the number of their
    /// runs in traced threads' time, multiplied by the mean of the timed runs plus the calibrated cost around a run.
    /// Page faults, breakpoints and watchpoints count as calibrated. Interrupts that took samples count as measured.
    ///
    /// If a run takes longer than in the tight loop of the calibration, the excess is attributed to its own cache
    /// misses. Each line that the run fetches evicts another line, which the interrupted program must fetch again, so
    /// the excess counts twice. experiments/overhead compares the estimate with the measured loss.
    pub fn probe_cost_ns(&self) -> u64 {
        let c = &self.calibration;
        let n = &self.counts;
        let programs = &self.programs;
        let programs_ns = match programs.runs {
            // A capture of a version that did not time runs: events x calibrated cost.
            0 => {
                n.syscalls.saturating_add(n.interrupts) as f64 * c.syscall_ns
                    + n.switches as f64 * c.switch_ns
            }
            runs => {
                let mean_ns = programs.mean_ns();
                let misses_ns = if c.run_ns > 0.0 { (mean_ns - c.run_ns).max(0.0) } else { 0.0 };
                runs as f64 * (mean_ns + misses_ns + c.around_run_ns)
            }
        };
        let breakpoints_ns = programs.breakpoints as f64 * c.breakpoint_ns;
        let watchpoints_ns = programs.watchpoints as f64 * c.watchpoint_ns;
        (programs_ns + breakpoints_ns + watchpoints_ns + n.faults as f64 * c.fault_ns) as u64
            + n.sampling_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_probe_cost_is_what_its_programs_took() {
        let counts = Counts {
            syscalls: 100,
            interrupts: 5,
            switches: 7,
            faults: 3,
            sampling_ns: 11,
            ..Counts::default()
        };
        let calibration = Calibration {
            syscall_ns: 10.0,
            switch_ns: 1_000.0,
            fault_ns: 10_000.0,
            around_run_ns: 50.0,
            run_ns: 120.0,
            breakpoint_ns: 2_000.0,
            watchpoint_ns: 7_000.0,
            ..Calibration::default()
        };
        let before = Manifest { counts, calibration, ..Manifest::default() };
        assert_eq!(before.probe_cost_ns(), 105 * 10 + 7_000 + 30_000 + 11);
        let earlier =
            ProgramRuns { runs: 1_000, timed: 10, timed_ns: 9_000, breakpoints: 2, watchpoints: 1 };
        let later =
            ProgramRuns { runs: 1_200, timed: 14, timed_ns: 9_600, breakpoints: 7, watchpoints: 4 };
        let now = Manifest { programs: later.since(earlier), ..before };
        assert_eq!(
            now.probe_cost_ns(),
            200 * (150 + 30 + 50) + 5 * 2_000 + 3 * 7_000 + 30_000 + 11
        );
    }

    #[test]
    fn losses_before_the_start_are_none_of_the_captures() {
        let loss = |count, first_ns, last_ns| Loss { cpu: 1, count, first_ns, last_ns };
        let before = [Loss { cpu: 0, ..loss(40, 700, 900) }, loss(30, 800, 900)];
        let since = |loss: Loss| loss.since(1_000, &before);
        assert_eq!(since(loss(30, 800, 900)), None);
        assert_eq!(since(loss(5, 800, 999)), None);
        assert_eq!(since(loss(5, 1_000, 1_000)), Some(loss(5, 1_000, 1_000)));
        assert_eq!(since(loss(5, 1_100, 1_200)), Some(loss(5, 1_100, 1_200)));
        // Begun before the start: what had been counted by then is not ours.
        assert_eq!(since(loss(34, 800, 1_200)), Some(loss(4, 1_000, 1_200)));
        assert_eq!(since(loss(30, 800, 1_000)), Some(loss(1, 1_000, 1_000)));
        // A loss of which nothing is known before the start: all of it may be ours.
        assert_eq!(since(loss(34, 700, 1_200)), Some(loss(34, 1_000, 1_200)));
    }

    #[test]
    fn losses_after_the_end_are_none_of_the_captures() {
        let loss = |count, first_ns, last_ns| Loss { cpu: 1, count, first_ns, last_ns };
        assert_eq!(loss(5, 1_000, 1_200).until(1_000), None);
        assert_eq!(loss(5, 900, 999).until(1_000), Some(loss(5, 900, 999)));
        assert_eq!(loss(5, 900, 1_200).until(1_000), Some(loss(5, 900, 999)));
        assert_eq!(loss(5, 900, 1_200).until(u64::MAX), Some(loss(5, 900, 1_200)));
    }
}
