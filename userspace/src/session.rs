//! One capture: runs the target under the probe and writes its records to disk.

mod accept_queues;
mod attach;
mod priority;

use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use zerocopy::IntoBytes;

use crate::attribute::{tmp, EVENTS};
use crate::capture::manifest::{
    Calibration, Command, Host, Loss, Manifest, Options, ProbeProcess, Scope, Warning,
    FORMAT_VERSION,
};
use crate::capture::writer::Writer;
use crate::clock;
use crate::interrupt;
use crate::invoking_user::{OutputDir, Owner};
use crate::methods::Methods;
use crate::probe::calibrate::Calibrator;
use crate::probe::files;
use crate::probe::mappings::Mappings;
use crate::probe::rings::Rings;
use crate::probe::runtimes::Followed;
use crate::probe::tables::Counted;
use crate::probe::{snapshot, Config, Probe};
use crate::progress::Lines;
use crate::records::{self, RecHdr, RecLost, REC_LOST};
use crate::symbols;
use crate::target::{SpawnError, Spec, State, Target, WaitStatus};
use accept_queues::AcceptQueues;
pub use attach::attach;
use priority::Raised;

/// Time between two drains of the rings. A ring holds many times what arrives in between.
const DRAIN_EVERY: Duration = Duration::from_millis(10);
/// Maximum lag of the information that a quiet CPU is quiet; it limits what a reader must hold.
const BLOCK_LAG_NS: u64 = 50_000_000;
/// Wait after the target's end, because its last context switch comes after its parent's wake-up.
const AFTERMATH: Duration = Duration::from_millis(5);

/// The result of a capture.
pub struct Outcome {
    pub manifest: Manifest,
    /// Set if not all records could be written: the reason.
    pub failure: Option<anyhow::Error>,
}

/// Why nothing was run.
#[derive(Debug)]
pub enum Refused {
    /// The target could not be started.
    Target(SpawnError),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Refused {
        Refused::Other(error)
    }
}

/// Runs `spec` to its end with the probe attached and writes `events.bin` into `dir`.
///
/// The target starts only when everything is in place, and it runs on whatever happens to the capture. Signals are
/// caught ([`interrupt::catch`]) until the target is made: if one has arrived by then, nothing is run.
///
/// # Errors
/// [`Refused`]: nothing was run.
pub fn record(
    spec: &Spec,
    config: &Config,
    labels: Vec<(String, String)>,
    dir: &OutputDir,
) -> Result<(Outcome, WaitStatus), Refused> {
    let (mut probe, rings, calibrated) = probe(config)?;
    // From here on signals are meant for the target.
    interrupt::end_catching().map_err(anyhow::Error::from)?;
    let mut target = Target::spawn(spec)?;
    probe.trace(target.pid() as u32)?;
    let command = Command {
        argv: spec.argv.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        pid: target.pid() as u32,
        wait_status: None,
        attached: None,
    };
    let mut manifest = manifest(command, labels, config, &probe);
    end_calibration(calibrated, &rings, &mut manifest);
    let (file, mappings) = events_file(dir, config, [manifest.command.pid], &mut manifest)?;
    let mut known = known_tasks(&mut manifest);
    if config.keep_paths {
        known.extend(files::open(target.pid() as u32).into_iter().flatten()); // inherited ones
    }
    let lost_before = untold_losses(&probe)?;
    manifest.programs = probe.program_runs()?.1;
    manifest.counts.runs_left_out = probe.runs_left_out()?;
    let counted_before = probe.table_counts()?;

    // Nothing slow may come between this time and the release, because the time stands for both.
    manifest.start_ns = clock::monotonic_ns();
    manifest.start_utc = clock::utc_now();
    let cpus = manifest.host.cpus;
    let mut sink = Sink::start(file, &known, cpus, manifest.start_ns, lost_before);
    sink.mappings = mappings;
    sink.counted_before = counted_before;
    sink.followed = config.tasks.then(|| Followed::new(!in_pid_namespace()));
    sink.accept_queues = AcceptQueues::of([manifest.command.pid]);
    target.release().map_err(Refused::Target)?;
    // The program runs now. A previous capture had to stay until here, because there might not have been a new one.
    let taken_over = take_over(dir);
    if taken_over.is_err() {
        sink.writer = None;
    }
    let_go_of_pipes();

    // Raises only this thread: the target was forked before.
    let raised = Raised::now();
    let status = loop {
        let state = target.poll(DRAIN_EVERY)?;
        sink.drain(&rings);
        sink.follow_begun(&mut probe);
        if let State::Exited(status) = state {
            break status;
        }
    };
    std::thread::sleep(AFTERMATH);
    sink.drain(&rings);
    let end_ns = end(&mut sink, &rings, &mut probe, config, &mut manifest);
    // From here on signals ask us to end, not the target.
    interrupt::catch();
    target.restore_signals();
    drop(raised);
    manifest.command.wait_status = Some(status.raw());
    let outcome =
        conclude(sink, &probe, manifest, end_ns, dir, taken_over, &reader_of_code(dir, spec))?;
    Ok((outcome, status))
}

