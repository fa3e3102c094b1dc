//! Small traces of a Node server whose streams and timers are tracked. Answers are derived by hand. Thread 20 of the
//! server runs its event loop.

use rpcprobe::engine::event::{TaskChange, TaskWait, What, TYPE_TCP};
use rpcprobe::model::{Category, Evidence};

use super::connection::Connection;
use super::story::*;

/// The streams of two clients, and timers.
const STREAM: u64 = 0xa0;
const OTHERS: u64 = 0xb0;
const TIMER: u64 = 1 << 63 | 7;
const OTHER_TIMER: u64 = 1 << 63 | 8;
const FIRST_TIMER: u64 = 1 << 63 | 5;

/// The loop has served both streams before, and now rests.
fn served() -> Story {
    let mut s = Story::new();
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.stream(12, STREAM);
    s.stream(14, OTHERS);
    s.rests_in_poll(20);
    s
}

impl Story {
    /// Another request arrives at 50 and sets a timer.
    fn another_sleeps(&mut self, other: &Connection) {
        self.arrives(other.there, 4, 50);
        self.polled(55);
        self.stream(56, OTHERS);
        other.hears(self, 1, 20, (0, 4), (57, 60));
        self.sets(62, OTHER_TIMER);
        self.rests_in_poll(64);
    }

    /// The request arrives at 100 and is read.
    fn is_asked(&mut self, c: &Connection) {
        self.arrives(c.there, 4, 100);
        self.polled(102);
        self.stream(103, STREAM);
        c.hears(self, 1, 20, (0, 4), (104, 108));
    }

    fn stream(&mut self, ts_ns: u64, address: u64) {
        self.goroutine(ts_ns, 1, 20, address, TaskChange::StepsAfter(TaskWait::READY));
    }

    /// A timer's callback has returned.
    fn timer(&mut self, ts_ns: u64, address: u64) {
        self.goroutine(ts_ns, 1, 20, address, TaskChange::StepsAfter(TaskWait::TIMER));
    }

    fn sets(&mut self, ts_ns: u64, address: u64) {
        self.goroutine(ts_ns, 1, 20, address, TaskChange::Made);
    }

    fn runs_timers(&mut self, ts_ns: u64) {
        self.goroutine(ts_ns, 1, 20, 0, TaskChange::Timers);
    }

    fn drained(&mut self, ts_ns: u64) {
        self.goroutine(ts_ns, 1, 20, 0, TaskChange::Drained);
    }

    /// The loop has nothing left to do, and polls for what is ready.
    fn rests_in_poll(&mut self, ts_ns: u64) {
        self.parks(ts_ns, 1, 20, 0, "await");
        self.sleep_in(ts_ns + 2, 1, (20, IDLE), (POLL, ts_ns + 1), condition(0));
    }

    /// The loop goes on. What it was woken for is not known.
    fn polled(&mut self, ts_ns: u64) {
        let rested = self.events.iter().rev().find_map(|event| match &event.what {
            What::Switch { prev: 20, call: Some(call), .. } => Some(call.enter_ns),
            _ => None,
        });
        self.switch(ts_ns - 1, 1, IDLE, 20, RUNNABLE);
        self.timed(1, 20, (rested.expect("it rests"), ts_ns), 1);
    }
}

const BEGIN: &str = "
        100-102 server queue.socket (asleep)
        102-103 server runqueue.wakeup by server/20
        103-104 server user
        104-108 server kernel.tcp
";

fn check(s: &Story, rest: &str) {
    let all = format!("{}{rest}", BEGIN.trim_end());
    let expect = all.as_str();
    assert_eq!(began(s, 100), expected(expect));
    assert_ne!(began(&without(s), 100), expected(expect));
}

