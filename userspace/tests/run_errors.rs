//! What goes wrong: one clear line, the documented exit status, and nothing left behind that could
//! be taken for a whole capture.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::capture::{contents, kinds, run, stdin_from, Capture, NAME};
use common::process::{child_named, kill, reads_elsewhere, state, until, Talking};
use common::{
    as_nobody, assert_no_crash, assert_refused, directory_of_nobody, frpc, needs_kernel,
    needs_root, open_directory, rpcprobe, text, unaffected, RPCPROBE,
};
use rpcprobe::attribute::{pass, Given};
use rpcprobe::capture::format::CPU_USER;
use rpcprobe::capture::reader::Reader;
use rpcprobe::capture::writer::Writer;
use rpcprobe::model::{check_conservation, Kind, Request, Segment};
use tempfile::TempDir;

/// Runs `rpcprobe run OPTIONS -o PARENT/capture -- COMMAND` to its end.
fn try_run(parent: &Path, options: &[&str], command: &[&str]) -> Output {
    run(parent, options, command).stdin(Stdio::null()).output().expect("rpcprobe runs")
}

/// Runs a command on a directory.
fn on(directory: &Path, arguments: &[&str]) -> Output {
    rpcprobe(arguments).arg(directory).output().expect("rpcprobe runs")
}

// ---- before the target runs -----------------------------------------------------------------

#[test]
fn run_without_root_says_what_to_do() {
    if !needs_root() {
        return;
    }
    let (home, program) = directory_of_nobody();
    let at = home.path().join(NAME);
    let output = as_nobody(&program, &["run", "-o", at.to_str().unwrap(), "--", "echo", "ran"]);
    let output = { output }.output().unwrap();
    assert_refused(&output, 1, &["root", "sudo"]);
    assert_eq!(text(&output.stdout), "");
    assert!(!at.exists());
    let doctor = as_nobody(&program, &["doctor"]).output().unwrap();
    assert_eq!(doctor.status.code(), Some(1));
    assert!(text(&doctor.stdout).contains("root"), "{}", text(&doctor.stdout));
    assert_no_crash(&text(&doctor.stderr));
}

#[test]
fn help_needs_nothing() {
    if !needs_root() {
        return;
    }
    let (_home, program) = directory_of_nobody();
    for command in ["run", "report", "requests", "explain", "attribute", "doctor"] {
        for arguments in [&[command, "--help"][..], &["help", command], &[command, "-h"]] {
            let output = as_nobody(&program, arguments).output().unwrap();
            assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
            let help = text(&output.stdout);
            assert!(help.contains(&format!("rpcprobe {command}")), "{arguments:?}: {help}");
        }
    }
    let output = as_nobody(&program, &["--version"]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), concat!("rpcprobe ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_arguments_show_usage() {
    for arguments in [
        &["run"][..],
        &["run", "--"],
        &["run", "--no-such-option", "--", "true"],
        &["run", "--label", "no equals sign", "--", "true"],
        &["run", "--ring-kib", "3", "--", "true"],
        &["run", "--scope", "galaxy", "--", "true"],
        &["run", "-q", "--json", "--", "true"],
        &["requests", "--kind", "carrier pigeon"],
        &["requests", "--min", "soon"],
        &["requests", "--sort", "colour"],
        &["explain"],
        &["explain", "a", "b", "c"],
        &["report", "a", "b"],
        &["nonsense"],
        &[],
    ] {
        let output = rpcprobe(arguments).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("Usage:") || stderr.contains("--help"), "{arguments:?}: {stderr}");
        assert_no_crash(&stderr);
    }
}

/// Nothing is left of a run that did not happen, not even the directory.
fn assert_nothing_left(parent: &TempDir) {
    let left: Vec<_> = fs::read_dir(parent.path()).unwrap().map(Result::unwrap).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_command_that_cannot_run_is_told_as_shells_do() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let file = |name: &str, content: &str, mode: u32| {
        let path = scratch.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_string()
    };
    let plain = file("plain", "#!/bin/sh\n", 0o644);
    let orphan = file("orphan", "#!/no/such/interpreter\n", 0o755);
    let directory = scratch.path().to_str().unwrap();
    for (command, code) in [
        ("no-such-command-anywhere", 127),
        ("/no/such/command", 127),
        ("./no-such-command", 127),
        (&orphan[..], 127),
        (&plain[..], 126),
        (directory, 126),
        ("", 127),
    ] {
        let parent = TempDir::new().unwrap();
        let output = try_run(parent.path(), &[], &[command, "argument"]);
        assert_refused(&output, code, &["cannot run", command]);
        assert_nothing_left(&parent);
    }
}

