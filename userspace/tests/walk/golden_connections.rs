//! Small traces of an event loop whose requests may wait for a connection to its back end, with answers derived by hand.

use rpcprobe::engine::event::TYPE_UNIX;
use rpcprobe::model::{Category, Segment};
use rpcprobe::records::WAKING_IN_SYSCALL;

use super::connection::Connection;
use super::rule_stories::{used, waited, Until};
use super::story::*;

/// The segments of the request that began at 100.
fn ours(story: &Story) -> Vec<Segment> {
    let requests = story.requests();
    let ours = requests.iter().find(|(request, _)| request.start_ns == 100).expect("the request");
    ours.1.clone()
}

/// What the server's first thread rested for, for that request: time, category, rule and evidence.
fn rests(story: &Story) -> Vec<String> {
    let segments = ours(story);
    let rests = segments.iter().filter(|segment| {
        segment.tid == 20
            && matches!(segment.category, Category::Sleep | Category::QueueApp | Category::IdlePeer)
    });
    let line = |s: &Segment| {
        let rule = s.rule.map_or("none", |rule| rule.name());
        format!("{}-{} {} {rule} {}", s.start_ns, s.end_ns(), s.category, s.evidence)
    };
    rests.map(line).collect()
}

fn rest(until: Until) -> Vec<String> {
    rests(&waited(until))
}

/// The answer to another client's question makes the connection free, and it is used for the request at once.
#[test]
fn a_request_waits_for_a_connection_in_use() {
    assert_eq!(
        rest(Until::Free),
        ["120-143 queue.app connection modelled", "143-160 queue.app turn modelled"]
    );
}

/// The connection was idle: the request waited for something else.
#[test]
fn nobody_waits_for_an_idle_connection() {
    assert_eq!(
        rest(Until::Another),
        ["120-143 sleep timer modelled", "143-160 queue.app turn modelled"]
    );
}

/// Several questions are under way on the connection at a time.
#[test]
fn nobody_waits_for_a_connection_with_several_questions_under_way() {
    assert_eq!(
        rest(Until::Shared),
        [
            "120-123 sleep timer modelled",
            "123-132 queue.app turn modelled",
            "133-160 queue.app claimed modelled",
        ]
    );
}

/// The server would have used a connection that was idle, and it did not.
#[test]
fn nobody_waits_for_a_connection_while_another_is_idle() {
    assert_eq!(
        rest(Until::Spare),
        ["120-143 sleep timer modelled", "143-160 queue.app turn modelled"]
    );
}

/// A timer, perhaps the request's own, ended the rest.
#[test]
fn a_timer_ends_no_wait_for_a_connection() {
    assert_eq!(
        rest(Until::Time),
        ["120-143 sleep charge modelled", "143-160 queue.app turn modelled"]
    );
}

/// A helper of the server, which may have had the request, ended the rest.
#[test]
fn the_servers_own_thread_ends_no_wait_for_a_connection() {
    assert_eq!(
        rest(Until::Helper),
        ["120-143 sleep timer modelled", "143-160 queue.app turn modelled"]
    );
}

/// A server that polls, with one connection to a back end (thread 40, CPU 3) for this client and another one (thread 30,
/// CPU 2), and one for a third client (thread 50, CPU 5). It has the request at 115, rests from 120 to 143, and asks for
/// it at 163, when the other client's answer has come. The answers for the third client and for this one come together.
fn answers_come_together() -> Story {
    let mut s = Story::new();
    let [c, other, behind, third, second] =
        [1, 2, 3, 4, 5].map(|at| Connection::numbered(at, TYPE_UNIX));
    s.task(30, 30, "other");
    s.task(40, 40, "back end");
    s.task(50, 50, "third");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 40), (5, 50)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.moved(5, 50, (SENDTO, third.there, third.back), (0, 4), (20, 24));
    third.hears(&mut s, 1, 20, (0, 4), (26, 28));
    s.moved(1, 20, (SENDTO, second.there, second.back), (0, 4), (29, 31));
    second.hears(&mut s, 3, 40, (0, 4), (33, 35));
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (40, 44));
    other.hears(&mut s, 1, 20, (0, 4), (50, 53));
    s.moved(1, 20, (SENDTO, behind.there, behind.back), (0, 4), (55, 58));
    behind.hears(&mut s, 3, 40, (0, 4), (60, 63));
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
    s.wake(143, 3, 40, 20, WAKING_IN_SYSCALL);
    behind.answers(&mut s, 3, 40, (0, 4), (140, 146));
    s.switch(148, 1, IDLE, 20, RUNNABLE);
    s.timed(1, 20, (118, 150), 1);
    s.moved(1, 20, (RECVFROM, behind.back, behind.there), (0, 4), (152, 155));
    other.answers(&mut s, 1, 20, (0, 4), (157, 160));
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (161, 162));
    s.moved(1, 20, (SENDTO, behind.there, behind.back), (4, 4), (163, 167));
    behind.hears(&mut s, 3, 40, (4, 4), (176, 179));
    s.switch_in(180, 1, 20, IDLE, ASLEEP, (POLL, 177), None);
    second.answers(&mut s, 3, 40, (0, 4), (182, 184));
    s.wake(190, 3, 40, 20, WAKING_IN_SYSCALL);
    behind.answers(&mut s, 3, 40, (4, 4), (186, 192));
    s.switch(194, 1, IDLE, 20, RUNNABLE);
    s.timed(1, 20, (177, 196), 2);
    s.moved(1, 20, (RECVFROM, second.back, second.there), (0, 4), (198, 200));
    s.moved(1, 20, (RECVFROM, behind.back, behind.there), (4, 4), (201, 203));
    third.answers(&mut s, 1, 20, (0, 4), (205, 208));
    s.wake(212, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (210, 214));
    s.switch(216, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 220));
    s
}