/// Two timers are due. The second one's callback writes its answer before anything shows whose turn it is. From the
/// time at which the loop was done with the first timer's request, the turn is the second one's.
#[test]
fn a_callback_that_answers_is_its_timers_from_its_begin() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served();
    s.another_sleeps(&other);
    s.is_asked(&c);
    s.sets(110, TIMER);
    s.rests_in_poll(114);
    s.polled(200);
    s.runs_timers(202);
    other.answers(&mut s, 1, 20, (0, 4), (204, 208));
    s.timer(210, OTHER_TIMER);
    s.drained(214);
    c.answers(&mut s, 1, 20, (0, 4), (220, 225));
    s.timer(227, TIMER);
    s.drained(228);
    s.rests_in_poll(230);
    check(
        &s,
        "
        108-110 server user
        110-202 server sleep
        202-214 server runqueue.wakeup by server/2147483650
        214-220 server user
        220-225 server kernel.tcp
        ",
    );
}

/// A timer of another request releases what that request had locked, and continues this request, which sets a timer of
/// its own.
#[test]
fn who_was_gone_on_with_by_another_request_waited_for_a_lock() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served();
    s.another_sleeps(&other);
    s.is_asked(&c);
    s.rests_in_poll(114);
    s.polled(200);
    s.runs_timers(202);
    s.timer(204, OTHER_TIMER);
    s.sets(208, TIMER);
    other.answers(&mut s, 1, 20, (0, 4), (210, 214));
    s.drained(216);
    s.rests_in_poll(218);
    s.polled(300);
    s.runs_timers(302);
    s.timer(303, TIMER);
    c.answers(&mut s, 1, 20, (0, 4), (305, 310));
    s.rests_in_poll(312);
    check(
        &s,
        "
        108-114 server user
        114-208 server lock by server/2147483650
        208-302 server sleep
        302-305 server user
        305-310 server kernel.tcp
        ",
    );
}

/// A request that uses one timer after the other, with work in between.
#[test]
fn timers_of_a_request_are_its_one_after_the_other() {
    let c = Connection::new(TYPE_TCP);
    let mut s = served();
    s.is_asked(&c);
    s.sets(110, FIRST_TIMER);
    s.rests_in_poll(114);
    s.polled(200);
    s.runs_timers(202);
    s.timer(204, FIRST_TIMER);
    s.sets(210, TIMER);
    s.rests_in_poll(212);
    s.polled(240);
    s.stream(241, OTHERS);
    s.rests_in_poll(250);
    s.polled(300);
    s.runs_timers(302);
    s.timer(303, TIMER);
    c.answers(&mut s, 1, 20, (0, 4), (305, 310));
    s.rests_in_poll(312);
    check(
        &s,
        "
        108-110 server user
        110-202 server sleep
        202-210 server user
        210-302 server sleep
        302-305 server user
        305-310 server kernel.tcp
        ",
    );
}

/// The loop rests until something is ready, handles that, and only then looks which timers are due.
#[test]
fn a_timer_may_have_been_due_while_the_loop_served_others() {
    let c = Connection::new(TYPE_TCP);
    let told = |serves: bool| {
        let mut s = served();
        s.is_asked(&c);
        s.sets(110, TIMER);
        s.rests_in_poll(114);
        s.polled(200);
        if serves {
            s.stream(202, OTHERS);
        }
        s.runs_timers(300);
        c.answers(&mut s, 1, 20, (0, 4), (305, 310));
        s.timer(312, TIMER);
        s.rests_in_poll(314);
        let requests = s.requests();
        let (_, ours) = requests.iter().find(|(request, _)| request.start_ns == 100).expect("it");
        let sleeps = ours.iter().filter(|segment| segment.category == Category::Sleep);
        sleeps.map(|s| (s.start_ns, s.end_ns(), s.evidence)).collect::<Vec<_>>()
    };
    assert_eq!(told(false), [(110, 300, Evidence::Measured)]);
    assert_eq!(told(true), [(110, 200, Evidence::Measured), (200, 300, Evidence::Modelled)]);
}
