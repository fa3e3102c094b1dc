//! Made-up captures for the tests of this module.

use super::adder::breakdown;
use super::breakdown::Breakdown;
use super::survey::{Facts, Query};
use super::Style;
use rpcprobe_capture::manifest::{
    Calibration, Command, Counts, Hook, Host, Loss, Manifest, Options,
};
use rpcprobe_model::{category_ns, Category, End, Evidence, Kind, Request, Rule, Segment, Side};
use rpcprobe_tables::RequestRow;

pub(crate) const PLAIN: Style = Style { color: false, width: None };

pub(super) const START_NS: u64 = 1_000_000_000;

pub(super) fn manifest() -> Manifest {
    Manifest {
        host: Host {
            name: "host".into(),
            kernel: "Linux 6.18.1".into(),
            machine: "x86_64".into(),
            cpus: 4,
            ..Host::default()
        },
        command: Command {
            argv: ["./frpc", "-m", "3"].map(str::to_owned).to_vec(),
            pid: 100,
            wait_status: Some(0),
            attached: None,
        },
        start_ns: START_NS,
        start_utc: "2025-01-02T03:04:05Z".into(),
        duration_ns: 12_300_000,
        options: Options { scope: "machine".into(), ..Options::default() },
        counts: Counts { records: 5_000, syscalls: 10, ..Counts::default() },
        calibration: Calibration { syscall_ns: 100.0, ..Calibration::default() },
        ..Manifest::default()
    }
}

/// The manifest of a capture in which everything went wrong.
pub(super) fn troubled() -> Manifest {
    let mut manifest = manifest();
    manifest.command.argv.push("\x1b[2J".into());
    manifest.counts.records_lost = 7;
    manifest.counts.records_late = 2;
    manifest.losses =
        vec![Loss { cpu: 1, count: 7, first_ns: START_NS + 1_000, last_ns: START_NS + 2_000 }];
    manifest.warnings = vec!["ended early\u{202e}".into()];
    manifest.hooks = vec![
        Hook {
            name: "fentry/pipe_write".into(),
            why_not: Some("refused".into()),
            purpose: "copy".into(),
            ..Hook::default()
        },
        Hook { name: "sched_switch".into(), attached_as: Some("tp_btf".into()), ..Hook::default() },
    ];
    manifest
}

pub(super) fn end(comm: &str, tid: u32) -> Option<End> {
    Some(End { pid: tid, tid, comm: comm.into() })
}

/// A complete request over a pipe, still without segments. It starts `id` ms into the capture.
pub(super) fn request(id: u64, latency_ns: u64) -> Request {
    let start_ns = START_NS + id * 1_000_000;
    Request {
        request_id: id,
        client: end("client", 101),
        server: end("server", 102),
        channel: Some("pipe:[7]".into()),
        request_bytes: Some(64),
        response_bytes: Some(128),
        ..Request::new(Kind::Pipe, start_ns, start_ns + latency_ns)
    }
}

pub(super) fn segment(category: Category, side: Side, duration_ns: u64) -> Segment {
    Segment {
        start_ns: 0,
        duration_ns,
        category,
        side,
        pid: 101,
        tid: 101,
        comm: "client".into(),
        cpu: Some(2),
        phase: None,
        detail: None,
        cause: None,
        by: None,
        evidence: Evidence::Measured,
        rule: Some(Rule::Charge),
        shared: 1,
        stack: None,
    }
}

/// A request made of the given segments, laid end to end.
pub(super) fn tiled(id: u64, mut segments: Vec<Segment>) -> (RequestRow, Vec<Segment>) {
    let mut request = request(id, 0);
    for segment in &mut segments {
        segment.start_ns = request.start_ns + request.latency_ns;
        request.latency_ns += segment.duration_ns;
    }
    (row(request, &segments), segments)
}

pub(super) fn row(request: Request, segments: &[Segment]) -> RequestRow {
    RequestRow { request, category_ns: category_ns(segments).map(Some) }
}

/// An incomplete request without segments.
pub(super) fn unfinished(id: u64, lower_bound_ns: u64) -> RequestRow {
    let mut request = request(id, lower_bound_ns);
    request.complete = false;
    request.reason = Some("records lost".into());
    RequestRow { request, category_ns: [None; Category::ALL.len()] }
}

/// The rows that a reader of `segments.parquet` would return.
pub(crate) fn stream(
    requests: &[(RequestRow, Vec<Segment>)],
) -> (Vec<RequestRow>, Vec<anyhow::Result<(u64, Segment)>>) {
    let rows = requests.iter().map(|(row, _)| row.clone()).collect();
    let segments = requests.iter().flat_map(|(row, segments)| {
        segments.iter().map(|segment| Ok((row.request.request_id, segment.clone())))
    });
    (rows, segments.collect())
}

/// Adds up these requests as one capture.
pub(super) fn broken_down(requests: &[(RequestRow, Vec<Segment>)], query: &Query) -> Breakdown {
    let (rows, segments) = stream(requests);
    breakdown(|| rows.iter().cloned().map(Ok), segments, &facts(), query).unwrap()
}

pub(super) fn facts() -> Facts {
    Facts { start_ns: START_NS, duration_ns: 12_300_000, ..Facts::default() }
}

/// Ten requests of 1, 2, ... 10 us, each with user time at the client, a modelled copy at the
/// server, and a run-queue wait.
pub(crate) fn ten() -> Vec<(RequestRow, Vec<Segment>)> {
    (1..=10)
        .map(|i| {
            let mut copy = segment(Category::Copy, Side::Server, 100 * i);
            copy.evidence = Evidence::Modelled;
            let mut wait = segment(Category::RunqueueWakeup, Side::Client, 300 * i);
            wait.by = Some(if i < 9 { "kworker/0:1/33" } else { "sh/9" }.into());
            let user = segment(Category::User, Side::Client, 600 * i);
            tiled(i, vec![user, copy, wait])
        })
        .collect()
}

pub(crate) fn text(write: impl FnOnce(&mut dyn std::io::Write) -> anyhow::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}