#[test]
fn an_unknown_user_is_named() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let output = try_run(parent.path(), &["-u", "nobody-of-that-name"], &["true"]);
    assert_refused(&output, 1, &["nobody-of-that-name"]);
    assert_nothing_left(&parent);
}

#[test]
fn unreadable_type_information_is_told() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = scratch.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (empty, random) = (file("empty", b""), file("random", &noise(4096)));
    let directory = scratch.path().to_str().unwrap();
    for btf in ["/nonexistent", &empty, &random, directory] {
        let parent = TempDir::new().unwrap();
        let mut command = run(parent.path(), &[], &["echo", "ran"]);
        let output = command.env("RPCPROBE_BTF", btf).output().unwrap();
        assert_refused(&output, 1, &[btf, "type information"]);
        assert_eq!(text(&output.stdout), "");
        assert_nothing_left(&parent);
        let doctor = rpcprobe(["doctor"]).env("RPCPROBE_BTF", btf).output().unwrap();
        assert_eq!(doctor.status.code(), Some(1), "{btf}");
        assert!(text(&doctor.stdout).contains(btf), "{}", text(&doctor.stdout));
    }
}

// ---- the output directory -------------------------------------------------------------------

#[test]
fn a_capture_is_overwritten_only_by_force() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    assert!(try_run(parent.path(), &["--label", "run=first"], &["true"]).status.success());
    let first = contents(&at);
    let output = try_run(parent.path(), &[], &["echo", "ran"]);
    assert_refused(&output, 1, &[at.to_str().unwrap(), "exists", "--force"]);
    assert_eq!(text(&output.stdout), "");
    assert!(contents(&at) == first, "the first capture has changed");

    let output = try_run(parent.path(), &["--force", "--label", "run=second"], &["true"]);
    let capture = Capture::in_directory(parent, output).succeeded();
    assert_eq!(capture.manifest().labels.get("run").map(|label| &label[..]), Some("second"));
    assert_eq!(contents(&at).len(), 4);
    capture.checked();
}

#[test]
fn force_does_not_reach_beyond_captures() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    fs::create_dir(&at).unwrap();
    fs::write(at.join("thesis.txt"), "three years of work").unwrap();
    fs::write(at.join("manifest.json"), "{}").unwrap();
    let before = contents(&at);
    let output = try_run(parent.path(), &["--force"], &["true"]);
    assert_refused(&output, 1, &["thesis.txt"]);
    assert!(contents(&at) == before, "something has changed");
}

#[test]
fn an_output_that_cannot_be_a_directory_is_refused() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let elsewhere = scratch.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let (file, link, dangling) =
        (scratch.path().join("file"), scratch.path().join("link"), scratch.path().join("dangling"));
    fs::write(&file, "content").unwrap();
    symlink(&elsewhere, &link).unwrap();
    symlink(scratch.path().join("nowhere"), &dangling).unwrap();
    let orphan = scratch.path().join("no/parent");
    for (at, word) in [
        (&file, "not a directory"),
        (&link, "symbolic link"),
        (&dangling, "symbolic link"),
        (&orphan, "No such file"),
    ] {
        for force in [&[][..], &["--force"]] {
            let mut command = rpcprobe(["run", "-q", "-o"]);
            let output = command.arg(at).args(force).args(["--", "echo", "ran"]).output().unwrap();
            assert_refused(&output, 1, &[at.to_str().unwrap(), word]);
            assert_eq!(text(&output.stdout), "");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 4);
}

/// Under sudo the user's rights count, not root's.
#[test]
fn a_directory_the_invoking_user_may_not_write_to_is_refused() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = open_directory(); // root's, so that nobody else may write to it
    let mut command = run(parent.path(), &[], &["echo", "ran"]);
    command.env("SUDO_UID", "65534").env("SUDO_GID", "65534");
    let output = command.output().unwrap();
    assert_refused(&output, 1, &[parent.path().to_str().unwrap(), "Permission denied"]);
    assert_eq!(text(&output.stdout), "");
    assert_nothing_left(&parent);
}

