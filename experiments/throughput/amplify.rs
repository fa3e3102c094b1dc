//! Makes a long capture of a short, real one: `amplify CAPTURE OUT EVENTS`.
//!
//! The events of CAPTURE are repeated, each time later and with other threads, processes and pipes,
//! until there are at least EVENTS. OUT then holds a capture that `rpcprobe attribute` accepts.
//! Prints the number of repetitions, as JSON. Holds only one repetition in memory.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter};
use std::path::Path;

use anyhow::{ensure, Context, Result};
use rpcprobe::attribute::{EVENTS, MANIFEST};
use rpcprobe::capture::format::CPU_USER;
use rpcprobe::capture::manifest::Manifest;
use rpcprobe::capture::reader::Reader;
use rpcprobe::capture::writer::Writer;
use rpcprobe::engine::event::TYPE_FIFO;
use rpcprobe::records::*;
use zerocopy::IntoBytes;

/// As in a real capture: the interval at which rings are drained, and the largest age of a block.
const DRAIN_EVERY_NS: u64 = 10_000_000;
const BLOCK_LAG_NS: u64 = 50_000_000;
/// Pause between two repetitions.
const PAUSE_NS: u64 = 1_000_000;
/// Thread ids are reused after this many, as in a kernel.
const PID_MAX: u32 = 4 << 20;

/// A capture in memory.
struct Source {
    cpus: u32,
    start_ns: u64,
    end_ns: u64,
    /// Tasks that existed before the capture.
    tasks: Vec<Vec<u8>>,
    /// In order of time: CPU and record.
    records: Vec<(u32, Vec<u8>)>,
    /// Threads that get new ids in every repetition: traced threads, and threads whose creation is seen.
    own: HashMap<u32, u32>,
    /// The thread that has each CPU first, and last.
    first: HashMap<u32, u32>,
    last: HashMap<u32, u32>,
    /// First free tid for new threads, and the largest number of a block request or transaction.
    free_tid: u32,
    blocks: u32,
}

impl Source {
    fn read(events: &Path) -> Result<Source> {
        let input = BufReader::new(File::open(events)?);
        let mut reader = Reader::new(input, false)?;
        let (cpus, start_ns) = (reader.header.cpus, reader.header.start_ns);
        let mut source = Source {
            cpus,
            start_ns,
            end_ns: start_ns,
            tasks: Vec::new(),
            records: Vec::new(),
            own: HashMap::new(),
            first: HashMap::new(),
            last: HashMap::new(),
            free_tid: 0,
            blocks: 0,
        };
        while let Some(item) = reader.next_record()? {
            if item.cpu == CPU_USER {
                source.tasks.push(item.record.to_vec());
            } else {
                source.records.push((item.cpu, item.record.to_vec()));
            }
        }
        source.end_ns = reader.end_ns().unwrap_or(start_ns);
        source.survey()?;
        Ok(source)
    }

    /// Finds the threads that get new ids, and the first and last thread of each CPU.
    fn survey(&mut self) -> Result<()> {
        let mut own = BTreeSet::new();
        for (cpu, record) in &self.records {
            let (hdr, _) = read::<RecHdr>(record).context("a record without header")?;
            match hdr.kind {
                REC_FORK => {
                    let (fork, _) = read::<RecFork>(record).context("a short record")?;
                    own.insert(fork.child_tid);
                }
                REC_SYSCALL | REC_SYSCALL_IO | REC_SYSCALL_PATH => {
                    own.insert(hdr.tid);
                }
                REC_SWITCH | REC_SWITCH_SYS => {
                    let (switch, _) = read::<RecSwitch>(record).context("a short record")?;
                    self.first.entry(*cpu).or_insert(hdr.tid);
                    self.last.insert(*cpu, switch.next_tid);
                }
                REC_BLOCK => {
                    let (block, _) = read::<RecBlock>(record).context("a short record")?;
                    self.blocks = self.blocks.max(block.number);
                }
                _ => {}
            }
            self.free_tid = self.free_tid.max(hdr.tid + 1);
        }
        for task in &self.tasks {
            let (hdr, _) = read::<RecHdr>(task).context("a record without header")?;
            self.free_tid = self.free_tid.max(hdr.tid + 1);
        }
        self.free_tid = self.free_tid.max(own.last().map_or(0, |tid| tid + 1));
        let room = PID_MAX.saturating_sub(self.free_tid);
        ensure!(own.len() as u32 <= room / 2, "too many threads to repeat");
        self.own = own.into_iter().zip(0..).collect();
        Ok(())
    }
}

/// One repetition: its offsets for times and numbers.
struct Round<'s> {
    source: &'s Source,
    number: u64,
    later_ns: u64,
}

