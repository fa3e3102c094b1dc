//! Servers of several designs, their clients, and which of them are traced.

use rpcprobe::engine::event::{Event, Exec, What};

use super::facts::{Facts, Req, ReqNo};
use super::net::{Set, Way};
use super::steps::{
    reads, Lock, Plan, Step, CLIENT, DONE_EVENT, HANDED, HANDED_EVENT, LOCK, SERVER,
};
use crate::walk::kernel::{Birth, Op, Stage, Until};
use crate::walk::machine::{Machine, Queue, State, Task, LAST_NS};
use crate::walk::programs::Act;
use crate::walk::tape::Tape;
use crate::walk::truth::{TaskNo, Truth, Why};

/// How a server divides its work among threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Design {
    /// One thread polls, and handles one request after the other.
    #[default]
    Loop,
    /// One thread polls, and reads all requests that are there before it answers the first.
    Batch,
    /// A thread for each connection.
    Threads,
    /// Threads that all wait in accept().
    Accepters,
    /// One thread reads, others answer. The hand-over is by a semaphore (`Pool`), or by an eventfd or a condition
    /// variable (`EventPool`).
    Pool,
    EventPool,
    /// One thread accepts, others read and answer.
    Connections,
    /// One thread reads and answers, others do the work in between.
    HandBack,
    /// A thread for each connection reads and answers. Workers do the work in between, one request after the other, and
    /// wake it.
    Workers,
}

const DESIGNS: [Design; 8] = [
    Design::Loop,
    Design::Threads,
    Design::Batch,
    Design::Accepters,
    Design::Pool,
    Design::EventPool,
    Design::Connections,
    Design::HandBack,
];

impl Design {
    fn by_semaphore(self) -> bool {
        matches!(self, Design::Pool | Design::Connections | Design::Workers)
    }

    /// Tells a worker that there is a job.
    pub fn handed(self) -> Act {
        match self.by_semaphore() {
            true => Act::Load(Step::SemaphorePost(HANDED)),
            false => Act::Signal(HANDED_EVENT),
        }
    }

    /// What a worker does repeatedly.
    pub fn worker(self) -> [Act; 2] {
        let wait = match self.by_semaphore() {
            true => Act::Load(Step::SemaphoreWait { number: HANDED, is_lock: false }),
            false => Act::Await(HANDED_EVENT),
        };
        [wait, Act::Load(Step::Take)]
    }

    fn has_workers(self) -> bool {
        use Design::*;
        matches!(self, Pool | EventPool | Connections | HandBack | Workers)
    }

    fn polls(self) -> bool {
        use Design::*;
        matches!(self, Loop | Batch | Pool | EventPool | HandBack)
    }
}

/// What requests of a server wait for, besides their turn, locks and the answers that its threads wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Waits {
    Nothing,
    Timers,
    /// Answers to what an event loop has asked another server; the loop goes on meanwhile.
    Answers,
    /// Their turn in a worker's queue.
    Workers,
}

impl Waits {
    pub const ALL: [Waits; 4] = [Waits::Nothing, Waits::Timers, Waits::Answers, Waits::Workers];
}

/// A simulated trace of a server under load: its events in order of time, and what really happened.
pub struct Trace {
    pub cpus: u32,
    pub events: Vec<Event>,
    pub truth: Truth,
    pub facts: Facts,
    /// By connection.
    pub ways: Vec<Way>,
    pub design: Design,
    /// Whether clients and servers are traced.
    pub traced: [bool; 2],
}

/// The listeners of the front server and of the server behind it.
pub const FRONT: usize = 0;
const BEHIND: usize = 1;

/// Runs the machine that a tape describes.
pub fn simulate(numbers: Vec<u16>, waits: Waits) -> Trace {
    let mut m = Machine::new(Tape::new(numbers));
    let traced = m.set_up_load(waits);
    m.run_load();
    let facts = std::mem::take(&mut m.net.facts);
    let design = m.net.plan.design;
    let cpus = m.cpus.len() as u32;
    let ways = m.net.conns.iter().map(|conn| conn.way).collect();
    let (events, truth) = (m.events, m.truth);
    Trace { cpus, events, truth, facts, ways, design, traced }
}

