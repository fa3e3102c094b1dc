//! Small traces in which context switches left no record, with answers derived by hand. The client (thread 10, CPU 0)
//! sends a request and sleeps, the server (thread 20, CPU 1) answers.

use rpcprobe::engine::event::What;
use rpcprobe::records::WAKING_IN_SYSCALL;

use super::golden::{asked, b};
use super::story::*;

/// The server has the bytes at 113 and computes until it answers at 130.
fn answered(s: &mut Story) {
    asked(s);
    s.sleep_in(120, 0, (10, NOISE), (READ, 115), b());
    s.wake(135, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (130, 140));
    s.read(0, 10, b(), (0, 4), (115, 142));
}

/// The thread that had the client's CPU while the client slept.
const NOISE: u32 = 90;

/// That the client was back from 138 on is reported only when it leaves again.
#[test]
fn a_thread_is_back_when_the_scheduler_says() {
    let mut s = Story::new();
    answered(&mut s);
    s.at(
        150,
        0,
        What::UnseenSwitch {
            tid: 10,
            last: NOISE,
            since_ns: 120,
            arrived_ns: 138,
            waited_ns: Some(3),
        },
    );
    s.sleep_in(150, 0, (10, IDLE), (READ, 145), pipe(2));
    let answer = "
        100-105 client kernel.pipe
        105-109 server runqueue.wakeup by idle
        109-113 server kernel.pipe
        113-130 server user
        130-135 server kernel.pipe
        135-138 client runqueue.wakeup by noise/90
        138-142 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The server lost its CPU for a time that began at an unknown moment.
#[test]
fn until_a_thread_came_back_again_nothing_is_known_of_it() {
    let mut s = Story::new();
    answered(&mut s);
    s.at(
        145,
        1,
        What::UnseenSwitch { tid: 20, last: 20, since_ns: 109, arrived_ns: 121, waited_ns: None },
    );
    s.sleep_in(145, 1, (20, IDLE), (READ, 142), pipe(1));
    s.at(
        150,
        0,
        What::UnseenSwitch {
            tid: 10,
            last: NOISE,
            since_ns: 120,
            arrived_ns: 138,
            waited_ns: Some(3),
        },
    );
    s.sleep_in(150, 0, (10, IDLE), (READ, 145), pipe(2));
    let answer = "
        100-105 client kernel.pipe
        105-109 server runqueue.wakeup by idle
        109-121 server unattributed
        121-130 server user
        130-135 server kernel.pipe
        135-138 client runqueue.wakeup by noise/90
        138-142 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The server sleeps from 115 to 123 and waits for its CPU until 126. Then it waits for a lock from 127 to 128. Neither
/// wake-up left a record.
#[test]
fn when_a_thread_was_woken_is_what_the_scheduler_says_and_by_whom_nobody_does() {
    woken_by_nobody_seen(0, "unattributed");
}

/// A call that returns a timeout has slept, even without a record of the wake-up.
#[test]
fn a_timeout_needs_nobody_to_be_seen() {
    woken_by_nobody_seen(-i64::from(libc::ETIMEDOUT), "sleep");
}

fn woken_by_nobody_seen(futex_returns: i64, category: &str) {
    let (a, b) = (pipe(1), pipe(2));
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a, (0, 4), (100, 110));
    s.read(1, 20, a, (0, 4), (111, 113));
    s.switch_in(115, 1, 20, NOISE, ASLEEP, (NANOSLEEP, 114), None);
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b);
    s.switch_to(126, 1, (NOISE, 20), 3);
    s.call(1, 20, NANOSLEEP, (114, 126), 0);
    s.switch_in(127, 1, 20, IDLE, ASLEEP, (FUTEX, 126), Some(mutex(7)));
    s.switch_to(129, 1, (IDLE, 20), 1);
    s.call(1, 20, FUTEX, (126, 130), futex_returns);
    s.wake(135, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b, (0, 4), (134, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b, (0, 4), (115, 142));
    let answer = format!(
        "
        100-110 client kernel.pipe
        110-111 server queue.pipe (user)
        111-113 server kernel.pipe
        113-114 server user
        114-115 server kernel.sched
        115-123 server sleep
        123-126 server runqueue.wakeup by noise/90
        126-127 server kernel.futex
        127-128 server {category}
        128-129 server runqueue.wakeup by idle
        129-130 server kernel.futex
        130-134 server user
        134-135 server kernel.pipe
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.pipe
        "
    );
    assert_eq!(s.only(), expected(&answer));
}
