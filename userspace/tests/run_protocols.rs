//! Requests inside byte streams whose framing is parsed, compared with the clients' own counts.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use common::capture::{time_in, Capture};
use common::{needs_kernel, peer, peer_in_c, python, rpcprobe, text};
use rpcprobe::capture::manifest::{Manifest, Warning};
use rpcprobe::model::{Category, Certainty, GapWhy, Kind, Reason, Request, Segment};

type Requests = Vec<(Request, Vec<Segment>)>;

fn captured(options: &[&str], command: &[&str]) -> (Requests, String) {
    let capture = Capture::of(options, command, Stdio::null()).succeeded();
    (capture.checked(), text(&capture.output.stdout))
}

fn share_of(category: Category, requests: &Requests) -> f64 {
    let spent_ns: u64 = requests.iter().map(|(_, segments)| time_in(category, segments)).sum();
    let all_ns: u64 = requests.iter().map(|(request, _)| request.latency_ns).sum();
    spent_ns as f64 / all_ns as f64
}

/// Runs grpc_pair.py, and checks that the requests found are the client's calls, method by method.
fn grpc(options: &[&str], form: &str, calls: usize, concurrency: usize, bytes: usize) -> Requests {
    let numbers = [calls, concurrency, bytes].map(|number| number.to_string());
    let script = peer("grpc_pair.py");
    let [calls, concurrency, bytes] = &numbers;
    let command = [python(), &script, form, calls, concurrency, bytes];
    let (requests, counted) = captured(options, &command);
    let name = format!("{form} {calls} {concurrency} {bytes}");
    let counted = counts(&counted);
    for (request, _) in &requests {
        assert_eq!(request.kind, Kind::Http2, "{name}: {request:?}");
        assert_eq!(request.stream_id.expect("a stream") % 2, 1, "clients' streams are odd");
        assert!(request.client.is_some() && request.server.is_some(), "{name}: {request:?}");
    }
    let found = found(Kind::Http2, &requests);
    if options.is_empty() {
        assert_eq!(found, counted, "{name}");
    } else {
        assert_eq!(found, [("?".to_string(), counted.values().sum())].into(), "{name}");
    }
    requests
}

#[test]
fn every_stream_is_a_request_whatever_its_form() {
    let Some(_turn) = needs_kernel() else { return };
    for form in ["Unary", "In", "Out", "Both"] {
        for concurrency in [1, 8, 64] {
            let requests = grpc(&[], form, 128, concurrency, 10);
            assert!(requests.iter().all(|(request, _)| request.status == Some(0)));
        }
    }
}

#[test]
fn a_call_that_fails_says_how() {
    let Some(_turn) = needs_kernel() else { return };
    let requests = grpc(&[], "Fail", 50, 4, 10);
    assert!(requests.iter().all(|(request, _)| request.status == Some(5)), "NOT_FOUND");
}

#[test]
fn a_grpc_message_is_one_request_whatever_its_size() {
    let Some(_turn) = needs_kernel() else { return };
    for bytes in [1_000_000, 16_000_000] {
        let requests = grpc(&[], "Unary", 6, 2, bytes);
        for (request, _) in &requests {
            let moved = request.request_bytes.zip(request.response_bytes).expect("both");
            let most = bytes as u64 + bytes as u64 / 100;
            let expected = bytes as u64..most;
            assert!(expected.contains(&moved.0) && expected.contains(&moved.1), "{moved:?}");
        }
    }
}

#[test]
fn without_methods_no_header_leaves_the_kernel() {
    let Some(_turn) = needs_kernel() else { return };
    let requests = grpc(&["--no-methods"], "Unary", 50, 4, 10);
    assert!(requests.iter().all(|(request, _)| request.status.is_none()));
}

#[test]
fn what_a_grpc_call_waited_for_is_known() {
    let Some(_turn) = needs_kernel() else { return };
    let requests = grpc(&[], "Unary", 256, 1, 10);
    assert!(share_of(Category::Unattributed, &requests) <= 0.01);
    assert!(share_of(Category::KernelTcp, &requests) > 0.0);
}