impl Machine {
    /// Runs until all clients are gone and the remaining tasks wait, or until a while has passed.
    fn run_load(&mut self) {
        const REST_NS: u64 = 300;
        let mut over_ns = None;
        loop {
            for cpu in 0..self.cpus.len() {
                self.serve_cpu(cpu);
            }
            let clients = &self.net.plan.clients;
            let is_dead = |task: &TaskNo| self.tasks[*task].state == State::Dead;
            let begun = clients.len() == self.net.plan.all_clients;
            if over_ns.is_none() && begun && clients.iter().all(is_dead) {
                over_ns = Some(self.now_ns + REST_NS);
            }
            if over_ns.is_some_and(|over_ns| self.now_ns >= over_ns || self.next_ns().is_none()) {
                return;
            }
            self.advance();
            if self.now_ns > LAST_NS {
                self.deadlock();
            }
        }
    }

    /// Makes the choices and adds the initial tasks. Returns whether clients and servers are traced.
    fn set_up_load(&mut self, waits: Waits) -> [bool; 2] {
        let cpus = self.tape.length(4) as usize;
        self.cpus = vec![0; cpus];
        self.truth.cpus = vec![Vec::new(); cpus];
        self.eventfds = vec![0; 2];
        self.events_moved = vec![(0, 0); 2];
        self.events_counted = vec![(0, 0); 2];
        self.net.semaphores = vec![0; 2];
        self.net.semaphores[LOCK] = 1;
        self.net.backlogs = vec![Default::default(); 2];
        self.net.facts.number_of(&[], false);
        let plan = &mut self.net.plan;
        plan.design = DESIGNS[self.tape.pick(8) as usize];
        plan.asks_behind = self.tape.once_in(4);
        plan.behind_alone = self.tape.once_in(3);
        plan.lock = [None, Some(Lock::Mutex), Some(Lock::Semaphore)][self.tape.pick(3) as usize];
        self.plan.by_condition = plan.design == Design::EventPool && self.tape.once_in(2);
        self.plan.descriptors = [5, 6];
        match waits {
            Waits::Nothing => {}
            Waits::Timers => self.set_up_timers(),
            Waits::Answers => {
                let plan = &mut self.net.plan;
                plan.design = [Design::Loop, Design::Batch][self.tape.pick(2) as usize];
                (plan.asks_behind, plan.goes_on) = (true, true);
            }
            Waits::Workers => self.net.plan.design = Design::Workers,
        }
        let traced = [[true, true], [true, true], [false, true], [true, false]];
        let traced = traced[self.tape.pick(4) as usize];

        let mut servers = vec![("server", self.server_acts())];
        if self.net.plan.asks_behind {
            let set = self.new_set(Some(BEHIND), None);
            let acts = vec![Act::Load(Step::Poll(set)), Act::Load(Step::Dispatch(set))];
            servers.insert(0, ("behind", acts));
        }
        let clients = self.client_programs();
        let shell = self.add(Task { cpu: 0, ..Task::new(100, 100, "sh") });
        self.tasks[shell].state = State::On(0);
        self.cpus[0] = shell;
        let programs = (servers.into_iter().map(|(comm, acts)| (comm, acts, traced[1])))
            .chain(clients.into_iter().map(|acts| ("client", acts, traced[0])));
        for (number, (comm, acts, traced)) in programs.enumerate() {
            if traced {
                let birth = Birth { thread: false, comm, acts: acts.into() };
                self.tasks[shell].acts.push_back(Act::Fork(birth, false));
            } else {
                self.add_untraced(50 + number as u32, comm, acts);
            }
        }
        self.tasks[shell].acts.extend([Act::Wait, Act::Exit]);
        if self.tape.once_in(2) {
            self.add_untraced(40, "noise", vec![Act::Noise]);
        }
        for task in 1..self.tasks.len() {
            let (tid, comm) = (self.tasks[task].tid, self.tasks[task].comm.as_str().into());
            self.emit(0, What::Task { tid, tgid: tid, kthread: false, comm });
        }
        let exec = Exec {
            tid: 100,
            old_tid: 100,
            traced: true,
            entry: 0,
            interp_base: 0,
            comm: "sh".into(),
            path: None,
        };
        self.emit(0, What::Exec(Box::new(exec)));
        traced
    }

