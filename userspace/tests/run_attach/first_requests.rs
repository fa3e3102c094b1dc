//! The first requests of a capture: to threads that were already waiting, and with bytes in flight.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use rpcprobe::model::{Category, Kind, Segment};
use tempfile::TempDir;

use crate::common::capture::{Capture, NAME};
use crate::common::process::{hear_attached, kill, line};
use crate::common::{needs_kernel, rpcprobe};
use crate::{by_pid, whole, Group, Requests};

/// A running script with its child process. It continues when it is told to.
struct Script(Group);

impl Script {
    fn start(script: &str) -> Script {
        let mut command = Command::new("python3");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = Script(Group::start(&mut command));
        script.hear("ready");
        script
    }

    fn hear(&mut self, expected: &str) {
        let stdout = self.0 .0.stdout.as_mut().expect("piped");
        assert_eq!(line(stdout), expected);
    }

    /// Attaches to the script and its child, tells the script to go on once `attach` reports that
    /// it is attached, and waits until the script says it is done.
    fn captured(&mut self) -> Capture {
        let pid = self.0.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let mut pids = vec![pid];
        pids.extend(
            children.expect("it lives").split_whitespace().map(|p| p.parse::<u32>().unwrap()),
        );
        let parent = TempDir::new().expect("a temporary directory");
        let mut attach = rpcprobe(["attach", "-o"]);
        attach.arg(parent.path().join(NAME)).args(by_pid(&pids));
        attach.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut attach = attach.spawn().expect("rpcprobe starts");
        let stderr = attach.stderr.as_mut().expect("piped");
        let said = hear_attached(stderr);
        assert!(said.starts_with("rpcprobe: attached (processes: 2, threads: "), "{said}");
        writeln!(self.0 .0.stdin.as_mut().expect("piped"), "go").expect("it reads");
        self.hear("done");
        kill(attach.id() as i32, libc::SIGINT);
        let output = attach.wait_with_output().expect("rpcprobe ends");
        Capture::in_directory(parent, output).succeeded()
    }
}

/// The child's threads block in accept(), recv(), epoll_wait(), and on a queue filled by another
/// thread. The parent sends requests to each of them.
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
    // On some machines no hook runs in certain threads. A capture with missed switches is repeated.
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
    // A hand-off through memory between two threads that are both awake leaves no record.
    let in_memory = |segment: &Segment| {
        segment.detail.as_deref() == Some("nothing shows how the request reached this thread")
    };
    let segments = requests.iter().flat_map(|(_, segments)| segments);
    let unexplained: Vec<_> = segments
        .filter(|segment| segment.category == Category::Unattributed && !in_memory(segment))
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}");
}

/// At the start of the capture ten messages have been written, two and a half have been read and
/// none has been answered. Afterwards twenty requests are sent one by one.
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
