//! Event files that no writer would write, for the reader and everything behind it. Whatever they contain, the outcome
//! is an error or requests, and complete requests add up.
//!
//! The inputs are mutated traces of the simulated machine or, with `RPCPROBE_FUZZ_EVENTS`, of a real `events.bin`.
//! `RPCPROBE_PROPERTY_CASES` sets their number. With `--nocapture` the test prints how many were read.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rpcprobe::attribute::{losses, pass, Given};
use rpcprobe::capture::format::{BlockHeader, FileHeader, CPU_USER};
use rpcprobe::capture::reader::Reader;
use rpcprobe::capture::writer::Writer;
use rpcprobe::engine::decode::decode;
use rpcprobe::engine::event::{Event, Object, What, TYPE_FIFO, TYPE_UNIX};
use rpcprobe::engine::Rates;
use rpcprobe::model::{check_conservation, Segments};
use zerocopy::{FromBytes, IntoBytes};

use super::encode;
use super::laws::{cases, numbers};
use super::programs::simulate;

/// Records in order of time, with their CPUs.
type Records = Vec<(u32, Vec<u8>)>;

/// One change, to the record or byte that the index picks.
#[derive(Clone, Debug)]
struct Change {
    how: u8,
    at: prop::sample::Index,
    other: prop::sample::Index,
    number: u64,
}

fn changes(most: usize) -> impl Strategy<Value = Vec<Change>> {
    // Numbers that have a meaning, edge cases, and any others.
    let edges = prop::sample::select(vec![
        0,
        1,
        u64::from(u16::MAX),
        u64::from(u32::MAX),
        u64::from(u32::MAX) + 1,
        i64::MAX as u64,
        i64::MAX as u64 + 1,
        u64::MAX - 1,
        u64::MAX,
    ]);
    let number = prop_oneof![0u64..130, 990u64..2_000, edges, any::<u64>()];
    let index = any::<prop::sample::Index>;
    let change = (any::<u8>(), index(), index(), number)
        .prop_map(|(how, at, other, number)| Change { how, at, other, number });
    prop::collection::vec(change, 0..most)
}

/// Applies changes to the contents of records. The blocks around them stay valid.
fn change_records(records: &mut Records, changes: &[Change]) {
    for Change { how, at, other, number } in changes {
        if records.is_empty() {
            return;
        }
        let (at, other) = (at.index(records.len()), other.index(records.len()));
        match how % 12 {
            0 => drop(records.remove(at)),
            1 => records.insert(other, records[at].clone()),
            2 => records.swap(at, other),
            3 => {
                // Spliced: the records in between are dropped or repeated.
                let part = records[at.min(other)..].to_vec();
                records.truncate(at.max(other));
                records.extend(part.into_iter().take(2_000));
            }
            4 => records[at].0 = if number % 9 == 0 { CPU_USER } else { (*number % 4) as u32 },
            // Rarely, since a record shorter than its kind ends the reading.
            5 if number % 8 == 0 => {
                let length = records[at].1.len();
                records[at].1.resize(16 + *number as usize % length.max(1), 0xff);
            }
            // Kind, flags or `aux`.
            6 => put(&mut records[at].1, 12 + other % 4, &number.to_le_bytes()[..1]),
            7 => {
                let time = records[other].1[..8].to_vec();
                put(&mut records[at].1, 0, &time);
            }
            8 => {
                let tid = records[other].1[8..12].to_vec();
                put(&mut records[at].1, 8 + 8 * (*number as usize % 3), &tid);
            }
            // An aligned field of four or eight bytes.
            9 => put(&mut records[at].1, 4 * (other % 16), &number.to_le_bytes()[..4]),
            10 => put(&mut records[at].1, 8 * (other % 8), &number.to_le_bytes()),
            _ => put(&mut records[at].1, other % 64, &number.to_le_bytes()[..1]),
        }
    }
}

/// Overwrites bytes of the record, as far as it reaches.
fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in record.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

