//! Event files that are truncated, corrupted, or no event files at all.

use std::fs;
use std::process::{Output, Stdio};

use rpcprobe::attribute::{pass, Given};
use rpcprobe::capture::format::{FileHeader, CPU_USER};
use rpcprobe::capture::reader::Reader;
use rpcprobe::capture::writer::Writer;
use rpcprobe::engine::Rates;
use rpcprobe::model::{check_conservation, Kind, Reason, Request, Segments};
use rpcprobe::records::{
    RecHdr, REC_EXEC, REC_SYSCALL, REC_SYSCALL_IO, REC_SYSCALL_PATH, REC_TASK,
};

use crate::common::capture::{contents, kinds, Capture};
use crate::common::{assert_no_crash, assert_refused, needs_kernel, text};
use crate::noise::{noise, Dice};
use crate::{on, small_capture};

/// Runs `attribute` with other events in place of the capture's.
fn attribute_with(capture: &Capture, events: &[u8], options: &[&str]) -> Output {
    fs::write(capture.file("events.bin"), events).unwrap();
    on(&capture.path(), &[&["attribute", "-q"], options].concat())
}

#[test]
fn truncated_events_are_refused_wherever_they_break_off() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let whole = fs::read(capture.file("events.bin")).unwrap();
    let mut before = contents(&capture.path());
    before.remove(&capture.file("events.bin"));
    let few = (0..64).chain((64..whole.len()).step_by(whole.len() / 40));
    for length in few.chain(whole.len() - 50..whole.len()) {
        let output = attribute_with(&capture, &whole[..length], &[]);
        let events = capture.file("events.bin");
        let mut words = vec![events.to_str().unwrap()];
        let offset = format!("at byte {length}");
        // A file shorter than the header cannot be recognized as an event file.
        if length >= 24 {
            words.extend(["truncated", &offset]);
        }
        assert_refused(&output, 1, &words);
        let mut after = contents(&capture.path());
        after.remove(&events);
        assert!(after == before, "{length}: a former file has changed, or there is a new one");
    }
}

#[test]
fn the_part_before_the_truncation_is_read_when_asked_for() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let whole = fs::read(capture.file("events.bin")).unwrap();
    let all = capture.checked().len();
    for percent in [10, 50, 90, 99] {
        let part = &whole[..whole.len() * percent / 100];
        let output = attribute_with(&capture, part, &["--allow-truncated"]);
        assert!(output.status.success(), "{percent} %: {}", text(&output.stderr));
        assert!(capture.checked().len() <= all + 1, "{percent} %");
        let warnings = capture.manifest().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(capture
            .report()
            .lines()
            .take(7)
            .any(|line| line.contains(&warnings[0].to_string())));
    }
    // With the whole event file restored, the results are whole again.
    assert!(attribute_with(&capture, &whole, &[]).status.success());
    assert_eq!(capture.manifest().warnings, []);
    assert_eq!(capture.checked().len(), all);

    // An interrupted run leaves no manifest.
    fs::remove_file(capture.file("manifest.json")).unwrap();
    let part = &whole[..whole.len() - 10];
    assert_refused(&attribute_with(&capture, part, &[]), 1, &["manifest.json"]);
    assert!(attribute_with(&capture, part, &["--allow-truncated"]).status.success());
    capture.checked();
    assert!(!capture.manifest().warnings.is_empty());
}

#[test]
fn events_that_are_none_are_refused() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let magic = [&b"rpcprobe"[..], &noise(5000)].concat();
    let version = [&b"rpcprobe\x01\0\0\0\x02\0\0\0"[..], &noise(5000)].concat();
    for events in [&b""[..], b"x", &noise(5000), b"rpcprobe", &magic, &version] {
        for options in [&[][..], &["--allow-truncated"]] {
            let output = attribute_with(&capture, events, options);
            assert_refused(&output, 1, &[capture.file("events.bin").to_str().unwrap()]);
        }
    }
}

/// A flipped bit is either noticed or has no effect on consistency. It never causes a crash.
#[test]
fn flipped_bits_do_no_harm() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let whole = fs::read(capture.file("events.bin")).unwrap();
    // Every byte of the file header and of the first block, then a sample.
    let places = (0..70).chain((70..whole.len()).step_by(whole.len() / 50));
    let mut noticed = 0;
    for (round, place) in places.enumerate() {
        let mut events = whole.clone();
        events[place] ^= 1 << (round % 8);
        let output = attribute_with(&capture, &events, &[]);
        assert_no_crash(&text(&output.stderr));
        if output.status.success() {
            // The file header has no checksum, and it contains the start time of the capture.
            match place < size_of::<FileHeader>() {
                true => drop(capture.checked_requests()),
                false => drop(capture.checked()),
            }
        } else {
            assert_refused(&output, 1, &["events.bin"]);
            noticed += 1;
        }
    }
    assert!(noticed > 50, "only {noticed} noticed");
}

