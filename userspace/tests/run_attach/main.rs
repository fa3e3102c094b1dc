//! `rpcprobe attach` on programs that are already running, compared with the clients' own logs.

#[path = "../common/mod.rs"]
mod common;

mod first_requests;
mod lifetime;
mod selection;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::capture::{check_numbers, Capture, NAME};
use common::process::{kill, until};
use common::{echo, frpc, needs_kernel, peer, python, rpcprobe, said, text};
use rpcprobe::capture::manifest::{Manifest, Warning};
use rpcprobe::model::{Category, Kind, Reason, Request, Segment};
use tempfile::TempDir;

type Requests = Vec<(Request, Vec<Segment>)>;

/// A program that leads a process group, and all processes it has started. The group is killed on drop.
struct Group(Child);

impl Group {
    fn start(command: &mut Command) -> Group {
        Group(command.process_group(0).spawn().expect("the program starts"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        kill(-(self.pid() as i32), libc::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Running clients and servers that log their requests.
struct Load {
    group: Group,
    log: PathBuf,
    _directory: TempDir,
}

impl Load {
    /// Starts a command that logs its requests to the given path, and waits until all of its clients have logged some.
    fn start(clients: usize, command: impl FnOnce(&Path) -> Command) -> Load {
        let directory = TempDir::new().expect("a temporary directory");
        let log = directory.path().join("log");
        let mut command = command(&log);
        let group = Group::start(command.stdout(Stdio::null()));
        let load = Load { group, log, _directory: directory };
        until("requests are logged", || {
            let logged = load.logged();
            logged.len() >= clients && logged.values().map(Vec::len).sum::<usize>() > 50
        });
        load
    }

    /// The echo server with its clients.
    fn echo(arguments: &str) -> Load {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let count = words.iter().skip_while(|word| **word != "-c").nth(1);
        let clients = count.map_or(1, |count| count.parse().expect("a number of clients"));
        Load::start(clients, |log| {
            let mut command = Command::new(echo());
            command.args(arguments.split_whitespace()).args(["-n", "10000000", "--log"]).arg(log);
            command
        })
    }

    fn pid(&self) -> u32 {
        self.group.pid()
    }

    /// Start and end of every request by client. The key is the client's process id, or 0 if the log has none.
    fn logged(&self) -> BTreeMap<u32, Vec<(u64, u64)>> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let mut lines = text.split_inclusive('\n');
        let header: Vec<&str> = lines.next().unwrap_or_default().trim().split(',').collect();
        let mut logged: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for line in lines.filter(|line| line.ends_with('\n')) {
            let of: HashMap<&str, &str> =
                header.iter().copied().zip(line.trim().split(',')).collect();
            let number = |name: &str| of.get(name).and_then(|word| word.parse::<u64>().ok());
            let client = number("pid").unwrap_or(0) as u32;
            let times = (number("begin_ns").expect("a begin"), number("end_ns").expect("an end"));
            logged.entry(client).or_default().push(times);
        }
        logged
    }

    /// The pids of its process and of all processes that this one has started.
    fn pids(&self) -> Vec<u32> {
        let of = |pid: u32| {
            let path = format!("/proc/{pid}/task/{pid}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        };
        let mut pids = vec![self.pid()];
        let mut at = 0;
        while at < pids.len() {
            pids.extend(of(pids[at]));
            at += 1;
        }
        pids
    }
}

/// `rpcprobe attach -q -o PARENT/capture ARGUMENTS`.
fn attach(parent: &Path, arguments: &[String]) -> Command {
    let mut attach = rpcprobe(["attach", "-q", "-o"]);
    attach.arg(parent.join(NAME)).args(arguments);
    attach
}

/// The report goes to standard output, progress messages go to standard error.
#[test]
fn the_report_goes_to_standard_output() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::echo("-t unix");
    let reported = |options: &[&str]| {
        let parent = TempDir::new().expect("a temporary directory");
        let mut attach = rpcprobe(["attach", "--duration", "300ms", "-o"]);
        attach.arg(parent.path().join(NAME)).args(options).args(by_pid(&load.pids()));
        let output = attach.output().expect("rpcprobe runs");
        let stderr = said(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.starts_with("rpcprobe: attached (processes: "), "{stderr}");
        text(&output.stdout)
    };
    assert!(reported(&[]).contains("Where the time went: "));
    let report: serde_json::Value = serde_json::from_str(&reported(&["--json"])).expect("JSON");
    assert!(report["capture"]["requests"].as_u64().expect("a number") > 0, "{report}");
}

/// Requests are numbered in file order even if requests that ended before the capture are left out and parents are
/// named before they are found. `rpcprobe attribute` writes the same tables again.
#[test]
fn requests_are_numbered_in_the_order_of_the_file() {
    let Some(_turn) = needs_kernel() else { return };
    let nested = Load::start(1, |log| {
        let mut command = Command::new("sh");
        let script = "while :; do echo 1,2 >> \"$1\"; sh -c 'cat /dev/null | cat; true'; done";
        fs::write(log, "begin_ns,end_ns\n").expect("a log");
        command.args(["-c", script, "sh"]).arg(log);
        command
    });
    let echo = Load::echo("-t unix -c 2");
    for selection in [by_pid(&[nested.pid()]), by_pid(&echo.pids())] {
        let capture = captured(selection);
        check_numbers(&capture);
        let before = capture.tables();
        let again = rpcprobe(["attribute", "-q"]).arg(capture.path()).status();
        assert!(again.expect("rpcprobe runs").success());
        assert!(capture.tables() == before, "other tables");
    }
    let capture = captured(by_pid(&[nested.pid()]));
    let rows = capture.rows();
    let parents = rows.iter().filter(|row| row.request.parent_request_id.is_some()).count();
    assert!(parents > 0 && rows.len() > parents, "{parents} of {}", rows.len());
}

fn by_pid(pids: &[u32]) -> Vec<String> {
    pids.iter().flat_map(|pid| ["--pid".to_string(), pid.to_string()]).collect()
}

fn for_half_a_second(selection: Vec<String>) -> Vec<String> {
    [selection, vec!["--duration".into(), "500ms".into()]].concat()
}

/// A half-second capture of the selected processes.
fn captured(selection: Vec<String>) -> Capture {
    let parent = TempDir::new().expect("a temporary directory");
    let output = attach(parent.path(), &for_half_a_second(selection)).output();
    Capture::in_directory(parent, output.expect("rpcprobe runs")).succeeded()
}

/// Checks the laws, and returns the complete requests. Every incomplete request must have been cut by the start or the
/// end of the capture.
fn whole(capture: &Capture) -> (Manifest, Requests) {
    assert_eq!(capture.manifest().warnings, []);
    whole_with_warnings(capture)
}

fn whole_with_warnings(capture: &Capture) -> (Manifest, Requests) {
    let manifest = capture.manifest();
    assert_eq!(manifest.losses, [], "nothing lost");
    let end_ns = manifest.start_ns + manifest.duration_ns;
    let mut requests = capture.checked();
    for (request, _) in &requests {
        if !request.complete {
            let reason = request.reason.as_ref().expect("a reason");
            let at_begin = *reason == Reason::BeganBefore;
            assert_eq!(at_begin, request.start_ns < manifest.start_ns, "{request:?}");
            assert!(at_begin || *reason == Reason::CaptureEnded, "{request:?}");
        }
    }
    requests.retain(|(request, _)| request.complete);
    for (request, _) in &requests {
        assert!(request.start_ns >= manifest.start_ns, "{request:?}");
        assert!(request.start_ns + request.latency_ns <= end_ns, "{request:?}");
    }
    (manifest, requests)
}

/// Fails unless every request that a client logged within the capture was found exactly once, within the logged times.
/// Returns the number of these requests.
fn compare(load: &Load, manifest: &Manifest, requests: &Requests) -> usize {
    let end_ns = manifest.start_ns + manifest.duration_ns;
    let mut found: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    let logged = load.logged();
    let mut of_nobody = 0;
    for (request, _) in requests {
        // The request was sent before the capture and answered during it, and the client did not read the answer before
        // the end: the capture has no record of the client.
        let Some(pid) = request.client.as_ref().map(|end| end.pid) else {
            of_nobody += 1;
            continue;
        };
        let client = if logged.contains_key(&pid) { pid } else { 0 };
        let times = (request.start_ns, request.start_ns + request.latency_ns);
        found.entry(client).or_default().push(times);
    }
    assert!(of_nobody <= logged.len(), "{of_nobody} requests of nobody");
    let mut compared = 0;
    for (client, logged) in logged {
        let mut found = found.remove(&client).unwrap_or_default();
        found.sort_unstable();
        for (begin_ns, done_ns) in logged {
            if begin_ns < manifest.start_ns || done_ns > end_ns {
                continue;
            }
            let first = found.partition_point(|(start_ns, _)| *start_ns < begin_ns);
            let within: Vec<_> =
                found[first..].iter().take_while(|(_, end_ns)| *end_ns <= done_ns).collect();
            assert_eq!(within.len(), 1, "client {client}, {begin_ns} to {done_ns}: {within:?}");
            compared += 1;
        }
    }
    assert!(found.is_empty(), "requests of nobody: {found:?}");
    compared
}

fn share_of(category: Category, requests: &Requests) -> f64 {
    let spent_ns: u64 =
        requests.iter().map(|(_, segments)| common::capture::time_in(category, segments)).sum();
    let all_ns: u64 = requests.iter().map(|(request, _)| request.latency_ns).sum();
    spent_ns as f64 / all_ns.max(1) as f64
}

#[test]
fn no_request_of_clients_and_servers_at_work_is_missing() {
    let Some(_turn) = needs_kernel() else { return };
    for (arguments, kind) in [
        ("-t tcp -c 1", Kind::Tcp),
        ("-t tcp -c 4", Kind::Tcp),
        ("-t tcp6 -c 2 -e", Kind::Tcp),
        ("-t unix -c 1", Kind::Unix),
        ("-t unix -c 4", Kind::Unix),
        ("-t unix -c 4 -e", Kind::Unix),
        ("-t unix -c 2 -b 300000", Kind::Unix),
        ("-t pair", Kind::Unix),
    ] {
        let load = Load::echo(arguments);
        let pids = load.pids();
        let capture = captured(by_pid(&pids));
        let (manifest, requests) = whole(&capture);
        assert!(requests.iter().all(|(request, _)| request.kind == kind), "{arguments}");
        let compared = compare(&load, &manifest, &requests);
        println!("{arguments}: {compared} requests");
        assert!(compared > 50, "{arguments}: {compared}");
        let server = pids[1];
        let mut unexplained = 0;
        for (request, segments) in &requests {
            let of = |end: &Option<rpcprobe::model::End>| end.as_ref().expect("both").pid;
            assert_eq!(of(&request.server), server, "{arguments}: {request:?}");
            unexplained += usize::from(!segments.iter().any(|segment| segment.pid == server));
        }
        // On some machines no hook runs in certain threads, so a wake-up can be missing.
        assert!(unexplained * 1000 <= requests.len(), "{arguments}: {unexplained}");
        let unattributed = share_of(Category::Unattributed, &requests);
        assert!(unattributed < 0.02, "{arguments}: {unattributed}");
        let attached = manifest.command.attached.expect("attached");
        assert_eq!(attached.processes.len(), pids.len());
        assert!(attached.threads >= pids.len() as u64);
    }
}

/// frpc -m 3, with input from a program that writes a line after each pause.
fn frpc_on_pipes(pause: &str) -> Load {
    let script = format!(
        "import sys, time\n\
         lines = open({:?}).read().splitlines()\n\
         while True:\n\
         \x20   for line in lines:\n\
         \x20       print(line, flush=True); {pause}\n",
        frpc("expressions.txt")
    );
    Load::start(1, |log| {
        let mut command = Command::new("sh");
        let line = format!(
            "python3 -c '{}' | exec {} -m 3 --log {}",
            script.replace('\'', "'\\''"),
            frpc("frpc"),
            log.display()
        );
        command.args(["-c", &line]);
        command
    })
}

#[test]
fn no_request_over_pipes_is_missing() {
    let Some(_turn) = needs_kernel() else { return };
    for pause in ["time.sleep(0.002)", "pass"] {
        let load = frpc_on_pipes(pause);
        let called = |pid: &&u32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "frpc\n")
        };
        let mut pids: Vec<u32> = load.pids().iter().filter(called).copied().collect();
        pids.sort_unstable();
        assert_eq!(pids.len(), 2, "front end and back end");
        let capture = captured(by_pid(&pids));
        let (manifest, mut requests) = whole(&capture);
        requests.retain(|(request, _)| request.kind == Kind::Pipe);
        // frpc buffers its log in memory for a while.
        let last_ns = manifest.start_ns + manifest.duration_ns;
        until("the log has all", || {
            load.logged().values().flatten().any(|(begin_ns, _)| *begin_ns > last_ns)
        });
        let compared = compare(&load, &manifest, &requests);
        println!("pipes, {pause}: {compared} requests");
        assert!(compared > 50, "{pause}: {compared}");
        assert!(share_of(Category::Unattributed, &requests) < 0.02, "{pause}");
    }
}

/// In mid-connection, bytes that only look like HTTP/2 frames but break the frame rules are attributed as turns.
#[test]
fn what_only_looks_like_frames_is_turns() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("tcp", Kind::Tcp), ("unix", Kind::Unix)] {
        let load = Load::start(1, |log| {
            let mut command = Command::new("python3");
            command.args([&peer("ones_pair.py"), transport, "10000000"]).arg(log);
            command
        });
        let (manifest, requests) = whole(&captured(by_pid(&load.pids())));
        assert!(requests.iter().all(|(request, _)| request.kind == kind), "{transport}");
        let compared = compare(&load, &manifest, &requests);
        assert!(compared > 50, "{transport}: {compared}");
    }
}

/// Ordinary protocols on connections older than the capture are attributed as turns.
#[test]
fn ordinary_streams_are_turns() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::start(1, |log| {
        let mut command = Command::new("python3");
        command.args([&peer("streams_pair.py"), "loop"]).arg(log);
        command
    });
    let (manifest, requests) = whole_with_warnings(&captured(by_pid(&load.pids())));
    // One of the protocols is TLS, and both ends are traced.
    let [Warning::Encrypted { users }] = &manifest.warnings[..] else {
        panic!("{:?}", manifest.warnings)
    };
    assert_eq!(users.matches("python3/").count(), 2, "{users}");
    let others =
        requests.iter().find(|(request, _)| !matches!(request.kind, Kind::Tcp | Kind::Unix));
    assert_eq!(others, None);
    assert!(requests.len() > 1000, "{}", requests.len());
}

