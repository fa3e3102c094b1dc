//! Synthetic captures: requests of every sort in pseudo-random order, the same in every run.

use std::fs::File;
use std::path::Path;

use rpcprobe::capture::manifest::{Manifest, ProbeProcess, FORMAT_VERSION};
use rpcprobe::model::{By, Category, End, Evidence, Kind, Request, Rule, Segment, Side};
use rpcprobe::output::{Writer, REQUESTS_FILE, SEGMENTS_FILE};

pub const START_NS: u64 = 1_000_000_000;
const PROBE_TID: u32 = 9_001;

/// Pseudo-random numbers, the same in every run.
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

/// A request of any kind. Some requests are incomplete and some have an untraced end; few share a
/// method, many share a latency.
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

/// Writes a synthetic capture with this many requests and no events.
pub fn made_up(directory: &Path, requests: u64) {
    made_up_with(directory, requests, &|_, _| {});
}

/// As [`made_up`], with `change` applied to each request and its segments.
pub fn made_up_with(
    directory: &Path,
    requests: u64,
    change: &dyn Fn(&mut Request, &mut Vec<Segment>),
) {
    let create = |name: &str| File::create(directory.join(name)).expect("a file");
    let mut writer = Writer::new(create(REQUESTS_FILE), create(SEGMENTS_FILE)).expect("tables");
    let mut numbers = Numbers(7);
    for id in 1..=requests {
        let mut request = request(id, &mut numbers);
        let mut segments = segments(&mut request, &mut numbers);
        change(&mut request, &mut segments);
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
