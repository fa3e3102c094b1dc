//! Small traces of threads that hand work to others by waking them, and of wake-ups that lead nowhere, with answers
//! derived by hand.

use rpcprobe::engine::event::Object;
use rpcprobe::model::Evidence;
use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::golden::{a, asked, b, ASKED};
use super::story::*;

/// The server hands the request to its helper (thread 21, CPU 2) through `to`, and gets the result back through `from`.
fn handed_off(to: Object, from: Object) -> Story {
    let mut s = Story::new();
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(47, 2, (21, IDLE), (READ, 42), to);
    asked(&mut s);
    s.wake(117, 1, 20, 21, WAKING_IN_SYSCALL);
    s.write(1, 20, to, (0, 8), (115, 119));
    s.switch(120, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(123, 1, (20, IDLE), (READ, 121), from);
    s.read(2, 21, to, (0, 8), (42, 122));
    s.wake(142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.write(2, 21, from, (0, 8), (140, 144));
    s.switch(145, 1, IDLE, 20, RUNNABLE);
    s.read(1, 20, from, (0, 8), (121, 147));
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(152, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (150, 155));
    s.switch(154, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 158));
    s
}

#[test]
fn work_handed_to_a_helper_and_back_is_followed() {
    for (to, from, call) in
        [(eventfd(3), eventfd(4), "kernel.vfs"), (pipe(3), pipe(4), "kernel.pipe")]
    {
        let rest = "
            113-115 server user
            115-117 server CALL
            117-120 helper runqueue.wakeup by idle
            120-122 helper CALL
            122-140 helper user
            140-142 helper CALL
            142-145 server runqueue.wakeup by idle
            145-147 server CALL
            147-150 server user
            150-152 server kernel.pipe
            152-154 client runqueue.wakeup by idle
            154-158 client kernel.pipe
        "
        .replace("CALL", call);
        let answer = expected(&[ASKED, &rest].concat());
        assert_eq!(handed_off(to, from).only(), answer, "through {to}");
    }
}

#[test]
fn a_wait_for_someone_who_does_not_work_for_us_is_charged() {
    let mut s = Story::new();
    // The server waits for an eventfd that its helper writes during other work, which began before the request.
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    asked(&mut s);
    s.sleep_in(119, 1, (20, IDLE), (READ, 117), eventfd(4));
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.write(2, 21, eventfd(4), (0, 8), (140, 144));
    s.switch(145, 1, IDLE, 20, RUNNABLE);
    s.read(1, 20, eventfd(4), (0, 8), (117, 147));
    s.wake(152, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (150, 155));
    s.switch(154, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 158));
    let rest = "
        113-117 server user
        117-119 server kernel.vfs
        119-142 server idle.peer by helper/21
        142-145 server runqueue.wakeup by idle
        145-147 server kernel.vfs
        147-150 server user
        150-152 server kernel.pipe
        152-154 client runqueue.wakeup by idle
        154-158 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn work_handed_over_by_condition_variables_is_followed() {
    let mut s = Story::new();
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.switch_in(47, 2, 21, IDLE, ASLEEP, (FUTEX, 42), Some(condition(0x8000)));
    asked(&mut s);
    s.wake(117, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (115, 119), 1);
    s.switch(120, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (42, 122), 0);
    s.switch_in(123, 1, 20, IDLE, ASLEEP, (FUTEX, 121), Some(condition(0x8004)));
    s.wake(142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (140, 144), 1);
    s.switch(145, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (121, 147), 0);
    s.write(1, 20, b(), (0, 4), (150, 155));
    s.read(0, 10, b(), (0, 4), (160, 163));
    // Unlike a mutex, where a waiter waits for its turn and not for work.
    let rest = "
        113-115 server user
        115-117 server kernel.futex
        117-120 helper runqueue.wakeup by idle
        120-122 helper kernel.futex
        122-140 helper user
        140-142 helper kernel.futex
        142-145 server runqueue.wakeup by idle
        145-147 server kernel.futex
        147-150 server user
        150-155 server kernel.pipe
        155-160 client queue.pipe (user)
        160-163 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

#[test]
fn a_wake_up_for_nothing_does_not_split_a_wait() {
    let mut s = Story::new();
    asked(&mut s);
    // The server polls until a timeout at 140. At 130 noise wakes it for something that it did not poll for.
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 115), None);
    s.wake(130, 2, 90, 20, WAKING_IN_SYSCALL);
    s.switch(131, 1, IDLE, 20, RUNNABLE);
    s.switch_in(133, 1, 20, IDLE, ASLEEP, (POLL, 115), None);
    s.wake(140, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(141, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (115, 143), 0);
    s.wake(155, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (150, 160));
    s.switch(158, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 162));
    let rest = "
        113-115 server user
        115-120 server kernel.poll
        120-130 server sleep
        130-131 server runqueue.wakeup by idle
        131-133 server kernel.poll
        133-140 server sleep
        140-141 server runqueue.wakeup by idle
        141-143 server kernel.poll
        143-150 server user
        150-155 server kernel.pipe
        155-158 client runqueue.wakeup by idle
        158-162 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

/// The server sleeps in fsync. A softirq in the client's own read(B) ends the sleep.
fn woken_in_the_clients_read() -> Story {
    let mut s = Story::new();
    asked(&mut s);
    let fsync = 74;
    s.switch_in(116, 1, 20, IDLE, DISK, (fsync, 114), None);
    s.wake(122, 0, 10, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(124, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, fsync, (114, 126), 0);
    s
}

#[test]
fn a_reader_that_wakes_its_writer_is_no_circle() {
    let mut s = woken_in_the_clients_read();
    // The bytes that the client then sleeps for come only later.
    s.sleep_in(128, 0, (10, IDLE), (READ, 115), b());
    s.wake(135, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (130, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 142));
    let answer = "
        100-110 client kernel.pipe
        110-115 client user
        115-122 client kernel.pipe
        122-124 server runqueue.wakeup by idle
        124-126 server kernel.vfs
        126-130 server user
        130-135 server kernel.pipe
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_reader_that_wakes_its_writer_and_stays_awake_is_no_circle() {
    let mut s = woken_in_the_clients_read();
    // The client is still on its CPU when the bytes come.
    s.write(1, 20, b(), (0, 4), (130, 140));
    s.read(0, 10, b(), (0, 4), (115, 150));
    let answer = "
        100-110 client kernel.pipe
        110-115 client user
        115-122 client kernel.pipe
        122-124 server runqueue.wakeup by idle
        124-126 server kernel.vfs
        126-130 server user
        130-150 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_dead_end_may_lead_somewhere_once_others_have_joined() {
    let mut s = Story::new();
    // Thread 22 reads the request and leaves it in memory. Thread 20, which computes all the time, picks it up without
    // any record of this. Thread 20 has 21 do a part of the work, and its answer is read in two parts.
    s.task(22, 20, "reader");
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(15, 3, IDLE, 22, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(45, 3, (22, 11), (READ, 40), a());
    s.sleep_in(47, 2, (21, IDLE), (READ, 42), eventfd(3));
    s.sleep_in(60, 3, (11, IDLE), (READ, 55), eventfd(5));
    s.wake(105, 0, 10, 22, WAKING_IN_SYSCALL);
    s.switch(107, 3, IDLE, 22, RUNNABLE);
    s.write(0, 10, a(), (0, 4), (100, 110));
    s.read(3, 22, a(), (0, 4), (40, 112));
    s.sleep_in(116, 3, (22, IDLE), (READ, 114), a());
    s.wake(117, 1, 20, 21, WAKING_IN_SYSCALL);
    s.write(1, 20, eventfd(3), (0, 8), (115, 119));
    s.switch(120, 2, IDLE, 21, RUNNABLE);
    s.read(2, 21, eventfd(3), (0, 8), (42, 122));
    s.sleep_in(121, 0, (10, IDLE), (READ, 115), b());
    s.sleep_in(123, 1, (20, IDLE), (READ, 121), eventfd(4));
    s.wake(142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.write(2, 21, eventfd(4), (0, 8), (140, 144));
    s.switch(145, 1, IDLE, 20, RUNNABLE);
    s.read(1, 20, eventfd(4), (0, 8), (121, 147));
    // Thread 20 also wakes the client's other thread, in whose call a softirq ends the client's fsync. On the way back
    // from there, no thread is known to work for the request yet.
    s.wake(149, 1, 20, 11, WAKING_IN_SYSCALL);
    s.write(1, 20, eventfd(5), (0, 8), (148, 150));
    s.switch(151, 3, IDLE, 11, RUNNABLE);
    s.wake(153, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 8), (152, 155));
    s.switch(154, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 156));
    let fsync = 74;
    s.switch_in(158, 0, 10, IDLE, DISK, (fsync, 157), None);
    s.wake(160, 3, 11, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(161, 0, IDLE, 10, RUNNABLE);
    s.read(3, 11, eventfd(5), (0, 8), (55, 162));
    s.call(0, 10, fsync, (157, 163), 0);
    s.read(0, 10, b(), (4, 4), (164, 165));
    // The answer makes 20 a member, and then the way through 21 leads to a member. What 20 does once 22 has the request
    // is taken for the request's work.
    let answer = "
        100-105 client kernel.pipe
        105-107 reader runqueue.wakeup by idle
        107-112 reader kernel.pipe
        112-115 server user
        115-117 server kernel.vfs
        117-120 helper runqueue.wakeup by idle
        120-122 helper kernel.vfs
        122-140 helper user
        140-142 helper kernel.vfs
        142-145 server runqueue.wakeup by idle
        145-147 server kernel.vfs
        147-148 server user
        148-150 server kernel.vfs
        150-152 server user
        152-153 server kernel.pipe
        153-154 client runqueue.wakeup by idle
        154-156 client kernel.pipe
        156-157 client user
        157-158 client kernel.vfs
        158-160 client block_io by client2/11
        160-161 client runqueue.wakeup by idle
        161-163 client kernel.vfs
        163-164 client user
        164-165 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
    let segments = s.requests().remove(0).1;
    let modelled = segments.iter().filter(|segment| segment.evidence == Evidence::Modelled);
    let spans: Vec<_> = modelled.map(|segment| (segment.start_ns, segment.end_ns())).collect();
    assert_eq!(spans, [(112, 115), (115, 117)], "nobody saw when it was handed over");
}
