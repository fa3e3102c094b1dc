//! Small traces of servers with timers, with answers derived by hand: which request waited for a timer, and how sure
//! that is. The client (thread 10, CPU 0) sends a request to the server (thread 20, CPU 1; its helper is thread 21, CPU
//! 3); so does another client (thread 30, CPU 2).

use rpcprobe::engine::event::TYPE_UNIX;
use rpcprobe::model::Category;
use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL};

use super::connection::Connection;
use super::story::*;

fn begun() -> (Story, Connection, Connection) {
    let mut s = Story::new();
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.switch(20, 3, IDLE, 21, RUNNABLE);
    s.sleep_in(30, 3, (21, IDLE), (FUTEX, 25), condition(0x100));
    (s, Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX))
}

/// The client sends its request, and the server reads it.
fn taken(s: &mut Story, c: &Connection) {
    c.asks(s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(s, 1, 20, (0, 4), (110, 115));
}

/// The server answers.
fn answered(s: &mut Story, c: &Connection) {
    s.wake(175, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(s, 1, 20, (0, 4), (170, 176));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(s, 10, (0, 4), (106, 185));
}

/// The server rests from 120 to 133 with a timer pending, and serves the other request until 142.
fn rests_and_serves(s: &mut Story, other: &Connection) {
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (125, 130));
    s.wake(128, 2, 30, 20, WAKING_IN_SYSCALL);
    s.sleep_in(132, 2, (30, IDLE), (RECVFROM, 131), other.sockets[0]);
    s.switch(133, 1, IDLE, 20, RUNNABLE);
    s.timed(1, 20, (118, 134), 1);
    other.hears(s, 1, 20, (0, 4), (135, 137));
    s.wake(141, 1, 20, 30, WAKING_IN_SYSCALL);
    other.answers(s, 1, 20, (0, 4), (139, 142));
    s.switch(143, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (131, 146));
}

/// The waits of the server's thread, without those in the run queue and in sockets: time, category, evidence.
fn waits(s: &Story) -> Vec<String> {
    let requests = s.requests();
    let ours = requests
        .iter()
        .find(|(request, _)| request.client.as_ref().is_some_and(|client| client.tid == 10));
    let waits = ours.expect("a request").1.iter().filter(|segment| {
        segment.tid == 20
            && !segment.category.is_on_cpu()
            && segment.category != Category::RunqueueWakeup
            && segment.category != Category::QueueSocket
    });
    waits.map(|s| format!("{}-{} {} {}", s.start_ns, s.end_ns(), s.category, s.evidence)).collect()
}

/// The first rest after the server read the request ends for another request, with a timer pending: apparently the
/// timer was this request's.
#[test]
fn a_timer_is_pending_while_another_ends_the_rest() {
    let (mut s, c, other) = begun();
    taken(&mut s, &c);
    rests_and_serves(&mut s, &other);
    answered(&mut s, &c);
    assert_eq!(waits(&s), ["120-128 sleep modelled", "128-142 queue.app modelled"]);
}

/// While the server rests, its helper works, which it had woken after reading the request: the helper may have the
/// request. A server that asks nobody waits for no peer; another may wait for an answer.
#[test]
fn whoever_works_meanwhile_may_have_the_request() {
    let of = |asks: bool| {
        let (mut s, c, other) = begun();
        if asks {
            let back = Connection::numbered(7, TYPE_UNIX);
            s.moved(1, 20, (SENDTO, back.there, back.back), (0, 4), (60, 64));
            s.moved(1, 20, (RECVFROM, back.back, back.there), (0, 4), (66, 70));
        }
        taken(&mut s, &c);
        s.wake(116, 1, 20, 21, 0);
        s.switch(124, 3, IDLE, 21, RUNNABLE);
        s.call(3, 21, FUTEX, (25, 126), 0);
        rests_and_serves(&mut s, &other);
        s.sleep_in(150, 3, (21, IDLE), (FUTEX, 148), condition(0x100));
        answered(&mut s, &c);
        waits(&s)
    };
    assert_eq!(of(true), ["120-128 idle.peer modelled", "128-142 queue.app modelled"]);
    assert_eq!(of(false), ["120-128 queue.app modelled", "128-142 queue.app modelled"]);
}

/// Half of the request has come: the server rests until the other half comes.
#[test]
fn what_is_not_there_waits_for_no_timer() {
    let (mut s, c, other) = begun();
    taken(&mut s, &c);
    rests_and_serves(&mut s, &other);
    s.switch(148, 0, IDLE, 10, RUNNABLE);
    c.asks(&mut s, 10, (4, 4), (150, 155));
    s.sleep_in(157, 0, (10, IDLE), (RECVFROM, 156), c.sockets[0]);
    c.hears(&mut s, 1, 20, (4, 4), (158, 162));
    s.wake(175, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (170, 176));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (156, 185));
    assert_eq!(waits(&s), ["120-128 idle.peer modelled", "128-158 queue.app modelled"]);
}

