//! `rpcprobe attach` on programs in the middle of their work, against the clients' own logs.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::capture::{check_numbers, Capture, NAME};
use common::process::{hear_attached, kill, line, until};
use common::{
    as_nobody, assert_refused, directory_of_nobody, echo, frpc, needs_kernel, peer, python,
    rpcprobe, said, text,
};
use rpcprobe::capture::manifest::Manifest;
use rpcprobe::model::{Category, Kind, Reason, Request, Segment};
use tempfile::TempDir;

type Requests = Vec<(Request, Vec<Segment>)>;

/// A program at work, and all that it has started; killed when dropped.
struct Load {
    child: Child,
    log: PathBuf,
    _directory: TempDir,
}

impl Load {
    /// Starts a command that writes a log of requests where it is told; waits until all of its clients
    /// have written to it.
    fn start(clients: usize, command: impl FnOnce(&Path) -> Command) -> Load {
        let directory = TempDir::new().expect("a temporary directory");
        let log = directory.path().join("log");
        let mut command = command(&log);
        command.stdout(Stdio::null()).process_group(0);
        let child = command.spawn().expect("the program starts");
        let load = Load { child, log, _directory: directory };
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
        self.child.id()
    }

    /// Begin and end of every request, by client (its process id, where the log has it).
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

