//! Small traces of threads that run on the CPU of the thread that woke them, in its place, with answers derived by
//! hand. The client (thread 10, CPU 0) sends a request, the server (thread 20, CPU 1) answers and has helpers (threads
//! 21 and 22).

use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::model::{Evidence, Rule};
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

/// The server has the request at 105 and wakes a helper at 120. The helper runs in the server's place, as `meanwhile`
/// says, until it has nothing left to do. The server answers from 180 on.
fn story(meanwhile: impl Fn(&mut Story)) -> Story {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.task(22, 20, "helper2");
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    // Both helpers went to sleep before.
    s.switch(20, 1, IDLE, 21, RUNNABLE);
    s.sleep_in(24, 1, (21, 22), (FUTEX, 22), condition(0x100));
    s.sleep_in(28, 1, (22, 20), (FUTEX, 26), condition(0x200));
    c.asks(&mut s, 10, (0, 4), (90, 96));
    s.sleep_in(98, 0, (10, IDLE), (RECVFROM, 97), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.wake(120, 1, 20, 21, 0);
    s.switch_in(122, 1, 20, 21, RUNNABLE, (FUTEX, 118), None);
    meanwhile(&mut s);
    s.sleep_in(170, 1, (21, 20), (FUTEX, 168), condition(0x100));
    s.call(1, 20, FUTEX, (118, 172), 1);
    s.wake(185, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(187, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 1, 20, (0, 4), (180, 190));
    c.gets(&mut s, 10, (0, 4), (97, 192));
    s
}

#[test]
fn a_helper_in_the_place_of_who_woke_it_does_the_requests_work() {
    let s = story(|s| s.call(1, 21, FUTEX, (22, 125), 0));
    let answer = "
        90-96 client kernel.tcp
        96-100 server queue.socket (user)
        100-105 server kernel.tcp
        105-118 server user
        118-122 server kernel.futex
        122-125 helper kernel.futex
        125-168 helper user
        168-170 helper kernel.futex
        170-172 server kernel.futex
        172-180 server user
        180-185 server kernel.tcp
        185-187 client runqueue.wakeup by idle
        187-192 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
    let requests = s.requests();
    let helper = requests[0].1.iter().filter(|segment| segment.tid == 21);
    let told: Vec<_> = helper.map(|segment| (segment.rule, segment.evidence)).collect();
    assert_eq!(told, [(Some(Rule::Helper), Evidence::Modelled); 3]);
}

/// The first helper wakes the second, which then also runs in its place.
#[test]
fn so_does_one_that_a_helper_woke() {
    let s = story(|s| {
        s.call(1, 21, FUTEX, (22, 125), 0);
        s.wake(130, 1, 21, 22, 0);
        s.switch_in(132, 1, 21, 22, RUNNABLE, (FUTEX, 128), None);
        s.call(1, 22, FUTEX, (26, 135), 0);
        s.sleep_in(150, 1, (22, 21), (FUTEX, 148), condition(0x200));
        s.call(1, 21, FUTEX, (128, 152), 1);
    });
    let only = s.only();
    for part in ["132-135 helper2 kernel.futex", "135-148 helper2 user", "152-168 helper user"] {
        assert!(only.contains(part), "{only}");
    }
    assert!(!only.contains("runqueue.preempted"), "{only}");
}

/// The helper works for another request, as the next message that it moves shows.
#[test]
fn a_thread_that_turns_to_another_request_is_no_helper() {
    let other = Connection::numbered(2, TYPE_TCP);
    let s = story(|s| {
        s.call(1, 21, FUTEX, (22, 125), 0);
        s.arrives(other.there, 4, 80);
        other.hears(s, 1, 21, (0, 4), (130, 135));
        other.answers(s, 1, 21, (0, 4), (160, 165));
    });
    let requests = s.requests();
    let (_, ours) = requests.iter().find(|(request, _)| request.client.is_some()).expect("one");
    let text = table(ours);
    assert!(text.contains("122-170 server runqueue.preempted by helper"), "{text}");
    assert!(!text.contains("helper kernel.tcp"), "{text}");
}

/// The server sends a request to another program, which runs in the server's place. The server finds the answer when it
/// has its CPU again.
#[test]
fn a_program_that_is_asked_works_for_the_request() {
    let mut s = Story::new();
    let (c, back) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(30, 30, "back");
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 30, RUNNABLE);
    s.sleep_in(28, 1, (30, 20), (RECVFROM, 26), back.sockets[1]);
    c.asks(&mut s, 10, (0, 4), (90, 96));
    s.sleep_in(98, 0, (10, IDLE), (RECVFROM, 97), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.wake(113, 1, 20, 30, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.moved(1, 20, (SENDTO, back.there, back.back), (0, 4), (110, 116));
    s.switch(120, 1, 20, 30, RUNNABLE);
    back.hears(&mut s, 1, 30, (0, 4), (26, 123));
    back.answers(&mut s, 1, 30, (0, 4), (150, 156));
    s.sleep_in(160, 1, (30, 20), (RECVFROM, 158), back.sockets[1]);
    s.moved(1, 20, (RECVFROM, back.back, back.there), (0, 4), (165, 168));
    s.wake(185, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(187, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 1, 20, (0, 4), (180, 190));
    c.gets(&mut s, 10, (0, 4), (97, 192));
    let requests = s.requests();
    let (_, ours) = requests.iter().find(|(request, _)| request.start_ns == 90).expect("it");
    let text = table(ours);
    assert!(text.contains("123-150 back user"), "{text}");
    assert!(text.contains("156-160 server runqueue.preempted by back/30"), "{text}");
}
