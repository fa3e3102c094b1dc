//! Requests over stream sockets, compared with the clients' own counts.

mod common;

use std::collections::HashSet;
use std::io::{BufRead, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use common::capture::{kinds, run, time_in, Capture};
use common::{echo, needs_kernel, text};
use rpcprobe::model::{Category, Kind, Request, Segment};

type Requests = Vec<(Request, Vec<Segment>)>;

/// Runs `echo ARGUMENTS`, and checks the laws and that every answer counted by its clients is one
/// complete request of this kind. A capture with missed context switches is repeated.
fn captured(arguments: &str, kind: Kind) -> Requests {
    let command: Vec<&str> = [echo()].into_iter().chain(arguments.split_whitespace()).collect();
    let mut tries = (0..5).map(|_| Capture::of(&[], &command, Stdio::null()).succeeded());
    let capture = tries.find(|capture| capture.manifest().counts.switches_missed == 0);
    let capture = capture.expect("a capture with all context switches");
    let answers: usize = text(&capture.output.stdout)
        .split(' ')
        .next()
        .and_then(|count| count.parse().ok())
        .expect("the number of answers");
    let requests = capture.checked();
    assert_eq!(kinds(&requests), [(kind, answers)].into(), "{arguments}");
    for (request, _) in &requests {
        assert!(request.complete, "{arguments}: {request:?}");
    }
    requests
}

fn share_of(category: Category, requests: &Requests) -> f64 {
    let spent_ns: u64 = requests.iter().map(|(_, segments)| time_in(category, segments)).sum();
    let all_ns: u64 = requests.iter().map(|(request, _)| request.latency_ns).sum();
    spent_ns as f64 / all_ns as f64
}

#[test]
fn every_answer_over_tcp_is_a_request() {
    let Some(_turn) = needs_kernel() else { return };
    for clients in [1, 2, 5] {
        let requests = captured(&format!("-t tcp -n 200 -c {clients}"), Kind::Tcp);
        assert!(share_of(Category::Unattributed, &requests) <= 0.01);
        assert!(share_of(Category::KernelTcp, &requests) > 0.0);
        assert!(share_of(Category::WireStack, &requests) > 0.0, "loopback's receiving side");
        assert_eq!(share_of(Category::KernelUnix, &requests), 0.0);
        let connections: HashSet<_> =
            requests.iter().map(|(request, _)| request.channel.clone()).collect();
        assert_eq!(connections.len(), clients);
    }
}

#[test]
fn every_answer_over_unix_sockets_is_a_request() {
    let Some(_turn) = needs_kernel() else { return };
    for clients in [1, 2, 5] {
        let requests = captured(&format!("-t unix -n 200 -c {clients}"), Kind::Unix);
        assert!(share_of(Category::Unattributed, &requests) <= 0.01);
        assert!(share_of(Category::KernelUnix, &requests) > 0.0);
    }
    captured("-t pair -n 200", Kind::Unix);
}

#[test]
fn a_server_with_epoll_is_followed_over_each_transport() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("tcp", Kind::Tcp), ("tcp6", Kind::Tcp), ("unix", Kind::Unix)] {
        let requests = captured(&format!("-t {transport} -e -n 100 -c 5"), kind);
        assert!(share_of(Category::Unattributed, &requests) <= 0.01);
        // One thread serves five clients, so requests wait for it.
        assert!(share_of(Category::QueueSocket, &requests) > 0.0);
    }
}

#[test]
fn connections_have_names_and_ends() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, pattern) in
        [("tcp", "tcp 127.0.0.1:"), ("tcp6", "tcp [::1]:"), ("unix", "unix @")]
    {
        let kind = if transport == "unix" { Kind::Unix } else { Kind::Tcp };
        for (request, segments) in captured(&format!("-t {transport} -n 3"), kind) {
            let channel = request.channel.as_deref().expect("a channel");
            assert!(channel.starts_with(pattern), "{channel}");
            let (client, server) = (request.client.expect("both"), request.server.expect("both"));
            assert_ne!(client.pid, server.pid);
            assert_eq!((request.request_bytes, request.response_bytes), (Some(104), Some(104)));
            let pids: HashSet<_> = segments.iter().map(|segment| segment.pid).collect();
            assert!(pids.contains(&client.pid) && pids.contains(&server.pid), "{segments:?}");
        }
    }
}

#[test]
fn a_message_is_one_request_whatever_its_size() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("tcp", Kind::Tcp), ("unix", Kind::Unix)] {
        for bytes in [0, 1_000_000, 16_000_000] {
            let requests = captured(&format!("-t {transport} -n 3 -b {bytes}"), kind);
            for (request, _) in &requests {
                let moved = Some(bytes + 4);
                assert_eq!((request.request_bytes, request.response_bytes), (moved, moved));
                for end in [request.client_moved, request.server_moved] {
                    let end = end.expect("both ends move it");
                    assert_eq!(end.bytes, 2 * (bytes + 4));
                    assert!(0 < end.cpu_ns && end.copy_ns <= end.cpu_ns, "{end:?}");
                    assert!(bytes == 0 || end.copy_ns > 0, "{end:?}");
                }
            }
            assert!(share_of(Category::Unattributed, &requests) <= 0.01, "{transport} {bytes}");
        }
    }
}

