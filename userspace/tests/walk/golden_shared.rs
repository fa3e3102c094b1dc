//! Small traces of turns passed in shared memory, with answers derived by hand.
//!
//! The word's value says whose turn it is: the client (thread 10) waits while the word is `SERVER`, the server (thread
//! 20) while it is `CLIENT`.

use rpcprobe::engine::event::Object;
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::model::{Certainty, Kind, Reason, Request};

use super::story::*;

const CLIENT: i32 = 0;
const SERVER: i32 = 1;
const EAGAIN: i64 = -11;

fn word() -> Object {
    shared_word(7)
}

/// Both sides wait: the client passes the turn at `at_ns` and has its answer 60 ns later.
fn trip(s: &mut Story, at_ns: u64) {
    s.pass(0, 10, word(), (at_ns, at_ns + 5));
    s.await_turn(1, 20, (word(), CLIENT), (at_ns - 20, at_ns + 10), 0);
    s.pass(1, 20, word(), (at_ns + 40, at_ns + 50));
    s.await_turn(0, 10, (word(), SERVER), (at_ns + 8, at_ns + 60), 0);
}

/// Start and latency of each complete request.
fn latencies(s: &Story) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for (request, _) in s.requests() {
        assert_eq!(request.kind, Kind::Shm);
        found.push((request.start_ns, request.latency_ns));
    }
    found.sort_unstable();
    found
}

#[test]
fn a_turn_there_and_back_is_a_request() {
    let mut s = Story::new();
    (1..4).for_each(|number| trip(&mut s, 100 * number));
    assert_eq!(latencies(&s), [(100, 60), (200, 60), (300, 60)]);
}

#[test]
fn the_walk_crosses_to_the_server_and_back() {
    let mut s = Story::new();
    let futex = turn_futex(0x1000);
    s.switch(50, 0, 0, 10, RUNNABLE);
    s.sleep_in(60, 1, (20, IDLE), (FUTEX, 55), futex);
    s.wake(104, 0, 10, 20, 0);
    s.pass(0, 10, word(), (100, 106));
    s.switch(110, 1, IDLE, 20, RUNNABLE);
    s.await_turn(1, 20, (word(), CLIENT), (55, 112), 0);
    s.sleep_in(120, 0, (10, IDLE), (FUTEX, 115), futex);
    s.wake(144, 1, 20, 10, 0);
    s.pass(1, 20, word(), (140, 150));
    s.switch(148, 0, IDLE, 10, RUNNABLE);
    s.await_turn(0, 10, (word(), SERVER), (115, 155), 0);
    s.sleep_in(170, 1, (20, IDLE), (FUTEX, 160), futex);
    s.switch(180, 0, 10, IDLE, ASLEEP);
    let answer = expected(
        "100-104 client kernel.futex
         104-110 server runqueue.wakeup by idle
         110-112 server kernel.futex
         112-140 server user
         140-144 server kernel.futex
         144-148 client runqueue.wakeup by idle
         148-155 client kernel.futex",
    );
    assert_eq!(s.only(), answer);
}

#[test]
fn who_finds_the_word_changed_need_not_wait() {
    // The client is preempted, and finds the answer when it is back; then its wait returns EAGAIN; then it waits as
    // usual.
    let mut s = Story::new();
    trip(&mut s, 100);
    s.pass(0, 10, word(), (200, 205));
    s.switch(206, 0, 10, 20, RUNNABLE);
    s.pass(0, 20, word(), (240, 245));
    s.switch(250, 0, 20, 10, RUNNABLE);
    s.pass(0, 10, word(), (300, 305));
    s.pass(1, 20, word(), (340, 350));
    s.await_turn(0, 10, (word(), SERVER), (330, 338), EAGAIN);
    trip(&mut s, 400);
    assert_eq!(latencies(&s), [(100, 60), (200, 50), (300, 38), (400, 60)]);
}

#[test]
fn a_call_that_wakes_may_be_told_of_late() {
    // The client loses its CPU in the calls that wake the server, so the server's answers are recorded first.
    let mut s = Story::new();
    trip(&mut s, 100);
    for at_ns in [200, 300, 400] {
        s.pass(1, 20, word(), (at_ns + 40, at_ns + 45));
        s.pass(0, 10, word(), (at_ns, at_ns + 70));
    }
    // The answers were there before the client left its call and could look.
    assert_eq!(latencies(&s), [(100, 60), (200, 70), (300, 70), (400, 70)]);
}

