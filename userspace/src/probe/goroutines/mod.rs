//! Goroutines (`--goroutines`): hooks two functions of Go's runtime in the programs that are traced, by uprobes
//! (`bpf/goroutines.bpf.c`).

mod entry;
mod own;
mod pclntab;
mod program;

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::{Link, MapCore, MapFlags, UprobeOpts};

use super::Probe;
use crate::capture::manifest::Hook;
use crate::records::{self, RecHdr, REC_EXEC, TASK_TRACED};
pub use own::our_own;
use program::{Place, Program, MOST_WAITS};

/// Programs of the BPF object, and the functions that they hook.
const PARK: (&str, &str) = ("on_go_park", "runtime.gopark");
const STATUS: (&str, &str) = ("on_go_status", "runtime.casgstatus");
/// What these tell.
const PURPOSE: &str = "goroutines (--goroutines)";
// bpf/goroutines.h
const MOST_PROGRAMS: usize = 64;

/// Whether a program of the BPF object hooks Go's runtime.
pub fn is_of_goroutines(program: &str) -> bool {
    [PARK, STATUS].iter().any(|(name, _)| *name == program)
}

/// Programs in which goroutines are followed.
#[derive(Debug)]
pub struct Followed {
    /// Records have processes' numbers as we know them.
    knows_numbers: bool,
    /// Files that have been looked at, by device, inode, and when that changed last: its number may become another file's.
    seen: HashSet<(u64, u64, (i64, i64))>,
    /// Those of them that are hooked: they stay, however they change.
    hooked_files: HashSet<(u64, u64)>,
    /// Processes that have begun a program, and are still to be looked at.
    begun: Vec<u32>,
}

impl Followed {
    /// None yet. `knows_numbers`: records have the numbers of processes that we see, which is not so inside a PID namespace.
    pub fn new(knows_numbers: bool) -> Followed {
        let (seen, hooked_files, begun) = (HashSet::new(), HashSet::new(), Vec::new());
        Followed { knows_numbers, seen, hooked_files, begun }
    }

    /// Why nothing was told of goroutines, if nothing was and no hook says why.
    pub fn nothing(&self, hooks: &[Hook]) -> Option<&'static str> {
        let tried = hooks.iter().any(|hook| hook.purpose == PURPOSE);
        match (tried, self.knows_numbers) {
            (true, _) => None,
            (false, true) => Some("--goroutines told nothing: none of the programs was built with Go"),
            (false, false) => Some(
                "--goroutines told nothing: inside a PID namespace programs that begin are not known, and none of those \
                 before was built with Go",
            ),
        }
    }

    /// Takes note of a record that tells of a program that begins.
    pub fn see(&mut self, record: &[u8]) {
        let Some((hdr, _)) = records::read::<RecHdr>(record) else { return };
        if self.knows_numbers && hdr.kind == REC_EXEC && hdr.flags & TASK_TRACED != 0 {
            self.begun.push(hdr.tid);
        }
    }

    /// Hooks the programs of those processes that have begun one since.
    pub fn follow_begun(&mut self, probe: &mut Probe) {
        for pid in std::mem::take(&mut self.begun) {
            self.follow(probe, pid);
        }
    }

    /// Hooks the program of a process, if it is a Go program and is not hooked yet. What comes of it is among the
    /// probe's hooks.
    pub fn follow(&mut self, probe: &mut Probe, pid: u32) {
        // The file itself, whatever its name leads to now; it may have ended.
        let Ok(file) = File::open(format!("/proc/{pid}/exe")) else { return };
        let Ok(of) = file.metadata() else { return };
        if self.hooked_files.contains(&(of.dev(), of.ino())) {
            return;
        }
        if !self.seen.insert((of.dev(), of.ino(), (of.ctime(), of.ctime_nsec()))) {
            return;
        }
        let read = file.try_clone().map_err(anyhow::Error::from);
        let program = match read.and_then(|file| Program::of(file, [PARK.1, STATUS.1])) {
            Ok(Some(program)) => Ok(program),
            Ok(None) => return, // not Go's
            Err(error) => Err(error),
        };
        let attached = program.and_then(|program| self.hook(probe, &file, &program));
        let why_not = attached.as_ref().err().map(|error| format!("{error:#}"));
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let comm = comm.trim_end();
        for (_, function) in [PARK, STATUS] {
            probe.hooks.push(Hook {
                name: format!("{function} of {comm}"),
                attached_as: attached.as_ref().ok().map(|how| (*how).to_owned()),
                why_not: why_not.clone(),
                purpose: PURPOSE.to_owned(),
            });
        }
    }

    /// Hooks a program; says how.
    fn hook(&mut self, probe: &mut Probe, file: &File, program: &Program) -> Result<&'static str> {
        let number = self.hooked_files.len();
        if number == MOST_PROGRAMS {
            bail!("goroutines of {MOST_PROGRAMS} programs are followed already");
        }
        let waits = probe.map("go_waits")?;
        for (theirs, wait) in &program.waits {
            let key = (number * MOST_WAITS + usize::from(*theirs)) as u32;
            let value = [wait.number()];
            waits.update(&key.to_ne_bytes(), &value, MapFlags::ANY).context("go_waits")?;
        }
        // First what a goroutine parks for: without it nothing is told of its parking.
        let places = [(PARK, program.park), (STATUS, program.status)];
        // The file that was read: its process may run another one by now, of somebody else's.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let hook = |((name, function), Place { offset, .. }): ((&str, &str), Place)| {
            let link = attach(probe, name, &path, offset, number as u64);
            link.with_context(|| format!("cannot hook {function}"))
        };
        // All or none.
        let links = places.into_iter().map(hook).collect::<Result<Vec<_>>>()?;
        probe.links.extend(links);
        let of = file.metadata().context("the program's file")?;
        self.hooked_files.insert((of.dev(), of.ino()));
        Ok(match places.iter().all(|(_, place)| place.is_cheap) {
            true => "uprobe",
            false => "uprobe, stepping",
        })
    }
}

/// Hooks our own function ([`our_own`]) by the program that does least.
///
/// # Errors
/// There are no uprobes here.
pub fn hook_our_own(probe: &Probe) -> Result<Link> {
    attach(probe, PARK.0, "/proc/self/exe", own::place()?, 0)
        .context("cannot hook functions of programs")
}

/// Puts a program on an instruction of a file, `offset` bytes from its begin.
fn attach(probe: &Probe, name: &str, file: &str, offset: u64, cookie: u64) -> Result<Link> {
    let mut programs = probe.object.progs_mut();
    let hook = programs.find(|of| of.name() == name);
    let hook = hook.with_context(|| format!("the BPF object has no program {name}"))?;
    let options = UprobeOpts { cookie, ..UprobeOpts::default() };
    // Whoever runs it: whether a thread is traced the program asks itself.
    let link = hook.attach_uprobe_with_opts(-1, file, offset as usize, options);
    link.map_err(|error| anyhow!("{error:#}"))
}
