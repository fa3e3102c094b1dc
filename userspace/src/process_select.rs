//! Selects the running programs to trace: by number, by name, by port, by cgroup.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use procfs::net::TcpState;
use procfs::process::{all_processes, FDTarget, Process};

use crate::probe::pidfd_open;
use crate::probe::running::NamespacePort;

mod listeners;

pub use listeners::{listening_ports, untraced_listeners};

/// The selection criteria. A process that matches any of them is selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub pids: Vec<u32>,
    pub comms: Vec<String>,
    pub ports: Vec<u16>,
    pub cgroups: Vec<PathBuf>,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.words().join(" "))
    }
}

impl Selection {
    /// The criteria as on the command line.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut say = |option: &str, value: String| words.extend([option.to_string(), value]);
        self.pids.iter().for_each(|pid| say("--pid", pid.to_string()));
        self.comms.iter().for_each(|comm| say("--comm", comm.clone()));
        self.ports.iter().for_each(|port| say("--port", port.to_string()));
        self.cgroups.iter().for_each(|path| say("--cgroup", path.display().to_string()));
        words
    }
}

/// A process that was selected.
#[derive(Debug)]
pub struct Selected {
    pub pid: u32,
    pub comm: String,
    pub pidfd: OwnedFd,
}

/// Returns the processes that match; at least one.
///
/// # Errors
/// Nothing matches one of the options, which the error names; or a process must not or cannot be
/// traced.
pub fn select(selection: &Selection) -> Result<Vec<Selected>> {
    let ours = ours();
    let mut pids: BTreeSet<u32> = BTreeSet::new();
    for &pid in &selection.pids {
        check_pid(pid, &ours)?;
        pids.insert(pid);
    }
    // All criteria except the number select only programs that can be traced and are not part of
    // the tracing.
    let matches = |process: &Process| {
        let Ok(stat) = process.stat() else { return false };
        !ours.contains(&(process.pid as u32)) && traceable(&stat)
    };
    let mut found_by = |what: String, found: BTreeSet<u32>| {
        if found.is_empty() {
            bail!("no process {what}");
        }
        pids.extend(found);
        Ok(())
    };
    if !selection.comms.is_empty() || !selection.ports.is_empty() || !selection.cgroups.is_empty() {
        let running: Vec<Process> = processes()?.filter(matches).collect();
        for comm in &selection.comms {
            found_by(format!("is called {comm}"), by_name(&running, comm))?;
        }
        for &port in &selection.ports {
            found_by(format!("has a socket with port {port}"), by_port(&running, port))?;
        }
        for path in &selection.cgroups {
            let members = by_cgroup(path)?;
            let members = running.iter().map(|p| p.pid as u32).filter(|pid| members.contains(pid));
            found_by(format!("is in the cgroup {}", path.display()), members.collect())?;
        }
    }
    let named_by_pid = |pid: &u32| selection.pids.contains(pid);
    let mut selected = Vec::new();
    for pid in pids {
        match opened(pid) {
            Ok(one) => selected.push(one),
            Err(error) if named_by_pid(&pid) => return Err(error),
            Err(_) => {} // it has ended in the meantime
        }
    }
    if selected.is_empty() {
        bail!("no process matches {selection}: all have ended meanwhile");
    }
    Ok(selected)
}

fn opened(pid: u32) -> Result<Selected> {
    let pidfd = pidfd_open(pid).with_context(|| format!("cannot open process {pid}"))?;
    let comm = comm_of(pid).with_context(|| format!("process {pid} has ended"))?;
    Ok(Selected { pid, comm, pidfd })
}

fn comm_of(pid: u32) -> Result<String> {
    Ok(Process::new(pid as i32)?.stat()?.comm)
}

/// The children of these processes.
pub fn children(of: &HashSet<u32>) -> Result<BTreeSet<u32>> {
    let stats = processes()?.filter_map(|process| process.stat().ok());
    let is_child = |stat: &procfs::process::Stat| of.contains(&(stat.ppid as u32));
    Ok(stats.filter(is_child).map(|stat| stat.pid as u32).collect())
}

/// A process that was not selected but has to be traced.
pub fn one(pid: u32) -> Option<Selected> {
    opened(pid).ok()
}

/// Parent and start time of a process. They show which of two processes asks the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    pub parent: u32,
    /// Ticks from the start of the system to the start of the process.
    pub started: u64,
}

/// Returns the parent and the start time of a process.
pub fn age_of(pid: u32) -> Option<Age> {
    let stat = Process::new(pid as i32).and_then(|process| process.stat()).ok()?;
    Some(Age { parent: u32::try_from(stat.ppid).ok()?, started: stat.starttime })
}