/// The loop passes the answers on in the order in which it has read them: the second one is this client's.
#[test]
fn answers_that_come_together_are_passed_on_in_order() {
    assert_eq!(rests(&answers_come_together())[0], "120-143 queue.app connection modelled");
}

/// A server with two threads that poll (20, CPU 1; 21, CPU 4), and run whatever is ready. The first one takes the request
/// in and rests. The second one hears the other client's answer, passes it on, and asks for the request at once.
fn another_thread_goes_on(has_spare: bool) -> Story {
    let mut s = Story::new();
    let [c, other, behind, spare] = [1, 2, 3, 4].map(|at| Connection::numbered(at, TYPE_UNIX));
    s.task(30, 30, "other");
    s.task(40, 40, "back end");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 40), (4, 21)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.timed(1, 20, (12, 14), 1);
    if has_spare {
        used(&mut s, &spare, (4, 21), 20);
    }
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (40, 44));
    other.hears(&mut s, 4, 21, (0, 4), (50, 53));
    s.moved(4, 21, (SENDTO, behind.there, behind.back), (0, 4), (55, 58));
    behind.hears(&mut s, 3, 40, (0, 4), (60, 63));
    s.switch_in(70, 4, 21, IDLE, ASLEEP, (POLL, 68), None);
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
    s.wake(143, 3, 40, 21, WAKING_IN_SYSCALL);
    behind.answers(&mut s, 3, 40, (0, 4), (140, 146));
    s.switch(148, 4, IDLE, 21, RUNNABLE);
    s.timed(4, 21, (68, 150), 1);
    s.moved(4, 21, (RECVFROM, behind.back, behind.there), (0, 4), (152, 155));
    other.answers(&mut s, 4, 21, (0, 4), (157, 160));
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (161, 162));
    s.moved(4, 21, (SENDTO, behind.there, behind.back), (4, 4), (163, 167));
    behind.hears(&mut s, 3, 40, (4, 4), (176, 179));
    s.switch_in(180, 4, 21, IDLE, ASLEEP, (POLL, 177), None);
    s.wake(190, 3, 40, 21, WAKING_IN_SYSCALL);
    behind.answers(&mut s, 3, 40, (4, 4), (186, 192));
    s.switch(194, 4, IDLE, 21, RUNNABLE);
    s.timed(4, 21, (177, 196), 1);
    s.moved(4, 21, (RECVFROM, behind.back, behind.there), (4, 4), (198, 201));
    s.wake(206, 4, 21, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 4, 21, (0, 4), (203, 208));
    s.switch(210, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 215));
    s
}

/// Which of its threads goes on with it is the runtime's decision. With an idle connection, the request waited for
/// something else.
#[test]
fn a_request_waits_for_a_connection_until_another_thread_goes_on_with_it() {
    let waits = |has_spare| {
        let segments = ours(&another_thread_goes_on(has_spare));
        let waits = segments.iter().filter(|segment| segment.category == Category::QueueApp);
        let line = |s: &Segment| format!("{}-{} {:?}", s.start_ns, s.end_ns(), s.rule);
        waits.map(line).collect::<Vec<_>>()
    };
    assert_eq!(waits(false), ["120-163 Some(Connection)"]);
    assert_eq!(waits(true), ["115-160 Some(InMemory)"]);
}
