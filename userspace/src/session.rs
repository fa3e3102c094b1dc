//! One run: the target under the probe, its records on disk.

use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result};
use zerocopy::IntoBytes;

use crate::attribute::EVENTS;
use crate::capture::manifest::{Command, Host, Loss, Manifest, Options, FORMAT_VERSION};
use crate::capture::writer::Writer;
use crate::clock;
use crate::owner::{OutputDir, Owner};
use crate::probe::calibrate::Calibrator;
use crate::probe::mappings::Mappings;
use crate::probe::rings::Rings;
use crate::probe::{snapshot, Config, Probe};
use crate::records::{self, RecHdr, RecLost, REC_LOST};
use crate::symbols;
use crate::target::{SpawnError, Spec, State, Target, WaitStatus};

/// Between two looks at the rings. They hold many times what arrives meanwhile.
const DRAIN_EVERY: Duration = Duration::from_millis(10);
/// How far a quiet CPU's word that it is quiet may lag behind: bounds what a reader must hold.
const BLOCK_LAG_NS: u64 = 50_000_000;
/// After the target's end: its last context switch comes after its parent's wake-up.
const AFTERMATH: Duration = Duration::from_millis(5);

/// What came of a run.
pub struct Outcome {
    pub manifest: Manifest,
    pub status: WaitStatus,
    /// The records could not all be written: why.
    pub failure: Option<anyhow::Error>,
}

/// Why there was no run.
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
/// The target starts only when everything is in place, and it runs on whatever befalls the capture.
///
/// # Errors
/// [`Refused`]: nothing was run.
pub fn record(
    spec: &Spec,
    config: &Config,
    labels: Vec<(String, String)>,
    dir: &OutputDir,
) -> Result<Outcome, Refused> {
    let calibrator = Calibrator::start().context("cannot calibrate")?;
    let mut probe = Probe::attach(config)?;
    let calibration = calibrator.compare(&probe).context("cannot calibrate")?;
    let mut target = Target::spawn(spec)?;
    probe.trace(target.pid() as u32)?;

    let cpus = probe.rings.len() as u32;
    let mut manifest = Manifest {
        format_version: FORMAT_VERSION,
        rpcprobe_version: env!("CARGO_PKG_VERSION").into(),
        host: host(cpus),
        command: Command {
            argv: spec.argv.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            pid: target.pid() as u32,
            wait_status: None,
        },
        labels: labels.into_iter().collect(),
        options: Options {
            scope: if config.scope_target { "target" } else { "machine" }.into(),
            paths: config.keep_paths,
            ring_bytes_per_cpu: u64::from(config.ring_bytes_per_cpu),
            stacks: config.stacks,
        },
        hooks: probe.hooks.clone(),
        calibration,
        ..Manifest::default()
    };

    let maps = std::mem::take(&mut probe.rings);
    let rings = Rings::new(&maps)?;
    // Calibration's own records go; what comes from here on belongs to the capture.
    let Ok(()) = rings.drain(|_, _| {}, |_, _| Ok::<(), std::convert::Infallible>(()));
    let lost_before = probe.untold_losses(cpus)?;

    manifest.start_ns = clock::monotonic_ns();
    manifest.start_utc = clock::utc_now();
    let file = dir.create_file(EVENTS)?;
    if config.stacks.is_some() {
        symbols::keep_private(&file)?;
    }
    let file = BufWriter::with_capacity(1 << 20, file);
    let mut sink = Sink::start(file, cpus, manifest.start_ns);
    if config.stacks.is_some() {
        match Mappings::listen(manifest.command.pid, config.keep_paths) {
            Ok(mappings) => sink.mappings = Some(mappings),
            Err(error) => {
                manifest.warnings.push(format!("frames of programs have no names: {error:#}"));
            }
        }
    }
    target.release().map_err(Refused::Target)?;
    let_go_of_pipes();

    // On a crowded machine whoever empties the rings must not be the one who waits. Only this
    // process: the target was forked before.
    let former_nice = renice(-10);
    let status = loop {
        let state = target.poll(DRAIN_EVERY)?;
        sink.drain(&rings);
        if let State::Exited(status) = state {
            break status;
        }
    };
    std::thread::sleep(AFTERMATH);
    sink.drain(&rings);
    let end_ns = clock::monotonic_ns();
    probe.detach();
    sink.drain(&rings);
    target.restore_signals();
    renice(former_nice);

    manifest.duration_ns = end_ns - manifest.start_ns;
    manifest.command.wait_status = Some(status.raw());
    let untold: Vec<Loss> = (probe.untold_losses(cpus)?.into_iter())
        .filter(|loss| !lost_before.contains(loss))
        .map(|(cpu, count, first_ns, last_ns)| Loss { cpu, count, first_ns, last_ns })
        .collect();
    manifest.losses = std::mem::take(&mut sink.losses);
    manifest.losses.extend_from_slice(&untold);
    let failure = sink.finish(end_ns, &untold, &mut manifest.counts).err();
    if config.stacks.is_some() && failure.is_none() {
        // While the probe is there: its programs are part of the stacks.
        match symbols::write(dir, &reader_of_code(dir, spec)) {
            Ok(warnings) => manifest.warnings.extend(warnings),
            Err(error) => manifest.warnings.push(format!("stacks have no names: {error:#}")),
        }
    }
    Ok(Outcome { manifest, status, failure })
}

