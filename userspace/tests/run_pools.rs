//! Servers with pools of connections or of threads: what their requests wait for.

mod common;

use std::collections::HashMap;
use std::process::Stdio;

use common::capture::{time_in, Capture};
use common::{needs_kernel, text};
use rpcprobe::model::{Category, Kind};

/// Number of captures tried: other programs may have the CPUs.
const CAPTURES: usize = 3;
const CLIENTS: usize = 8;
const REQUESTS: usize = 6;
const BACK_END_NS: u64 = 20_000_000;

/// An event loop that answers after 20 ms; a server with a thread per connection, and two connections to that back end
/// in a queue; eight clients with six requests each. The server prints, for each request, its path and how long it
/// waited for a connection.
const POOL: &str = r#"
import asyncio, os, queue, signal, socket, sys, threading, time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
behind, front = (socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(2))

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
    return pid

def back_end():
    async def answer(reader, writer):
        while await reader.readuntil(b"\r\n\r\n"):
            await asyncio.sleep(0.02)
            writer.write(ANSWER)

    async def serve():
        await (await asyncio.start_server(answer, sock=behind)).serve_forever()

    asyncio.run(serve())

def hear(connection):
    heard = b""
    while not heard.endswith(b"\r\n\r\nok"):
        heard += connection.recv(1000)

def serve():
    pool = queue.LifoQueue()
    for _ in range(2):
        pool.put(socket.create_connection(behind.getsockname()))

    def answer(client):
        while asked := client.recv(1000):
            begun_ns = time.monotonic_ns()
            connection = pool.get()
            waited_ns = time.monotonic_ns() - begun_ns
            connection.sendall(asked)
            hear(connection)
            pool.put(connection)
            os.write(1, b"%s %d\n" % (asked.split()[1], waited_ns))
            client.sendall(ANSWER)

    while True:
        threading.Thread(target=answer, args=(front.accept()[0],)).start()

def ask(client, requests):
    connection = socket.create_connection(front.getsockname())
    for number in range(requests):
        connection.sendall(b"GET /%d-%d HTTP/1.1\r\nHost: x\r\n\r\n" % (client, number))
        hear(connection)

servers = [child(back_end), child(serve)]
clients, requests = map(int, sys.argv[1:])
clients = [threading.Thread(target=ask, args=(client, requests)) for client in range(clients)]
for client in clients:
    client.start()
for client in clients:
    client.join()
for server in servers:
    os.kill(server, signal.SIGKILL)
"#;

#[test]
fn threads_wait_for_connections_that_others_use() {
    let Some(_turn) = needs_kernel() else { return };
    let all = CLIENTS * REQUESTS;
    let mut found = Vec::new();
    let enough = (0..CAPTURES).any(|_| {
        found.push(right());
        found.last() >= Some(&(all * 3 / 4))
    });
    assert!(enough, "{found:?} of {all} requests each");
}

/// The number of requests that waited in `queue.app` as long as the server says, and in `sleep` for the back end.
fn right() -> usize {
    let numbers = [CLIENTS, REQUESTS].map(|number| number.to_string());
    let command = ["python3", "-c", POOL, &numbers[0], &numbers[1]];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    let said = text(&capture.output.stdout);
    let waited = said.lines().filter_map(|line| line.split_once(' '));
    let waited: HashMap<&str, u64> =
        waited.map(|(path, ns)| (path, ns.parse().expect("a number"))).collect();
    assert_eq!(waited.len(), CLIENTS * REQUESTS, "{said}");
    let requests = capture.checked();
    // The server's requests have children of the same method.
    let ours = requests.iter().filter(|(request, _)| {
        let is_parent = |id| requests.iter().any(|(child, _)| child.parent_request_id == Some(id));
        request.kind == Kind::Http1 && is_parent(request.request_id)
    });
    let is_right = |(method, segments): (&str, &[_])| {
        let path = method.split(' ').next_back().expect("a path");
        let waited_ns = waited[path];
        let told_ns = time_in(Category::QueueApp, segments);
        let slept_ns = time_in(Category::Sleep, segments);
        told_ns.abs_diff(waited_ns) <= 2_000_000 + waited_ns / 10
            && slept_ns.abs_diff(BACK_END_NS) <= 3_000_000
    };
    let ours =
        ours.filter_map(|(request, segments)| Some((request.method.as_deref()?, &segments[..])));
    ours.filter(|told| is_right(*told)).count()
}

/// A server with one thread that reads requests of one connection, and another that serves them. The latter serves
/// another connection first, and polls that one for 100 ms. The clients ask on both, ten times each.
const READER: &str = r#"
import collections, os, select, signal, socket, threading, time

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
front = socket.create_server(("127.0.0.1", 0))

def serve():
    kept, other = (front.accept()[0] for _ in range(2))
    handed = collections.deque()

    def read():
        ready = select.epoll()
        ready.register(other, select.EPOLLIN)
        while ready.poll():
            other.recv(1000)
            handed.append(other)

    threading.Thread(target=read, daemon=True).start()
    again = select.poll()
    again.register(kept, select.POLLIN)
    while kept.recv(1000):
        kept.sendall(ANSWER)
        again.poll(100)
        handed.popleft().sendall(ANSWER)

server = os.fork()
if server == 0:
    serve()
first, second = (socket.create_connection(front.getsockname()) for _ in range(2))
for number in range(10):
    for connection, path in (first, b"first"), (second, b"second"):
        connection.sendall(b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % path)
        connection.recv(1000)
        time.sleep(0.02)
os.kill(server, signal.SIGKILL)
"#;

#[test]
fn requests_wait_in_memory_while_their_thread_polls_another_connection() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&[], &["python3", "-c", READER], Stdio::null()).succeeded();
    let requests = capture.checked();
    let second = |request: &rpcprobe::model::Request| {
        request.method.as_deref().is_some_and(|method| method.ends_with("/second"))
    };
    let waited = requests.iter().filter(|(request, _)| second(request)).map(|(_, segments)| {
        [Category::QueueApp, Category::Sleep]
            .map(|category| time_in(category, segments) / 1_000_000)
    });
    let waited_ms: Vec<[u64; 2]> = waited.collect();
    let right =
        waited_ms.iter().filter(|[queued, slept]| (60..=120).contains(queued) && *slept < 5);
    assert!(waited_ms.len() == 10 && right.count() >= 8, "{waited_ms:?}");
}
