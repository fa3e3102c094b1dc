//! Requests that servers make while they serve: each must name the one it was made for.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::process::Stdio;

use common::capture::Capture;
use common::{needs_kernel, text};
use rpcprobe::model::Request;

/// Three servers in a row, each a process of its own that asks the next for every request of its own;
/// a thread a connection, and each such thread has its own connection to the next server. Two clients
/// ask the first one, a hundred times each, and print how many answers they got.
const TIERS: &str = r#"
import os, socket, sys, threading

def take(sock):
    data = b""
    while len(data) < 32:
        more = sock.recv(32 - len(data))
        if not more:
            return False
        data += more
    return True

def connect(port):
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock

def serve(sock, behind):
    onward = connect(behind) if behind else None
    while take(sock):
        if onward:
            onward.sendall(bytes(32))
            take(onward)
        sock.sendall(bytes(32))
    os.close(sock.detach())
    if onward:
        os.close(onward.detach())

def start(behind):
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid:
        return pid, listener.getsockname()[1]
    threads = []
    for _ in range(2):
        sock, _ = listener.accept()
        threads.append(threading.Thread(target=serve, args=(sock, behind)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    os._exit(0)

answers = []
def ask(port):
    sock = connect(port)
    for _ in range(100):
        sock.sendall(bytes(32))
        answers.append(take(sock))
    sock.close()

back, port = start(0)
middle, port = start(port)
front, port = start(port)
clients = [threading.Thread(target=ask, args=(port,)) for _ in range(2)]
for client in clients:
    client.start()
for client in clients:
    client.join()
for pid in (front, middle, back):
    os.waitpid(pid, 0)
print(len(answers), front, middle, back)
"#;

#[test]
fn three_tiers_are_linked() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&[], &["python3", "-c", TIERS], Stdio::null()).succeeded();
    let said = text(&capture.output.stdout);
    let said: Vec<u32> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let (answers, servers) = (said[0] as usize, &said[1..]);
    assert_eq!(answers, 200);

    let requests: Vec<Request> =
        capture.checked().into_iter().map(|(request, _)| request).collect();
    let by_id: HashMap<u64, &Request> =
        requests.iter().map(|request| (request.request_id, request)).collect();
    let of = |server: u32| {
        requests.iter().filter(move |r| r.server.as_ref().is_some_and(|end| end.pid == server))
    };
    for (tier, &server) in servers.iter().enumerate() {
        assert_eq!(of(server).count(), answers, "requests of tier {tier}");
        let mut parents = BTreeSet::new();
        for request in of(server) {
            assert!(request.complete, "{request:?}");
            let parent = request.parent_request_id.map(|id| by_id[&id]);
            let Some(front) = tier.checked_sub(1).map(|front| servers[front]) else {
                assert_eq!(parent.map(|parent| parent.kind.name()), None, "{request:?}");
                continue;
            };
            let parent = parent.unwrap_or_else(|| panic!("made for nobody: {request:?}"));
            let asker = request.client.as_ref().unwrap();
            let served = parent.server.as_ref().unwrap();
            assert_eq!((asker.pid, served.pid), (front, front));
            assert_eq!(asker.tid, served.tid, "the thread that served it asked on");
            let end_ns = |request: &Request| request.start_ns + request.latency_ns;
            assert!(parent.start_ns < request.start_ns && end_ns(request) < end_ns(parent));
            assert!(parents.insert(parent.request_id), "two children of {parent:?}");
        }
    }
}
