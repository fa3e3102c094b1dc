//! Traces with lost records: what is left must not be taken for complete. The client (thread 10) sends its requests on
//! pipe `A`, the server (thread 20) answers on pipe `B`.

use rpcprobe::engine::event::{What, TYPE_TCP, TYPE_UNIX};
use rpcprobe::model::Reason;

use super::golden::{a, b};
use super::story::*;

/// All requests found: start, end, reason.
fn found(s: &Story) -> Vec<(u64, u64, Option<Reason>)> {
    let mut found: Vec<_> = explain(4, 0, &s.events(), 0.0)
        .into_iter()
        .map(|(request, _)| {
            assert_eq!(request.complete, request.reason.is_none());
            (request.start_ns, request.start_ns + request.latency_ns, request.reason)
        })
        .collect();
    found.sort();
    found
}

fn lost(s: &mut Story, first_ns: u64, last_ns: u64) {
    s.at(last_ns, 3, What::Lost { count: 1, first_ns, last_ns });
}

/// A request and its answer over the pipes, from `at_ns` on, complete 30 ns later.
fn trip(s: &mut Story, number: u64, at_ns: u64) {
    asked(s, number, at_ns);
    answered(s, number, at_ns);
}

fn asked(s: &mut Story, number: u64, at_ns: u64) {
    s.write(0, 10, a(), (4 * number, 4), (at_ns, at_ns + 4));
    s.read(1, 20, a(), (4 * number, 4), (at_ns + 6, at_ns + 10));
}

fn answered(s: &mut Story, number: u64, at_ns: u64) {
    s.write(1, 20, b(), (4 * number, 4), (at_ns + 12, at_ns + 16));
    s.read(0, 10, b(), (4 * number, 4), (at_ns + 20, at_ns + 30));
}

#[test]
fn who_asks_is_not_known_where_the_begin_was_lost() {
    // The first request is lost: the first thing seen is its answer.
    let mut s = Story::new();
    lost(&mut s, 50, 110);
    answered(&mut s, 0, 100);
    trip(&mut s, 1, 200);
    trip(&mut s, 2, 300);
    let found = found(&s);
    assert!(!found.is_empty());
    for (_, _, reason) in found {
        assert!(reason.is_some());
    }
}

#[test]
fn a_loss_before_the_first_byte_takes_nothing_from_a_channel() {
    let mut s = Story::new();
    lost(&mut s, 50, 90);
    trip(&mut s, 0, 100);
    assert_eq!(found(&s), [(100, 130, None)]);
}

#[test]
fn who_asks_is_known_if_the_question_came_before_any_loss() {
    // The first answer is lost, long after the first request, which is merged with the next one.
    let mut s = Story::new();
    asked(&mut s, 0, 100);
    lost(&mut s, 112, 130);
    trip(&mut s, 1, 200);
    trip(&mut s, 2, 300);
    assert_eq!(found(&s), [(100, 230, Some(Reason::RecordsLost)), (300, 330, None)]);
}

/// Two requests on a connection whose first request is lost.
fn on_a_connection(type_bits: u16, first: u64, opened: bool) -> Vec<(u64, u64, Option<Reason>)> {
    let (there, back) = (connection(1, type_bits), connection(2, type_bits));
    let mut s = Story::new();
    if opened {
        s.opened(0, 10, 77, (10, 20), None);
    }
    lost(&mut s, 50, 110);
    let mut ask = |number: u64, at_ns: u64| {
        let bytes = (first + 4 * number, 4);
        let span = (at_ns, at_ns + 4);
        s.moved_through(77, (0, 10), (SENDTO, there, back), bytes, span);
        s.moved(1, 20, (RECVFROM, there, back), bytes, (at_ns + 6, at_ns + 10));
        s.moved(1, 20, (SENDTO, back, there), bytes, (at_ns + 12, at_ns + 16));
        s.moved(0, 10, (RECVFROM, back, there), bytes, (at_ns + 20, at_ns + 30));
    };
    ask(1, 200);
    ask(2, 300);
    found(&s)
}

#[test]
fn likewise_on_connections() {
    let doubted = |start_ns| (start_ns, start_ns + 30, Some(Reason::AskerUnknown));
    assert_eq!(on_a_connection(TYPE_UNIX, 0, false), [doubted(200), doubted(300)]);
    // TCP sequence numbers begin anywhere.
    assert_eq!(on_a_connection(TYPE_TCP, 0, false), [doubted(200), doubted(300)]);
    // But the end that opened the connection is the client.
    assert_eq!(on_a_connection(TYPE_TCP, 5000, true), [(200, 230, None), (300, 330, None)]);
}

#[test]
fn an_answer_of_which_a_part_has_no_writer_is_not_whole() {
    // After the second turn, a request and the write of its answer are lost. The client goes on reading, so the second
    // turn has no end.
    let mut s = Story::new();
    trip(&mut s, 0, 100);
    trip(&mut s, 1, 200);
    lost(&mut s, 250, 290);
    s.read(0, 10, b(), (8, 4), (285, 295));
    trip(&mut s, 3, 400);
    let torn = (200, 230, Some(Reason::WriterUnseen));
    assert_eq!(found(&s), [(100, 130, None), torn, (400, 430, None)]);
}
