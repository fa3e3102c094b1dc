//! Redis under its own benchmark, a likely first use, at 1, 50 and 500 connections, with the client, the server, or
//! both inside a script traced. A short form of `experiments/load`.

mod common;

use std::io::BufReader;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use common::capture::{Capture, NAME};
use common::process::{hear_attached, kill, until};
use common::{needs_kernel, rpcprobe};
use rpcprobe::model::Kind;
use tempfile::TempDir;

const CONNECTIONS: [usize; 3] = [1, 50, 500];
const REQUESTS: usize = 4000;
/// Upper bound of the mean number of segments of a GET, for any number of connections. (`experiments/load`: 7 to 22.)
const MOST_SEGMENTS: usize = 40;

fn free_port() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port().to_string()
}

/// A Redis server started outside the capture.
struct Server {
    port: String,
    child: Child,
}

impl Server {
    fn start() -> Server {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--save", "", "--appendonly", "no"]);
        let child = command.stdout(Stdio::null()).spawn().expect("redis-server starts");
        until("the server listens", || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
        Server { port, child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn benchmark(port: &str, connections: usize) -> Vec<String> {
    let command = format!("redis-benchmark -p {port} -t get -n {REQUESTS} -c {connections} -q");
    command.split(' ').map(Into::into).collect()
}

/// Every GET is found exactly once, complete and in few segments, and the laws hold.
fn check(capture: Capture, what: &str) {
    let mut requests = capture.succeeded().checked();
    requests.retain(|(request, _)| request.kind == Kind::Resp);
    requests.retain(|(request, _)| request.method.as_deref() == Some("GET"));
    let complete = requests.iter().filter(|(request, _)| request.complete).count();
    assert_eq!((requests.len(), complete), (REQUESTS, REQUESTS), "{what}");
    let segments: usize = requests.iter().map(|(_, segments)| segments.len()).sum();
    assert!(segments < MOST_SEGMENTS * REQUESTS, "{what}: {segments} segments");
}

#[test]
fn of_the_client_alone() {
    let Some(_turn) = needs_kernel() else { return };
    let server = Server::start();
    for connections in CONNECTIONS {
        let command = benchmark(&server.port, connections);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        check(Capture::of(&[], &command, Stdio::null()), &format!("{connections} connections"));
    }
}

#[test]
fn of_the_server_alone() {
    let Some(_turn) = needs_kernel() else { return };
    let server = Server::start();
    for connections in CONNECTIONS {
        let parent = TempDir::new().expect("a temporary directory");
        let mut attach = rpcprobe(["attach", "--port", &server.port, "-o"]);
        attach.arg(parent.path().join(NAME)).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut attach = attach.spawn().expect("rpcprobe starts");
        let mut stderr = BufReader::new(attach.stderr.take().expect("piped"));
        hear_attached(&mut stderr);
        let command = benchmark(&server.port, connections);
        let client = Command::new(&command[0]).args(&command[1..]).output().expect("it runs");
        assert!(client.status.success());
        kill(attach.id() as i32, libc::SIGTERM);
        std::io::copy(&mut stderr, &mut std::io::sink()).expect("text");
        let output = attach.wait_with_output().expect("rpcprobe ends");
        check(Capture::in_directory(parent, output), &format!("{connections} connections"));
    }
}

/// Client and server run inside a script whose programs are requests themselves.
#[test]
fn of_both_inside_a_script() {
    let Some(_turn) = needs_kernel() else { return };
    for connections in CONNECTIONS {
        let port = free_port();
        let script = format!(
            "redis-server --port {port} --save '' --appendonly no >/dev/null & server=$!
             until redis-cli -p {port} ping >/dev/null 2>&1; do :; done
             {}; kill $server; wait",
            benchmark(&port, connections).join(" ")
        );
        let capture = Capture::of(&[], &["sh", "-c", &script], Stdio::null());
        check(capture, &format!("{connections} connections"));
    }
}
