//! Which end of a connection makes the requests, where that is not the end that writes first.

mod common;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use common::capture::{Capture, NAME};
use common::process::Talking;
use common::{needs_kernel, python, rpcprobe};
use rpcprobe::model::{Certainty, Kind, Request};
use tempfile::TempDir;

/// A server that greets each client and takes 5 ms for an answer, with one thread per connection. Eight client threads
/// send 20 requests each, with pauses of 10 ms. Prints the server's process id.
const GREETS: &str = r#"
import os, socket, sys, threading, time

if sys.argv[1] == "unix":
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0rpcprobe-greets-%d" % os.getpid())
    listener.listen(64)
else:
    listener = socket.create_server(("127.0.0.1", 0))

def serve(connection):
    connection.sendall(b"220 ready\r\n")
    while question := connection.recv(1000):
        time.sleep(0.005)
        connection.sendall(b"250 " + question)

server = os.fork()
if server == 0:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,)).start()

def ask():
    connection = socket.socket(listener.family)
    connection.connect(listener.getsockname())
    connection.recv(100)
    for number in range(20):
        connection.sendall(b"%d\r\n" % number)
        connection.recv(1000)
        time.sleep(0.01)

clients = [threading.Thread(target=ask) for _ in range(8)]
for client in clients:
    client.start()
for client in clients:
    client.join()
os.kill(server, 9)
print(server)
"#;

#[test]
fn a_server_that_greets_is_asked_all_the_same() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("tcp", Kind::Tcp), ("unix", Kind::Unix)] {
        let command = ["python3", "-c", GREETS, transport];
        let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
        let server: u32 = common::text(&capture.output.stdout).trim().parse().expect("a number");
        let requests = capture.checked();
        let turns = requests.iter().filter(|(request, _)| request.kind == kind);
        let turns: Vec<_> = turns.collect();
        assert_eq!(turns.len(), 8 * 20, "{transport}: {turns:#?}");
        for (request, _) in turns {
            let served = request.server.as_ref().map(|end| end.pid);
            assert_eq!((served, request.complete), (Some(server), true), "{request:#?}");
            // Requests are "0\r\n" to "19\r\n", and answers are the same after "250 ".
            let asked_bytes = request.request_bytes.expect("both ends are traced");
            assert!((3..=4).contains(&asked_bytes), "{request:#?}");
            assert_eq!(request.response_bytes, Some(4 + asked_bytes), "{request:#?}");
            assert!(request.latency_ns >= 5_000_000, "{request:#?}");
        }
    }
}

/// A datagram server that answers each datagram 4 ms after it arrived, with many in progress. `registered`: on a port
/// below the range that the kernel assigns, otherwise on a port of this range. Eight clients in one process send as
/// fast as they are answered. Prints the process ids of server and clients.
const BUSY: &str = r#"
import heapq, os, select, socket, sys, threading, time

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "registered":
    for port in range(21000, 32000):
        try:
            server.bind(("127.0.0.1", port))
            break
        except OSError:
            pass
else:
    server.bind(("127.0.0.1", 0))

def ask():
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    while True:
        client.send(b"question")
        client.recv(100)

clients = os.fork()
if clients == 0:
    for _ in range(8):
        threading.Thread(target=ask).start()
    threading.Event().wait()

def serve():
    due = []
    while True:
        rest = max(0, due[0][0] - time.monotonic()) if due else None
        if select.select([server], [], [], rest)[0]:
            question, client = server.recvfrom(100)
            heapq.heappush(due, (time.monotonic() + 0.004, client))
        while due and due[0][0] <= time.monotonic():
            server.sendto(b"answer", heapq.heappop(due)[1])

threading.Thread(target=serve, daemon=True).start()
time.sleep(0.3)
print(os.getpid(), clients, flush=True)
sys.stdin.read()
os.kill(clients, 9)
"#;

/// Captures the processes for half a second.
fn attached(pids: &[&str]) -> Vec<Request> {
    let parent = TempDir::new().expect("a temporary directory");
    let mut attach = rpcprobe(["attach", "-d", "500ms", "-o"]);
    attach.arg(parent.path().join(NAME));
    attach.args(pids.iter().flat_map(|pid| ["--pid", pid]));
    let output = attach.output().expect("rpcprobe runs");
    let capture = Capture::in_directory(parent, output).succeeded();
    capture.checked().into_iter().map(|(request, _)| request).collect()
}

