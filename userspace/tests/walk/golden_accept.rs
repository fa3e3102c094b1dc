//! Small traces of accepted connections, by which thread and when they are accepted, with answers derived by hand. The
//! client (thread 10, CPU 0) sends a request, the server (thread 20) answers.

use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::model::Category;
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

const SHUTDOWN: u16 = 48;

/// Client and server each have a CPU.
fn begun() -> (Story, Connection) {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    (s, Connection::new(TYPE_TCP))
}

/// The server answers at 160. The client, which has waited in a read since `since_ns`, has the answer at 175.
fn answered(s: &mut Story, c: &Connection, since_ns: u64) {
    s.wake(165, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(s, 1, 20, (0, 4), (160, 170));
    s.switch(168, 0, IDLE, 10, RUNNABLE);
    c.gets(s, 10, (0, 4), (since_ns, 175));
}

#[test]
fn a_connection_of_its_own_that_waits_to_be_accepted() {
    let (mut s, c) = begun();
    // The server is busy until 140. Its end of the connection has existed since 107.
    s.opened(0, 10, 5, (100, 110), None);
    c.asks_through(&mut s, 5, 10, (0, 4), (112, 120));
    s.sleep_in(123, 0, (10, IDLE), (RECVFROM, 122), c.sockets[0]);
    s.opened(1, 20, 6, (140, 144), Some(107));
    c.hears_through(&mut s, 6, 20, (0, 4), (146, 150));
    answered(&mut s, &c, 122);
    s.closed(0, 10, 5, (178, 185));
    let answer = "
        100-107 client kernel.tcp
        107-140 server queue.accept (user)
        140-144 server kernel.tcp
        144-146 server user
        146-150 server kernel.tcp
        150-160 server user
        160-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
        175-178 client user
        178-185 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The server accepts other connections before and after it reads the request. These accepts must not count as work for
/// the request.
#[test]
fn who_accepts_another_connection_serves_another() {
    let (mut s, c) = begun();
    s.opened(0, 10, 5, (100, 104), None);
    c.asks_through(&mut s, 5, 10, (0, 4), (106, 112));
    s.sleep_in(115, 0, (10, IDLE), (RECVFROM, 114), c.sockets[0]);
    s.opened(1, 20, 6, (120, 124), Some(103));
    s.opened(1, 20, 8, (128, 132), Some(110));
    c.hears_through(&mut s, 6, 20, (0, 4), (140, 144));
    s.opened(1, 20, 9, (150, 154), Some(146));
    answered(&mut s, &c, 114);
    s.closed(0, 10, 5, (178, 185));
    let answer = "
        100-103 client kernel.tcp
        103-120 server queue.accept (user)
        120-124 server kernel.tcp
        124-128 server user
        128-132 server queue.socket (kernel.tcp: accept tcp:[8])
        132-140 server user
        140-144 server kernel.tcp
        144-150 server user
        150-154 server queue.app (kernel.tcp: accept tcp:[9])
        154-160 server user
        160-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
        175-178 client user
        178-185 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The connection waits for its acceptor (21). The cause of the wait must be what the acceptor does, not the sleep of
/// the worker (20) that reads from the connection later.
#[test]
fn a_connection_waits_for_its_acceptor() {
    let (mut s, c) = begun();
    s.switch(20, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(50, 1, (20, IDLE), (FUTEX, 49), condition(0x100));
    s.arrives(c.there, 4, 110);
    s.opened(2, 21, 6, (140, 144), Some(107));
    s.wake(146, 2, 21, 20, 0);
    s.switch(147, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (49, 148), 0);
    c.hears_through(&mut s, 6, 20, (0, 4), (150, 155));
    c.answers(&mut s, 1, 20, (0, 4), (160, 170));
    let requests = s.requests();
    let (_, segments) = &requests[0];
    let accept = segments.iter().find(|segment| segment.category == Category::QueueAccept);
    let told = accept.map(|accept| (accept.start_ns, accept.tid, accept.cause.as_deref()));
    assert_eq!(told, Some((110, 21, Some("user, kernel.tcp"))), "{}", table(segments));
}

#[test]
fn a_server_asleep_in_accept_is_woken_by_the_connection() {
    let (mut s, c) = begun();
    s.sleep_in(45, 1, (20, IDLE), (ACCEPT, 40), socket(9, TYPE_TCP));
    s.wake(107, 0, 10, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.opened(0, 10, 5, (100, 110), None);
    c.asks_through(&mut s, 5, 10, (0, 4), (112, 116));
    s.switch(115, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(119, 0, (10, IDLE), (RECVFROM, 118), c.sockets[0]);
    s.opened(1, 20, 6, (40, 120), Some(106));
    c.hears_through(&mut s, 6, 20, (0, 4), (122, 130));
    answered(&mut s, &c, 118);
    s.closed(0, 10, 5, (178, 185));
    let answer = "
        100-107 client kernel.tcp
        107-115 server runqueue.wakeup by idle
        115-120 server kernel.tcp
        120-122 server user
        122-130 server kernel.tcp
        130-160 server user
        160-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
        175-178 client user
        178-185 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// Another connection wakes the server. The request's connection is there before the server gets a CPU, and is first in
/// the queue; it is established either after that wake-up or just before it.
#[test]
fn a_server_asleep_in_accept_is_woken_by_another_connection() {
    let of = |established_ns| {
        let mut s = Story::new();
        let c = Connection::new(TYPE_TCP);
        s.task(30, 30, "other");
        s.switch(10, 0, IDLE, 10, RUNNABLE);
        s.switch(20, 1, IDLE, 20, RUNNABLE);
        s.switch(30, 3, IDLE, 30, RUNNABLE);
        s.sleep_in(45, 1, (20, IDLE), (ACCEPT, 40), socket(9, TYPE_TCP));
        s.wake(105, 3, 30, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
        s.opened(3, 30, 8, (98, 109), None);
        s.opened(0, 10, 5, (100, 110), None);
        c.asks_through(&mut s, 5, 10, (0, 4), (112, 114));
        s.switch(115, 1, IDLE, 20, RUNNABLE);
        s.sleep_in(119, 0, (10, IDLE), (RECVFROM, 118), c.sockets[0]);
        s.opened(1, 20, 6, (40, 120), Some(established_ns));
        c.hears_through(&mut s, 6, 20, (0, 4), (122, 130));
        s.wake(165, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
        c.answers(&mut s, 1, 20, (0, 4), (160, 170));
        s.switch(168, 0, IDLE, 10, RUNNABLE);
        c.gets(&mut s, 10, (0, 4), (118, 175));
        s.closed(0, 10, 5, (178, 185));
        s.only()
    };
    let rest = "
        115-120 server kernel.tcp
        120-122 server user
        122-130 server kernel.tcp
        130-160 server user
        160-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
        175-178 client user
        178-185 client kernel.tcp
    ";
    let later = "
        100-107 client kernel.tcp
        107-115 server runqueue.wakeup by idle
    ";
    assert_eq!(of(107), expected(&format!("{later}{rest}")));
    let before = "
        100-103 client kernel.tcp
        103-105 server queue.accept (asleep)
        105-115 server runqueue.wakeup by idle
    ";
    assert_eq!(of(103), expected(&format!("{before}{rest}")));
}

/// The connection is established while the server, on another CPU, is entering accept().
#[test]
fn a_connection_that_comes_while_the_server_asks_for_one() {
    let (mut s, c) = begun();
    s.opened(0, 10, 5, (100, 110), None);
    c.asks_through(&mut s, 5, 10, (0, 4), (112, 114));
    s.sleep_in(119, 0, (10, IDLE), (RECVFROM, 118), c.sockets[0]);
    s.opened(1, 20, 6, (90, 120), Some(106));
    c.hears_through(&mut s, 6, 20, (0, 4), (122, 130));
    answered(&mut s, &c, 118);
    s.closed(0, 10, 5, (178, 185));
    let answer = "
        100-106 client kernel.tcp
        106-120 server kernel.tcp
        120-122 server user
        122-130 server kernel.tcp
        130-160 server user
        160-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
        175-178 client user
        178-185 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// Nothing tells the worker of the new connection. It was woken meanwhile, but for a lock.
#[test]
fn a_connection_is_taken_up_by_a_busy_worker() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(30, 30, "other");
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.switch(30, 3, IDLE, 30, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (ACCEPT, 40), socket(9, TYPE_TCP));
    s.sleep_in(90, 2, (21, IDLE), (FUTEX, 89), mutex(0x10));
    s.wake(107, 0, 10, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.opened(0, 10, 5, (100, 110), None);
    c.asks_through(&mut s, 5, 10, (0, 4), (112, 116));
    s.switch(115, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(119, 0, (10, IDLE), (RECVFROM, 118), c.sockets[0]);
    s.opened(1, 20, 6, (40, 120), Some(106));
    s.wake(124, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (123, 126), 1);
    s.switch(127, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (89, 128), 0);
    s.sleep_in(130, 1, (20, IDLE), (ACCEPT, 129), socket(9, TYPE_TCP));
    // The worker serves another connection first.
    s.sleep_in(132, 2, (21, IDLE), (RECVFROM, 131), other.sockets[1]);
    s.wake(140, 3, 30, 21, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.moved(3, 30, (SENDTO, other.there, other.back), (0, 4), (138, 146));
    s.switch(143, 2, IDLE, 21, RUNNABLE);
    s.moved(2, 21, (RECVFROM, other.there, other.back), (0, 4), (131, 148));
    s.moved(2, 21, (SENDTO, other.back, other.there), (0, 1), (150, 156));
    s.moved_through(6, (2, 21), (RECVFROM, c.there, c.back), (0, 4), (158, 162));
    s.wake(175, 2, 21, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 2, 21, (0, 4), (170, 180));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (118, 185));
    s.closed(0, 10, 5, (188, 195));
    let requests = s.requests();
    let ours =
        requests.iter().find(|(request, _)| request.client.as_ref().is_some_and(|c| c.tid == 10));
    let answer = "
        100-107 client kernel.tcp
        107-115 server runqueue.wakeup by idle
        115-120 server kernel.tcp
        120-158 helper queue.socket (kernel.tcp, asleep, user, on the run queue)
        158-162 helper kernel.tcp
        162-170 helper user
        170-175 helper kernel.tcp
        175-178 client runqueue.wakeup by idle
        178-185 client kernel.tcp
        185-188 client user
        188-195 client kernel.tcp
    ";
    assert_eq!(table(&ours.expect("a request").1), expected(answer));
}

/// The acceptor wakes the worker for a lock: once after it has accepted another connection, and once before that, but
/// then the worker answers another request first. Neither wake-up is for this request.
#[test]
fn an_acceptor_that_wakes_a_worker_for_a_lock() {
    let of = |late| {
        let mut s = Story::new();
        let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
        s.task(30, 30, "other");
        s.switch(10, 0, IDLE, 10, RUNNABLE);
        s.switch(20, 1, IDLE, 20, RUNNABLE);
        s.switch(21, 2, IDLE, 21, RUNNABLE);
        s.switch(30, 3, IDLE, 30, RUNNABLE);
        // The worker has read another client's request.
        s.moved(3, 30, (SENDTO, other.there, other.back), (0, 4), (12, 20));
        s.moved(2, 21, (RECVFROM, other.there, other.back), (0, 4), (24, 30));
        s.sleep_in(45, 1, (20, IDLE), (ACCEPT, 40), socket(9, TYPE_TCP));
        s.sleep_in(90, 2, (21, IDLE), (FUTEX, 89), condition(0x10));
        s.wake(107, 0, 10, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
        s.opened(0, 10, 5, (100, 110), None);
        c.asks_through(&mut s, 5, 10, (0, 4), (112, 114));
        s.switch(115, 1, IDLE, 20, RUNNABLE);
        s.sleep_in(119, 0, (10, IDLE), (RECVFROM, 118), c.sockets[0]);
        s.opened(1, 20, 6, (40, 120), Some(106));
        if late {
            s.sleep_in(130, 1, (20, IDLE), (ACCEPT, 129), socket(9, TYPE_TCP));
            s.wake(140, 3, 30, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
            s.switch(141, 1, IDLE, 20, RUNNABLE);
            s.opened(1, 20, 8, (129, 142), Some(139));
        }
        s.wake(145, 1, 20, 21, WAKING_IN_SYSCALL);
        s.call(1, 20, FUTEX, (144, 146), 1);
        s.switch(147, 2, IDLE, 21, RUNNABLE);
        s.call(2, 21, FUTEX, (89, 148), 0);
        if !late {
            s.moved(2, 21, (SENDTO, other.back, other.there), (0, 1), (150, 156));
        }
        s.moved_through(6, (2, 21), (RECVFROM, c.there, c.back), (0, 4), (158, 162));
        s.wake(175, 2, 21, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
        c.answers(&mut s, 2, 21, (0, 4), (170, 180));
        s.switch(178, 0, IDLE, 10, RUNNABLE);
        c.gets(&mut s, 10, (0, 4), (118, 185));
        s.closed(0, 10, 5, (188, 195));
        let requests = s.requests();
        let mut ours = requests
            .iter()
            .filter(|(request, _)| request.client.as_ref().is_some_and(|client| client.tid == 10));
        table(&ours.next().expect("a request").1)
    };
    let before = "
        100-107 client kernel.tcp
        107-115 server runqueue.wakeup by idle
        115-120 server kernel.tcp
    ";
    let after = "
        158-162 helper kernel.tcp
        162-170 helper user
        170-175 helper kernel.tcp
        175-178 client runqueue.wakeup by idle
        178-185 client kernel.tcp
        185-188 client user
        188-195 client kernel.tcp
    ";
    let late = "120-158 helper queue.socket (asleep, user)";
    assert_eq!(of(true), expected(&format!("{before}{late}{after}")));
    let answering = "120-158 helper queue.socket (asleep, kernel.tcp, user)";
    assert_eq!(of(false), expected(&format!("{before}{answering}{after}")));
}

/// A worker that has read the request waits on a futex. The acceptor, which has accepted another connection meanwhile,
/// wakes it for a lock. The acceptor had also accepted this connection, but the request did not wait for what the
/// acceptor did since.
#[test]
fn an_acceptor_that_wakes_a_worker_in_the_middle() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(30, 30, "other");
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.switch(30, 3, IDLE, 30, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (ACCEPT, 40), socket(9, TYPE_TCP));
    s.wake(107, 0, 10, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.opened(0, 10, 5, (100, 110), None);
    c.asks_through(&mut s, 5, 10, (0, 4), (112, 114));
    s.switch(115, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(119, 0, (10, IDLE), (RECVFROM, 118), c.sockets[0]);
    s.opened(1, 20, 6, (40, 120), Some(106));
    s.sleep_in(130, 1, (20, IDLE), (ACCEPT, 129), socket(9, TYPE_TCP));
    s.moved_through(6, (2, 21), (RECVFROM, c.there, c.back), (0, 4), (131, 135));
    s.sleep_in(138, 2, (21, IDLE), (FUTEX, 137), condition(0x10));
    s.wake(140, 3, 30, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(141, 1, IDLE, 20, RUNNABLE);
    s.opened(1, 20, 8, (129, 142), Some(139));
    s.wake(145, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (144, 146), 1);
    s.moved(3, 30, (SENDTO, other.there, other.back), (0, 4), (144, 146));
    s.switch(147, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (137, 148), 0);
    s.wake(165, 2, 21, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 2, 21, (0, 4), (160, 170));
    s.switch(168, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (118, 175));
    s.closed(0, 10, 5, (178, 185));
    let answer = "
        100-107 client kernel.tcp
        107-115 server runqueue.wakeup by idle
        115-120 server kernel.tcp
        120-131 helper queue.socket (user)
        131-135 helper kernel.tcp
        135-137 helper user
        137-138 helper kernel.futex
        138-145 helper lock by server/20
        145-147 helper runqueue.wakeup by idle
        147-148 helper kernel.futex
        148-160 helper user
        160-165 helper kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
        175-178 client user
        178-185 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The server has answered, loses its CPU, and then shuts the connection down. The client still waits for the shutdown.
#[test]
fn a_server_that_ends_the_connection_still_works_for_the_request() {
    let (mut s, c) = begun();
    s.opened(0, 10, 5, (100, 110), None);
    c.asks_through(&mut s, 5, 10, (0, 4), (112, 120));
    s.sleep_in(123, 0, (10, IDLE), (RECVFROM, 122), c.sockets[0]);
    s.opened(1, 20, 6, (140, 144), Some(107));
    c.hears_through(&mut s, 6, 20, (0, 4), (146, 150));
    answered(&mut s, &c, 122);
    s.switch(172, 1, 20, 90, RUNNABLE);
    s.sleep_in(178, 0, (10, IDLE), (RECVFROM, 177), socket(5, TYPE_TCP));
    s.switch(190, 1, 90, 20, RUNNABLE);
    s.wake(195, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.call(1, 20, SHUTDOWN, (192, 198), 0);
    s.switch(197, 0, IDLE, 10, RUNNABLE);
    s.moved_through(5, (0, 10), (RECVFROM, c.back, c.there), (4, 0), (177, 200));
    s.closed(0, 10, 5, (203, 208));
    let answer = "
        100-107 client kernel.tcp
        107-140 server queue.accept (user)
        140-144 server kernel.tcp
        144-146 server user
        146-150 server kernel.tcp
        150-160 server user
        160-170 server kernel.tcp
        170-172 server user
        172-190 server runqueue.preempted by noise/90
        190-192 server user
        192-195 server kernel.other
        195-197 client runqueue.wakeup by idle
        197-200 client kernel.tcp
        200-203 client user
        203-208 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}