    /// Its process and all that it has started.
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

impl Drop for Load {
    fn drop(&mut self) {
        kill(-(self.child.id() as i32), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// `rpcprobe attach -q -o PARENT/capture ARGUMENTS`.
fn attach(parent: &Path, arguments: &[String]) -> Command {
    let mut attach = rpcprobe(["attach", "-q", "-o"]);
    attach.arg(parent.join(NAME)).args(arguments);
    attach
}

/// Standard output is for the report, standard error for what is said meanwhile.
#[test]
fn json_goes_to_standard_output() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::echo("-t unix");
    let parent = TempDir::new().expect("a temporary directory");
    let mut attach = rpcprobe(["attach", "--json", "--duration", "300ms", "-o"]);
    attach.arg(parent.path().join(NAME)).args(by_pid(&load.pids()));
    let output = attach.output().expect("rpcprobe runs");
    let stderr = said(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(report["capture"]["requests"].as_u64().expect("a number") > 0, "{report}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("rpcprobe: attached (processes: "), "{stderr}");
}

/// Also where requests that ended before the capture are left out, and parents are named before they are
/// found; the same when it is attributed again.
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

/// A capture of what matches, of half a second.
fn captured(selection: Vec<String>) -> Capture {
    let parent = TempDir::new().expect("a temporary directory");
    let output = attach(parent.path(), &for_half_a_second(selection)).output();
    Capture::in_directory(parent, output.expect("rpcprobe runs")).succeeded()
}

/// Checks the laws, and gives the requests that are not cut by the capture's begin or end; those must
/// all be complete.
fn whole(capture: &Capture) -> (Manifest, Requests) {
    let manifest = capture.manifest();
    assert_eq!(manifest.losses, [], "nothing lost");
    assert_eq!(manifest.warnings, []);
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

/// Fails unless every request that a client has logged within the capture was found, once, within
/// the times of the log; how many those are.
fn compare(load: &Load, manifest: &Manifest, requests: &Requests) -> usize {
    let end_ns = manifest.start_ns + manifest.duration_ns;
    let mut found: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    let logged = load.logged();
    let mut of_nobody = 0;
    for (request, _) in requests {
        // Asked before the capture, answered in it, and the answer not read by its end: of the client
        // nothing was seen.
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
        // Some machines have threads under which no hook runs: then a wake-up can be missing.
        assert!(unexplained * 1000 <= requests.len(), "{arguments}: {unexplained}");
        let unattributed = share_of(Category::Unattributed, &requests);
        assert!(unattributed < 0.02, "{arguments}: {unattributed}");
        let attached = manifest.command.attached.expect("attached");
        assert_eq!(attached.processes.len(), pids.len());
        assert!(attached.threads >= pids.len() as u64);
    }
}

/// frpc -m 3 with its input from a program that writes a line every so often.
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
        // frpc keeps its log in memory for a while.
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

/// What looks like frames in mid-connection has also to follow their rules.
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

/// Ordinary protocols on connections that are older than the capture.
#[test]
fn ordinary_streams_are_turns() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::start(1, |log| {
        let mut command = Command::new("python3");
        command.args([&peer("streams_pair.py"), "loop"]).arg(log);
        command
    });
    let (_, requests) = whole(&captured(by_pid(&load.pids())));
    let others =
        requests.iter().find(|(request, _)| !matches!(request.kind, Kind::Tcp | Kind::Unix));
    assert_eq!(others, None);
    assert!(requests.len() > 1000, "{}", requests.len());
}

/// In mid-connection the tables of header compression are not known: a method may be unknown, not wrong.
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
        // All streams of a client's connection have odd numbers, one after the other.
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
        // Those at the edges are cut at other places than the clients see.
        assert!(missing <= 4, "{transport}: {} of {expected}", requests.len());
        let idle = share_of(Category::IdlePeer, &requests);
        assert!(idle < 0.01, "{transport}: {idle}");

        let (manifest, requests) = whole(&captured(by_pid(clients)));
        assert!(requests.iter().all(|(request, _)| request.server.is_none()), "{transport}");
        compare(&load, &manifest, &requests);
        assert!(share_of(Category::IdlePeer, &requests) > 0.01, "{transport}");
    }
}

/// Requests logged within the capture.
fn within(load: &Load, manifest: &Manifest) -> usize {
    let end_ns = manifest.start_ns + manifest.duration_ns;
    let inside = |times: &&(u64, u64)| times.0 >= manifest.start_ns && times.1 <= end_ns;
    load.logged().values().flatten().filter(inside).count()
}

/// A copy of the echo program under a name that nobody else has.
fn echo_called(name: &str, directory: &Path, arguments: &str) -> Load {
    let program = directory.join(name);
    // By another process, as in common::directory_of_nobody().
    assert!(Command::new("cp").arg(echo()).arg(&program).status().expect("cp").success());
    Load::start(1, |log| {
        let mut command = Command::new(&program);
        command.args(arguments.split_whitespace()).args(["-n", "10000000", "--log"]).arg(log);
        command
    })
}

fn pids_of(manifest: &Manifest) -> Vec<u32> {
    let attached = manifest.command.attached.as_ref().expect("attached");
    attached.processes.iter().map(|process| process.pid).collect()
}

#[test]
fn programs_are_found_by_name_port_and_cgroup() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = TempDir::new().expect("a temporary directory");
    let name = "attach-by-name";
    let load = echo_called(name, directory.path(), "-t tcp -c 2");
    let mut pids = load.pids();
    pids.sort_unstable();
    let found = |option: &str, value: &str, expected: &[u32]| {
        let capture = captured(vec![option.into(), value.into()]);
        let (manifest, requests) = whole(&capture);
        assert_eq!(pids_of(&manifest), expected, "{option} {value}");
        assert!(compare(&load, &manifest, &requests) > 50, "{option} {value}");
        assert_eq!(manifest.command.argv, ["attach", option, value]);
        assert!(capture.report().starts_with(&format!("attach {option} {value} (")));
    };
    found("--comm", name, &pids);

    let port = {
        let sockets = fs::read_to_string(format!("/proc/{}/net/tcp", pids[1])).expect("sockets");
        let inodes: Vec<_> = fs::read_dir(format!("/proc/{}/fd", pids[1]))
            .expect("descriptors")
            .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .collect();
        let listens = |words: &[&str]| {
            let socket = PathBuf::from(format!("socket:[{}]", words[9]));
            words[3] == "0A" && inodes.contains(&socket)
        };
        let mut lines =
            sockets.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|words| listens(words)).expect("a listener");
        let (_, port) = line[1].split_once(':').expect("address and port");
        u16::from_str_radix(port, 16).expect("a port")
    };
    // The first process holds the listening socket, too.
    found("--port", &port.to_string(), &pids);

    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mut mounts = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let Some(mount) = mounts.find(|mount| mount[2] == "cgroup2") else {
        println!("skipped: no cgroup version 2");
        return;
    };
    let group = PathBuf::from(mount[1]).join(format!("rpcprobe-test-{}", std::process::id()));
    let inner = group.join("inner");
    fs::create_dir_all(&inner).expect("a cgroup");
    for pid in &pids {
        fs::write(inner.join("cgroup.procs"), pid.to_string()).expect("moved");
    }
    found("--cgroup", group.to_str().expect("UTF-8"), &pids);
    found("--cgroup", &format!("/{}", group.file_name().unwrap().to_str().unwrap()), &pids);
    drop(load);
    until("the cgroup is empty", || fs::remove_dir(&inner).is_ok());
    let _ = fs::remove_dir(&group);
}

#[test]
fn what_cannot_be_attached_to_is_told_in_one_line() {
    let Some(_turn) = needs_kernel() else { return };
    let directory = TempDir::new().expect("a temporary directory");
    let refused = |arguments: &[&str], words: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let output = attach(directory.path(), &arguments).output().expect("rpcprobe runs");
        assert_refused(&output, 1, words);
        assert!(!directory.path().join(NAME).exists(), "{arguments:?}");
    };
    refused(&["--pid", "4194303"], &["4194303"]);
    refused(&["--pid", "2"], &["2", "kernel"]);
    refused(&["--comm", "nobody-is-called-so"], &["nobody-is-called-so"]);
    refused(&["--port", "1"], &["port 1"]);
    refused(&["--cgroup", "/nobody/is/there"], &["/nobody/is/there"]);
    // One that is not there is an error also where another is.
    let me = std::process::id().to_string();
    refused(&["--pid", &me, "--comm", "nobody-is-called-so"], &["nobody-is-called-so"]);