/// Records that no kernel would send, in blocks with correct checksums. The reader must return an
/// error or requests, and complete requests must satisfy conservation.
#[test]
fn hostile_records_do_no_harm() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let records = records(&capture);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..300 {
        let mut hostile = records.clone();
        for _ in 0..dice.below(20) + 1 {
            let at = dice.below(hostile.len());
            match dice.below(5) {
                0 => drop(hostile.remove(at)),
                1 => hostile.insert(dice.below(at + 1), hostile[at].clone()),
                2 => {
                    let other = dice.below(hostile.len());
                    hostile.swap(at, other);
                }
                _ => {
                    let bytes = &mut hostile[at].1;
                    let byte = dice.below(bytes.len());
                    bytes[byte] = [0, 0xff, 0x80, dice.below(256) as u8][dice.below(4)];
                }
            }
        }
        let events = events_of(&hostile, 1);
        let read = std::panic::catch_unwind(|| {
            let mut sink = |request: Request, segments: Segments| {
                if request.complete {
                    check_conservation(&request, &segments.list).expect("the law of conservation");
                }
                Ok(())
            };
            let given = Given {
                rates: Rates {
                    copy_ns_per_byte: 0.1,
                    socket_copy_ns_per_byte: 0.7,
                    transfer_ns: 200,
                    socket_transfer_ns: 900,
                    fault_outside_ns: 500,
                    fault_inside_ns: 900,
                    call_outside_ns: 300,
                },
                ..Given::default()
            };
            let _ = pass(&events[..], &given, &mut sink);
        });
        if read.is_err() {
            let kept = std::env::temp_dir().join("rpcprobe-hostile-events.bin");
            fs::write(&kept, &events).unwrap();
            panic!("round {round} crashed, see above; its events are in {}", kept.display());
        }
    }
}

/// Records are most easily lost at the start, before the rings are first read. The target must be
/// listed whichever of its first records are lost.
#[test]
fn a_target_is_listed_whichever_of_its_first_records_are_missing() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&[], &["true"], Stdio::null()).succeeded();
    let whole = capture.checked();
    assert_eq!(kinds(&whole), [(Kind::Process, 1)].into());
    let manifest = capture.manifest();
    let is_execve = |hdr: &RecHdr| {
        let call = [REC_SYSCALL, REC_SYSCALL_IO, REC_SYSCALL_PATH].contains(&hdr.kind);
        call && i64::from(hdr.aux) == libc::SYS_execve
    };
    let is_exec = |hdr: &RecHdr| hdr.kind == REC_EXEC;
    let all = records(&capture);
    let header = |record: &[u8]| rpcprobe::records::read::<RecHdr>(record).expect("a header").0;
    // One execve() for each directory in PATH. The last one succeeded.
    let execves = all.iter().map(|(_, record)| header(record)).filter(is_execve);
    let executed_ns = execves.map(|hdr| hdr.ts_ns).max().expect("an execve()");
    let is_early = |hdr: &RecHdr| hdr.kind != REC_TASK && hdr.ts_ns <= executed_ns;
    type Lost<'a> = &'a dyn Fn(&RecHdr) -> bool;
    for lost in [&is_execve as Lost, &|hdr| is_execve(hdr) || is_exec(hdr), &is_early] {
        let left: Vec<_> =
            all.iter().filter(|(_, record)| !lost(&header(record))).cloned().collect();
        assert!(left.len() < all.len());
        let events = events_of(&left, manifest.start_ns);
        let output = attribute_with(&capture, &events, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let requests = capture.checked();
        assert_eq!(kinds(&requests), [(Kind::Process, 1)].into());
        let (request, _) = &requests[0];
        assert_eq!(request.server.as_ref().map(|end| end.pid), Some(manifest.command.pid));
        assert_eq!((request.complete, request.start_ns), (false, manifest.start_ns));
        assert_eq!(request.reason, Some(Reason::ExecLost));
    }
}

/// All records of a capture in order, each with its CPU.
fn records(capture: &Capture) -> Vec<(u32, Vec<u8>)> {
    let file = fs::File::open(capture.file("events.bin")).unwrap();
    let mut reader = Reader::new(std::io::BufReader::new(file), false).unwrap();
    let mut records = Vec::new();
    while let Some(item) = reader.next_record().unwrap() {
        records.push((item.cpu, item.record.to_vec()));
    }
    records
}

/// Builds an event file with these records for a capture that began at `start_ns`.
fn events_of(records: &[(u32, Vec<u8>)], start_ns: u64) -> Vec<u8> {
    let cpus =
        1 + records.iter().map(|(cpu, _)| *cpu).filter(|&cpu| cpu != CPU_USER).max().unwrap();
    let from_user = records.iter().filter(|(cpu, _)| *cpu == CPU_USER);
    let mut writer = Writer::new(Vec::new(), cpus, start_ns).unwrap();
    writer.user_records(from_user.map(|(_, record)| &record[..])).unwrap();
    for (cpu, record) in records.iter().filter(|(cpu, _)| *cpu != CPU_USER) {
        writer.push(*cpu, record);
    }
    writer.finish(u64::MAX).unwrap()
}
