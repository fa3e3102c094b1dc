//! Time in the queues of network devices and on links, compared with the rate of a shaped link.

mod common;

use std::process::{Command, Stdio};

use common::capture::{run, time_in, Capture};
use common::process::Talking;
use common::{needs_kernel, peer, text};
use rpcprobe::model::{Category, Evidence, Kind};

/// A client sends 1 MB over a link of 20 Mbit/s whose queue lets 16 kB pass at once. Prints the number of bytes that
/// passed in all.
const SHAPED: &str = r#"
a=rwa$$ b=rwb$$
trap 'ip netns del $a; ip netns del $b' EXIT
ip netns add $a && ip netns add $b
ip -n $a link add v0 type veth peer name v1 netns $b
ip -n $a addr add 10.77.0.1/24 dev v0 && ip -n $b addr add 10.77.0.2/24 dev v1
ip -n $a link set v0 up && ip -n $b link set v1 up
tc -n $a qdisc add dev v0 root tbf rate 20mbit burst 16000 limit 20mb
ip netns exec $b python3 -c '
import socket
s = socket.create_server(("10.77.0.2", 7777))
c, _ = s.accept()
left = 1000000
while left: left -= len(c.recv(left))
c.sendall(b"done"); c.recv(1)
' &
sleep 0.5
ip netns exec $a python3 -c '
import socket
c = socket.create_connection(("10.77.0.2", 7777))
c.sendall(b"x" * 1000000); c.recv(4)
'
wait
tc -n $a -s qdisc show dev v0 | sed -n 's/.*Sent \([0-9]*\) bytes.*/\1/p'
"#;

#[test]
fn a_shaped_links_queue_is_where_a_message_waits() {
    let Some(_turn) = needs_kernel() else { return };
    let capture = Capture::of(&[], &["sh", "-c", SHAPED], Stdio::null()).succeeded();
    let passed: u64 = text(&capture.output.stdout).trim().parse().expect("bytes that passed");
    let requests = capture.checked();
    let of_a_megabyte = |request: &rpcprobe::model::Request| {
        request.kind == Kind::Tcp && request.request_bytes == Some(1_000_000)
    };
    let mut sent = requests.iter().filter(|(request, _)| of_a_megabyte(request));
    let (request, segments) = sent.next().expect("the transfer");
    assert!(request.complete && sent.next().is_none(), "{request:?}");
    // 20 Mbit/s: 400 ns per byte.
    let by_rate_ns = ((passed - 16_000) * 400) as f64;
    let wire_ns = time_in(Category::WireQdisc, segments) + time_in(Category::WireLink, segments);
    let off = (wire_ns as f64 - by_rate_ns).abs() / by_rate_ns;
    assert!(off < 0.03, "{wire_ns} ns on the wire, {by_rate_ns} ns by rate: {segments:#?}");
}

/// Twenty datagrams of 1000 bytes, each answered by one of 4, over a link of 1 Mbit/s: the link of the client's device
/// or, if told so, of a router's device on the way.
const DATAGRAMS: &str = r#"
a=rwa$$ r=rwr$$ b=rwb$$
trap 'ip netns del $a; ip netns del $r; ip netns del $b' EXIT
ip netns add $a && ip netns add $r && ip netns add $b
ip -n $a link add v0 type veth peer name v1 netns $r
ip -n $r link add v2 type veth peer name v3 netns $b
ip -n $a addr add 10.78.1.1/24 dev v0 && ip -n $r addr add 10.78.1.2/24 dev v1
ip -n $r addr add 10.78.2.2/24 dev v2 && ip -n $b addr add 10.78.2.1/24 dev v3
for at in $a:v0 $r:v1 $r:v2 $b:v3; do ip -n ${at%:*} link set ${at#*:} up; done
ip -n $a route add default via 10.78.1.2 && ip -n $b route add default via 10.78.2.2
ip netns exec $r sysctl -qw net.ipv4.ip_forward=1
if [ $0 = router ]; then at="$r v2"; else at="$a v0"; fi
tc -n ${at% *} qdisc add dev ${at#* } root tbf rate 1mbit burst 1600 limit 1mb
ip netns exec $b python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("10.78.2.1", 7777))
for i in range(20):
    data, who = s.recvfrom(2000)
    s.sendto(b"done", who)
' &
sleep 0.5
ip netns exec $a python3 -c '
import socket
c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); c.connect(("10.78.2.1", 7777))
for i in range(20):
    c.send(b"x" * 1000); c.recv(10)
'
wait
"#;