    let nothing = attach(directory.path(), &[]).output().expect("rpcprobe runs");
    assert_eq!(nothing.status.code(), Some(2), "{}", text(&nothing.stderr));
    let (directory, program) = directory_of_nobody();
    let output = directory.path().join("capture");
    let mut command =
        as_nobody(&program, &["attach", "--pid", "1", "-o", output.to_str().expect("UTF-8")]);
    assert_refused(&command.output().expect("rpcprobe runs"), 1, &["root"]);
}

/// What /proc says of a process, but for what changes by itself.
fn trace_of(pid: u32) -> Vec<String> {
    let mut told = Vec::new();
    for list in ["fd", "task", "map_files"] {
        let entries = fs::read_dir(format!("/proc/{pid}/{list}")).expect("the process lives");
        let mut names: Vec<_> = entries
            .map(|entry| {
                let path = entry.expect("an entry").path();
                format!("{} {:?}", path.display(), fs::read_link(&path).ok())
            })
            .collect();
        names.sort_unstable();
        told.extend(names);
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    // SigQ counts the signals of all its user's processes.
    let varying = ["State", "Vm", "Rss", "SigQ", "voluntary_", "nonvoluntary_", "Cpus_"];
    let lines = status.lines().filter(|line| !varying.iter().any(|v| line.starts_with(v)));
    told.extend(lines.map(str::to_string));
    told
}

#[test]
fn the_target_keeps_no_trace_and_ends_neither_with_nor_by_us() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::echo("-t unix -c 2");
    let pids = load.pids();
    let before: Vec<_> = pids.iter().map(|pid| trace_of(*pid)).collect();
    // Until a signal comes.
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let parent = TempDir::new().expect("a temporary directory");
        let mut child = attach(parent.path(), &by_pid(&pids));
        let child = child.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let events = parent.path().join(NAME).join("events.bin");
        until("the capture runs", || fs::metadata(&events).is_ok_and(|file| file.len() > 1 << 20));
        kill(child.id() as i32, signal);
        let output = child.wait_with_output().expect("rpcprobe ends");
        let capture = Capture::in_directory(parent, output).succeeded();
        let (manifest, requests) = whole(&capture);
        assert!(compare(&load, &manifest, &requests) > 50);
        assert_eq!(manifest.command.attached.expect("attached").ended, "by a signal");
    }
    let after: Vec<_> = pids.iter().map(|pid| trace_of(*pid)).collect();
    assert_eq!(before, after);
    let logged = |load: &Load| load.logged().values().map(Vec::len).sum::<usize>();
    let count = logged(&load);
    until("they go on", || logged(&load) > count + 50);
}

#[test]
fn a_capture_ends_with_the_last_process() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::echo("-t tcp -c 2");
    let clients = load.pids()[2..].to_vec();
    let parent = TempDir::new().expect("a temporary directory");
    let mut child = attach(parent.path(), &by_pid(&clients));
    let child = child.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let events = parent.path().join(NAME).join("events.bin");
    until("the capture runs", || fs::metadata(&events).is_ok_and(|file| file.len() > 1 << 20));
    for client in clients {
        kill(client as i32, libc::SIGKILL);
    }
    let output = child.wait_with_output().expect("rpcprobe ends");
    let capture = Capture::in_directory(parent, output).succeeded();
    let manifest = capture.manifest();
    capture.checked();
    assert_eq!(manifest.command.attached.expect("attached").ended, "with the last process");
}

