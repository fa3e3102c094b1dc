//! Small traces that begin with requests in flight, with answers derived by hand. The client (thread 10, CPU 0) and the
//! server (thread 20, CPU 1) talk over the two directions of a connection.

use rpcprobe::engine::event::{OpenCall, What, TYPE_UNIX};
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::model::{check_conservation, Reason, Request, Segment};

use super::story::*;

const ATTACHED_NS: u64 = 50;

fn marked(tid: u32, call: Option<OpenCall>) -> What {
    What::Marked { tid, tgid: tid, asleep: call.map(|_| ASLEEP), call }
}

fn roles() -> What {
    let (asked, answer) = (connection(2, TYPE_UNIX), connection(3, TYPE_UNIX));
    What::Role { asked: Some(asked), answer: Some(answer) }
}

/// A message of four bytes is sent or received.
fn moves(s: &mut Story, (cpu, tid): (u32, u32), answer: bool, at: u64, span: (u64, u64)) {
    let (there, back) = (connection(2, TYPE_UNIX), connection(3, TYPE_UNIX));
    let (on, reverse) = if answer { (back, there) } else { (there, back) };
    let nr = if (tid == 10) == answer { RECVFROM } else { SENDTO };
    s.moved(cpu, tid, (nr, on, reverse), (at, 4), span);
}

fn attached(s: &Story) -> Vec<(Request, Vec<Segment>)> {
    let mut engine = Engine::new(4, 0, Rates::default());
    engine.attached_at(ATTACHED_NS);
    let answers = explain_with(engine, &s.events());
    for (request, segments) in &answers {
        check_conservation(request, segments).expect("the law of conservation");
    }
    answers
}

#[test]
fn a_server_found_asleep_is_woken_like_any_other() {
    let mut s = Story::new();
    let socket = socket(73, TYPE_UNIX);
    s.at(
        5,
        1,
        marked(20, Some(OpenCall { nr: RECVFROM, enter_ns: 5, object: Some(socket), fd: 3 })),
    );
    s.at(6, 0, marked(10, None));
    s.at(7, 0, roles());
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    moves(&mut s, (0, 10), true, 96, (12, 20)); // the answer to an earlier request
    s.wake(105, 0, 10, 20, 0);
    moves(&mut s, (0, 10), false, 40, (100, 110));
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    moves(&mut s, (1, 20), false, 40, (5, 113));
    s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), socket);
    s.wake(135, 1, 20, 10, 0);
    moves(&mut s, (1, 20), true, 100, (130, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    moves(&mut s, (0, 10), true, 100, (115, 142));
    let answers = attached(&s);
    let [(request, segments)] = &answers[..] else { panic!("not one request: {answers:?}") };
    assert!(request.complete, "{request:?}");
    assert_eq!(request.client.as_ref().map(|end| end.tid), Some(10));
    let answer = "
        100-105 client kernel.unix
        105-109 server runqueue.wakeup
        109-113 server kernel.unix
        113-130 server user
        130-135 server kernel.unix
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.unix
    ";
    assert_eq!(table(segments), expected(answer));
}

/// The server's answer is the first thing seen. If the roles are recorded, thread 10 is the client. If not, the server,
/// which writes first, is taken for the client.
#[test]
fn who_asks_is_what_was_found_and_not_who_wrote_first() {
    let clients = |told: bool| {
        let mut s = Story::new();
        s.at(5, 0, marked(10, None));
        s.at(5, 1, marked(20, None));
        if told {
            s.at(6, 0, roles());
        }
        s.switch(8, 0, IDLE, 10, RUNNABLE);
        s.switch(8, 1, IDLE, 20, RUNNABLE);
        for turn in 0..3 {
            let at = 20 + 100 * turn;
            moves(&mut s, (1, 20), true, 4 * turn, (at, at + 10));
            moves(&mut s, (0, 10), true, 4 * turn, (at + 12, at + 20));
            moves(&mut s, (0, 10), false, 4 * turn, (at + 40, at + 50));
            moves(&mut s, (1, 20), false, 4 * turn, (at + 52, at + 60));
        }
        let complete = attached(&s).into_iter().filter(|(request, _)| request.complete);
        complete.map(|(request, _)| request.client.expect("both").tid).collect::<Vec<_>>()
    };
    assert_eq!(clients(true), [10, 10]);
    assert_eq!(clients(false), [20, 20]);
}

#[test]
fn what_began_before_is_incomplete_and_what_ended_before_is_left_out() {
    let mut s = Story::new();
    s.at(1, 0, marked(10, None));
    s.at(1, 1, marked(20, None));
    s.at(2, 0, roles());
    s.switch(3, 0, IDLE, 10, RUNNABLE);
    s.switch(3, 1, IDLE, 20, RUNNABLE);
    for (turn, at) in [4, 30, 60].into_iter().enumerate() {
        let bytes = 4 * turn as u64;
        moves(&mut s, (0, 10), false, bytes, (at, at + 2));
        moves(&mut s, (1, 20), false, bytes, (at + 3, at + 5));
        moves(&mut s, (1, 20), true, bytes, (at + 15, at + 17));
        moves(&mut s, (0, 10), true, bytes, (at + 18, at + 25));
    }
    let told: Vec<_> = attached(&s)
        .into_iter()
        .map(|(request, _)| (request.start_ns, request.complete, request.reason))
        .collect();
    let reason = Some(Reason::BeganBefore);
    assert_eq!(told, [(30, false, reason), (60, true, None)]);
}