    /// Adds an untraced task, which begins after a while.
    fn add_untraced(&mut self, tid: u32, comm: &str, acts: Vec<Act>) {
        let task = self.add(Task { traced: false, ..Task::new(tid, tid, comm) });
        let token = self.token();
        self.tasks[task].ops = [Op::Wait(Until::Token(token), Why::Timer, Stage::Begin)].into();
        self.tasks[task].acts = acts.into();
        self.waiters.insert(Queue::Token(token), vec![task]);
        self.later(token, None);
        self.net.plan.born(task, comm);
    }

    fn new_set(&mut self, listener: Option<usize>, event: Option<usize>) -> usize {
        self.net.sets.push(Set { listener, links: Vec::new(), event });
        self.net.sets.len() - 1
    }

    // ---- clients ------------------------------------------------------------------------------

    fn client_programs(&mut self) -> Vec<Vec<Act>> {
        let way = [Way::Unix, Way::Loopback, Way::Devices][self.tape.pick(3) as usize];
        let count = self.tape.length(4) as usize;
        self.net.plan.all_clients = count;
        (0..count).map(|_| self.client_acts(way)).collect()
    }

    fn client_acts(&mut self, way: Way) -> Vec<Act> {
        let rounds = self.tape.length(3);
        let design = self.net.plan.design;
        let mut acts = self.chores();
        match self.tape.pick(4) {
            // Several connections at once, to a server that does not wait for one of them to end.
            3 if design.polls() || matches!(design, Design::Threads | Design::Workers) => {
                acts.extend(self.rounds_at_once(way, rounds.max(2)));
            }
            // A second thread.
            2 => {
                let mut others = self.rounds(way, rounds);
                others.push(Act::Exit);
                let birth = Birth { thread: true, comm: "client", acts: others.into() };
                acts.push(Act::Spawn(birth));
                acts.extend(self.rounds(way, rounds));
                acts.push(Act::Join);
            }
            _ => acts.extend(self.rounds(way, rounds)),
        }
        acts.push(Act::Exit);
        acts
    }

    fn new_conn(&mut self, way: Way, listener: usize) -> usize {
        let capacity = if self.tape.once_in(6) { 8 } else { 64 };
        self.net.new_conn(way, listener, capacity)
    }

    fn sizes(&mut self) -> (u64, u64) {
        (self.tape.length(12), self.tape.length(12))
    }

    /// Requests one after the other, each on its own connection or all on one.
    fn rounds(&mut self, way: Way, rounds: u64) -> Vec<Act> {
        let alone = rounds == 1 || self.tape.once_in(2);
        let mut acts = Vec::new();
        let mut conn = None;
        for _ in 0..rounds {
            let on = match conn.filter(|_| !alone) {
                Some(conn) => conn,
                None => self.new_conn(way, FRONT),
            };
            if conn.is_none() && !alone {
                acts.push(Act::Load(Step::Connect(on, None)));
            }
            conn = Some(on);
            let sizes = self.sizes();
            acts.push(Act::Load(Step::Ask(self.new_req(on, None, sizes, alone))));
            acts.extend(self.chores());
        }
        if let Some(conn) = conn.filter(|_| !alone) {
            acts.push(Act::Load(Step::Close { conn, end: CLIENT, req: None }));
        }
        acts
    }

    fn rounds_at_once(&mut self, way: Way, rounds: u64) -> Vec<Act> {
        // Large enough for all bytes: a client that writes on one connection does not read from the other.
        let conns = [0, 1].map(|_| self.net.new_conn(way, FRONT, 64));
        let set = self.new_set(None, None);
        self.net.sets[set].links = conns.map(|conn| reads(conn, CLIENT)).to_vec();
        let mut acts: Vec<Act> = conns.map(|conn| Act::Load(Step::Connect(conn, None))).to_vec();
        for _ in 0..rounds {
            let reqs = conns.map(|conn| {
                let sizes = self.sizes();
                self.new_req(conn, None, sizes, false)
            });
            acts.push(Act::Load(Step::AskAll { set, reqs: reqs.to_vec() }));
            acts.extend(self.chores());
        }
        acts.extend(conns.map(|conn| Act::Load(Step::Close { conn, end: CLIENT, req: None })));
        acts
    }

