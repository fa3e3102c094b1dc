//! Small traces of a server with a worker: a task to which others hand work in memory, as to an actor over its channel,
//! and which does one piece after the other. Answers are derived by hand. Thread 20 of the server runs the tasks that
//! serve clients, thread 21 the worker. The last traces show the same with threads alone.

use rpcprobe::engine::event::Object;
use rpcprobe::engine::event::{TaskChange, TaskWait, TYPE_TCP};
use rpcprobe::model::{Category, Certainty, Evidence, Rule};
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

/// The tasks that serve the clients, and the worker.
const A: u64 = 0xa0;
const B: u64 = 0xb0;
const WORKER: u64 = 0xc0;

/// The CPU and thread that the tasks run on.
const SERVING: (u32, u32) = (1, 20);
const WORKING: (u32, u32) = (3, 21);

/// The end of B's request.
const WOKEN: &str = "
        145-147 server runqueue.wakeup by server/20
        147-149 server user
        149-152 server kernel.tcp
        152-154 other kernel.tcp
";

struct Server {
    s: Story,
    fronts: [Connection; 2],
}

impl Server {
    /// All tasks wait.
    fn new() -> Server {
        let mut s = Story::new();
        s.task(30, 30, "other");
        for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 21)] {
            s.switch(10, cpu, IDLE, tid, RUNNABLE);
        }
        let fronts = [1, 2].map(|number| Connection::numbered(number, TYPE_TCP));
        let mut server = Server { s, fronts };
        for (number, task) in (0..).zip([A, B]) {
            server.runs(20 + 4 * number, SERVING, task);
            server.parks(22 + 4 * number, SERVING, task);
        }
        server.runs(30, WORKING, WORKER);
        server.parks(32, WORKING, WORKER);
        server
    }

    fn runs(&mut self, ts_ns: u64, (cpu, tid): (u32, u32), task: u64) {
        self.s.goroutine(ts_ns, cpu, tid, task, TaskChange::Runs);
    }

    fn parks(&mut self, ts_ns: u64, (cpu, tid): (u32, u32), task: u64) {
        self.s.parks(ts_ns, cpu, tid, task, "await");
    }

    /// The task that runs there wakes another task.
    fn wakes(&mut self, ts_ns: u64, (cpu, tid): (u32, u32), task: u64) {
        let wait = TaskWait::named("await");
        self.s.goroutine(ts_ns, cpu, tid, task, TaskChange::Readied(wait));
    }

    /// A client sends a request at `at_ns`, and its task reads it. The task's next step is 9 ns after `at_ns`.
    fn takes(&mut self, which: usize, (cpu, client, task): (u32, u32, u64), at_ns: u64) {
        let c = &self.fronts[which];
        self.s.moved(cpu, client, (SENDTO, c.there, c.back), (0, 4), (at_ns, at_ns + 3));
        let wait = TaskWait::named("await (a descriptor)");
        self.s.goroutine(at_ns + 3, 1, 20, task, TaskChange::Readied(wait));
        self.runs(at_ns + 4, SERVING, task);
        self.fronts[which].hears(&mut self.s, 1, 20, (0, 4), (at_ns + 5, at_ns + 7));
    }

    /// The task goes on, and answers its client.
    fn answers(&mut self, which: usize, (cpu, client, task): (u32, u32, u64), at_ns: u64) {
        self.runs(at_ns, SERVING, task);
        let c = &self.fronts[which];
        c.answers(&mut self.s, 1, 20, (0, 4), (at_ns + 2, at_ns + 5));
        let call = (RECVFROM, c.back, c.there);
        self.s.moved(cpu, client, call, (0, 4), (at_ns + 5, at_ns + 7));
        self.parks(at_ns + 8, SERVING, task);
    }

    /// The worker hands A and B what they wait for, and then rests.
    fn hands_back(&mut self, (to_a_ns, a_runs_ns): (u64, u64), to_b_ns: u64) {
        self.wakes(to_a_ns, WORKING, A);
        self.answers(0, (0, 10, A), a_runs_ns);
        self.wakes(to_b_ns, WORKING, B);
        self.answers(1, (2, 30, B), to_b_ns + 2);
        self.parks(to_b_ns + 20, WORKING, WORKER);
    }

    /// Checks what B's request, which began at `began_ns`, waits for until the worker wakes its task at 145, and that
    /// the worker's work is inferred to be the request's.
    fn tells_of_b(&self, began_ns: u64, until_woken: &str) {
        let answer = [until_woken, WOKEN].concat();
        assert_eq!(began(&self.s, began_ns), expected(&answer));
        self.is_inferred(began_ns);
    }

    /// Checks that the worker's work is inferred to be this request's.
    fn is_inferred(&self, began_ns: u64) {
        let requests = self.s.requests();
        let (_, segments) = requests.iter().find(|(row, _)| row.start_ns == began_ns).expect("it");
        let by_turn = segments.iter().filter(|segment| segment.rule == Some(Rule::Turn));
        let by_turn: Vec<_> = by_turn.map(|of| (of.category, of.evidence)).collect();
        assert!(by_turn.iter().any(|(category, _)| *category == Category::User), "{by_turn:?}");
        assert!(by_turn.iter().all(|(_, evidence)| *evidence == Evidence::Modelled));
    }
}

