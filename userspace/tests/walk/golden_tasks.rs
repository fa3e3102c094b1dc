//! Small traces of servers whose tasks are tracked: asyncio's, which one thread runs in turns, and tokio's. Answers are
//! derived by hand. Thread 20 of the server runs the tasks, and their addresses tell them apart.

use rpcprobe::engine::event::{TaskChange, TaskWait, TYPE_TCP};
use rpcprobe::model::{Category, Evidence, FIRST_RUNTIME_TASK};
use rpcprobe::records::WAKING_HARDIRQ;

use super::connection::Connection;
use super::story::*;

/// The callback that reads the client's request, the task that answers it, and others.
const READER: u64 = 0xa0;
const TASK: u64 = 0xb0;
const OTHER: u64 = 0xc0;
const TIMER: u64 = 0xd0;
const BEHIND: u64 = 0xe0;

/// The loop rests. The task existed before, and waits.
fn served() -> Story {
    let mut s = Story::new();
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.steps(20, TASK);
    s.rests(25);
    s
}

impl Story {
    /// The loop takes a step in this context.
    fn steps(&mut self, ts_ns: u64, address: u64) {
        self.goroutine(ts_ns, 1, 20, address, TaskChange::Steps);
    }

    /// The loop waits until anything is ready.
    fn rests(&mut self, ts_ns: u64) {
        self.parks(ts_ns, 1, 20, 0, "await");
    }

    /// A descriptor that this callback waits for is ready.
    fn ready(&mut self, ts_ns: u64, address: u64) {
        let wait = TaskWait::named("await (a descriptor)");
        self.goroutine(ts_ns, 1, 20, address, TaskChange::Readied(wait));
    }

    fn queued(&mut self, ts_ns: u64, address: u64) {
        self.goroutine(ts_ns, 1, 20, address, TaskChange::Queued);
    }

    /// The request arrives at 100 and is read in a callback, which hands it to the task. The task has it from 114 on.
    fn asked(&mut self, c: &Connection) {
        self.arrives(c.there, 4, 100);
        self.ready(101, READER);
        self.steps(102, READER);
        c.hears(self, 1, 20, (0, 4), (103, 108));
        self.queued(110, TASK);
        self.steps(114, TASK);
    }
}

const BEGIN: &str = "
        100-101 server queue.socket (not known)
        101-102 server runqueue.wakeup by server/20
        102-103 server user
        103-108 server kernel.tcp
        108-110 server user
";

/// `reader`: the number of the first callback, whose turn comes before the task's.
fn check(s: &Story, reader: u32, rest: &str) {
    let ready = format!("110-114 server runqueue.wakeup by server/{}", FIRST_RUNTIME_TASK + reader);
    let answer = format!("{}\n        {ready}{rest}", BEGIN.trim_end());
    assert_eq!(began(s, 100), expected(&answer));
    assert_ne!(began(&without(s), 100), expected(&answer));
}

/// Other tasks have the loop while this one sleeps.
#[test]
fn a_timer_that_wakes_a_task_was_its_sleep() {
    let c = Connection::new(TYPE_TCP);
    let mut s = served();
    s.asked(&c);
    s.goroutine(118, 1, 20, TIMER, TaskChange::Made);
    s.rests(120);
    s.ready(130, OTHER);
    s.steps(132, OTHER);
    s.rests(150);
    s.goroutine(190, 1, 20, TIMER, TaskChange::Due);
    s.steps(192, TIMER);
    s.queued(194, TASK);
    s.rests(195);
    s.steps(200, TASK);
    c.answers(&mut s, 1, 20, (0, 4), (205, 210));
    s.rests(215);
    check(
        &s,
        1,
        "
        114-120 server user
        120-190 server sleep
        190-200 server runqueue.wakeup by server/20
        200-205 server user
        205-210 server kernel.tcp
        ",
    );
}

