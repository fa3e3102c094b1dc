//! Requests that servers make while they serve: each must name as its parent the request it was made for.

mod common;

use std::collections::{BTreeSet, HashMap};
use std::process::Stdio;

use common::capture::Capture;
use common::{needs_kernel, text};
use rpcprobe::model::{Certainty, Kind, Request};

/// Three servers in a chain, each a process of its own. For each request it receives, a server sends one to the next
/// server. A server has one thread per connection, and each thread has its own connection to the next server. Two
/// clients send a hundred requests each to the first server. Prints the number of answers and the servers' process ids.
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

/// A single-threaded, polling proxy with four clients on connections of their own. The proxy forwards each request
/// twice, over one of its connections to the server behind it. The HTTP/1 path shows which request it was forwarded
/// for. Prints the number of answers the clients got.
const PROXY: &str = r#"
import os, selectors, socket, threading

def head(data):
    return data.split(b" ", 2)[1].decode()

def question(path):
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

def connect(port):
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock

def behind(listener):
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
            elif key.fileobj.recv(1000):
                key.fileobj.sendall(ANSWER)
            else:
                ready.unregister(key.fileobj)
                key.fileobj.close()

def proxy(listener, port):
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    idle, busy = [connect(port) for _ in range(4)], {}
    for sock in idle:
        ready.register(sock, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            sock = key.fileobj
            if sock is listener:
                ready.register(listener.accept()[0], selectors.EVENT_READ)
                continue
            data = sock.recv(1000)
            if sock in busy:
                client, path, again = busy.pop(sock)
                if again:
                    sock.sendall(question(path + "/b"))
                    busy[sock] = client, path, False
                else:
                    idle.append(sock)
                    client.sendall(ANSWER)
            elif data:
                onward = idle.pop(0)
                path = head(data)
                onward.sendall(question(path + "/a"))
                busy[onward] = sock, path, True
            else:
                ready.unregister(sock)
                sock.close()

def start(serve, *arguments):
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        serve(listener, *arguments)
    port = listener.getsockname()[1]
    os.close(listener.detach())
    return pid, port

answers = []
def ask(port, who):
    sock = connect(port)
    for number in range(100):
        sock.sendall(question(f"/{who}.{number}"))
        answers.append(sock.recv(1000))

last, last_port = start(behind)
first, first_port = start(proxy, last_port)
threads = [threading.Thread(target=ask, args=(first_port, who)) for who in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for pid in first, last:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
print(len(answers))
"#;

/// The proxy runs under a script, whose programs are also requests. The parent of each forwarded request must be the
/// request it was forwarded for.
#[test]
fn what_an_event_loop_asks_is_for_whom_it_serves() {
    let Some(_turn) = needs_kernel() else { return };
    let script = "python3 -c \"$0\"; true";
    let capture = Capture::of(&[], &["sh", "-c", script, PROXY], Stdio::null()).succeeded();
    assert_eq!(text(&capture.output.stdout).trim(), "400");
    let requests: Vec<Request> =
        capture.checked().into_iter().map(|(request, _)| request).collect();
    let by_id: HashMap<u64, &Request> =
        requests.iter().map(|request| (request.request_id, request)).collect();
    let (mut children, mut right) = (0, 0);
    for request in requests.iter().filter(|request| request.kind == Kind::Http1) {
        let path = request.method.as_deref().expect("a method");
        let parent = request.parent_request_id.map(|id| by_id[&id]);
        let parent = parent.unwrap_or_else(|| panic!("at least the program: {request:?}"));
        let Some(asked) = path.strip_suffix("/a").or(path.strip_suffix("/b")) else {
            assert_eq!(parent.kind, Kind::Exec, "{request:?}");
            continue;
        };
        children += 1;
        if parent.kind != Kind::Exec {
            assert_eq!(parent.method.as_deref(), Some(asked), "{request:?}");
            assert!(!request.detached, "{request:?}");
            right += 1;
        }
    }
    assert_eq!(children, 800);
    // Requests that arrive together are read one by one and forwarded at once.
    assert_eq!(right, children);
}

/// An asyncio front end, asked by eight clients. For each request it sleeps a while and then sends two requests at once
/// to the server behind it, in separate tasks, over a shared pool of connections. Prints the number of answers the
/// clients got.
const GATHERS: &str = r#"
import asyncio, os, socket, threading, time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

def question(path):
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

def behind(sock):
    while sock.recv(1000):
        time.sleep(0.001)
        sock.sendall(ANSWER)

def serve_behind(listener):
    while True:
        threading.Thread(target=behind, args=(listener.accept()[0],)).start()

def serve_front(listener, port):
    idle = []

    async def ask(path):
        kept = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        reader, writer = kept
        writer.write(question(path))
        await reader.readexactly(len(ANSWER))
        idle.append(kept)

    async def answer(reader, writer):
        while line := await reader.readline():
            while (await reader.readline()).strip():
                pass
            path = line.split()[1].decode()
            await asyncio.sleep(0.002)
            await asyncio.gather(ask(path + "/a"), ask(path + "/b"))
            writer.write(ANSWER)
        writer.close()

    async def serve():
        await (await asyncio.start_server(answer, sock=listener)).serve_forever()

    asyncio.run(serve())

def start(serve, *arguments):
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        serve(listener, *arguments)
    port = listener.getsockname()[1]
    os.close(listener.detach())
    return pid, port

answers = []
def ask(port, who):
    sock = socket.create_connection(("127.0.0.1", port))
    for number in range(25):
        sock.sendall(question(f"/{who}.{number}"))
        answers.append(sock.recv(1000))

time.sleep(0.5)  # until the interpreter's library is hooked
last, last_port = start(serve_behind)
first, first_port = start(serve_front, last_port)
threads = [threading.Thread(target=ask, args=(first_port, who)) for who in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for pid in first, last:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
print(len(answers))
"#;

#[test]
fn what_a_task_asks_is_for_whom_it_was_begun() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&["--tasks"], &["python3", "-c", GATHERS], Stdio::null());
    let capture = capture.succeeded();
    assert_eq!(text(&capture.output.stdout).trim(), "200");
    let requests: Vec<Request> =
        capture.checked().into_iter().map(|(request, _)| request).collect();
    let by_id: HashMap<u64, &Request> =
        requests.iter().map(|request| (request.request_id, request)).collect();
    let (mut children, mut sure) = (0, 0);
    for request in requests.iter().filter(|request| request.kind == Kind::Http1) {
        let path = request.method.as_deref().expect("a method");
        let Some(asked) = path.strip_suffix("/a").or(path.strip_suffix("/b")) else { continue };
        children += 1;
        let Some(parent) = request.parent_request_id.map(|id| by_id[&id]) else { continue };
        if request.parent_certainty == Some(Certainty::Sure) && parent.kind == Kind::Http1 {
            assert_eq!(parent.method.as_deref(), Some(asked), "{request:?}");
            sure += 1;
        }
    }
    assert_eq!(children, 400);
    assert!(sure > children * 9 / 10, "{sure} of {children}");
}

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