/// A's request wakes the worker. B's request is put into the worker's channel while the worker works for A.
#[test]
fn a_worker_works_for_whom_it_hands_something_next() {
    let mut server = Server::new();
    server.takes(0, (0, 10, A), 95);
    server.wakes(103, SERVING, WORKER);
    server.parks(104, SERVING, A);
    server.runs(105, WORKING, WORKER);
    server.takes(1, (2, 30, B), 110);
    server.parks(119, SERVING, B);
    server.hands_back((130, 132), 145);
    let answer = "
        110-113 other kernel.tcp
        113-115 server queue.socket (user, on the run queue)
        115-117 server kernel.tcp
        117-119 server user
        119-130 server queue.app (user)
        130-145 server user
    ";
    server.tells_of_b(110, answer);
    // A's own request is not affected.
    let answer = "
        95-98 client kernel.tcp
        98-100 server queue.socket (user, on the run queue)
        100-102 server kernel.tcp
        102-103 server user
        103-105 server runqueue.wakeup by helper/21
        105-130 server user
        130-132 server runqueue.wakeup by server/20
        132-134 server user
        134-137 server kernel.tcp
        137-139 client kernel.tcp
    ";
    assert_eq!(began(&server.s, 95), expected(answer));
}

/// The worker hands A what it waited for before B waits, and goes on with B's request.
#[test]
fn a_worker_that_does_not_rest_has_more_to_do() {
    let mut server = Server::new();
    server.takes(0, (0, 10, A), 75);
    server.wakes(83, SERVING, WORKER);
    server.parks(84, SERVING, A);
    server.runs(85, WORKING, WORKER);
    server.takes(1, (2, 30, B), 86);
    server.parks(110, SERVING, B);
    server.hands_back((100, 112), 145);
    let answer = "
        86-89 other kernel.tcp
        89-91 server queue.socket (user, on the run queue)
        91-93 server kernel.tcp
        93-110 server user
        110-145 server user
    ";
    server.tells_of_b(86, answer);
}

/// The worker's channel is full when B, whose request came at `began_ns`, sends to it at `full_ns`. The worker hands A
/// what it waited for, and takes the next message at 120, so that there is room for B's. This is also B's turn.
fn finds_no_room(began_ns: u64, full_ns: u64, a_done_ns: u64) {
    let mut server = Server::new();
    server.takes(0, (0, 10, A), began_ns - 11);
    server.wakes(began_ns - 3, SERVING, WORKER);
    server.parks(began_ns - 2, SERVING, A);
    server.runs(began_ns - 1, WORKING, WORKER);
    server.takes(1, (2, 30, B), began_ns);
    server.s.parks(full_ns, SERVING.0, SERVING.1, B, "chan send");
    server.wakes(a_done_ns, WORKING, A);
    server.answers(0, (0, 10, A), a_done_ns + 2);
    let wait = TaskWait::named("chan send");
    server.s.goroutine(120, WORKING.0, WORKING.1, B, TaskChange::Readied(wait));
    server.runs(122, SERVING, B);
    server.parks(124, SERVING, B);
    server.wakes(145, WORKING, B);
    server.answers(1, (2, 30, B), 147);
    server.parks(165, WORKING, WORKER);
    let [sent_ns, read_ns, has_ns] = [3, 5, 7].map(|ns| began_ns + ns);
    let answer = format!(
        "
        {began_ns}-{sent_ns} other kernel.tcp
        {sent_ns}-{read_ns} server queue.socket (user, on the run queue)
        {read_ns}-{has_ns} server kernel.tcp
        {has_ns}-{full_ns} server user
        {full_ns}-120 server queue.app (user)
        120-122 server runqueue.wakeup by server/20
        122-124 server user
        124-145 server user
    "
    );
    server.tells_of_b(began_ns, &answer);
}

#[test]
fn who_finds_no_room_in_a_workers_channel_waits_for_its_turn() {
    finds_no_room(86, 95, 100);
}