/// When `attach` starts, requests are in flight, so the first datagram of most flows is an answer. Client and server
/// must be told apart all the same.
#[test]
fn a_busy_server_of_datagrams_is_asked_whatever_is_seen_first() {
    let Some(_turn) = needs_kernel() else { return };
    for port in ["registered", "ephemeral"] {
        let mut program = Command::new(python());
        program.args(["-c", BUSY, port]);
        let mut program = Talking::to(program);
        let said = program.hear();
        let (server, clients) = said.split_once(' ').expect("two numbers");
        for traced in [&[server][..], &[clients], &[server, clients]] {
            let requests = attached(traced);
            let complete = requests.iter().filter(|request| request.complete);
            let (mut right, mut guessed) = (0, 0);
            for request in complete.filter(|request| request.kind == Kind::Udp) {
                let pid = |end: &Option<rpcprobe::model::End>| {
                    end.as_ref().map(|end| end.pid.to_string())
                };
                let of = |pid: &str| traced.contains(&pid).then(|| pid.to_string());
                let is_right =
                    (pid(&request.client), pid(&request.server)) == (of(clients), of(server));
                if request.certainty == Certainty::Guessed {
                    guessed += 1;
                    continue;
                }
                assert!(is_right, "{port} {traced:?}: {request:#?}");
                assert_eq!((request.request_bytes, request.response_bytes), (Some(8), Some(6)));
                assert!(request.latency_ns >= 3_500_000, "{request:#?}");
                right += 1;
            }
            assert!(right > 100, "{port} {traced:?}: {right}, {guessed} guessed");
            // As long as the server seems to have only one peer, nothing shows which end is the server.
            let most = if port == "registered" { 0 } else { 8 };
            assert!(guessed <= most, "{port} {traced:?}: {guessed}");
        }
        program.end();
    }
}

/// A server that reads the request and forks a child, which answers after 5 ms. `serve` prints its port and runs until
/// its input ends; `ask PORT` sends 20 requests, each on its own connection; `both` does both.
const FORKS: &str = r#"
import os, socket, sys, threading, time

def serve(listener):
    while True:
        connection, _ = listener.accept()
        question = connection.recv(1000)
        child = os.fork()
        if child == 0:
            time.sleep(0.005)
            connection.sendall(b"250 " + question)
            os._exit(0)
        os.waitpid(child, 0)
        connection.close()

def ask(port):
    for number in range(20):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(b"%d\r\n" % number)
        connection.recv(1000)
        connection.close()

if sys.argv[1] == "ask":
    ask(int(sys.argv[2]))
    sys.exit()
listener = socket.create_server(("127.0.0.1", 0))
if sys.argv[1] == "serve":
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
else:
    server = os.fork()
    if server == 0:
        serve(listener)
    ask(listener.getsockname()[1])
    os.kill(server, 9)
"#;

/// Checks the twenty requests found. `both`: whether both ends were traced.
fn check_forks(capture: Capture, both: bool) {
    let requests = capture.succeeded().checked();
    let turns: Vec<_> = requests.iter().filter(|(request, _)| request.kind == Kind::Tcp).collect();
    assert_eq!(turns.len(), 20, "{turns:#?}");
    for (request, segments) in turns {
        assert!(request.complete, "{request:#?}");
        assert_eq!(request.client.is_some(), both, "{request:#?}");
        assert_eq!(request.certainty, Certainty::Likely, "{request:#?}");
        assert!(request.latency_ns >= 5_000_000, "{request:#?}");
        let mut slept: BTreeMap<_, u64> = BTreeMap::new();
        for segment in segments {
            *slept.entry(segment.category.name()).or_default() += segment.duration_ns;
        }
        assert!(slept["sleep"] >= 4_500_000, "{slept:?}");
        assert!(slept.contains_key("kernel.exec"), "the fork: {slept:?}");
        assert_eq!(slept.get("unattributed"), None, "{segments:#?}");
    }
}

#[test]
fn what_a_forked_child_answers_is_a_request() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&[], &[python(), "-c", FORKS, "both"], Stdio::null());
    check_forks(capture, true);

    let parent = TempDir::new().expect("a temporary directory");
    let serve = [python(), "-c", FORKS, "serve"];
    let mut server = Talking::to(common::capture::run(parent.path(), &[], &serve));
    let port = server.hear();
    let client = Command::new(python()).args(["-c", FORKS, "ask", &port]).status();
    assert!(client.expect("the client runs").success());
    check_forks(Capture::in_directory(parent, server.end()), false);
}
