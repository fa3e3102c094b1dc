//! Small traces of servers that have several requests at once, with answers derived by hand. One server (thread 20,
//! CPU 1) asks a back end for some of them; another has threads that take work from each other (20, and 21 on CPU 3).
//! The last traces are of answers in two pieces, and of wake-ups that do not lead back to the client.

use rpcprobe::engine::event::{TYPE_TCP, TYPE_UNIX};
use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

fn begun() -> (Story, Connection, Connection) {
    let mut s = Story::new();
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.switch(10, 3, IDLE, 21, RUNNABLE);
    (s, Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP))
}

/// The next request of a connection arrives, and this thread reads it.
fn taken(s: &mut Story, c: &Connection, (cpu, tid): (u32, u32), from: u64, arrived_ns: u64) {
    s.arrives(c.there, from + 4, arrived_ns);
    c.hears(s, cpu, tid, (from, 4), (arrived_ns + 2, arrived_ns + 5));
}

/// The segments of the request that began at `start_ns`: time, category, evidence.
pub fn told(s: &Story, start_ns: u64) -> Vec<String> {
    let requests = s.requests();
    let (_, segments) = requests
        .iter()
        .find(|(request, _)| request.start_ns == start_ns && request.client.is_none())
        .unwrap_or_else(|| panic!("{requests:#?}"));
    let shown = segments.iter();
    shown.map(|s| format!("{}-{} {} {}", s.start_ns, s.end_ns(), s.category, s.evidence)).collect()
}

/// The server asks a back end, serves another client's request that has come meanwhile, and then reads the back end's
/// answer. Until this answer came, the request waited for it, and not for its turn.
#[test]
fn what_is_asked_of_another_is_waited_for() {
    let (mut s, c, other) = begun();
    let back_end = Connection::numbered(3, TYPE_TCP);
    taken(&mut s, &c, (1, 20), 0, 100);
    s.moved(1, 20, (SENDTO, back_end.there, back_end.back), (0, 4), (120, 125));
    taken(&mut s, &other, (1, 20), 0, 130);
    s.arrives(back_end.back, 4, 150);
    other.answers(&mut s, 1, 20, (0, 4), (160, 165));
    s.moved(1, 20, (RECVFROM, back_end.back, back_end.there), (0, 4), (170, 175));
    c.answers(&mut s, 1, 20, (0, 4), (180, 185));
    let expected = [
        "100-102 queue.socket measured",
        "102-105 kernel.tcp measured",
        "105-120 user measured",
        "120-125 kernel.tcp measured",
        "125-150 idle.peer measured",
        "150-170 queue.socket measured",
        "170-175 kernel.tcp measured",
        "175-180 user measured",
        "180-185 kernel.tcp measured",
    ];
    assert_eq!(told(&s, 100), expected);
}

/// The server asks a back end for another request. This request must not wait for the back end, but for its turn.
#[test]
fn what_is_asked_for_another_is_not_waited_for() {
    let (mut s, c, other) = begun();
    let back_end = Connection::numbered(3, TYPE_TCP);
    taken(&mut s, &other, (1, 20), 0, 80);
    taken(&mut s, &c, (1, 20), 0, 100);
    other.answers(&mut s, 1, 20, (0, 2), (110, 115));
    s.moved(1, 20, (SENDTO, back_end.there, back_end.back), (0, 4), (120, 125));
    s.arrives(back_end.back, 4, 150);
    s.moved(1, 20, (RECVFROM, back_end.back, back_end.there), (0, 4), (160, 165));
    other.answers(&mut s, 1, 20, (2, 2), (168, 170));
    c.answers(&mut s, 1, 20, (0, 4), (180, 185));
    let peers: Vec<_> = told(&s, 100).into_iter().filter(|line| line.contains("idle")).collect();
    assert!(peers.is_empty(), "{peers:?}");
}