/// `rpcprobe run` in a file system of that size: what it and the target said, then what
/// `rpcprobe report` says about the result.
fn on_a_small_disk(size: &str, command: &str) -> [Output; 2] {
    let mount = TempDir::new().unwrap();
    let script = "mount -t tmpfs -o size=$SIZE none \"$MOUNT\" && cd \"$MOUNT\" || exit 99
        \"$RPCPROBE\" run -q -o capture -- sh -c \"$COMMAND\"
        echo $? > \"$STATUS\"
        \"$RPCPROBE\" report capture > \"$STATUS.out\" 2> \"$STATUS.err\"
        echo $? >> \"$STATUS\"";
    let kept = TempDir::new().unwrap();
    let status = kept.path().join("status");
    // A mount namespace of its own: the file system goes away with it.
    let mut unshare = Command::new("unshare");
    unaffected(&mut unshare);
    unshare.args(["-m", "sh", "-c", script]).env("SIZE", size).env("MOUNT", mount.path());
    unshare.env("RPCPROBE", RPCPROBE).env("COMMAND", command).env("STATUS", &status);
    let output = unshare.output().expect("unshare runs");
    let read = |suffix: &str| fs::read(format!("{}{suffix}", status.display())).unwrap_or_default();
    let statuses = text(&read(""));
    let code = |line: usize| -> std::process::ExitStatus {
        let word = statuses.lines().nth(line);
        let code: i32 = word.and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("{output:?}"));
        ExitStatusExt::from_raw(code << 8)
    };
    [
        Output { status: code(0), ..output.clone() },
        Output { status: code(1), stdout: read(".out"), stderr: read(".err") },
    ]
}

#[test]
fn a_full_disk_spares_the_target() {
    let Some(_turn) = needs_kernel() else { return };
    let chatty = "dd bs=1 count=100000 if=/dev/zero of=/dev/null 2>/dev/null; echo done";
    // The events do not fit; then everything but the tables does.
    for (size, command) in [("64k", chatty), ("16k", "echo done")] {
        let [run, report] = on_a_small_disk(size, command);
        assert_eq!(text(&run.stdout), "done\n", "{size}");
        assert_refused(&run, 1, &["capture", "No space left on device"]);
        assert_refused(&report, 1, &["capture", "not a finished capture"]);
        assert_eq!(text(&report.stdout), "");
        // The target's own failure is more than ours.
        let [run, _] = on_a_small_disk(size, &format!("{command}; exit 3"));
        assert_refused(&run, 3, &["No space left on device"]);
    }
}

/// Nothing that happens to our own words may harm what the target's parent sees.
#[test]
fn the_report_that_nobody_takes_does_not_change_the_exit_status() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    for redirection in ["2>/dev/full", "2>&-", "2>&1 >/dev/null | :"] {
        let script = format!(
            "{{ \"$RPCPROBE\" run --force -o \"$AT\" -- sh -c 'sleep 0.1; exit 3'; \
             echo $? >&4; }} {redirection}"
        );
        let mut shell = Command::new("sh");
        unaffected(&mut shell);
        shell.args(["-c", &format!("{{ {script}; }} 4>&1")]).env("RPCPROBE", RPCPROBE);
        let output = shell.env("AT", parent.path().join(NAME)).output().unwrap();
        assert_eq!(text(&output.stdout), "3\n", "{redirection}: {}", text(&output.stderr));
        assert_no_crash(&text(&output.stderr));
    }
}

// ---- damaged captures -----------------------------------------------------------------------

/// Numbers that look random, the same ones each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % end
    }
}

/// Bytes that mean nothing.
fn noise(length: usize) -> Vec<u8> {
    let mut dice = Dice(length as u64 + 1);
    (0..length).map(|_| dice.below(256) as u8).collect()
}

fn small_capture() -> Capture {
    let (program, input) = (frpc("frpc"), frpc("expressions.txt"));
    let script = format!("head -20 '{input}' | '{program}' -m 3");
    Capture::of(&[], &["sh", "-c", &script], Stdio::null()).succeeded()
}

/// Attributes again with other events; nothing else may change.
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
        // Shorter than its header, it could be any file.
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
        assert!(capture.report().lines().take(6).any(|line| line.contains(&warnings[0])));
    }
    // Whole again, so is what follows from it.
    assert!(attribute_with(&capture, &whole, &[]).status.success());
    assert_eq!(capture.manifest().warnings, [""; 0]);
    assert_eq!(capture.checked().len(), all);

    // As an interrupted run leaves it: without a manifest.
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

/// A changed bit is noticed, or of no consequence; and never ends in a crash.
#[test]
fn flipped_bits_do_no_harm() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let whole = fs::read(capture.file("events.bin")).unwrap();
    // All of the header of the file and of the first block, then a sample.
    let places = (0..70).chain((70..whole.len()).step_by(whole.len() / 50));
    let mut noticed = 0;
    for (round, place) in places.enumerate() {
        let mut events = whole.clone();
        events[place] ^= 1 << (round % 8);
        let output = attribute_with(&capture, &events, &[]);
        assert_no_crash(&text(&output.stderr));
        if output.status.success() {
            capture.checked();
        } else {
            assert_refused(&output, 1, &["events.bin"]);
            noticed += 1;
        }
    }
    assert!(noticed > 50, "only {noticed} noticed");
}