/// In mid-connection the header compression tables are unknown: a method may be missing, but never wrong.
#[test]
fn grpc_calls_are_found_in_mid_connection() {
    let Some(_turn) = needs_kernel() else { return };
    for concurrency in ["1", "8"] {
        let load = Load::start(1, |log| {
            let mut command = Command::new(python());
            command.args([&peer("grpc_pair.py"), "Unary", "10000000", concurrency, "100"]).arg(log);
            command
        });
        let (manifest, mut requests) = whole(&captured(by_pid(&load.pids())));
        requests.retain(|(request, _)| request.client.is_some());
        assert!(requests.iter().all(|(request, _)| request.kind == Kind::Http2));
        let end_ns = manifest.start_ns + manifest.duration_ns;
        let log = fs::read_to_string(&load.log).expect("a log");
        let mut logged = Vec::new();
        for line in log.split_inclusive('\n').skip(1).filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.trim().split(',').collect();
            let [begin_ns, done_ns] = [0, 1].map(|i| words[i].parse::<u64>().expect("a clock"));
            if begin_ns >= manifest.start_ns && done_ns <= end_ns {
                logged.push((begin_ns, done_ns, words[2]));
            }
        }
        assert!(logged.len() > 50, "{}", logged.len());
        // Streams of one client connection have consecutive odd numbers.
        let streams: Vec<u64> =
            requests.iter().map(|(request, _)| request.stream_id.expect("a stream")).collect();
        let (first, last) =
            (streams.iter().min().expect("any"), streams.iter().max().expect("any"));
        assert!(streams.len() >= logged.len(), "{} of {}", streams.len(), logged.len());
        assert!((last - first) / 2 < streams.len() as u64 + 8, "{first} to {last}: {streams:?}");
        if concurrency != "1" {
            continue;
        }
        requests.sort_by_key(|(request, _)| request.start_ns);
        let mut named = 0;
        for (begin_ns, done_ns, method) in logged {
            let within = |request: &Request| {
                begin_ns <= request.start_ns && request.start_ns + request.latency_ns <= done_ns
            };
            let of: Vec<_> = requests.iter().filter(|(request, _)| within(request)).collect();
            assert_eq!(of.len(), 1, "{begin_ns} to {done_ns}: {of:?}");
            if let Some(told) = &of[0].0.method {
                assert_eq!(told, method);
                named += 1;
            }
        }
        println!("{named} of {} named", requests.len());
    }
}