/// The counts a client printed, by method.
fn counts(said: &str) -> BTreeMap<String, usize> {
    let lines = said.lines().filter_map(|line| line.rsplit_once(' '));
    lines.map(|(method, count)| (method.to_string(), count.parse().expect("a count"))).collect()
}

/// Complete requests of a kind, by method.
fn found(kind: Kind, requests: &Requests) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for (request, _) in requests.iter().filter(|(request, _)| request.kind == kind) {
        assert!(request.complete, "{request:?}");
        let method = request.method.clone().unwrap_or_else(|| "?".into());
        *found.entry(method).or_default() += 1;
    }
    found
}

#[test]
fn http1_messages_end_where_their_heads_say() {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, said) = captured(&[], &[python(), &peer("http1_pair.py"), "16"]);
    assert_eq!(found(Kind::Http1, &requests), counts(&said));
    let others = requests.iter().filter(|(request, _)| request.kind == Kind::Tcp);
    assert_eq!(others.count(), 0, "no turn besides");
    for (request, _) in requests.iter().filter(|(request, _)| request.kind == Kind::Http1) {
        let answered = request.response_bytes.expect("an answer");
        let (status, least) = match request.method.as_deref().expect("a method") {
            "GET /nothing" => (204, 50),
            "POST /missing" => (404, 2000),
            "POST /body" => (201, 200_000),
            "GET /large" => (200, 1_000_000),
            "GET /chunked" | "GET /close" => (200, 5000),
            _ => (200, 50),
        };
        assert_eq!(request.status, Some(status), "{request:?}");
        assert!((least..least + 300).contains(&answered), "{request:?}");
    }
}

#[test]
fn oncrpc_calls_and_replies_meet_by_xid() {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, said) = captured(&[], &[python(), &peer("oncrpc_pair.py"), "40"]);
    assert_eq!(found(Kind::OncRpc, &requests), counts(&said));
    assert_eq!(requests.len(), 40 * 9, "nothing besides");
    let xids: BTreeSet<_> = requests.iter().map(|(request, _)| request.xid).collect();
    assert_eq!(xids.len(), requests.len());
    for (request, _) in &requests {
        let status = match request.method.as_deref() {
            Some("200001.3.4") => 3,       // PROC_UNAVAIL
            Some("200001.3.5") => 256 + 1, // denied: AUTH_ERROR
            _ => 0,
        };
        assert_eq!(request.status, Some(status), "{request:?}");
    }
    assert!(share_of(Category::Unattributed, &requests) <= 0.01);
}

/// The reading side, too, detects the protocol of two sockets until the first sending call has ended. A reply that
/// arrives before the end of the call that sent the request must be found.
#[test]
fn a_reply_before_the_end_of_the_call_that_asks_is_found() {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, _) = captured(&[], &[python(), &peer("early_pair.py"), "1000"]);
    all_answered(1000, &requests);
}

fn all_answered(calls: usize, requests: &Requests) {
    assert_eq!(found(Kind::OncRpc, requests), [("200001.3.1".to_string(), calls)].into());
    for (request, _) in requests {
        assert!(request.complete && request.status == Some(0), "{request:?}");
    }
}

/// The recorded state of a socket's queue must not be taken for that of an earlier socket at the same address. This
/// matters if a reader takes a datagram before it is seen in the queue, as a polling reader does.
#[test]
fn datagrams_of_sockets_at_one_address_are_told_apart() {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, _) = captured(&[], &[python(), &peer("early_pair.py"), "1000", "awake"]);
    all_answered(1000, &requests);
}

#[test]
fn oncrpc_over_datagrams_is_one_request_however_often_it_is_sent() {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, said) = captured(&[], &[python(), &peer("oncrpc_pair.py"), "50", "udp"]);
    let mut told = counts(&said);
    let again = told.remove("again").expect("how many were sent again");
    assert!(again >= 40, "{again}");
    assert_eq!(found(Kind::OncRpc, &requests), told);
    assert_eq!(requests.len(), 50 * 4, "nothing besides");
    let sent_again = |request: &Request| request.retransmissions.expect("a number") as usize;
    assert_eq!(requests.iter().map(|(request, _)| sent_again(request)).sum::<usize>(), again);
    // Latency counts from the first call, not from the retransmission that was answered.
    for (request, _) in requests.iter().filter(|(request, _)| sent_again(request) > 0) {
        assert!(request.latency_ns >= 10_000_000, "{request:?}");
    }
    assert!(share_of(Category::Unattributed, &requests) <= 0.01);
}

