//! Small traces of a server with one thread that reads requests (20, CPU 1) and another that serves them (21, CPU 4),
//! with answers derived by hand: whose thread sleeps, and for what. The client is thread 10 on CPU 0; another client, or
//! a back end, is thread 30 on CPU 2.

use rpcprobe::engine::event::{Object, TYPE_UNIX};
use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL};

use super::connection::Connection;
use super::story::*;

/// The socket that the server polls.
const POLLED: u32 = 75;

fn polled() -> Object {
    socket(u64::from(POLLED), TYPE_UNIX)
}

/// The server moves four bytes through that socket.
fn polled_later(s: &mut Story, by: (u32, u32), call: (u16, Object, Object), span: (u64, u64)) {
    s.moved_through(POLLED, by, call, (0, 4), span);
}

fn begun() -> (Story, Connection, Connection) {
    let mut s = Story::new();
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (4, 21)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    (s, Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX))
}

/// The client sends its request.
fn asked(s: &mut Story, c: &Connection) {
    c.asks(s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
}

/// The client sends its request, and the reading thread reads it.
fn taken(s: &mut Story, c: &Connection) {
    asked(s, c);
    c.hears(s, 1, 20, (0, 4), (110, 115));
}

/// A thread answers the client, which has `sent` bytes of the answer already.
fn answered(s: &mut Story, c: &Connection, (cpu, tid): (u32, u32), sent: u32) {
    s.wake(175, cpu, tid, 10, WAKING_IN_SYSCALL);
    c.answers(s, cpu, tid, (sent.into(), 4), (170, 176));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(s, 10, (0, i64::from(sent) + 4), (106, 185));
}

/// The waits of the request that began at 100, without those in run queues: time, category, rule, evidence.
fn waits(s: &Story) -> Vec<String> {
    let requests = s.requests();
    let ours = requests.iter().find(|(request, _)| request.start_ns == 100).expect("the request");
    let waits = ours.1.iter().filter(|segment| {
        let name = segment.category.to_string();
        ["sleep", "lock", "idle.peer", "queue.app", "unattributed"].contains(&name.as_str())
    });
    let line = |s: &rpcprobe::model::Segment| {
        let rule = s.rule.map_or("none", |rule| rule.name());
        format!("{}-{} {} {rule} {}", s.start_ns, s.end_ns(), s.category, s.evidence)
    };
    waits.map(line).collect()
}

/// The serving thread has answered the other client, and sleeps in a poll() from 58 until its timeout at 160. It polls
/// the other client's connection, or that and others.
fn served_after_a_poll(polls_one: bool) -> Story {
    let (mut s, c, other) = begun();
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (30, 33));
    polled_later(&mut s, (4, 21), (RECVFROM, other.there, other.back), (35, 38));
    polled_later(&mut s, (4, 21), (SENDTO, other.back, other.there), (45, 48));
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (49, 52));
    let polled = polls_one.then(polled);
    s.switch_in(58, 4, 21, IDLE, ASLEEP, (POLL, 55), polled);
    taken(&mut s, &c);
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
    s.wake(160, 4, IDLE, 21, WAKING_HARDIRQ);
    s.switch(160, 4, IDLE, 21, RUNNABLE);
    s.timed(4, 21, (55, 164), 0);
    answered(&mut s, &c, (4, 21), 0);
    s
}

/// Without the connection that is polled, the end of the rest looks like that of a timer.
#[test]
fn a_thread_that_polls_another_connection_does_not_have_the_request() {
    assert_eq!(waits(&served_after_a_poll(true)), ["120-160 queue.app in-memory modelled"]);
    assert_eq!(waits(&served_after_a_poll(false)), ["115-160 sleep charge modelled"]);
}