/// The results of calibration, and whether too few of its records were kept.
type Calibrated = (Calibration, bool);

/// Attaches the probe; returns it with its rings and its calibrated costs.
fn probe(config: &Config) -> Result<(Probe, Rings, Calibrated)> {
    let calibrator = Calibrator::start().context("cannot calibrate")?;
    // Starts a thread, so it comes after the calibrator; it ends before a target is forked.
    let _lines = config.told.then(|| Lines::while_it("checking and attaching hooks"));
    let probe = Probe::attach(config)?;
    let rings = probe.rings()?;
    let calibrated = calibrator.compare(&probe, &rings, config.tasks);
    let calibrated = calibrated.context("cannot calibrate")?;
    Ok((probe, rings, calibrated))
}

/// Ends the capture now and returns the time. The hooks are detached one after another, which takes a while on a busy
/// machine. What some of them still report is incomplete, and losses in that time do not belong to the capture.
fn end(
    sink: &mut Sink,
    rings: &Rings,
    probe: &mut Probe,
    config: &Config,
    manifest: &mut Manifest,
) -> u64 {
    sink.until_ns = clock::monotonic_ns();
    let full = sink.accept_queues.overflows();
    manifest.warnings.extend((full > 0).then_some(Warning::AcceptQueueFull { times: full }));
    let _lines = config.told.then(|| Lines::while_it("detaching hooks"));
    probe.detach();
    sink.drain(rings);
    sink.until_ns
}

/// Returns a manifest with what is known beforehand.
fn manifest(
    command: Command,
    labels: Vec<(String, String)>,
    config: &Config,
    probe: &Probe,
) -> Manifest {
    Manifest {
        format_version: FORMAT_VERSION,
        rpcprobe_version: env!("CARGO_PKG_VERSION").into(),
        host: host(probe.cpus()),
        command,
        labels: labels.into_iter().collect(),
        options: Options {
            scope: if config.scope_target { Scope::Target } else { Scope::Machine },
            paths: config.keep_paths,
            methods: config.keep_methods,
            ring_bytes_per_cpu: u64::from(config.ring_bytes_per_cpu),
            tasks: Some(config.tasks),
            stacks: config.stacks,
            requests: config.requests.clone(),
        },
        hooks: probe.hooks.clone(),
        ..Manifest::default()
    }
}

/// Returns the existing tasks, by the numbers that the kernel's hooks report. Inside a PID namespace other numbers are
/// visible here: the names of its processes would be given to the processes that have those numbers outside.
fn known_tasks(manifest: &mut Manifest) -> Vec<Vec<u8>> {
    if in_pid_namespace() {
        manifest.warnings.push(
            "taken inside a PID namespace: processes have the numbers they have outside, and those \
             that ran before have no names"
                .into(),
        );
        return Vec::new();
    }
    snapshot::tasks()
}

/// Whether processes have different numbers here than for the kernel's hooks.
fn in_pid_namespace() -> bool {
    // PROC_PID_INIT_INO, include/uapi/linux/nsfs.h
    const FIRST_NAMESPACE: &str = "pid:[4026531836]";
    let ours = std::fs::read_link("/proc/self/ns/pid");
    ours.is_ok_and(|ours| ours.as_os_str() != FIRST_NAMESPACE)
}

/// The threads that take the capture, by the numbers used in records.
fn our_threads() -> ProbeProcess {
    if in_pid_namespace() {
        return ProbeProcess::default();
    }
    let pid = std::process::id();
    let listed = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let tids = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut tids: Vec<u32> = tids.chain([pid]).collect();
    tids.sort_unstable();
    tids.dedup();
    ProbeProcess { pid, tids }
}