impl Round<'_> {
    /// Maps a tid. Tid 0, and tids of other threads of the machine, stay the same.
    fn tid(&self, tid: u32) -> u32 {
        let Some(index) = self.source.own.get(&tid).filter(|_| self.number > 0) else {
            return tid;
        };
        let room = u64::from(PID_MAX - self.source.free_tid);
        let nth = (self.number - 1) * self.source.own.len() as u64 + u64::from(*index);
        self.source.free_tid + (nth % room) as u32
    }

    /// Shifts a time; 0 means no time.
    fn time(&self, at_ns: u64) -> u64 {
        if at_ns == 0 {
            0
        } else {
            at_ns + self.later_ns
        }
    }

    fn inode(&self, ino: u64, type_bits: u16) -> u64 {
        if type_bits == TYPE_FIFO {
            ino + (self.number << 32)
        } else {
            ino
        }
    }

    fn block(&self, number: u32) -> u32 {
        let later = (self.number as u32).wrapping_mul(self.source.blocks);
        if number == 0 {
            0
        } else {
            number.wrapping_add(later)
        }
    }

    fn call(&self, call: &mut RecSyscall) {
        call.enter_ns = self.time(call.enter_ns);
        // The result of a fork or wait is a tid. Results of other calls that return a tid are not used.
        const RETURN_TIDS: [u16; 6] = [56, 57, 58, 61, 247, 435];
        if RETURN_TIDS.contains(&call.hdr.aux) {
            if let Ok(tid) = u32::try_from(call.ret) {
                call.ret = i64::from(self.tid(tid));
            }
        }
    }

    /// The record with this round's times and numbers.
    fn changed(&self, record: &[u8]) -> Result<Vec<u8>> {
        let (mut hdr, _) = read::<RecHdr>(record).context("a record without header")?;
        hdr.ts_ns = self.time(hdr.ts_ns);
        hdr.tid = self.tid(hdr.tid);
        let mut out = record.to_vec();
        out[..size_of::<RecHdr>()].copy_from_slice(hdr.as_bytes());

        macro_rules! change {
            ($type:ty, $change:expr) => {{
                let (mut value, _) = read::<$type>(&out).context("a short record")?;
                #[allow(clippy::redundant_closure_call)] // names the type
                ($change as fn(&Self, &mut $type))(self, &mut value);
                out[..size_of::<$type>()].copy_from_slice(value.as_bytes());
            }};
        }
        match hdr.kind {
            REC_LOST => change!(RecLost, |round, r| {
                (r.first_ns, r.last_ns) = (round.time(r.first_ns), round.time(r.last_ns));
            }),
            REC_SWITCH => change!(RecSwitch, |round, r| r.next_tid = round.tid(r.next_tid)),
            REC_SWITCH_SYS => change!(RecSwitchSys, |round, r| {
                r.next_tid = round.tid(r.next_tid);
                r.enter_ns = round.time(r.enter_ns);
                r.ino = round.inode(r.ino, r.object_type);
            }),
            REC_WAKING => change!(RecWaking, |round, r| {
                r.wakee_tid = round.tid(r.wakee_tid);
                r.block = round.block(r.block);
            }),
            REC_FORK => change!(RecFork, |round, r| {
                r.child_tid = round.tid(r.child_tid);
                r.child_tgid = round.tid(r.child_tgid);
                r.enter_ns = round.time(r.enter_ns);
            }),
            REC_EXEC => change!(RecExec, |round, r| r.old_tid = round.tid(r.old_tid)),
            REC_EXIT => change!(RecExit, |round, r| r.tgid = round.tid(r.tgid)),
            REC_RENAME => {
                change!(RecRename, |round, r| r.subject_tid =
                    round.tid(r.subject_tid));
            }
            REC_SYSCALL => change!(RecSyscall, |round, r| round.call(r)),
            REC_SYSCALL_PATH => change!(RecSyscallPath, |round, r| round.call(&mut r.sys)),
            REC_SYSCALL_IO => change!(RecSyscallIo, |round, r| {
                round.call(&mut r.sys);
                r.ino = round.inode(r.ino, r.object_type);
            }),
            REC_FAULT => change!(RecFault, |round, r| r.enter_ns = round.time(r.enter_ns)),
            REC_IRQ => change!(RecIrq, |round, r| r.enter_ns = round.time(r.enter_ns)),
            REC_BLOCK => change!(RecBlock, |round, r| {
                r.number = round.block(r.number);
                (r.queued_ns, r.issued_ns) = (round.time(r.queued_ns), round.time(r.issued_ns));
            }),
            REC_CONTENTION => {
                change!(RecContention, |round, r| r.enter_ns =
                    round.time(r.enter_ns));
            }
            REC_FUNCTION => {
                change!(RecFunction, |round, r| r.enter_ns = round.time(r.enter_ns));
            }
            REC_WORK => change!(RecWork, |round, r| {
                (r.queued_ns, r.started_ns) = (round.time(r.queued_ns), round.time(r.started_ns));
                r.queuer_tid = round.tid(r.queuer_tid);
            }),
            REC_STEAL => change!(RecSteal, |round, r| {
                (r.since_ns, r.until_ns) = (round.time(r.since_ns), round.time(r.until_ns));
            }),
            REC_UNSEEN_SWITCH => change!(RecUnseenSwitch, |round, r| {
                (r.since_ns, r.arrived_ns) = (round.time(r.since_ns), round.time(r.arrived_ns));
                r.last_tid = round.tid(r.last_tid);
            }),
            _ => {}
        }
        Ok(out)
    }

    /// Records that restore the capture's initial state: its first process exists, and each CPU runs its
    /// first thread.
    fn opening(&self) -> Result<Vec<(u32, Vec<u8>)>> {
        let ts_ns = self.source.start_ns + self.later_ns - PAUSE_NS / 2;
        let mut records = Vec::new();
        let header = |tid, kind, flags| RecHdr {
            ts_ns,
            tid,
            kind,
            flags,
            aux: 0,
        };
        for task in &self.source.tasks {
            let (task, _) = read::<RecTask>(task).context("a short record")?;
            if self.source.own.contains_key(&task.hdr.tid) {
                let thread = if task.hdr.tid == task.tgid {
                    0
                } else {
                    TASK_THREAD
                };
                let fork = RecFork {
                    hdr: header(task.ppid, REC_FORK, TASK_TRACED | thread),
                    child_tid: self.tid(task.hdr.tid),
                    child_tgid: self.tid(task.tgid),
                    enter_ns: 0, // the fork itself was not seen
                    comm: task.comm,
                };
                records.push((0, fork.as_bytes().to_vec()));
            }
        }
        let before = Round {
            number: self.number - 1,
            ..*self
        };
        for (&cpu, &first) in &self.source.first {
            let (last, next_tid) = (before.tid(self.source.last[&cpu]), self.tid(first));
            let switch = RecSwitch {
                hdr: header(last, REC_SWITCH, 0),
                next_tid,
                waited_ns: NOT_KNOWN_NS,
            };
            records.push((cpu, switch.as_bytes().to_vec()));
        }
        Ok(records)
    }
}

