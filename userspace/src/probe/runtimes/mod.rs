//! Tasks of runtimes (`--tasks`): hooks functions of the runtimes in the traced programs, by uprobes
//! (`bpf/runtime_tasks.h`). Each runtime has a file here, a source of the kernel side, and a line in [`RUNTIMES`].

mod asyncio;
mod entry;
mod go;
mod image;
mod libuv;
mod look;
mod node;
mod own;
mod tokio;
mod uvloop;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::{Link, MapCore, MapFlags, UprobeOpts};

use super::Probe;
use crate::capture::manifest::Hook;
use crate::records::{self, RecHdr, TaskWait, REC_EXEC, TASK_TRACED};
use entry::Arguments;
use image::{Image, Place};
use look::{FileId, Looked, Looker, Program};
pub use own::{our_own, write_our_own};

/// The description of a runtime.
pub struct Runtime {
    name: &'static str,
    /// What a program must contain, for messages.
    needs: &'static str,
    /// Programs of the BPF object.
    programs: &'static [&'static str],
    /// Finds what to hook in a file; `None`: the runtime is not in it.
    find: fn(&Image<'_>) -> Result<Option<Found>>,
}

/// A runtime in a file.
#[derive(Debug)]
struct Found {
    /// Programs of the BPF object, what they hook, and where, in the order in which they are to be attached.
    hooks: Vec<(&'static str, String, Place)>,
    /// The meanings of the runtime's numbers for waits.
    waits: Vec<(u8, TaskWait)>,
    /// The distance of its event loop from the program's entry, if it has one at a known place.
    event_loop: Option<u64>,
}

const RUNTIMES: [Runtime; 5] = [go::GO, tokio::TOKIO, asyncio::ASYNCIO, uvloop::UVLOOP, node::NODE];

/// Programs that are run when their function returns.
const RETURNS: [&str; 2] = ["on_asyncio_copied", "on_tokio_polled"];
/// The program that does least.
const LEAST: &str = "on_tokio_timers";
/// The purpose of these hooks.
const PURPOSE: &str = "tasks of runtimes (--tasks)";
// bpf/goroutines.h
const MOST_PROGRAMS: usize = 64;
pub const MOST_WAITS: usize = 256;
/// How often to look for the libraries of a program that has just begun, as they are loaded only later: each time that
/// the rings are emptied (every 10 ms), then every 250 ms, for a minute in all. uvicorn alone has loaded uvloop after 0.2
/// s; an application may import much else first. A look at a process of Python takes about half a millisecond.
const MOST_LOOKS: u32 = 50;
const MOST_LATER_LOOKS: u32 = 240;
const TIMES_BETWEEN_LATER_LOOKS: u32 = 25;

/// Whether a program of the BPF object hooks a runtime.
pub fn is_of_runtimes(program: &str) -> bool {
    RUNTIMES.iter().any(|runtime| runtime.programs.contains(&program))
        || libuv::PROGRAMS.contains(&program)
}

/// The next step to follow the tasks of a process.
enum Next {
    /// The tasks are followed already, or there are none.
    Nothing,
    /// Its library may be loaded later.
    Later,
    /// This file is to be looked at.
    Look(FileId, Program),
    /// A file is being looked at.
    Looked,
}

/// A process that has begun a program.
#[derive(Clone, Copy, Debug)]
struct Begun {
    pid: u32,
    /// How often the rings have been emptied since.
    times: u32,
}

impl Begun {
    /// Whether to look now, and whether to look again after that.
    fn looks(self) -> (bool, bool) {
        let later = self.times.saturating_sub(MOST_LOOKS);
        let is_due = later.is_multiple_of(TIMES_BETWEEN_LATER_LOOKS);
        (is_due, later < MOST_LATER_LOOKS * TIMES_BETWEEN_LATER_LOOKS)
    }
}

/// Programs and libraries in which tasks are followed.
#[derive(Debug)]
pub struct Followed {
    /// Records contain the process numbers that we see.
    knows_numbers: bool,
    /// Files that have been looked at.
    seen: HashSet<FileId>,
    /// Files that are being looked at, by device and inode.
    awaited: HashSet<(u64, u64)>,
    /// The thread that looks at them, once it has been started.
    looker: Option<Looker>,
    /// Files that are hooked, by device and inode: they stay hooked, however they change.
    hooked_files: HashSet<(u64, u64)>,
    /// Processes that have begun a program and are still to be looked at.
    begun: Vec<Begun>,
    loops: node::Loops,
    /// The distances of event loops from the programs' entries, by device and inode of the file.
    event_loops: HashMap<(u64, u64), u64>,
}

impl Followed {
    /// Nothing is followed yet. `knows_numbers`: records contain the process numbers that we see, which is not so
    /// inside a PID namespace.
    pub fn new(knows_numbers: bool) -> Followed {
        Followed {
            knows_numbers,
            seen: HashSet::new(),
            awaited: HashSet::new(),
            looker: None,
            hooked_files: HashSet::new(),
            begun: Vec::new(),
            loops: node::Loops::default(),
            event_loops: HashMap::new(),
        }
    }