/// A capture with kernel tables of the sizes in `tables`.
fn with_tables(tables: &str, command: &[&str]) -> (Requests, Manifest, String) {
    let parent = tempfile::TempDir::new().expect("a temporary directory");
    let mut run = rpcprobe(["run", "-o"]);
    run.arg(parent.path().join("capture")).arg("--").args(command);
    run.env("RPCPROBE_TABLES", tables);
    let output = run.output().expect("rpcprobe runs");
    let said = text(&output.stderr);
    let capture = Capture::in_directory(parent, output).succeeded();
    (capture.checked(), capture.manifest(), said)
}

/// More connections are in the middle of a message than can be followed at a time. Requests that cannot be followed
/// must say so.
#[test]
fn connections_beyond_those_that_are_followed_are_told() {
    const CONNECTIONS: usize = 100;
    let Some(_turn) = needs_kernel() else { return };
    let command = [python(), &peer("flood_pair.py"), "connections", &CONNECTIONS.to_string()];
    let (requests, manifest, _) = with_tables("", &command);
    assert_eq!(found(Kind::Http1, &requests), [("GET /".to_string(), 4 * CONNECTIONS)].into());
    assert_eq!(manifest.counts.framing_lost, [].into());

    let (requests, manifest, said) = with_tables("framers=64", &command);
    let of_kind: Vec<_> =
        requests.iter().map(|(r, _)| r).filter(|r| r.kind == Kind::Http1).collect();
    assert_eq!(of_kind.len(), 4 * CONNECTIONS);
    let why = GapWhy::Forgotten;
    let told = manifest.counts.framing_lost.get(why.name()).copied().unwrap_or(0);
    let whys = [Reason::NotFollowed { why }, Reason::NotFollowedBefore { why }];
    let torn = of_kind.iter().filter(|r| r.reason.as_ref().is_some_and(|r| whys.contains(r)));
    let torn = torn.count();
    // Of the connections in the middle of an answer, 64 framers are left; a connection has three or four.
    assert!(told as usize >= CONNECTIONS - 64 && torn >= CONNECTIONS - 64, "{told} {torn}");
    assert!(said.contains("messages could not be followed inside a connection"), "{said}");
    let framers =
        manifest.tables.iter().find(|table| table.name == "framers").expect("it is there");
    assert_eq!(framers.bound, 64);
    assert!(framers.let_go >= told, "{framers:?}");
    // Connections between two messages lose nothing: the requests of the last round are complete.
    let complete = of_kind.iter().filter(|request| request.complete).count();
    assert!(complete >= CONNECTIONS, "{complete}");
}

/// The kernel side counts a forgotten connection anew. Which bytes belong to which request is then unknown, and the
/// requests must say so.
#[test]
fn forgotten_channels_are_told() {
    const CONNECTIONS: usize = 300;
    let Some(_turn) = needs_kernel() else { return };
    let command = [python(), &peer("flood_pair.py"), "connections", &CONNECTIONS.to_string()];
    let (requests, manifest, said) = with_tables("channels=128", &command);
    assert!(manifest.counts.channels_forgotten > 0);
    assert!(said.contains("fell out of a full table of the kernel side and came back"), "{said}");
    let table = manifest.tables.iter().find(|table| table.name == "channels").expect("it is there");
    assert!(table.let_go > CONNECTIONS as u64, "{table:?}");
    let of_kind: Vec<_> = requests.iter().filter(|(r, _)| r.kind == Kind::Http1).collect();
    assert_eq!(of_kind.len(), 4 * CONNECTIONS);
    let told = |reason: &Reason| {
        let not_followed =
            matches!(reason, Reason::NotFollowed { .. } | Reason::NotFollowedBefore { .. });
        not_followed || *reason == Reason::ChannelForgotten
    };
    let others = of_kind.iter().find(|(request, _)| !request.reason.as_ref().is_some_and(told));
    println!("{others:?}");
    let told = of_kind.iter().filter(|(request, _)| request.reason.as_ref().is_some_and(told));
    // Those of the first round were answered before they were forgotten.
    assert!(told.count() >= 3 * CONNECTIONS, "{others:?}");
}

