//! Connections that are opened for one request or wait to be accepted, and all ways to move bytes through connections,
//! compared with the programs' own timestamps and counts.

mod common;

use std::process::Stdio;

use common::capture::{kinds, time_in, Capture};
use common::{echo, needs_kernel, peer, text};
use rpcprobe::capture::manifest::Warning;
use rpcprobe::model::{Category, Kind, Request, Segment};

type Requests = Vec<(Request, Vec<Segment>)>;

fn python(script: &str) -> Capture {
    Capture::of(&[], &["python3", "-c", script], Stdio::null()).succeeded()
}

/// The requests of this kind in order of time. All must be complete.
fn complete_of(capture: &Capture, kind: Kind) -> Requests {
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == kind);
    requests.sort_by_key(|(request, _)| request.start_ns);
    for (request, _) in &requests {
        assert!(request.complete, "{request:?}");
    }
    requests
}

fn mentions(segments: &[Segment], call: &str) -> bool {
    let names = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains(call));
    segments.iter().any(|segment| names(&segment.detail))
}

#[test]
fn a_connection_for_one_request_belongs_to_it() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("tcp", Kind::Tcp), ("tcp6", Kind::Tcp), ("unix", Kind::Unix)] {
        for server in ["", "-e"] {
            let arguments = format!("-t {transport} -p {server} -n 50 -c 2");
            let command: Vec<&str> = [echo()].into_iter().chain(arguments.split(' ')).collect();
            let command: Vec<&str> = command.into_iter().filter(|word| !word.is_empty()).collect();
            let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
            let requests = complete_of(&capture, kind);
            assert_eq!(kinds(&requests), [(kind, 100)].into(), "{arguments}");
            for (request, segments) in &requests {
                let sizes = (request.request_bytes, request.response_bytes);
                assert_eq!(sizes, (Some(104), Some(104)));
                let last = segments.last().expect("segments");
                assert!(mentions(std::slice::from_ref(last), "close"), "{segments:#?}");
                assert_eq!(Some(last.pid), request.client.as_ref().map(|client| client.pid));
            }
            let with_connect = requests.iter().filter(|(_, all)| mentions(all, "connect ")).count();
            assert!(with_connect >= 90, "{arguments}: {with_connect}");
        }
    }
}

/// A non-blocking connect() returns at once, and poll() reports the established connection. The connection still
/// belongs to its request.
#[test]
fn so_does_one_that_is_opened_without_waiting() {
    let Some(_turn) = needs_kernel() else { return };
    let command = ["python3", &peer("eager_pair.py"), "30"];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    let requests = complete_of(&capture, Kind::Tcp);
    assert_eq!(requests.len(), 30);
    for (_, segments) in &requests {
        let (first, last) = (&segments[..1], &segments[segments.len() - 1..]);
        assert!(mentions(first, "connect ") && mentions(last, "close"), "{segments:#?}");
    }
}

/// A client that uses the same port every time, and a server that closes first, so that the port is free again at once.
const SAME_PORT: &str = "
import os, socket, sys
question, answer, rounds = sys.argv[1].encode(), sys.argv[2].encode(), 30
s = socket.create_server(('127.0.0.1', 0))
to = s.getsockname()
if os.fork() == 0:
    for i in range(rounds):
        c, _ = s.accept()
        c.recv(100); c.sendall(answer); c.close()
    os._exit(0)
port = 0
for i in range(rounds):
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    c.bind(('127.0.0.1', port))
    c.connect(to)
    port = c.getsockname()[1]
    c.sendall(question); c.recv(100); c.recv(100); c.close()
os.wait()
";

