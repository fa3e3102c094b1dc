//! `ab`, `diff` and `whatif` on real runs, and on input that they must refuse.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::capture::stdin_from;
use common::{assert_no_crash, assert_refused, frpc, needs_kernel, open_directory, rpcprobe, text};
use serde_json::Value;

/// Runs `rpcprobe` with these arguments in a directory.
fn at(directory: &Path, arguments: &[&str]) -> Output {
    rpcprobe(arguments).current_dir(directory).output().expect("rpcprobe runs")
}

fn succeeded(output: Output) -> String {
    let stderr = text(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    text(&output.stdout)
}

fn json(output: Output) -> Value {
    let printed = succeeded(output);
    assert!(!printed.contains("NaN"), "{printed}");
    serde_json::from_str(&printed).expect("JSON")
}

/// Fails unless the parts of every comparison sum to its total.
fn assert_adds_up(comparison: &Value) {
    let kinds = comparison["kinds"].as_array().expect("kinds");
    assert!(!kinds.is_empty());
    for of in kinds.iter().flat_map(|kind| kind["statistics"].as_array().expect("statistics")) {
        for side in ["a_ns", "b_ns", "change_ns"] {
            let parts = of["parts"].as_array().expect("parts");
            let sum: i64 = parts.iter().map(|part| part[side].as_i64().expect("a number")).sum();
            assert_eq!(Some(sum), of["total"][side].as_i64(), "{side} of {}", of["statistic"]);
        }
    }
}

/// `ab` of frpc in mode 3 against itself.
fn ab_of_mode_3(directory: &Path, options: &[&str]) -> Output {
    let mut arguments = vec!["ab"];
    arguments.extend(options);
    let program = frpc("frpc");
    let command = [program.as_str(), "-m", "3"];
    arguments.push("--");
    arguments.extend(command);
    arguments.push("---");
    arguments.extend(command);
    let mut ab = rpcprobe(arguments);
    ab.current_dir(directory).stdin(stdin_from(frpc("expressions.txt")));
    ab.output().expect("rpcprobe runs")
}

#[test]
fn pairs_are_run_compared_and_kept() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = open_directory();
    let comparison = json(ab_of_mode_3(directory.path(), &["--pairs", "3", "--json"]));
    assert_adds_up(&comparison);
    assert_eq!(comparison["basis"], "random_pairs");
    assert_eq!(comparison["verdict"], "no_verdict");
    let kind = &comparison["kinds"][0];
    // Each run read all of standard input from the beginning.
    assert_eq!((&kind["kind"], &kind["a_requests"]), (&"pipe".into(), &900.into()));
    assert_eq!(kind["b_requests"], 900);
    for name in ["a.1", "b.3"] {
        assert!(directory.path().join("rpcprobe.ab").join(name).join("events.bin").exists());
    }

    // `diff` of the kept captures gives exactly the same figures.
    let again = json(at(directory.path(), &["diff", "rpcprobe.ab", "--json"]));
    assert_eq!(again["kinds"], comparison["kinds"]);
    let sides = ["--", "rpcprobe.ab/a.1", "rpcprobe.ab/a.2", "---", "rpcprobe.ab/b.1"];
    let unpaired = json(at(directory.path(), &[&["diff", "--json"], &sides[..]].concat()));
    assert_eq!(unpaired["basis"], "unpaired");
    assert_adds_up(&unpaired);
    let labels = ["--a", "label.ab=A", "--b", "label.ab=B", "rpcprobe.ab/a.1", "rpcprobe.ab/b.1"];
    let by_label = json(at(directory.path(), &[&["diff", "--json"], &labels[..]].concat()));
    assert_eq!(by_label["basis"], "one_capture_each");
    assert_adds_up(&by_label);

    // Two captures: the intervals hold for these captures only.
    let two = at(directory.path(), &["diff", "rpcprobe.ab/a.1", "rpcprobe.ab/b.1"]);
    let said = succeeded(two);
    assert!(said.contains("No verdict: one capture a side"), "{said}");
    // 300 requests with long runs of similar latencies get no intervals, and the output says so.
    let kind = &by_label["kinds"][0];
    let without = !kind["no_intervals"].is_null();
    for statistic in kind["statistics"].as_array().expect("statistics") {
        assert_eq!(statistic["total"]["interval_ns"].is_null(), without, "{statistic}");
    }
    assert_eq!(said.contains("within these captures only"), !without, "{said}");
    assert_eq!(said.contains("No intervals: 300 requests of A"), without, "{said}");

    // The fast and the slow half of one capture. Time ranges that match no request are refused.
    let capture = "rpcprobe.ab/a.1";
    let listing = ["requests", capture, "--sort", "latency", "-n", "150", "--json"];
    let slower = json(at(directory.path(), &listing));
    let slower = slower["requests"].as_array().expect("requests");
    let middle_ns = slower[149]["latency_ns"].as_u64().expect("a number");
    let (fast, slow) = (format!("max={}ns", middle_ns - 1), format!("min={middle_ns}ns"));
    let halves =
        json(at(directory.path(), &["diff", capture, "--a", &fast, "--b", &slow, "--json"]));
    let count = |side: &str| halves["kinds"][0][side].as_u64().expect("a number");
    assert_eq!(count("a_requests") + count("b_requests"), 300);
    let nothing = at(directory.path(), &["diff", capture, "--a", "from=1h", "--b", "to=1h"]);
    assert_refused(&nothing, 1, &["nothing to compare", "A: no requests", "B: "]);

    // An estimate without the pipe requests' `user` time.
    let estimate = json(at(directory.path(), &["whatif", capture, "--without", "user", "--json"]));
    let kind = &estimate["kinds"][0];
    let taken = kind["taken"].as_array().expect("taken");
    let taken: u64 = taken.iter().map(|of| of["total_ns"].as_u64().expect("a number")).sum();
    let total = |of: &str| kind[of]["total_ns"].as_u64().expect("a number");
    assert!(taken > 0 && total("as_it_was") - total("without") == taken, "{kind}");
    let said = succeeded(at(directory.path(), &["whatif", capture, "--without", "user"]));
    assert!(said.starts_with("Estimate: "), "{said}");
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> =
        entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn what_is_not_kept_is_gone() {
    let Some(_turn) = needs_kernel() else { return };
    for (keep, left) in [
        ("nothing", vec!["ab.json", "comparison.json"]),
        ("tables", vec!["a.1", "ab.json", "b.1", "comparison.json"]),
    ] {
        let directory = open_directory();
        let options = ["--pairs", "1", "--keep", keep, "-o", "kept", "--json"];
        assert_adds_up(&json(ab_of_mode_3(directory.path(), &options)));
        let kept = directory.path().join("kept");
        assert_eq!(names(&kept), left);
        if keep == "tables" {
            assert!(!names(&kept.join("a.1")).contains(&"events.bin".to_string()));
        }
    }
}

#[test]
fn a_pair_in_which_a_command_fails_is_left_out() {
    let Some(_turn) = needs_kernel() else { return };
    // The command fails in its second run.
    let fails = "echo >> runs; if [ $(wc -l < runs) = 2 ]; then echo broken >&2; exit 3; fi";
    let captures = ["a.1", "a.2", "a.3", "ab.json", "b.1", "b.2", "b.3", "comparison.json"];
    for (keep, left) in [("all", &captures[..]), ("nothing", &["ab.json", "comparison.json"])] {
        let directory = open_directory();
        let options = ["ab", "--pairs", "3", "--keep", keep];
        let commands = ["--", "true", "---", "sh", "-c", fails];
        let output = at(directory.path(), &[&options[..], &commands].concat());
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert_no_crash(&stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        let why = "pair 2 is left out: B ended with exit status 3 (broken)";
        assert!(stderr.contains(why), "{stderr}");
        assert!(stdout.contains("2 of 3 pairs are whole"), "{stdout}");
        assert_eq!(names(&directory.path().join("rpcprobe.ab")), left);
    }
}

#[test]
fn a_signal_keeps_the_pairs_that_are_whole() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = open_directory();
    let arguments = ["ab", "--pairs", "50", "--", "sleep", "0.1", "---", "sleep", "0.1"];
    let mut ab = rpcprobe(arguments);
    ab.current_dir(directory.path()).stdin(Stdio::null());
    let mut ab = ab.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("rpcprobe runs");
    let begin = Instant::now();
    while !directory.path().join("rpcprobe.ab/a.3").exists()
        && !directory.path().join("rpcprobe.ab/b.3").exists()
    {
        assert!(begin.elapsed() < Duration::from_secs(60), "no third pair");
        assert_eq!(ab.try_wait().expect("waiting"), None);
        thread::sleep(Duration::from_millis(20));
    }
    // `ab` passes the signal on to the run, as for Ctrl-C, except that only `ab` itself receives
    // it.
    let killed = Command::new("kill").args(["-TERM", &ab.id().to_string()]).status();
    assert!(killed.expect("kill runs").success());
    let output = ab.wait_with_output().expect("rpcprobe ends");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_no_crash(&stderr);
    assert_eq!(output.status.code(), Some(143), "{stderr}");
    assert!(stdout.contains("2 of 50 pairs are whole; the rest was not run"), "{stdout}");
    let left = directory.path().join("rpcprobe.ab");
    assert!(left.join("a.2").exists() && !left.join("a.3").exists() && !left.join("b.3").exists());
}

#[test]
fn what_cannot_be_compared_is_said() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = open_directory();
    let refused = |arguments: &[&str], words: &[&str]| {
        assert_refused(&at(directory.path(), arguments), 1, words);
    };
    refused(&["ab", "--", "true"], &["---"]);
    refused(&["ab", "--", "true", "---"], &["nothing stands on one side"]);
    refused(&["ab", "--", "true", "---", "true", "---", "true"], &["more than one"]);
    refused(
        &["ab", "--", "no-such-command", "---", "true"],
        &["gave no capture", "no-such-command"],
    );
    refused(&["ab", "--input", "none", "--", "true", "---", "true"], &["cannot read --input none"]);
    refused(
        &["ab", "--prepare", "exit 4", "--", "true", "---", "true"],
        &["--prepare", "exit status 4"],
    );
    refused(&["diff"], &["which captures?"]);
    refused(&["diff", "none", "neither"], &["none"]);

    let run = ["run", "-q", "-o", "one", "--", frpc("frpc").as_str(), "-m", "1"].map(str::to_owned);
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    succeeded(at(directory.path(), &run));
    refused(&["diff", "one"], &["is one capture"]);
    refused(&["diff", "one", "one", "one"], &["which captures are A and which B?"]);
    refused(&["ab", "-o", "one", "--", "true", "---", "true"], &["one exists"]);
    refused(
        &["diff", "one", "--a", "label.x=1", "--b", "label.x=2"],
        &["no capture is A", "label.x=1"],
    );
    for file in ["requests.parquet", "segments.parquet", "manifest.json"] {
        let whole = fs::read(directory.path().join("one").join(file)).expect("a file");
        for (what, bytes) in
            [("cut", &whole[..whole.len() / 2]), ("empty", &[]), ("foreign", b"PAR1")]
        {
            fs::write(directory.path().join("one").join(file), bytes).expect("written");
            let output = at(directory.path(), &["diff", "one", "one"]);
            let stderr = text(&output.stderr);
            assert_no_crash(&stderr);
            assert_eq!(output.status.code(), Some(1), "{file} {what}: {stderr}");
            assert!(stderr.contains(file), "{file} {what}: {stderr}");
            let output = at(directory.path(), &["whatif", "one", "--without", "user"]);
            assert_no_crash(&text(&output.stderr));
            assert_eq!(output.status.code(), Some(1), "{file} {what}");
        }
        fs::write(directory.path().join("one").join(file), whole).expect("written");
    }
    let manifest = directory.path().join("one/manifest.json");
    let whole = fs::read_to_string(&manifest).expect("a manifest");
    let older = whole.replacen("\"format_version\": 1", "\"format_version\": 0", 1);
    assert_ne!(older, whole);
    fs::write(&manifest, older).expect("written");
    refused(&["diff", "one", "one"], &["manifest.json", "capture format version 0"]);
    refused(&["whatif", "one", "--without", "user"], &["capture format version 0"]);
    fs::write(&manifest, whole).expect("written");
    let output = at(directory.path(), &["whatif", "one", "--without", "disk"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    // One request on each side.
    let single = json(at(directory.path(), &["diff", "one", "one", "--json"]));
    assert_adds_up(&single);
}