    /// Returns why no tasks were recorded, if none were and no hook says why.
    pub fn nothing(&self, hooks: &[Hook]) -> Option<String> {
        let tried = hooks.iter().any(|hook| hook.purpose == PURPOSE);
        let mut needs = RUNTIMES.map(|runtime| runtime.needs).to_vec();
        needs.dedup();
        let needs = needs.join(", ");
        match (tried, self.knows_numbers) {
            (true, _) => None,
            (false, _) if !self.awaited.is_empty() => Some(
                "--tasks found no tasks: the capture ended before the programs had been looked at"
                    .to_owned(),
            ),
            (false, true) => Some(format!(
                "--tasks found no tasks: no program has a runtime that can be followed ({needs})"
            )),
            (false, false) => Some(format!(
                "--tasks found no tasks: inside a PID namespace programs that start later are not seen, and no \
                 earlier program has a runtime that can be followed ({needs})"
            )),
        }
    }

    /// Takes note of a record that tells of a program that begins, or of an event loop.
    pub fn see(&mut self, record: &[u8]) {
        let Some((hdr, _)) = records::read::<RecHdr>(record) else { return };
        if !self.knows_numbers {
            return;
        }
        if hdr.kind == REC_EXEC && hdr.flags & TASK_TRACED != 0 {
            self.begun.push(Begun { pid: hdr.tid, times: 0 });
        }
        self.loops.see(&hdr, record);
    }

    /// Hooks the programs that processes have begun since, once the files have been looked at, and watches event loops
    /// that have been found.
    pub fn follow_begun(&mut self, probe: &mut Probe) {
        let looked: Vec<_> = self.looker.iter().flat_map(Looker::looked).collect();
        for looked in looked {
            self.hook_all(probe, looked);
        }
        for of in std::mem::take(&mut self.begun) {
            let (is_due, again) = of.looks();
            let later = Begun { times: of.times + 1, ..of };
            let next = if is_due { self.followed(of.pid) } else { Next::Later };
            let again = match next {
                Next::Nothing => None,
                Next::Later => again.then_some(later),
                Next::Look(id, program) => self.ask(probe, id, program).then_some(later),
                Next::Looked => Some(of),
            };
            self.begun.extend(again);
        }
        self.loops.watch(probe);
    }

    /// Hooks the runtimes in the program of a process and in its libraries, if there are any that are not hooked yet,
    /// and waits until that is done. The results are among the probe's hooks.
    pub fn follow(&mut self, probe: &mut Probe, pid: u32) {
        // The program and its libraries, however often their owner changes them meanwhile.
        for _ in 0..=LIBRARIES.len() {
            let Next::Look(id, program) = self.followed(pid) else { return };
            self.hook_all(probe, Looked::at(id, program));
        }
        self.followed(pid);
    }