fn amplify(capture: &Path, out: &Path, events: u64) -> Result<()> {
    let source = Source::read(&capture.join(EVENTS))?;
    ensure!(!source.records.is_empty(), "no events to repeat");
    fs::create_dir_all(out)?;
    let file = BufWriter::with_capacity(1 << 20, File::create(out.join(EVENTS))?);
    let mut writer = Writer::new(file, source.cpus, source.start_ns)?;
    writer.user_records(source.tasks.iter().map(|record| &record[..]))?;

    let period_ns = source.end_ns - source.start_ns + PAUSE_NS;
    let mut rounds = 0;
    let mut count = source.tasks.len() as u64;
    let mut drained_ns = source.start_ns;
    while count < events {
        let round = Round {
            source: &source,
            number: rounds,
            later_ns: rounds * period_ns,
        };
        if rounds > 0 {
            for (cpu, record) in round.opening()? {
                writer.push(cpu, &record);
                count += 1;
            }
        }
        for (cpu, record) in &source.records {
            let record = round.changed(record)?;
            let (hdr, _) = read::<RecHdr>(&record).context("a record without header")?;
            while hdr.ts_ns > drained_ns + DRAIN_EVERY_NS {
                drained_ns += DRAIN_EVERY_NS;
                for cpu in 0..source.cpus {
                    writer.flush(cpu, drained_ns, BLOCK_LAG_NS)?;
                }
            }
            writer.push(*cpu, &record);
            count += 1;
        }
        rounds += 1;
    }
    let end_ns = source.start_ns + rounds * period_ns;
    writer.finish(end_ns)?;

    let bytes = fs::read(capture.join(MANIFEST))?;
    let mut manifest: Manifest = serde_json::from_slice(&bytes)?;
    manifest.duration_ns = end_ns - source.start_ns;
    fs::write(out.join(MANIFEST), serde_json::to_vec_pretty(&manifest)?)?;
    println!("{{\"rounds\": {rounds}, \"events\": {count}}}");
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [capture, out, events] = &arguments[..] else {
        anyhow::bail!("usage: amplify CAPTURE OUT EVENTS");
    };
    amplify(
        Path::new(capture),
        Path::new(out),
        events.parse().context("EVENTS is a number")?,
    )
}