/// A listener in this process, which is not traced, and its address. Requests and answers are
/// lines.
fn untraced_pair() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    (listener, address)
}

#[test]
fn a_client_of_a_server_elsewhere_waits_for_a_peer() {
    let Some(_turn) = needs_kernel() else { return };
    let (listener, address) = untraced_pair();
    let (host, port) = address.rsplit_once(':').expect("host:port");
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a client");
        let mut line = [0; 16];
        for _ in 0..20 {
            let got = connection.read(&mut line).expect("a request");
            std::thread::sleep(Duration::from_millis(3));
            connection.write_all(&line[..got]).expect("sent");
        }
    });
    let client = format!(
        "exec 5<>/dev/tcp/{host}/{port}; for i in $(seq 1 20); do echo ask $i >&5; read -r answer <&5; done"
    );
    let capture = Capture::of(&[], &["bash", "-c", &client], Stdio::null()).succeeded();
    server.join().expect("the server");
    let requests: Requests = capture.checked();
    let asked: Vec<_> =
        requests.iter().filter(|(request, _)| request.kind == Kind::Tcp).cloned().collect();
    assert_eq!(asked.len(), 20, "{requests:?}");
    let mut waited_ns = 0;
    for (request, segments) in &asked {
        assert!(request.complete && request.server.is_none(), "{request:?}");
        waited_ns += time_in(Category::IdlePeer, segments);
    }
    // On some machines no hook runs in certain threads, so a wake-up can be missing.
    assert!(waited_ns >= 17 * 2_500_000, "{asked:?}");
}

#[test]
fn a_server_of_clients_elsewhere_is_explained_from_arrival_to_answer() {
    let Some(_turn) = needs_kernel() else { return };
    // The server prints its port, then serves one connection.
    let script = "import socket, sys, time\n\
        s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n\
        c, _ = s.accept()\n\
        while True:\n\
        \x20   d = c.recv(100)\n\
        \x20   if not d: break\n\
        \x20   time.sleep(0.003); c.sendall(d)\n";
    let parent = tempfile::TempDir::new().expect("a temporary directory");
    let mut run = run(parent.path(), &[], &["python3", "-c", script]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("rpcprobe");
    let mut port = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().expect("piped"));
    stdout.read_line(&mut port).expect("a port");
    let mut client =
        std::net::TcpStream::connect(("127.0.0.1", port.trim().parse().expect("a port")))
            .expect("connected");
    let mut answer = [0; 16];
    for _ in 0..20 {
        client.write_all(b"ask").expect("sent");
        assert_eq!(client.read(&mut answer).expect("an answer"), 3);
    }
    drop(client);
    let output = child.wait_with_output().expect("rpcprobe ends");
    let capture = Capture::in_directory(parent, output).succeeded();
    let requests: Requests = capture.checked();
    let served: Vec<_> =
        requests.iter().filter(|(request, _)| request.kind == Kind::Tcp).cloned().collect();
    assert_eq!(served.len(), 20, "{requests:?}");
    for (request, _) in &served {
        assert!(request.complete && request.client.is_none(), "{request:?}");
        assert_eq!((request.request_bytes, request.response_bytes), (Some(3), Some(3)));
    }
    // On some machines no hook runs in certain threads, so a timer's wake-up can be missing.
    let slept_ns: u64 = served.iter().map(|(_, all)| time_in(Category::Sleep, all)).sum();
    assert!(slept_ns >= 17 * 2_900_000, "{served:?}");
}

#[test]
fn an_answer_may_be_the_last_of_its_connection() {
    let Some(_turn) = needs_kernel() else { return };
    // The server closes the connection right after its answer. One read of the client receives
    // both.
    let script = "
import os, socket, time
s = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    for i in range(20):
        c, _ = s.accept(); c.sendall(c.recv(100)); c.close()
    os._exit(0)
for i in range(20):
    c = socket.create_connection(s.getsockname()); c.sendall(b'ask')
    time.sleep(0.002); c.recv(100); c.close()
os.wait()
";
    let capture = Capture::of(&[], &["python3", "-c", script], Stdio::null()).succeeded();
    let requests = capture.checked();
    let answered = requests.iter().filter(|(request, _)| request.kind == Kind::Tcp);
    assert!(answered.clone().all(|(request, _)| request.response_bytes == Some(3)));
    assert_eq!(answered.count(), 20, "{requests:#?}");
}
