//! Starts the target, follows it, and ends as it did.
//!
//! The target must not notice us. It gets the standard descriptors, environment, limits, signal
//! mask and dispositions that we were started with, and stays in our process group and session. It
//! also gets the signals that are sent to us in its place.

use std::ffi::{CString, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Result};
use libc::{c_char, c_int, pid_t};

mod group_signal;
mod inherited;
pub(crate) mod signals;
mod status;

use crate::invoking_user::reason;
pub use crate::invoking_user::User;
use group_signal::GroupSignal;
pub use status::WaitStatus;

/// Signals that ask to end.
const INTERRUPTS: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Signals that would end this process and that are meant for the target.
const RELAYED: [c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// How long after a signal reached us it may reach the rest of our process group. The kernel takes
/// microseconds for a group; a supervisor that signals each process separately takes longer.
const SETTLE: Duration = Duration::from_millis(10);

/// What to run.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program, searched in PATH if it has no slash, and its arguments. Not empty.
    pub argv: Vec<OsString>,
    /// The user to run it as; `None` for the user that we run as.
    pub user: Option<User>,
}

/// Why the target could not be started.
#[derive(Debug)]
pub enum SpawnError {
    /// There is no such program.
    NotFound { program: OsString, error: io::Error },
    /// The program exists, but the system does not run it.
    NotExecutable { program: OsString, error: io::Error },
    /// We cannot run programs as that user.
    User { name: OsString, error: io::Error },
}

impl SpawnError {
    /// The exit status that shells and `env` use: 127 for a program not found, 126 for a program
    /// that cannot be run, 125 for a failure before that.
    pub fn exit_code(&self) -> i32 {
        match self {
            SpawnError::NotFound { .. } => 127,
            SpawnError::NotExecutable { .. } => 126,
            SpawnError::User { .. } => 125,
        }
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpawnError::NotFound { program, error } => {
                let shown = program.to_string_lossy();
                if !program.as_bytes().contains(&b'/') {
                    write!(f, "cannot run {shown}: not found in PATH")
                } else if Path::new(program).exists() {
                    write!(f, "cannot run {shown}: the interpreter that it names does not exist")
                } else {
                    write!(f, "cannot run {shown}: {}", reason(error))
                }
            }
            SpawnError::NotExecutable { program, error } => {
                write!(f, "cannot run {}: {}", program.to_string_lossy(), reason(error))
            }
            SpawnError::User { name, error } => {
                write!(f, "cannot run programs as {}: {}", name.to_string_lossy(), reason(error))
            }
        }
    }
}

impl std::error::Error for SpawnError {}

/// Whether the target is still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Running, stopped, or not yet released.
    Running,
    /// Ended; the status stays available.
    Exited(WaitStatus),
}

/// The traced program: a child process. If dropped before [`Target::release`], it never ran; if
/// dropped later, it goes on.
#[derive(Debug)]
pub struct Target {
    pid: pid_t,
    spec: Spec,
    pidfd: OwnedFd,
    signals: File,
    witness: GroupSignal,
    gate: Option<Gate>,
    status: Option<WaitStatus>,
    interrupted: Option<c_int>,
    undecided: Vec<Received>,
    /// Whether the witness may have seen a signal that is no longer needed.
    witness_outdated: bool,
}

/// Holds the child until it may run the program.
#[derive(Debug)]
struct Gate {
    go: PipeWriter,
    /// Kept so that there always is a reader: writing to the pipe of a killed child would raise
    /// SIGPIPE.
    _go_reader: PipeReader,
    /// Ends without data when the program runs; otherwise delivers a [`Failure`].
    report: PipeReader,
}

/// A signal that reached us, until it is known whether it also reached the target.
#[derive(Debug)]
struct Received {
    signal: c_int,
    queued_value: Option<u64>,
    decide_at: Instant,
}

