//! Small traces of datagrams that begin with requests in flight, with answers derived by hand. At the `attach` a
//! request was open, so the first datagram seen is an answer.

use std::net::SocketAddr;

use rpcprobe::engine::event::{Named, Object, What, TYPE_UDP, TYPE_UNIX_DGRAM};
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::model::Certainty::{self, Guessed, Likely};

use super::connection::Connection;
use super::story::*;

const ATTACHED_NS: u64 = 50;

/// Ports: of a registered service; of clients; and of a server that took what the kernel assigned.
const SERVICE: u16 = 5301;
const EPHEMERAL: [u16; 3] = [40_000, 40_001, 40_002];
const ANY: u16 = 50_000;

fn named(s: &mut Story, at_ns: u64, object: Object, ports: [u16; 2]) {
    let ends = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let (name, is_anew) = (format!("{} > {}", ends[0], ends[1]).into(), false);
    s.at(at_ns, 0, What::Channel(Box::new(Named { object, name, ends: Some(ends), is_anew })));
}

/// Three turns of a client (10) and a server (20, if it is traced too), from `begin_ns` on. Each turn begins with the
/// answer to the request of the turn before. `ports`: of client and server.
fn turns(
    s: &mut Story,
    number: u64,
    ports: Option<[u16; 2]>,
    [client, server]: [bool; 2],
    begin_ns: u64,
) {
    let c = Connection::numbered(number, if ports.is_some() { TYPE_UDP } else { TYPE_UNIX_DGRAM });
    if let Some([of_client, of_server]) = ports {
        named(s, begin_ns, c.back, [of_server, of_client]);
        named(s, begin_ns, c.there, [of_client, of_server]);
    }
    for turn in 0..3 {
        let (at, bytes) = (begin_ns + 10 + 100 * turn, (4 * turn, 4));
        if server {
            c.answers(s, 1, 20, bytes, (at, at + 10));
            c.hears(s, 1, 20, bytes, (at + 52, at + 60));
        }
        if client {
            c.gets(s, 10, bytes, (at + 2, at + 20));
            c.asks(s, 10, bytes, (at + 40, at + 50));
        }
    }
}

/// The requests found from `since_ns` on: start, client thread (0: not traced), certainty.
fn found(s: &Story, is_attached: bool, since_ns: u64) -> Vec<(u64, u32, Certainty)> {
    let mut engine = Engine::new(4, 0, Rates::default());
    if is_attached {
        engine.attached_at(ATTACHED_NS);
    }
    let found = explain_with(engine, &s.events()).into_iter().map(|(request, _)| request);
    let found = found.filter(|request| request.complete && request.start_ns >= since_ns);
    let mut found: Vec<_> = found
        .map(|request| {
            let client = request.client.as_ref().map_or(0, |end| end.tid);
            (request.start_ns, client, request.certainty)
        })
        .collect();
    found.sort_unstable_by_key(|(start_ns, ..)| *start_ns);
    found
}

fn of_one(ports: Option<[u16; 2]>, traced: [bool; 2]) -> Story {
    let mut s = Story::new();
    s.switch(3, 0, IDLE, 10, RUNNABLE);
    s.switch(3, 1, IDLE, 20, RUNNABLE);
    turns(&mut s, 1, ports, traced, 50);
    s
}

#[test]
fn a_services_port_is_asked_whatever_is_seen_first() {
    let ports = Some([EPHEMERAL[0], SERVICE]);
    let both = found(&of_one(ports, [true, true]), true, 0);
    assert_eq!(both, [(100, 10, Likely), (200, 10, Likely)]);
    let client = found(&of_one(ports, [true, false]), true, 0);
    assert_eq!(client, [(100, 10, Likely), (200, 10, Likely)]);
    let server = found(&of_one(ports, [false, true]), true, 0);
    assert_eq!(server, [(112, 0, Likely), (212, 0, Likely)]);
}

/// Without an `attach` nothing came before: the end that sends first is the client, whatever its port.
#[test]
fn what_is_seen_from_its_begin_is_what_it_seems() {
    let ports = Some([EPHEMERAL[0], SERVICE]);
    let both = found(&of_one(ports, [true, true]), false, 0);
    assert_eq!(both, [(60, 20, Likely), (160, 20, Likely), (260, 20, Likely)]);
}

#[test]
fn where_nothing_tells_the_roles_are_guessed() {
    for ports in [None, Some([EPHEMERAL[0], ANY])] {
        let both = found(&of_one(ports, [true, true]), true, 0);
        let turned_round = [(60, 20, Guessed), (160, 20, Guessed), (260, 20, Guessed)];
        assert_eq!(both, turned_round, "{ports:?}");
    }
}