/// Thread 21 has answered a request that 20 had read, although it also reads requests itself. So each may work for a
/// request that the other has. While another request is open, the work is inferred.
#[test]
fn who_takes_work_from_others_may_work_for_any() {
    for (open, steals) in [(true, true), (false, true), (true, false)] {
        let (mut s, c, other) = begun();
        let third = Connection::numbered(3, TYPE_TCP);
        taken(&mut s, &third, (3, 21), 0, 20);
        third.answers(&mut s, 3, 21, (0, 4), (30, 32));
        taken(&mut s, &other, (1, 20), 0, 40);
        let (cpu, answers) = if steals { (3, 21) } else { (1, 20) };
        other.answers(&mut s, cpu, answers, (0, 4), (50, 52));
        taken(&mut s, &third, (3, 21), 4, 60);
        if !open {
            third.answers(&mut s, 3, 21, (4, 4), (70, 72));
        }
        taken(&mut s, &c, (1, 20), 0, 100);
        c.answers(&mut s, 1, 20, (0, 4), (170, 175));
        if open {
            third.answers(&mut s, 3, 21, (4, 4), (190, 195));
        }
        let how = if open && steals { "modelled" } else { "measured" };
        let expected = [
            "100-102 queue.socket measured".into(),
            "102-105 kernel.tcp measured".into(),
            format!("105-170 user {how}"),
            "170-175 kernel.tcp measured".into(),
        ];
        assert_eq!(told(&s, 100), expected, "{open} {steals}");
    }
}

/// While the call that writes an answer is still under way, the client has the answer and sends its next request, which
/// another thread reads (as in Go's `net/http` while a handler runs). This thread has not read the request that was
/// answered, so it does not count as a thread that takes work from others.
#[test]
fn the_next_question_is_not_the_one_that_is_being_answered() {
    let (mut s, c, other) = begun();
    let third = Connection::numbered(3, TYPE_TCP);
    taken(&mut s, &third, (3, 21), 0, 20);
    taken(&mut s, &other, (1, 20), 0, 40);
    taken(&mut s, &other, (3, 21), 4, 55);
    other.answers(&mut s, 1, 20, (0, 4), (50, 62));
    taken(&mut s, &c, (1, 20), 0, 100);
    c.answers(&mut s, 1, 20, (0, 4), (170, 175));
    third.answers(&mut s, 3, 21, (0, 4), (190, 195));
    let work: Vec<_> = told(&s, 100).into_iter().filter(|line| line.contains("user")).collect();
    assert_eq!(work, ["105-170 user measured"]);
}

/// The server (20) writes its answer in two pieces. The kernel holds the second back until the client (10) acknowledges
/// the first. The client rests meanwhile, and the interrupt that brings the second piece wakes it: it has waited for
/// these bytes, and for no thread's work. If the second piece had come before the client read on, there is no wait.
#[test]
fn the_rest_of_an_answer_that_was_held_back_is_waited_for() {
    for held in [true, false] {
        let mut s = Story::new();
        let c = Connection::new(TYPE_TCP);
        s.switch(10, 0, IDLE, 10, RUNNABLE);
        s.switch(10, 1, IDLE, 20, RUNNABLE);
        c.asks(&mut s, 10, (0, 4), (100, 105));
        c.hears(&mut s, 1, 20, (0, 4), (106, 110));
        s.switch_in(112, 0, 10, IDLE, ASLEEP, (POLL, 108), None);
        s.wake(122, 1, 20, 10, WAKING_IN_SYSCALL);
        c.answers(&mut s, 1, 20, (0, 2), (120, 124));
        s.switch(123, 0, IDLE, 10, RUNNABLE);
        s.call(0, 10, POLL, (108, 125), 1);
        c.answers(&mut s, 1, 20, (2, 2), (126, 128));
        c.gets(&mut s, 10, (0, 2), (127, 129));
        if held {
            s.switch_in(132, 0, 10, IDLE, ASLEEP, (POLL, 131), None);
            s.wake(160, 0, IDLE, 10, WAKING_SOFTIRQ);
            s.switch(162, 0, IDLE, 10, RUNNABLE);
            s.call(0, 10, POLL, (131, 164), 1);
        }
        c.gets(&mut s, 10, (2, 2), (165, 170));
        let requests = s.requests();
        let segments = requests[0].1.iter();
        let shown = segments.map(|s| format!("{}-{} {}", s.start_ns, s.end_ns(), s.category));
        let shown: Vec<String> = shown.filter(|line| !line.contains("kernel.tcp")).collect();
        assert_eq!(shown.contains(&"128-165 queue.socket".to_string()), held, "{shown:?}");
        assert!(!shown.iter().any(|line| line.contains("idle.peer")), "{shown:?}");
    }
}