    // ---- servers ------------------------------------------------------------------------------

    fn server_acts(&mut self) -> Vec<Act> {
        let design = self.net.plan.design;
        let mut acts = Vec::new();
        let helpers = self.tape.length(3);
        let helper =
            |acts: Vec<Act>| Act::Spawn(Birth { thread: true, comm: "worker", acts: acts.into() });
        if design.has_workers() {
            acts.extend((0..helpers).map(|_| helper(design.worker().to_vec())));
        }
        if design == Design::Accepters {
            let accepts = || vec![Act::Load(Step::AcceptAll(FRONT))];
            acts.extend((0..helpers).map(|_| helper(accepts())));
        }
        if design.polls() {
            let event = (design == Design::HandBack).then_some(DONE_EVENT);
            let set = self.new_set(Some(FRONT), event);
            acts.extend([Act::Load(Step::Poll(set)), Act::Load(Step::Dispatch(set))]);
        } else {
            acts.push(Act::Load(Step::AcceptAll(FRONT)));
        }
        acts
    }

    pub fn is_behind(&self, conn: usize) -> bool {
        self.net.conns[conn].listener == BEHIND
    }

    /// What a server does with a connection it has accepted.
    pub fn accepted(&mut self, conn: usize) -> Vec<Act> {
        let design = self.net.plan.design;
        if self.is_behind(conn) || design.polls() {
            let listener = Some(self.net.conns[conn].listener);
            let sets = self.net.sets.iter_mut();
            let mut own = sets.filter(|set| set.listener == listener);
            own.next().expect("its own").links.push(reads(conn, SERVER));
            return Vec::new();
        }
        match design {
            Design::Threads | Design::Workers => vec![Act::Spawn(Machine::connection_thread(conn))],
            Design::Connections => vec![Act::Load(Step::HandConnection(conn))],
            _ => vec![Act::Load(Step::Receive { conn, end: SERVER, whole: true })],
        }
    }

    /// What a server does with a connection that its client has closed.
    pub fn ended(&mut self, conn: usize, end: usize) -> Vec<Act> {
        for set in &mut self.net.sets {
            set.links.retain(|link| *link != reads(conn, end));
        }
        vec![Act::Load(Step::For(Vec::new())), Act::Load(Step::Close { conn, end, req: None })]
    }

    /// What a server does with a message that it has read whole; `again`: it then reads on.
    pub fn taken_up(&mut self, no: TaskNo, req: ReqNo, again: Option<Act>) -> Vec<Act> {
        let conn = self.net.facts.reqs[req].conn;
        let serve = vec![Act::Load(Step::Serve(req))];
        if self.is_behind(conn) {
            return serve;
        }
        match self.net.plan.design {
            Design::Batch => {
                self.local(no).batch.push(req);
                vec![Act::Load(Step::Between)]
            }
            Design::Pool | Design::EventPool | Design::HandBack => {
                let mut acts = self.computes();
                let then = self.then_by_loop(req, Step::Hand(req));
                acts.push(Act::Load(then));
                acts
            }
            Design::Workers => {
                let mut acts = self.computes();
                let number = self.net.done_by(conn);
                let steps = [
                    Step::Hand(req),
                    Step::For(vec![req]),
                    Step::SemaphoreWait { number, is_lock: false },
                    Step::Answer(req),
                ];
                acts.extend(steps.map(Act::Load));
                acts.into_iter().chain(again).collect()
            }
            _ => serve.into_iter().chain(again).collect(),
        }
    }

