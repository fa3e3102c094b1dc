//! Captures of real programs on the real kernel, and what they must contain.

mod common;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::process::Stdio;

use common::capture::{kinds, run, stdin_from, time_in, Capture};
use common::process::{Competitors, Talking};
use common::{
    as_nobody, directory_of_nobody, expressions, frpc, needs_kernel, rpcprobe, said, text,
};
use rpcprobe::capture::manifest::Scope;
use rpcprobe::capture::reader::Reader;
use rpcprobe::model::{Category, Evidence, Kind, Reason, Request, Segment};
use tempfile::TempDir;

/// Captures frpc in mode 3 on the 300 expressions.
fn mode_3(options: &[&str]) -> Capture {
    let stdin = stdin_from(frpc("expressions.txt"));
    Capture::of(options, &[&frpc("frpc"), "-m", "3"], stdin).succeeded()
}

fn all_complete(requests: &[(Request, Vec<Segment>)]) {
    for (request, _) in requests {
        assert!(request.complete, "{request:?}");
    }
}

#[test]
fn mode_3_gives_one_pipe_request_an_expression() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = mode_3(&[]);
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(Kind::Pipe, 300)].into());
    all_complete(&requests);
    let manifest = capture.manifest();
    assert_eq!((manifest.counts.records_lost, &manifest.losses[..]), (0, &[][..]));
    for (request, segments) in &requests {
        for segment in segments {
            let right = match segment.category {
                Category::Copy => segment.evidence == Evidence::Modelled,
                Category::Fault | Category::KernelOther => true, // in part
                _ => segment.evidence == Evidence::Measured,
            };
            assert!(right, "request {}: {segment:?}", request.request_id);
        }
    }
}

/// Calibration reads its records from the rings as they are produced, so even small rings suffice.
#[test]
fn calibration_needs_no_large_rings() {
    let Some(_turn) = needs_kernel() else { return };
    for kib in ["4", "16384"] {
        let capture = Capture::of(&["--ring-kib", kib], &["true"], Stdio::null()).succeeded();
        let manifest = capture.manifest();
        assert_eq!(manifest.warnings, [], "{kib} KiB");
        assert!(manifest.calibration.call_outside_ns > 0.0, "{kib} KiB");
    }
}

/// Mode 4 sends batches of 16 over pipes, mode 5 uses shared memory, mode 6 a Unix socket.
#[test]
fn modes_4_to_6_give_a_request_for_each_batch_and_expression() {
    let Some(_turn) = needs_kernel() else { return };
    let answers = mode_3(&[]).output.stdout;
    for (mode, expected) in [
        ("4", (Kind::Pipe, 300_usize.div_ceil(16))),
        ("5", (Kind::Shm, 300)),
        ("6", (Kind::Unix, 300)),
    ] {
        let stdin = stdin_from(frpc("expressions.txt"));
        let capture = Capture::of(&[], &[&frpc("frpc"), "-m", mode], stdin).succeeded();
        assert_eq!(capture.output.stdout, answers, "mode {mode}");
        let requests = capture.checked();
        assert_eq!(kinds(&requests), [expected].into(), "mode {mode}");
        all_complete(&requests);
    }
}