/// A client looks for its answer in a poll that times out, and then polls once more. Both rests are waits for its peer,
/// and neither is a sleep of its own.
#[test]
fn who_looks_again_for_an_answer_waits_for_its_peer() {
    for again in [false, true] {
        let mut s = Story::new();
        let c = Connection::new(TYPE_TCP);
        s.switch(10, 0, IDLE, 10, RUNNABLE);
        c.asks(&mut s, 10, (0, 4), (100, 105));
        if again {
            s.switch_in(112, 0, 10, IDLE, ASLEEP, (POLL, 108), None);
            s.wake(130, 0, IDLE, 10, WAKING_HARDIRQ);
            s.switch(131, 0, IDLE, 10, RUNNABLE);
            s.timed(0, 10, (108, 133), 0);
        }
        s.switch_in(136, 0, 10, IDLE, ASLEEP, (POLL, 135), None);
        s.arrives(c.back, 4, 160);
        s.wake(161, 0, IDLE, 10, WAKING_SOFTIRQ);
        s.switch(162, 0, IDLE, 10, RUNNABLE);
        s.timed(0, 10, (135, 164), 1);
        c.gets(&mut s, 10, (0, 4), (165, 170));
        let requests = s.requests();
        let waits = requests[0].1.iter().filter(|segment| !segment.category.is_on_cpu());
        let waits: Vec<String> = waits
            .map(|s| format!("{}-{} {} {}", s.start_ns, s.end_ns(), s.category, s.evidence))
            .filter(|wait| !wait.contains("queue"))
            .collect();
        let from_ns = if again { 105 } else { 136 };
        assert_eq!(waits, [format!("{from_ns}-160 idle.peer measured")]);
    }
}

const IN_MEMORY_UNTIL_WOKEN: &str = "
    100-105 client kernel.tcp
    105-110 server queue.socket (user)
    110-115 server kernel.tcp
    115-320 server queue.app (asleep)
    320-325 server runqueue.wakeup by idle
    325-330 server kernel.poll
    330-340 server user
    340-345 server kernel.tcp
    345-348 client kernel.tcp
";

const READ_BEFORE_IT_WAS_HANDED_ON: &str = "
    100-105 client kernel.tcp
    105-310 server queue.socket (user)
    310-315 server kernel.tcp
    315-340 server user
    340-345 server kernel.tcp
    345-348 client kernel.tcp
";

/// A server whose thread 22 (CPU 2) sleeps in a poll.
fn asked_twice() -> (Story, Connection, Connection) {
    let (mut s, c, next) = begun();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.task(22, 20, "server");
    s.switch(11, 2, IDLE, 22, RUNNABLE);
    s.sleep_in(20, 2, (22, IDLE), (POLL, 15), condition(0));
    (s, c, next)
}

/// Thread 21 wakes 22.
fn wakes_another(s: &mut Story) {
    s.wake(320, 3, 21, 22, WAKING_IN_SYSCALL);
    s.call(3, 21, WRITE, (318, 322), 8);
    s.switch(325, 2, IDLE, 22, RUNNABLE);
    s.call(2, 22, POLL, (15, 330), 1);
}