/// Drops calibration's own records: from here on records belong to the capture.
fn end_calibration((calibration, too_few): Calibrated, rings: &Rings, manifest: &mut Manifest) {
    let Ok(()) = rings.drain(|_, _| (), |_, _| Ok::<(), std::convert::Infallible>(()));
    manifest.calibration = calibration;
    if too_few {
        manifest.warnings.push(
            "calibration saw too few records (rings too small, or no CPU to read them meanwhile): entry to and \
             return from system calls and page faults count as `user`"
                .into(),
        );
    }
}

/// Creates the file for the records and, with `--stacks`, the listener for new mappings.
fn events_file(
    dir: &OutputDir,
    config: &Config,
    tgids: impl IntoIterator<Item = u32>,
    manifest: &mut Manifest,
) -> Result<(BufWriter<File>, Option<Mappings>)> {
    dir.remove_file(tmp(EVENTS))?;
    let file = dir.create_file(tmp(EVENTS))?;
    let mut mappings = None;
    if config.stacks.is_some() {
        symbols::keep_private(&file)?;
        match Mappings::listen(tgids, config.keep_paths) {
            Ok(listening) => mappings = Some(listening),
            Err(error) => {
                let warning = format!("frames of programs have no names: {error:#}");
                manifest.warnings.push(warning.into());
            }
        }
    }
    Ok((BufWriter::with_capacity(1 << 20, file), mappings))
}

/// Writes what is left, and looks up the names for stacks.
fn conclude(
    mut sink: Sink,
    probe: &Probe,
    mut manifest: Manifest,
    end_ns: u64,
    dir: &OutputDir,
    taken_over: Result<()>,
    reader_of_code: &Owner,
) -> Result<Outcome> {
    manifest.duration_ns = end_ns - manifest.start_ns;
    manifest.probe = our_threads();
    manifest.programs = probe.program_runs()?.1.since(manifest.programs);
    manifest.counts.runs_left_out =
        probe.runs_left_out()?.saturating_sub(manifest.counts.runs_left_out);
    manifest.tables = probe.tables(&sink.counted_before)?;
    manifest.hooks.clone_from(&probe.hooks); // includes hooks of programs that began during the capture
    let nothing = sink.followed.as_ref().and_then(|followed| followed.nothing(&probe.hooks));
    manifest.warnings.extend(nothing.map(Into::into));
    let untold: Vec<Loss> =
        untold_losses(probe)?.into_iter().filter_map(|loss| sink.ours(loss)).collect();
    manifest.losses = std::mem::take(&mut sink.losses);
    manifest.losses.extend_from_slice(&untold);
    manifest.counts.records_lost = manifest.losses.iter().map(|loss| loss.count).sum();
    let finished = sink.finish(end_ns, &untold, &mut manifest.counts);
    let shown = dir.path().display();
    let part = || {
        format!(
            "{shown} holds the events only up to then; if need be make room, then `rpcprobe \
             attribute --allow-truncated {shown}`"
        )
    };
    let failure = match taken_over {
        Ok(()) => finished.with_context(part).err(),
        Err(error) => Some(error.context("nothing was captured")),
    };
    if manifest.options.stacks.is_some() && failure.is_none() {
        // Done while the probe still exists, because its programs are part of the stacks.
        match symbols::write(dir, reader_of_code) {
            Ok(warnings) => manifest.warnings.extend(warnings.into_iter().map(Into::into)),
            Err(error) => {
                manifest.warnings.push(format!("stacks have no names: {error:#}").into());
            }
        }
    }
    Ok(Outcome { manifest, failure })
}

/// The file, until the first error. After that, records are only taken out of the rings, so that the failure does not
/// affect the target.
struct Sink {
    cpus: u32,
    /// By CPU: all records before this time have been taken out of its ring.
    complete_ns: Vec<u64>,
    writer: Option<Writer<BufWriter<File>>>,
    failure: Option<anyhow::Error>,
    start_ns: u64,
    /// Records from this time on are left out.
    until_ns: u64,
    /// Losses that the kernel side had counted before the start but not yet reported; they belong to calibration.
    lost_before: Vec<Loss>,
    /// Losses that the records reported.
    losses: Vec<Loss>,
    /// With `--stacks` only.
    mappings: Option<Mappings>,
    /// With `--tasks` only.
    followed: Option<Followed>,
    methods: Methods,
    /// Counts of the tables before the start.
    counted_before: Counted,
    accept_queues: AcceptQueues,
}