/// An event file of the records. `blocks` says where blocks end and with which watermarks.
fn file(records: &Records, start_ns: u64, blocks: &[Change]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), 4, start_ns).unwrap();
    let from_user = records.iter().filter(|(cpu, _)| *cpu == CPU_USER);
    writer.user_records(from_user.map(|(_, record)| &record[..])).unwrap();
    let ends: Vec<usize> = blocks.iter().map(|end| end.at.index(records.len() + 1)).collect();
    for (index, (cpu, record)) in records.iter().enumerate() {
        if *cpu != CPU_USER {
            writer.push(*cpu, record);
        }
        for block in ends.iter().zip(blocks).filter(|(end, _)| **end == index).map(|(_, b)| b) {
            // Mostly with the latest time so far, as a drain does; otherwise with any watermark.
            match block.how % 4 {
                0 => writer.flush(block.other.index(4) as u32, block.number, 0).unwrap(),
                _ => writer.flush_all(u64::from_le_bytes(record[..8].try_into().unwrap())).unwrap(),
            }
        }
    }
    writer.finish(records.len() as u64).unwrap()
}

/// Applies changes to the bytes of a file. Some changes also recompute the block's checksum.
fn change_bytes(file: &mut Vec<u8>, changes: &[Change]) {
    for Change { how, at, other, number } in changes {
        let (at, other) = (at.index(file.len() + 1), other.index(file.len() + 1));
        match how % 8 {
            0 => file.truncate(at),
            1 => {
                let part = file[at.min(other)..at.max(other)].to_vec();
                let to = (*number as usize).min(file.len());
                file.splice(to..to, part);
            }
            2 => drop(file.drain(at.min(other)..at.max(other))),
            3 => put(file, at, &number.to_le_bytes()),
            4 => {
                // A field of a block's header.
                let (block, _) = nth_block(file, other);
                put(file, block + 4 * (at % 10), &number.to_le_bytes()[..4]);
            }
            _ => {
                let (block, header) = nth_block(file, other);
                let first = block + size_of::<BlockHeader>();
                let Some(mut header) = header else { continue };
                let Some(payload) = file.get_mut(first..first + header.stored_bytes as usize)
                else {
                    continue;
                };
                if !payload.is_empty() {
                    let at = at % payload.len();
                    put(payload, at, &number.to_le_bytes()[..1]);
                }
                header.crc32 = crc32fast::hash(payload);
                put(file, block, header.as_bytes());
            }
        }
    }
}

/// Start of a block, and its header, or `None` if the file ends there.
fn nth_block(file: &[u8], number: usize) -> (usize, Option<BlockHeader>) {
    let header = |at: usize| Some(BlockHeader::read_from_prefix(file.get(at..)?).ok()?.0);
    let mut starts = vec![size_of::<FileHeader>()];
    while let Some(block) = header(starts[starts.len() - 1]) {
        let next =
            starts[starts.len() - 1] + size_of::<BlockHeader>() + block.stored_bytes as usize;
        if next >= file.len() || starts.len() > 1_000 {
            break;
        }
        starts.push(next);
    }
    let start = starts[number % starts.len()];
    (start, header(start))
}

/// The real records of `RPCPROBE_FUZZ_EVENTS`, if it is set.
fn real() -> Option<(u64, Records)> {
    let path = std::env::var_os("RPCPROBE_FUZZ_EVENTS")?;
    let bytes = std::fs::read(path).expect("RPCPROBE_FUZZ_EVENTS can be read");
    let mut reader = Reader::new(&bytes[..], false).expect("RPCPROBE_FUZZ_EVENTS is whole");
    let start_ns = reader.header.start_ns;
    let mut records = Records::new();
    while let Some(item) = reader.next_record().expect("RPCPROBE_FUZZ_EVENTS is whole") {
        records.push((item.cpu, item.record.to_vec()));
    }
    Some((start_ns, records))
}

fn encoded(trace: &super::programs::Trace) -> Records {
    let record = |event| (event_cpu(event), encode::record(event));
    trace.events.iter().map(record).collect()
}

