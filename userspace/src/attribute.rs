//! Turns `events.bin` into the Parquet files and the figures of the manifest.

mod decoder;
mod numbers;
mod table_writer;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::rc::Rc;
use std::thread;

use anyhow::{ensure, Context, Result};

use crate::capture::manifest::{Loss, Manifest, Scope, Warning};
use crate::capture::reader::Reader;
use crate::engine::classify::syscall;
use crate::engine::decode::decode;
use crate::engine::detect::InferredParents;
use crate::engine::event::{Event, What};
use crate::engine::ownership::ledger::Account;
use crate::engine::processor::Processor;
use crate::engine::stacks::Stacks;
use crate::engine::{Engine, FallbackGiven, Rates};
use crate::interrupt::{self, Interrupted};
use crate::invoking_user::OutputDir;
use crate::memory;
use crate::model::{Kind, Request, Segments};
use crate::output::{self, ThreadWriter};
use crate::progress::{Progress, Work};
use crate::request_filter::{Rule, Wanted};
use crate::symbols::Symbols;
use decoder::Decoder;
use table_writer::TableWriter;

pub const EVENTS: &str = "events.bin";
pub const MANIFEST: &str = "manifest.json";
pub const REQUESTS: &str = "requests.parquet";
pub const SEGMENTS: &str = "segments.parquet";
pub const STACKS: &str = "stacks.parquet";
/// The ledger: what each traced thread's CPU time was used for.
pub const THREADS: &str = "threads.parquet";
pub const SYMBOLS: &str = "symbols.parquet";

/// Maximum number of processes that a warning names.
const MOST_USERS: usize = 16;

/// Options of attribution that differ from the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choices {
    /// Accept events that break off, and attribute what is there.
    pub allow_truncated: bool,
    /// Report requests of many pieces piece by piece.
    pub every_piece: bool,
}

/// Attributes the events in `dir`, updates `manifest`, and replaces the Parquet files and `manifest.json`: either all
/// of them or none, so that they agree. Reports progress if `told` is set and it takes long.
///
/// # Errors
/// Damaged or truncated events, naming the file and position; files that cannot be written; an [`Interrupted`]. The
/// previous files then stay as they were.
pub fn attribute(
    dir: &OutputDir,
    manifest: &mut Manifest,
    choices: Choices,
    told: bool,
) -> Result<()> {
    let (mut learned, mut work) = (Learned::default(), Work::Attributing);
    let written = loop {
        let written = dir.open_file(EVENTS).and_then(|events| {
            let size_bytes = events.metadata().map_or(0, |metadata| metadata.len());
            let progress = Progress::of(work, size_bytes, told);
            let input = BufReader::with_capacity(1 << 20, progress.counted(events));
            write_tables(dir, manifest, input, choices, &learned)
        });
        match written {
            Ok(None) => break Ok(()),
            Ok(Some(more)) => (learned, work) = (more, Work::AttributingAgain),
            Err(error) => break Err(error),
        }
    };
    // The manifest is put in place first: missing tables are noticed, missing figures are not.
    let mut names = vec![MANIFEST, REQUESTS, SEGMENTS, THREADS];
    names.extend(has_stacks(manifest).then_some(STACKS));
    keep(dir, &names, written.and_then(|()| write_json(dir, manifest)))
}

/// Whether the capture has stacks, and therefore a table of them.
fn has_stacks(manifest: &Manifest) -> bool {
    manifest.counts.sleep_stacks + manifest.counts.samples > 0
}

/// Writes `manifest.json` completely or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_manifest(dir: &OutputDir, manifest: &Manifest) -> Result<()> {
    keep(dir, &[MANIFEST], write_json(dir, manifest))
}

/// Puts files in place if all of them could be written; otherwise removes them.
fn keep(dir: &OutputDir, names: &[&str], written: Result<()>) -> Result<()> {
    let kept =
        written.and_then(|()| names.iter().try_for_each(|name| dir.replace_file(name, tmp(name))));
    if kept.is_err() {
        for name in names {
            let _ = dir.remove_file(tmp(name));
        }
    }
    kept
}

fn write_json(dir: &OutputDir, manifest: &Manifest) -> Result<()> {
    use std::io::Write;
    let file = create_tmp(dir, MANIFEST)?;
    let write = || -> Result<()> {
        let mut out = BufWriter::new(file);
        serde_json::to_writer_pretty(&mut out, manifest)?;
        writeln!(out)?;
        Ok(out.into_inner().map_err(|error| error.into_error())?.sync_data()?)
    };
    write().with_context(|| format!("cannot write {}", dir.path().join(MANIFEST).display()))
}