/// A handler sleeps twice in a poll of nothing. What it does in between is for the request.
#[test]
fn a_handler_works_between_two_sleeps_of_its_own() {
    let (mut s, c, _) = begun();
    taken(&mut s, &c);
    for (from_ns, to_ns) in [(120, 130), (142, 150)] {
        s.switch_in(from_ns, 1, 20, IDLE, ASLEEP, (POLL, from_ns - 2), None);
        s.wake(to_ns, 1, IDLE, 20, WAKING_HARDIRQ);
        s.switch(to_ns + 1, 1, IDLE, 20, RUNNABLE);
        s.timed(1, 20, (from_ns - 2, to_ns + 3), 0);
    }
    answered(&mut s, &c);
    assert_eq!(waits(&s), ["120-130 sleep measured", "142-150 sleep measured"]);
    let answer = "
        100-105 client kernel.unix
        105-110 server queue.socket (user)
        110-115 server kernel.unix
        115-118 server user
        118-120 server kernel.poll
        120-130 server sleep
        130-131 server runqueue.wakeup by idle
        131-133 server kernel.poll
        133-140 server user
        140-142 server kernel.poll
        142-150 server sleep
        150-151 server runqueue.wakeup by idle
        151-153 server kernel.poll
        153-170 server user
        170-175 server kernel.unix
        175-178 client runqueue.wakeup by idle
        178-185 client kernel.unix
    ";
    assert_eq!(s.only(), expected(answer));
}

/// A thread that sleeps in a sleep call goes on with what it was working on: it has not let go of the request.
#[test]
fn who_sleeps_in_the_middle_has_not_let_go() {
    let (mut s, c, other) = begun();
    taken(&mut s, &c);
    s.switch_in(117, 1, 20, IDLE, ASLEEP, (NANOSLEEP, 116), None);
    s.wake(120, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(121, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, NANOSLEEP, (116, 122), 0);
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (125, 130));
    s.sleep_in(132, 2, (30, IDLE), (RECVFROM, 131), other.sockets[0]);
    other.hears(&mut s, 1, 20, (0, 4), (135, 137));
    s.wake(141, 1, 20, 30, WAKING_IN_SYSCALL);
    other.answers(&mut s, 1, 20, (0, 4), (139, 142));
    s.switch(143, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (131, 146));
    s.switch_in(147, 1, 20, IDLE, ASLEEP, (POLL, 145), None);
    s.wake(160, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(161, 1, IDLE, 20, RUNNABLE);
    s.timed(1, 20, (145, 163), 0);
    answered(&mut s, &c);
    assert_eq!(
        waits(&s),
        ["117-120 sleep measured", "135-139 sleep modelled", "139-160 sleep modelled"]
    );
}

/// A loop that has also read another request rests until a timer is due: nothing shows which request's timer it was.
#[test]
fn whose_timer_ended_a_rest_among_several_is_not_measured() {
    for others in [false, true] {
        let (mut s, c, other) = begun();
        if others {
            s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (80, 85));
            s.sleep_in(87, 2, (30, IDLE), (RECVFROM, 86), other.sockets[0]);
            other.hears(&mut s, 1, 20, (0, 4), (90, 95));
        }
        taken(&mut s, &c);
        s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
        s.wake(160, 1, IDLE, 20, WAKING_HARDIRQ);
        s.switch(161, 1, IDLE, 20, RUNNABLE);
        s.timed(1, 20, (118, 163), 0);
        answered(&mut s, &c);
        let evidence = if others { "modelled" } else { "measured" };
        assert_eq!(waits(&s), [format!("120-160 sleep {evidence}")]);
    }
}
