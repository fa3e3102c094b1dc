//! Requests with only one end traced, compared with the client's own counts: their methods are known all the same.

mod common;

use std::collections::BTreeMap;
use std::io::BufReader;
use std::process::{Command, Stdio};

use common::capture::{run, time_in, Capture, NAME};
use common::process::{hear_attached, kill, Talking};
use common::{needs_kernel, peer, python, rpcprobe, text};
use rpcprobe::model::{Category, Kind, Reason, Request, Who};
use tempfile::TempDir;

#[derive(Debug, Clone, Copy)]
enum Traced {
    Client,
    Server,
    /// The server, by `attach` before the connection exists.
    ServerAttached,
}

/// A program of `tests/peers` that runs as a server alone (`serve ...`) or as a client alone (`ask PORT ...`).
struct Pair {
    script: String,
    kind: Kind,
    /// Further arguments of the server.
    serving: Vec<&'static str>,
}

impl Pair {
    fn new(script: &str, kind: Kind) -> Pair {
        Pair { script: peer(script), kind, serving: Vec::new() }
    }

    fn serve(&self) -> Vec<&str> {
        [&[python(), &self.script, "serve"], &self.serving[..]].concat()
    }

    /// Runs both ends, and checks that the requests found match the client's counts, name by name.
    fn check(&self, traced: Traced, arguments: &[&str]) -> Vec<Request> {
        let parent = TempDir::new().expect("a temporary directory");
        let (capture, said) = match traced {
            Traced::Client => self.client(parent, arguments),
            Traced::Server => self.server(parent, arguments),
            Traced::ServerAttached => self.server_attached(parent, arguments),
        };
        let requests = capture.succeeded().checked().into_iter().map(|(request, _)| request);
        let requests: Vec<_> = requests.filter(|request| request.kind == self.kind).collect();
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        for request in &requests {
            assert!(request.complete, "{traced:?}: {request:?}");
            *found.entry(request.method.as_deref().unwrap_or("?")).or_default() += 1;
        }
        let counted = said.lines().filter_map(|line| line.rsplit_once(' '));
        let counted: BTreeMap<&str, usize> =
            counted.map(|(name, count)| (name, count.parse().expect("a count"))).collect();
        assert_eq!(found, counted, "{traced:?} {arguments:?}");
        requests
    }

