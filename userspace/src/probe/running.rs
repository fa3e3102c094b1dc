//! Attaching to running programs: iterators in the kernel (`bpf/attach.bpf.c`) mark their threads and learn what lies
//! in their channels. Other programs do not pay for that.

use std::collections::HashSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use anyhow::{bail, Context, Result};
use libbpf_rs::libbpf_sys::{
    bpf_iter_create, bpf_iter_link_info, bpf_iter_link_info__bindgen_ty_3, bpf_link_create,
    bpf_link_create_opts, BPF_TRACE_ITER,
};
use libbpf_rs::{MapCore, MapFlags};

use super::{field_offset, Probe};

/// A port of a network namespace.
pub type NamespacePort = (u32, u16);

/// A process, or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    Nobody,
    Process(u32),
    Several,
}

impl Holder {
    fn from_raw(raw: u32) -> Holder {
        match raw {
            0 => Holder::Nobody,
            u32::MAX => Holder::Several,
            pid => Holder::Process(pid),
        }
    }
}

/// A channel that is older than the capture, as the kernel side has found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldChannel {
    /// A pipe's inode, or the number of a socket's direction.
    pub number: u64,
    /// A pipe's device; 0: a socket's direction.
    pub dev: u32,
    /// Of a socket: the other direction.
    pub reverse: u64,
    /// Traced processes that can read from it, and write to it.
    pub reader: Holder,
    pub writer: Holder,
    /// Whether it is the standard input of its reader, and the standard output of its writer.
    pub on_stdin: bool,
    pub on_stdout: bool,
    /// It has an address, so it is already known which side asks.
    pub is_named: bool,
    /// Bytes were moved through it since it was found.
    pub is_busy: bool,
    /// The origin of its byte counts is known.
    pub is_settled: bool,
}

impl Probe {
    /// Marks the threads of a process as traced, and records those that sleep. Returns how many were new. If none was,
    /// all threads of the process and all that they will create are traced.
    ///
    /// # Errors
    /// The kernel refuses the iterator. A process that has ended is no error.
    pub fn mark(&self, process: BorrowedFd<'_>) -> Result<usize> {
        let tids = self.iterate("mark", process)?;
        Ok(tids.len() / size_of::<u32>())
    }

    /// Gives each Unix socket in the network namespaces of these processes a number, for [`Probe::learn_files`]. A
    /// namespace that cannot be entered is left out.
    ///
    /// # Errors
    /// The kernel refuses the iterator.
    pub fn number_unix(&self, pids: impl IntoIterator<Item = u32>) -> Result<()> {
        let number = || {
            let sz = size_of::<bpf_link_create_opts>() as _;
            self.pass("number_unix", bpf_link_create_opts { sz, ..Default::default() }).map(drop)
        };
        let namespace =
            |of: &str| Some(std::fs::metadata(format!("/proc/{of}/ns/net")).ok()?.ino());
        let ours = namespace("thread-self");
        let mut seen: HashSet<u64> = ours.into_iter().collect();
        number()?;
        for pid in pids {
            let is_new = namespace(&pid.to_string()).is_some_and(|of| seen.insert(of));
            let Some(entrance) = is_new.then(|| File::open(format!("/proc/{pid}/ns/net")).ok())
            else {
                continue;
            };
            // The iterator goes over the namespace of the thread that starts it.
            let numbered = std::thread::scope(|scope| {
                let inside = || entrance.filter(enter).map_or(Ok(()), |_| number());
                scope.spawn(inside).join()
            });
            numbered.unwrap_or_else(|_| bail!("a thread that numbers Unix sockets has failed"))?;
        }
        Ok(())
    }

    /// Learns the channels that a process has open: names of connections, and which side asks on them. From now on
    /// their bytes are counted.
    ///
    /// # Errors
    /// As [`Probe::mark`].
    pub fn learn_files(&self, process: BorrowedFd<'_>) -> Result<()> {
        self.iterate("learn_files", process).map(drop)
    }

    /// Looks at the unread bytes in a process's channels. If two looks agree and nothing was moved in between, the
    /// origin of the byte counts is known.
    ///
    /// # Errors
    /// As [`Probe::mark`].
    pub fn look_at_files(&self, process: BorrowedFd<'_>) -> Result<()> {
        self.iterate("look_at_files", process).map(drop)
    }