impl Sink {
    fn start(
        file: BufWriter<File>,
        tasks: &[Vec<u8>],
        cpus: u32,
        start_ns: u64,
        lost_before: Vec<Loss>,
    ) -> Sink {
        let mut sink = Sink {
            cpus,
            complete_ns: vec![0; cpus as usize],
            writer: None,
            failure: None,
            start_ns,
            until_ns: u64::MAX,
            lost_before,
            losses: Vec::new(),
            mappings: None,
            followed: None,
            methods: Methods::default(),
            counted_before: Counted::default(),
            accept_queues: AcceptQueues::default(),
        };
        let started = Writer::new(file, cpus, start_ns).and_then(|mut writer| {
            writer.user_records(tasks.iter().map(|task| &task[..]))?;
            Ok(writer)
        });
        match started {
            Ok(writer) => sink.writer = Some(writer),
            Err(error) => sink.fail(error),
        }
        sink
    }

    fn drain(&mut self, rings: &Rings) {
        let Some(mut writer) = self.writer.take() else {
            let Ok(()) = rings.drain(|_, _| {}, |_, _| Ok::<(), std::convert::Infallible>(()));
            return;
        };
        let drained = self.drain_into(&mut writer, rings);
        match drained {
            Ok(()) => self.writer = Some(writer),
            Err(error) => self.fail(error),
        }
    }

    /// Drains the rings, but first the kernel's reports about code. Those go where their times belong, so no CPU counts
    /// as complete before both have been taken.
    fn drain_into(
        &mut self,
        writer: &mut Writer<BufWriter<File>>,
        rings: &Rings,
    ) -> std::io::Result<()> {
        let mut mappings = self.mappings.take();
        let mut followed = self.followed.take();
        let mut methods = std::mem::take(&mut self.methods);
        let taken_ns = mappings.as_mut().map_or(u64::MAX, Mappings::take);
        let mut watermarks = Vec::new();
        let Ok(()) = rings.drain(
            |cpu, record| {
                if let Some(mappings) = &mut mappings {
                    mappings.see(record);
                }
                if let Some(followed) = &mut followed {
                    followed.see(record);
                }
                if !methods.take(cpu, record) {
                    self.push(writer, cpu, record);
                }
            },
            |cpu, watermark_ns| {
                watermarks.extend(watermark_ns.map(|watermark_ns| (cpu, watermark_ns)));
                Ok::<(), std::convert::Infallible>(())
            },
        );
        for (cpu, record) in mappings.iter_mut().flat_map(Mappings::records) {
            self.push(writer, cpu, &record);
        }
        self.mappings = mappings;
        self.followed = followed;
        for &(cpu, watermark_ns) in &watermarks {
            self.complete_ns[cpu as usize] = watermark_ns;
        }
        let all_complete_ns = self.complete_ns.iter().copied().min().unwrap_or(0);
        for (cpu, record) in methods.drained(all_complete_ns) {
            writer.push(cpu, &record);
        }
        self.methods = methods;
        watermarks.into_iter().try_for_each(|(cpu, watermark_ns)| {
            let held_ns = self.methods.held_ns(cpu).min(taken_ns);
            writer.flush(cpu, watermark_ns.min(held_ns), BLOCK_LAG_NS)
        })
    }

    /// Hooks programs that have begun, if tasks are followed.
    fn follow_begun(&mut self, probe: &mut Probe) {
        if let Some(followed) = &mut self.followed {
            followed.follow_begun(probe);
        }
    }

    fn push(&mut self, writer: &mut Writer<BufWriter<File>>, cpu: u32, record: &[u8]) {
        let Some((hdr, loss)) = loss(cpu, record) else {
            let ts_ns = records::read::<RecHdr>(record).map_or(0, |(hdr, _)| hdr.ts_ns);
            if ts_ns < self.until_ns {
                writer.push(cpu, record);
            }
            return;
        };
        if let Some(loss) = self.ours(loss) {
            writer.push(cpu, lost_record(hdr, &loss).as_bytes());
            self.losses.push(loss);
        }
    }

