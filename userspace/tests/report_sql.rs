//! Reports against an independent reader: DuckDB computes every statistic from the Parquet files.

mod common;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use rpcprobe::capture::manifest::{Manifest, ProbeProcess, FORMAT_VERSION};
use rpcprobe::model::{By, Category, End, Evidence, Kind, Request, Rule, Segment, Side};
use rpcprobe::output::{Writer, REQUESTS_FILE, SEGMENTS_FILE};
use tempfile::TempDir;

use common::capture::Capture;
use common::{frpc_folder, needs_kernel, python, rpcprobe, text};

const START_NS: u64 = 1_000_000_000;
const PROBE_TID: u32 = 9_001;

/// Numbers in no order, the same at every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize].clone()
    }
}

fn end(comm: &str, pid: u32, tid: u32) -> Option<End> {
    Some(End { pid, tid, comm: comm.into() })
}

/// A request of any kind, some incomplete, some with an end that is not traced; few have the same
/// method, many the same latency.
fn request(id: u64, numbers: &mut Numbers) -> Request {
    let kind = numbers.of(&[Kind::Http1, Kind::Http1, Kind::Http1, Kind::Exec, Kind::Resp]);
    let start_ns = START_NS + id * 1_500;
    let mut request = Request::new(kind, start_ns, start_ns);
    request.request_id = id;
    request.client = numbers.of(&[end("client", 100, 101), end("cli 2", 100, 102), None]);
    request.server = numbers.of(&[end("worker", 200, 201), end("worker", 200, 202), None]);
    match kind {
        Kind::Http1 => {
            let user = format!("user/{}", numbers.below(400));
            let path = numbers.of(&["a1".into(), "b".into(), user]);
            request.method = (!id.is_multiple_of(10)).then(|| format!("GET /{path}"));
            request.status = numbers.of(&[Some(200), Some(404), Some(503), None]);
        }
        Kind::Exec => {
            request.method = Some(numbers.of(&["/usr/bin/sh", "/usr/sbin/x"]).into());
            request.status = numbers.of(&[Some(0), Some(256), Some(9), Some(139)]);
        }
        _ => {}
    }
    if id.is_multiple_of(17) {
        request.complete = false;
        request.reason = Some("the capture ended before the answer".into());
        request.latency_ns = numbers.below(300_000);
    }
    request
}

fn segments(request: &mut Request, numbers: &mut Numbers) -> Vec<Segment> {
    if !request.complete {
        return Vec::new();
    }
    let mut segments = Vec::new();
    for _ in 0..numbers.below(8) {
        let category = numbers.of(Category::ALL);
        let slow = if request.request_id % 90 == 1 { 100 } else { 1 };
        let duration_ns = 1 + numbers.below(50) * 100 * slow;
        let runqueue = matches!(category, Category::RunqueueWakeup | Category::RunqueuePreempted);
        let by = numbers.of(&[format!("rpcprobe/{PROBE_TID}"), "rpcprobe/7".into(), "sh/8".into()]);
        segments.push(Segment {
            start_ns: request.start_ns + request.latency_ns,
            duration_ns,
            category,
            side: numbers.of(Side::ALL),
            pid: 200,
            tid: 201,
            comm: numbers.of(&["postgres", "postgres", "redis"]).into(),
            cpu: None,
            phase: None,
            detail: None,
            cause: None,
            by: runqueue.then(|| By::from(&*by)),
            evidence: numbers.of(&[Evidence::Measured, Evidence::Modelled, Evidence::Sampled]),
            rule: Some(numbers.of(Rule::ALL)),
            shared: numbers.of(&[1, 1, 3]),
            stack: None,
        });
        request.latency_ns += duration_ns;
    }
    segments
}