/// Records that no kernel would send, in blocks whose checksums are right: whatever they say, they
/// end in an error or in requests, and complete ones add up.
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
        let events = events_of(&hostile);
        let read = std::panic::catch_unwind(|| {
            let mut sink = |request: Request, segments: Vec<Segment>| {
                if request.complete {
                    check_conservation(&request, &segments).expect("the law of conservation");
                }
                Ok(())
            };
            let given = Given { copy_ns_per_byte: 0.1, ..Given::default() };
            let _ = pass(&events[..], &given, &mut sink);
        });
        if read.is_err() {
            let kept = std::env::temp_dir().join("rpcprobe-hostile-events.bin");
            fs::write(&kept, &events).unwrap();
            panic!("round {round} crashed, see above; its events are in {}", kept.display());
        }
    }
}

/// All records of a capture in order, with their CPUs.
fn records(capture: &Capture) -> Vec<(u32, Vec<u8>)> {
    let file = fs::File::open(capture.file("events.bin")).unwrap();
    let mut reader = Reader::new(std::io::BufReader::new(file), false).unwrap();
    let mut records = Vec::new();
    while let Some(item) = reader.next_record().unwrap() {
        records.push((item.cpu, item.record.to_vec()));
    }
    records
}

/// An event file of these records.
fn events_of(records: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let cpus =
        1 + records.iter().map(|(cpu, _)| *cpu).filter(|&cpu| cpu != CPU_USER).max().unwrap();
    let from_user = records.iter().filter(|(cpu, _)| *cpu == CPU_USER);
    let mut writer = Writer::new(Vec::new(), cpus, 1).unwrap();
    writer.user_records(from_user.map(|(_, record)| &record[..])).unwrap();
    for (cpu, record) in records.iter().filter(|(cpu, _)| *cpu != CPU_USER) {
        writer.push(*cpu, record);
    }
    writer.finish(u64::MAX).unwrap()
}

#[test]
fn a_manifest_that_is_missing_or_damaged_is_named() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let manifest = capture.file("manifest.json");
    let whole = fs::read_to_string(&manifest).unwrap();
    let other_version = whole.replacen("\"format_version\": 1", "\"format_version\": 999", 1);
    assert_ne!(other_version, whole);
    for content in
        ["", "{", "[]", "\0\0\0", "{\"format_version\": 1}", &whole[..200], &other_version]
    {
        fs::write(&manifest, content).unwrap();
        for command in ["report", "requests", "attribute"] {
            let output = on(&capture.path(), &[command]);
            assert_refused(&output, 1, &[manifest.to_str().unwrap()]);
            assert_eq!(text(&output.stdout), "");
        }
    }
    fs::remove_file(&manifest).unwrap();
    for command in ["report", "requests", "attribute"] {
        assert_refused(&on(&capture.path(), &[command]), 1, &[NAME, "manifest.json"]);
    }
    for stand_in in ["/etc/hostname", "/dev/zero"] {
        symlink(stand_in, &manifest).unwrap();
        assert_refused(&on(&capture.path(), &["report"]), 1, &["manifest.json"]);
        fs::remove_file(&manifest).unwrap();
    }
}

#[test]
fn damaged_tables_are_named() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    for name in ["requests.parquet", "segments.parquet"] {
        let path = capture.file(name);
        let whole = fs::read(&path).unwrap();
        let half = &whole[..whole.len() / 2];
        let without_footer = [&whole[..whole.len() - 8], b"\0\0\0\0PAR1"].concat();
        for content in [&b""[..], half, &noise(3000), b"PAR1PAR1", &without_footer] {
            fs::write(&path, content).unwrap();
            assert_refused(&on(&capture.path(), &["report"]), 1, &[path.to_str().unwrap()]);
            assert_refused(&on(&capture.path(), &["requests"]), 1, &[path.to_str().unwrap()]);
            let output = rpcprobe([OsStr::new("explain"), capture.path().as_os_str()]);
            assert_refused(&{ output }.arg("1").output().unwrap(), 1, &[path.to_str().unwrap()]);
        }
        fs::remove_file(&path).unwrap();
        assert_refused(&on(&capture.path(), &["report"]), 1, &[path.to_str().unwrap()]);
        // What can be computed again is.
        assert!(on(&capture.path(), &["attribute", "-q"]).status.success());
        assert!(on(&capture.path(), &["report"]).status.success());
    }
}

