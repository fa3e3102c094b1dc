//! Small traces of waits that do not show what they are for, a lock or some thread's work. Answers are derived by hand.
//! The client (thread 10, CPU 0) sends a request, the server (thread 20, CPU 1) answers and shares memory with another
//! thread of its process (21, CPU 2). Another client is thread 30 on CPU 3.

use rpcprobe::engine::event::{Object, TYPE_TCP};
use rpcprobe::model::{Category, Evidence, Request, Segment};
use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

const SENT: u8 = WAKING_SOFTIRQ | WAKING_IN_SYSCALL;

/// Both threads of the server have waited for the same semaphore by the time the request comes; the helper returned
/// from its wait at 45. From 48 on the server waits for the request. The callers add what the helper waits for from 60
/// on, which the server gives it at 114.
fn both_have_waited(s: &mut Story) {
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(12, 1, (20, IDLE), (FUTEX, 11), semaphore());
    s.wake(15, 2, 21, 20, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (14, 16), 1);
    s.switch(17, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (11, 19), 0);
    s.sleep_in(25, 2, (21, IDLE), (FUTEX, 20), semaphore());
    s.wake(40, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (38, 42), 1);
    s.switch(45, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (20, 47), 0);
    s.sleep_in(50, 1, (20, IDLE), (READ, 48), pipe(1));
}

fn semaphore() -> Object {
    condition(0x7000)
}

