//! Captures programs that are already running.
//!
//! Threads are marked until a pass finds no new thread: a thread born after that inherits the mark. Then the contents
//! of channels are learned (`bpf/channels.h`) while records already come in. The capture proper begins when that is
//! done. What began before is incomplete; what began later is complete.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use zerocopy::IntoBytes;

use super::*;
use crate::capture::manifest::{Attached, Process};
use crate::engine::event::{TYPE_FIFO, TYPE_UNIX};
use crate::probe::running::{Holder, OldChannel};
use crate::probe::{files, mappings};
use crate::process_select::{self, Age, Selected, Selection};
use crate::records::{RecRole, REC_ROLE};
use crate::target::signals;

/// Maximum time spent on channels. A channel that a busy program keeps from being known stays unknown.
const SETTLE_AT_MOST: Duration = Duration::from_millis(500);
/// Maximum number of passes over the threads. Each pass finds only the threads born since the previous one.
const MARK_PASSES: usize = 1000;

const INTERRUPTS: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Captures what `selected` do until `duration` is over, a signal asks to end, or all of them have ended, and writes
/// `events.bin` into `dir`. The processes go on whatever happens to the capture. Calls `begun` with the number of their
/// threads when everything that begins from then on is captured. Signals must be caught ([`interrupt::catch`]): one
/// that arrives before the records do ends this without a capture.
///
/// # Errors
/// Nothing was captured.
pub fn attach(
    selection: &Selection,
    mut selected: Vec<Selected>,
    duration: Option<Duration>,
    config: &Config,
    labels: Vec<(String, String)>,
    dir: &OutputDir,
    begun: impl FnOnce(&[Selected], u64),
) -> Result<Outcome> {
    let (mut probe, rings, calibrated) = probe(config)?;
    interrupt::check()?;
    let argv = ["attach".to_string()].into_iter().chain(selection.words()).collect();
    let command = Command { argv, pid: 0, wait_status: None, attached: None };
    let mut manifest = manifest(command, labels, config, &probe);
    end_calibration(calibrated, &rings, &mut manifest);
    let pids = || selected.iter().map(|process| process.pid);
    let reader_of_code = reader_of_code(dir, pids());
    let (file, mappings) = events_file(dir, config, pids(), &mut manifest)?;
    let mut known = known_tasks(&mut manifest);
    if config.stacks.is_some() {
        known.extend(
            pids().filter_map(|pid| mappings::present(pid, config.keep_paths).ok()).flatten(),
        );
    }
    if config.keep_paths {
        known.extend(pids().filter_map(|pid| files::open(pid).ok()).flatten());
    }
    let lost_before = untold_losses(&probe)?;
    manifest.programs = probe.program_runs()?.1;
    manifest.counts.runs_left_out = probe.runs_left_out()?;
    let counted_before = probe.table_counts()?;
    probe.tell_listening(process_select::listening_ports(pids()))?;
    // Before records come in. Children that exist by now are not added later.
    let untraced = process_select::untraced_listeners(&pids().collect::<Vec<_>>());
    manifest.warnings.extend(untraced.into_iter().map(Into::into));
    let mut interrupts = Interrupts::receive()?;
    interrupt::check()?; // signals that were noted before that

    let records_from_ns = clock::monotonic_ns();
    let mut sink = Sink::start(file, &known, manifest.host.cpus, records_from_ns, lost_before);
    sink.mappings = mappings;
    sink.counted_before = counted_before;
    sink.followed = config.tasks.then(|| Followed::new(!in_pid_namespace()));
    if let Some(followed) = &mut sink.followed {
        for process in &selected {
            followed.follow(&mut probe, process.pid);
        }
        followed.follow_begun(&mut probe);
    }
    let raised = Raised::now();
    // Done first, because a channel that is not known when bytes of it are seen is taken for a new one.
    probe.number_unix(selected.iter().map(|process| process.pid))?;
    learn(&probe, &selected)?;
    if mark_all(&probe, &mut selected)? == 0 {
        bail!("no process matches {selection}: all have ended meanwhile");
    }
    let taken_over = take_over(dir);
    if taken_over.is_err() {
        sink.writer = None;
    }
    let warnings = settle(&probe, &selected, &mut sink, &rings)?;
    manifest.warnings.extend(warnings.into_iter().map(Into::into));

    sink.accept_queues = AcceptQueues::of(selected.iter().map(|process| process.pid));
    manifest.start_ns = clock::monotonic_ns();
    manifest.start_utc = clock::utc_now();
    let begin = Instant::now();
    let threads = selected.iter().map(|process| process_select::threads_of(process.pid)).sum();
    begun(&selected, threads);
    let mut ends = Ends { selected: &selected, ended: HashSet::new() };
    let ended = loop {
        let left = duration.map(|duration| duration.saturating_sub(begin.elapsed()));
        let event =
            ends.wait(&mut interrupts, left.map_or(DRAIN_EVERY, |left| left.min(DRAIN_EVERY)))?;
        sink.drain(&rings);
        sink.follow_begun(&mut probe);
        if let Some(event) = event {
            break event;
        }
        if left.is_some_and(|left| left.is_zero()) {
            break format!("after {}", crate::report::format_ns(duration.map_or(0, nanoseconds)));
        }
    };
    let end_ns = end(&mut sink, &rings, &mut probe, config, &mut manifest);
    interrupt::catch();
    drop(interrupts);
    drop(raised);
    let named = |process: &Selected| Process { pid: process.pid, comm: process.comm.clone() };
    let processes = selected.iter().map(named).collect();
    manifest.command.attached = Some(Attached { processes, threads, ended });
    conclude(sink, &probe, manifest, end_ns, dir, taken_over, &reader_of_code)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Marks all threads of the processes, including children born in the meantime; returns how many were marked.
fn mark_all(probe: &Probe, selected: &mut Vec<Selected>) -> Result<usize> {
    let of = |selected: &[Selected]| selected.iter().map(|process| process.pid).collect();
    let children_before = process_select::children(&of(selected))?;
    let marked = mark_threads(probe, selected)?;
    // Adds children of threads that were not marked yet, but not children that existed before.
    loop {
        let pids: HashSet<u32> = of(selected);
        let children: BTreeSet<u32> = process_select::children(&pids)?;
        let born = children.difference(&children_before).filter(|pid| !pids.contains(pid));
        let born: Vec<Selected> = born.filter_map(|&pid| process_select::one(pid)).collect();
        let mut missed = Vec::new();
        for child in born {
            if probe.mark(child.pidfd.as_fd())? > 0 {
                missed.push(child);
            }
        }
        if missed.is_empty() {
            return Ok(marked);
        }
        mark_threads(probe, &missed)?;
        selected.extend(missed);
    }
}

fn mark_threads(probe: &Probe, selected: &[Selected]) -> Result<usize> {
    let mut marked = 0;
    for process in selected {
        let mut passes = 0..MARK_PASSES;
        loop {
            if passes.next().is_none() {
                bail!("process {} makes threads faster than they can be marked", process.pid);
            }
            match probe.mark(process.pidfd.as_fd())? {
                0 => break,
                new => marked += new,
            }
        }
    }
    Ok(marked)
}

fn learn(probe: &Probe, selected: &[Selected]) -> Result<()> {
    selected.iter().try_for_each(|process| probe.learn_files(process.pidfd.as_fd()))
}

/// Learns the remaining channels of the processes, and waits until it is known from where their bytes are counted.
/// Returns a warning if that did not finish in time.
fn settle(
    probe: &Probe,
    selected: &[Selected],
    sink: &mut Sink,
    rings: &Rings,
) -> Result<Option<String>> {
    learn(probe, selected)?; // channels opened in the meantime
    sink.drain(rings);
    let begin = Instant::now();
    let mut unsettled = 0;
    while begin.elapsed() < SETTLE_AT_MOST {
        for process in selected {
            probe.mark(process.pidfd.as_fd())?; // threads that fell asleep unseen
            probe.look_at_files(process.pidfd.as_fd())?;
        }
        std::thread::sleep(DRAIN_EVERY);
        sink.drain(rings);
        let both = |channel: &&OldChannel| {
            channel.reader != Holder::Nobody && channel.writer != Holder::Nobody
        };
        let channels = probe.old_channels()?;
        unsettled = channels.iter().filter(both).filter(|channel| !channel.is_settled).count();
        if unsettled == 0 {
            break;
        }
    }
    let channels = probe.old_channels()?;
    sink.add(&roles(&channels, clock::monotonic_ns()));
    Ok((unsettled > 0).then(|| {
        format!(
            "{unsettled} pipes or sockets were too busy to determine which bytes were in flight when the capture \
             began: requests on them may be missing"
        )
    }))
}

/// Returns what is known about which end asks, for channels without an address.
fn roles(channels: &[OldChannel], now_ns: u64) -> Vec<Vec<u8>> {
    let record = |channel: &OldChannel| {
        let asks = asks(channel, &process_select::age_of)?;
        let (asked, answer) = match asks {
            true => (channel.number, channel.reverse),
            false => (channel.reverse, channel.number),
        };
        let object_type = if channel.dev == 0 { TYPE_UNIX } else { TYPE_FIFO };
        let hdr = RecHdr { ts_ns: now_ns, tid: 0, kind: REC_ROLE, flags: 0, aux: 0 };
        let record = RecRole { hdr, asked, answer, dev: channel.dev, object_type, pad: 0 };
        Some(record.as_bytes().to_vec())
    };
    channels.iter().filter(|channel| !channel.is_named).filter_map(record).collect()
}

/// Returns whether the channel carries questions or answers, if that can be determined. Programs are asked on their
/// standard input, and children are asked by their parents. On other channels, the end that writes first on a quiet
/// channel asks. On a busy channel either may ask; there the older process is more likely the one that is asked.
fn asks(channel: &OldChannel, age: &impl Fn(u32) -> Option<Age>) -> Option<bool> {
    let (Holder::Process(reader), Holder::Process(writer)) = (channel.reader, channel.writer)
    else {
        return None;
    };
    if reader == writer {
        return None;
    }
    let known = |asked: bool, answers: bool| (asked != answers).then_some(asked);
    let (reader_age, writer_age) = (age(reader)?, age(writer)?);
    known(channel.on_stdin, channel.on_stdout)
        .or(known(reader_age.parent == writer, writer_age.parent == reader))
        .or(channel.is_busy.then_some((reader_age.started, reader) < (writer_age.started, writer)))
}

/// The user as whom the files named by the processes' mappings are read: the processes' own user, if root asks.
fn reader_of_code(dir: &OutputDir, pids: impl Iterator<Item = u32>) -> Owner {
    if dir.owner().uid != 0 {
        return dir.owner().clone();
    }
    let owners = pids.filter_map(process_select::owner_of);
    let mut unprivileged = owners.filter(|(uid, _)| *uid != 0);
    unprivileged.next().map_or_else(|| dir.owner().clone(), |(uid, gid)| Owner::of(uid, gid))
}

/// Receives the signals that ask us to end. Until dropped, they do not end us.
struct Interrupts {
    signals: File,
    former: libc::sigset_t,
}

impl Interrupts {
    fn receive() -> Result<Interrupts> {
        let wanted: Vec<_> =
            INTERRUPTS.into_iter().filter(|signal| !signals::is_ignored(*signal)).collect();
        let former = signals::change_mask(libc::SIG_BLOCK, &signals::set(&wanted));
        let signals = signals::descriptor(&wanted).context("cannot receive signals")?;
        Ok(Interrupts { signals, former })
    }

    fn came(&mut self) -> bool {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        self.signals.read(&mut info).is_ok_and(|length| length == info.len())
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        while self.came() {} // otherwise they would end us now
        signals::change_mask(libc::SIG_SETMASK, &self.former);
    }
}

/// The conditions that end the capture.
struct Ends<'s> {
    selected: &'s [Selected],
    ended: HashSet<u32>,
}

