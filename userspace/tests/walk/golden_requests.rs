//! Small traces of where requests begin and end, with answers derived by hand.

use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::engine::event::{Call, Rare, What};
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::golden::{a, b};
use super::story::*;

/// Start and latency of each complete request.
fn latencies(s: &Story) -> Vec<(u64, u64)> {
    s.requests().iter().map(|(request, _)| (request.start_ns, request.latency_ns)).collect()
}

/// One request from `at_ns` on: thread 10 sends it and thread 20 answers. Thread 11, which waits in read(B) on CPU 2,
/// has the answer 22 ns later. The call that sends the request ends only at `asked_ns`.
fn trip(s: &mut Story, number: u64, at_ns: u64, asked_ns: u64) {
    s.write(0, 10, a(), (4 * number, 4), (at_ns, asked_ns));
    s.read(1, 20, a(), (4 * number, 4), (at_ns + 2, at_ns + 6));
    s.write(1, 20, b(), (4 * number, 4), (at_ns + 8, at_ns + 12));
    s.read(2, 11, b(), (4 * number, 4), (at_ns + 16, at_ns + 22));
}

#[test]
fn a_request_is_a_request_before_its_write_has_ended() {
    // Thread 10 handed its bytes over and then lost its CPU: the other threads' calls ended before its own.
    let mut s = Story::new();
    trip(&mut s, 0, 100, 150);
    assert_eq!(latencies(&s), [(100, 22)]);
}

#[test]
fn an_answer_belongs_to_its_own_request() {
    // The same after an earlier request.
    let mut s = Story::new();
    trip(&mut s, 0, 100, 105);
    trip(&mut s, 1, 200, 250);
    trip(&mut s, 2, 300, 305);
    assert_eq!(latencies(&s), [(100, 22), (200, 22), (300, 22)]);
}

#[test]
fn a_question_in_two_writes_is_one_before_the_second_has_ended() {
    let mut s = Story::new();
    s.write(0, 10, a(), (0, 4), (90, 95));
    trip(&mut s, 1, 100, 150);
    assert_eq!(latencies(&s), [(90, 32)]);
}

#[test]
fn an_answer_is_whole_before_its_last_write_has_ended() {
    // The answer comes in two writes. The second ends after the next request begins.
    let mut s = Story::new();
    s.write(0, 10, a(), (0, 4), (100, 105));
    s.read(1, 20, a(), (0, 4), (102, 106));
    s.write(1, 20, b(), (0, 4), (108, 112));
    s.read(0, 10, b(), (0, 4), (116, 120));
    s.write(1, 20, b(), (4, 4), (122, 160));
    s.read(0, 10, b(), (4, 4), (126, 130));
    s.write(0, 10, a(), (4, 4), (140, 145));
    assert_eq!(latencies(&s), [(100, 30)]);
}

/// The client also sends the server something that the server does not answer: up to the end of the capture it might
/// still. Therefore the last turn is known to be over only then, but it keeps its work all the same.
#[test]
fn a_request_that_the_end_cuts_leaves_whole_ones_their_work() {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, pipe(5), (0, 1), (50, 55));
    s.read(1, 20, pipe(5), (0, 1), (60, 65));
    let c = Connection::new(TYPE_TCP);
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(108, 0, (10, IDLE), (RECVFROM, 107), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.wake(132, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (130, 135));
    s.switch(136, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (107, 140));
    s.sleep_in(150, 0, (10, IDLE), (READ, 145), pipe(9));
    let requests = explain(4, 0, &s.events(), 0.0);
    let cut = requests.iter().find(|(request, _)| !request.complete).expect("what is told");
    assert_eq!(cut.0.start_ns, 50);
    let answer = "
        100-105 client kernel.tcp
        105-110 server queue.socket (user)
        110-115 server kernel.tcp
        115-130 server user
        130-132 server kernel.tcp
        132-136 client runqueue.wakeup by idle
        136-140 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The server moves bytes from pipe to pipe: one call reads the request and writes the answer. It ends after the client
/// has the answer and has sent its next request.
#[test]
fn a_splice_that_ends_late_has_served_its_question() {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    let mut exchange = |from: u64, asked_ns: u64, spliced_ns: (u64, u64)| {
        s.write(0, 10, a(), (from, 4), (asked_ns, asked_ns + 5));
        const SPLICE: u16 = 275;
        let rare = Rare { more: Box::new([io(a(), 5, false, (from, 4))]), ..Rare::default() };
        let call = Call {
            io: Some(io(b(), 6, true, (from, 4))),
            rare: Some(Box::new(rare)),
            ..Call::new(SPLICE, spliced_ns, 4)
        };
        s.at(spliced_ns.1, 1, What::Call { tid: 20, call });
        s.read(0, 10, b(), (from, 4), (asked_ns + 8, asked_ns + 15));
    };
    exchange(0, 100, (108, 113));
    exchange(4, 130, (138, 170));
    exchange(8, 150, (172, 180));
    let begun: Vec<_> = s.requests().iter().map(|(row, _)| row.start_ns).collect();
    assert_eq!(begun, [100, 130, 150]);
}