impl Target {
    /// Creates the target's process, which waits for [`Target::release`] before it runs the
    /// program. If we end before that, it ends without running the program.
    ///
    /// From here on, signals that ask to end no longer end this process. [`Target::poll`] passes
    /// them on to the target. For this to work, this function must be called in the main thread,
    /// before other threads are created.
    ///
    /// # Errors
    ///
    /// The command is empty or has a NUL byte, or the system has no room for another process.
    /// Whether the program exists is known only in [`Target::release`].
    pub fn spawn(spec: &Spec) -> Result<Target> {
        let argv = spec
            .argv
            .iter()
            .map(|argument| CString::new(argument.as_bytes()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| anyhow!("cannot run a command with a NUL byte in it"))?;
        if argv.is_empty() {
            bail!("no command to run");
        }
        let inherited = inherited::get();
        signals::change_mask(libc::SIG_BLOCK, &signals::set(&RELAYED));
        if signals::is_ignored(libc::SIGCHLD) {
            signals::set_ignored(libc::SIGCHLD, false); // otherwise there would be no status to wait for
        }
        Target::fork(spec, &argv, inherited).map_err(|error| {
            anyhow!("cannot start {}: {}", spec.argv[0].to_string_lossy(), reason(&error))
        })
    }

    fn fork(spec: &Spec, argv: &[CString], inherited: &inherited::Inherited) -> io::Result<Target> {
        let signals = signals::descriptor(&RELAYED)?;
        let witness = GroupSignal::start()?;
        let (go_reader, go) = io::pipe()?;
        let (report, report_writer) = io::pipe()?;

        // Everything that allocates comes before the fork.
        let pointers: Vec<*const c_char> =
            argv.iter().map(|argument| argument.as_ptr()).chain([ptr::null()]).collect();
        let user = spec.user.as_ref().filter(|user| !user.is_current());
        let plan = Plan {
            argv: &pointers,
            user: user.map(|user| (user.uid, user.gid, user.groups())),
            inherited,
            go: go_reader.as_raw_fd(),
            go_writer: go.as_raw_fd(),
            report: report_writer.as_raw_fd(),
        };
        // SAFETY: the child only makes async-signal-safe calls and does not return.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => return Err(io::Error::last_os_error()),
            0 => plan.carry_out(),
            _ => {}
        }
        drop(report_writer);
        let gate = Some(Gate { go, _go_reader: go_reader, report });
        match pidfd_open(pid) {
            Ok(pidfd) => Ok(Target {
                pid,
                spec: spec.clone(),
                pidfd,
                signals,
                witness,
                gate,
                status: None,
                interrupted: None,
                undecided: Vec::new(),
                witness_outdated: false,
            }),
            Err(error) => {
                drop(gate); // the child ends
                let _ = wait(pid, 0);
                Err(error)
            }
        }
    }

    /// Process id of the target.
    pub fn pid(&self) -> pid_t {
        self.pid
    }

    /// Lets the target run its program; returns when it does. A target that was killed before that
    /// is not an error; [`Target::poll`] reports it.
    ///
    /// # Errors
    ///
    /// The program could not be run. Then the target has ended.
    pub fn release(&mut self) -> Result<(), SpawnError> {
        let Some(Gate { mut go, mut report, .. }) = self.gate.take() else { return Ok(()) };
        // There is a reader and room for a byte. If writing failed nevertheless, the end of the
        // pipe would end the child.
        let _ = go.write_all(&[1]);
        drop(go);
        let mut failure = [0; size_of::<Failure>()];
        let Ok(()) = report.read_exact(&mut failure) else { return Ok(()) };
        if let Ok(Some(status)) = wait(self.pid, 0) {
            self.status = Some(status);
        }
        let (step, code) = parse_failure(failure);
        let error = io::Error::from_raw_os_error(code);
        let program = self.spec.argv[0].clone();
        Err(match &self.spec.user {
            Some(user) if step == STEP_USER => SpawnError::User { name: user.name.clone(), error },
            _ if code == libc::ENOENT => SpawnError::NotFound { program, error },
            _ => SpawnError::NotExecutable { program, error },
        })
    }

