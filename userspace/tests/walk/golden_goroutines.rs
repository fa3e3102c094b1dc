//! Small traces of a server whose goroutines are tracked, with answers derived by hand. Threads 20 and 21 of the server
//! run them, and their addresses tell them apart. In most stories, the answer must differ if the changes of the
//! goroutines are left out.

use rpcprobe::engine::event::{OpenCall, TaskChange, What, TYPE_TCP};
use rpcprobe::model::{Category, Evidence, Segment};
use rpcprobe::records::{UNIT_REQUEST, UNIT_RESPONSE, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

const A: u64 = 0xa0;
const B: u64 = 0xb0;
const COLLECTOR: u64 = 0xc0;

/// A server with threads on CPUs 1 and 2, which run these goroutines and wait for requests.
fn served(by: &[(u32, u64)]) -> Story {
    let mut s = Story::new();
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.switch(10, 2, IDLE, 21, RUNNABLE);
    for &(tid, address) in by {
        s.goroutine(20, tid - 19, tid, address, TaskChange::Runs);
    }
    s
}

/// The table of the request that began at `start_ns`.
fn began(s: &Story, start_ns: u64) -> String {
    table(&segments_of(s, start_ns))
}

fn segments_of(s: &Story, start_ns: u64) -> Vec<Segment> {
    let requests = s.requests();
    let mut ours = requests.iter().filter(|(request, _)| request.start_ns == start_ns);
    ours.next().unwrap_or_else(|| panic!("{requests:#?}")).1.clone()
}

/// The story as a capture without `--tasks` records it.
fn without(s: &Story) -> Story {
    let mut s = Story { events: s.events.clone() };
    s.events.retain(|event| !matches!(event.what, What::RuntimeTask { .. }));
    s
}

/// While the goroutine sleeps, its thread serves another request, and another thread goes on with it.
#[test]
fn a_goroutine_that_sleeps_is_asleep_whatever_its_thread_does() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served(&[(20, A)]);
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.parks(110, 1, 20, A, "sleep");
    s.arrives(other.there, 4, 115);
    s.goroutine(120, 1, 20, B, TaskChange::Runs);
    other.hears(&mut s, 1, 20, (0, 4), (125, 130));
    // A timer is due: the scheduler, on the other thread, readies the goroutine.
    s.goroutine(200, 2, 21, A, TaskChange::Readied(None));
    s.goroutine(204, 2, 21, A, TaskChange::Runs);
    c.answers(&mut s, 2, 21, (0, 4), (210, 215));
    other.answers(&mut s, 1, 20, (0, 4), (230, 235));
    let answer = "
        100-105 server kernel.tcp
        105-110 server user
        110-200 server sleep
        200-204 server runqueue.wakeup by helper/21
        204-210 server user
        210-215 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
    assert_ne!(began(&without(&s), 100), expected(answer));
}

#[test]
fn a_mutex_is_a_lock_and_whoever_has_it_is_not_followed() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served(&[(20, A), (21, B)]);
    s.arrives(other.there, 4, 80);
    other.hears(&mut s, 2, 21, (0, 4), (80, 85));
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.parks(110, 1, 20, A, "sync.Mutex.Lock");
    s.goroutine(150, 2, 21, A, TaskChange::Readied(None));
    s.goroutine(155, 1, 20, A, TaskChange::Runs);
    c.answers(&mut s, 1, 20, (0, 4), (160, 165));
    other.answers(&mut s, 2, 21, (0, 4), (170, 175));
    let answer = "
        100-105 server kernel.tcp
        105-110 server user
        110-150 server lock by server/2147483649
        150-155 server runqueue.wakeup by server/20
        155-160 server user
        160-165 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
    assert_ne!(began(&without(&s), 100), expected(answer));
}