/// Each new connection between the same ports starts at arbitrary sequence numbers. Its requests must be kept apart
/// from those of the earlier connections.
#[test]
fn connections_between_the_same_ports_are_told_apart() {
    let Some(_turn) = needs_kernel() else { return };
    let ping = "*1\r\n$4\r\nPING\r\n";
    for (question, answer, kind) in [("what", "that", Kind::Tcp), (ping, "+PONG\r\n", Kind::Resp)] {
        let command = ["python3", "-c", SAME_PORT, question, answer];
        let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
        let requests = complete_of(&capture, kind);
        assert_eq!(kinds(&requests), [(kind, 30)].into());
        for (request, segments) in &requests {
            let sizes = (request.request_bytes, request.response_bytes);
            assert_eq!(sizes, (Some(question.len() as u64), Some(answer.len() as u64)));
            // A turn begins with the opening of its connection.
            let opens = kind == Kind::Tcp;
            assert_eq!(mentions(segments, "connect tcp"), opens, "{segments:#?}");
        }
        let counts = &capture.manifest().counts;
        assert_eq!((counts.channels_forgotten, counts.framing_lost.len()), (0, 0));
    }
}

/// Client and server in one script. The client prints the start and end of each of its requests.
const STAMPED: &str = "
import os, socket, time
s = socket.create_server(('127.0.0.1', 0))
port = s.getsockname()[1]
if os.fork() == 0:
    for i in range(20):
        c, _ = s.accept(); c.sendall(c.recv(100)); c.close()
    os._exit(0)
for i in range(20):
    c = socket.socket()
    begin = time.monotonic_ns()
    c.connect(('127.0.0.1', port)); c.sendall(b'ask'); c.recv(100); c.close()
    print(begin, time.monotonic_ns())
os.wait()
";

#[test]
fn its_window_is_the_clients_own() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = python(STAMPED);
    let requests = complete_of(&capture, Kind::Tcp);
    let said = text(&capture.output.stdout);
    let stamps: Vec<Vec<u64>> = (said.lines())
        .map(|line| line.split(' ').map(|stamp| stamp.parse().expect("a stamp")).collect())
        .collect();
    assert_eq!((requests.len(), stamps.len()), (20, 20), "{requests:?}");
    for ((request, segments), stamps) in requests.iter().zip(&stamps) {
        let end_ns = request.start_ns + request.latency_ns;
        assert!(stamps[0] <= request.start_ns && end_ns <= stamps[1], "{request:?} {stamps:?}");
        assert!(mentions(segments, "connect tcp"), "{segments:#?}");
    }
}

#[test]
fn on_a_connection_that_lives_on_requests_begin_with_the_send() {
    let Some(_turn) = needs_kernel() else { return };
    for pause in ["time.sleep(0.01)", "c.sendall(b'again'); c.recv(100)"] {
        let script = format!(
            "
import os, socket, time
s = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    c, _ = s.accept()
    while d := c.recv(100): c.sendall(d)
    os._exit(0)
c = socket.socket(); c.connect(s.getsockname()); {pause}
c.sendall(b'ask'); c.recv(100); time.sleep(0.01); c.close()
os.wait()
"
        );
        let capture = python(&script);
        for (request, segments) in complete_of(&capture, Kind::Tcp) {
            assert!(request.latency_ns < 10_000_000 || !mentions(&segments, "clock_nanosleep"));
            assert!(!mentions(&segments, "connect tcp"), "{pause}: {segments:#?}");
            assert!(!mentions(&segments, "close"), "{pause}: {segments:#?}");
        }
    }
}

#[test]
fn requests_wait_for_their_connections_to_be_accepted() {
    let Some(_turn) = needs_kernel() else { return };
    for (make, kind) in [
        ("socket.create_server(('127.0.0.1', 0))", Kind::Tcp),
        (
            "socket.socket(socket.AF_UNIX); s.bind(chr(0) + str(os.getpid())); s.listen(9)",
            Kind::Unix,
        ),
    ] {
        // The server is busy for 10 ms after each request. The next request is sent at once and waits for it.
        let script = format!(
            "
import os, socket, time
s = {make}
if os.fork() == 0:
    for i in range(10):
        c, _ = s.accept(); c.sendall(c.recv(100)); time.sleep(0.01)
    os._exit(0)
for i in range(10):
    c = socket.socket(s.family); c.connect(s.getsockname()); c.sendall(b'ask'); c.recv(100); c.close()
os.wait()
"
        );
        let requests = complete_of(&python(&script), kind);
        assert_eq!(requests.len(), 10, "{requests:?}");
        let waited_ns: u64 =
            requests[1..].iter().map(|(_, all)| time_in(Category::QueueAccept, all)).sum();
        // On some machines no hook runs in certain threads, so a switch can be missing.
        assert!(waited_ns >= 6 * 9_500_000, "{requests:#?}");
    }
}

