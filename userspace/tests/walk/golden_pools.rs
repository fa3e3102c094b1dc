//! Small traces of a server whose tasks share a connection to another server, as in hyper's client: the connection has
//! a task of its own, which is handed requests and hands answers back. Answers are derived by hand. Thread 20 of the
//! server runs the tasks, and their addresses tell them apart.

use rpcprobe::engine::event::{TaskChange, TaskWait, TYPE_TCP};
use rpcprobe::model::{Certainty, FIRST_RUNTIME_TASK};

use super::connection::Connection;
use super::story::*;

/// The tasks that serve the clients, and the task of the connection.
const A: u64 = 0xa0;
const B: u64 = 0xb0;
const POOLED: u64 = 0xc0;

struct Pool {
    s: Story,
    fronts: [Connection; 2],
    behind: Connection,
}

impl Pool {
    /// All tasks wait.
    fn new() -> Pool {
        let mut s = Story::new();
        s.task(30, 30, "other");
        for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
            s.switch(10, cpu, IDLE, tid, RUNNABLE);
        }
        let fronts = [1, 2].map(|number| Connection::numbered(number, TYPE_TCP));
        let mut pool = Pool { s, fronts, behind: Connection::numbered(3, TYPE_TCP) };
        for (number, task) in (0..).zip([A, B, POOLED]) {
            pool.runs(20 + 4 * number, task);
            pool.s.parks(22 + 4 * number, 1, 20, task, "await");
        }
        pool
    }

    fn runs(&mut self, ts_ns: u64, task: u64) {
        self.s.goroutine(ts_ns, 1, 20, task, TaskChange::Runs);
    }

    fn parks(&mut self, ts_ns: u64, task: u64) {
        self.s.parks(ts_ns, 1, 20, task, "await");
    }

    /// The task or thread that runs wakes another task.
    fn wakes(&mut self, ts_ns: u64, task: u64) {
        let wait = TaskWait::named("await");
        self.s.goroutine(ts_ns, 1, 20, task, TaskChange::Readied(wait));
    }

    fn ready(&mut self, ts_ns: u64, task: u64) {
        let wait = TaskWait::named("await (a descriptor)");
        self.s.goroutine(ts_ns, 1, 20, task, TaskChange::Readied(wait));
    }

    /// A client's request is read by its task.
    fn takes(&mut self, which: usize, (cpu, client, task): (u32, u32, u64), at_ns: u64) {
        let c = &self.fronts[which];
        self.s.moved(cpu, client, (SENDTO, c.there, c.back), (0, 4), (at_ns, at_ns + 3));
        self.ready(at_ns + 3, task);
        self.runs(at_ns + 4, task);
        self.fronts[which].hears(&mut self.s, 1, 20, (0, 4), (at_ns + 5, at_ns + 7));
    }

    fn answers(&mut self, which: usize, (cpu, client): (u32, u32), at_ns: u64) {
        let c = &self.fronts[which];
        c.answers(&mut self.s, 1, 20, (0, 4), (at_ns, at_ns + 3));
        let call = (RECVFROM, c.back, c.there);
        self.s.moved(cpu, client, call, (0, 4), (at_ns + 3, at_ns + 5));
    }

    /// The connection's task sends a request. The answer comes 20 ns later, and the connection's task hands it to the
    /// task `to`.
    fn asks(&mut self, from: u64, at_ns: u64, to: u64) {
        let (there, back) = (self.behind.there, self.behind.back);
        self.runs(at_ns, POOLED);
        self.s.moved(1, 20, (SENDTO, there, back), (from, 4), (at_ns + 1, at_ns + 3));
        self.parks(at_ns + 4, POOLED);
        self.s.arrives(back, from + 4, at_ns + 20);
        self.ready(at_ns + 21, POOLED);
        self.runs(at_ns + 22, POOLED);
        self.s.moved(1, 20, (RECVFROM, back, there), (from, 4), (at_ns + 23, at_ns + 25));
        self.wakes(at_ns + 26, to);
        self.parks(at_ns + 27, POOLED);
    }

    /// The parent of the request that was sent to the server behind at `asked_ns`.
    fn parent(&self, asked_ns: u64) -> Option<(u32, Certainty)> {
        let requests = self.s.requests();
        let pooled = FIRST_RUNTIME_TASK + 2;
        let mut asked = requests.iter().filter(|(request, _)| {
            request.start_ns == asked_ns
                && request.client.as_ref().is_some_and(|client| client.tid == pooled)
        });
        let (child, _) = asked.next().expect("the request");
        let id = child.parent_request_id?;
        let (parent, _) = requests.iter().find(|(row, _)| row.request_id == id).expect("a row");
        let client = parent.client.as_ref().expect("a client");
        Some((client.tid, child.parent_certainty.expect("of a parent")))
    }
}