/// Go's runtime has locks of its own, for which a thread sleeps without its goroutine parking. Without this rule, it
/// would only be known that some thread of the program wakes it.
#[test]
fn a_lock_of_gos_runtime_is_a_lock() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let object = Some(mutex(0x1000));
    let told_of = |expected: i32| {
        let mut s = served(&[(20, A), (21, B)]);
        s.parks(20, 1, 20, A, "select");
        s.goroutine(25, 1, 20, A, TaskChange::Runs);
        s.arrives(other.there, 4, 80);
        other.hears(&mut s, 2, 21, (0, 4), (80, 85));
        s.arrives(c.there, 4, 100);
        c.hears(&mut s, 1, 20, (0, 4), (100, 105));
        let call = Some(OpenCall { nr: FUTEX, enter_ns: 110, object, fd: expected });
        let (waited_ns, preempt, iowait, state) = (None, false, false, ASLEEP);
        s.at(
            112,
            1,
            What::Switch { prev: 20, next: IDLE, waited_ns, state, preempt, iowait, call },
        );
        s.wake(150, 2, 21, 20, 0);
        s.switch(155, 1, IDLE, 20, RUNNABLE);
        s.call(1, 20, FUTEX, (110, 157), 0);
        c.answers(&mut s, 1, 20, (0, 4), (160, 165));
        other.answers(&mut s, 2, 21, (0, 4), (170, 175));
        segments_of(&s, 100)
    };
    let segments = told_of(-1);
    let answer = "
        100-105 server kernel.tcp
        105-110 server user
        110-112 server kernel.futex
        112-150 server lock by server/2147483649
        150-155 server runqueue.wakeup by idle
        155-157 server kernel.futex
        157-160 server user
        160-165 server kernel.tcp
    ";
    assert_eq!(table(&segments), expected(answer));
    let of = |segments: &[Segment]| {
        let lock = segments.iter().find(|segment| segment.category == Category::Lock);
        lock.map(|lock| (lock.detail.clone().unwrap_or_default(), lock.evidence))
    };
    let told = "a mutex of Go's runtime 0x1000".to_owned();
    assert_eq!(of(&segments), Some((told, Evidence::Measured)));
    assert_ne!(of(&told_of(0)).map(|(_, evidence)| evidence), Some(Evidence::Measured));
}

/// The request goes to another goroutine over a channel, and the result comes back over another.
#[test]
fn what_comes_by_a_channel_is_followed() {
    let c = Connection::new(TYPE_TCP);
    let mut s = served(&[(20, A), (21, B)]);
    s.parks(50, 2, 21, B, "chan receive");
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.goroutine(110, 1, 20, B, TaskChange::Readied(None));
    s.parks(112, 1, 20, A, "chan receive");
    s.goroutine(115, 2, 21, B, TaskChange::Runs);
    s.goroutine(150, 2, 21, A, TaskChange::Readied(None));
    s.parks(152, 2, 21, B, "chan receive");
    s.goroutine(154, 1, 20, A, TaskChange::Runs);
    c.answers(&mut s, 1, 20, (0, 4), (160, 165));
    let answer = "
        100-105 server kernel.tcp
        105-110 server user
        110-115 server runqueue.wakeup by helper/21
        115-150 server user
        150-154 server runqueue.wakeup by server/20
        154-160 server user
        160-165 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
    assert_ne!(began(&without(&s), 100), expected(answer));
}