/// Creates a file that [`keep`] will put in place. Removes what an interrupted run left of it.
fn create_tmp(dir: &OutputDir, name: &str) -> Result<File> {
    let _ = dir.remove_file(tmp(name));
    dir.create_file(tmp(name))
}

/// Name of a file of the capture while it is being written.
pub(crate) fn tmp(name: &str) -> String {
    format!("{name}.tmp")
}

/// What a pass over the events has shown that the pass itself could not use.
#[derive(Debug, Default)]
struct Learned {
    /// See [`FallbackGiven`].
    no_fallback: bool,
    /// See [`Given::parents`].
    parents: Option<Rc<InferredParents>>,
}

/// Makes one pass over the events and writes the tables. Returns what another pass has to know, which then writes them
/// anew.
fn write_tables(
    dir: &OutputDir,
    manifest: &mut Manifest,
    input: impl Read + Send,
    choices: Choices,
    learned: &Learned,
) -> Result<Option<Learned>> {
    let unwritten = || format!("cannot write the tables of {}", dir.path().display());
    let mut files = [create_tmp(dir, REQUESTS)?, create_tmp(dir, SEGMENTS)?];
    let [requests, segments] = [files[0].try_clone()?, files[1].try_clone()?].map(BufWriter::new);
    let writer = output::Writer::new(requests, segments).with_context(unwritten)?;
    let mut behind = TableWriter::start(writer);
    let mut sink = |request: Request, segments: Segments| {
        interrupt::check()?;
        ensure!(behind.push(request, segments), "the tables cannot be written");
        Ok(())
    };
    // A capture without stacks has no names to read, whatever became of the file.
    let symbols = match dir.open_file(SYMBOLS) {
        Ok(_) => Rc::new(output::read_symbols(&dir.path().join(SYMBOLS))?),
        Err(_) => Rc::default(),
    };
    let Choices { allow_truncated, every_piece } = choices;
    let given = Given {
        symbols: Some(&symbols),
        allow_truncated,
        no_fallback: learned.no_fallback,
        parents: learned.parents.as_ref(),
        every_piece,
        ..Given::of(manifest)
    };
    let threads = create_tmp(dir, THREADS)?;
    let mut accounts = ThreadWriter::new(threads.try_clone()?).with_context(unwritten)?;
    let mut book = |closed: Vec<Account>| accounts.push(&closed).with_context(unwritten);
    let passed = pass_with(input, &given, &mut sink, &mut book);
    // Checked first: the reason why writing failed is more useful than the fact that it failed.
    let written = behind.finish().with_context(unwritten)?;
    let tally = match passed {
        Ok(tally) if tally.inferred.is_empty() => tally,
        Ok(Tally { inferred, .. }) => {
            let parents = Some(Rc::new(inferred));
            return Ok(Some(Learned { parents, ..*learned }));
        }
        Err(error) if error.is::<FallbackGiven>() => {
            return Ok(Some(Learned { no_fallback: true, parents: None }));
        }
        Err(error) if error.is::<Interrupted>() => return Err(error),
        Err(error) => return Err(error.context(dir.path().join(EVENTS).display().to_string())),
    };
    if written.numbers.any_parent {
        interrupt::check()?;
        let to = create_tmp(dir, REQUESTS)?;
        let from = std::mem::replace(&mut files[0], to.try_clone()?);
        output::renumber_parents(from, to, |id| written.numbers.of_parent(id))
            .with_context(unwritten)?;
    }
    // Some file systems report only now that there is no room.
    files.iter().try_for_each(File::sync_data).with_context(unwritten)?;
    interrupt::check()?;

    let counts = &mut manifest.counts;
    counts.requests = written.requests;
    counts.requests_incomplete = written.incomplete;
    counts.requests_by_kind = written.by_kind;
    counts.records = tally.records;
    counts.records_late = tally.late;
    counts.switches_missed = tally.switches_missed;
    counts.switches_restored = tally.switches_restored;
    counts.framing_lost = tally.framing_lost;
    counts.channels_forgotten = tally.channels_forgotten;
    counts.wakes_restored = tally.wakes_restored;
    counts.steal_unplaced_ns = tally.steal_unplaced_ns;
    counts.syscalls = tally.syscalls;
    counts.switches = tally.switches;
    counts.wakings = tally.wakings;
    counts.faults = tally.faults;
    counts.interrupts = tally.interrupts;
    counts.sleep_stacks = tally.sleep_stacks;
    counts.samples = tally.samples;
    counts.sampling_ns = tally.sampling_ns;
    let known: HashSet<Loss> = manifest.losses.iter().cloned().collect();
    manifest.losses.extend(tally.losses.into_iter().filter(|loss| !known.contains(loss)));
    counts.records_lost =
        manifest.losses.iter().map(|loss| loss.count).fold(0, u64::saturating_add);
    let ours = |of: &Warning| {
        use Warning::{BreaksOff, Encrypted, IoUring, SeveralDatagrams};
        matches!(of, BreaksOff { .. } | Encrypted { .. } | IoUring { .. } | SeveralDatagrams { .. })
    };
    manifest.warnings.retain(|warning| !ours(warning));
    manifest.warnings.extend(tally.truncated_at.map(|offset| Warning::BreaksOff { offset }));
    let users = |of: &BTreeSet<String>| {
        let names: Vec<_> = of.iter().map(String::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    manifest.warnings.extend(users(&tally.io_uring).map(|users| Warning::IoUring { users }));
    manifest.warnings.extend(users(&tally.encrypts).map(|users| Warning::Encrypted { users }));
    let several = users(&tally.several_datagrams);
    manifest.warnings.extend(several.map(|users| Warning::SeveralDatagrams { users }));
    let written = accounts.finish();
    written.and_then(|()| Ok(threads.sync_data()?)).with_context(unwritten)?;
    if has_stacks(manifest) {
        let file = create_tmp(dir, STACKS)?;
        let written = output::write_stacks(file.try_clone()?, &tally.stacks);
        written.and_then(|()| Ok(file.sync_data()?)).with_context(unwritten)?;
    }
    Ok(None)
}

/// Counts from one pass over the events.
#[derive(Debug, Default)]
pub struct Tally {
    pub records: u64,
    pub late: u64,
    pub switches_missed: u64,
    pub switches_restored: u64,
    pub framing_lost: BTreeMap<String, u64>,
    pub channels_forgotten: u64,
    pub wakes_restored: u64,
    pub steal_unplaced_ns: u64,
    pub syscalls: u64,
    pub switches: u64,
    pub wakings: u64,
    pub faults: u64,
    pub interrupts: u64,
    pub sleep_stacks: u64,
    pub samples: u64,
    /// Time in the interrupts that took samples.
    pub sampling_ns: u64,
    /// The stacks that segments refer to.
    pub stacks: Stacks,
    sampling: Sampling,
    /// Parents inferred from the steps of all requests, for another pass that knows them ([`Given::parents`]).
    pub inferred: InferredParents,
    /// Traced processes that set up or entered an io_uring, as `comm/pid`.
    pub io_uring: BTreeSet<String>,
    /// Traced processes with encrypted connections, likewise.
    pub encrypts: BTreeSet<String>,
    /// Traced processes that sent or received datagrams, without a known protocol, before the answer to the one before,
    /// likewise.
    pub several_datagrams: BTreeSet<String>,
    pub losses: Vec<Loss>,
    pub truncated_at: Option<u64>,
}

/// Input that a pass gets beforehand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    pub rates: Rates,
    /// Losses that are already known. A loss is reported by a later record, when the requests that it touches may
    /// already have been judged.
    pub losses: &'a [Loss],
    /// The processor, as named in the manifest.
    pub machine: &'a str,
    /// Whether all context switches were recorded, not only those of traced threads.
    pub whole_machine: bool,
    /// The target, which was released when the capture began. Needed if its first records are lost.
    pub target_pid: Option<u32>,
    /// Set if the target was already running: the time from which on all about it was known.
    pub attached_ns: Option<u64>,
    /// Names of the code addresses in stacks.
    pub symbols: Option<&'a Rc<Symbols>>,
    /// Memory limit for the whole process.
    pub memory_bytes: Option<u64>,
    pub allow_truncated: bool,
    /// Leave out turns on standard input and output, because there are other requests: see [`FallbackGiven`].
    pub no_fallback: bool,
    /// Parents that a pass before has inferred.
    pub parents: Option<&'a Rc<InferredParents>>,
    /// The `--request` rules: what to look for.
    pub requests: &'a [Rule],
    /// Report requests of many pieces piece by piece.
    pub every_piece: bool,
    /// Walk each request by itself; for experiments and tests.
    pub alone: bool,
    /// A rule of the walk to leave out; for experiments and tests.
    pub without: Option<crate::model::Rule>,
}

impl<'a> Given<'a> {
    /// Takes the input from the manifest of a capture, and the memory limit from the system.
    pub fn of(manifest: &'a Manifest) -> Given<'a> {
        let calibration = &manifest.calibration;
        Given {
            rates: Rates {
                copy_ns_per_byte: calibration.copy_ns_per_byte,
                transfer_ns: calibration.transfer_ns as u64,
                socket_copy_ns_per_byte: calibration.socket_copy_ns_per_byte,
                socket_transfer_ns: calibration.socket_transfer_ns as u64,
                fault_outside_ns: calibration.fault_outside_ns as u64,
                fault_inside_ns: calibration.fault_inside_ns as u64,
                call_outside_ns: calibration.call_outside_ns as u64,
            },
            losses: &manifest.losses,
            machine: &manifest.host.machine,
            whole_machine: manifest.options.scope == Scope::Machine,
            target_pid: Some(manifest.command.pid).filter(|pid| *pid != 0),
            attached_ns: manifest.command.attached.as_ref().map(|_| manifest.start_ns),
            memory_bytes: memory::limit_bytes(),
            requests: &manifest.options.requests,
            ..Given::default()
        }
    }
}

/// Returns the losses that the records report.
///
/// # Errors
/// Damaged input.
pub fn losses(input: impl Read, allow_truncated: bool) -> Result<Vec<Loss>> {
    let mut reader = Reader::new(input, allow_truncated)?;
    let mut losses = Vec::new();
    while let Some(item) = reader.next_record()? {
        if let Some(Event { cpu, what: What::Lost { count, first_ns, last_ns }, .. }) =
            decode(item.cpu, item.record)?
        {
            losses.push(Loss { cpu, count, first_ns, last_ns });
        }
    }
    Ok(losses)
}

/// Reads events and passes every explained request to `sink`.
///
/// # Errors
/// Damaged or truncated input, whatever `sink` returns, or [`FallbackGiven`].
pub fn pass(
    input: impl Read + Send,
    given: &Given<'_>,
    sink: &mut impl FnMut(Request, Segments) -> Result<()>,
) -> Result<Tally> {
    pass_with(input, given, sink, &mut |_| Ok(()))
}

/// Like [`pass`], and also passes to `book` what traced threads' CPU time was used for: for threads that have ended as
/// soon as that is known, then for the others.
///
/// # Errors
/// As [`pass`], and whatever `book` returns.
fn pass_with(
    input: impl Read + Send,
    given: &Given<'_>,
    sink: &mut impl FnMut(Request, Segments) -> Result<()>,
    book: &mut impl FnMut(Vec<Account>) -> Result<()>,
) -> Result<Tally> {
    let reader = Reader::new(input, given.allow_truncated)?;
    let header = reader.header;
    let mut engine = Engine::new(header.cpus, header.start_ns, given.rates);
    engine.world.losses = given.losses.to_vec().into();
    engine.world.whole_machine = given.whole_machine;
    if let Some(bytes) = given.memory_bytes {
        engine.limit_memory(bytes);
    }
    engine.world.stacks.symbols = given.symbols.map(Rc::clone).unwrap_or_default();
    if let Some(pid) = given.target_pid {
        engine.expect_target(pid);
    }
    if let Some(attached_ns) = given.attached_ns {
        engine.attached_at(attached_ns);
    }
    engine.look_for(Wanted::new(given.requests));
    if given.no_fallback {
        engine.leave_out_fallback();
    }
    if let Some(parents) = given.parents {
        engine.know_parents(Rc::clone(parents));
    }
    if let Some(rule) = given.without {
        engine.leave_out(rule);
    }
    if given.every_piece {
        engine.tell_every_piece();
    }
    if given.alone {
        engine.walk_alone();
    }
    let mut tally = Tally::default();
    let mut several_datagrams = BTreeSet::new();
    let mut sink = |request: Request, segments: Segments| {
        note_several(&mut several_datagrams, &request);
        sink(request, segments)
    };
    let sink = &mut sink;
    let end = thread::scope(|scope| -> Result<decoder::End> {
        let mut ahead = Decoder::start(scope, reader, Processor::named(given.machine));
        while let Some(events) = ahead.next_batch() {
            interrupt::check()?;
            for event in &events {
                tally.count(event, &engine);
                engine.push(event, sink)?;
            }
            book(engine.take_accounts())?;
            ahead.give_back(events);
        }
        ahead.end()
    })?;
    engine.finish(end.end_ns, sink)?;
    book(engine.take_accounts())?;
    // A traced thread's absence from the CPU counts as two switches, out and in.
    tally.switches = engine.world.traced_switches / 2;
    tally.wakings = engine.world.traced_wakings;
    tally.records = end.records;
    tally.late = end.late;
    tally.switches_missed = engine.world.missed_switches;
    tally.switches_restored = engine.world.restored_switches;
    let lost = engine.world.framing_lost.iter();
    tally.framing_lost = lost.map(|(why, times)| (why.to_string(), *times)).collect();
    tally.channels_forgotten = engine.world.channels_forgotten;
    tally.wakes_restored = engine.world.restored_wakes;
    tally.steal_unplaced_ns = engine.world.steal_unplaced_ns;
    tally.truncated_at = end.truncated_at;
    tally.several_datagrams = several_datagrams;
    tally.inferred = engine.infer_parents();
    tally.stacks = std::mem::take(&mut engine.world.stacks);
    Ok(tally)
}

impl Tally {
    /// Counts an event that the engine has not seen yet.
    fn count(&mut self, event: &Event, engine: &Engine) {
        match &event.what {
            What::Call { tid, call } => {
                self.syscalls += 1;
                if syscall::is_io_uring(call.nr) && call.ret >= 0 {
                    note_user(&mut self.io_uring, *tid, event.ts_ns, engine);
                }
            }
            What::Encrypted { tid, .. } => {
                note_user(&mut self.encrypts, *tid, event.ts_ns, engine);
            }
            What::Fault { .. } => self.faults += 1,
            What::Irq { enter_ns, hard, .. } => {
                self.interrupts += 1;
                self.sampling_ns += self.sampling.ended(event, *enter_ns, *hard);
            }
            What::Stack { .. } => self.sleep_stacks += 1,
            What::Sample { interrupted_ns, .. } => {
                self.samples += 1;
                self.sampling.begun.insert(event.cpu, *interrupted_ns);
            }
            What::Lost { count, first_ns, last_ns } => self.losses.push(Loss {
                cpu: event.cpu,
                count: *count,
                first_ns: *first_ns,
                last_ns: *last_ns,
            }),
            _ => {}
        }
    }
}

/// Notes a thread's process among those that a warning names.
fn note_user(users: &mut BTreeSet<String>, tid: u32, at_ns: u64, engine: &Engine) {
    let Some(thread) = engine.world.thread_by_tid(tid) else { return };
    if users.len() < MOST_USERS {
        let name = engine.world.thread(thread).name_at(at_ns);
        users.insert(format!("{name}/{}", engine.world.process_of(thread).tgid));
    }
}

/// Notes the ends of a request whose question may be several, because datagrams came before its answer.
fn note_several(users: &mut BTreeSet<String>, request: &Request) {
    let is_several = request.retransmissions.is_some_and(|times| times > 0);
    if !is_several || request.kind == Kind::OncRpc || users.len() >= MOST_USERS {
        return;
    }
    let ends = [&request.client, &request.server].into_iter().flatten();
    users.extend(ends.map(|end| format!("{}/{}", end.comm, end.pid)));
}

/// Finds the interrupts that took samples. Their time is the cost of sampling.
#[derive(Debug, Default)]
struct Sampling {
    /// By CPU: begin of the interrupt that took the last sample.
    begun: HashMap<u32, u64>,
}

impl Sampling {
    /// Returns the time of an interrupt that ended, if it took a sample.
    fn ended(&mut self, event: &Event, enter_ns: u64, hard: bool) -> u64 {
        match self.begun.get(&event.cpu) {
            Some(&begun_ns) if hard && begun_ns == enter_ns => {
                self.begun.remove(&event.cpu);
                event.ts_ns.saturating_sub(enter_ns)
            }
            _ => 0,
        }
    }
}