/// On one CPU, the two sides find the word changed, or each other asleep, in all orders.
///
/// A client that made no call to wait has its answer as soon as the word changes, some nanoseconds before the server's
/// call to wake it. That call is the first record of the change. A client that reads the clock in between has logged an
/// end before the recorded one (2 of 90,000 requests, by 8 and 38 ns).
#[test]
fn turns_in_shared_memory_are_the_clients_requests() {
    let Some(_turn) = needs_kernel() else { return };
    for command in [&["taskset", "-c", "0"][..], &["env"]] {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let path = log.path().to_str().expect("paths are UTF-8");
        let program = frpc("frpc");
        let command = [command, &[&program, "-m", "5", "--log", path]].concat();
        let capture = Capture::of(&[], &command, stdin_from(frpc("expressions.txt"))).succeeded();
        let mut requests = capture.checked();
        all_complete(&requests);
        requests.sort_by_key(|(request, _)| request.start_ns);
        let logged = fs::read_to_string(path).expect("the client's log");
        let stamps = logged.lines().skip(1).map(|line| {
            let mut fields = line.split(',').skip(3).map(|field| field.parse().expect("a time"));
            (fields.next().expect("begin_ns"), fields.next().expect("end_ns"))
        });
        let stamps: Vec<(u64, u64)> = stamps.collect();
        assert_eq!((requests.len(), stamps.len()), (300, 300), "{command:?}");
        let next_begins = stamps.iter().skip(1).map(|(begin_ns, _)| *begin_ns).chain([u64::MAX]);
        let mut seen_before_the_wake = 0;
        for (((request, segments), (begin_ns, end_ns)), next_begin_ns) in
            requests.iter().zip(&stamps).zip(next_begins)
        {
            let ended_ns = request.start_ns + request.latency_ns;
            assert!(*begin_ns <= request.start_ns && ended_ns < next_begin_ns, "{request:?}");
            seen_before_the_wake += usize::from(ended_ns > *end_ns);
            let known = time_in(Category::Unattributed, segments) == 0;
            assert!(known || capture.manifest().counts.switches_missed > 0, "{segments:#?}");
            assert_eq!(time_in(Category::Lock, segments), 0, "{segments:#?}");
        }
        assert!(seen_before_the_wake <= 1, "{command:?}: {seen_before_the_wake}");
    }
}

#[test]
fn almost_nothing_of_mode_3_is_unattributed() {
    let Some(_turn) = needs_kernel() else { return };
    // On some machines no hook runs in certain threads, so some context switches leave no record. Such a capture says
    // nothing about how well the other requests are explained.
    let mut captures = (0..5).map(|_| mode_3(&[]));
    let capture = captures.find(|capture| capture.manifest().counts.switches_missed == 0);
    let requests = capture.expect("a capture with all context switches").checked();
    let (mut all_ns, mut all_unattributed_ns) = (0, 0);
    for (request, segments) in &requests {
        let unattributed_ns = time_in(Category::Unattributed, segments);
        assert!(unattributed_ns * 100 <= request.latency_ns * 5, "{request:?}: {segments:?}");
        all_ns += request.latency_ns;
        all_unattributed_ns += unattributed_ns;
    }
    assert!(all_unattributed_ns * 1000 <= all_ns * 5, "{all_unattributed_ns} of {all_ns} ns");
}

#[test]
fn pipe_requests_name_their_ends_and_bytes() {
    let Some(_turn) = needs_kernel() else { return };
    let mut requests = mode_3(&[]).checked();
    requests.sort_by_key(|(request, _)| request.start_ns);
    let first = requests[0].0.clone();
    assert_ne!(first.client.as_ref().map(|end| end.pid), first.server.as_ref().map(|end| end.pid));
    for ((request, segments), expression) in requests.iter().zip(expressions()) {
        assert_eq!((&request.client, &request.server), (&first.client, &first.server));
        // A message is its length in four bytes, then the text.
        assert_eq!(request.request_bytes, Some(4 + expression.len() as u64), "{expression}");
        assert!(request.response_bytes > Some(4 + "ANSWER: ".len() as u64), "{request:?}");
        let pids: HashSet<_> = segments.iter().map(|segment| segment.pid).collect();
        let ends = [&request.client, &request.server].map(|end| end.as_ref().expect("an end").pid);
        assert_eq!(pids, ends.into(), "{request:?}");
    }
}

#[test]
fn attributing_again_changes_nothing() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = mode_3(&[]);
    let before = capture.tables();
    let manifest = fs::read_to_string(capture.file("manifest.json")).unwrap();
    let output =
        rpcprobe([OsStr::new("attribute"), OsStr::new("-q"), capture.path().as_os_str()]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(capture.tables() == before, "other rows than before");
    assert_eq!(fs::read_to_string(capture.file("manifest.json")).unwrap(), manifest);
}