/// The server asks a back end that is not traced, and polls that connection until a timeout, then until it answers.
fn asks_with_a_timeout(polls_one: bool) -> Story {
    let (mut s, c, behind) = begun();
    taken(&mut s, &c);
    polled_later(&mut s, (1, 20), (SENDTO, behind.there, behind.back), (118, 120));
    let polled = polls_one.then(polled);
    for (from_ns, to_ns, ready) in [(123, 140, 0), (145, 160, 1)] {
        s.switch_in(from_ns, 1, 20, IDLE, ASLEEP, (POLL, from_ns - 1), polled);
        s.wake(to_ns, 1, IDLE, 20, WAKING_HARDIRQ);
        s.switch(to_ns, 1, IDLE, 20, RUNNABLE);
        s.timed(1, 20, (from_ns - 1, to_ns + 1), ready);
    }
    polled_later(&mut s, (1, 20), (RECVFROM, behind.back, behind.there), (162, 164));
    answered(&mut s, &c, (1, 20), 0);
    s
}

#[test]
fn a_timeout_of_a_poll_of_one_connection_is_no_timer() {
    let answered = "145-160 idle.peer charge measured";
    let first = ["123-140 idle.peer charge measured", answered];
    assert_eq!(waits(&asks_with_a_timeout(true)), first);
    assert_eq!(waits(&asks_with_a_timeout(false)), ["123-140 sleep charge measured", answered]);
}

/// The server polls the client's connection until a timeout, while it serves the request.
fn polls_its_client() -> Story {
    let (mut s, c, _) = begun();
    asked(&mut s, &c);
    polled_later(&mut s, (1, 20), (RECVFROM, c.there, c.back), (110, 115));
    s.switch_in(123, 1, 20, IDLE, ASLEEP, (POLL, 122), Some(polled()));
    s.wake(140, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(140, 1, IDLE, 20, RUNNABLE);
    s.timed(1, 20, (122, 141), 0);
    answered(&mut s, &c, (1, 20), 0);
    s
}

#[test]
fn a_server_that_polls_its_client_until_a_timeout_lets_time_pass() {
    assert_eq!(waits(&polls_its_client()), ["123-140 sleep charge measured"]);
}

/// The reading thread serves the request itself. It lets the other thread go on (by a word of that thread's) and sleeps
/// until that thread wakes it. The other thread has read another request, and has answered it before or answers it later.
/// `begun_to_answer`: the reading thread has sent a part of its answer.
fn woken_by_one_that_answers(before: bool, begun_to_answer: bool) -> Story {
    let (mut s, c, other) = begun();
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (30, 33));
    other.hears(&mut s, 4, 21, (0, 4), (35, 38));
    if before {
        other.answers(&mut s, 4, 21, (0, 4), (39, 42));
    }
    s.sleep_in(45, 4, (21, IDLE), (FUTEX, 44), condition(0x300));
    taken(&mut s, &c);
    let sent = if begun_to_answer { 4 } else { 0 };
    if begun_to_answer {
        c.answers(&mut s, 1, 20, (0, sent.into()), (115, 116));
    }
    s.wake(118, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (117, 119), 1);
    s.switch(120, 4, IDLE, 21, RUNNABLE);
    s.call(4, 21, FUTEX, (44, 122), 0);
    s.sleep_in(123, 1, (20, IDLE), (FUTEX, 121), condition(0x200));
    s.wake(150, 4, 21, 20, WAKING_IN_SYSCALL);
    s.call(4, 21, FUTEX, (148, 152), 1);
    s.switch(154, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (121, 156), 0);
    answered(&mut s, &c, (1, 20), sent);
    if !before {
        other.answers(&mut s, 4, 21, (0, 4), (180, 184));
    }
    s
}

#[test]
fn a_thread_that_has_served_another_request_releases_something() {
    for (before, begun) in [(true, false), (false, false), (true, true), (false, true)] {
        let story = woken_by_one_that_answers(before, begun);
        assert_eq!(waits(&story), ["123-150 lock charge modelled"]);
    }
}

