//! Ctrl-C while the tables are written: the message says what is left, and what is left is
//! complete.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use common::capture::{contents, NAME};
use common::process::{kill, until};
use common::{assert_refused, needs_kernel, rpcprobe, text, unaffected, RPCPROBE};
use tempfile::TempDir;

/// Enough system calls that attributing them takes a while.
const MANY: [&str; 5] = ["dd", "bs=1", "count=700000", "if=/dev/zero", "of=/dev/null"];

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("rpcprobe starts")
}

/// A program that makes system calls until it is killed.
fn endless() -> Child {
    let mut load = Command::new("dd");
    load.args(["bs=1", "if=/dev/zero", "of=/dev/null"]);
    start(load)
}

/// Waits until more than `bytes` bytes of events have been captured.
fn until_captured(at: &Path, bytes: u64) {
    until("events are captured", || {
        fs::metadata(at.join("events.bin")).is_ok_and(|found| found.len() > bytes)
    });
}

/// Sends the signal while the request table is being written, and waits for the end.
fn interrupted(child: Child, at: &Path, signal: i32) -> Output {
    until("the table is begun", || at.join("requests.parquet.tmp").exists());
    kill(child.id() as i32, signal);
    child.wait_with_output().expect("rpcprobe ends")
}

fn names(directory: &Path) -> Vec<String> {
    contents(directory)
        .keys()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect()
}

/// An interrupted `run` leaves events that can be attributed. Interrupting `attribute` changes
/// nothing.
#[test]
fn what_is_captured_is_whole_without_tables() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    let shown = at.to_str().unwrap();
    let mut run = rpcprobe(["run", "-q", "-o", shown, "--"]);
    run.args(MANY);
    let output = interrupted(start(run), &at, libc::SIGINT);
    let said = text(&output.stderr);
    let last = said.lines().last().expect("what is left").to_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let expected = format!(
        "rpcprobe: {shown} holds all events, but no tables; `rpcprobe attribute {shown}` makes them: \
         interrupted"
    );
    assert_eq!(last, expected);
    assert_eq!(names(&at), ["events.bin", "manifest.json"]);
    let report = rpcprobe(["report", shown]).output().unwrap();
    assert_refused(&report, 1, &["requests.parquet", &format!("`rpcprobe attribute {shown}`")]);

    let before = contents(&at);
    let attribute = || rpcprobe(["attribute", shown]);
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143)] {
        let output = interrupted(start(attribute()), &at, signal);
        let words = [shown, "as it was", "`rpcprobe attribute", "interrupted"];
        assert_refused(&output, code, &words);
        assert!(contents(&at) == before, "something has changed");
    }

    // Attributing takes long enough to print progress. Without a terminal, progress is printed in
    // plain lines.
    let begin = Instant::now();
    let output = attribute().output().unwrap();
    let (took, said) = (begin.elapsed(), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert_eq!(names(&at).len(), 5);
    assert!(said.chars().all(|c| c == '\n' || !c.is_control()), "{said:?}");
    for line in said.lines() {
        let is_of = |work| line.starts_with(&format!("rpcprobe: {work}: "));
        let how_far = line.contains(" % of ") || line.contains(" read, ");
        assert!((is_of("attributing") || is_of("adding up")) && how_far, "{line}");
    }
    // Each phase prints its first line after 2 s, then one every 5 s. Work outside both phases
    // takes less than 2 s.
    let mut silent_s = took.as_secs_f64() - 2.0;
    for work in ["attributing", "adding up"] {
        let of_it = said.lines().filter(|line| line.starts_with(&format!("rpcprobe: {work}: ")));
        let seconds = |line: &str| line.strip_suffix(" s")?.rsplit_once(' ')?.1.parse().ok();
        let told_s: Vec<u64> = of_it.map(|line| seconds(line).expect("seconds")).collect();
        assert!(told_s.first().is_none_or(|first_s| *first_s >= 2), "{said}");
        assert!(told_s.windows(2).all(|pair| pair[0] + 5 <= pair[1]), "{said}");
        // The lines give whole seconds.
        silent_s -= told_s.last().map_or(3.0, |last_s| *last_s as f64 + 6.0);
    }
    assert!(silent_s < 0.0, "{silent_s} s without a word of {took:?}: {said}");
}

/// The signal arrives before anything is captured and before the target runs.
#[test]
fn a_signal_during_the_start_leaves_nothing() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    let mark = parent.path().join("mark");
    let pid = std::process::id().to_string();
    for (arguments, what) in [
        (&["attach", "--pid", &pid][..], &[][..]),
        (&["run"], &["--", "touch", mark.to_str().unwrap()]),
    ] {
        for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
            let mut command = rpcprobe(arguments);
            command.arg("-o").arg(&at).args(what);
            let child = start(command);
            until("there is a directory", || at.exists());
            kill(child.id() as i32, signal);
            let output = child.wait_with_output().expect("rpcprobe ends");
            assert_refused(&output, code, &["interrupted"]);
            let left: Vec<_> = fs::read_dir(parent.path()).unwrap().flatten().collect();
            assert!(left.is_empty(), "{arguments:?}, signal {signal}: {left:?}");
        }
    }
}

#[test]
fn a_program_that_failed_keeps_its_status() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    let mut run = rpcprobe(["run", "-q", "-o"]);
    let script = format!("{} 2>/dev/null; exit 3", MANY.join(" "));
    run.arg(&at).args(["--", "sh", "-c", &script]);
    let output = interrupted(start(run), &at, libc::SIGINT);
    assert_refused(&output, 3, &["holds all events", "interrupted"]);
}

#[test]
fn attach_ends_by_the_first_signal_and_stops_by_the_second() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    let mut load = endless();
    let mut attach = rpcprobe(["attach", "-q", "--pid", &load.id().to_string(), "-o"]);
    attach.arg(&at);
    let attach = start(attach);
    until_captured(&at, 8 << 20);
    kill(attach.id() as i32, libc::SIGINT);
    let output = interrupted(attach, &at, libc::SIGINT);
    load.kill().unwrap();
    load.wait().unwrap();
    assert_refused(&output, 130, &["holds all events", "`rpcprobe attribute", "interrupted"]);
    assert_eq!(names(&at), ["events.bin", "manifest.json"]);
}

/// Shells start a background command (`&`) of a script with SIGINT ignored. `attach` must end on
/// SIGINT all the same.
#[test]
fn attach_ends_by_a_signal_that_it_was_started_to_ignore() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join(NAME);
    let mut load = endless();
    let mut attach = Command::new("sh");
    attach.args(["-c", "trap '' INT; exec \"$@\"", "sh", RPCPROBE, "attach", "-q", "--pid"]);
    attach.arg(load.id().to_string()).arg("-o").arg(&at);
    unaffected(&mut attach);
    let attach = start(attach);
    until_captured(&at, 1 << 20);
    kill(attach.id() as i32, libc::SIGINT);
    let output = attach.wait_with_output().expect("rpcprobe ends");
    load.kill().unwrap();
    load.wait().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    assert_eq!(names(&at).len(), 5);
}