    /// Adds records made in user space, with times up to which no CPU counts as complete yet.
    fn add(&mut self, records: &[Vec<u8>]) {
        if let Some(mut writer) = self.writer.take() {
            records.iter().for_each(|record| self.push(&mut writer, 0, record));
            self.writer = Some(writer);
        }
    }

    /// The part of a loss that belongs to the capture.
    fn ours(&self, loss: Loss) -> Option<Loss> {
        loss.since(self.start_ns, &self.lost_before)?.until(self.until_ns)
    }

    fn fail(&mut self, error: std::io::Error) {
        self.writer = None;
        self.failure.get_or_insert_with(|| {
            anyhow::Error::new(error).context("the capture broke off: cannot write events.bin")
        });
    }

    fn finish(
        mut self,
        end_ns: u64,
        untold: &[Loss],
        counts: &mut crate::capture::manifest::Counts,
    ) -> Result<()> {
        if let Some(mut writer) = self.writer.take() {
            // Losses of CPUs beyond our rings are only in the manifest.
            let with_ring = untold.iter().filter(|loss| loss.cpu < self.cpus);
            for loss in with_ring {
                let hdr = RecHdr { ts_ns: end_ns, tid: 0, kind: REC_LOST, flags: 0, aux: 0 };
                writer.push(loss.cpu, lost_record(hdr, loss).as_bytes());
            }
            for (cpu, record) in self.methods.finish() {
                writer.push(cpu, &record);
            }
            let written = (|| {
                writer.flush_all(end_ns)?;
                counts.records = writer.records;
                counts.raw_bytes = writer.raw_bytes;
                counts.stored_bytes = writer.stored_bytes;
                writer.finish(end_ns)?.into_inner().map_err(|error| error.into_error())?.sync_data()
            })();
            if let Err(error) = written {
                self.fail(error);
            }
        }
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

/// Puts the events being written in place of a previous capture.
fn take_over(dir: &OutputDir) -> Result<()> {
    let taken_over = dir.remove_former().and_then(|()| dir.replace_file(EVENTS, tmp(EVENTS)));
    if taken_over.is_err() {
        let _ = dir.remove_file(tmp(EVENTS));
    }
    taken_over
}

/// The user as whom the files named by the target's mappings are read: the user who asked. If that is root, the user
/// the target ran as, so that these files cannot lead anywhere the target could not have gone itself.
fn reader_of_code(dir: &OutputDir, spec: &Spec) -> Owner {
    match &spec.user {
        Some(user) if dir.owner().uid == 0 => Owner::of(user.uid, user.gid),
        _ => dir.owner().clone(),
    }
}

/// Replaces standard input and output, which belong to the target: its pipes must end when it closes them, so we must
/// not hold them open. Best effort. Standard error stays, for our own messages.
fn let_go_of_pipes() {
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else { return };
    for fd in [0, 1] {
        // SAFETY: replaces descriptors that nothing in this process uses from here on.
        unsafe { libc::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC) };
    }
}

fn untold_losses(probe: &Probe) -> Result<Vec<Loss>> {
    let losses = probe.untold_losses()?.into_iter();
    let named = |(cpu, count, first_ns, last_ns)| Loss { cpu, count, first_ns, last_ns };
    Ok(losses.map(named).collect())
}

/// Returns the loss that a record reports, if it is a loss record.
fn loss(cpu: u32, record: &[u8]) -> Option<(RecHdr, Loss)> {
    let (RecLost { hdr, count, first_ns, last_ns }, _) = records::read::<RecLost>(record)?;
    (hdr.kind == REC_LOST).then_some((hdr, Loss { cpu, count, first_ns, last_ns }))
}

fn lost_record(hdr: RecHdr, loss: &Loss) -> RecLost {
    RecLost { hdr, count: loss.count, first_ns: loss.first_ns, last_ns: loss.last_ns }
}

fn host(cpus: u32) -> Host {
    let read = |path: &str| {
        std::fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
    };
    Host {
        name: read("/proc/sys/kernel/hostname"),
        kernel: read("/proc/sys/kernel/osrelease"),
        machine: std::env::consts::ARCH.into(),
        cpus,
        clock: "CLOCK_MONOTONIC".into(),
        clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    }
}