/// The server signals the helper while it works for the request, and then waits for the semaphore that the helper
/// posts. As both have waited for the semaphore, it is a lock, and what its holder did was not for the request.
#[test]
fn whoever_lets_go_of_a_lock_did_not_work_for_who_waits() {
    let (a, b) = (pipe(1), pipe(2));
    let mut s = Story::new();
    both_have_waited(&mut s);
    s.sleep_in(60, 2, (21, IDLE), (FUTEX, 55), condition(0x8000));
    s.wake(103, 0, 10, 20, WAKING_IN_SYSCALL);
    s.write(0, 10, a, (0, 4), (100, 105));
    s.switch(106, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(108, 0, (10, IDLE), (READ, 106), b);
    s.read(1, 20, a, (0, 4), (48, 110));
    s.wake(114, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (112, 116), 1);
    s.switch(117, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (55, 119), 0);
    s.sleep_in(120, 1, (20, IDLE), (FUTEX, 118), semaphore());
    s.wake(142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (140, 144), 1);
    s.switch(145, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (118, 147), 0);
    s.wake(152, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b, (0, 4), (150, 155));
    s.switch(154, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b, (0, 4), (106, 158));
    let answer = "
        100-103 client kernel.pipe
        103-106 server runqueue.wakeup by idle
        106-110 server kernel.pipe
        110-112 server user
        112-116 server kernel.futex
        116-118 server user
        118-120 server kernel.futex
        120-142 server lock by helper/21
        142-145 server runqueue.wakeup by idle
        145-147 server kernel.futex
        147-150 server user
        150-152 server kernel.pipe
        152-154 client runqueue.wakeup by idle
        154-158 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

/// Through the same semaphore the server hands the request to the helper, which answers it: no other way leads to the
/// client.
#[test]
fn what_looks_like_a_lock_is_followed_where_nothing_else_leads_on() {
    let (a, b) = (pipe(1), pipe(2));
    let mut s = Story::new();
    both_have_waited(&mut s);
    s.sleep_in(60, 2, (21, IDLE), (FUTEX, 55), semaphore());
    s.wake(103, 0, 10, 20, WAKING_IN_SYSCALL);
    s.write(0, 10, a, (0, 4), (100, 105));
    s.switch(106, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(108, 0, (10, IDLE), (READ, 106), b);
    s.read(1, 20, a, (0, 4), (48, 110));
    s.wake(114, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (112, 116), 1);
    s.switch(117, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (55, 119), 0);
    s.wake(152, 2, 21, 10, WAKING_IN_SYSCALL);
    s.write(2, 21, b, (0, 4), (150, 155));
    s.switch(154, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b, (0, 4), (106, 158));
    let answer = "
        100-103 client kernel.pipe
        103-106 server runqueue.wakeup by idle
        106-110 server kernel.pipe
        110-112 server user
        112-114 server kernel.futex
        114-117 helper runqueue.wakeup by idle
        117-119 helper kernel.futex
        119-150 helper user
        150-152 helper kernel.pipe
        152-154 client runqueue.wakeup by idle
        154-158 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The helper ends, at 142, the server's wait in a call since `waits_ns`. The server answers the client, which has been
/// reading since `reads_ns`.
fn the_helper_ends_the_wait(s: &mut Story, c: &Connection, waits_ns: u64, reads_ns: u64) {
    s.wake(142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (140, 144), 1);
    s.switch(145, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (waits_ns, 147), 0);
    s.wake(165, 1, 20, 10, SENT);
    c.answers(s, 1, 20, (0, 4), (162, 170));
    s.switch(168, 0, IDLE, 10, RUNNABLE);
    c.gets(s, 10, (0, 4), (reads_ns, 175));
}

/// The server reads the request, ends a wait of its helper, and waits itself until the helper ends this wait at 142.
/// `helper` adds what the helper does in between. The answer must be the same: the wait is a lock.
fn waits_for_the_helper(helper: impl FnOnce(&mut Story, &Connection)) {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(30, 30, "other");
    for (tid, cpu) in [(10, 0), (20, 1), (21, 2), (30, 3)] {
        s.switch(tid.into(), cpu, IDLE, tid, RUNNABLE);
    }
    s.sleep_in(50, 1, (20, IDLE), (RECVFROM, 48), c.sockets[1]);
    s.sleep_in(60, 2, (21, IDLE), (FUTEX, 55), condition(0x8000));
    s.wake(103, 0, 10, 20, SENT);
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.switch(106, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(108, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (48, 110));
    s.wake(114, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (112, 116), 1);
    s.switch(117, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (55, 119), 0);
    s.sleep_in(120, 1, (20, IDLE), (FUTEX, 118), condition(0x9000));
    the_helper_ends_the_wait(&mut s, &c, 118, 106);
    helper(&mut s, &other);
    s.events.sort_by_key(|event| event.ts_ns);
    let answer = "
        100-103 client kernel.tcp
        103-106 server runqueue.wakeup by idle
        106-110 server kernel.tcp
        110-112 server user
        112-116 server kernel.futex
        116-118 server user
        118-120 server kernel.futex
        120-142 server lock by helper/21
        142-145 server runqueue.wakeup by idle
        145-147 server kernel.futex
        147-162 server user
        162-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
    ";
    let ours = |request: &Request| request.client.as_ref().is_some_and(|end| end.tid == 10);
    let requests = s.requests();
    let found: Vec<_> = requests.iter().filter(|(request, _)| ours(request)).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(table(&found[0].1), expected(answer));
}

/// The helper has read another client's request, and this client waits for the answer.
fn the_helper_has_read(s: &mut Story, other: &Connection) {
    s.moved(3, 30, (SENDTO, other.there, other.back), (0, 4), (12, 20));
    s.moved(2, 21, (RECVFROM, other.there, other.back), (0, 4), (24, 30));
    s.sleep_in(35, 3, (30, IDLE), (RECVFROM, 32), other.sockets[0]);
}

/// The helper works for another request, which it had read before and answers next.
#[test]
fn whoever_is_busy_with_another_request_lets_go_of_a_lock() {
    waits_for_the_helper(|s, other| {
        the_helper_has_read(s, other);
        s.wake(155, 2, 21, 30, SENT);
        other.answers(s, 2, 21, (0, 4), (150, 160));
        s.switch(158, 3, IDLE, 30, RUNNABLE);
        s.moved(3, 30, (RECVFROM, other.back, other.there), (0, 4), (32, 163));
    });
}

/// The helper is idle until another request comes, and hands that request on.
#[test]
fn whoever_was_idle_until_another_request_came_lets_go_of_a_lock() {
    waits_for_the_helper(|s, other| {
        s.switch_in(122, 2, 21, IDLE, ASLEEP, (POLL, 120), None);
        s.wake(128, 3, 30, 21, SENT);
        s.switch(131, 2, IDLE, 21, RUNNABLE);
        s.moved(3, 30, (SENDTO, other.there, other.back), (0, 4), (125, 132));
        s.call(2, 21, POLL, (120, 133), 1);
        s.moved(2, 21, (RECVFROM, other.there, other.back), (0, 4), (134, 137));
    });
}

/// The helper answers another request in its turn, and only then ends the server's wait.
#[test]
fn whoever_answers_another_request_first_lets_go_of_a_lock() {
    waits_for_the_helper(|s, other| {
        the_helper_has_read(s, other);
        s.wake(126, 2, 21, 30, SENT);
        other.answers(s, 2, 21, (0, 4), (122, 130));
        s.switch(129, 3, IDLE, 30, RUNNABLE);
        s.moved(3, 30, (RECVFROM, other.back, other.there), (0, 4), (32, 134));
    });
}

/// A server may write first, as HTTP/2 servers do. What it writes counts as an answer all the same, because the other
/// end opened the connection.
#[test]
fn a_server_that_speaks_first_answers_another_and_then_serves() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(30, 30, "other");
    for (tid, cpu) in [(10, 0), (20, 1), (30, 3)] {
        s.switch(tid.into(), cpu, IDLE, tid, RUNNABLE);
    }
    s.opened(3, 30, 7, (32, 34), None);
    other.answers(&mut s, 1, 20, (0, 2), (36, 40));
    s.moved_through(7, (3, 30), (SENDTO, other.there, other.back), (0, 4), (50, 60));
    s.sleep_in(71, 3, (30, IDLE), (RECVFROM, 70), other.sockets[0]);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.sleep_in(112, 0, (10, IDLE), (RECVFROM, 111), c.sockets[0]);
    other.hears(&mut s, 1, 20, (0, 4), (115, 118));
    c.hears(&mut s, 1, 20, (0, 4), (120, 125));
    other.answers(&mut s, 1, 20, (2, 4), (140, 150));
    s.wake(175, 1, 20, 10, SENT);
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 1, 20, (0, 4), (170, 180));
    c.gets(&mut s, 10, (0, 4), (111, 185));
    let requests = s.requests();
    let ours = |request: &Request| request.client.as_ref().is_some_and(|end| end.tid == 10);
    let found: Vec<_> = requests.iter().filter(|(request, _)| ours(request)).collect();
    let answer = "
        100-110 client kernel.tcp
        110-120 server queue.socket (user, kernel.tcp)
        120-125 server kernel.tcp
        125-140 server user shared by 2
         140-150 server queue.app (kernel.tcp: sendto tcp)
        150-170 server user
        170-175 server kernel.tcp
        175-178 client runqueue.wakeup by idle
        178-185 client kernel.tcp
    ";
    assert_eq!(table(&found.first().expect("a request").1), expected(answer));
}

/// The client also wakes the helper, by another call and through another thread, but before the server has read the
/// request. What the helper does since is not known to be for the request, although the helper ends a wait of the
/// server.
#[test]
fn whoever_was_woken_before_the_request_was_read_does_not_lead_to_its_client() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.task(22, 20, "second");
    for (tid, cpu) in [(10, 0), (20, 1), (21, 2), (22, 3)] {
        s.switch(tid.into(), cpu, IDLE, tid, RUNNABLE);
    }
    s.call(1, 20, POLL, (30, 35), 0);
    s.sleep_in(50, 3, (22, IDLE), (FUTEX, 45), condition(0x7000));
    s.sleep_in(60, 2, (21, IDLE), (FUTEX, 55), condition(0x8000));
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.wake(109, 0, 10, 22, WAKING_IN_SYSCALL);
    s.call(0, 10, FUTEX, (107, 110), 1);
    s.switch(111, 3, IDLE, 22, RUNNABLE);
    s.call(3, 22, FUTEX, (45, 113), 0);
    s.sleep_in(114, 0, (10, IDLE), (RECVFROM, 112), c.sockets[0]);
    s.wake(117, 3, 22, 21, WAKING_IN_SYSCALL);
    s.call(3, 22, FUTEX, (115, 118), 1);
    s.switch(120, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (55, 121), 0);
    s.sleep_in(123, 3, (22, IDLE), (FUTEX, 122), condition(0x7000));
    c.hears(&mut s, 1, 20, (0, 4), (125, 130));
    s.sleep_in(134, 1, (20, IDLE), (FUTEX, 132), condition(0x9000));
    the_helper_ends_the_wait(&mut s, &c, 132, 112);
    let answer = "
        100-105 client kernel.tcp
        105-125 server queue.socket (user)
        125-130 server kernel.tcp
        130-132 server user
        132-134 server kernel.futex
        134-142 server lock by helper/21
        142-145 server runqueue.wakeup by idle
        145-147 server kernel.futex
        147-162 server user
        162-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The server waits on a futex with a timeout, twice: from 120 until the timeout at 130, and from 138 on. The second
/// time, the other thread wakes it at 150, or the timeout expires as well.
fn waits_twice(second: Object, is_woken: bool) -> Story {
    const ETIMEDOUT: i64 = 110;
    let (a, b) = (pipe(1), pipe(2));
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(50, 1, (20, IDLE), (READ, 48), a);
    s.wake(103, 0, 10, 20, WAKING_IN_SYSCALL);
    s.write(0, 10, a, (0, 4), (100, 105));
    s.switch(106, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(108, 0, (10, IDLE), (READ, 106), b);
    s.read(1, 20, a, (0, 4), (48, 110));
    s.sleep_in(120, 1, (20, IDLE), (FUTEX, 118), condition(0x9000));
    s.wake(130, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(133, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (118, 135), -ETIMEDOUT);
    s.sleep_in(138, 1, (20, IDLE), (FUTEX, 136), second);
    match is_woken {
        true => {
            s.wake(150, 2, 21, 20, WAKING_IN_SYSCALL);
            s.call(2, 21, FUTEX, (148, 152), 1);
        }
        false => s.wake(150, 1, IDLE, 20, WAKING_HARDIRQ),
    }
    s.switch(153, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (136, 155), if is_woken { 0 } else { -ETIMEDOUT });
    s.wake(162, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b, (0, 4), (160, 165));
    s.switch(164, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b, (0, 4), (106, 168));
    s
}

/// The category and evidence of the server's first wait.
fn first_wait(s: &Story) -> (Category, Evidence) {
    let mut requests = s.requests();
    assert_eq!(requests.len(), 1);
    let segments = requests.remove(0).1;
    let first = segments.iter().find(|segment| (120..130).contains(&segment.start_ns));
    let first = first.expect("a segment");
    (first.category, first.evidence)
}

/// A monitor that polls again after a while: both waits are for the thread that wakes it in the end.
#[test]
fn a_wait_that_is_taken_up_again_is_for_who_ends_it() {
    let lock = (Category::Lock, Evidence::Modelled);
    assert_eq!(first_wait(&waits_twice(condition(0x9000), true)), lock);
    // The other futex word of the same condition variable.
    assert_eq!(first_wait(&waits_twice(condition(0x9004), true)), lock);
}

#[test]
fn a_wait_whose_time_is_over_is_a_sleep() {
    let sleep = (Category::Sleep, Evidence::Measured);
    assert_eq!(first_wait(&waits_twice(condition(0x9000), false)), sleep);
    assert_eq!(first_wait(&waits_twice(condition(0xa000), true)), sleep);
}

/// Another thread was woken from a wait on this futex before. So an expired timeout may not be all that the server
/// waited for.
#[test]
fn a_wait_that_others_have_ended_is_perhaps_no_sleep() {
    let mut s = waits_twice(condition(0x9000), false);
    s.sleep_in(25, 2, (21, IDLE), (FUTEX, 23), condition(0x9000));
    s.wake(30, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (28, 32), 1);
    s.switch(35, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (23, 37), 0);
    assert_eq!(first_wait(&s), (Category::Sleep, Evidence::Modelled));
}

/// The client (thread 10) asks the server's thread 20 at `t_ns` + 100, and waits for the answer. The server has the
/// question at `t_ns` + 110.
fn asks_after(s: &mut Story, t_ns: u64, (a, b): (Object, Object)) {
    s.sleep_in(t_ns + 50, 1, (20, IDLE), (READ, t_ns + 48), a);
    s.wake(t_ns + 103, 0, 10, 20, WAKING_IN_SYSCALL);
    s.write(0, 10, a, (0, 4), (t_ns + 100, t_ns + 105));
    s.switch(t_ns + 106, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(t_ns + 108, 0, (10, IDLE), (READ, t_ns + 106), b);
    s.read(1, 20, a, (0, 4), (t_ns + 48, t_ns + 110));
}

/// A server in Python waits for the interpreter's lock twice: the first wait ends when another thread releases the
/// lock, the second when CPython's switch interval is over, and the thread gets the lock without being woken again.
/// `interval`: whether the hooks have seen that these waits last at most that interval.
fn the_interpreters_lock_is_not_released_in_time(interval: bool) -> String {
    const ETIMEDOUT: i64 = 110;
    const T: u64 = 6_000_000;
    let (a, b) = (pipe(1), pipe(2));
    let mut s = Story::new();
    for (tid, cpu) in [(10, 0), (20, 1), (21, 2)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    let waited = |s: &mut Story, cpu, tid, call, ret| match interval {
        true => s.waited_to_switch(cpu, tid, call, ret),
        false => s.call(cpu, tid, FUTEX, call, ret),
    };
    s.sleep_in(25, 2, (21, IDLE), (FUTEX, 20), condition(0x9000));
    s.wake(5_000_100, 2, IDLE, 21, WAKING_HARDIRQ);
    s.switch(5_000_110, 2, IDLE, 21, RUNNABLE);
    waited(&mut s, 2, 21, (20, 5_000_120), -ETIMEDOUT);
    asks_after(&mut s, T, (a, b));
    s.sleep_in(T + 120, 1, (20, IDLE), (FUTEX, T + 118), condition(0x9004));
    s.wake(T + 142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (T + 140, T + 144), 1);
    s.switch(T + 145, 1, IDLE, 20, RUNNABLE);
    waited(&mut s, 1, 20, (T + 118, T + 147), 0);
    s.sleep_in(T + 160, 1, (20, IDLE), (FUTEX, T + 158), condition(0x9000));
    s.wake(T + 5_000_160, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(T + 5_000_165, 1, IDLE, 20, RUNNABLE);
    waited(&mut s, 1, 20, (T + 158, T + 5_000_170), -ETIMEDOUT);
    s.wake(T + 5_000_182, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b, (0, 4), (T + 5_000_180, T + 5_000_185));
    s.switch(T + 5_000_184, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b, (0, 4), (T + 106, T + 5_000_188));
    let requests = s.requests();
    let pipes = requests.iter().find(|(request, _)| request.start_ns == T + 100).expect("it");
    let then = |segment: &&Segment| (segment.start_ns..segment.end_ns()).contains(&(T + 1_000_000));
    let waited = pipes.1.iter().find(then).expect("a segment");
    let cause = waited.cause.as_deref().unwrap_or_default();
    format!("{} {} {cause}", waited.category, waited.evidence)
}

#[test]
fn a_wait_for_the_interpreters_lock_that_times_out_is_no_sleep() {
    let told = the_interpreters_lock_is_not_released_in_time;
    assert_eq!(told(true), "lock modelled interpreter lock: not released before the timeout");
    assert_eq!(told(false), "sleep modelled ");
}

/// A server in Python asks for the interpreter's lock, which its other thread releases. The two threads have woken each
/// other before, so the other thread's path leads to the request, but its work is not for it. A wait of the other
/// thread of at most 5 ms (`ran_out`) shows what the lock is; without such a wait, it may be anything.
fn waits_for_the_interpreter(ran_out: bool) -> String {
    const ETIMEDOUT: i64 = 110;
    const T: u64 = 6_000_000;
    let (a, b) = (pipe(1), pipe(2));
    let mut s = Story::new();
    for (tid, cpu) in [(10, 0), (20, 1), (21, 2)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    if ran_out {
        s.sleep_in(25, 2, (21, IDLE), (FUTEX, 20), condition(0x9000));
        s.wake(5_000_100, 2, IDLE, 21, WAKING_HARDIRQ);
        s.switch(5_000_110, 2, IDLE, 21, RUNNABLE);
        s.waited_to_switch(2, 21, (20, 5_000_120), -ETIMEDOUT);
    }
    asks_after(&mut s, T, (a, b));
    s.sleep_in(T + 60, 2, (21, IDLE), (FUTEX, T + 55), condition(0x8000));
    s.wake(T + 114, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (T + 112, T + 116), 1);
    s.switch(T + 117, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (T + 55, T + 119), 0);
    s.sleep_in(T + 120, 1, (20, IDLE), (FUTEX, T + 118), condition(0x9004));
    s.wake(T + 142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (T + 140, T + 144), 1);
    s.switch(T + 145, 1, IDLE, 20, RUNNABLE);
    s.waited_to_switch(1, 20, (T + 118, T + 147), 0);
    s.wake(T + 152, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b, (0, 4), (T + 150, T + 155));
    s.switch(T + 154, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b, (0, 4), (T + 106, T + 158));
    let requests = s.requests();
    let pipes = requests.iter().find(|(request, _)| request.start_ns == T + 100).expect("it");
    let then = |segment: &&Segment| (segment.start_ns..segment.end_ns()).contains(&(T + 130));
    let waited = pipes.1.iter().find(then).expect("a segment");
    let cause = waited.cause.as_deref().unwrap_or_default().split(':').next();
    format!("{} {}", waited.category, cause.unwrap_or_default())
}

#[test]
fn whoever_lets_go_of_the_interpreters_lock_did_not_work_for_who_waits() {
    assert_eq!(waits_for_the_interpreter(true), "lock interpreter lock");
    assert_eq!(waits_for_the_interpreter(false), "user ");
}