/// Thread 22 answers the first request, and 21 the second.
fn check_first(mut s: Story, c: &Connection, next: &Connection) {
    c.answers(&mut s, 2, 22, (0, 4), (340, 345));
    c.gets(&mut s, 10, (0, 4), (345, 348));
    next.answers(&mut s, 3, 21, (0, 4), (400, 405));
    next.gets(&mut s, 10, (0, 4), (405, 408));
    assert_eq!(began(&s, 100), expected(IN_MEMORY_UNTIL_WOKEN));
}

/// One client sends requests to the server on two connections. Thread 20 reads the first and rests. Thread 21 reads the
/// second, and wakes 22, which answers the first. What 21 did was for the second request. That the same client sent it
/// did not make the first request wait.
#[test]
fn what_the_same_client_asks_next_does_not_lead_back_to_it() {
    let (mut s, c, next) = asked_twice();
    c.asks(&mut s, 10, (0, 4), (100, 105));
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.sleep_in(120, 1, (20, IDLE), (POLL, 118), condition(0));
    next.asks(&mut s, 10, (0, 4), (300, 305));
    next.hears(&mut s, 3, 21, (0, 4), (310, 315));
    wakes_another(&mut s);
    check_first(s, &c, &next);
}

/// The same, but 21 sleeps until the client's second request comes, and wakes 22 before it reads that request.
#[test]
fn who_wakes_by_another_question_does_not_wake_for_the_first() {
    let (mut s, c, next) = asked_twice();
    s.sleep_in(30, 3, (21, IDLE), (POLL, 25), condition(0));
    c.asks(&mut s, 10, (0, 4), (100, 105));
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.sleep_in(120, 1, (20, IDLE), (POLL, 118), condition(0));
    s.wake(302, 0, 10, 21, WAKING_IN_SYSCALL);
    next.asks(&mut s, 10, (0, 4), (300, 305));
    s.switch(306, 3, IDLE, 21, RUNNABLE);
    s.call(3, 21, POLL, (25, 308), 1);
    wakes_another(&mut s);
    next.hears(&mut s, 3, 21, (0, 4), (332, 335));
    check_first(s, &c, &next);
}