/// Both clients have sent requests. The first has its answer from the server behind, gives the connection back, and has
/// gone on; the second runs next.
fn given_back(answers: bool) -> Pool {
    let mut p = Pool::new();
    p.takes(0, (0, 10, A), 95);
    p.wakes(103, POOLED);
    p.parks(104, A);
    p.asks(0, 105, A);
    p.takes(1, (2, 30, B), 134);
    p.parks(142, B);
    p.runs(143, A);
    p.wakes(144, POOLED);
    if answers {
        p.answers(0, (0, 10), 145);
    }
    p.wakes(149, B);
    p.parks(150, A);
    p.runs(151, B);
    p
}

#[test]
fn who_is_given_the_answer_asked_of_several_that_woke_the_connections_task() {
    let mut p = given_back(true);
    p.wakes(152, POOLED);
    p.parks(153, B);
    p.asks(4, 154, B);
    p.runs(182, B);
    p.answers(1, (2, 30), 183);
    p.parks(189, B);
    assert_eq!(p.parent(106), Some((10, Certainty::Sure)));
    assert_eq!(p.parent(155), Some((30, Certainty::Sure)));
    let answer = "
        134-137 other kernel.tcp
        137-139 server queue.socket (user, on the run queue)
        139-141 server kernel.tcp
        141-142 server user
        142-149 server lock by server/2147483648
        149-150 server runqueue.wakeup by server/2147483648
        150-151 server runqueue.wakeup by server/20
        151-152 server user
        152-153 server runqueue.wakeup by server/2147483649
        153-154 server runqueue.wakeup by server/20
        154-155 server user
        155-157 server kernel.tcp
        157-158 server user
        158-174 server idle.peer
        174-175 server queue.socket (asleep)
        175-176 server runqueue.wakeup by server/20
        176-177 server user
        177-179 server kernel.tcp
        179-180 server user
        180-181 server runqueue.wakeup by server/2147483650
        181-182 server runqueue.wakeup by server/20
        182-183 server user
        183-186 server kernel.tcp
        186-188 other kernel.tcp
    ";
    assert_eq!(began(&p.s, 134), expected(answer));
}

/// A task may find what is sent to it before it is woken for it.
#[test]
fn who_is_given_the_answer_asked_though_it_is_not_seen_to_have_handed_that_on() {
    let mut p = given_back(false);
    p.parks(153, B);
    p.asks(4, 154, B);
    p.runs(182, B);
    p.answers(1, (2, 30), 183);
    p.parks(189, B);
    p.wakes(190, A);
    p.runs(191, A);
    p.answers(0, (0, 10), 192);
    p.parks(198, A);
    assert_eq!(p.parent(155), Some((30, Certainty::Guessed)));
}

/// The connection's task runs on another thread while both tasks hand it a request, and has other work first. It is
/// woken again as it parks, and what it then sends may be for either.
fn handed_as_it_ran(answered: u64) -> Pool {
    let mut p = Pool::new();
    p.s.task(21, 20, "server");
    p.s.switch(40, 3, IDLE, 21, RUNNABLE);
    p.s.goroutine(50, 3, 21, POOLED, TaskChange::Runs);
    p.takes(0, (0, 10, A), 95);
    p.wakes(103, POOLED);
    p.parks(104, A);
    p.takes(1, (2, 30, B), 105);
    p.wakes(113, POOLED);
    p.parks(114, B);
    p.s.parks(116, 3, 21, POOLED, "await");
    p.asks(0, 118, answered);
    p.runs(146, answered);
    p
}

const ASKED_AND_HEARD: &str = "
        116-118 server runqueue.wakeup by server/20
        118-119 server user
        119-121 server kernel.tcp
        121-122 server user
        122-138 server idle.peer
        138-139 server queue.socket (asleep)
        139-140 server runqueue.wakeup by server/20
        140-141 server user
        141-143 server kernel.tcp
        143-144 server user
        144-145 server runqueue.wakeup by server/2147483650
        145-146 server runqueue.wakeup by server/20
        146-147 server user
        147-150 server kernel.tcp
";

#[test]
fn what_is_handed_to_a_task_as_it_runs_waits_until_it_parks() {
    let mut p = handed_as_it_ran(A);
    p.answers(0, (0, 10), 147);
    p.parks(153, A);
    assert_eq!(p.parent(119), Some((10, Certainty::Sure)));
    let first = format!(
        "
        95-98 client kernel.tcp
        98-100 server queue.socket (user, on the run queue)
        100-102 server kernel.tcp
        102-103 server user
        103-116 server queue.app (user){ASKED_AND_HEARD}150-152 client kernel.tcp
        "
    );
    assert_eq!(began(&p.s, 95), expected(&first));

    let mut p = handed_as_it_ran(B);
    p.answers(1, (2, 30), 147);
    p.parks(153, B);
    assert_eq!(p.parent(119), Some((30, Certainty::Sure)));
    let second = format!(
        "
        105-108 other kernel.tcp
        108-110 server queue.socket (user, on the run queue)
        110-112 server kernel.tcp
        112-113 server user
        113-116 server queue.app (user){ASKED_AND_HEARD}150-152 other kernel.tcp
        "
    );
    assert_eq!(began(&p.s, 105), expected(&second));
}