    /// Tells the kernel side which ports have a listener: the end with such a port is the server.
    ///
    /// # Errors
    /// There is no room for so many.
    pub fn tell_listening(&self, ports: impl IntoIterator<Item = NamespacePort>) -> Result<()> {
        let map = self.map("listening")?;
        for (namespace, port) in ports {
            let key = [namespace.to_ne_bytes(), u32::from(port).to_ne_bytes()].concat();
            map.update(&key, &1u32.to_ne_bytes(), MapFlags::ANY)?;
        }
        Ok(())
    }

    /// The channels that [`Probe::learn_files`] has found.
    ///
    /// # Errors
    /// The BPF object lacks a map or field.
    pub fn old_channels(&self) -> Result<Vec<OldChannel>> {
        let map = self.map("mid_lives")?;
        let at = |field: &str| {
            field_offset("mid_life", field).with_context(|| format!("no field {field} of mid_life"))
        };
        let [reverse, reader, writer] = [at("reverse")?, at("reader")?, at("writer")?];
        let [stdin, stdout, named] = [at("on_stdin")?, at("on_stdout")?, at("is_named")?];
        let [busy, settled] = [at("busy")?, at("settled")?];
        let u64_in = |bytes: &[u8], at: usize| word(bytes, at).map_or(0, u64::from_ne_bytes);
        let u32_in = |bytes: &[u8], at: usize| word(bytes, at).map_or(0, u32::from_ne_bytes);
        let flag = |bytes: &[u8], at: usize| bytes.get(at).is_some_and(|byte| *byte != 0);
        let mut channels = Vec::new();
        for key in map.keys() {
            let Some(life) = map.lookup(&key, MapFlags::ANY)? else { continue };
            channels.push(OldChannel {
                number: u64_in(&key, 0),
                dev: u64_in(&key, 8) as u32,
                reverse: u64_in(&life, reverse),
                reader: Holder::from_raw(u32_in(&life, reader)),
                writer: Holder::from_raw(u32_in(&life, writer)),
                on_stdin: flag(&life, stdin),
                on_stdout: flag(&life, stdout),
                is_named: flag(&life, named),
                is_busy: flag(&life, busy),
                is_settled: flag(&life, settled),
            });
        }
        Ok(channels)
    }

    /// Runs an iterator over the threads or descriptors of a process; returns what it wrote.
    fn iterate(&self, program: &str, process: BorrowedFd<'_>) -> Result<Vec<u8>> {
        let mut over = bpf_iter_link_info {
            task: bpf_iter_link_info__bindgen_ty_3 {
                pid_fd: process.as_raw_fd() as u32,
                ..Default::default()
            },
        };
        let options = bpf_link_create_opts {
            sz: size_of::<bpf_link_create_opts>() as _,
            iter_info: &mut over,
            iter_info_len: size_of::<bpf_iter_link_info>() as u32,
            ..Default::default()
        };
        self.pass(program, options)
    }

    /// Runs an iterator once; returns what it wrote: nothing if the process is gone that it is to go over.
    fn pass(&self, program: &str, options: bpf_link_create_opts) -> Result<Vec<u8>> {
        let refused = || format!("cannot iterate with {program}");
        let found = self.object.progs().find(|candidate| candidate.name() == program);
        let found = found.with_context(|| format!("the BPF object has no program {program}"))?;
        // SAFETY: the descriptor is the loaded program's; the options live through the call.
        let link =
            unsafe { bpf_link_create(found.as_fd().as_raw_fd(), 0, BPF_TRACE_ITER, &options) };
        let Some(link) = owned(link).or_gone().with_context(refused)? else {
            return Ok(Vec::new());
        };
        // SAFETY: takes a descriptor.
        let pass = owned(unsafe { bpf_iter_create(link.as_raw_fd()) });
        let Some(pass) = pass.or_gone().with_context(refused)? else { return Ok(Vec::new()) };
        let mut written = Vec::new();
        match File::from(pass).read_to_end(&mut written) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(error).with_context(refused)
            }
            _ => Ok(written),
        }
    }
}

/// Moves this thread to a network namespace; returns whether that succeeded.
fn enter(namespace: &File) -> bool {
    // SAFETY: takes integers.
    unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) == 0 }
}

/// The descriptor that libbpf returned, or the error in its place.
fn owned(fd: i32) -> std::io::Result<OwnedFd> {
    if fd < 0 {
        return Err(std::io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor was just returned to us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

trait OrGone<T> {
    /// `None` for a process that has ended.
    fn or_gone(self) -> std::io::Result<Option<T>>;
}

impl<T> OrGone<T> for std::io::Result<T> {
    fn or_gone(self) -> std::io::Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(error)
                if error.raw_os_error() == Some(libc::ESRCH)
                    || error.kind() == ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
