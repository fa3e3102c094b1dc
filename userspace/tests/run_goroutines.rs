//! Goroutines that are followed: what each request of a Go server waits for, whatever its threads do.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use common::capture::{check_numbers, run, time_in, Capture, NAME};
use common::process::{kill, Talking};
use common::{needs_kernel, peer_in_go, rpcprobe};
use rpcprobe::model::{Category, Evidence, Kind, Segment, FIRST_RUNTIME_TASK};
use tempfile::TempDir;

const METHODS: [&str; 3] = ["sleep", "lock", "hand"];
const CONNECTIONS: usize = 8;
/// Of each method on each connection.
const ROUNDS: usize = 10;
const MS: u64 = 1_000_000;
/// Where that is the word for waits for locks and for wait groups alike.
const BEFORE_GO_1_20: &str = "asleep in semacquire";

/// Asks for everything on all connections at once, each of them for another thing first.
fn ask(port: &str) {
    let port: u16 = port.parse().expect("a port");
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
                for number in 0..METHODS.len() * ROUNDS {
                    let method = METHODS[(number + connection) % METHODS.len()];
                    write!(stream, "GET /{method} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
                    let mut answer = Vec::new();
                    while !answer.ends_with(b"\r\n\r\nok\n") {
                        let mut bytes = [0; 512];
                        let count = stream.read(&mut bytes).expect("it answers");
                        assert!(count > 0, "it closed the connection");
                        answer.extend_from_slice(&bytes[..count]);
                    }
                }
            });
        }
    });
}

/// A capture of the server by `attach`, while it is asked.
fn attached(program: &str, options: &[&str]) -> Capture {
    let parent = TempDir::new().expect("a temporary directory");
    let mut server = Talking::to(Command::new(program));
    let port = server.hear();
    let mut attach = rpcprobe(["attach", "--pid", &server.pid().to_string(), "-o"]);
    attach.arg(parent.path().join(NAME)).args(options).stderr(Stdio::piped());
    let mut attach = attach.spawn().expect("rpcprobe starts");
    let mut stderr = BufReader::new(attach.stderr.take().expect("piped"));
    let mut line = String::new();
    stderr.read_line(&mut line).expect("text");
    assert!(line.starts_with("rpcprobe: attached"), "{line}");
    ask(&port);
    kill(attach.id() as i32, libc::SIGTERM);
    std::io::copy(&mut stderr, &mut std::io::sink()).expect("text");
    let output = attach.wait_with_output().expect("rpcprobe ends");
    server.end();
    Capture::in_directory(parent, output).succeeded()
}

/// By method, the segments of each request.
fn by_method(capture: &Capture) -> BTreeMap<String, Vec<Vec<Segment>>> {
    check_numbers(capture);
    let mut found: BTreeMap<String, Vec<Vec<Segment>>> = BTreeMap::new();
    for (request, segments) in capture.checked() {
        if request.kind == Kind::Http1 {
            assert!(request.complete, "{request:?}");
            found.entry(request.method.expect("it has one")).or_default().push(segments);
        }
    }
    for method in METHODS {
        let count = found.get(&format!("GET /{method}")).map_or(0, Vec::len);
        assert_eq!(count, CONNECTIONS * ROUNDS, "{method}: {found:#?}");
    }
    found
}

