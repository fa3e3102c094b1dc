//! Waits for block devices: split and merged requests, reads through the page cache, major faults, writes.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::capture::{time_in, Capture};
use common::{needs_kernel, open_directory, peer_in_c, text};
use rpcprobe::model::{Category, Kind, Segment};

const ROUNDS: &str = "5";

/// Whether files in this directory are on a block device (its major number is not 0).
fn on_a_block_device(directory: &Path) -> bool {
    let dev = std::fs::metadata(directory).expect("a directory").dev();
    libc::major(dev) != 0
}

fn waits(segments: &[Segment]) -> impl Iterator<Item = (&Segment, &str)> {
    let block_io = segments.iter().filter(|segment| segment.category == Category::BlockIo);
    block_io.map(|segment| (segment, segment.detail.as_deref().unwrap_or("")))
}

#[test]
fn waits_for_a_block_device_name_the_request_waited_for() {
    let Some(_turn) = needs_kernel() else { return };
    let (directory, program) = peer_in_c("blocks_pair.c");
    if !on_a_block_device(directory.path()) {
        println!("skipped: {} is not on a block device", directory.path().display());
        return;
    }
    let file = format!("{program}.data");
    let capture = Capture::of(&[], &[&program, ROUNDS, &file], Stdio::null()).succeeded();
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == Kind::Pipe);
    requests.sort_by_key(|(request, _)| request.start_ns);
    let said = text(&capture.output.stdout);
    let letters: Vec<char> = said.trim().chars().collect();
    assert_eq!(requests.len(), letters.len(), "{requests:#?}");

    // For each kind of access: how often it waited for the expected request.
    let mut right: BTreeMap<char, usize> = letters.iter().map(|letter| (*letter, 0)).collect();
    let mut unattributed = 0;
    for ((request, segments), letter) in requests.iter().zip(&letters) {
        assert!(request.complete, "{letter}: {request:?}");
        if time_in(Category::Unattributed, segments) > 0 {
            println!("{letter}: {segments:#?}");
            unattributed += 1;
        }
        let mut known = waits(segments).filter(|(_, detail)| !detail.ends_with("is not known"));
        let told = known.any(|(segment, detail)| {
            let cause = segment.cause.as_deref().unwrap_or("");
            assert!(
                ["before it was queued", "queue", "service", "completion"].contains(&cause),
                "{letter}: {segment:?}"
            );
            match letter {
                // The wait for a long read names the part that completed last.
                'd' => {
                    let bytes = detail.strip_prefix("read of ").and_then(|rest| {
                        rest.split(' ').next().and_then(|bytes| bytes.parse::<u64>().ok())
                    });
                    bytes.is_some_and(|bytes| bytes < 8 << 20) && detail.contains(" in pread64")
                }
                // All of the short reads were merged.
                'm' => detail.starts_with("read of 65536 bytes") && detail.contains("io_getevents"),
                'a' => detail.starts_with("read of ") && detail.contains(" in pread64"),
                'f' => detail.starts_with("read of ") && detail.contains(" in a page fault"),
                'w' => detail.contains("write of ") && detail.contains(" in fdatasync"),
                _ => panic!("{letter}"),
            }
        });
        if told {
            *right.get_mut(letter).expect("all letters") += 1;
        } else {
            println!("{letter}: {request:?} {segments:#?}");
        }
    }
    // For a wake-up that left no record, only its time is known.
    let counts = capture.manifest().counts;
    let unseen = counts.wakes_restored + counts.switches_missed;
    assert!(unattributed <= unseen, "{unattributed} requests, {unseen} wake-ups unseen");
    // A device may complete a read before the reader sleeps, and the journal thread may do a write.
    let wrong: Vec<_> = right.iter().filter(|(_, times)| **times < 2).collect();
    assert!(wrong.is_empty(), "less than twice of five times: {wrong:?}");
}

/// An ext4 file system with a 1 MiB journal, which commits when the journal is full and not before (`commit=300`).
struct SmallJournal(tempfile::TempDir);

fn done(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
}

impl SmallJournal {
    fn mounted() -> SmallJournal {
        let directory = open_directory();
        let (image, place) = (directory.path().join("image"), directory.path().join("place"));
        std::fs::File::create(&image).and_then(|file| file.set_len(96 << 20)).expect("an image");
        std::fs::create_dir(&place).expect("a place to mount it");
        // Everything is initialized by mkfs, so nothing remains to be written after mounting.
        let whole = "lazy_itable_init=0,lazy_journal_init=0";
        let options = ["-q", "-F", "-b", "1024", "-J", "size=1", "-E", whole];
        done(Command::new("mkfs.ext4").args(options).arg(&image));
        let options = ["-t", "ext4", "-o", "loop,commit=300"];
        done(Command::new("mount").args(options).arg(&image).arg(&place));
        SmallJournal(directory)
    }

    fn place(&self) -> String {
        self.0.path().join("place").to_str().expect("paths are UTF-8").to_string()
    }
}

impl Drop for SmallJournal {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.place()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            println!("{} stays mounted", self.place());
        }
    }
}

/// A task that needs room in a full journal either waits for a commit that it requested, or makes room itself. This
/// wait must be reported as `Journal`, not as `BlockIo`.
#[test]
fn a_full_journal_is_told_from_a_slow_device() {
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = peer_in_c("journal_pair.c");
    let journal = SmallJournal::mounted();
    let command = [&program, "2000", &journal.place()];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == Kind::Pipe);
    assert_eq!(requests.len(), 2000);
    let of = |category: Category| {
        let segments = requests.iter().flat_map(|(_, segments)| segments);
        segments.filter(move |segment| segment.category == category)
    };
    let detail = |segment: &Segment| segment.detail.clone().unwrap_or_default();
    let commits = of(Category::Journal).filter(|s| detail(s).starts_with("commit of transaction"));
    let asked_for =
        commits.filter(|s| s.cause.as_ref().is_some_and(|c| c.contains("asked for by")));
    assert!(asked_for.count() >= 5, "{requests:#?}");
    let room = ", in mkdir, to make room in the full journal";
    let making_room = of(Category::Journal).filter(|s| detail(s).ends_with(room));
    assert!(making_room.count() >= 5, "{requests:#?}");
    // Other tasks may write the same buffers now and then.
    let writes = of(Category::BlockIo).filter(|s| !detail(s).starts_with("read"));
    let writes_ns: u64 = writes.map(|s| s.duration_ns).sum();
    let journal_ns: u64 = of(Category::Journal).map(|s| s.duration_ns).sum();
    assert!(
        writes_ns * 20 <= journal_ns,
        "{writes_ns} ns of writes, {journal_ns} ns of the journal"
    );
}