#[test]
fn datagrams_wait_in_a_devices_queue_too_also_a_routers() {
    let Some(_turn) = needs_kernel() else { return };
    for (who, detail) in
        [("sender", "queued at the sender's device"), ("router", "queued at a router's device")]
    {
        let capture = Capture::of(&[], &["sh", "-c", DATAGRAMS, who], Stdio::null()).succeeded();
        let mut requests = capture.checked();
        requests.retain(|(request, _)| request.kind == Kind::Udp);
        assert_eq!(requests.len(), 20);
        // By then the burst that passes at once is used up.
        let rest: Vec<_> = requests.split_off(4).into_iter().flat_map(|(_, s)| s).collect();
        let latency_ns: u64 = rest.iter().map(|segment| segment.duration_ns).sum();
        let queued = rest.iter().filter(|s| s.detail.as_deref() == Some(detail));
        let queued_ns: u64 = queued.map(|segment| segment.duration_ns).sum();
        // 1042 bytes take 8.3 ms: most of the time, unless the programs lose their CPUs.
        assert!(queued_ns > latency_ns / 2, "{who}: {queued_ns} of {latency_ns}: {rest:#?}");
        // Some kernels hide intervals in which a packet may leave, and context switches with them. Without such
        // intervals no packet is unseen.
        let counts = capture.manifest().counts;
        let hidden = counts.switches_missed + counts.switches_restored;
        let (unseen, seen): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .filter(|segment| segment.category == Category::WireStack)
            .partition(|segment| segment.detail.as_deref() == Some("passes a device, unseen"));
        assert!(unseen.iter().all(|segment| segment.evidence == Evidence::Modelled), "{unseen:#?}");
        assert!(unseen.len() as u64 <= hidden, "{who}: {unseen:?}, {hidden} switches missed");
        let on_the_way = time_in(Category::WireStack, &seen);
        assert!(on_the_way < latency_ns / 20, "{who}: {on_the_way} of {latency_ns}");
    }
}

/// The waits of one category in TCP requests: detail, cause and duration.
fn waits(capture: &Capture, category: Category) -> Vec<(String, String, u64)> {
    let requests = capture.checked().into_iter().filter(|(request, _)| request.kind == Kind::Tcp);
    let segments = requests.flat_map(|(_, segments)| segments);
    let wanted = segments.filter(|segment| segment.category == category);
    wanted
        .map(|s| (s.detail.unwrap_or_default(), s.cause.unwrap_or_default(), s.duration_ns))
        .collect()
}

/// Each request that is sent in two pieces waits 40 ms (net/ipv4/tcp_output.c: tcp_nagle_test(); net/ipv4/tcp_timer.c:
/// tcp_delack_timer()).
#[test]
fn a_small_packet_waits_for_a_delayed_acknowledgement() {
    let Some(_turn) = needs_kernel() else { return };
    for (how, least, most) in [("nagle", 10, 20), ("nodelay", 0, 0)] {
        let command = ["python3", &peer("held_pair.py"), how, "20"];
        let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
        let held = "not sent: a small packet, until the one before is acknowledged (Nagle)";
        let waits = waits(&capture, Category::WireStack);
        let long = waits.iter().filter(|(what, _, ns)| what == held && *ns > 20_000_000).count();
        assert!((least..=most).contains(&long), "{how}: {long}: {waits:?}");
    }
}

/// Of an untraced server, only its full receive window is known.
#[test]
fn a_full_window_is_told_of_a_request_to_a_server_elsewhere() {
    let Some(_turn) = needs_kernel() else { return };
    let script = peer("held_pair.py");
    let mut server = Command::new("python3");
    server.args([&script, "window", "0", "serve"]);
    let mut server = Talking::to(server);
    let port = server.hear();
    let command = ["python3", &script, "window", "10", &port];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    let waits = waits(&capture, Category::IdlePeer);
    let full = "at first not sent: the receiver's window is full";
    let long = waits.iter().filter(|(_, why, ns)| why == full && *ns > 10_000_000);
    assert!(long.count() >= 5, "{waits:?}");
}

/// A network namespace for a client, at 10.79.0.2. This side is 10.79.0.1.
struct Elsewhere(String);

impl Elsewhere {
    fn new() -> Elsewhere {
        let name = format!("rwe{}", std::process::id());
        let made = Elsewhere(name.clone());
        let script = format!(
            "set -e; ip netns add {name}; ip link add {name} type veth peer name there netns {name}; \
             ip addr add 10.79.0.1/24 dev {name}; ip link set {name} up; \
             ip -n {name} addr add 10.79.0.2/24 dev there; ip -n {name} link set there up"
        );
        assert!(Command::new("sh").args(["-c", &script]).status().expect("sh").success());
        made
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// With only the server traced, the capture says what the server's kernel does with an answer after the server's last
/// write, and for how long.
#[test]
fn an_answer_that_stays_behind_is_told_of_a_server_alone() {
    let Some(_turn) = needs_kernel() else { return };
    let script = peer("held_pair.py");
    let elsewhere = Elsewhere::new();
    let parent = tempfile::TempDir::new().expect("a temporary directory");
    let serve = ["python3", &script, "answers", "20", "serve", "10.79.0.1"];
    let mut server = Talking::to(run(parent.path(), &[], &serve));
    let port = server.hear();
    let mut client = Command::new("ip");
    client.args(["netns", "exec", &elsewhere.0, "python3", &script, "answers", "20", &port]);
    assert!(client.arg("10.79.0.1").status().expect("the client runs").success());
    let capture = Capture::in_directory(parent, server.end()).succeeded();
    let mut requests = capture.checked();
    requests.retain(|(request, _)| request.kind == Kind::Tcp);
    assert_eq!(requests.len(), 20);
    let why = "10 B of the answer not sent: a small packet, until the one before is acknowledged (Nagle), but ";
    let causes: Vec<&str> =
        requests.iter().filter_map(|(_, segments)| segments.last()?.cause.as_deref()).collect();
    let later_ms = |cause: &&str| -> Option<f64> {
        cause.strip_prefix(why)?.strip_suffix(" ms later")?.parse().ok()
    };
    // The client's kernel delays the acknowledgement for 40 ms.
    let long = causes.iter().filter_map(later_ms).filter(|ms| *ms > 20.0).count();
    assert!(long >= 10, "{causes:?}");
}
