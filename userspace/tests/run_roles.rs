//! Which end of a connection asks, where that is not who writes first.

mod common;

use std::process::Stdio;

use common::capture::Capture;
use common::needs_kernel;
use rpcprobe::model::{Category, Kind};

/// A server that greets whoever connects and takes 5 ms for an answer, a thread a connection; eight clients in threads ask 20 times
/// each, and rest for 10 ms in between. It says the number of its server.
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
        let mut slept_ns = 0;
        for (request, segments) in turns {
            let served = request.server.as_ref().map(|end| end.pid);
            assert_eq!((served, request.complete), (Some(server), true), "{request:#?}");
            assert!(request.latency_ns >= 5_000_000, "{request:#?}");
            let slept = segments.iter().filter(|segment| segment.category == Category::Sleep);
            slept_ns += slept.map(|segment| segment.duration_ns).sum::<u64>();
        }
        // That a client rests for 10 ms between two questions is not of any. Not each sleep is seen: some context switches leave
        // no record.
        let share = slept_ns as f64 / (8.0 * 20.0 * 5e6);
        assert!((0.8..1.6).contains(&share), "{transport}: {share}");
    }
}