/// A has got what it waited for before B finds no room. What the worker does until there is room is not for B.
#[test]
fn a_worker_in_whose_channel_there_is_no_room_works_for_others() {
    finds_no_room(76, 85, 84);
}

/// Both have woken the worker before it gets a CPU.
#[test]
fn a_worker_that_several_woke_works_for_one_after_the_other() {
    let mut server = Server::new();
    server.takes(0, (0, 10, A), 75);
    server.wakes(83, SERVING, WORKER);
    server.parks(84, SERVING, A);
    server.takes(1, (2, 30, B), 90);
    server.wakes(98, SERVING, WORKER);
    server.parks(99, SERVING, B);
    server.runs(105, WORKING, WORKER);
    server.hands_back((130, 132), 145);
    let answer = "
        90-93 other kernel.tcp
        93-95 server queue.socket (user, on the run queue)
        95-97 server kernel.tcp
        97-99 server user
        99-130 server queue.app (user, on the run queue)
        130-145 server user
    ";
    server.tells_of_b(90, answer);
}

/// B wakes the worker, and then A does, before it gets a CPU. The worker begins with B's request, although it hands A
/// something first.
#[test]
fn a_worker_begins_with_whom_it_was_woken_by() {
    let mut server = Server::new();
    server.takes(1, (2, 30, B), 75);
    server.wakes(83, SERVING, WORKER);
    server.parks(84, SERVING, B);
    server.takes(0, (0, 10, A), 90);
    server.wakes(98, SERVING, WORKER);
    server.parks(99, SERVING, A);
    server.runs(105, WORKING, WORKER);
    server.hands_back((130, 132), 145);
    assert!(!by_turn(&server.s, 75));
}

/// Whether any segment of this request is explained by the rule of turns.
fn by_turn(s: &Story, began_ns: u64) -> bool {
    let requests = s.requests();
    let (_, segments) = requests.iter().find(|(row, _)| row.start_ns == began_ns).expect("it");
    segments.iter().any(|segment| segment.rule == Some(Rule::Turn))
}

/// What the worker asks the server behind.
#[derive(PartialEq)]
enum Asks {
    Nothing,
    OneByOne,
    Together,
}

