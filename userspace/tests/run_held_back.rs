//! Answers whose end the kernel holds back after the server has written it, compared with the client's measurements.

mod common;

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use common::capture::{run, Capture};
use common::process::Talking;
use common::{needs_kernel, peer, python, rpcprobe, text};
use rpcprobe::model::{Category, HeldBy, Kind, Request, Segment};
use tempfile::TempDir;

const ROUNDS: &str = "40";
const HEADLINE: &str = "the kernel held back the end of ";

/// Requests, the client's mean round-trip time without its own work (ns), and the capture.
type Seen = (Vec<(Request, Vec<Segment>)>, f64, Capture);

fn seen(capture: Capture, said: &str, kind: Kind) -> Seen {
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == kind);
    assert_eq!(requests.len().to_string(), ROUNDS);
    assert!(requests.iter().all(|(request, _)| request.complete), "{requests:?}");
    let figures: Vec<f64> =
        said.split_whitespace().map(|word| word.parse().expect("nanoseconds")).collect();
    let [round_ns, own_ns] = figures[..] else { panic!("{said}") };
    (requests, round_ns - own_ns, capture)
}

/// Runs `split_pair.py` with only the server traced.
fn server_alone(protocol: &str, nagle: &str, kind: Kind) -> Seen {
    let script = peer("split_pair.py");
    let parent = TempDir::new().expect("a temporary directory");
    let serve = [python(), &script, "serve", protocol, nagle];
    let mut server = Talking::to(run(parent.path(), &[], &serve));
    let port = server.hear();
    let client = Command::new(python()).args([&script, "ask", &port, protocol, ROUNDS]).output();
    let client = client.expect("the client runs");
    assert!(client.status.success(), "{}", text(&client.stderr));
    let capture = Capture::in_directory(parent, server.end()).succeeded();
    seen(capture, &text(&client.stdout), kind)
}

fn mean(requests: &[(Request, Vec<Segment>)], of: impl Fn(&Request) -> u64) -> f64 {
    let sum_ns: u64 = requests.iter().map(|(request, _)| of(request)).sum();
    sum_ns as f64 / requests.len() as f64
}

/// The statement about held-back answers in the first paragraph of the report, if there is one.
fn headline(capture: &Capture) -> Option<String> {
    let report = capture.report();
    let first = report.split("\n\n").next().expect("a report");
    let flat = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let at = flat.find(HEADLINE)?;
    Some(flat[at..].to_owned())
}

fn held_back_by_nagle(protocol: &str, kind: Kind) {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, client_ns, capture) = server_alone(protocol, "nagle", kind);
    let latency_ns = mean(&requests, |request| request.latency_ns);
    let held_ns = mean(&requests, |request| request.held_back_ns.expect("all are known"));
    let ratio = (latency_ns + held_ns) / client_ns;
    println!(
        "{protocol}: latency {latency_ns} + held back {held_ns} ns of {client_ns} ns: {ratio}"
    );
    assert!((0.95..=1.0).contains(&ratio), "{latency_ns} + {held_ns} of {client_ns} ns");
    assert!(held_ns / client_ns > 0.5, "it is most of what the client saw: {held_ns} ns");
    let held: Vec<_> =
        requests.iter().filter(|(request, _)| request.held_back_by.is_some()).collect();
    for (request, segments) in &held {
        assert_eq!(request.held_back_by, Some(HeldBy::Nagle));
        let cause = segments.last().expect("segments").cause.as_deref().expect("a cause");
        assert!(cause.contains("(Nagle), but ") && cause.ends_with(" ms later"), "{cause}");
    }
    let line = headline(&capture).expect("a line among the first");
    println!("{line}");
    let told = format!("{HEADLINE}{} {kind} answers of {ROUNDS} for ", held.len());
    assert!(line.starts_with(&told), "{line}");
    let (request, _) = held[held.len() / 2];
    let id = request.request_id.to_string();
    let directory = capture.path();
    let explain = [OsStr::new("explain"), directory.as_os_str(), OsStr::new(&id)];
    let explained = rpcprobe(explain).output().expect("rpcprobe runs");
    let explained = text(&explained.stdout);
    let first = explained.split("\n\n").next().expect("its first lines");
    assert!(first.contains("! the kernel held back the end of the answer for "), "{explained}");
}

#[test]
fn what_nagle_holds_back_is_told_of_turns() {
    held_back_by_nagle("plain", Kind::Tcp);
}

/// With framing, the end of a request is known before the kernel sends the rest of the answer.
#[test]
fn what_nagle_holds_back_is_told_of_framed_answers() {
    held_back_by_nagle("http1", Kind::Http1);
}

#[test]
fn without_nagle_nothing_is_held_back() {
    let Some(_turn) = needs_kernel() else { return };
    for (protocol, kind) in [("plain", Kind::Tcp), ("http1", Kind::Http1)] {
        let (requests, _, capture) = server_alone(protocol, "nodelay", kind);
        for (request, _) in &requests {
            assert_eq!(
                (request.held_back_ns, request.held_back_by),
                (Some(0), None),
                "{request:?}"
            );
        }
        assert_eq!(headline(&capture), None);
    }
}

/// With both ends traced, the wait is part of the request's latency and is not reported as held back.
#[test]
fn with_both_ends_the_wait_is_part_of_the_request() {
    let Some(_turn) = needs_kernel() else { return };
    for (protocol, kind) in [("plain", Kind::Tcp), ("http1", Kind::Http1)] {
        let command = [python(), &peer("split_pair.py"), protocol, "nagle", ROUNDS];
        let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
        let said = text(&capture.output.stdout);
        let (requests, client_ns, capture) = seen(capture, &said, kind);
        for (request, _) in &requests {
            assert_eq!((request.held_back_ns, request.held_back_by), (None, None), "{request:?}");
        }
        assert_eq!(headline(&capture), None);
        let latency_ns = mean(&requests, |request| request.latency_ns);
        let ratio = latency_ns / client_ns;
        let held = |segment: &&Segment| {
            segment.category == Category::WireStack
                && segment.detail.as_deref().is_some_and(|detail| detail.contains("(Nagle)"))
        };
        let segments = requests.iter().flat_map(|(_, segments)| segments).filter(held);
        let held_ns = segments.map(|segment| segment.duration_ns).sum::<u64>() as f64;
        let share = held_ns / requests.len() as f64 / latency_ns;
        println!("{protocol}: {latency_ns} of {client_ns} ns, {share} of it held back");
        assert!((0.95..=1.0).contains(&ratio), "{latency_ns} of {client_ns} ns");
        assert!(share > 0.5, "{share} of {latency_ns} ns");
    }
}