/// The trace, with its pipes turned into the two directions of Unix connections, whose numbers differ in the last bit.
pub fn over_sockets(mut trace: super::programs::Trace) -> super::programs::Trace {
    for event in &mut trace.events {
        let What::Call { call, .. } = &mut event.what else { continue };
        let Some(io) = call.io.as_mut().filter(|io| io.object.type_bits == TYPE_FIFO) else {
            continue;
        };
        io.object = Object { dev: 0, ino: io.object.ino, type_bits: TYPE_UNIX };
        io.reverse = Some(Object { ino: io.object.ino ^ 1, ..io.object });
    }
    trace
}

fn event_cpu(event: &Event) -> u32 {
    match event.what {
        What::Task { .. } => CPU_USER,
        _ => event.cpu,
    }
}

#[test]
fn hostile_event_files_do_no_harm() {
    let read = Cell::new([0u64; 2]);
    let requests = Cell::new(0u64);
    let real = real();
    // Most damage to bytes is detected before anything is decoded.
    let bytes = prop_oneof![3 => Just(Vec::new()), 1 => changes(4)];
    let inputs = (numbers(), changes(24), changes(12), bytes, any::<prop::sample::Index>());
    let outcome = TestRunner::new(cases(5)).run(&inputs, |(tape, records, blocks, bytes, at)| {
        let (start_ns, mut hostile) = match &real {
            // As many records as a simulated trace has.
            Some((start_ns, whole)) => {
                let from = at.index(whole.len());
                (*start_ns, whole[from..].iter().take(600).cloned().collect())
            }
            None => {
                let pipes = simulate(tape);
                let trace = if at.index(3) == 0 { over_sockets(pipes) } else { pipes };
                (trace.truth.start_ns, encoded(&trace))
            }
        };
        change_records(&mut hostile, &records);
        let mut events = file(&hostile, start_ns, &blocks);
        change_bytes(&mut events, &bytes);
        for allow_truncated in [false, true] {
            let mut fault = None;
            let mut sink = |request, segments: Segments| {
                requests.set(requests.get() + 1);
                fault = fault.take().or(check_conservation(&request, &segments.list).err());
                Ok(())
            };
            let known = losses(&events[..], allow_truncated).unwrap_or_default();
            let whole_machine = at.index(2) == 0;
            let given = Given {
                rates: Rates {
                    copy_ns_per_byte: 0.5,
                    socket_copy_ns_per_byte: 0.7,
                    transfer_ns: 7,
                    socket_transfer_ns: 9,
                    fault_outside_ns: 3,
                    fault_inside_ns: 7,
                    call_outside_ns: 2,
                },
                machine: "",
                symbols: None,
                every_piece: false,
                alone: false,
                losses: &known,
                whole_machine,
                target_pid: (at.index(3) == 0).then_some(10),
                attached_ns: (at.index(3) == 1).then_some(start_ns + 100_000),
                allow_truncated,
                no_fallback: false,
                parents: None,
                memory_bytes: None,
                requests: &[],
                without: None,
            };
            let outcome = pass(&events[..], &given, &mut sink);
            let [ended, refused] = read.get();
            let ok = u64::from(outcome.is_ok());
            read.set([ended + ok, refused + 1 - ok]);
            if let Some(fault) = fault {
                return Err(TestCaseError::fail(fault));
            }
        }
        Ok(())
    });
    let [ended, refused] = read.get();
    println!(
        "{} hostile event files read, {refused} of them refused; {} requests",
        ended + refused,
        requests.get()
    );
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

proptest! {
    #![proptest_config(cases(50))]

    /// Encoding and decoding are inverse, so the files above, before they are changed, are what a kernel could have
    /// sent.
    #[test]
    fn events_survive_being_records(numbers in numbers()) {
        let (pipes, sockets) = (simulate(numbers.clone()), over_sockets(simulate(numbers)));
        for event in pipes.events.into_iter().chain(sockets.events) {
            let decoded = decode(event.cpu, &encode::record(&event)).unwrap();
            prop_assert_eq!(decoded, Some(event));
        }
    }
}
