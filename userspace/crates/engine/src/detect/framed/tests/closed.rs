//! Connections that end before an answer.

use super::*;
use crate::classify::syscall::{NR_CLOSE, NR_SHUTDOWN};
use crate::event::What::Fork;

const RECEIVE: u16 = RECVFROM;
/// The sockets of both ends.
const OF_CLIENT: u32 = 71;
const OF_SERVER: u32 = 72;
const ECONNRESET: i64 = 104;

/// A call on a socket that moves nothing.
fn on_socket(s: &mut Story, (tid, socket): (u32, u32), nr: u16, span: (u64, u64), ret: i64) {
    let io = Io {
        // Any device: a channel has none.
        object: Object { dev: 8, ino: u64::from(socket), type_bits: TYPE_TCP },
        fd: 3,
        is_write: nr == NR_SHUTDOWN,
        offset: 0,
        bytes: 0,
        reverse: None,
        empty: false,
        unsent: SendLimit::default(),
        socket: 0,
    };
    let call = Call { io: Some(io), ..Call::new(nr, span, ret) };
    s.events.push(event(span.1, What::Call { tid, call }));
}

/// A question that is not answered yet.
fn asked(ends: &[u32]) -> Story {
    let mut s = Story::new(Protocol::Http1);
    let mut moved = |tid, socket, span| {
        if ends.contains(&tid) {
            s.moved(tid, ASKS, (0, 50), span);
            if let Some(What::Call { call: Call { io: Some(io), .. }, .. }) =
                s.events.last_mut().map(|event| &mut event.what)
            {
                io.socket = socket;
            }
        }
    };
    moved(CLIENT, OF_CLIENT, (1000, 1010));
    moved(SERVER, OF_SERVER, (1005, 1020));
    let told_ns = if ends.contains(&CLIENT) { 1010 } else { 1020 };
    s.unit(told_ns, ASKS, (0, 50), 0, UNIT_REQUEST, UNIT_LAST);
    s
}

/// The server's answer, by its call, and the client's read of it.
fn answered(s: &mut Story, written: (u64, u64), read: (u64, u64)) {
    s.moved(SERVER, ANSWERS, (0, 40), written);
    s.unit(written.1, ANSWERS, (0, 40), 0, UNIT_RESPONSE, UNIT_LAST);
    s.moved(CLIENT, ANSWERS, (0, 40), read);
}

fn only(s: Story) -> (u64, Option<Reason>) {
    let told = s.told();
    assert_eq!(told.len(), 1, "{told:?}");
    (told[0].latency_ns, told[0].reason.clone())
}

fn closed(who: Who) -> Option<Reason> {
    Some(Reason::Closed { who })
}

#[test]
fn a_client_that_gives_up_ends_its_request() {
    let mut s = asked(&[CLIENT]);
    on_socket(&mut s, (CLIENT, OF_CLIENT), NR_CLOSE, (5000, 5010), 0);
    assert_eq!(only(s), (4000, closed(Who::Client)));

    let mut s = asked(&[CLIENT, SERVER]);
    on_socket(&mut s, (CLIENT, OF_CLIENT), NR_CLOSE, (5000, 5010), 0);
    on_socket(&mut s, (SERVER, OF_SERVER), RECEIVE, (5020, 5030), 0);
    on_socket(&mut s, (SERVER, OF_SERVER), NR_CLOSE, (9000, 9010), 0);
    assert_eq!(only(s), (4000, closed(Who::Client)), "whatever the server did then");
}

#[test]
fn a_request_lasts_until_its_client_knows() {
    let mut s = asked(&[CLIENT, SERVER]);
    on_socket(&mut s, (SERVER, OF_SERVER), NR_CLOSE, (4000, 4010), 0);
    on_socket(&mut s, (CLIENT, OF_CLIENT), RECEIVE, (4100, 5000), -ECONNRESET);
    on_socket(&mut s, (CLIENT, OF_CLIENT), NR_CLOSE, (8000, 8010), 0);
    assert_eq!(only(s), (4000, closed(Who::Server)));

    let mut s = asked(&[CLIENT]);
    on_socket(&mut s, (CLIENT, OF_CLIENT), RECEIVE, (4100, 5000), 0);
    on_socket(&mut s, (CLIENT, OF_CLIENT), NR_CLOSE, (8000, 8010), 0);
    assert_eq!(only(s), (4000, closed(Who::Server)), "the client alone");
}