    /// Waits at most `timeout` for an event, and passes signals on.
    ///
    /// # Errors
    ///
    /// A system call failed unexpectedly.
    pub fn poll(&mut self, timeout: Duration) -> Result<State> {
        if let Some(status) = self.status {
            return Ok(State::Exited(status));
        }
        let ended = self
            .wait_for_event(timeout)
            .map_err(|error| anyhow!("cannot wait for the target: {}", reason(&error)))?;
        self.receive_signals();
        if ended {
            self.status = wait(self.pid, libc::WNOHANG)
                .map_err(|error| anyhow!("cannot get the target's status: {}", reason(&error)))?;
        }
        match self.status {
            Some(status) => Ok(State::Exited(status)),
            None => {
                self.relay_signals();
                Ok(State::Running)
            }
        }
    }

    /// The first signal that asked us and the target to end (SIGINT, SIGTERM, SIGHUP or SIGQUIT),
    /// whether it came from the terminal or from a process.
    pub fn interrupted(&self) -> Option<i32> {
        self.interrupted
    }

    /// Lets signals act on this process as when it was started, for long work after the target's
    /// end. Signals received until now are forgotten.
    pub fn restore_signals(&mut self) {
        self.receive_signals();
        signals::change_mask(libc::SIG_SETMASK, &inherited::get().mask);
    }

    /// Returns whether the target ended.
    fn wait_for_event(&self, timeout: Duration) -> io::Result<bool> {
        let decision = self.undecided.iter().map(|received| received.decide_at).min();
        let timeout = match decision {
            Some(at) => timeout.min(at.saturating_duration_since(Instant::now())),
            None => timeout,
        };
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let on = |fd: &dyn AsRawFd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut fds = [on(&self.pidfd), on(&self.signals)];
        // SAFETY: the descriptors and the time live through the call.
        let result = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, &timeout, ptr::null()) };
        if result == -1 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(error) };
        }
        Ok(fds[0].revents != 0)
    }

    /// Receives the signals that are pending for us.
    fn receive_signals(&mut self) {
        let mut raw = [0; size_of::<libc::signalfd_siginfo>()];
        while let Ok(length) = self.signals.read(&mut raw) {
            if length != raw.len() {
                break;
            }
            // SAFETY: as many bytes as the structure has, which consists of integers.
            let info: libc::signalfd_siginfo = unsafe { ptr::read_unaligned(raw.as_ptr().cast()) };
            self.receive(&info);
        }
    }

    fn receive(&mut self, info: &libc::signalfd_siginfo) {
        self.witness_outdated = true;
        let signal = info.ssi_signo as c_int;
        let from_kernel = info.ssi_code == libc::SI_KERNEL;
        if !from_kernel && info.ssi_pid == self.pid as u32 {
            return; // meant for its parent or its group; it does not send signals to itself through us
        }
        // An ignored signal (for example under nohup) asks nobody to end.
        let ignored = inherited::get().ignored & signals::bit(signal) != 0;
        if INTERRUPTS.contains(&signal) && !ignored {
            self.interrupted.get_or_insert(signal);
        }
        // The terminal's keys signal the foreground group. Only the hang-up of a terminal goes to
        // the session leader alone, which may be this process.
        if from_kernel && signal != libc::SIGHUP {
            return;
        }
        self.undecided.push(Received {
            signal,
            queued_value: (info.ssi_code == libc::SI_QUEUE).then_some(info.ssi_ptr),
            decide_at: Instant::now() + SETTLE,
        });
    }

    /// Passes on the signals that reached only us.
    fn relay_signals(&mut self) {
        if !self.undecided.is_empty() {
            // SAFETY: these take numbers only and query.
            let same_group = unsafe { libc::getpgid(self.pid) == libc::getpgrp() };
            let reached_directly = if same_group { self.witness.seen() } else { 0 };
            let now = Instant::now();
            let mut undecided = std::mem::take(&mut self.undecided);
            undecided.retain(|received| {
                if reached_directly & signals::bit(received.signal) != 0 {
                    return false;
                }
                let decided = !same_group || now >= received.decide_at;
                if decided {
                    self.relay(received);
                }
                !decided
            });
            self.undecided = undecided;
        }
        if self.undecided.is_empty() && self.witness_outdated {
            self.witness.forget();
            self.witness_outdated = false;
        }
    }

    /// Sends the signal to the target. Only the sender would need to know whether that was
    /// possible, and we cannot tell it.
    fn relay(&self, received: &Received) {
        // SAFETY: these take numbers only. The target has not been waited for, so the id is still
        // its own.
        unsafe {
            match received.queued_value {
                Some(value) => {
                    let sival_ptr = ptr::without_provenance_mut(value as usize);
                    libc::sigqueue(self.pid, received.signal, libc::sigval { sival_ptr });
                }
                None => {
                    libc::kill(self.pid, received.signal);
                }
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.gate.is_some() && self.status.is_none() {
            // The child would end by itself, but not while it is stopped.
            // SAFETY: takes numbers only; the target has not been waited for.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            let _ = wait(self.pid, 0);
        }
    }
}

impl User {
    /// Whether nothing has to change to run programs as this user. Root always sets the groups.
    fn is_current(&self) -> bool {
        // SAFETY: these only return ids of the process.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        uid != 0 && (uid, gid) == (self.uid, self.gid)
    }
}

/// What the child does, with everything it needs, because it must not allocate.
struct Plan<'a> {
    argv: &'a [*const c_char],
    user: Option<(libc::uid_t, libc::gid_t, Vec<libc::gid_t>)>,
    inherited: &'a inherited::Inherited,
    go: RawFd,
    go_writer: RawFd,
    report: RawFd,
}