#[test]
fn two_captures_at_once_do_not_mind_each_other() {
    let Some(_turn) = needs_kernel() else { return };
    let load = Load::echo("-t unix -c 2");
    let arguments = for_half_a_second(by_pid(&load.pids()));
    let start = || {
        let parent = TempDir::new().expect("a temporary directory");
        let mut child = attach(parent.path(), &arguments);
        let child = child.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        (parent, child)
    };
    let both = [start(), start()];
    for (parent, child) in both {
        let output = child.wait_with_output().expect("rpcprobe ends");
        let capture = Capture::in_directory(parent, output).succeeded();
        let (manifest, requests) = whole(&capture);
        assert!(compare(&load, &manifest, &requests) > 50);
    }
}

/// A script at work with its children; it does something when it is told to. Killed when dropped.
struct Script {
    child: Child,
}

impl Script {
    fn start(script: &str) -> Script {
        let mut command = Command::new("python3");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut script = Script { child: command.spawn().expect("python3 starts") };
        script.hear("ready");
        script
    }

    fn hear(&mut self, expected: &str) {
        let stdout = self.child.stdout.as_mut().expect("piped");
        assert_eq!(line(stdout), expected);
    }

    /// Captures the script and its child, tells it to go on when that has begun, and waits until it
    /// has done what it then does.
    fn captured(&mut self) -> Capture {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let mut pids = vec![pid];
        pids.extend(
            children.expect("it lives").split_whitespace().map(|p| p.parse::<u32>().unwrap()),
        );
        let parent = TempDir::new().expect("a temporary directory");
        let mut attach = rpcprobe(["attach", "-o"]);
        attach.arg(parent.path().join(NAME)).args(by_pid(&pids)).stderr(Stdio::piped());
        let mut attach = attach.spawn().expect("rpcprobe starts");
        let stderr = attach.stderr.as_mut().expect("piped");
        let said = hear_attached(stderr);
        assert!(said.starts_with("rpcprobe: attached (processes: 2, threads: "), "{said}");
        writeln!(self.child.stdin.as_mut().expect("piped"), "go").expect("it reads");
        self.hear("done");
        kill(attach.id() as i32, libc::SIGINT);
        let output = attach.wait_with_output().expect("rpcprobe ends");
        Capture::in_directory(parent, output).succeeded()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        kill(-(self.child.id() as i32), libc::SIGKILL);
        let _ = self.child.wait();
    }
}

/// The child has threads that wait in accept, in recv, in epoll and for work of another thread; its
/// parent asks each of them.
const BLOCKED: &str = r#"
import os, queue, select, socket, sys, threading
listener = socket.create_server(('127.0.0.1', 0))
address = listener.getsockname()
asked = socket.create_connection(address); answers, _ = listener.accept()
polled = socket.create_connection(address); polls, _ = listener.accept()
if os.fork() == 0:
    asked.close(); polled.close()
    def serve(connection):
        while data := connection.recv(100): connection.sendall(data)
    jobs = queue.SimpleQueue()
    def work():
        while True:
            connection, data = jobs.get(); connection.sendall(data)
    def poll():
        poller = select.epoll(); poller.register(polls, select.EPOLLIN)
        while True:
            poller.poll()
            jobs.put((polls, polls.recv(100)))
    for target, arguments in [(serve, (answers,)), (work, ()), (poll, ())]:
        threading.Thread(target=target, args=arguments, daemon=True).start()
    while True: serve(listener.accept()[0])
answers.close(); polls.close(); listener.close()
print('ready', flush=True)
sys.stdin.readline()
def ask(connection):
    connection.sendall(b'x' * 50)
    assert len(connection.recv(100)) == 50
for _ in range(5): ask(asked); ask(polled)
new = socket.create_connection(address)
for _ in range(5): ask(new)
print('done', flush=True)
sys.stdin.readline()
"#;

#[test]
fn the_first_request_to_threads_that_wait_is_explained() {
    let Some(_turn) = needs_kernel() else { return };
    // Some machines have threads under which no hook runs: then the capture is made again.
    let all_there = |_| {
        let mut script = Script::start(BLOCKED);
        let (manifest, requests) = whole(&script.captured());
        (manifest.counts.switches_missed == 0).then_some(requests)
    };
    let requests = (0..5).find_map(all_there).expect("a capture with all context switches");
    let requests: Requests =
        requests.into_iter().filter(|(request, _)| request.kind == Kind::Tcp).collect();
    assert_eq!(requests.len(), 15, "{requests:?}");
    let mut by_connection: HashMap<_, usize> = HashMap::new();
    for (request, segments) in &requests {
        assert_eq!((request.request_bytes, request.response_bytes), (Some(50), Some(50)));
        let server = request.server.as_ref().expect("both").pid;
        assert!(segments.iter().any(|segment| segment.pid == server), "{segments:?}");
        *by_connection.entry(request.channel.clone()).or_default() += 1;
    }
    assert_eq!(by_connection.into_values().collect::<Vec<_>>(), [5, 5, 5]);
    // What one thread gives another in memory, while both are awake, leaves no trace.
    let in_memory = |segment: &Segment| {
        segment.detail.as_deref() == Some("nothing shows how the request reached this thread")
    };
    let segments = requests.iter().flat_map(|(_, segments)| segments);
    let unexplained: Vec<_> = segments
        .filter(|segment| segment.category == Category::Unattributed && !in_memory(segment))
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}

