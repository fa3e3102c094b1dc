//! Requests over stream sockets, against the clients' own counts.

mod common;

use std::collections::HashSet;
use std::process::Stdio;

use common::capture::{kinds, time_in, Capture};
use common::{echo, needs_kernel, text};
use rpcprobe::model::{Category, Kind, Request, Segment};

type Requests = Vec<(Request, Vec<Segment>)>;

/// Runs `echo ARGUMENTS` and checks the laws, and that every answer its clients counted is one
/// complete request of that kind. The capture's context switches are all there: where this machine
/// lost some, it is made again.
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
        // One thread serves five: requests wait for it.
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
            }
            assert!(share_of(Category::Unattributed, &requests) <= 0.01, "{transport} {bytes}");
        }
    }
}
