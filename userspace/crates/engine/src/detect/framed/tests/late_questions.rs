//! A server asks another server for the sake of what it has just read. The call that wrote these bytes is still in
//! progress and reports them when it ends. Until then it is not known that they are a question.

use super::{event, Story, ANSWERS, ASKS, CLIENT, SERVER};
use crate::event::{Exec, Protocol, What};
use rpcprobe_model::{Certainty, Kind, Request};
use rpcprobe_record::{TASK_TRACED, UNIT_LAST, UNIT_REQUEST, UNIT_RESPONSE};

const MIDDLE: u32 = 30;
/// Another thread of the same process.
const BESIDE: u32 = 31;
const ASKED: [u64; 2] = [ASKS, ANSWERS];
const ASKED_BEHIND: [u64; 2] = [3, 4];
const OTHER: [u64; 2] = [5, 6];

fn back([on, back]: [u64; 2]) -> [u64; 2] {
    [back, on]
}

/// The server in the middle is a program that the client started.
fn story() -> Story {
    let mut s = Story::new(Protocol::Resp);
    let started = What::Fork {
        parent: CLIENT,
        child: MIDDLE,
        child_tgid: MIDDLE,
        flags: TASK_TRACED,
        enter_ns: 90,
        comm: "client".into(),
    };
    s.events.push(event(100, started));
    let runs = Exec {
        tid: MIDDLE,
        old_tid: MIDDLE,
        traced: true,
        entry: 0,
        interp_base: 0,
        comm: "middle".into(),
        path: None,
    };
    s.events.push(event(200, What::Exec(Box::new(runs))));
    let beside = What::Task { tid: BESIDE, tgid: MIDDLE, kthread: false, comm: "middle".into() };
    s.events.push(event(300, beside));
    s
}

/// The thread that takes in and answers what comes on a connection.
fn thread(on: [u64; 2]) -> u32 {
    if on == OTHER {
        BESIDE
    } else {
        MIDDLE
    }
}

/// The client asks the server in the middle, in a call that begins at `at_ns` and ends at `written_ns`. The question is
/// reported at the end of the call, or never.
fn asks(s: &mut Story, on: [u64; 2], (at_ns, written_ns): (u64, u64), is_told: bool) {
    let bytes = bytes(at_ns);
    s.moved_between(CLIENT, true, on, bytes, (at_ns, written_ns));
    if is_told {
        s.unit_between(written_ns, on, true, bytes, (0, UNIT_REQUEST, UNIT_LAST));
    }
    s.moved_between(thread(on), false, on, bytes, (at_ns + 12, at_ns + 15));
}

/// The server in the middle answers what it was asked at `asked_ns`.
fn answers(s: &mut Story, on: [u64; 2], asked_ns: u64, (at_ns, heard_ns): (u64, u64)) {
    let bytes = bytes(asked_ns);
    s.moved_between(thread(on), true, back(on), bytes, (at_ns, at_ns + 5));
    s.unit_between(at_ns + 5, back(on), false, bytes, (0, UNIT_RESPONSE, UNIT_LAST));
    s.moved_between(CLIENT, false, back(on), bytes, (heard_ns, heard_ns + 5));
}

/// The server in the middle asks the server behind it, at `at_ns`, and has the answer 30 ns later.
fn asks_behind(s: &mut Story, at_ns: u64) {
    let bytes = (at_ns, at_ns + 10);
    s.moved_between(MIDDLE, true, ASKED_BEHIND, bytes, (at_ns, at_ns + 10));
    s.unit_between(at_ns + 10, ASKED_BEHIND, true, bytes, (0, UNIT_REQUEST, UNIT_LAST));
    s.moved_between(SERVER, false, ASKED_BEHIND, bytes, (at_ns + 12, at_ns + 15));
    s.moved_between(SERVER, true, back(ASKED_BEHIND), bytes, (at_ns + 17, at_ns + 20));
    let answer = (0, UNIT_RESPONSE, UNIT_LAST);
    s.unit_between(at_ns + 20, back(ASKED_BEHIND), false, bytes, answer);
    s.moved_between(MIDDLE, false, back(ASKED_BEHIND), bytes, (at_ns + 25, at_ns + 30));
}

/// The numbers of the bytes of a message, for requests that begin in order of time.
fn bytes(at_ns: u64) -> (u64, u64) {
    (at_ns, at_ns + 10)
}

/// Adds a request that is reported at once.
fn a_round(s: &mut Story, at_ns: u64) {
    asks(s, ASKED, (at_ns, at_ns + 10), true);
    asks_behind(s, at_ns + 20);
    answers(s, ASKED, at_ns, (at_ns + 60, at_ns + 70));
}