/// Ten messages have been written when the capture begins, some of them have been read, none has
/// been answered; then twenty are asked one by one.
const IN_FLIGHT: &str = r#"
import os, socket, sys, time
def pipes():
    (a, b), (c, d) = os.pipe(), os.pipe()
    def end(mine, others):
        for other in others: os.close(other)
        return lambda n: os.read(mine[0], n), lambda m: os.write(mine[1], m)
    return lambda: end((a, d), (b, c)), lambda: end((c, b), (a, d))
def sockets():
    a, b = socket.socketpair()
    def end(mine, other):
        other.close()
        return mine.recv, mine.sendall
    return lambda: end(a, b), lambda: end(b, a)
server, client = TRANSPORT()
go, tell = os.pipe()
def take(read, n):
    while n > 0: n -= len(read(n))
if os.fork() == 0:
    read, write = server()
    take(read, 250) # two and a half
    os.read(go, 1)
    take(read, 750)
    for _ in range(10): write(b'y' * 30)
    while True:
        take(read, 60); write(b'y' * 30)
read, write = client()
for _ in range(10): write(b'x' * 100)
time.sleep(0.05)
print('ready', flush=True)
sys.stdin.readline()
os.write(tell, b'g')
take(read, 300)
for _ in range(20):
    write(b'x' * 60); take(read, 30)
print('done', flush=True)
sys.stdin.readline()
"#;

#[test]
fn bytes_on_their_way_at_the_begin_confuse_nobody() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("pipes", Kind::Pipe), ("sockets", Kind::Unix)] {
        let mut script = Script::start(&IN_FLIGHT.replace("TRANSPORT", transport));
        let (_, requests) = whole(&script.captured());
        let asked: Vec<_> = requests
            .iter()
            .filter(|(request, _)| request.kind == kind)
            .filter(|(request, _)| request.request_bytes == Some(60))
            .collect();
        assert_eq!(asked.len(), 20, "{transport}: {requests:?}");
        for (request, segments) in asked {
            assert_eq!(request.response_bytes, Some(30), "{transport}: {request:?}");
            let server = request.server.as_ref().expect("both").pid;
            assert_ne!(request.client.as_ref().expect("both").pid, server);
            assert!(segments.iter().any(|segment| segment.pid == server), "{segments:?}");
        }
    }
}

#[test]
fn redis_is_found_by_its_port() {
    let Some(_turn) = needs_kernel() else { return };
    let there = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !there("redis-server") || !there("redis-benchmark") {
        println!("skipped: no redis here");
        return;
    }
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port().to_string()
    };
    let directory = TempDir::new().expect("a temporary directory");
    let start = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(["-p", &port]).args(arguments).current_dir(directory.path());
        if program == "redis-server" {
            command = Command::new(program);
            command.args(["--port", &port, "--save", "", "--bind", "127.0.0.1"]);
            command.current_dir(directory.path());
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Script { child: command.process_group(0).spawn().expect("redis starts") }
    };
    let server = start("redis-server", &[]);
    let address = format!("127.0.0.1:{port}");
    until("redis listens", || std::net::TcpStream::connect(&address).is_ok());
    let clients = start("redis-benchmark", &["-l", "-t", "set,get", "-c", "4", "-n", "100000"]);
    std::thread::sleep(std::time::Duration::from_millis(300)); // into its work
    let capture = captured(vec!["--port".into(), port.clone()]);
    let (manifest, requests) = whole(&capture);
    let mut pids = [server.child.id(), clients.child.id()];
    pids.sort_unstable();
    assert_eq!(pids_of(&manifest), pids);
    assert!(requests.len() > 100, "{}", requests.len());
    for (request, _) in &requests {
        assert_eq!(request.kind, Kind::Resp);
        assert_eq!(request.server.as_ref().expect("both").pid, server.child.id());
        assert_eq!(request.client.as_ref().expect("both").pid, clients.child.id());
    }
}