#[test]
fn a_client_may_ask_again_before_the_call_that_woke_it() {
    // The word changes before the call that wakes. So the second answer belongs to the second turn.
    let mut s = Story::new();
    trip(&mut s, 100);
    s.pass(0, 10, word(), (200, 205));
    s.pass(0, 10, word(), (230, 235));
    s.pass(1, 20, word(), (240, 245));
    s.pass(1, 20, word(), (260, 265));
    trip(&mut s, 400);
    assert_eq!(latencies(&s), [(100, 60), (200, 30), (230, 30), (400, 60)]);
}

#[test]
fn a_message_in_two_wake_ups_is_one() {
    let mut s = Story::new();
    for at_ns in [100, 200, 300] {
        s.pass(0, 10, word(), (at_ns - 20, at_ns - 15));
        trip(&mut s, at_ns);
    }
    assert_eq!(latencies(&s), [(80, 80), (180, 80), (280, 80)]);
}

#[test]
fn one_that_never_waits_is_believed_after_two_turns() {
    let mut s = Story::new();
    let turn = |s: &mut Story, at_ns: u64| {
        s.await_turn(1, 20, (word(), CLIENT), (at_ns - 20, at_ns + 10), 0);
        s.pass(0, 10, word(), (at_ns, at_ns + 5));
        s.pass(1, 20, word(), (at_ns + 40, at_ns + 45));
    };
    turn(&mut s, 100);
    turn(&mut s, 200);
    turn(&mut s, 300);
    assert_eq!(latencies(&s), [(100, 40), (200, 40), (300, 40)]);
}

#[test]
fn locks_and_semaphores_pass_no_turns() {
    // Both wait for a change from the same value; or from the value of a locked mutex; or a third thread waits.
    let nothing = |s: &Story| {
        let of_kind = |request: &Request| request.kind == Kind::Shm;
        assert!(!s.requests().iter().any(|(request, _)| of_kind(request)));
    };
    for value in [0, 2] {
        let mut s = Story::new();
        for at_ns in [100, 200, 300] {
            s.await_turn(1, 20, (word(), value), (at_ns - 20, at_ns + 10), 0);
            s.pass(0, 10, word(), (at_ns, at_ns + 5));
            if value == 0 {
                s.await_turn(0, 10, (word(), value), (at_ns + 20, at_ns + 55), 0);
            }
            s.pass(1, 20, word(), (at_ns + 40, at_ns + 45));
        }
        nothing(&s);
    }
    let mut s = Story::new();
    s.await_turn(2, 90, (word(), 5), (50, 60), 0);
    (1..4).for_each(|number| trip(&mut s, 100 * number));
    nothing(&s);
}

#[test]
fn a_server_told_to_end_was_not_asked() {
    let mut s = Story::new();
    trip(&mut s, 100);
    s.pass(0, 10, word(), (200, 205));
    s.exit(220, 1, 20, 215);
    assert_eq!(latencies(&s), [(100, 60)]);
    assert_eq!(explain(4, 0, &s.events(), 0.0).len(), 1);
}

#[test]
fn what_is_asked_at_the_end_is_incomplete() {
    let mut s = Story::new();
    trip(&mut s, 100);
    s.pass(0, 10, word(), (200, 205));
    s.call(0, 10, NANOSLEEP, (210, 300), 0);
    let answers = explain(4, 0, &s.events(), 0.0);
    let open: Vec<_> = answers.iter().filter(|(request, _)| !request.complete).collect();
    let [(open, _)] = open[..] else { panic!("{answers:#?}") };
    assert_eq!((open.start_ns, open.latency_ns), (200, 100));
    assert_eq!(open.reason, Some(Reason::CaptureEnded));
}

#[test]
fn whose_word_is_older_than_the_capture_may_be_the_server() {
    let mut s = Story::new();
    (1..3).for_each(|number| trip(&mut s, 100 * number));
    let mut engine = Engine::new(4, 0, Rates::default());
    engine.attached_at(10);
    let answers = explain_with(engine, &s.events());
    assert_eq!(answers.len(), 2);
    for (request, _) in answers {
        assert_eq!((request.complete, request.reason), (false, Some(Reason::WordOlder)));
        assert_eq!(request.certainty, Certainty::Guessed);
    }
}

/// The capture began first: both threads run programs that started in it.
#[test]
fn a_word_of_programs_that_began_in_the_capture_is_no_older() {
    let mut s = Story::new();
    s.exec(12, 0, 10, "client");
    s.exec(14, 1, 20, "server");
    (1..3).for_each(|number| trip(&mut s, 100 * number));
    let mut engine = Engine::new(4, 0, Rates::default());
    engine.attached_at(10);
    let answers = explain_with(engine, &s.events());
    assert_eq!(answers.len(), 2);
    assert!(answers.iter().all(|(request, _)| request.complete), "{answers:#?}");
}