#[test]
fn whoever_owns_a_capture_can_use_it_without_privilege() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = mode_3(&[]);
    let (home, program) = directory_of_nobody();
    let copy = home.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(capture.path()).unwrap().map(Result::unwrap) {
        let to = copy.join(file.file_name());
        fs::copy(file.path(), &to).unwrap();
        chown(&to, Some(common::NOBODY), Some(common::NOBODY)).unwrap();
    }
    chown(&copy, Some(common::NOBODY), Some(common::NOBODY)).unwrap();
    let copy = copy.to_str().unwrap();
    for arguments in [
        &["report", copy][..],
        &["requests", copy],
        &["explain", copy, "1"],
        &["attribute", copy],
        &["report", "--json", copy],
    ] {
        let output = as_nobody(&program, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        assert!(!output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_slowest_is_explained_without_its_number() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = mode_3(&[]);
    let rows = capture.rows();
    let complete = rows.iter().map(|row| &row.request).filter(|request| request.complete);
    let slowest_ns = complete.map(|request| request.latency_ns).max().unwrap();
    let output = rpcprobe(["explain", "--json", "--slowest"]).arg(capture.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["request"]["latency_ns"], slowest_ns);
}

/// If only other kinds were looked for, the report names the command that looks for all kinds.
#[test]
fn a_capture_without_requests_says_what_to_do() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&["--request", "udp"], &["true"], Stdio::null()).succeeded();
    let report = capture.report();
    assert!(report.contains("no requests found"), "{report}");
    assert!(report.ends_with("Only udp was looked for (--request). `rpcprobe attribute` without it looks for all kinds in the same events.\n"), "{report}");
    let again = rpcprobe(["attribute"]).arg(capture.path()).output().unwrap();
    assert!(text(&again.stdout).contains("1 request (1 process)"), "{}", text(&again.stdout));
}

#[test]
fn a_kind_that_there_is_none_of_is_said() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = mode_3(&[]);
    let requests = |arguments: &[&str]| {
        let output = rpcprobe(["requests"]).arg(capture.path()).args(arguments).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let said = "rpcprobe: no request of kind `udp`; this capture has pipe 300\n";
    let none = "0 of 0 matching requests (300 in the capture)\n";
    assert_eq!(requests(&["--kind", "udp"]), (Some(0), none.into(), said.into()));
    let (code, stdout, stderr) = requests(&["--kind", "udp", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &json["matching"], &stderr[..]), (Some(0), &0.into(), said));
    for never_found in ["file", "span"] {
        let (code, _, stderr) = requests(&["--kind", never_found]);
        assert_eq!(code, Some(2));
        assert!(stderr.contains("(exec, pipe, ") && !stderr.contains("span,"), "{stderr}");
    }
}

/// The text and JSON outputs agree with the tables.
#[test]
fn report_requests_and_explain_agree_with_the_tables() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = mode_3(&[]);
    let requests = capture.checked();
    let path = capture.path();
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = rpcprobe(arguments).arg("--json").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let path = path.to_str().unwrap();

    let report = json(&["report", path]);
    assert_eq!(report["capture"]["requests"], 300);
    assert_eq!(report["capture"]["records_lost"], 0);

    let listed = json(&["requests", path, "--slowest", "1"]);
    let slowest = requests.iter().map(|(request, _)| request.latency_ns).max();
    assert_eq!(listed["requests"][0]["latency_ns"].as_u64(), slowest);
    let all = json(&["requests", path, "-n", "0", "--sort", "start"]);
    let starts: Vec<_> =
        all["requests"].as_array().unwrap().iter().map(|row| row["start_ns"].as_u64()).collect();
    assert_eq!(starts.len(), 300);
    assert!(starts.is_sorted());

    for (request, segments) in requests.iter().step_by(60) {
        let told = json(&["explain", path, &request.request_id.to_string()]);
        assert_eq!(told["conserved"], true);
        assert_eq!(told["sum_ns"], request.latency_ns);
        assert_eq!(told["segments"].as_array().unwrap().len(), segments.len());
    }
}