/// Messages moved by one call are followed up to a bound. Beyond it there is a gap, and the report says so.
#[test]
fn a_long_pipeline_is_a_gap_and_told() {
    let Some(_turn) = needs_kernel() else { return };
    let of = |commands: usize| {
        let commands = commands.to_string();
        with_tables("", &[python(), &peer("flood_pair.py"), "pipeline", &commands])
    };
    let (requests, manifest, _) = of(1000);
    assert_eq!(found(Kind::Resp, &requests), [("PING".to_string(), 1 + 1000 + 20)].into());
    assert_eq!(manifest.counts.framing_lost, [].into());

    let (requests, manifest, said) = of(5000);
    let why = "a call moved more messages than are looked at";
    assert_eq!(manifest.counts.framing_lost, [(why.to_string(), 1)].into());
    assert!(said.contains("messages could not be followed inside a connection"), "{said}");
    let requests: Vec<_> = requests.iter().filter(|(r, _)| r.kind == Kind::Resp).collect();
    assert!((1000..5000).contains(&requests.len()), "{}", requests.len());
    // The client pauses before each of the last commands, so these are followed again.
    assert!(requests.iter().rev().take(19).all(|(request, _)| request.complete));
}

/// Runs redis-server and redis-benchmark, and checks that the expected number of commands of each name is found.
fn redis(arguments: &str, commands: &[(&str, usize)]) -> Requests {
    let directory = tempfile::TempDir::new().expect("a temporary directory");
    let socket = directory.path().join("redis").display().to_string();
    // Waits until the socket listens (SO_ACCEPTCON), not only until it has a name.
    let script = format!(
        "redis-server --port 0 --unixsocket {socket} --save '' --dir {dir} >/dev/null & \
         until grep -q ' 00010000 .*{socket}' /proc/net/unix; do sleep 0.02; done; \
         redis-benchmark -s {socket} -q {arguments} >/dev/null; kill $!; wait $!",
        dir = directory.path().display(),
    );
    let (requests, _) = captured(&[], &["bash", "-c", &script]);
    let found = found(Kind::Resp, &requests);
    // The benchmark first queries two settings of the server.
    let all = commands.iter().copied().chain([("CONFIG GET", 2)]);
    let all: BTreeMap<_, _> = all.map(|(name, count)| (name.to_string(), count)).collect();
    assert_eq!(found, all, "{arguments}");
    requests.into_iter().filter(|(request, _)| request.kind == Kind::Resp).collect()
}

#[test]
fn every_redis_command_is_a_request_pipelined_or_not() {
    let Some(_turn) = needs_kernel() else { return };
    for (arguments, commands) in [
        ("-c 1 -n 1000 -t set", &[("SET", 1000)][..]),
        ("-c 5 -n 2000 -t get,lpush", &[("GET", 2000), ("LPUSH", 2000)]),
        ("-c 5 -n 4800 -P 16 -t set,get", &[("GET", 4800), ("SET", 4800)]),
        ("-c 1 -n 1600 -P 16 -t mset,ping", &[("MSET", 1600), ("PING", 3200)]),
    ] {
        let requests = redis(arguments, commands);
        assert!(share_of(Category::Unattributed, &requests) <= 0.01, "{arguments}");
    }
}