    pub fn serve(&mut self, req: ReqNo) -> Vec<Act> {
        let mut acts = self.work(req);
        let goes_on = self.net.plan.goes_on && !self.is_behind(self.net.facts.reqs[req].conn);
        let then = match self.net.plan.design {
            _ if goes_on && !self.tape.once_in(4) => Step::AskOn(req),
            Design::Loop | Design::Batch => self.then_by_loop(req, Step::Answer(req)),
            _ => {
                acts.extend(self.sleeps());
                Step::Answer(req)
            }
        };
        acts.push(Act::Load(then));
        acts
    }

    /// All that a server does for a request, except reading and answering it.
    pub fn work(&mut self, req: ReqNo) -> Vec<Act> {
        let mut acts = self.chores();
        if self.is_behind(self.net.facts.reqs[req].conn) {
            return acts;
        }
        let Plan { asks_behind, goes_on, .. } = self.net.plan;
        if asks_behind && !goes_on && !self.tape.once_in(3) {
            acts.push(Act::Load(Step::AskBehind(req)));
        }
        let held = if self.tape.once_in(3) { Act::Nap } else { Act::Compute };
        match self.net.plan.lock {
            Some(Lock::Mutex) => acts.extend([Act::Lock(LOCK), held, Act::Unlock(LOCK)]),
            Some(Lock::Semaphore) => acts.extend([
                Act::Load(Step::SemaphoreWait { number: LOCK, is_lock: true }),
                held,
                Act::Load(Step::SemaphorePost(LOCK)),
            ]),
            None => {}
        }
        acts.extend(self.computes());
        acts
    }

    pub fn ask_behind(&mut self, no: TaskNo, req: ReqNo) {
        let alone = self.net.plan.behind_alone;
        let known = self.local(no).behind.filter(|_| !alone);
        let conn = match known {
            Some(conn) => conn,
            None => self.new_conn(Way::Loopback, BEHIND),
        };
        let mut steps = Vec::new();
        if known.is_none() && !alone {
            self.local(no).behind = Some(conn);
            steps.push(Step::Connect(conn, None));
        }
        let sizes = self.sizes();
        steps.push(Step::Ask(self.new_req(conn, Some(req), sizes, alone)));
        self.load_acts(no, steps);
    }

    /// An event loop sends a request to the server behind on behalf of `req`, on a connection where it waits for no
    /// answer, and polls for the answer together with everything else.
    pub fn ask_on(&mut self, no: TaskNo, req: ReqNo) {
        let idle = self.net.plan.idle.pop();
        let conn = idle.unwrap_or_else(|| self.net.new_conn(Way::Loopback, BEHIND, 64));
        let sizes = self.sizes();
        let child = self.new_req(conn, Some(req), sizes, false);
        let mut steps = vec![Step::For(vec![child])];
        if idle.is_none() {
            let mut sets = self.net.sets.iter_mut();
            let own = sets.find(|set| set.listener == Some(FRONT)).expect("it polls");
            own.links.push(reads(conn, CLIENT));
            steps.push(Step::Connect(conn, None));
        }
        steps.extend(self.send_steps(child, CLIENT));
        steps.push(Step::For(Vec::new()));
        self.load_acts(no, steps);
    }

    /// What an event loop does with the answer of the server behind.
    pub fn answered(&mut self, child: ReqNo) -> Vec<Act> {
        let Req { conn, parent, .. } = self.net.facts.reqs[child];
        let Some(req) = parent.filter(|_| self.net.plan.goes_on) else { return Vec::new() };
        self.net.plan.idle.push(conn);
        let mut acts = vec![Act::Load(Step::For(vec![req]))];
        acts.extend(self.computes());
        acts.push(Act::Load(Step::Answer(req)));
        acts
    }

    /// Sometimes a computation.
    pub fn computes(&mut self) -> Vec<Act> {
        if self.tape.once_in(2) {
            vec![Act::Compute]
        } else {
            Vec::new()
        }
    }

    /// Zero to two things that take time and do not wait for other tasks.
    fn chores(&mut self) -> Vec<Act> {
        let count = self.tape.pick(3);
        let mut chores = Vec::new();
        for _ in 0..count {
            chores.push(match self.tape.pick(6) {
                0 | 1 => Act::Compute,
                2 => Act::Something,
                3 => Act::Nap,
                4 => Act::Yield,
                _ => Act::Compute,
            });
        }
        chores
    }
}
