//! Datagram requests, compared with the clients' own counts.

mod common;

use std::process::Stdio;

use common::capture::{kinds, time_in, Capture};
use common::{echo, needs_kernel, text};
use rpcprobe::model::{Category, Certainty, Kind, Request, Segment};

type Requests = Vec<(Request, Vec<Segment>)>;

/// Runs a command under capture and checks the laws.
fn captured(command: &[&str]) -> (Requests, String) {
    let capture = Capture::of(&[], command, Stdio::null()).succeeded();
    (capture.checked(), text(&capture.output.stdout))
}

/// Runs `echo ARGUMENTS`, and checks that every answer counted by its clients is one complete request.
fn echoed(arguments: &str, kind: Kind) -> Requests {
    let command: Vec<&str> = [echo()].into_iter().chain(arguments.split_whitespace()).collect();
    let (requests, said) = captured(&command);
    let answers: usize =
        said.split(' ').next().and_then(|count| count.parse().ok()).expect("the number of answers");
    assert_eq!(kinds(&requests), [(kind, answers)].into(), "{arguments}: {requests:#?}");
    let incomplete = requests.iter().find(|(request, _)| !request.complete);
    assert!(incomplete.is_none(), "{arguments}: {incomplete:#?}");
    requests
}

/// Fails unless at least 99 % of the requests' time is explained. On some machines a capture can miss context switches,
/// so up to five captures are tried.
fn assert_explained(arguments: &str, kind: Kind) -> Requests {
    let unexplained = |requests: &Requests| share_of(Category::Unattributed, requests);
    let mut tries = (0..5).map(|_| echoed(arguments, kind));
    let explained = tries.find(|requests| unexplained(requests) <= 0.01);
    explained.unwrap_or_else(|| panic!("{arguments}: unattributed, every time"))
}

fn share_of(category: Category, requests: &Requests) -> f64 {
    let spent_ns: u64 = requests.iter().map(|(_, segments)| time_in(category, segments)).sum();
    let all_ns: u64 = requests.iter().map(|(request, _)| request.latency_ns).sum();
    spent_ns as f64 / all_ns as f64
}

fn assert_bytes(requests: &Requests, bytes: u64) {
    let right = (Some(bytes), Some(bytes));
    let wrong = requests.iter().find(|(r, _)| (r.request_bytes, r.response_bytes) != right);
    assert!(wrong.is_none(), "not {bytes}: {wrong:#?}");
}

#[test]
fn every_answer_over_udp_is_a_request() {
    let Some(_turn) = needs_kernel() else { return };
    for transport in ["udp", "udp6"] {
        for (clients, bytes) in [(1, 100), (3, 1), (2, 60_000)] {
            let arguments = format!("-t {transport} -n 100 -c {clients} -b {bytes}");
            let requests = assert_explained(&arguments, Kind::Udp);
            assert_bytes(&requests, bytes);
            assert!(share_of(Category::KernelUdp, &requests) > 0.0);
            assert!(share_of(Category::WireStack, &requests) > 0.0, "loopback's receiving side");
            for (request, segments) in &requests {
                let channel = request.channel.as_deref().expect("a channel");
                assert!(channel.starts_with("udp 127.0.0.1:") || channel.starts_with("udp [::1]:"));
                let ends = [request.client.as_ref(), request.server.as_ref()];
                for end in ends.map(|end| end.expect("both ends")) {
                    assert!(segments.iter().any(|segment| segment.pid == end.pid), "{segments:?}");
                }
            }
        }
    }
}

#[test]
fn every_answer_over_unix_datagrams_is_a_request() {
    let Some(_turn) = needs_kernel() else { return };
    for arguments in ["-t unixgram -n 100", "-t unixgram -n 3000 -c 3", "-t seqpacket -n 100"] {
        let requests = assert_explained(arguments, Kind::Unix);
        assert_bytes(&requests, 100);
        assert!(share_of(Category::KernelUnix, &requests) > 0.0);
    }
}

#[test]
fn datagrams_may_be_empty() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("udp", Kind::Udp), ("unixgram", Kind::Unix)] {
        let requests = echoed(&format!("-t {transport} -n 20 -b 0"), kind);
        assert_bytes(&requests, 0);
    }
}

#[test]
fn datagrams_moved_by_one_call_are_all_told() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("udp", Kind::Udp), ("unixgram", Kind::Unix)] {
        let requests = echoed(&format!("-t {transport} -n 50 -m 5 -b 30"), kind);
        assert_bytes(&requests, 5 * 30);
    }
}