/// A server that echoes its input in the way `way` names. The client counts the bytes that come back.
fn moved_by(way: &str, bytes: usize) -> Requests {
    let script = format!(
        "
import os, socket, sys, array
a, b = socket.socketpair() if '{way}' in ('scm', 'dup') else (None, None)
s = socket.create_server(('127.0.0.1', 0))
N = {bytes}
def whole(c, n):
    got = b''
    while len(got) < n: got += c.recv(n - len(got))
    return got
if os.fork() == 0:
    c, _ = s.accept()
    r, w = os.pipe()
    for i in range(10):
        way = '{way}'
        if way == 'splice':
            left = N
            while left:
                n = os.splice(c.fileno(), w, left); left -= n
                while n: n -= os.splice(r, c.fileno(), n)
        elif way == 'peek':
            while len(c.recv(N, socket.MSG_PEEK)) < N: pass
            c.sendall(whole(c, N))
        elif way == 'sendfile':
            f = os.memfd_create('f'); os.write(f, whole(c, N))
            done = 0
            while done < N: done += os.sendfile(c.fileno(), f, done, N - done)
            os.close(f)
        elif way == 'dup':
            d = c.dup(); d.sendall(whole(c, N)); d.close()
        elif way == 'scm':
            socket.send_fds(a, [b'x'], [c.fileno()])
            _, fds, _, _ = socket.recv_fds(b, 1, 1)
            d = socket.socket(fileno=fds[0]); d.sendall(whole(d, N)); d.close()
        elif way == 'fork':
            if os.fork() == 0: c.sendall(whole(c, N)); os._exit(0)
            os.wait()
    os._exit(0)
c = socket.socket(); c.connect(s.getsockname())
got = 0
for i in range(10):
    c.sendall(b'x' * N); got += len(whole(c, N))
print(got)
os.wait()
"
    );
    let capture = python(&script);
    assert_eq!(text(&capture.output.stdout), format!("{}\n", 10 * bytes));
    complete_of(&capture, Kind::Tcp)
}

#[test]
fn bytes_are_counted_whichever_way_they_move() {
    let Some(_turn) = needs_kernel() else { return };
    for way in ["splice", "sendfile", "peek", "dup", "scm", "fork"] {
        let requests = moved_by(way, 5000);
        assert_eq!(requests.len(), 10, "{way}: {requests:#?}");
        for (request, _) in &requests {
            let sizes = (request.request_bytes, request.response_bytes);
            assert_eq!(sizes, (Some(5000), Some(5000)), "{way}");
            assert!(request.client.is_some() && request.server.is_some(), "{way}: {request:?}");
        }
    }
}