    fn ask(&self, port: &str, arguments: &[&str]) -> String {
        let mut client = Command::new(python());
        let output = client.args([&self.script, "ask", port]).args(arguments).output();
        let output = output.expect("the client runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    fn client(&self, parent: TempDir, arguments: &[&str]) -> (Capture, String) {
        let mut server = Command::new(python());
        server.args(&self.serve()[1..]);
        let mut server = Talking::to(server);
        let port = server.hear();
        let command = [&[python(), &self.script, "ask", &port], arguments].concat();
        let output = run(parent.path(), &[], &command).output().expect("rpcprobe runs");
        server.end();
        let said = text(&output.stdout);
        (Capture::in_directory(parent, output), said)
    }

    fn server(&self, parent: TempDir, arguments: &[&str]) -> (Capture, String) {
        let mut server = Talking::to(run(parent.path(), &[], &self.serve()));
        let said = self.ask(&server.hear(), arguments);
        (Capture::in_directory(parent, server.end()), said)
    }

    fn server_attached(&self, parent: TempDir, arguments: &[&str]) -> (Capture, String) {
        let mut server = Command::new(python());
        server.args(&self.serve()[1..]);
        let mut server = Talking::to(server);
        let port = server.hear();
        let mut attach = rpcprobe(["attach", "--pid", &server.pid().to_string(), "-o"]);
        attach.arg(parent.path().join(NAME)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut attach = attach.spawn().expect("rpcprobe starts");
        let mut stderr = BufReader::new(attach.stderr.take().expect("piped"));
        hear_attached(&mut stderr);
        let said = self.ask(&port, arguments);
        kill(attach.id() as i32, libc::SIGTERM);
        // `attach` may print more before it ends.
        std::io::copy(&mut stderr, &mut std::io::sink()).expect("text");
        let output = attach.wait_with_output().expect("rpcprobe ends");
        server.end();
        (Capture::in_directory(parent, output), said)
    }
}

const ALL: [Traced; 3] = [Traced::Client, Traced::Server, Traced::ServerAttached];

#[test]
fn grpc_calls_have_names_and_results() {
    let Some(_turn) = needs_kernel() else { return };
    let pair = Pair::new("grpc_pair.py", Kind::Http2);
    for traced in ALL {
        for concurrency in ["1", "8"] {
            let requests = pair.check(traced, &["Unary", "200", concurrency, "10"]);
            assert!(requests.iter().all(|request| request.status == Some(0)), "{traced:?}");
        }
        let requests = pair.check(traced, &["Fail", "50", "4", "10"]);
        assert!(requests.iter().all(|request| request.status == Some(5)), "{traced:?}: NOT_FOUND");
    }
}

#[test]
fn redis_commands_have_names() {
    let Some(_turn) = needs_kernel() else { return };
    let pair = Pair::new("resp_pair.py", Kind::Resp);
    for traced in ALL {
        pair.check(traced, &["arrays", "30"]);
    }
    // This form is not tested with `attach`, which may see the middle of other data that only looks like it.
    for traced in [Traced::Client, Traced::Server] {
        pair.check(traced, &["lines", "30"]);
    }
}

/// A request whose connection ends before its answer ends then, and says which end was first. Where only one end is
/// traced, it shows what the other end did.
#[test]
fn requests_without_an_answer_say_who_closed_their_connections() {
    let Some(_turn) = needs_kernel() else { return };
    let pair = Pair::new("closes_pair.py", Kind::Http1);
    for traced in ALL {
        let parent = TempDir::new().expect("a temporary directory");
        let (capture, said) = match traced {
            Traced::Client => pair.client(parent, &[]),
            Traced::Server => pair.server(parent, &[]),
            Traced::ServerAttached => pair.server_attached(parent, &[]),
        };
        let of_client = matches!(traced, Traced::Client);
        let mut found = capture.succeeded().checked();
        found.retain(|(request, _)| request.kind == Kind::Http1);
        assert_eq!(found.len(), said.lines().count(), "{traced:?}: {found:#?}");
        for line in said.lines() {
            let (path, micros) = line.split_once(' ').expect("a path and a time");
            let method = format!("GET {path}");
            let of = |(request, _): &&(Request, _)| request.method.as_deref() == Some(&*method);
            let (request, _) = found.iter().find(of).expect("found");
            let closed = |who| Some(Reason::Closed { who });
            let expected = match path {
                "/gives-up" if of_client => closed(Who::Client),
                "/drops" | "/shuts-down" | "/resets" => closed(Who::Server),
                _ => None,
            };
            assert_eq!((&request.reason, request.complete), (&expected, expected.is_none()));
            // The server goes on with what its client has given up.
            let of_client_ns = 1000 * micros.parse::<u64>().expect("microseconds");
            let expected_ns = match path {
                "/gives-up" if !of_client => 250_000_000,
                _ => of_client_ns,
            };
            let differ_ns = request.latency_ns.abs_diff(expected_ns);
            assert!(differ_ns < 10_000_000, "{traced:?} {path}: {request:?}, {expected_ns} ns");
        }
    }
}

/// The time in which a request waits for a busy server is part of the request, as a queue, although the sending clients
/// are not traced.
fn busy_server(transport: &'static str, kind: Kind) {
    let Some(_turn) = needs_kernel() else { return };
    let pair = Pair { serving: vec![transport], ..Pair::new("busy_pair.py", kind) };
    for serve in [Pair::server, Pair::server_attached] {
        let parent = TempDir::new().expect("a temporary directory");
        let (capture, said) = serve(&pair, parent, &["4", "50", transport]);
        let mut requests = capture.succeeded().checked();
        requests.retain(|(request, _)| request.kind == kind);
        assert_eq!(requests.len(), 200);
        let all_ns: u64 = requests.iter().map(|(request, _)| request.latency_ns).sum();
        let mean_ns = all_ns as f64 / requests.len() as f64;
        let clients_ns: f64 = said.trim().parse().expect("nanoseconds");
        println!("{transport}: {mean_ns} of {clients_ns} ns");
        let most = if kind == Kind::Tcp { 1.0 } else { 1.05 };
        assert!((0.95..=most).contains(&(mean_ns / clients_ns)), "{mean_ns} of {clients_ns} ns");
        // Four clients send requests all the time, so three wait while one is served.
        let queued_ns: u64 =
            requests.iter().map(|(_, segments)| time_in(Category::QueueSocket, segments)).sum();
        let share = queued_ns as f64 / all_ns as f64;
        assert!((0.6..0.8).contains(&share), "{share}");
        let pieces: usize = requests.iter().map(|(_, segments)| segments.len()).sum();
        assert!(pieces < 40 * requests.len(), "{pieces} segments");
    }
}

#[test]
fn what_waits_for_a_busy_server_has_begun_when_it_arrived() {
    busy_server("tcp", Kind::Tcp);
}

#[test]
fn what_waits_for_a_busy_server_has_begun_when_it_arrived_over_unix_streams() {
    busy_server("unix", Kind::Unix);
}

#[test]
fn what_waits_for_a_busy_server_has_begun_when_it_arrived_in_unix_packets() {
    busy_server("seqpacket", Kind::Unix);
}

#[test]
fn what_waits_for_a_busy_server_has_begun_when_it_arrived_in_unix_datagrams() {
    busy_server("unixgram", Kind::Unix);
}

#[test]
fn what_waits_for_a_busy_server_has_begun_when_it_arrived_over_udp() {
    busy_server("udp", Kind::Udp);
}

/// A request in two packets, both before its connection is accepted: the arrival time of each packet is known.
#[test]
fn what_arrives_before_accept_is_told_packet_by_packet() {
    let server = "socket.create_server(('127.0.0.1', 0))";
    let client = "socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n\
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)";
    arrives_before_accept(server, "listener.getsockname()[1]", client, Kind::Tcp);
}

#[test]
fn what_arrives_before_accept_is_told_write_by_write() {
    let server = "socket.socket(socket.AF_UNIX)\n\
        name = f'early-{os.getpid()}'\n\
        listener.bind('\\0' + name); listener.listen()";
    let client = "socket.socket(socket.AF_UNIX)\n\
        c.connect('\\0' + sys.argv[1])";
    arrives_before_accept(server, "name", client, Kind::Unix);
}

/// `server`, `port`, `client`: Python code for the listener, its name, and a client connected to it.
fn arrives_before_accept(server: &str, port: &str, client: &str, kind: Kind) {
    let Some(_turn) = needs_kernel() else { return };
    let serve = format!(
        "import os, socket, sys, time\n\
        listener = {server}\n\
        print({port}, flush=True)\n\
        sys.stdin.readline()\n\
        c, _ = listener.accept()\n\
        assert len(c.recv(100)) == 4\n\
        c.sendall(b'yes')\n\
        c.recv(100)\n"
    );
    let ask = format!(
        "import socket, sys, time\n\
        c = {client}\n\
        c.sendall(b'ab'); time.sleep(0.03); c.sendall(b'cd'); time.sleep(0.05)\n\
        print('sent', flush=True)\n\
        c.recv(100)\n"
    );
    let parent = TempDir::new().expect("a temporary directory");
    let mut server = Talking::to(run(parent.path(), &[], &[python(), "-c", &serve]));
    let port = server.hear();
    let mut client = Command::new(python());
    client.args(["-c", &ask, &port]);
    let mut client = Talking::to(client);
    assert_eq!(client.hear(), "sent");
    server.say("go");
    client.end();
    let capture = Capture::in_directory(parent, server.end());
    let mut requests = capture.succeeded().checked();
    requests.retain(|(request, _)| request.kind == kind);
    let [(request, segments)] = &requests[..] else { panic!("{requests:?}") };
    assert!(request.complete && request.latency_ns >= 80_000_000, "{request:?}");
    let told = |category: Category, detail: &str| -> u64 {
        let of = |segment: &&rpcprobe::model::Segment| {
            segment.category == category
                && segment.detail.as_ref().is_some_and(|of| of.starts_with(detail))
        };
        segments.iter().filter(of).map(|segment| segment.duration_ns).sum()
    };
    let coming_ns = told(Category::IdlePeer, "the rest had not arrived");
    assert!(coming_ns >= 30_000_000, "{segments:?}");
    let waited_ns = told(Category::QueueAccept, "connected, not yet accepted");
    assert!(waited_ns >= 49_000_000, "{segments:?}");
}

/// Three requests arrive in three writes with other boundaries than the requests. The arrival time of each byte is
/// known, however many of the earlier bytes had been read by then.
#[test]
fn what_is_read_in_parts_has_arrived_in_writes() {
    let Some(_turn) = needs_kernel() else { return };
    let serve = "import os, socket, sys, time\n\
        listener = socket.socket(socket.AF_UNIX)\n\
        name = f'parts-{os.getpid()}'\n\
        listener.bind('\\0' + name); listener.listen()\n\
        print(name, flush=True)\n\
        c, _ = listener.accept()\n\
        assert c.recv(3) == b'abc'\n\
        c.sendall(b'1')\n\
        time.sleep(0.1)\n\
        assert c.recv(6) == b'defghi'\n\
        c.sendall(b'2')\n\
        assert c.recv(6, socket.MSG_WAITALL) == b'jklmno'\n\
        c.sendall(b'3')\n\
        c.recv(100)\n";
    let ask = "import socket, sys, time\n\
        c = socket.socket(socket.AF_UNIX)\n\
        c.connect('\\0' + sys.argv[1])\n\
        c.sendall(b'abcde'); time.sleep(0.04); c.sendall(b'fghij'); time.sleep(0.11); c.sendall(b'klmno')\n\
        c.recv(3, socket.MSG_WAITALL)\n";
    let parent = TempDir::new().expect("a temporary directory");
    let mut server = Talking::to(run(parent.path(), &[], &[python(), "-c", serve]));
    let port = server.hear();
    let mut client = Command::new(python());
    assert!(client.args(["-c", ask, &port]).status().expect("the client runs").success());
    let mut requests = Capture::in_directory(parent, server.end()).succeeded().checked();
    requests.retain(|(request, _)| request.kind == Kind::Unix);
    requests.sort_by_key(|(request, _)| request.request_id);
    let told: Vec<_> = requests
        .iter()
        .map(|(request, segments)| {
            let ms = |ns: u64| ns / 1_000_000;
            let idle_ns = time_in(Category::IdlePeer, segments);
            let queued_ns = time_in(Category::QueueSocket, segments);
            (request.request_bytes, ms(request.latency_ns), ms(idle_ns), ms(queued_ns))
        })
        .collect();
    let [first, second, third] = told[..] else { panic!("{told:?}") };
    let about =
        |ms: u64, wanted_ms: u64| (wanted_ms.saturating_sub(15)..wanted_ms + 15).contains(&ms);
    let is = |(bytes, all_ms, idle_ms, queued_ms): (Option<u64>, u64, u64, u64),
              wanted: [u64; 4]| {
        let times = [(all_ms, wanted[1]), (idle_ms, wanted[2]), (queued_ms, wanted[3])];
        bytes == Some(wanted[0]) && times.iter().all(|(ms, wanted_ms)| about(*ms, *wanted_ms))
    };
    assert!(is(first, [3, 0, 0, 0]), "{told:?}");
    // Its first two bytes arrived with the first request, the others 40 ms later. The server slept for 100 ms.
    assert!(is(second, [6, 100, 40, 60]), "{told:?}");
    // Its first byte arrived with the second request while the server slept, the others 110 ms later.
    assert!(is(third, [6, 110, 50, 0]), "{told:?}");
}

#[test]
fn an_answer_that_comes_while_the_first_question_is_written_is_told() {
    let listener = "socket.create_server(('127.0.0.1', 0))";
    let client = "socket.create_connection(('127.0.0.1', int(sys.argv[1])))";
    comes_early(listener, "listener.getsockname()[1]", client, Kind::Tcp);
}

#[test]
fn an_answer_that_comes_while_the_first_question_is_written_is_told_over_unix_streams() {
    let listener = "socket.socket(socket.AF_UNIX)\n\
        name = f'early-{os.getpid()}'\n\
        listener.bind('\\0' + name); listener.listen()";
    let client = "socket.socket(socket.AF_UNIX); c.connect('\\0' + sys.argv[1])";
    comes_early(listener, "name", client, Kind::Unix);
}

/// The answer arrives before all of the connection's first request is written. Its wait to be read counts from its
/// arrival, whatever the client does before reading it. `listener`, `port`, `client`: as for `arrives_before_accept()`.
fn comes_early(listener: &str, port: &str, client: &str, kind: Kind) {
    let Some(_turn) = needs_kernel() else { return };
    let serve = format!(
        "import os, socket, time\n\
        listener = {listener}\n\
        print({port}, flush=True)\n\
        c, _ = listener.accept()\n\
        c.recv(1)\n\
        c.sendall(b'ok')\n\
        time.sleep(0.05)\n\
        while c.recv(65536): pass\n"
    );
    // More than the socket buffers hold.
    let ask = format!(
        "import socket, sys, time\n\
        c = {client}\n\
        assert c.send(bytes(64 << 20)) == 64 << 20\n\
        time.sleep(0.05)\n\
        assert c.recv(2) == b'ok'\n"
    );
    let parent = TempDir::new().expect("a temporary directory");
    let mut server = Command::new(python());
    server.args(["-c", &serve]);
    let mut server = Talking::to(server);
    let port = server.hear();
    let output = run(parent.path(), &[], &[python(), "-c", &ask, &port]).output();
    server.end();
    let capture = Capture::in_directory(parent, output.expect("rpcprobe runs"));
    let mut requests = capture.succeeded().checked();
    requests.retain(|(request, _)| request.kind == kind);
    let [(request, segments)] = &requests[..] else { panic!("{requests:?}") };
    assert!(request.complete && request.request_bytes == Some(64 << 20), "{request:?}");
    let is_unread = |detail: &String| detail == "bytes ready, not yet read";
    let unread = segments.iter().filter(|of| of.detail.as_ref().is_some_and(is_unread));
    let unread_ns: u64 = unread.map(|of| of.duration_ns).sum();
    assert!(unread_ns >= 50_000_000, "{segments:?}");
}
