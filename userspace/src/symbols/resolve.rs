//! Looks up the names of places at the end of a capture, while the files still exist.
//!
//! The traced program determines which files are read: it maps what it likes, and a file names
//! further files with its debug data. So these files are read in a child process that has no more
//! rights than the user who asked, none of our descriptors, and resource limits. Whatever happens
//! there stays there.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use blazesym::{helper, MaybeDefault};
use serde::{Deserialize, Serialize};

use super::calls::{ends_with_call, CALL_BYTES};
use super::places::{Places, Role};
use super::{Line, Place, Symbols};
use crate::engine::event::{hex, Module};
use crate::invoking_user::Owner;

/// Maximum size of a file that is read.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// Limits of the child: seconds (also for reads that block, such as of a FIFO that a file names as
/// the place of its debug data), and bytes of address space.
const MAX_SECONDS: u32 = 30;
const MAX_SPACE_BYTES: u64 = 16 << 30;
/// Maximum length of a name that is kept: some languages build names from whole type trees.
const MAX_NAME_BYTES: usize = 1024;
/// An address further than this from the beginning of a kernel symbol does not belong to it. The
/// kernel's list has no ends of symbols, so everything in a gap would seem to belong to the symbol
/// before.
const MAX_KERNEL_FUNCTION_BYTES: usize = 64 << 10;

/// Returns the names of `places`, and what went wrong. Files are read as `reader`. Must be called
/// while the kernel still has the programs that traced, and while this process has only one thread.
pub fn resolve(places: &Places, reader: &Owner) -> (Symbols, Vec<String>) {
    let mut symbols = Symbols::default();
    let mut warnings = Vec::new();
    let mut warn = |what: &str, error: anyhow::Error| {
        warnings.push(format!("{what} have no names: {error:#}"));
    };
    if let Some(addresses) = places.get(&None) {
        if let Err(error) = kernel(addresses, &mut symbols) {
            warn("kernel frames of stacks", error);
        }
    }
    let files: Vec<_> =
        places.iter().filter_map(|(m, offsets)| Some((m.as_ref()?, offsets))).collect();
    if !files.is_empty() {
        if let Err(error) = user_apart(&files, reader, &mut symbols) {
            warn("some or all frames of programs", error);
        }
    }
    (symbols, warnings)
}

fn kernel(addresses: &BTreeMap<u64, Role>, symbols: &mut Symbols) -> Result<()> {
    let source = Source::Kernel(Kernel {
        kallsyms: MaybeDefault::Default,
        vmlinux: MaybeDefault::None,
        ..Kernel::default()
    });
    let addresses: Vec<u64> = addresses.keys().copied().collect();
    let symbolizer = Symbolizer::new();
    let found = symbolizer.symbolize(&source, Input::AbsAddr(&addresses))?;
    for (&address, found) in addresses.iter().zip(&found) {
        if let Some(sym) = found.as_sym().filter(|sym| sym.offset < MAX_KERNEL_FUNCTION_BYTES) {
            for line in lines(sym) {
                symbols.insert(Place { module: None, address }, line);
            }
        }
    }
    let any = found.iter().any(|found| found.as_sym().is_some());
    ensure!(any, "/proc/kallsyms shows none of their addresses (see kernel.kptr_restrict)");
    Ok(())
}

/// Returns the functions at a place, innermost first.
fn lines(sym: &Sym<'_>) -> Vec<Line> {
    let line = |function: &str, code: Option<&CodeInfo<'_>>, inlined| Line {
        function: function.chars().take(MAX_NAME_BYTES).collect(),
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line),
        inlined,
    };
    let inlined = sym.inlined.iter().rev();
    let mut lines: Vec<Line> =
        inlined.map(|inlined| line(&inlined.name, inlined.code_info.as_ref(), true)).collect();
    lines.push(line(&sym.name, sym.code_info.as_deref(), false));
    lines
}

/// The child's answer for one place.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// Index in the list of files.
    file: usize,
    offset: u64,
    lines: Vec<Line>,
}

type Files<'p> = [(&'p Module, &'p BTreeMap<u64, Role>)];

/// Lets a child process read the files. What it reported before it failed is kept.
fn user_apart(files: &Files<'_>, reader: &Owner, symbols: &mut Symbols) -> Result<()> {
    let mut fds = [0; 2];
    // SAFETY: there is room for the two descriptors, which have no other owner.
    let (input, output) = unsafe {
        ensure!(libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) == 0, last_error("make a pipe"));
        (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))
    };
    // SAFETY: this process has only one thread, so the child may do anything.
    let pid = unsafe { libc::fork() };
    ensure!(pid >= 0, last_error("fork"));
    if pid == 0 {
        std::panic::set_hook(Box::new(|_| {}));
        let done = std::panic::catch_unwind(|| {
            confine(&output, reader)?;
            look_into(files, File::from(output))
        });
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(if matches!(done, Ok(Ok(()))) { 0 } else { 1 }) };
    }
    drop(output);
    let read = take_answers(files, File::from(input), symbols);
    let mut status = 0;
    // SAFETY: our own child, not yet waited for.
    while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {
        ensure!(
            std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR),
            "lost a child"
        );
    }
    read?;
    match status {
        0 => Ok(()),
        _ if libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM => {
            bail!("reading the files took longer than {MAX_SECONDS} s")
        }
        _ => bail!("reading the files failed (wait status {status:#x})"),
    }
}