#[test]
fn who_was_first_is_known_at_either_end() {
    let mut s = asked(&[SERVER]);
    on_socket(&mut s, (SERVER, OF_SERVER), RECEIVE, (3000, 3010), 0);
    on_socket(&mut s, (SERVER, OF_SERVER), NR_CLOSE, (5005, 5010), 0);
    assert_eq!(only(s), (4000, closed(Who::Client)));

    let mut s = asked(&[SERVER]);
    on_socket(&mut s, (SERVER, OF_SERVER), NR_SHUTDOWN, (5005, 5006), 0);
    on_socket(&mut s, (SERVER, OF_SERVER), RECEIVE, (6000, 6010), 0);
    on_socket(&mut s, (SERVER, OF_SERVER), NR_CLOSE, (7000, 7010), 0);
    assert_eq!(only(s), (4000, closed(Who::Server)));
}

/// A client that sends nothing more still reads its answer.
#[test]
fn half_a_connection_may_be_closed() {
    let mut s = asked(&[CLIENT, SERVER]);
    on_socket(&mut s, (CLIENT, OF_CLIENT), NR_SHUTDOWN, (1030, 1040), 0);
    on_socket(&mut s, (SERVER, OF_SERVER), RECEIVE, (1050, 1060), 0);
    answered(&mut s, (300_000_000, 300_000_010), (300_000_020, 300_001_000));
    assert_eq!(only(s), (300_000_000, None));
}

/// The answer's record comes after that of the close.
#[test]
fn an_answer_may_be_told_after_the_close() {
    let mut s = asked(&[CLIENT, SERVER]);
    on_socket(&mut s, (SERVER, OF_SERVER), NR_CLOSE, (2010, 2020), 0);
    answered(&mut s, (2000, 2030), (1500, 3000));
    assert_eq!(only(s), (2000, None));
}

/// A process that was forked since the connection began may answer on it.
#[test]
fn a_descriptor_may_be_shared() {
    let mut s = asked(&[CLIENT, SERVER]);
    let fork = Fork {
        parent: SERVER,
        child: 30,
        child_tgid: 30,
        flags: rpcprobe_record::TASK_TRACED,
        comm: "worker".into(),
        enter_ns: 1500,
    };
    s.events.push(event(1600, fork));
    on_socket(&mut s, (SERVER, OF_SERVER), NR_CLOSE, (2010, 2020), 0);
    s.moved(30, ANSWERS, (0, 40), (300_000_000, 300_000_010));
    if let Some(What::Call { call: Call { io: Some(io), .. }, .. }) =
        s.events.last_mut().map(|event| &mut event.what)
    {
        io.is_write = true;
    }
    s.unit(300_000_010, ANSWERS, (0, 40), 0, UNIT_RESPONSE, UNIT_LAST);
    s.moved(CLIENT, ANSWERS, (0, 40), (2000, 300_001_000));
    assert_eq!(only(s), (300_000_000, None));
}

/// A read of nothing may not have been the connection's end: the same end asks again.
#[test]
fn an_end_that_is_used_again_is_not_gone() {
    let mut s = asked(&[CLIENT]);
    on_socket(&mut s, (CLIENT, OF_CLIENT), RECEIVE, (2000, 2010), 0);
    s.moved(CLIENT, ASKS, (50, 90), (3000, 3010));
    s.unit(3010, ASKS, (50, 90), 0, UNIT_REQUEST, UNIT_LAST);
    s.moved(CLIENT, ANSWERS, (0, 40), (3020, 300_000_000));
    s.moved(CLIENT, ANSWERS, (40, 80), (300_000_010, 300_001_000));
    s.unit(300_000_000, ANSWERS, (0, 40), 0, UNIT_RESPONSE, UNIT_LAST);
    s.unit(300_001_000, ANSWERS, (40, 80), 0, UNIT_RESPONSE, UNIT_LAST);
    let told: Vec<_> = s.told().into_iter().map(|r| (r.latency_ns, r.reason)).collect();
    assert_eq!(told, [(299_999_000, None), (299_998_000, None)]);
}

/// A call that returned 0 did not find the connection's end: bytes came later.
#[test]
fn who_was_first_is_not_told_by_an_empty_read() {
    let mut s = asked(&[CLIENT]);
    on_socket(&mut s, (CLIENT, OF_CLIENT), RECEIVE, (2000, 2010), 0);
    answered(&mut s, (2000, 2030), (2040, 3000));
    s.unit(3000, ANSWERS, (0, 40), 0, UNIT_RESPONSE, UNIT_LAST);
    s.moved(CLIENT, ASKS, (50, 90), (4000, 4010));
    s.unit(4010, ASKS, (50, 90), 0, UNIT_REQUEST, UNIT_LAST);
    on_socket(&mut s, (CLIENT, OF_CLIENT), NR_CLOSE, (9000, 9010), 0);
    let told: Vec<_> = s.told().into_iter().map(|r| (r.latency_ns, r.reason)).collect();
    assert_eq!(told, [(2000, None), (5000, closed(Who::Client))]);
}
