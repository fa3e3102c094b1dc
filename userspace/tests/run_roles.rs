//! Which end of a connection asks, where that is not who writes first.

mod common;

use std::process::Stdio;

use common::capture::Capture;
use common::needs_kernel;
use rpcprobe::model::Kind;

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
        for (request, _) in turns {
            let served = request.server.as_ref().map(|end| end.pid);
            assert_eq!((served, request.complete), (Some(server), true), "{request:#?}");
            // "0\r\n" to "19\r\n", and the same after "250 ".
            let asked_bytes = request.request_bytes.expect("both ends are traced");
            assert!((3..=4).contains(&asked_bytes), "{request:#?}");
            assert_eq!(request.response_bytes, Some(4 + asked_bytes), "{request:#?}");
            assert!(request.latency_ns >= 5_000_000, "{request:#?}");
        }
    }
}