#[test]
fn what_is_sent_again_belongs_to_the_request() {
    let Some(_turn) = needs_kernel() else { return };
    let requests = echoed("-t udp -n 6 -l 3 -b 50", Kind::Udp);
    let tries: u64 = requests.iter().map(|(request, _)| request.request_bytes.unwrap() / 50).sum();
    // Every third datagram was lost, and the last one was not.
    assert_eq!(tries - tries / 3, 6);
    for (request, _) in &requests {
        assert_eq!(request.response_bytes, Some(50));
        let again = request.request_bytes.unwrap() / 50 - 1;
        assert!(request.latency_ns >= again * 290_000_000, "{request:?}");
        // Nothing shows that it is the same question.
        assert_eq!(request.retransmissions.map(u64::from), Some(again));
        assert_eq!(request.certainty == Certainty::Guessed, again > 0, "{request:?}");
    }
}

/// A client in one network namespace sends requests to a server in another, over devices whose packets are smaller than
/// the larger of the datagrams. The server leaves every fourth datagram unanswered.
const TWO_NAMESPACES: &str = r#"
a=rpa$$ b=rpb$$
trap 'ip netns del $a; ip netns del $b' EXIT
ip netns add $a && ip netns add $b
ip -n $a link add v0 type veth peer name v1 netns $b
ip -n $a addr add 10.77.0.1/24 dev v0 && ip -n $b addr add 10.77.0.2/24 dev v1
ip -n $a link set v0 up && ip -n $b link set v1 up
ip netns exec $b python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("10.77.0.2", 7777))
for i in range(40):
    data, client = s.recvfrom(65536)
    if i % 4 != 3: s.sendto(data, client)
' &
sleep 0.3
ip netns exec $a python3 -c '
import socket
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
c.settimeout(0.1)
asked = got = 0
for asked in range(40):
    c.sendto(b"x" * (200 if asked % 2 else 5000), ("10.77.0.2", 7777))
    try: got += len(c.recv(65536)) > 0
    except TimeoutError: pass
print(got, "answers")
'
wait
"#;

#[test]
fn datagrams_meet_across_network_namespaces() {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, said) = captured(&["sh", "-c", TWO_NAMESPACES]);
    assert_eq!(said, "30 answers\n");
    let mut found: Vec<_> =
        requests.iter().filter(|(request, _)| request.kind == Kind::Udp).collect();
    found.sort_by_key(|(request, _)| request.start_ns);
    // The unanswered request and the next one, sent after it without an answer in between, are one request.
    assert_eq!(found.len(), 31, "{found:#?}");
    for (request, _) in &found[..30] {
        assert!(request.complete && request.server.is_some(), "{request:?}");
        let sizes = [200, 5000];
        let answer = request.response_bytes.expect("an answer");
        assert!(sizes.contains(&answer), "{request:?}");
        let asked = request.request_bytes.expect("a request");
        assert!(asked == answer || asked == 5200, "{request:?}");
    }
    let (last, _) = found[30];
    assert!(!last.complete && last.request_bytes == Some(200), "{last:?}");
}

#[test]
fn a_client_of_a_server_elsewhere_waits_for_a_peer() {
    let Some(_turn) = needs_kernel() else { return };
    let server = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("its address").port();
    let answering = std::thread::spawn(move || {
        let mut bytes = [0; 100];
        for _ in 0..10 {
            let (got, client) = server.recv_from(&mut bytes).expect("a datagram");
            std::thread::sleep(std::time::Duration::from_millis(3));
            server.send_to(&bytes[..got], client).expect("sent");
        }
    });
    let client = format!(
        "import socket\nc = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         for i in range(10): c.sendto(b'ask', ('127.0.0.1', {port})); c.recv(100)\n"
    );
    let capture = Capture::of(&[], &["python3", "-c", &client], Stdio::null()).succeeded();
    answering.join().expect("the server");
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == Kind::Udp);
    assert_eq!(requests.len(), 10);
    let mut waited_ns = 0;
    for (request, segments) in &requests {
        assert!(request.complete && request.server.is_none(), "{request:?}");
        assert_eq!((request.request_bytes, request.response_bytes), (Some(3), Some(3)));
        waited_ns += time_in(Category::IdlePeer, segments);
    }
    // On some machines no hook runs in certain threads, so a wake-up can be missing.
    assert!(waited_ns >= 7 * 2_500_000, "{requests:?}");
}