#[test]
fn redis_commands_are_known_by_their_names_alone() {
    let Some(_turn) = needs_kernel() else { return };
    let command = [python(), &peer("resp_pair.py"), "arrays", "30"];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    let said = counts(&text(&capture.output.stdout));
    assert_eq!(found(Kind::Resp, &capture.checked()), said);
    let capture = Capture::of(&["--no-methods"], &command, Stdio::null()).succeeded();
    let unknown = [("?".to_string(), said.values().sum())].into();
    assert_eq!(found(Kind::Resp, &capture.checked()), unknown);
}

/// A connection whose start was captured speaks HTTP/2 only if it starts with the preface.
#[test]
fn what_only_looks_like_frames_is_turns() {
    let Some(_turn) = needs_kernel() else { return };
    for (transport, kind) in [("tcp", Kind::Tcp), ("unix", Kind::Unix)] {
        let command = [python(), &peer("ones_pair.py"), transport, "20", "/dev/null"];
        let (requests, _) = captured(&[], &command);
        let turns = requests.iter().filter(|(request, _)| request.kind == kind).count();
        assert_eq!(turns, 20, "{transport}: {requests:?}");
    }
}

/// Length prefixes before messages, as many protocols have them, are not taken for frames of another protocol.
#[test]
fn what_has_its_length_before_it_is_turns() {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, said) = captured(&[], &[python(), &peer("lengths_pair.py"), "10"]);
    let wanted: usize = said.trim().parse().expect("how many it made");
    let turns = requests.iter().filter(|(request, _)| request.kind == Kind::Tcp).count();
    let others = requests.iter().find(|(request, _)| request.kind != Kind::Tcp);
    assert_eq!((turns, others), (wanted, None));
}

/// Connections with messages laid out as in ordinary protocols are turns.
#[test]
fn ordinary_streams_are_turns() {
    let Some(_turn) = needs_kernel() else { return };
    let (requests, said) = captured(&[], &[python(), &peer("streams_pair.py"), "ask", "2"]);
    let wanted: usize = said.trim().parse().expect("how many it made");
    let turn = |request: &Request| matches!(request.kind, Kind::Tcp | Kind::Unix);
    let others = requests.iter().find(|(request, _)| !turn(request));
    assert_eq!((requests.len(), others), (wanted, None));
}

/// What is encrypted is turns, those of handshakes are named, and the report says so.
#[test]
fn encrypted_connections_are_told() {
    let Some(_turn) = needs_kernel() else { return };
    let command = [python(), &peer("tls_pair.py"), "3", "4"];
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    assert_eq!(text(&capture.output.stdout), "12\n");
    let requests = capture.checked();
    // TLS 1.2 takes two round trips (RFC 5246, section 7.3).
    let asked = [("?".to_string(), 12), ("TLS handshake".to_string(), 2 * 3)].into();
    assert_eq!(found(Kind::Tcp, &requests), asked);
    let told = |warning: &Warning| matches!(warning, Warning::Encrypted { users } if users.matches("python").count() == 4);
    assert!(capture.manifest().warnings.iter().any(told), "{:?}", capture.manifest().warnings);
    let report = capture.report();
    assert!(report.lines().take(8).any(|line| line.contains("are encrypted (TLS)")), "{report}");
}

/// The protocol of a connection is detected unless the user gives `--request`, to `run` or when attributing again.
#[test]
fn the_user_may_say_what_requests_are() {
    const REQUESTS: usize = 40;
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = peer_in_c("mmsg_pair.c");
    let command = [program.as_str(), &REQUESTS.to_string()];
    let of = |capture: &Capture| {
        let requests = capture.checked().into_iter().map(|(request, _)| request);
        let kinds = requests.fold(BTreeMap::new(), |mut kinds, request| {
            *kinds.entry((request.kind, request.certainty)).or_insert(0) += 1;
            kinds
        });
        kinds.into_iter().collect::<Vec<_>>()
    };
    let capture = Capture::of(&[], &command, Stdio::null()).succeeded();
    assert_eq!(of(&capture), [((Kind::Http1, Certainty::Sure), REQUESTS)]);
    // Two pipelined requests are one turn.
    let turns = [((Kind::Tcp, Certainty::Likely), REQUESTS / 2)];
    let again = rpcprobe(["attribute", "-q", "--request", "tcp"]).arg(capture.path()).status();
    assert!(again.expect("it runs").success());
    assert_eq!(of(&capture), turns);
    let capture = Capture::of(&["--request", "tcp"], &command, Stdio::null()).succeeded();
    assert_eq!(of(&capture), turns);
    let capture = Capture::of(&["--request", "pipe"], &command, Stdio::null()).succeeded();
    assert_eq!(of(&capture), []);
}