/// A client sends its whole request and then shuts down its half of the connection, as `nc -N` does. Only then the
/// server knows that it has the whole request, so until then it waited for the client. What the client did is not
/// followed: the end of another connection looks the same.
#[test]
fn who_ends_its_half_of_the_connection_was_waited_for() {
    const SHUTDOWN: u16 = 48;
    let (mut s, c, _) = begun();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    c.asks(&mut s, 10, (0, 4), (100, 105));
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.sleep_in(120, 1, (20, IDLE), (POLL, 118), condition(0));
    s.wake(302, 0, 10, 20, WAKING_IN_SYSCALL);
    s.call(0, 10, SHUTDOWN, (300, 305), 0);
    s.switch(306, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (118, 308), 1);
    c.answers(&mut s, 1, 20, (0, 4), (340, 345));
    c.gets(&mut s, 10, (0, 4), (345, 348));
    let answer = "
        100-105 client kernel.tcp
        105-110 server queue.socket (user)
        110-115 server kernel.tcp
        115-118 server user
        118-120 server kernel.poll
        120-302 server idle.peer by client/10
        302-306 server runqueue.wakeup by idle
        306-308 server kernel.poll
        308-340 server user
        340-345 server kernel.tcp
        345-348 client kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// Thread 22 is at work when 20 reads the request, and answers it, as threads do that look for work in memory. The
/// client had woken 22 earlier, but the walk must not follow this: no thread of the server had the request then.
#[test]
fn no_way_leads_through_what_the_server_did_before_it_read() {
    let (mut s, c, _) = asked_twice();
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.wake(150, 0, 10, 22, WAKING_IN_SYSCALL);
    s.call(0, 10, WRITE, (148, 152), 8);
    s.switch(160, 2, IDLE, 22, RUNNABLE);
    s.call(2, 22, POLL, (15, 165), 1);
    c.hears(&mut s, 1, 20, (0, 4), (310, 315));
    s.sleep_in(320, 1, (20, IDLE), (POLL, 318), condition(0));
    c.answers(&mut s, 2, 22, (0, 4), (340, 345));
    c.gets(&mut s, 10, (0, 4), (345, 348));
    assert_eq!(began(&s, 100), expected(READ_BEFORE_IT_WAS_HANDED_ON));
}

/// A thread of a server asks an event loop (thread 40, CPU 3), which turns to another client's question, answers it, and
/// answers the first question when a timer is due. The thread sleeps until then.
fn asks_an_event_loop() -> Story {
    let mut s = Story::new();
    let [c, behind, third] = [1, 2, 3].map(|at| Connection::numbered(at, TYPE_UNIX));
    s.task(30, 30, "third");
    s.task(40, 40, "loop");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 40)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.moved(1, 20, (SENDTO, behind.there, behind.back), (0, 4), (120, 124));
    behind.hears(&mut s, 3, 40, (0, 4), (127, 130));
    s.sleep_in(134, 1, (20, IDLE), (RECVFROM, 132), behind.sockets[0]);
    s.switch_in(138, 3, 40, IDLE, ASLEEP, (POLL, 136), None);
    s.wake(152, 2, 30, 40, WAKING_IN_SYSCALL);
    s.moved(2, 30, (SENDTO, third.there, third.back), (0, 4), (150, 154));
    s.switch(156, 3, IDLE, 40, RUNNABLE);
    s.timed(3, 40, (136, 158), 1);
    third.hears(&mut s, 3, 40, (0, 4), (160, 163));
    third.answers(&mut s, 3, 40, (0, 4), (180, 184));
    s.moved(2, 30, (RECVFROM, third.back, third.there), (0, 4), (185, 187));
    s.switch_in(190, 3, 40, IDLE, ASLEEP, (POLL, 188), None);
    s.wake(220, 3, IDLE, 40, WAKING_HARDIRQ);
    s.switch(222, 3, IDLE, 40, RUNNABLE);
    s.timed(3, 40, (188, 224), 0);
    s.wake(232, 3, 40, 20, WAKING_IN_SYSCALL);
    behind.answers(&mut s, 3, 40, (0, 4), (230, 234));
    s.switch(236, 1, IDLE, 20, RUNNABLE);
    s.moved(1, 20, (RECVFROM, behind.back, behind.there), (0, 4), (132, 239));
    s.wake(247, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (245, 249));
    s.switch(251, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 255));
    s
}

/// The loop let the first question go at 138, and went on with it when the timer was due: what it did for the other
/// client in between was not in the way of anything. For whom it worked after the rest, only its next answer shows.
#[test]
fn a_thread_waits_for_what_the_event_loop_waits_for() {
    let requests = asks_an_event_loop().requests();
    let waited = |start_ns| {
        let (_, segments) = requests.iter().find(|(r, _)| r.start_ns == start_ns).expect("it");
        let waited = segments.iter().filter(|s| s.start_ns >= 124 && s.end_ns() <= 236);
        let line = |s: &rpcprobe::model::Segment| {
            format!("{}-{} {} {}", s.start_ns, s.end_ns(), s.category, s.evidence)
        };
        waited.map(line).collect::<Vec<_>>()
    };
    let answer = [
        "124-127 queue.socket measured",
        "127-130 kernel.unix measured",
        "130-136 user measured",
        "136-138 kernel.poll measured",
        "138-220 sleep modelled",
        "220-222 runqueue.wakeup measured",
        "222-224 kernel.poll modelled",
        "224-230 user modelled",
        "230-232 kernel.unix measured",
        "232-236 runqueue.wakeup measured",
    ];
    assert_eq!(waited(120), answer);
    assert_eq!(waited(100), answer);
}