    /// Requests a file from the thread that looks at files. Returns whether the file is now awaited.
    fn ask(&mut self, probe: &mut Probe, id: FileId, program: Program) -> bool {
        if self.looker.is_none() {
            self.looker = Looker::start().ok();
        }
        let name = format!("runtimes of {}", program.comm);
        let is_asked = self.looker.as_ref().is_some_and(|looker| looker.ask(id, program));
        match is_asked {
            true => self.awaited.insert((id.0, id.1)),
            false => {
                note(probe, name, Err(anyhow!("no thread looks at its file")));
                false
            }
        }
    }

    /// Determines the next step for the tasks of a process.
    fn followed(&mut self, pid: u32) -> Next {
        // The file itself, whatever its name leads to now. The process may have ended.
        let Ok(file) = File::open(format!("/proc/{pid}/exe")) else { return Next::Nothing };
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let comm = comm.trim_end().to_owned();
        let program = Program { file, comm: comm.clone() };
        let Some(id) = program.id() else { return Next::Nothing };
        let is_hooked = self.hooked_files.contains(&(id.0, id.1));
        let at = self.event_loops.get(&(id.0, id.1)).filter(|_| self.knows_numbers);
        if let Some(at) = at {
            self.loops.begins(pid, *at);
        }
        if let (false, Some(next)) = (is_hooked, self.unseen(id, program)) {
            return next;
        }
        let name = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let is_python =
            name.file_name().is_some_and(|name| name.to_string_lossy().contains("python"));
        if is_hooked && !is_python {
            return Next::Nothing;
        }
        let mut loads_more = is_python;
        for (number, file) in libraries(pid) {
            let library = Program { file, comm: comm.clone() };
            let Some(id) = library.id() else { continue };
            if self.hooked_files.contains(&(id.0, id.1)) {
                loads_more &= number + 1 < LIBRARIES.len();
            } else if let Some(next) = self.unseen(id, library) {
                return next;
            }
        }
        if loads_more {
            Next::Later
        } else {
            Next::Nothing
        }
    }

    /// The next step for a file that is not hooked; `None`: it has been looked at.
    fn unseen(&self, id: FileId, program: Program) -> Option<Next> {
        match (self.seen.contains(&id), self.awaited.contains(&(id.0, id.1))) {
            (true, _) => None,
            (false, true) => Some(Next::Looked),
            (false, false) => Some(Next::Look(id, program)),
        }
    }

    /// Hooks the runtimes that were found in a file.
    fn hook_all(&mut self, probe: &mut Probe, looked: Looked) {
        let Looked { id, program: Program { file, comm }, found } = looked;
        let of = (id.0, id.1);
        self.awaited.remove(&of);
        self.seen.insert(id);
        if self.hooked_files.contains(&of) {
            return;
        }
        for (name, found) in found {
            match found {
                Ok(found) => self.hook(probe, (&file, of), &found, &comm),
                Err(error) => note(probe, format!("{name} of {comm}"), Err(error)),
            }
        }
    }

    /// Hooks a runtime in a file: all of it or nothing.
    fn hook(&mut self, probe: &mut Probe, file: (&File, (u64, u64)), found: &Found, comm: &str) {
        let attached = self.attach_all(probe, file, found);
        let is_cheap = found.hooks.iter().all(|(.., place)| place.is_cheap);
        let how = if is_cheap { "uprobe" } else { "uprobe, stepping" };
        for (_, function, _) in &found.hooks {
            let attached = attached.as_ref().map(|()| how).map_err(|error| anyhow!("{error:#}"));
            note(probe, format!("{function} of {comm}"), attached);
        }
    }

    fn attach_all(
        &mut self,
        probe: &mut Probe,
        (file, of): (&File, (u64, u64)),
        found: &Found,
    ) -> Result<()> {
        let number = self.hooked_files.len();
        if number == MOST_PROGRAMS {
            bail!("tasks of {MOST_PROGRAMS} programs are followed already");
        }
        let waits = probe.map("go_waits")?;
        for (theirs, wait) in &found.waits {
            let key = (number * MOST_WAITS + usize::from(*theirs)) as u32;
            let value = [wait.number()];
            waits.update(&key.to_ne_bytes(), &value, MapFlags::ANY).context("go_waits")?;
        }
        // This is the file that was read: its process may by now run another file, which may be of another owner.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let hook = |(program, function, place): &(&str, String, Place)| {
            let link = attach(probe, program, &path, place.offset, number as u64);
            link.with_context(|| format!("cannot hook {function}"))
        };
        let links = found.hooks.iter().map(hook).collect::<Result<Vec<_>>>()?;
        probe.links.extend(links);
        self.event_loops.extend(found.event_loop.map(|at| (of, at)));
        self.hooked_files.insert(of);
        Ok(())
    }
}