impl Ends<'_> {
    /// Waits at most `most`; returns why the capture ends, if it does.
    fn wait(&mut self, interrupts: &mut Interrupts, most: Duration) -> Result<Option<String>> {
        let on = |fd: i32| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let alive: Vec<&Selected> =
            self.selected.iter().filter(|process| !self.ended.contains(&process.pid)).collect();
        let mut fds: Vec<_> = [on(interrupts.signals.as_raw_fd())]
            .into_iter()
            .chain(alive.iter().map(|process| on(raw(&process.pidfd))))
            .collect();
        let most = libc::timespec {
            tv_sec: most.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        // SAFETY: the descriptors and the time live through the call.
        let ready =
            unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, &most, std::ptr::null()) };
        if ready < 0 {
            let error = std::io::Error::last_os_error();
            return match error.kind() {
                std::io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error).context("cannot wait"),
            };
        }
        if interrupts.came() {
            return Ok(Some("by a signal".into()));
        }
        let gone = alive.iter().zip(&fds[1..]).filter(|(_, fd)| fd.revents != 0);
        self.ended.extend(gone.map(|(process, _)| process.pid));
        Ok((self.ended.len() == self.selected.len()).then(|| "with the last process".into()))
    }
}

fn raw(fd: &OwnedFd) -> i32 {
    fd.as_raw_fd()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(reader: Holder, writer: Holder) -> OldChannel {
        let (number, dev, reverse) = (7, 12, 0);
        let (on_stdin, on_stdout, is_named) = (false, false, false);
        let (is_busy, is_settled) = (false, false);
        OldChannel {
            number,
            dev,
            reverse,
            reader,
            writer,
            on_stdin,
            on_stdout,
            is_named,
            is_busy,
            is_settled,
        }
    }

    #[test]
    fn children_and_filters_are_asked_and_elder_ones_when_nothing_else_is_known() {
        let age = |pid| {
            let parent = if pid == 20 { 10 } else { 1 };
            (pid < 100).then_some(Age { parent, started: 5 })
        };
        let asks = |channel: &OldChannel| asks(channel, &age);
        let (parent, child) = (Holder::Process(10), Holder::Process(20));
        assert_eq!(asks(&channel(child, parent)), Some(true));
        assert_eq!(asks(&channel(parent, child)), Some(false));
        assert_eq!(asks(&channel(parent, parent)), None);
        assert_eq!(asks(&channel(parent, Holder::Several)), None);
        assert_eq!(asks(&channel(parent, Holder::Process(100))), None, "it has ended");
        let filter = OldChannel { on_stdin: true, ..channel(parent, child) };
        assert_eq!(asks(&filter), Some(true), "it reads what its child writes");
        let both = OldChannel { on_stdout: true, ..filter };
        assert_eq!(asks(&both), Some(false), "of two filters in a row the parent asks");

        let other = channel(parent, Holder::Process(30));
        assert_eq!(asks(&other), None);
        let busy = OldChannel { is_busy: true, ..other };
        assert_eq!(asks(&busy), Some(true));
        let (reader, writer) = (busy.writer, busy.reader);
        assert_eq!(asks(&OldChannel { reader, writer, ..busy }), Some(false));
    }
}