/// Threads 20 and 22 each read an untraced client's request, and wait until thread 21 has done the work for it. Thread
/// 21 sleeps until 20 wakes it, and does not rest until it has woken both. `for_b`: what 22 waits for. `asks`: whether
/// 21 asks another server for each and waits in a read, or asks for both before it reads an answer.
fn of_threads(for_b: Object, asks: Asks) -> Story {
    let fronts = [1, 2].map(|number| Connection::numbered(number, TYPE_TCP));
    let mut s = Story::new();
    s.task(22, 20, "server");
    for (cpu, tid) in [(1, 20), (2, 22), (3, 21)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    let (for_work, for_a) = (condition(0x7000), condition(0x9000));
    s.sleep_in(30, 3, (21, IDLE), (FUTEX, 28), for_work);
    s.arrives(fronts[0].there, 4, 95);
    fronts[0].hears(&mut s, 1, 20, (0, 4), (97, 100));
    s.wake(103, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (102, 104), 1);
    s.switch(105, 3, IDLE, 21, RUNNABLE);
    s.call(3, 21, FUTEX, (28, 107), 0);
    s.sleep_in(108, 1, (20, IDLE), (FUTEX, 106), for_a);
    match asks {
        Asks::Nothing => {}
        Asks::OneByOne => asks_behind(&mut s, 0, 108),
        Asks::Together => hears_both(&mut s),
    }
    s.arrives(fronts[1].there, 4, 110);
    fronts[1].hears(&mut s, 2, 22, (0, 4), (112, 115));
    s.sleep_in(119, 2, (22, IDLE), (FUTEX, 117), for_b);
    s.wake(130, 3, 21, 20, WAKING_IN_SYSCALL);
    s.call(3, 21, FUTEX, (129, 131), 1);
    s.switch(132, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (106, 133), 0);
    fronts[0].answers(&mut s, 1, 20, (0, 4), (134, 137));
    if asks == Asks::OneByOne {
        asks_behind(&mut s, 4, 132);
    }
    s.wake(145, 3, 21, 22, WAKING_IN_SYSCALL);
    s.call(3, 21, FUTEX, (144, 146), 1);
    s.switch(147, 2, IDLE, 22, RUNNABLE);
    s.call(2, 22, FUTEX, (117, 148), 0);
    fronts[1].answers(&mut s, 2, 22, (0, 4), (149, 152));
    s.sleep_in(155, 3, (21, IDLE), (FUTEX, 153), for_work);
    s
}

#[test]
fn a_workers_thread_works_for_whom_it_wakes_next() {
    let answer = "
        110-112 server queue.socket (user)
        112-115 server kernel.tcp
        115-117 server user
        117-119 server kernel.futex
        119-130 helper queue.app (user, kernel.futex)
        130-131 helper kernel.futex
        131-144 helper user
        144-145 helper kernel.futex
        145-147 server runqueue.wakeup by idle
        147-148 server kernel.futex
        148-149 server user
        149-152 server kernel.tcp
    ";
    assert_eq!(began(&of_threads(condition(0xa000), Asks::Nothing), 110), expected(answer));
    // A thread that holds a lock works for itself.
    let answer = answer.replace(
        "119-130 helper queue.app (user, kernel.futex)
        130-131 helper kernel.futex
        131-144 helper user
        144-145 helper kernel.futex",
        "119-145 server lock by helper/21",
    );
    assert_eq!(began(&of_threads(mutex(0xa000), Asks::Nothing), 110), expected(&answer));
    // A thread that wakes all waiters has worked for none of them alone.
    assert_eq!(began(&of_threads(condition(0x9000), Asks::Nothing), 110), expected(&answer));
}

/// The worker asks the server behind, and is back on its CPU for the answer 8 ns later.
fn asks_behind(s: &mut Story, from: u64, at_ns: u64) {
    let behind = Connection::numbered(3, TYPE_TCP);
    s.moved(3, 21, (SENDTO, behind.there, behind.back), (from, 4), (at_ns, at_ns + 1));
    s.sleep_in(at_ns + 3, 3, (21, IDLE), (RECVFROM, at_ns + 2), behind.back);
    s.arrives(behind.back, from + 4, at_ns + 6);
    s.wake(at_ns + 7, 3, IDLE, 21, WAKING_SOFTIRQ);
    s.switch(at_ns + 8, 3, IDLE, 21, RUNNABLE);
    s.moved(3, 21, (RECVFROM, behind.back, behind.there), (from, 4), (at_ns + 2, at_ns + 9));
}

/// The worker asks on two connections, and has read both answers before it wakes any thread.
fn hears_both(s: &mut Story) {
    let behind = [3, 4].map(|number| Connection::numbered(number, TYPE_TCP));
    for (behind, at_ns) in behind.iter().zip([108, 111]) {
        s.moved(3, 21, (SENDTO, behind.there, behind.back), (0, 4), (at_ns, at_ns + 1));
        s.arrives(behind.back, 4, at_ns + 8);
    }
    for (behind, at_ns) in behind.iter().zip([121, 124]) {
        s.moved(3, 21, (RECVFROM, behind.back, behind.there), (0, 4), (at_ns, at_ns + 1));
    }
}

/// A thread that has several requests to others open does not do one piece after the other, so it is no worker.
#[test]
fn who_hears_several_answers_is_no_worker() {
    assert!(!by_turn(&of_threads(condition(0xa000), Asks::Together), 110));
    assert!(by_turn(&of_threads(condition(0xa000), Asks::OneByOne), 110));
}

/// What the worker asks is for the thread that it hands the answer to.
#[test]
fn a_workers_thread_asks_for_whom_it_wakes_next() {
    let s = of_threads(condition(0xa000), Asks::OneByOne);
    let answer = "
        110-112 server queue.socket (user)
        112-115 server kernel.tcp
        115-117 server user
        117-119 server kernel.futex
        119-130 helper queue.app (user, kernel.futex)
        130-131 helper kernel.futex
        131-132 helper user
        132-133 helper kernel.tcp
        133-138 helper idle.peer
        138-139 helper queue.socket (asleep; handed over in memory, unseen)
        139-140 helper runqueue.wakeup by idle
        140-141 helper kernel.tcp
        141-144 helper user
        144-145 helper kernel.futex
        145-147 server runqueue.wakeup by idle
        147-148 server kernel.futex
        148-149 server user
        149-152 server kernel.tcp
    ";
    assert_eq!(began(&s, 110), expected(answer));
    let requests = s.requests();
    let parent_of = |asked_ns: u64| {
        let (child, _) = requests.iter().find(|(row, _)| row.start_ns == asked_ns).expect("it");
        let parent =
            requests.iter().find(|(row, _)| Some(row.request_id) == child.parent_request_id);
        (parent.map(|(row, _)| row.start_ns), child.parent_certainty)
    };
    assert_eq!(parent_of(108), (Some(95), Some(Certainty::Likely)));
    assert_eq!(parent_of(132), (Some(110), Some(Certainty::Likely)));
}