#[test]
fn one_end_alone_is_explained() {
    let Some(_turn) = needs_kernel() else { return };
    for transport in ["tcp", "unix"] {
        let load = Load::echo(&format!("-t {transport} -c 2"));
        let pids = load.pids();
        let (server, clients) = (&pids[1..2], &pids[2..]);
        let (manifest, requests) = whole(&captured(by_pid(server)));
        assert!(requests.iter().all(|(request, _)| request.client.is_none()), "{transport}");
        let expected: usize = within(&load, &manifest);
        let missing = expected.abs_diff(requests.len());
        // The capture cuts requests at its start and end at other points than the clients' log.
        assert!(missing <= 4, "{transport}: {} of {expected}", requests.len());
        let idle = share_of(Category::IdlePeer, &requests);
        assert!(idle < 0.01, "{transport}: {idle}");

        let (manifest, requests) = whole(&captured(by_pid(clients)));
        assert!(requests.iter().all(|(request, _)| request.server.is_none()), "{transport}");
        compare(&load, &manifest, &requests);
        assert!(share_of(Category::IdlePeer, &requests) > 0.01, "{transport}");
    }
}

/// Number of requests logged within the capture.
fn within(load: &Load, manifest: &Manifest) -> usize {
    let end_ns = manifest.start_ns + manifest.duration_ns;
    let inside = |times: &&(u64, u64)| times.0 >= manifest.start_ns && times.1 <= end_ns;
    load.logged().values().flatten().filter(inside).count()
}