#[test]
fn measure_gives_one_exec_request_an_evaluation() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let in_scratch = |name: &str| scratch.path().join(name).to_str().unwrap().to_string();
    let (results, errors) = (in_scratch("results"), in_scratch("errors"));
    let (measure, expressions) = (frpc("measure"), frpc("expressions.txt"));
    let mut command = vec![&measure[..], "-m", "all", "-e", &expressions];
    command.extend(["--dir", scratch.path().to_str().unwrap()]);
    command.extend(["--results", &results, "--errors", &errors]);
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(Kind::Exec, 900), (Kind::Pipe, 300)].into());
    all_complete(&requests);

    let by_id: HashMap<_, _> = requests.iter().map(|(r, _)| (r.request_id, r)).collect();
    let mut parents = HashSet::new();
    for (request, segments) in &requests {
        match request.kind {
            Kind::Exec => {
                assert_eq!(request.status, Some(0), "{request:?}");
                assert!(request.method.as_ref().is_some_and(|path| path.ends_with("/frpc")));
                // If some time is unattributed, the phase of that time may be unknown too.
                let known = time_in(Category::Unattributed, segments) == 0;
                for phase in ["fork", "exec", "dynamic linking", "program", "exit"] {
                    let there = segments.iter().any(|segment| segment.phase == Some(phase));
                    assert!(there || !known, "no {phase} in request {}", request.request_id);
                }
            }
            _ => {
                let parent = by_id[&request.parent_request_id.expect("a parent")];
                assert_eq!(parent.kind, Kind::Exec);
                assert!(parents.insert(parent.request_id), "two of one evaluation");
                assert!(parent.start_ns <= request.start_ns, "{request:?} in {parent:?}");
                let end_ns = |request: &Request| request.start_ns + request.latency_ns;
                assert!(end_ns(request) <= end_ns(parent), "{request:?} in {parent:?}");
            }
        }
    }

    let sum_ns = |of: &dyn Fn(&Request, &[Segment]) -> u64| -> u64 {
        requests.iter().map(|(request, segments)| of(request, segments)).sum()
    };
    let unattributed_ns = sum_ns(&|_, segments| time_in(Category::Unattributed, segments));
    let all_ns = sum_ns(&|request, _| request.latency_ns);
    assert!(unattributed_ns * 20 <= all_ns, "{unattributed_ns} of {all_ns} ns unattributed");

    // The time that `measure` took includes the request: it runs from before the fork to after the wait.
    let timed = fs::read_to_string(&results).unwrap();
    let timed: Vec<u64> = (timed.lines().filter_map(|line| line.rsplit(',').next()))
        .filter_map(|elapsed| elapsed.parse().ok())
        .collect();
    let mut execs: Vec<_> = requests.iter().filter(|(r, _)| r.kind == Kind::Exec).collect();
    execs.sort_by_key(|(request, _)| request.start_ns);
    assert_eq!(timed.len(), execs.len());
    for ((request, _), elapsed_ns) in execs.iter().zip(timed) {
        assert!(request.latency_ns <= elapsed_ns, "{request:?}: {elapsed_ns} ns by its own clock");
    }
}

#[test]
fn mode_1_gives_its_life_and_a_turn_for_each_line() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let mut target = Talking::to(run(parent.path(), &[], &[&frpc("frpc"), "-m", "1"]));
    for number in 1..=20 {
        target.say(&format!("+ {number} 1"));
        assert_eq!(target.hear(), format!("ANSWER: {}", number + 1));
    }
    let capture = Capture::in_directory(parent, target.end()).succeeded();
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(Kind::Stdio, 20), (Kind::Process, 1)].into());
    all_complete(&requests);
    let (process, _) = requests.iter().find(|(r, _)| r.kind == Kind::Process).unwrap();
    assert_eq!(process.status, Some(0));
    let end_ns = |request: &Request| request.start_ns + request.latency_ns;
    let mut last_ns = process.start_ns;
    for (request, _) in requests.iter().filter(|(r, _)| r.kind == Kind::Stdio) {
        assert!(last_ns <= request.start_ns && end_ns(request) <= end_ns(process), "{request:?}");
        assert!(request.response_bytes.is_some_and(|bytes| bytes >= "ANSWER: 2\n".len() as u64));
        last_ns = end_ns(request);
    }
}

#[test]
fn mode_2_gives_its_life() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let answers = scratch.path().join("answers");
    let (program, expressions) = (frpc("frpc"), frpc("expressions.txt"));
    let command = [&program, "-m", "2", "-i", &expressions, "-o", answers.to_str().unwrap()];
    let requests = Capture::of(&[], &command, Stdio::null()).succeeded().checked();
    assert_eq!(kinds(&requests), [(Kind::Process, 1)].into());
    all_complete(&requests);
    assert_eq!(fs::read_to_string(&answers).unwrap().lines().count(), 300);
}