/// The parent of a process.
fn parent_of(pid: u32) -> Option<u32> {
    age_of(pid).map(|age| age.parent)
}

/// User and group of a process.
pub fn owner_of(pid: u32) -> Option<(u32, u32)> {
    let status = Process::new(pid as i32).and_then(|process| process.status()).ok()?;
    Some((status.euid, status.egid))
}

/// Number of threads of a process.
pub fn threads_of(pid: u32) -> u64 {
    let tasks = Process::new(pid as i32).and_then(|process| process.tasks());
    tasks.map_or(0, |tasks| tasks.count() as u64)
}

fn processes() -> Result<impl Iterator<Item = Process>> {
    Ok(all_processes().context("cannot read /proc")?.flatten())
}

/// This process, and the sudo that runs it.
fn ours() -> HashSet<u32> {
    let mut ours = HashSet::from([std::process::id()]);
    let mut at = std::process::id();
    while let Some(parent) = parent_of(at) {
        if !comm_of(parent).is_ok_and(|comm| comm == "sudo") || !ours.insert(parent) {
            break;
        }
        at = parent;
    }
    ours
}

const PF_KTHREAD: u32 = 0x0020_0000; // include/linux/sched.h

fn traceable(stat: &procfs::process::Stat) -> bool {
    stat.flags & PF_KTHREAD == 0 && !matches!(stat.state, 'Z' | 'X')
}

fn check_pid(pid: u32, ours: &HashSet<u32>) -> Result<()> {
    let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
    let Some(process) = process else { bail!("no process has the number {pid}") };
    let status = process.status().with_context(|| format!("process {pid} has ended"))?;
    if status.tgid as u32 != pid {
        bail!("{pid} is a thread of process {}: give that number", status.tgid);
    }
    if ours.contains(&pid) {
        bail!("process {pid} is part of rpcprobe and cannot be traced by it");
    }
    let stat = process.stat().with_context(|| format!("process {pid} has ended"))?;
    if stat.flags & PF_KTHREAD != 0 {
        bail!("{pid} ({}) is a thread of the kernel, not a program", stat.comm);
    }
    if !traceable(&stat) {
        bail!("process {pid} ({}) has ended", stat.comm);
    }
    Ok(())
}

/// Finds processes by the name of the process or of its executable.
fn by_name(running: &[Process], name: &str) -> BTreeSet<u32> {
    let is_called = |process: &&Process| {
        let by_comm = process.stat().is_ok_and(|stat| stat.comm == name);
        by_comm || process.exe().is_ok_and(|path| is_file_name(&path, name))
    };
    running.iter().filter(is_called).map(|process| process.pid as u32).collect()
}

/// Whether the executable has this name. The kernel marks an executable that was replaced.
fn is_file_name(path: &Path, name: &str) -> bool {
    let Some(file) = path.file_name() else { return false };
    let file = file.as_bytes();
    file.strip_suffix(b" (deleted)").unwrap_or(file) == name.as_bytes()
}

/// Finds processes by a socket that has the port at either end.
fn by_port(running: &[Process], port: u16) -> BTreeSet<u32> {
    // By network namespace: the sockets in it with that port.
    let mut sockets: BTreeMap<u64, HashSet<u64>> = BTreeMap::new();
    let has_one = |process: &&Process| {
        let Some(namespace) = network_namespace(process) else { return false };
        let with_port =
            sockets.entry(namespace).or_insert_with(|| sockets_with_port(process, port));
        !with_port.is_empty()
            && process.fd().is_ok_and(|fds| {
                fds.flatten().any(|fd| match fd.target {
                    FDTarget::Socket(inode) => with_port.contains(&inode),
                    _ => false,
                })
            })
    };
    let mut has_one = has_one;
    let mut pids = BTreeSet::new();
    for process in running {
        if has_one(&process) {
            pids.insert(process.pid as u32);
        }
    }
    pids
}

fn network_namespace(process: &Process) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{}/ns/net", process.pid)).ok()?;
    let text = link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?;
    text.parse().ok()
}

/// Inodes of the sockets in a process's network namespace that have the port at either end.
fn sockets_with_port(process: &Process, port: u16) -> HashSet<u64> {
    let has = |local: &std::net::SocketAddr, remote: &std::net::SocketAddr| {
        local.port() == port || remote.port() == port
    };
    let tcp = [process.tcp(), process.tcp6()].into_iter().flatten().flatten();
    let udp = [process.udp(), process.udp6()].into_iter().flatten().flatten();
    let tcp = tcp.filter(|e| has(&e.local_address, &e.remote_address)).map(|e| e.inode);
    let udp = udp.filter(|e| has(&e.local_address, &e.remote_address)).map(|e| e.inode);
    tcp.chain(udp).filter(|inode| *inode != 0).collect()
}