fn take_answers(files: &Files<'_>, input: File, symbols: &mut Symbols) -> Result<()> {
    for answer in BufReader::new(input).lines() {
        let answer: Answer = serde_json::from_str(&answer?)?;
        let (module, offsets) = files.get(answer.file).context("an answer nobody asked for")?;
        ensure!(offsets.contains_key(&answer.offset), "an answer nobody asked for");
        let place = Place { module: Some(module), address: answer.offset };
        answer.lines.into_iter().for_each(|line| symbols.insert(place, line));
    }
    Ok(())
}

/// Gives up everything that is not needed for reading files.
fn confine(output: &OwnedFd, reader: &Owner) -> Result<()> {
    let limit = |resource, most: u64| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the limit lives through the call.
        unsafe { libc::setrlimit(resource, &limit) }
    };
    let fd = output.as_raw_fd() as u32;
    // SAFETY: this process has only one thread and uses none of the descriptors that are closed;
    // the other calls take numbers.
    unsafe {
        libc::alarm(MAX_SECONDS);
        libc::close_range(3, fd - 1, 0);
        libc::close_range(fd + 1, u32::MAX, 0);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    limit(libc::RLIMIT_CORE, 0);
    limit(libc::RLIMIT_CPU, MAX_SECONDS.into());
    limit(libc::RLIMIT_FSIZE, 0);
    limit(libc::RLIMIT_AS, MAX_SPACE_BYTES);
    reader.become_for_good()
}

fn look_into(files: &Files<'_>, output: File) -> Result<()> {
    let mut output = BufWriter::new(output);
    for (file, (module, offsets)) in files.iter().enumerate() {
        // A file that cannot be read has no names. Its frames show the file and the offset.
        let found = std::panic::catch_unwind(|| look_into_file(module, offsets));
        let Ok(Ok(found)) = found else { continue };
        for (offset, lines) in found {
            serde_json::to_writer(&mut output, &Answer { file, offset, lines })?;
            output.write_all(b"\n")?;
        }
        output.flush()?;
    }
    Ok(())
}

fn look_into_file(module: &Module, offsets: &BTreeMap<u64, Role>) -> Result<Vec<(u64, Vec<Line>)>> {
    let path = Path::new(&*module.path);
    ensure!(path.is_absolute(), "not a path");
    let (file, before) = checked(path, module)?;
    let shown =
        |(&offset, &role)| (role == Role::Certain || call_ends_at(&file, offset)).then_some(offset);
    let offsets: Vec<u64> = offsets.iter().filter_map(shown).collect();
    let mut found = look_up(path, &offsets, true).unwrap_or_default();
    // Symbols may name what debug data does not, or cannot because it is damaged.
    let known: HashSet<u64> = found.iter().map(|(offset, _)| *offset).collect();
    let rest: Vec<u64> = offsets.into_iter().filter(|offset| !known.contains(offset)).collect();
    found.extend(look_up(path, &rest, false)?);
    // The names belong to the file that was checked only if that file is still there.
    ensure!(checked(path, module)?.1 == before, "the file changed");
    Ok(found)
}

fn look_up(path: &Path, offsets: &[u64], debug_syms: bool) -> Result<Vec<(u64, Vec<Line>)>> {
    let symbolizer = Symbolizer::new();
    let source = Source::Elf(Elf { debug_syms, ..Elf::new(path) });
    let found = symbolizer.symbolize(&source, Input::FileOffset(offsets))?;
    let named = offsets.iter().zip(found).filter_map(|(&offset, found)| match found {
        Symbolized::Sym(sym) => Some((offset, lines(&sym))),
        Symbolized::Unknown(_) => None,
    });
    Ok(named.collect())
}

/// Whether the byte at `offset` is the last byte of a call.
fn call_ends_at(file: &File, offset: u64) -> bool {
    let mut bytes = [0; CALL_BYTES];
    let Some(begin) = offset.checked_sub(CALL_BYTES as u64 - 1) else { return false };
    file.read_exact_at(&mut bytes, begin).is_ok() && ends_with_call(&bytes)
}

/// Identifies a state of a file.
type State = (u64, u64, i64, i64);

/// Checks that the path leads to a regular file, the one that was mapped.
fn checked(path: &Path, module: &Module) -> Result<(File, State)> {
    // Without O_NONBLOCK, a FIFO in place of the file would make the open wait.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    ensure!(fs::metadata(path)?.is_file(), "not a regular file");
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    ensure!(found.is_file() && found.len() <= MAX_FILE_BYTES, "not a regular file of usual size");
    let identity = match module.identity.strip_prefix("build-id:") {
        Some(_) => {
            let id = helper::read_elf_build_id(path)?;
            format!("build-id:{}", hex(&id.context("no build id")?))
        }
        None => {
            let dev = found.dev();
            format!("inode:{}:{}:{}", libc::major(dev), libc::minor(dev), found.ino())
        }
    };
    ensure!(identity == *module.identity, "another file than the one that was mapped");
    Ok((file, (found.dev(), found.ino(), found.ctime(), found.ctime_nsec())))
}

fn last_error(what: &str) -> String {
    format!("cannot {what}: {}", std::io::Error::last_os_error())
}