#[test]
fn competitors_for_the_cpu_are_named() {
    let Some(_turn) = needs_kernel() else { return };
    let competitors = Competitors::start(8);
    let run_queue = [Category::RunqueueWakeup, Category::RunqueuePreempted];
    // A capture lasts some milliseconds, and it can happen that no competitor gets a CPU during one.
    for _ in 0..20 {
        let requests = mode_3(&[]).checked();
        assert_eq!(kinds(&requests), [(Kind::Pipe, 300)].into());
        all_complete(&requests);
        let mut segments = requests.iter().flat_map(|(_, segments)| segments);
        let named = segments.any(|segment| {
            run_queue.contains(&segment.category)
                && segment.by.as_ref().is_some_and(|by| competitors.is_one(by))
        });
        if named {
            return;
        }
    }
    panic!("none of the competitors is named");
}

#[test]
fn lost_records_are_counted_and_mark_what_they_touch() {
    let Some(_turn) = needs_kernel() else { return };
    // Produces far more records between two reads of a ring than the smallest ring holds.
    let chatty = "dd bs=1 count=200000 if=/dev/zero of=/dev/null 2>/dev/null; exit 3";
    let options = ["--ring-kib", "4"];
    let capture = Capture::of(&options, &["sh", "-c", chatty], Stdio::null());
    assert_eq!(capture.output.status.code(), Some(3), "{}", text(&capture.output.stderr));
    let manifest = capture.manifest();
    assert!(manifest.counts.records_lost > 0);
    let sum: u64 = manifest.losses.iter().map(|loss| loss.count).sum();
    assert_eq!(sum, manifest.counts.records_lost);
    let requests = capture.checked();
    assert!(!requests.is_empty());
    for (request, _) in &requests {
        let touched = manifest.losses.iter().any(|loss| {
            loss.first_ns <= request.start_ns + request.latency_ns
                && request.start_ns <= loss.last_ns
        });
        assert!(!(touched && request.complete), "{request:?}");
        assert_eq!(request.records_lost > 0, touched, "{request:?}");
    }
    let reasons: HashSet<_> = (requests.iter().filter(|(request, _)| request.records_lost > 0))
        .filter_map(|(request, _)| request.reason.clone())
        .collect();
    assert!(!reasons.is_empty());
    // The number is stored beside the reason, so that requests can share a reason.
    let counted =
        |reason: &Reason| reason.to_string().contains(|letter: char| letter.is_ascii_digit());
    assert!(!reasons.iter().any(counted), "{reasons:?}");
    let report = capture.report();
    let first_lines: Vec<_> = report.lines().take(6).collect();
    let said = |words: [&str; 2]| first_lines.iter().any(|l| words.iter().all(|w| l.contains(w)));
    assert!(said(["records", "lost"]) && said(["incomplete", "lost"]), "{report}");
}

/// With small rings, calibration loses records before the capture begins. These are not counted as losses of the
/// capture.
#[test]
fn losses_before_the_capture_are_none_of_its_own() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&["--ring-kib", "4"], &["true"], Stdio::null()).succeeded();
    let manifest = capture.manifest();
    for loss in &manifest.losses {
        assert!(manifest.start_ns <= loss.first_ns && loss.first_ns <= loss.last_ns, "{loss:?}");
    }
    // The event file says the same, so attributing again yields the same losses.
    let output =
        rpcprobe([OsStr::new("attribute"), OsStr::new("-q"), capture.path().as_os_str()]).output();
    assert!(output.unwrap().status.success());
    assert_eq!(capture.manifest().losses, manifest.losses);
}

#[test]
fn scope_target_is_a_whole_capture_and_says_what_it_cannot_name() {
    let Some(_turn) = needs_kernel() else { return };
    let _competitors = Competitors::start(4);
    let capture = mode_3(&["--scope", "target"]);
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(Kind::Pipe, 300)].into());
    all_complete(&requests);
    assert_eq!(capture.manifest().options.scope, Scope::Target);
    let head: String = capture.report().lines().take(7).collect();
    assert!(head.contains("--scope target"), "{head}");
}