/// A capture of so many requests made up, without its events.
fn made_up(directory: &Path, requests: u64) {
    let create = |name: &str| File::create(directory.join(name)).expect("a file");
    let mut writer = Writer::new(create(REQUESTS_FILE), create(SEGMENTS_FILE)).expect("tables");
    let mut numbers = Numbers(7);
    for id in 1..=requests {
        let mut request = request(id, &mut numbers);
        let segments = segments(&mut request, &mut numbers);
        writer.push(&request, &segments.as_slice().into()).expect("a row");
    }
    writer.finish().expect("tables");
    let manifest = Manifest {
        format_version: FORMAT_VERSION,
        start_ns: START_NS,
        duration_ns: 5_000_000,
        probe: ProbeProcess { pid: PROBE_TID, tids: vec![PROBE_TID] },
        ..Manifest::default()
    };
    serde_json::to_writer(create("manifest.json"), &manifest).expect("a manifest");
}

fn agrees(directory: &Path) {
    let compare = format!("{}/tests/sql/compare.py", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(compare).arg(common::RPCPROBE).arg(directory);
    let output = command.output().expect("Python runs");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(said.contains("reports agree with SQL"), "{said}");
}

#[test]
fn made_up_captures_of_every_size_agree() {
    for requests in [0, 1, 2, 150, 3_000] {
        let directory = TempDir::new().expect("a directory");
        made_up(directory.path(), requests);
        agrees(directory.path());
    }
}

#[test]
fn a_real_capture_agrees() {
    let Some(_turn) = needs_kernel() else { return };
    let input = File::open(frpc_folder().join("expressions.txt")).expect("the expressions");
    let frpc = frpc_folder().join("frpc");
    let command = [frpc.to_str().expect("UTF-8"), "-m", "3"];
    let capture = Capture::of(&[], &command, Stdio::from(input)).succeeded();
    agrees(&capture.path());
}

#[test]
fn labels_group_captures_and_several_have_a_report_each() {
    let parent = TempDir::new().expect("a directory");
    let dirs: Vec<_> =
        ["before", "after", "more"].iter().map(|name| parent.path().join(name)).collect();
    for (dir, label) in dirs.iter().zip(["before", "after", "after"]) {
        std::fs::create_dir(dir).expect("a directory");
        made_up(dir, 300);
        let file = dir.join("manifest.json");
        let read = std::fs::read(&file).expect("a manifest");
        let mut manifest: Manifest = serde_json::from_slice(&read).expect("a manifest");
        manifest.labels.insert("change".into(), label.into());
        std::fs::write(&file, serde_json::to_vec(&manifest).expect("JSON")).expect("written");
    }
    let json = |options: &[&str]| -> serde_json::Value {
        let output =
            rpcprobe(["report", "--json"]).args(options).args(&dirs).output().expect("runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let each = json(&[]);
    assert_eq!(each["reports"].as_array().map(Vec::len), Some(3));
    let by_label = json(&["--by", "label"]);
    assert_eq!(by_label["captures"].as_array().map(Vec::len), Some(3));
    assert_eq!((&by_label["in_capture"], &by_label["not_conserved"]), (&900.into(), &0.into()));
    let groups = &by_label["kinds"][0]["groups"]["listed"];
    let one = &each["reports"][0]["kinds"][0];
    // Two of the same content: twice the requests, in twice the time.
    assert_eq!(groups[0]["name"], "change=after");
    assert_eq!(groups[1]["name"], "change=before");
    assert_eq!(groups[1]["requests"], one["requests"]);
    assert_eq!(groups[0]["rate_per_s"], groups[1]["rate_per_s"]);
    assert_eq!(groups[0]["latency"]["p99_ns"], one["latency"]["p99_ns"]);
}

#[test]
fn a_filter_that_matches_nothing_tells_what_there_is() {
    let directory = TempDir::new().expect("a directory");
    made_up(directory.path(), 300);
    for command in ["report", "explain"] {
        let mut run = rpcprobe([command]);
        run.arg(directory.path()).args(["--method", "PUT *"]);
        if command == "explain" {
            run.arg("--slowest");
        }
        let output = run.output().expect("rpcprobe runs");
        let said = text(&output.stdout);
        assert!(said.contains("No request passes the filter"), "{said}");
        assert!(said.contains("http1 (") && said.contains("GET /a1 ("), "{said}");
    }
}