/// The step of the child that failed, and the error number.
type Failure = [u8; 8];

const STEP_USER: i32 = 1;
const STEP_EXEC: i32 = 2;

fn parse_failure(failure: Failure) -> (i32, c_int) {
    let [a, b, c, d, e, f, g, h] = failure;
    (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]))
}

impl Plan<'_> {
    fn carry_out(&self) -> ! {
        // Otherwise the child would not notice our end.
        // SAFETY: takes a number only; this is the child's copy.
        unsafe { libc::close(self.go_writer) };
        self.inherited.restore_dispositions_and_limits();
        if !self.become_user() {
            self.fail(STEP_USER);
        }
        signals::change_mask(libc::SIG_SETMASK, &self.inherited.mask);
        let mut byte = 0u8;
        loop {
            // SAFETY: there is room for one byte.
            match unsafe { libc::read(self.go, (&raw mut byte).cast(), 1) } {
                1 => break,
                -1 if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
                // SAFETY: takes a number only.
                _ => unsafe { libc::_exit(127) },
            }
        }
        // SAFETY: pointers to C strings, the last one null.
        unsafe { libc::execvp(self.argv[0], self.argv.as_ptr()) };
        self.fail(STEP_EXEC)
    }

    /// Called directly, because the C library's functions coordinate threads, which the child does
    /// not have.
    fn become_user(&self) -> bool {
        let Some((uid, gid, groups)) = &self.user else { return true };
        // SAFETY: the pointer is to as many groups as the call is told; the others take numbers.
        unsafe {
            libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) == 0
                && libc::syscall(libc::SYS_setresgid, *gid, *gid, *gid) == 0
                && libc::syscall(libc::SYS_setresuid, *uid, *uid, *uid) == 0
        }
    }

    /// Reports the error of the last system call and ends.
    fn fail(&self, step: i32) -> ! {
        let code = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let report = [step, code];
        // SAFETY: the pointer is to as many bytes as the call is told.
        unsafe {
            libc::write(self.report, report.as_ptr().cast(), size_of::<Failure>());
            libc::_exit(126)
        }
    }
}

fn pidfd_open(pid: pid_t) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened (close-on-exec, as all pidfds) and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Waits for a child; `None` if it has not ended (with WNOHANG).
fn wait(pid: pid_t, flags: c_int) -> io::Result<Option<WaitStatus>> {
    loop {
        let mut raw = 0;
        // SAFETY: `raw` is valid.
        match unsafe { libc::waitpid(pid, &mut raw, flags) } {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            _ => return Ok(Some(WaitStatus::from_raw(raw))),
        }
    }
}

#[cfg(test)]
mod tests;