#[test]
fn what_is_no_capture_or_no_request_is_named() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = small_capture();
    let explain = |id: &str| {
        let path = capture.path();
        rpcprobe([OsStr::new("explain"), path.as_os_str(), OsStr::new(id)]).output().unwrap()
    };
    assert!(explain("1").status.success());
    for id in ["0", "99999", "18446744073709551615"] {
        assert_refused(&explain(id), 1, &[NAME, "no request", id]);
    }
    for id in ["first", "-", "1.5", "18446744073709551616", ""] {
        assert_refused(&explain(id), 1, &["not the number of a request", id]);
    }
    let empty = TempDir::new().unwrap();
    let file = empty.path().join("file");
    for command in ["report", "requests", "attribute"] {
        assert_refused(&on(empty.path(), &[command]), 1, &[empty.path().to_str().unwrap()]);
        assert_refused(&on(&file, &[command]), 1, &[file.to_str().unwrap(), "No such file"]);
    }
    fs::write(&file, "").unwrap();
    assert_refused(&on(&file, &["report"]), 1, &[file.to_str().unwrap(), "not a directory"]);
}

// ---- the target dies ------------------------------------------------------------------------

/// Mode 3 with five answered requests, and a sixth that its back end never reads.
struct InFlight {
    parent: TempDir,
    target: Talking,
    front_end: i32,
    back_end: i32,
}

impl InFlight {
    fn start() -> InFlight {
        let parent = TempDir::new().unwrap();
        let mut target = Talking::to(run(parent.path(), &[], &[&frpc("frpc"), "-m", "3"]));
        for number in 1..=5 {
            target.say(&format!("+ {number} 1"));
            assert_eq!(target.hear(), format!("ANSWER: {}", number + 1));
        }
        let front_end = child_named(target.pid(), "frpc");
        let back_end = child_named(front_end, "frpc");
        kill(back_end, libc::SIGSTOP);
        until("the back end stops", || state(back_end).as_deref() == Some("T"));
        target.say("+ 6 1");
        until("the front end waits for its answer", || reads_elsewhere(front_end));
        InFlight { parent, target, front_end, back_end }
    }

    /// The capture's six requests, the last of them in flight.
    fn requests(self) -> (Output, Vec<Request>) {
        let output = self.target.end();
        let capture = Capture::in_directory(self.parent, output.clone());
        let requests = capture.checked();
        assert_eq!(kinds(&requests), [(Kind::Pipe, 6)].into(), "{}", text(&output.stderr));
        let mut requests: Vec<_> = requests.into_iter().map(|(request, _)| request).collect();
        requests.sort_by_key(|request| request.start_ns);
        for request in &requests[..5] {
            assert!(request.complete, "{request:?}");
        }
        assert!(!requests[5].complete, "{:?}", requests[5]);
        (output, requests)
    }
}

#[test]
fn a_request_whose_server_is_killed_is_incomplete() {
    let Some(_turn) = needs_kernel() else { return };
    let in_flight = InFlight::start();
    kill(in_flight.back_end, libc::SIGKILL);
    let (output, requests) = in_flight.requests();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let reason = requests[5].reason.as_deref().unwrap_or_default();
    assert!(reason.contains("server") && reason.contains("signal 9"), "{reason}");
}

#[test]
fn a_request_whose_client_is_killed_is_incomplete() {
    let Some(_turn) = needs_kernel() else { return };
    let in_flight = InFlight::start();
    kill(in_flight.front_end, libc::SIGKILL);
    // The back end, stopped and without a parent, would keep standard output open for ever.
    let front_end = format!("/proc/{}", in_flight.front_end);
    until("the front end is gone", || !Path::new(&front_end).exists());
    kill(in_flight.back_end, libc::SIGKILL);
    let (output, requests) = in_flight.requests();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{}", text(&output.stderr));
    let reason = requests[5].reason.as_deref().unwrap_or_default();
    assert!(reason.contains("client") && reason.contains("signal 9"), "{reason}");
}

#[test]
fn a_process_that_is_killed_has_its_request() {
    let Some(_turn) = needs_kernel() else { return };
    let input = stdin_from(frpc("expressions.txt"));
    let capture = Capture::of(&[], &["sh", "-c", "sh -c 'kill -9 $$'; exit 4"], input);
    assert_eq!(capture.output.status.code(), Some(4));
    // A shell may become the last command of a script, but not one that has another after it.
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(Kind::Exec, 1)].into());
    assert_eq!((requests[0].0.complete, requests[0].0.status), (true, Some(9)));
}