/// B has read its request earlier. It goes on when A wakes it, as a task does that waited for a connection that A gives
/// back. What it then asks for is its own request, although it does not answer that next, while A answers its own.
#[test]
fn a_task_that_takes_questions_in_asks_for_its_own() {
    let mut p = Pool::new();
    p.takes(1, (2, 30, B), 55);
    p.parks(64, B);
    p.takes(0, (0, 10, A), 95);
    p.wakes(103, B);
    p.parks(104, A);
    p.runs(105, B);
    p.wakes(106, POOLED);
    p.parks(107, B);
    p.asks(0, 110, B);
    p.runs(138, B);
    p.wakes(139, POOLED);
    p.parks(140, B);
    p.wakes(141, A);
    p.runs(142, A);
    p.answers(0, (0, 10), 145);
    p.parks(151, A);
    p.asks(4, 152, B);
    p.runs(181, B);
    p.answers(1, (2, 30), 182);
    p.parks(188, B);
    assert_eq!(p.parent(111), Some((30, Certainty::Sure)));
}

/// The same, but both wake the connection's task before it runs, and B rests before it answers.
#[test]
fn of_several_that_woke_the_connections_task_one_that_takes_questions_in_asks_for_its_own() {
    let mut p = given_back(false);
    p.wakes(152, POOLED);
    p.parks(153, B);
    p.asks(4, 154, B);
    p.runs(182, B);
    p.s.parks(183, 1, 20, B, "await (a descriptor)");
    p.wakes(190, A);
    p.runs(191, A);
    p.answers(0, (0, 10), 192);
    p.parks(198, A);
    p.ready(199, B);
    p.runs(200, B);
    p.answers(1, (2, 30), 201);
    p.parks(207, B);
    assert_eq!(p.parent(155), Some((30, Certainty::Likely)));
}

/// B, which serves another request, has woken the connection's task. Before that task runs, A gives it its request; a
/// channel with room takes this without a wake-up. `sooner`: A's request came before B woke the task, and B then wakes
/// A, too, as a task does that has opened a connection and has got another one meanwhile. Otherwise A's request comes
/// after that.
fn given_while_ready(sooner: bool) -> Pool {
    let mut p = Pool::new();
    if sooner {
        p.takes(0, (0, 10, A), 45);
        p.parks(54, A);
    }
    p.takes(1, (2, 30, B), 55);
    p.wakes(63, POOLED);
    if sooner {
        p.wakes(64, A);
    }
    p.parks(65, B);
    if sooner {
        p.runs(80, A);
    } else {
        p.takes(0, (0, 10, A), 73);
    }
    p.parks(85, A);
    p.asks(0, 90, A);
    p.runs(118, A);
    p.answers(0, (0, 10), 120);
    p.parks(126, A);
    p.ready(130, B);
    p.runs(131, B);
    p.answers(1, (2, 30), 140);
    p.parks(146, B);
    p
}

const GIVEN: &str = "
        85-90 server runqueue.wakeup by server/20
        90-91 server user
        91-93 server kernel.tcp
        93-94 server user
        94-110 server idle.peer
        110-111 server queue.socket (asleep)
        111-112 server runqueue.wakeup by server/20
        112-113 server user
        113-115 server kernel.tcp
        115-116 server user
        116-117 server runqueue.wakeup by server/2147483650
        117-118 server runqueue.wakeup by server/20
        118-120 server user
        120-123 server kernel.tcp
        123-125 client kernel.tcp
";

#[test]
fn what_a_task_is_given_after_another_has_woken_it_waits_for_a_cpu_since_then() {
    let p = given_while_ready(false);
    assert_eq!(p.parent(91).map(|(parent, _)| parent), Some(10));
    let answer = format!(
        "
        73-76 client kernel.tcp
        76-78 server queue.socket (user, on the run queue)
        78-80 server kernel.tcp
        80-85 server user{GIVEN}"
    );
    assert_eq!(began(&p.s, 73), expected(&answer));

    let p = given_while_ready(true);
    assert_eq!(p.parent(91).map(|(parent, _)| parent), Some(10));
    let answer = format!(
        "
        45-48 client kernel.tcp
        48-50 server queue.socket (user, on the run queue)
        50-52 server kernel.tcp
        52-54 server user
        54-64 server lock by server/2147483649
        64-65 server runqueue.wakeup by server/2147483649
        65-80 server runqueue.wakeup by server/20
        80-85 server user{GIVEN}"
    );
    assert_eq!(began(&p.s, 45), expected(&answer));
}