/// The server sends a request to another server. The goroutine parks until its descriptor is ready, and its thread
/// sleeps until any descriptor is ready.
#[test]
fn a_wait_for_a_descriptor_is_one_for_the_peer() {
    let (c, behind) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served(&[(20, A)]);
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    behind.asks(&mut s, 20, (0, 4), (110, 115));
    s.parks(120, 1, 20, A, "IO wait");
    s.switch_in(125, 1, 20, IDLE, ASLEEP, (POLL, 122), None);
    s.arrives(behind.back, 4, 190);
    s.wake(191, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(195, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (122, 197), 1);
    s.goroutine(199, 1, 20, A, TaskChange::Readied(None));
    s.goroutine(202, 1, 20, A, TaskChange::Runs);
    behind.gets(&mut s, 20, (0, 4), (205, 208));
    c.answers(&mut s, 1, 20, (0, 4), (210, 215));
    let answer = "
        100-105 server kernel.tcp
        105-110 server user
        110-115 server kernel.tcp
        115-120 server user
        120-190 server idle.peer
        190-199 server queue.socket (asleep)
        199-202 server runqueue.wakeup by server/20
        202-205 server user
        205-208 server kernel.tcp
        208-210 server user
        210-215 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// The collector's goroutine works for all requests, so its work belongs to no single one.
#[test]
fn who_waits_for_the_collector_does_not_get_its_work() {
    let c = Connection::new(TYPE_TCP);
    let mut s = served(&[(20, A), (21, COLLECTOR)]);
    s.parks(30, 2, 21, COLLECTOR, "GC worker (idle)");
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.goroutine(110, 1, 20, COLLECTOR, TaskChange::Readied(None));
    s.parks(112, 1, 20, A, "wait for GC cycle");
    s.goroutine(115, 2, 21, COLLECTOR, TaskChange::Runs);
    s.goroutine(150, 2, 21, A, TaskChange::Readied(None));
    s.goroutine(154, 1, 20, A, TaskChange::Runs);
    c.answers(&mut s, 1, 20, (0, 4), (160, 165));
    let answer = "
        100-105 server kernel.tcp
        105-112 server user
        112-150 server lock by Go GC worker/2147483649
        150-154 server runqueue.wakeup by server/20
        154-160 server user
        160-165 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// More goroutines are ready than there are threads to run them.
#[test]
fn a_goroutine_that_is_ready_waits_for_a_thread() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served(&[(20, B), (21, A)]);
    s.parks(30, 2, 21, A, "IO wait");
    s.arrives(other.there, 4, 80);
    other.hears(&mut s, 1, 20, (0, 4), (80, 85));
    s.arrives(c.there, 4, 100);
    s.goroutine(105, 2, 21, A, TaskChange::Readied(None));
    s.switch(110, 2, 21, IDLE, ASLEEP);
    other.answers(&mut s, 1, 20, (0, 4), (150, 155));
    s.goroutine(160, 1, 20, B, TaskChange::Yields);
    s.goroutine(162, 1, 20, A, TaskChange::Runs);
    c.hears(&mut s, 1, 20, (0, 4), (165, 170));
    c.answers(&mut s, 1, 20, (0, 4), (180, 185));
    let answer = "
        100-105 server queue.socket (asleep)
        105-160 server runqueue.wakeup by server/2147483648
        160-162 server runqueue.wakeup by server/20
        162-165 server user
        165-170 server kernel.tcp
        170-180 server user
        180-185 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// One goroutine handles requests, a second writes the requests to the server behind, and a third reads the answers, as
/// in net/http's clients. The second loses its thread before it writes.
#[test]
fn a_request_goes_through_goroutines_that_write_and_read_for_all() {
    const READER: u64 = 0xd0;
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let behind = Connection::numbered(3, TYPE_TCP);
    let mut s = served(&[(20, A), (21, B)]);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.parks(30, 2, 21, B, "select");
    s.goroutine(32, 2, 21, READER, TaskChange::Runs);
    s.parks(34, 2, 21, READER, "IO wait");
    for (at_ns, front, number) in [(40, &other, 0), (100, &c, 1)] {
        let (from, preempted) = (4 * number, number == 1);
        front.asks(&mut s, 10, (0, 4), (at_ns - 5, at_ns));
        front.hears(&mut s, 1, 20, (0, 4), (at_ns, at_ns + 5));
        s.goroutine(at_ns + 6, 1, 20, B, TaskChange::Readied(None));
        s.parks(at_ns + 7, 1, 20, A, "select");
        s.goroutine(at_ns + 8, 2, 21, B, TaskChange::Runs);
        if preempted {
            s.goroutine(at_ns + 9, 2, 21, B, TaskChange::Yields);
            s.goroutine(at_ns + 11, 2, 21, B, TaskChange::Runs);
        }
        let call = (SENDTO, behind.there, behind.back);
        s.moved(2, 21, call, (from, 4), (at_ns + 12, at_ns + 14));
        s.parks(at_ns + 15, 2, 21, B, "select");
        s.arrives(behind.back, from + 4, at_ns + 30);
        s.goroutine(at_ns + 32, 2, 21, READER, TaskChange::Readied(None));
        s.goroutine(at_ns + 33, 2, 21, READER, TaskChange::Runs);
        let call = (RECVFROM, behind.back, behind.there);
        s.moved(2, 21, call, (from, 4), (at_ns + 34, at_ns + 36));
        s.goroutine(at_ns + 37, 2, 21, A, TaskChange::Readied(None));
        s.parks(at_ns + 38, 2, 21, READER, "IO wait");
        s.goroutine(at_ns + 39, 1, 20, A, TaskChange::Runs);
        front.answers(&mut s, 1, 20, (0, 4), (at_ns + 40, at_ns + 45));
        front.gets(&mut s, 10, (0, 4), (at_ns + 45, at_ns + 48));
    }
    let answer = "
        95-100 client kernel.tcp
        100-105 server kernel.tcp
        105-106 server user
        106-108 server runqueue.wakeup by helper/21
        108-109 server user
        109-111 server runqueue.preempted by helper/21
        111-112 server user
        112-114 server kernel.tcp
        114-130 server idle.peer
        130-132 server queue.socket (asleep)
        132-133 server runqueue.wakeup by helper/21
        133-134 server user
        134-136 server kernel.tcp
        136-137 server user
        137-139 server runqueue.wakeup by server/20
        139-140 server user
        140-145 server kernel.tcp
        145-148 client kernel.tcp
    ";
    assert_eq!(began(&s, 95), expected(answer));
}

/// As in net/http's clients: another request has had the connection made, and its tasks had not run when this request
/// got it. Nothing shows that this request gave its question to the task that writes. But the task that reads gives
/// this request the answer, long before it rests, and this request answers at once.
#[test]
fn the_task_that_gets_the_answer_had_asked() {
    const READER: u64 = 0xd0;
    const DIALER: u64 = 0xe0;
    let (c, behind) = (Connection::new(TYPE_TCP), Connection::numbered(3, TYPE_TCP));
    let mut s = served(&[(20, A), (21, DIALER)]);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.goroutine(30, 2, 21, B, TaskChange::Born);
    s.goroutine(31, 2, 21, READER, TaskChange::Born);
    c.asks(&mut s, 10, (0, 4), (95, 100));
    s.message(100, 0, &c, UNIT_REQUEST);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.parks(107, 1, 20, A, "select");
    s.parks(108, 2, 21, DIALER, "IO wait");
    s.goroutine(110, 2, 21, B, TaskChange::Runs);
    s.moved(2, 21, (SENDTO, behind.there, behind.back), (0, 4), (112, 114));
    s.message(114, 2, &behind, UNIT_REQUEST);
    s.goroutine(116, 2, 21, B, TaskChange::Yields);
    s.goroutine(117, 2, 21, READER, TaskChange::Runs);
    s.parks(119, 2, 21, READER, "IO wait");
    s.arrives(behind.back, 4, 130);
    s.goroutine(132, 2, 21, READER, TaskChange::Readied(None));
    s.goroutine(133, 2, 21, READER, TaskChange::Runs);
    s.moved(2, 21, (RECVFROM, behind.back, behind.there), (0, 4), (134, 136));
    s.message(136, 2, &behind, UNIT_RESPONSE);
    s.goroutine(137, 2, 21, A, TaskChange::Readied(None));
    s.goroutine(138, 2, 21, READER, TaskChange::Yields);
    s.goroutine(139, 1, 20, A, TaskChange::Runs);
    c.answers(&mut s, 1, 20, (0, 4), (140, 145));
    c.gets(&mut s, 10, (0, 4), (145, 148));
    s.message(148, 0, &c, UNIT_RESPONSE);
    s.goroutine(300, 2, 21, B, TaskChange::Runs);
    s.parks(302, 2, 21, B, "select");
    s.goroutine(303, 2, 21, READER, TaskChange::Runs);
    s.parks(305, 2, 21, READER, "IO wait");
    let answer = "
        95-100 client kernel.tcp
        100-105 server kernel.tcp
        105-107 server user
        107-108 server runqueue.wakeup by server/2147483649
        108-110 server runqueue.wakeup by helper/21
        110-112 server user
        112-114 server kernel.tcp
        114-130 server idle.peer
        130-132 server queue.socket (asleep)
        132-133 server runqueue.wakeup by helper/21
        133-134 server user
        134-136 server kernel.tcp
        136-137 server user
        137-139 server runqueue.wakeup by server/20
        139-140 server user
        140-145 server kernel.tcp
        145-148 client kernel.tcp
    ";
    assert_eq!(began(&s, 95), expected(answer));
}