/// Checks what requests of each sort waited for: in all, since a busy machine may take a CPU away between the clock's reading and
/// the sleep.
fn check(found: &BTreeMap<String, Vec<Vec<Segment>>>) {
    let of = |method: &str| &found[&format!("GET /{method}")];
    let sum = |method: &str, categories: &[Category]| -> u64 {
        let each = |segments: &Vec<Segment>| {
            categories.iter().map(|of| time_in(*of, segments)).sum::<u64>()
        };
        of(method).iter().map(each).sum()
    };
    let count = (CONNECTIONS * ROUNDS) as u64;
    let (sleep, lock) = ([Category::Sleep], [Category::Lock]);
    assert!(sum("sleep", &sleep) > count * 3 * MS * 9 / 10);
    // net/http has locks, too.
    assert!(sum("sleep", &lock) < sum("sleep", &sleep) / 10);
    assert!(sum("lock", &sleep) > count * MS * 9 / 10);
    assert!(sum("lock", &lock) > MS, "some wait for others");
    let locks = of("lock").iter().flatten().filter(|segment| segment.category == Category::Lock);
    let mut details = locks.filter_map(|lock| lock.detail.as_deref());
    // The kernel has locks, too.
    let known = |detail: &str| detail == "sync.Mutex.Lock" || detail.starts_with("kernel ");
    assert!(details.all(|detail| known(detail) || detail == BEFORE_GO_1_20));
    // A worker's time on a CPU, or without it, is the request's that it was handed.
    let worked = [Category::User, Category::RunqueuePreempted, Category::Interrupt];
    assert!(sum("hand", &worked) > count * MS * 9 / 10);
    assert!(sum("hand", &sleep) < count * MS / 10);
    // What they waited for Go says itself: nothing of that is inferred.
    let waits = [Category::Sleep, Category::Lock];
    let all = || METHODS[..2].iter().flat_map(|method| of(method)).flatten();
    let mut waits = all().filter(|segment| waits.contains(&segment.category));
    assert!(waits.all(|segment| {
        let unclear = segment.detail.as_deref() == Some(BEFORE_GO_1_20);
        unclear || segment.evidence == Evidence::Measured
    }));
    // What they do, goroutines do.
    let mut worked = all().filter(|segment| segment.category == Category::User);
    assert!(worked.all(|segment| segment.tid >= FIRST_RUNTIME_TASK || segment.duration_ns < MS / 2));
}

#[test]
fn each_request_of_a_go_server_has_its_own_waits() {
    let Some(_turn) = needs_kernel() else { return };
    let Some((_directory, program)) = peer_in_go("goroutines", &[]) else { return };
    let capture = attached(&program, &["--goroutines"]);
    check(&by_method(&capture));
    let manifest = capture.manifest();
    let hooked = manifest.hooks.iter().filter(|hook| {
        hook.attached_as.as_deref().is_some_and(|means| means.starts_with("uprobe"))
    });
    let names: Vec<_> = hooked.map(|hook| hook.name.as_str()).collect();
    assert_eq!(names, ["runtime.gopark of goroutines", "runtime.casgstatus of goroutines"]);
    assert!(manifest.calibration.breakpoint_ns > 0.0 && manifest.programs.breakpoints > 1_000);
    let report = capture.report();
    let counted = report.lines().find(|line| line.starts_with("CPU time of "));
    assert!(counted.is_some_and(|line| line.contains(" goroutines: ")), "{report}");
}

/// It begins while the capture runs, and has neither symbols nor a place where it must lie.
#[test]
fn a_stripped_program_is_followed_from_its_begin() {
    let Some(_turn) = needs_kernel() else { return };
    let flags = ["-buildmode=pie", "-ldflags=-s -w"];
    let Some((_directory, program)) = peer_in_go("goroutines", &flags) else { return };
    let parent = TempDir::new().expect("a temporary directory");
    let mut server = Talking::to(run(parent.path(), &["--goroutines"], &[&program]));
    let port = server.hear();
    // Until its hooks are in place.
    std::thread::sleep(std::time::Duration::from_millis(200));
    ask(&port);
    let capture = Capture::in_directory(parent, server.end()).succeeded();
    check(&by_method(&capture));
}

#[test]
fn without_the_option_nothing_is_hooked_and_without_go_it_is_told() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&["--goroutines"], &["true"], Stdio::null()).succeeded();
    let told = "--goroutines told nothing: none of the programs was built with Go";
    assert!(capture.report().contains(told), "{}", capture.report());
    let Some((_directory, program)) = peer_in_go("goroutines", &[]) else { return };
    let capture = attached(&program, &[]);
    let manifest = capture.manifest();
    assert!(manifest.hooks.iter().all(|hook| !hook.name.contains("runtime.")));
    assert_eq!(manifest.programs.breakpoints, 0);
    let all = by_method(&capture);
    let mut segments = all.values().flatten().flatten();
    assert!(segments.all(|segment| segment.tid < FIRST_RUNTIME_TASK));
}