#[test]
fn pipes_are_counted_when_bytes_are_spliced() {
    let Some(_turn) = needs_kernel() else { return };
    // The client gives its pages away (vmsplice). The server tees each request to a log, which it reads itself, and
    // moves it from pipe to pipe.
    let script = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class Buffer(ctypes.Structure):
    _fields_ = [('base', ctypes.c_char_p), ('bytes', ctypes.c_size_t)]
page = Buffer(b'x' * 3000, 3000)
q, qw = os.pipe(); r, a = os.pipe(); log, logw = os.pipe()
if os.fork() == 0:
    for i in range(10):
        left = 3000
        while left:
            teed = libc.tee(q, logw, left, 0)
            assert teed > 0 and len(os.read(log, teed)) == teed
            while teed:
                moved = os.splice(q, a, teed)
                teed -= moved; left -= moved
    os._exit(0)
for i in range(10):
    assert libc.vmsplice(qw, ctypes.byref(page), 1, 0) == 3000
    got = 0
    while got < 3000: got += len(os.read(r, 3000 - got))
os.wait()
";
    let requests = complete_of(&python(script), Kind::Pipe);
    assert_eq!(requests.len(), 10, "{requests:#?}");
    for (request, _) in &requests {
        assert_eq!((request.request_bytes, request.response_bytes), (Some(3000), Some(3000)));
    }
}

#[test]
fn connections_may_end_in_any_way() {
    let Some(_turn) = needs_kernel() else { return };
    // Connections that are answered, answered with bytes left unread, reset, and used with out-of-band data in between.
    let script = "
import os, socket, struct
s = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    for way in range(4):
        c, _ = s.accept()
        try:
            while d := c.recv(100): c.sendall(d)
        except OSError: pass
        c.close()
    os._exit(0)
for way in range(4):
    c = socket.socket(); c.connect(s.getsockname())
    c.sendall(b'first'); c.recv(100)
    if way == 1: c.sendall(b'more'); c.recv(2)
    if way == 2: c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    if way == 3: c.send(b'!', socket.MSG_OOB); c.sendall(b'then'); c.recv(100)
    c.close()
os.wait()
";
    let capture = python(script);
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == Kind::Tcp);
    assert_eq!(requests.len(), 6, "{requests:#?}");
}

/// The server's end of a connection may come long after the client's, and after the first question: a connection to this
/// listener (TCP_DEFER_ACCEPT) exists from its first bytes on, and these are dropped as long as the queue is full.
#[test]
fn a_full_accept_queue_delays_only_the_servers_end() {
    let Some(_turn) = needs_kernel() else { return };
    let script = "
import os, socket, threading, time
s = socket.create_server(('127.0.0.1', 0))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 30)
server = os.fork()
if server == 0:
    def serve(c):
        while c.recv(100): c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
        c.close()
    time.sleep(0.15)
    s.listen(16)
    while True: threading.Thread(target=serve, args=s.accept()[:1]).start()
def ask(c):
    with c:
        for _ in range(2): c.sendall(b'GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'); c.recv(100)
connections = [socket.create_connection(s.getsockname()) for _ in range(6)]
s.listen(0)
clients = [threading.Thread(target=ask, args=[c]) for c in connections]
for t in clients: t.start()
for t in clients: t.join()
os.kill(server, 9)
os.wait()
";
    let capture = python(script);
    let requests = complete_of(&capture, Kind::Http1);
    assert_eq!(requests.len(), 12, "{requests:#?}");
    let told =
        |warning: &Warning| matches!(warning, Warning::AcceptQueueFull { times } if *times > 0);
    assert!(capture.manifest().warnings.iter().any(told), "{:?}", capture.manifest().warnings);
    let late = requests.iter().filter(|(request, _)| request.latency_ns > 100_000_000);
    assert_eq!(late.count(), 6, "{requests:#?}");
}

#[test]
fn what_io_uring_moves_is_said_to_be_missing() {
    let Some(_turn) = needs_kernel() else { return };
    // io_uring_setup(2 entries) is enough to create a ring.
    let script = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(425, 2, ctypes.create_string_buffer(120))
print(fd >= 0)
";
    let capture = python(script);
    if text(&capture.output.stdout) != "True\n" {
        return; // io_uring is not allowed here
    }
    let warned = |line: &str| line.starts_with("! io_uring is used by python3/");
    let report = capture.report();
    assert!(report.lines().take(8).any(warned), "{report}");
    assert!(capture.manifest().warnings.iter().any(|line| matches!(line, Warning::IoUring { .. })));
}