fn at(requests: &[Request], start_ns: u64) -> &Request {
    requests.iter().find(|request| request.start_ns == start_ns).expect("a request")
}

fn parent(requests: &[Request], start_ns: u64) -> (Option<u64>, Option<Certainty>) {
    let request = at(requests, start_ns);
    (request.parent_request_id, request.parent_certainty)
}

#[test]
fn is_the_parent_all_the_same() {
    let mut s = story();
    a_round(&mut s, 1000);
    asks(&mut s, ASKED, (2000, 2900), true);
    asks_behind(&mut s, 2020);
    answers(&mut s, ASKED, 2000, (2060, 2970));
    let requests = s.told();
    for (child_ns, parent_ns) in [(1020, 1000), (2020, 2000)] {
        let expected = (Some(at(&requests, parent_ns).request_id), Some(Certainty::Sure));
        assert_eq!(parent(&requests, child_ns), expected);
    }
}

/// The same for the very first question on its connection.
#[test]
fn is_the_parent_as_the_first_on_its_connection() {
    let mut s = story();
    asks(&mut s, ASKED, (2000, 2900), true);
    asks_behind(&mut s, 2020);
    answers(&mut s, ASKED, 2000, (2060, 2970));
    let requests = s.told();
    let expected = (Some(at(&requests, 2000).request_id), Some(Certainty::Sure));
    assert_eq!(parent(&requests, 2020), expected);
}

/// Another question is known to be served at that time, and seems to be the only one.
#[test]
fn is_the_parent_beside_others() {
    let mut s = story();
    asks(&mut s, OTHER, (1000, 1010), true);
    asks(&mut s, ASKED, (2000, 2900), true);
    asks_behind(&mut s, 2020);
    answers(&mut s, ASKED, 2000, (2060, 2970));
    answers(&mut s, OTHER, 1000, (3000, 3010));
    let requests = s.told();
    let expected = (Some(at(&requests, 2000).request_id), Some(Certainty::Sure));
    assert_eq!(parent(&requests, 2020), expected);
}

/// What is asked just after an answer has come has the same parent as what was answered.
#[test]
fn is_the_parent_of_all_that_is_asked_for_it() {
    let mut s = story();
    asks(&mut s, OTHER, (1000, 1010), true);
    asks(&mut s, ASKED, (2000, 2900), true);
    asks_behind(&mut s, 2020);
    asks_behind(&mut s, 2060);
    answers(&mut s, ASKED, 2000, (2100, 2970));
    answers(&mut s, OTHER, 1000, (3000, 3010));
    let requests = s.told();
    for child_ns in [2020, 2060] {
        assert_eq!(parent(&requests, child_ns).0, Some(at(&requests, 2000).request_id));
    }
}

/// Neither the program nor another question becomes the parent.
#[test]
fn leaves_its_child_without_a_parent_if_it_is_never_told() {
    let mut s = story();
    a_round(&mut s, 1000);
    asks(&mut s, OTHER, (1900, 1910), true);
    asks(&mut s, ASKED, (2000, 2010), false);
    asks_behind(&mut s, 2020);
    answers(&mut s, OTHER, 1900, (3000, 3010));
    let requests = s.told();
    assert!(requests.iter().any(|request| request.kind == Kind::Exec));
    assert_eq!(parent(&requests, 2020), (None, None));
}

/// The server behind is not traced, so the calls of the server in the middle report the messages, after the messages
/// were moved. A request that was made for another request is found before that request, which then is walked with it.
#[test]
fn what_one_end_tells_is_found_before_what_it_was_asked_for() {
    let mut s = story();
    asks(&mut s, ASKED, (1000, 1010), true);
    let bytes = (1020, 1030);
    s.moved_between(MIDDLE, true, ASKED_BEHIND, bytes, (1020, 1030));
    s.unit_between(1030, ASKED_BEHIND, true, bytes, (0, UNIT_REQUEST, UNIT_LAST));
    s.moved_between(MIDDLE, false, back(ASKED_BEHIND), bytes, (1045, 1050));
    s.unit_between(1050, back(ASKED_BEHIND), false, bytes, (0, UNIT_RESPONSE, UNIT_LAST));
    answers(&mut s, ASKED, 1000, (1060, 1070));
    let found: Vec<_> = s.found().iter().map(|request| request.start_ns).collect();
    // The last one is the program of the server in the middle.
    assert_eq!(found, [1020, 1000, 90]);
}
