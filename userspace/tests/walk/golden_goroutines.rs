//! Small traces of a server whose goroutines are followed, with answers derived by hand. Threads 20 and 21 of the server run
//! them; addresses tell them apart. In each story the same without their changes is another answer, or none.

use rpcprobe::engine::event::{GoChange, What, TYPE_TCP};
use rpcprobe::records::WAKING_SOFTIRQ;

use super::connection::Connection;
use super::story::*;

const A: u64 = 0xa0;
const B: u64 = 0xb0;
const COLLECTOR: u64 = 0xc0;

/// The server's threads are on CPUs 1 and 2, and goroutines on threads, which wait for what comes.
fn served(by: &[(u32, u64)]) -> Story {
    let mut s = Story::new();
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.switch(10, 2, IDLE, 21, RUNNABLE);
    for &(tid, address) in by {
        s.goroutine(20, tid - 19, tid, address, GoChange::Runs);
    }
    s
}

/// The table of the request that began then.
fn began(s: &Story, start_ns: u64) -> String {
    let requests = s.requests();
    let mut ours = requests.iter().filter(|(request, _)| request.start_ns == start_ns);
    table(&ours.next().unwrap_or_else(|| panic!("{requests:#?}")).1)
}

/// The same of a capture without `--goroutines`.
fn without(s: &Story) -> Story {
    let mut s = Story { events: s.events.clone() };
    s.events.retain(|event| !matches!(event.what, What::Goroutine { .. }));
    s
}

/// Its thread serves another one meanwhile, and another thread goes on with it.
#[test]
fn a_goroutine_that_sleeps_is_asleep_whatever_its_thread_does() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served(&[(20, A)]);
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.parks(110, 1, 20, A, "sleep");
    s.arrives(other.there, 4, 115);
    s.goroutine(120, 1, 20, B, GoChange::Runs);
    other.hears(&mut s, 1, 20, (0, 4), (125, 130));
    // A timer is due: the scheduler, on the other thread, readies it.
    s.goroutine(200, 2, 21, A, GoChange::Readied);
    s.goroutine(204, 2, 21, A, GoChange::Runs);
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
    s.goroutine(150, 2, 21, A, GoChange::Readied);
    s.goroutine(155, 1, 20, A, GoChange::Runs);
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

/// The request goes to another goroutine by a channel, and its result comes back by one.
#[test]
fn what_comes_by_a_channel_is_followed() {
    let c = Connection::new(TYPE_TCP);
    let mut s = served(&[(20, A), (21, B)]);
    s.parks(50, 2, 21, B, "chan receive");
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.goroutine(110, 1, 20, B, GoChange::Readied);
    s.parks(112, 1, 20, A, "chan receive");
    s.goroutine(115, 2, 21, B, GoChange::Runs);
    s.goroutine(150, 2, 21, A, GoChange::Readied);
    s.parks(152, 2, 21, B, "chan receive");
    s.goroutine(154, 1, 20, A, GoChange::Runs);
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

/// What the server asks another one: the goroutine parks until its descriptor is ready, and its thread sleeps for whatever is.
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
    s.goroutine(199, 1, 20, A, GoChange::Readied);
    s.goroutine(202, 1, 20, A, GoChange::Runs);
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

/// The collector's goroutine works for all: what it does is nobody's own.
#[test]
fn who_waits_for_the_collector_does_not_get_its_work() {
    let c = Connection::new(TYPE_TCP);
    let mut s = served(&[(20, A), (21, COLLECTOR)]);
    s.parks(30, 2, 21, COLLECTOR, "GC worker (idle)");
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.goroutine(110, 1, 20, COLLECTOR, GoChange::Readied);
    s.parks(112, 1, 20, A, "wait for GC cycle");
    s.goroutine(115, 2, 21, COLLECTOR, GoChange::Runs);
    s.goroutine(150, 2, 21, A, GoChange::Readied);
    s.goroutine(154, 1, 20, A, GoChange::Runs);
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
    s.goroutine(105, 2, 21, A, GoChange::Readied);
    s.switch(110, 2, 21, IDLE, ASLEEP);
    other.answers(&mut s, 1, 20, (0, 4), (150, 155));
    s.goroutine(160, 1, 20, B, GoChange::Yields);
    s.goroutine(162, 1, 20, A, GoChange::Runs);
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