/// The reading thread waits for a lock of the other thread's, which serves another request, and leaves the request to a
/// third thread (22, CPU 5), which the other one wakes. Or it rests as soon as it has read the request.
fn left_to_a_third(waits_for_lock: bool) -> Story {
    let (mut s, c, other) = begun();
    s.task(22, 20, "third");
    s.switch(20, 5, IDLE, 22, RUNNABLE);
    s.sleep_in(30, 5, (22, IDLE), (FUTEX, 25), condition(0x300));
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (30, 33));
    asked(&mut s, &c);
    other.hears(&mut s, 4, 21, (0, 4), (106, 108));
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    if waits_for_lock {
        s.sleep_in(120, 1, (20, IDLE), (FUTEX, 118), condition(0x200));
        s.wake(150, 4, 21, 20, WAKING_IN_SYSCALL);
        s.call(4, 21, FUTEX, (148, 152), 1);
        s.switch(153, 1, IDLE, 20, RUNNABLE);
        s.call(1, 20, FUTEX, (118, 154), 0);
    }
    s.switch_in(158, 1, 20, IDLE, ASLEEP, (POLL, 157), None);
    s.wake(163, 4, 21, 22, WAKING_IN_SYSCALL);
    s.call(4, 21, FUTEX, (162, 164), 1);
    s.switch(165, 5, IDLE, 22, RUNNABLE);
    s.call(5, 22, FUTEX, (25, 167), 0);
    other.answers(&mut s, 4, 21, (0, 4), (168, 169));
    answered(&mut s, &c, (5, 22), 0);
    s
}

#[test]
fn a_thread_that_waits_for_a_lock_has_not_handed_the_request_on() {
    let kept = ["120-150 lock charge modelled", "153-163 queue.app in-memory modelled"];
    assert_eq!(waits(&left_to_a_third(true)), kept);
    assert_eq!(waits(&left_to_a_third(false)), ["115-163 queue.app in-memory modelled"]);
}

/// A third thread (22, CPU 5) takes the request from memory. It lets the other thread go on, which has answered
/// another request, and sleeps until that thread wakes it. Or it sleeps first, and the request is handed to it.
fn taken_from_memory(before_the_sleep: bool) -> Story {
    let (mut s, c, other) = begun();
    s.task(22, 20, "third");
    s.switch(20, 5, IDLE, 22, RUNNABLE);
    s.call(5, 22, FUTEX, (24, 25), 0);
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (30, 33));
    other.hears(&mut s, 4, 21, (0, 4), (35, 38));
    other.answers(&mut s, 4, 21, (0, 4), (39, 42));
    s.sleep_in(45, 4, (21, IDLE), (FUTEX, 44), condition(0x300));
    if !before_the_sleep {
        s.sleep_in(98, 5, (22, IDLE), (FUTEX, 97), condition(0x200));
    }
    taken(&mut s, &c);
    let (cpu, waker) = if before_the_sleep { (5, 22) } else { (1, 20) };
    s.wake(118, cpu, waker, 21, WAKING_IN_SYSCALL);
    s.call(cpu, waker, FUTEX, (117, 119), 1);
    s.switch_in(125, 1, 20, IDLE, ASLEEP, (POLL, 124), None);
    s.switch(120, 4, IDLE, 21, RUNNABLE);
    s.call(4, 21, FUTEX, (44, 122), 0);
    if before_the_sleep {
        s.sleep_in(123, 5, (22, IDLE), (FUTEX, 121), condition(0x200));
    }
    s.wake(150, 4, 21, 22, WAKING_IN_SYSCALL);
    s.call(4, 21, FUTEX, (148, 152), 1);
    s.switch(154, 5, IDLE, 22, RUNNABLE);
    s.call(5, 22, FUTEX, (if before_the_sleep { 121 } else { 97 }, 156), 0);
    answered(&mut s, &c, (5, 22), 0);
    s
}

#[test]
fn a_thread_that_has_taken_the_request_from_memory_is_not_given_it() {
    assert_eq!(waits(&taken_from_memory(true)), ["123-150 lock charge modelled"]);
    assert_eq!(waits(&taken_from_memory(false)), Vec::<String>::new());
}