/// After each poll, the loop looks which timers are due. If it did not rest in the last poll, the timer may have been
/// due at any time since the poll before.
#[test]
fn a_timer_may_have_been_due_since_the_loop_looked_before() {
    let c = Connection::new(TYPE_TCP);
    let told = |rests: bool| {
        let mut s = served();
        s.asked(&c);
        s.goroutine(118, 1, 20, TIMER, TaskChange::Made);
        s.rests(120);
        s.timed(1, 20, (122, 124), 1);
        s.ready(130, OTHER);
        s.steps(132, OTHER);
        s.rests(150);
        if rests {
            s.sleep_in(153, 1, (20, IDLE), (POLL, 152), condition(0));
            s.wake(180, 1, IDLE, 20, WAKING_HARDIRQ);
            s.switch(182, 1, IDLE, 20, RUNNABLE);
        }
        s.timed(1, 20, (152, 184), 0);
        s.goroutine(185, 1, 20, TIMER, TaskChange::Due);
        s.steps(186, TIMER);
        s.queued(188, TASK);
        s.rests(189);
        s.steps(195, TASK);
        c.answers(&mut s, 1, 20, (0, 4), (200, 205));
        s.rests(210);
        let requests = s.requests();
        let (_, ours) = requests.iter().find(|(request, _)| request.start_ns == 100).expect("it");
        let sleeps = ours.iter().filter(|segment| segment.category == Category::Sleep);
        sleeps.map(|s| (s.start_ns, s.end_ns(), s.evidence)).collect::<Vec<_>>()
    };
    assert_eq!(told(true), [(120, 185, Evidence::Measured)]);
    assert_eq!(told(false), [(120, 124, Evidence::Measured), (124, 185, Evidence::Modelled)]);
}

/// Another task, which serves another request, releases what both use.
#[test]
fn a_task_that_waits_for_one_that_serves_another_waits_for_a_lock() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served();
    s.arrives(other.there, 4, 60);
    s.ready(61, OTHER);
    s.steps(62, OTHER);
    other.hears(&mut s, 1, 20, (0, 4), (63, 68));
    s.rests(70);
    s.asked(&c);
    s.rests(120);
    s.ready(180, OTHER);
    s.steps(182, OTHER);
    s.queued(190, TASK);
    other.answers(&mut s, 1, 20, (0, 4), (191, 194));
    s.steps(200, TASK);
    let waiters = TaskWait::named("await (a lock, semaphore, event or condition)");
    s.goroutine(201, 1, 20, 0, TaskChange::Waited(waiters));
    c.answers(&mut s, 1, 20, (0, 4), (205, 210));
    s.rests(215);
    check(
        &s,
        2,
        "
        114-120 server user
        120-190 server lock by server/2147483649
        190-200 server runqueue.wakeup by server/2147483649
        200-205 server user
        205-210 server kernel.tcp
        ",
    );
}

/// The task sends a request to another server. A callback that the task has made reads the answer and hands it back.
#[test]
fn a_callback_that_reads_an_answer_waited_for_the_peer() {
    let (c, behind) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = served();
    s.asked(&c);
    s.goroutine(115, 1, 20, BEHIND, TaskChange::Made);
    behind.asks(&mut s, 20, (0, 4), (116, 118));
    s.rests(120);
    s.arrives(behind.back, 4, 180);
    s.ready(185, BEHIND);
    s.steps(187, BEHIND);
    behind.gets(&mut s, 20, (0, 4), (188, 190));
    s.queued(192, TASK);
    s.rests(193);
    s.steps(200, TASK);
    c.answers(&mut s, 1, 20, (0, 4), (205, 210));
    s.rests(215);
    check(
        &s,
        1,
        "
        114-116 server user
        116-118 server kernel.tcp
        118-180 server idle.peer
        180-185 server queue.socket (not yet started)
        185-187 server runqueue.wakeup by server/20
        187-188 server user
        188-190 server kernel.tcp
        190-192 server user
        192-193 server runqueue.wakeup by server/2147483650
        193-200 server runqueue.wakeup by server/20
        200-205 server user
        205-210 server kernel.tcp
        ",
    );
}