/// Returns the processes of a cgroup (version 2) and of the cgroups below it.
fn by_cgroup(path: &Path) -> Result<HashSet<u32>> {
    let directory = cgroup_directory(path)?;
    let mut pids = HashSet::new();
    let mut directories = vec![directory.clone()];
    while let Some(at) = directories.pop() {
        let members = fs::read_to_string(at.join("cgroup.procs"))
            // A threaded cgroup lists only its threads.
            .or_else(|_| fs::read_to_string(at.join("cgroup.threads")));
        match members {
            Ok(members) => pids.extend(members.lines().filter_map(|line| line.parse::<u32>().ok())),
            Err(error) if at == directory => {
                return Err(error)
                    .with_context(|| format!("cannot read the cgroup {}", path.display()))
            }
            Err(_) => {} // it was removed in the meantime
        }
        let entries = fs::read_dir(&at).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.extend(below.map(|entry| entry.path()));
    }
    // Threads are replaced by their processes.
    Ok(pids.into_iter().map(|pid| process_of(pid).unwrap_or(pid)).collect())
}

fn process_of(tid: u32) -> Option<u32> {
    let status = Process::new(tid as i32).and_then(|process| process.status()).ok()?;
    u32::try_from(status.tgid).ok()
}

/// Returns the directory of a cgroup, which is given as a directory or as its path in the
/// hierarchy.
fn cgroup_directory(path: &Path) -> Result<PathBuf> {
    if path.is_absolute() && path.join("cgroup.procs").exists() {
        return Ok(path.to_path_buf());
    }
    let mounts = Process::myself().and_then(|process| process.mountinfo());
    let mounts = mounts.context("cannot find where cgroups are mounted")?;
    let relative = path.strip_prefix("/").unwrap_or(path);
    let hierarchies = mounts.into_iter().filter(|mount| mount.fs_type == "cgroup2");
    let mut directories = hierarchies.map(|mount| mount.mount_point.join(relative));
    directories
        .find(|directory| directory.join("cgroup.procs").exists())
        .with_context(|| format!("there is no cgroup (version 2) {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_reads_as_it_was_asked_for() {
        let selection = Selection {
            pids: vec![1, 2],
            comms: vec!["redis-server".into()],
            ports: vec![80],
            cgroups: vec!["/a b".into()],
        };
        let words = "--pid 1 --pid 2 --comm redis-server --port 80 --cgroup /a b";
        assert_eq!(selection.to_string(), words);
        assert_eq!(Selection::default().to_string(), "");
    }

    #[test]
    fn executables_are_known_by_name_also_when_replaced() {
        assert!(is_file_name(Path::new("/usr/bin/redis-server"), "redis-server"));
        assert!(is_file_name(Path::new("/usr/bin/redis-server (deleted)"), "redis-server"));
        assert!(!is_file_name(Path::new("/usr/bin/redis-server"), "redis"));
        assert!(!is_file_name(Path::new("/"), ""));
    }

    #[test]
    fn a_socket_is_found_by_its_port_at_either_end() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let myself = vec![Process::myself().expect("/proc")];
        let me = BTreeSet::from([std::process::id()]);
        assert_eq!(by_port(&myself, port), me);
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let accepted = listener.accept().expect("a connection");
        drop(listener);
        assert_eq!(by_port(&myself, port), me, "without a listener");
        drop((client, accepted));
    }

    #[test]
    fn what_cannot_be_traced_is_refused_with_the_reason() {
        let told = |selection| format!("{:#}", select(&selection).unwrap_err());
        let by_pid = |pid| told(Selection { pids: vec![pid], ..Selection::default() });
        assert!(by_pid(u32::MAX).contains("no process has the number 4294967295"));
        assert!(by_pid(2).contains("thread of the kernel"), "{}", by_pid(2));
        assert!(by_pid(std::process::id()).contains("part of rpcprobe"));
        let comms = vec!["no such name".into()];
        let told_name = told(Selection { comms, ..Selection::default() });
        assert_eq!(told_name, "no process is called no such name");
        let cgroups = vec!["/no/such/cgroup".into()];
        let told_group = told(Selection { cgroups, ..Selection::default() });
        assert!(told_group.contains("no cgroup (version 2) /no/such/cgroup"), "{told_group}");
    }
}