/// The file, until the first error; from then on records are only taken out of the rings, so that
/// the failure stays ours.
struct Sink {
    writer: Option<Writer<BufWriter<File>>>,
    failure: Option<anyhow::Error>,
    /// Losses the records told of.
    losses: Vec<Loss>,
    /// With `--stacks` only.
    mappings: Option<Mappings>,
}

impl Sink {
    fn start(file: BufWriter<File>, cpus: u32, start_ns: u64) -> Sink {
        let mut sink = Sink { writer: None, failure: None, losses: Vec::new(), mappings: None };
        let tasks = snapshot::tasks();
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

    fn drain(&mut self, rings: &Rings<'_>) {
        let Some(mut writer) = self.writer.take() else {
            let Ok(()) = rings.drain(|_, _| {}, |_, _| Ok::<(), std::convert::Infallible>(()));
            return;
        };
        let drained = match self.mappings.take() {
            Some(mut mappings) => {
                let drained = self.drain_both(rings, &mut mappings, &mut writer);
                self.mappings = Some(mappings);
                drained
            }
            None => self.drain_rings(rings, &mut writer),
        };
        match drained {
            Ok(()) => self.writer = Some(writer),
            Err(error) => self.fail(error),
        }
    }

    fn drain_rings(
        &mut self,
        rings: &Rings<'_>,
        writer: &mut Writer<BufWriter<File>>,
    ) -> std::io::Result<()> {
        // One writer, two closures that never run at the same time.
        let cell = std::cell::RefCell::new(writer);
        let losses = &mut self.losses;
        rings.drain(
            |cpu, record| {
                losses.extend(loss(cpu, record));
                cell.borrow_mut().push(cpu, record);
            },
            |cpu, watermark_ns| match watermark_ns {
                Some(watermark_ns) => cell.borrow_mut().flush(cpu, watermark_ns, BLOCK_LAG_NS),
                None => Ok(()),
            },
        )
    }

    /// The rings, and what the kernel told of code before them: its records go where their times
    /// belong, so no CPU is called complete before both have been taken.
    fn drain_both(
        &mut self,
        rings: &Rings<'_>,
        mappings: &mut Mappings,
        writer: &mut Writer<BufWriter<File>>,
    ) -> std::io::Result<()> {
        let taken_ns = mappings.take();
        let mut watermarks = Vec::new();
        rings.drain(
            |cpu, record| {
                self.losses.extend(loss(cpu, record));
                mappings.see(record);
                writer.push(cpu, record);
            },
            |cpu, watermark_ns| {
                watermarks.extend(watermark_ns.map(|watermark_ns| (cpu, watermark_ns)));
                Ok::<(), std::io::Error>(())
            },
        )?;
        for (cpu, record) in mappings.records() {
            self.losses.extend(loss(cpu, &record));
            writer.push(cpu, &record);
        }
        for (cpu, watermark_ns) in watermarks {
            writer.flush(cpu, watermark_ns.min(taken_ns), BLOCK_LAG_NS)?;
        }
        Ok(())
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
            for loss in untold {
                let hdr = RecHdr { ts_ns: end_ns, tid: 0, kind: REC_LOST, flags: 0, aux: 0 };
                let lost = RecLost {
                    hdr,
                    count: loss.count,
                    first_ns: loss.first_ns,
                    last_ns: loss.last_ns,
                };
                writer.push(loss.cpu, lost.as_bytes());
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

/// As whom to read the files that the target's mappings name: the user who asked. Where that is root,
/// the user the target ran as, so that its files lead nowhere it could not have gone itself.
fn reader_of_code(dir: &OutputDir, spec: &Spec) -> Owner {
    match &spec.user {
        Some(user) if dir.owner().uid == 0 => Owner::of(user.uid, user.gid),
        _ => dir.owner().clone(),
    }
}

/// Standard input and output are the target's: its pipes must end when it closes them, so we must
/// not hold them open. Best effort; standard error stays for our own words.
fn let_go_of_pipes() {
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else { return };
    for fd in [0, 1] {
        // SAFETY: replaces descriptors that nothing in this process uses from here on.
        unsafe { libc::dup3(null.as_raw_fd(), fd, libc::O_CLOEXEC) };
    }
}

/// Sets our niceness as far as allowed; returns the former one.
fn renice(nice: i32) -> i32 {
    // SAFETY: both calls take integers only; 0 is ourselves.
    unsafe {
        let former = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, nice);
        former
    }
}

/// The loss a record tells of, if it is of that kind.
fn loss(cpu: u32, record: &[u8]) -> Option<Loss> {
    let (lost, _) = records::read::<RecLost>(record)?;
    (lost.hdr.kind == REC_LOST).then_some(Loss {
        cpu,
        count: lost.count,
        first_ns: lost.first_ns,
        last_ns: lost.last_ns,
    })
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