/// HTTP/1 messages are found however their bytes are spread over the messages of sendmmsg() and recvmmsg().
#[test]
fn frames_are_found_in_the_messages_of_one_call() {
    const REQUESTS: usize = 40;
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = peer_in_c("mmsg_pair.c");
    let (mut requests, _) = captured(&[], &[&program, &REQUESTS.to_string()]);
    requests.retain(|(request, _)| request.kind == Kind::Http1);
    requests.sort_by_key(|(request, _)| request.request_id);
    let methods: BTreeSet<_> = requests.iter().filter_map(|(r, _)| r.method.clone()).collect();
    let wanted: BTreeSet<_> = (0..REQUESTS).map(|number| format!("GET /{number}")).collect();
    assert_eq!((requests.len(), methods), (REQUESTS, wanted));
    assert!(requests.iter().all(|(r, _)| r.complete && r.status == Some(200)), "{requests:?}");
}

/// With hostile bytes on a connection nothing crashes or hangs, the events can be read, and segments tile their
/// requests.
#[test]
fn hostile_bytes_do_no_harm() {
    let Some(_turn) = needs_kernel() else { return };
    for seed in ["1", "2"] {
        let (requests, said) = captured(&[], &[python(), &peer("hostile_pair.py"), "300", seed]);
        assert_eq!(said.trim(), "300");
        assert!(!requests.is_empty(), "some of it makes sense");
    }
}

/// One thread of the client reads all replies. A call lasts until the thread that made it has a CPU again, and the time
/// since the reply was read is the phase `hand-over`.
#[test]
fn an_answer_read_for_another_thread_ends_when_that_one_has_a_cpu() {
    const CALLS: usize = 100;
    let Some(_turn) = needs_kernel() else { return };
    let (_directory, program) = peer_in_c("poller_pair.c");
    let (mut requests, told) = captured(&[], &[&program, &CALLS.to_string()]);
    requests.retain(|(request, _)| request.kind == Kind::OncRpc);
    requests.sort_by_key(|(request, _)| request.start_ns);
    assert_eq!(requests.len(), CALLS);
    assert!(share_of(Category::Unattributed, &requests) < 0.01);

    let mut handed = 0;
    for ((request, segments), line) in requests.iter().zip(told.lines()) {
        assert!(request.complete, "{request:?}");
        let stamps: Vec<u64> =
            line.split(' ').map(|stamp| stamp.parse().expect("a number")).collect();
        let [begin_ns, woken_ns, end_ns] = stamps[..] else { panic!("{line}") };
        let (start_ns, back_ns) = (request.start_ns, request.start_ns + request.latency_ns);
        assert!(begin_ns <= start_ns && back_ns <= end_ns, "{line}: {request:?}");
        let tail: Vec<_> =
            segments.iter().skip_while(|segment| segment.phase != Some("hand-over")).collect();
        if tail.is_empty() {
            continue; // the caller was not asleep
        }
        handed += 1;
        assert!(woken_ns < back_ns, "{line}: {request:?}");
        assert!(tail.iter().all(|segment| segment.phase == Some("hand-over")));
        let client = request.client.as_ref().expect("a client");
        let last = tail.last().expect("not empty");
        assert_eq!((last.tid, last.category), (client.tid, Category::RunqueueWakeup), "{tail:#?}");
        // The reader computes for 0.3 ms.
        let computed_ns: u64 = (tail.iter())
            .filter(|segment| segment.tid != client.tid)
            .map(|segment| segment.duration_ns)
            .sum();
        assert!(computed_ns > 290_000, "{tail:#?}");
    }
    assert!(handed * 2 > CALLS, "{handed} of {CALLS}");
}