/// The kernel assigned all ports. Once there is a second client, it is clear which end serves, also for the flow seen
/// before.
#[test]
fn who_has_several_peers_is_asked() {
    let mut s = of_one(Some([EPHEMERAL[0], ANY]), [false, true]);
    turns(&mut s, 2, Some([EPHEMERAL[1], ANY]), [false, true], 195);
    let told = found(&s, true, 0);
    // When the second client's flow begins, at 205, the first two turns of the first client are over: there the server
    // seemed to be the client.
    assert_eq!(told[0], (60, 20, Guessed), "{told:?}");
    let later: Vec<_> = told.into_iter().filter(|(start_ns, ..)| *start_ns >= 205).collect();
    assert_eq!(later, [(212, 0, Likely), (257, 0, Likely), (357, 0, Likely)]);
}

/// One socket sends requests to several services: its port and the number of its peers suggest different roles, so the
/// role is a guess.
#[test]
fn contradictory_signs_make_a_guess() {
    let mut s = of_one(Some([EPHEMERAL[0], SERVICE]), [true, false]);
    turns(&mut s, 2, Some([EPHEMERAL[0], SERVICE + 1]), [true, false], 355);
    let told = found(&s, true, 350);
    assert_eq!(told, [(405, 10, Guessed), (505, 10, Guessed)]);
}

/// A flow that is first seen two seconds after the attach does not begin with the answer to an earlier request. And an
/// end that connects a socket and sends through it is the client, whatever the ports.
#[test]
fn a_flow_that_begins_in_the_capture_is_what_it_seems() {
    let mut s = Story::new();
    s.switch(3, 0, IDLE, 10, RUNNABLE);
    s.switch(3, 1, IDLE, 20, RUNNABLE);
    turns(&mut s, 1, Some([EPHEMERAL[0], ANY]), [true, true], 3_000_000_000);
    let told = found(&s, true, 0);
    let begins_ns: Vec<_> = told.iter().map(|(start_ns, ..)| *start_ns).collect();
    assert_eq!(begins_ns, [3_000_000_010, 3_000_000_110, 3_000_000_210]);
    assert!(told.iter().all(|(_, client, sure)| (*client, *sure) == (20, Likely)), "{told:?}");

    let mut s = Story::new();
    let c = Connection::new(TYPE_UDP);
    s.switch(3, 1, IDLE, 20, RUNNABLE);
    s.connected(1, 20, socket(6, TYPE_UDP), (52, 54));
    named(&mut s, 55, c.back, [SERVICE, EPHEMERAL[0]]);
    for turn in 0..2 {
        let (at, bytes) = (60 + 100 * turn, (4 * turn, 4));
        s.moved_through(6, (1, 20), (SENDTO, c.back, c.there), bytes, (at, at + 10));
        s.moved_through(6, (1, 20), (RECVFROM, c.there, c.back), bytes, (at + 12, at + 60));
    }
    assert_eq!(found(&s, true, 0), [(60, 20, Likely), (160, 20, Likely)]);
}

/// A client sends a second datagram before the answer to the first one has come. The server answers both. It may be one
/// question, sent again, or two.
#[test]
fn what_is_sent_before_an_answer_makes_a_guess() {
    for [client, server] in [[true, true], [true, false], [false, true]] {
        let mut s = Story::new();
        s.switch(3, 0, IDLE, 10, RUNNABLE);
        s.switch(3, 1, IDLE, 20, RUNNABLE);
        let c = Connection::numbered(1, TYPE_UDP);
        named(&mut s, 4, c.back, [SERVICE, EPHEMERAL[0]]);
        named(&mut s, 4, c.there, [EPHEMERAL[0], SERVICE]);
        for turn in 0..2 {
            let (at, from) = (100 + 200 * turn, 8 * turn);
            let again = (turn == 1).then_some((from + 4, 4));
            if client {
                c.asks(&mut s, 10, (from, 4), (at, at + 5));
                again.inspect(|bytes| c.asks(&mut s, 10, *bytes, (at + 10, at + 15)));
            }
            if server {
                c.hears(&mut s, 1, 20, (from, 4), (at + 20, at + 25));
                again.inspect(|bytes| c.hears(&mut s, 1, 20, *bytes, (at + 30, at + 35)));
                c.answers(&mut s, 1, 20, (from, 4), (at + 40, at + 45));
                again.inspect(|bytes| c.answers(&mut s, 1, 20, *bytes, (at + 50, at + 55)));
            }
            if client {
                c.gets(&mut s, 10, (from, 4), (at + 60, at + 65));
                again.inspect(|bytes| c.gets(&mut s, 10, *bytes, (at + 70, at + 75)));
            }
        }
        let told = explain_with(Engine::new(4, 0, Rates::default()), &s.events()).into_iter();
        let told: Vec<_> =
            told.map(|(request, _)| (request.retransmissions, request.certainty)).collect();
        assert_eq!(told, [(Some(0), Likely), (Some(1), Guessed)], "{client} {server}");
    }
}