/// All texts of a capture that could contain a path.
fn texts(capture: &Capture) -> Vec<Vec<u8>> {
    let (rows, segments) = capture.tables();
    let mut texts: Vec<_> =
        segments.iter().map(|(_, segment)| format!("{segment:?}").into_bytes()).collect();
    texts.extend(rows.iter().map(|row| format!("{:?}", row.request).into_bytes()));
    let events = fs::File::open(capture.file("events.bin")).unwrap();
    let mut reader = Reader::new(events, false).unwrap();
    while let Some(item) = reader.next_record().unwrap() {
        texts.push(item.record.to_vec());
    }
    texts
}

/// Files opened during the capture and inherited files are named by the path they were opened with.
#[test]
fn files_go_by_their_names() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let named = |name: &str| {
        let path = scratch.path().join(name);
        fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        path
    };
    let (opened, inherited) = (named("opened"), named("inherited"));
    let command = ["cat", opened.to_str().unwrap(), "-"];
    let capture = Capture::of(&[], &command, stdin_from(&inherited)).succeeded();
    let details: HashSet<String> = capture
        .checked()
        .into_iter()
        .flat_map(|(_, segments)| segments)
        .filter_map(|segment| segment.detail)
        .collect();
    for path in [&opened, &inherited] {
        let read = format!("read {}", path.display());
        assert!(details.contains(&read), "{read}: {details:?}");
    }
    assert!(!details.iter().any(|detail| detail.starts_with("read file:")), "{details:?}");
}

#[test]
fn no_paths_keeps_paths_out_of_every_file() {
    let Some(_turn) = needs_kernel() else { return };
    let scratch = TempDir::new().unwrap();
    let name = "a-name-nobody-else-has";
    let secret = scratch.path().join(name);
    fs::write(&secret, "x").unwrap();
    // The name is passed in a variable, because the manifest contains the command line anyway.
    let capture = |options: &[&str]| {
        let parent = TempDir::new().unwrap();
        let mut command = run(parent.path(), options, &["sh", "-c", "cat \"$SECRET\""]);
        let output = command.env("SECRET", &secret).stdin(Stdio::null()).output().unwrap();
        Capture::in_directory(parent, output).succeeded()
    };
    let holds = |capture: &Capture| {
        let name = name.as_bytes();
        texts(capture).iter().any(|text| text.windows(name.len()).any(|part| part == name))
    };
    assert!(holds(&capture(&[])), "the test looks in the wrong places");
    let without = capture(&["--no-paths"]);
    assert!(!holds(&without));
    assert!(!without.manifest().options.paths);
    for (request, segments) in without.checked() {
        assert_eq!(request.method, None);
        let slash = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('/'));
        assert!(!segments.iter().any(|segment| slash(&segment.detail)), "{segments:?}");
    }
}

#[test]
fn labels_are_kept_and_shown() {
    let Some(_turn) = needs_kernel() else { return };
    let options = ["--label", "disk=ext4", "--label", "note=a=b", "--label", "empty="];
    let capture = Capture::of(&options, &["true"], Stdio::null()).succeeded();
    let expected = [("disk", "ext4"), ("empty", ""), ("note", "a=b")];
    let labels = capture.manifest().labels;
    assert!(labels.iter().map(|(k, v)| (&k[..], &v[..])).eq(expected), "{labels:?}");
    let report = capture.report();
    assert!(report.contains("disk=ext4") && report.contains("note=a=b"), "{report}");
}

#[test]
fn the_report_at_the_end_goes_to_standard_error() {
    let Some(_turn) = needs_kernel() else { return };
    let parent = TempDir::new().unwrap();
    let at = parent.path().join("capture");
    let output = rpcprobe(["run", "-o"]).arg(&at).args(["--", "echo", "hi"]).output().unwrap();
    assert_eq!(text(&output.stdout), "hi\n");
    let report = rpcprobe(["report"]).arg(&at).output().unwrap();
    assert_eq!(said(&output.stderr), text(&report.stdout));

    let mut again = rpcprobe(["run", "--json", "--force", "-o"]);
    let output = again.arg(&at).args(["--", "echo", "hi"]).output().unwrap();
    assert_eq!(text(&output.stdout), "hi\n");
    let json: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(json["capture"]["command"]["argv"], serde_json::json!(["echo", "hi"]));
}
