//! Small traces of work handed on without a wake-up record, because the receiving thread was awake, with answers
//! derived by hand. The client (thread 10, CPU 0) sends a request, the server (thread 20, CPU 1) answers and has a
//! helper (thread 21, CPU 2).

use rpcprobe::engine::event::Object;
use rpcprobe::records::WAKING_IN_SYSCALL;

use super::story::*;

/// The server, which has been reading `from` since `since_ns`, is woken at 142 for what its helper wrote there. It
/// answers.
fn woken_it_answers(s: &mut Story, from: Object, since_ns: u64) {
    let b = pipe(2);
    s.switch(145, 1, IDLE, 20, RUNNABLE);
    s.read(1, 20, from, (0, 1), (since_ns, 147));
    s.wake(152, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b, (0, 4), (150, 155));
    s.switch(154, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b, (0, 4), (63, 158));
}

/// The explanation of what follows the wake-up at 142.
const ANSWERED: &str = "
    142-145 server runqueue.wakeup by idle
    145-147 server kernel.vfs
    147-150 server user
    150-152 server kernel.pipe
    152-154 client runqueue.wakeup by idle
    154-158 client kernel.pipe
";

/// The client sends its request at 50. The server is busy and, at 65, gives its helper work for another request. The
/// server reads the request at 90 and hands it on at 105. The helper is still at work and so is not woken. It takes the
/// request up at 118 and is done at 142. The hand-over at 65 must not count for the request.
#[test]
fn what_a_server_handed_on_before_it_read_the_request_is_not_its_work() {
    let (a, b) = (pipe(1), pipe(2));
    let (to, from) = (eventfd(3), eventfd(4));
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.call(1, 20, POLL, (30, 32), 0);
    s.sleep_in(47, 2, (21, IDLE), (READ, 42), to);
    s.write(0, 10, a, (0, 4), (50, 60));
    s.sleep_in(68, 0, (10, IDLE), (READ, 63), b);
    s.wake(65, 1, 20, 21, WAKING_IN_SYSCALL);
    s.write(1, 20, to, (0, 1), (64, 67));
    s.switch(69, 2, IDLE, 21, RUNNABLE);
    s.read(2, 21, to, (0, 1), (42, 72));
    s.read(1, 20, a, (0, 4), (90, 94));
    s.write(1, 20, to, (1, 1), (100, 105));
    s.sleep_in(110, 1, (20, IDLE), (READ, 107), from);
    s.read(2, 21, to, (1, 1), (118, 120));
    s.wake(142, 2, 21, 20, WAKING_IN_SYSCALL);
    s.write(2, 21, from, (0, 1), (140, 144));
    woken_it_answers(&mut s, from, 107);
    let answer = "
        50-60 client kernel.pipe
        60-90 server queue.pipe (user, kernel.vfs)
        90-94 server kernel.pipe
        94-100 server user
        100-105 server kernel.vfs
        105-118 helper queue.app (user)
        118-120 helper kernel.vfs
        120-140 helper user
        140-142 helper kernel.vfs
    ";
    assert_eq!(s.only(), expected(&[answer, ANSWERED].concat()));
}

/// The server hands the request on at 80 to a helper that has just begun and finds its eventfd ready. This helper hands
/// it on to a second helper, which also finds its eventfd ready, and which wakes the server.
#[test]
fn two_helpers_in_a_row_that_were_awake() {
    let (a, b) = (pipe(1), pipe(2));
    let (to, on, from) = (eventfd(3), eventfd(4), eventfd(5));
    let mut s = Story::new();
    s.task(22, 20, "helper2");
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(21, 2, IDLE, 21, RUNNABLE);
    s.switch(22, 3, IDLE, 22, RUNNABLE);
    s.call(2, 21, POLL, (20, 22), 0);
    s.call(3, 22, POLL, (20, 22), 0);
    s.write(0, 10, a, (0, 4), (50, 60));
    s.sleep_in(68, 0, (10, IDLE), (READ, 63), b);
    s.read(1, 20, a, (0, 4), (70, 74));
    s.write(1, 20, to, (0, 1), (80, 84));
    s.sleep_in(90, 1, (20, IDLE), (READ, 87), from);
    s.read(2, 21, to, (0, 1), (95, 97));
    s.write(2, 21, on, (0, 1), (110, 114));
    s.read(3, 22, on, (0, 1), (120, 122));
    s.wake(142, 3, 22, 20, WAKING_IN_SYSCALL);
    s.write(3, 22, from, (0, 1), (140, 144));
    woken_it_answers(&mut s, from, 87);
    let answer = "
        50-60 client kernel.pipe
        60-70 server queue.pipe (user)
        70-74 server kernel.pipe
        74-80 server user
        80-84 server kernel.vfs
        84-95 helper queue.app (user)
        95-97 helper kernel.vfs
        97-110 helper user
        110-114 helper kernel.vfs
        114-120 helper2 queue.app (user)
        120-122 helper2 kernel.vfs
        122-140 helper2 user
        140-142 helper2 kernel.vfs
    ";
    assert_eq!(s.only(), expected(&[answer, ANSWERED].concat()));
}

/// A request wakes the server out of its poll(), but the server reads another client's message first.
#[test]
fn a_server_woken_by_a_request_may_serve_others_first() {
    let (a, b) = (pipe(1), pipe(2));
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    // What another process sends to the server on pipe 5 is never answered.
    s.task(40, 40, "other");
    s.switch(30, 2, IDLE, 40, RUNNABLE);
    s.switch_in(45, 1, 20, IDLE, ASLEEP, (POLL, 40), None);
    s.wake(105, 0, 10, 20, WAKING_IN_SYSCALL);
    s.write(2, 40, pipe(5), (0, 4), (103, 108));
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a, (0, 4), (100, 110));
    s.call(1, 20, POLL, (40, 112), 2);
    s.read(1, 20, pipe(5), (0, 4), (113, 115));
    s.sleep_in(120, 0, (10, IDLE), (READ, 116), b);
    s.read(1, 20, a, (0, 4), (140, 143));
    s.wake(152, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b, (0, 4), (150, 155));
    s.switch(154, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b, (0, 4), (116, 158));
    let answer = "
        100-105 client kernel.pipe
        105-109 server runqueue.wakeup by idle
        109-140 server queue.pipe (user, kernel.poll)
        140-143 server kernel.pipe
        143-150 server user
        150-152 server kernel.pipe
        152-154 client runqueue.wakeup by idle
        154-158 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(answer));
}