/// Where a BPF program is attached in a C function.
fn place_in_c(image: &Image<'_>, program: &str, address: u64) -> Result<Place> {
    match RETURNS.contains(&program) {
        true => image.begin(address),
        false => image.place(address, Arguments::C),
    }
}

/// Notes the result of attaching a hook.
fn note(probe: &mut Probe, name: String, attached: Result<&str>) {
    probe.hooks.push(Hook {
        name,
        attached_as: attached.as_ref().ok().map(|how| (*how).to_owned()),
        why_not: attached.as_ref().err().map(|error| format!("{error:#}")),
        purpose: PURPOSE.to_owned(),
    });
}

/// Libraries that may have a runtime in them, in the order in which Python loads them: how their names begin, and their
/// folder, if it has a name of its own.
const LIBRARIES: [(&str, Option<&str>); 2] = [("libpython3.", None), ("loop.", Some("uvloop"))];

/// The libraries of [`LIBRARIES`] that a process has loaded, by their index there: the files themselves, whatever their
/// names lead to now.
fn libraries(pid: u32) -> Vec<(usize, File)> {
    let process = i32::try_from(pid).ok().and_then(|pid| procfs::process::Process::new(pid).ok());
    let maps = process.and_then(|process| process.maps().ok()).into_iter().flatten();
    let mut found = BTreeMap::new();
    for map in maps {
        let procfs::process::MMapPath::Path(path) = &map.pathname else { continue };
        let name_of = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
        let Some(name) = name_of(path).filter(|name| name.contains(".so")) else { continue };
        let folder = path.parent().and_then(name_of);
        let is_it = |(begin, of): &(&str, Option<&str>)| {
            name.starts_with(begin) && of.is_none_or(|of| folder.as_deref() == Some(of))
        };
        if let Some(number) = LIBRARIES.iter().position(is_it) {
            found.entry(number).or_insert(map.address);
        }
    }
    let open =
        |(from, to): (u64, u64)| File::open(format!("/proc/{pid}/map_files/{from:x}-{to:x}"));
    found.into_iter().filter_map(|(number, address)| Some((number, open(address).ok()?))).collect()
}

/// Hooks our own function ([`our_own`]) by the program that does least.
///
/// # Errors
/// This kernel has no uprobes.
pub fn hook_our_own(probe: &Probe) -> Result<Link> {
    attach(probe, LEAST, "/proc/self/exe", own::place()?, 0)
        .context("cannot hook functions of programs")
}

/// Watches our own word ([`write_our_own`]) in a process, by the program that watches the timers of Node.
///
/// # Errors
/// This machine has no watchpoints.
pub fn watch_our_own(probe: &Probe, pid: u32) -> Result<Link> {
    node::watch(probe, own::word(), pid)
}

/// Attaches a program to the instruction that is `offset` bytes from the beginning of a file.
fn attach(probe: &Probe, name: &str, file: &str, offset: u64, cookie: u64) -> Result<Link> {
    let mut programs = probe.object.progs_mut();
    let hook = programs.find(|of| of.name() == name);
    let hook = hook.with_context(|| format!("the BPF object has no program {name}"))?;
    let retprobe = RETURNS.contains(&name);
    let options = UprobeOpts { cookie, retprobe, ..UprobeOpts::default() };
    // For all processes that run the file: the program itself checks whether a thread is traced.
    let link = hook.attach_uprobe_with_opts(-1, file, offset as usize, options);
    link.map_err(|error| anyhow!("{error:#}"))
}
