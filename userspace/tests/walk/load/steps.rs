//! What the programs of a machine under load do, step by step: most steps are one system call.

use std::collections::{BTreeMap, VecDeque};

use rpcprobe::engine::event::Object;
use rpcprobe::model::Category;

use super::facts::{LinkNo, Message, Req, ReqNo};
use super::net::{category, on_socket, Net, NetMoved, NetOp, NetUntil};
use super::programs::Design;
use super::timers::Timers;
use crate::walk::kernel::{Moved, Op, Stage, Sys, Until};
use crate::walk::machine::Machine;
use crate::walk::programs::{wakes, Act};
use crate::walk::story::{condition, socket, ACCEPT, CLOSE, CONNECT, FUTEX, RECVFROM, SENDTO};
use crate::walk::truth::{TaskNo, Why};

/// The end of a connection that sends requests, and the end that answers.
pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

#[derive(Clone, Debug)]
pub enum Step {
    /// Opens a connection, for this request alone or for all that follow.
    Connect(usize, Option<ReqNo>),
    Close {
        conn: usize,
        end: usize,
        req: Option<ReqNo>,
    },
    /// `last`: whether this is the last part of the message.
    Send {
        conn: usize,
        end: usize,
        bytes: u64,
        req: ReqNo,
        last: bool,
    },
    /// Reads what is there; if `whole`, goes on until a message is whole.
    Receive {
        conn: usize,
        end: usize,
        whole: bool,
    },
    Accept(usize),
    /// Accepts forever, and does with each connection what the server does.
    AcceptAll(usize),
    Poll(usize),
    /// Looks at what a poll has found ready, and handles it.
    Dispatch(usize),
    SemaphoreWait {
        number: usize,
        is_lock: bool,
    },
    SemaphorePost(usize),
    /// From now on the thread works for these requests.
    For(Vec<ReqNo>),
    /// From now on the thread works for what it did before it turned to a request: see [`Local::between`].
    Between,
    /// The client asks, and waits for the answer.
    Ask(ReqNo),
    /// The client sends several requests at once, each on its own connection, and reads the answers as they come.
    AskAll {
        set: usize,
        reqs: Vec<ReqNo>,
    },
    Gather {
        set: usize,
        reqs: Vec<ReqNo>,
    },
    /// The server works on a request it has, and answers it or hands it on.
    Serve(ReqNo),
    Answer(ReqNo),
    /// Serves the requests that the thread has read in one go.
    ServeBatch,
    /// Work is put where other threads take it from.
    Hand(ReqNo),
    HandConnection(usize),
    Take,
    Done(ReqNo),
    AnswerDone,
    /// Sends a request to another server on behalf of a request.
    AskBehind(ReqNo),
    /// As `AskBehind`, but the thread goes on with other requests until the answer comes.
    AskOn(ReqNo),
    /// Goes on with a request after a while, with this step.
    Delay(ReqNo, Box<Step>),
    Resume(ReqNo),
    /// Releases the lock that the request held meanwhile.
    LetGo(ReqNo),
    Sleep,
}

/// What follows a call.
#[derive(Clone, Debug)]
pub enum After {
    Received { conn: usize, end: usize, whole: bool },
    Accepted,
    Polled(usize),
    Answered(ReqNo),
    Ended(ReqNo),
}

/// Work that one thread leaves to another.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    Message(ReqNo),
    Connection(usize),
}

/// What programs know of each other, in memory.
#[derive(Default)]
pub struct Plan {
    pub design: Design,
    pub jobs: VecDeque<Job>,
    pub done: VecDeque<ReqNo>,
    /// Requests by connection, in order.
    pub on: Vec<Vec<ReqNo>>,
    pub threads: BTreeMap<TaskNo, Local>,
    /// The main threads of clients that have begun, and how many there will be.
    pub clients: Vec<TaskNo>,
    pub all_clients: usize,
    pub asks_behind: bool,
    pub behind_alone: bool,
    /// Whether an event loop goes on while it waits for the server behind; and its connections to that server on which
    /// no answer is due.
    pub goes_on: bool,
    pub idle: Vec<usize>,
    pub lock: Option<Lock>,
    pub timers: Timers,
}

impl Plan {
    /// Notes that a process has begun.
    pub fn born(&mut self, task: TaskNo, comm: &str) {
        if comm == "client" {
            self.clients.push(task);
        }
    }
}

/// What one thread knows.
#[derive(Default)]
pub struct Local {
    /// What it works for between requests: an index into `Facts::whose`.
    pub between: u32,
    /// The requests that it has read in one go.
    pub batch: Vec<ReqNo>,
    /// Its connection to the server behind.
    pub behind: Option<usize>,
    /// Whether its wait has a timeout; whether something was ready when the wait ended; whether a timer is due for it.
    pub timed: bool,
    pub found: bool,
    pub for_timer: bool,
}

/// What the lock of a server's threads is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lock {
    Mutex,
    Semaphore,
}

/// `HANDED` is the semaphore by which work is handed on, `HANDED_EVENT` the eventfd or condition variable for the same;
/// `LOCK` is the mutex or semaphore used as a lock.
pub const HANDED: usize = 1;
pub const LOCK: usize = 0;
/// From this semaphore on, one for each connection: its request has been worked on.
const FIRST_DONE: usize = 2;
pub const HANDED_EVENT: usize = 0;
pub const DONE_EVENT: usize = 1;
/// Addresses of semaphores.
const SEMAPHORES: u64 = 0x9000;

impl Net {
    /// The semaphore by which a connection's thread is told that a worker is done.
    pub fn done_by(&mut self, conn: usize) -> usize {
        let number = FIRST_DONE + conn;
        self.semaphores.resize(self.semaphores.len().max(number + 1), 0);
        number
    }
}

/// The link that this end of a connection reads.
pub fn reads(conn: usize, end: usize) -> LinkNo {
    2 * conn + (1 - end)
}

/// The end that reads a link.
pub fn reader(link: LinkNo) -> usize {
    1 - link % 2
}

fn writes(conn: usize, end: usize) -> LinkNo {
    2 * conn + end
}

fn listening(listener: usize, like: Object) -> Object {
    socket(200 + listener as u64, like.type_bits)
}

impl Machine {
    pub fn label(&mut self, of: &[ReqNo], loose: bool) -> Op {
        Op::Net(NetOp::Label(self.net.facts.number_of(of, loose)))
    }

    pub fn local(&mut self, no: TaskNo) -> &mut Local {
        self.net.plan.threads.entry(no).or_default()
    }

    pub fn load_acts(&mut self, no: TaskNo, steps: Vec<Step>) {
        for step in steps.into_iter().rev() {
            self.tasks[no].acts.push_front(Act::Load(step));
        }
    }

    pub fn any_acts(&mut self, no: TaskNo, acts: Vec<Act>) {
        for act in acts.into_iter().rev() {
            self.tasks[no].acts.push_front(act);
        }
    }

    /// Adds a request to a connection, with this many bytes each way.
    pub fn new_req(
        &mut self,
        conn: usize,
        parent: Option<ReqNo>,
        (asked, answer): (u64, u64),
        alone: bool,
    ) -> ReqNo {
        let net = &mut self.net;
        let before = net.plan.on.get(conn).and_then(|reqs| reqs.last()).copied();
        let first = |link: LinkNo| match before {
            Some(before) if link.is_multiple_of(2) => net.facts.reqs[before].asked.to,
            Some(before) => net.facts.reqs[before].answer.to,
            None => net.pipes[link].put,
        };
        let message = |link: LinkNo, bytes: u64| {
            let from = first(link);
            Message { link, from, to: from + bytes }
        };
        let req = Req {
            conn,
            parent,
            asked: message(2 * conn, asked),
            answer: message(2 * conn + 1, answer),
            alone,
            client: 0,
            server_tgid: 0,
            start_ns: None,
            end_ns: None,
            received_ns: None,
            answered_ns: None,
        };
        net.facts.reqs.push(req);
        let req = net.facts.reqs.len() - 1;
        if net.plan.on.len() <= conn {
            net.plan.on.resize(conn + 1, Vec::new());
        }
        net.plan.on[conn].push(req);
        req
    }

    /// The request that the next bytes of a connection belong to.
    pub fn req_on(&self, conn: usize) -> Option<ReqNo> {
        let reqs = self.net.plan.on.get(conn)?;
        let facts = &self.net.facts;
        reqs.iter().copied().find(|req| facts.reqs[*req].end_ns.is_none())
    }

    pub fn load_ops(&mut self, no: TaskNo, step: Step) -> Vec<Op> {
        match step {
            Step::Connect(conn, req) => {
                let mut does = vec![Op::Net(NetOp::Connect(conn)), Op::Run(1)];
                if self.net.conns[conn].way != super::net::Way::Unix {
                    use crate::walk::truth::Doing::Softirq;
                    does.splice(0..0, [Op::Push(Softirq), Op::Run(1)]);
                    does.extend([Op::Pop(3), Op::Run(1)]);
                }
                let sys = on_socket(&self.net, CONNECT, conn, CLIENT);
                let mut ops = self.call(sys, does, Moved::Net(NetMoved::Opened(conn)));
                ops.splice(2..2, req.map(|req| Op::Net(NetOp::Begins(req))));
                ops
            }
            Step::Close { conn, end, req } => {
                let does = vec![Op::Net(NetOp::Close { conn, end }), Op::Run(1)];
                let sys = on_socket(&self.net, CLOSE, conn, end);
                let mut ops = self.call(sys, does, Moved::Net(NetMoved::Closed { conn, end }));
                let ended = req.map(|req| Op::Net(NetOp::After(After::Ended(req))));
                insert_after_leave(&mut ops, ended);
                ops
            }
            Step::Send { conn, end, bytes, req, last } => {
                let link = writes(conn, end);
                let does = vec![Op::Net(NetOp::Put { link, left: bytes })];
                let sys = on_socket(&self.net, SENDTO, conn, end);
                let moved = NetMoved::Stream { link, end };
                let mut ops = self.call(sys, does, Moved::Net(moved));
                if end == CLIENT {
                    ops.insert(2, Op::Net(NetOp::Begins(req)));
                } else {
                    let answered = Op::Net(NetOp::After(After::Answered(req)));
                    let rests = last.then_some(Op::Net(NetOp::Label(0)));
                    insert_after_leave(&mut ops, [answered].into_iter().chain(rests));
                }
                ops
            }
            Step::Receive { conn, end, whole } => {
                let link = reads(conn, end);
                let until = Until::Net(NetUntil::Bytes(link));
                let wait = Op::Wait(until, Why::Pipe, Stage::Begin);
                let does = vec![wait, Op::Net(NetOp::Take { link })];
                let sys = on_socket(&self.net, RECVFROM, conn, end);
                let moved = Moved::Net(NetMoved::Stream { link, end });
                let mut ops = self.call(sys, does, moved);
                let received = Op::Net(NetOp::After(After::Received { conn, end, whole }));
                insert_before_leave(&mut ops, received);
                ops
            }
            Step::Accept(listener) => {
                let until = Until::Net(NetUntil::Backlog(listener));
                let wait = Op::Wait(until, Why::Pipe, Stage::Begin);
                let does = vec![wait, Op::Net(NetOp::Accept(listener))];
                let on = self.net.conns.iter().find(|conn| conn.listener == listener);
                let like = on.or(self.net.conns.first()).expect("a client").sockets[0];
                let object = Some((listening(listener, like), 3));
                let sys = Sys { nr: ACCEPT, object, category: category(like) };
                let mut ops = self.call(sys, does, Moved::Net(NetMoved::Accepted));
                insert_before_leave(&mut ops, Op::Net(NetOp::After(After::Accepted)));
                ops
            }
            Step::Poll(set) => {
                let mut ops = self.timed_poll(no, set);
                insert_before_leave(&mut ops, Op::Net(NetOp::After(After::Polled(set))));
                ops
            }
            Step::SemaphoreWait { number, is_lock } => self.semaphore_wait(no, number, is_lock),
            Step::SemaphorePost(number) => self.semaphore_post(number),
            Step::Sleep => self.sleep_ops(no),
            Step::For(reqs) => vec![self.label(&reqs, false)],
            Step::Between => {
                let between = self.local(no).between;
                vec![Op::Net(NetOp::Label(between))]
            }
            composite => {
                self.compose(no, composite);
                Vec::new()
            }
        }
    }

    fn semaphore_wait(&mut self, no: TaskNo, number: usize, is_lock: bool) -> Vec<Op> {
        self.local(no).for_timer = false;
        if self.net.semaphores[number] > 0 {
            self.net.semaphores[number] -= 1;
            return vec![self.run(2)];
        }
        let word = condition(SEMAPHORES + 16 * number as u64);
        let sys = Sys { nr: FUTEX, object: Some((word, 0)), category: Category::KernelFutex };
        let mut ops = match is_lock {
            true => {
                let until = Until::Net(NetUntil::Semaphore(number));
                let wait = Op::Wait(until, Why::SemaphoreLock, Stage::Begin);
                self.call(sys, vec![wait], Moved::Nothing(0))
            }
            false => match self.wait_for_work(no, sys, number) {
                Some(ops) => ops,
                None => return vec![self.run(2)],
            },
        };
        ops.push(Op::Then(Act::Load(Step::SemaphoreWait { number, is_lock })));
        ops
    }

    fn semaphore_post(&mut self, number: usize) -> Vec<Op> {
        use crate::walk::machine::Queue;
        self.net.semaphores[number] += 1;
        let queue = Queue::Net(NetUntil::Semaphore(number));
        if self.waiters.get(&queue).is_none_or(Vec::is_empty) {
            return vec![self.run(2)];
        }
        let does = vec![Op::WakeOne(queue), Op::Run(1), Op::Resched];
        self.call(wakes(SEMAPHORES + 16 * number as u64), does, Moved::Nothing(1))
    }

    /// Expands steps that consist of others.
    fn compose(&mut self, no: TaskNo, step: Step) {
        match step {
            Step::Ask(req) => self.ask_steps(no, req),
            Step::AskAll { set, reqs } => {
                let mut steps = Vec::new();
                for &req in &reqs {
                    steps.push(Step::For(vec![req]));
                    steps.extend(self.send_steps(req, CLIENT));
                }
                steps.extend([Step::Between, Step::Gather { set, reqs }]);
                self.load_acts(no, steps);
            }
            Step::Gather { set, reqs } => {
                let open: Vec<_> = (reqs.iter().copied())
                    .filter(|req| self.net.facts.reqs[*req].end_ns.is_none())
                    .collect();
                let mut steps = vec![Step::For(Vec::new())];
                if !open.is_empty() {
                    self.tasks[no].whose = self.net.facts.number_of(&open, true);
                    steps = vec![Step::Poll(set), Step::Dispatch(set), Step::Gather { set, reqs }];
                }
                self.load_acts(no, steps);
            }
            Step::Dispatch(set) => self.dispatch(no, set),
            Step::Serve(req) => {
                let acts = self.serve(req);
                self.any_acts(no, acts);
            }
            Step::Answer(req) => {
                let mut steps = self.send_steps(req, SERVER);
                steps.push(Step::For(Vec::new()));
                self.load_acts(no, steps);
            }
            Step::ServeBatch => self.serve_batch(no),
            Step::Hand(req) => {
                self.net.plan.jobs.push_back(Job::Message(req));
                let tell = self.net.plan.design.handed();
                self.any_acts(no, vec![tell, Act::Load(Step::Between)]);
            }
            Step::HandConnection(conn) => {
                self.net.plan.jobs.push_back(Job::Connection(conn));
                let tell = self.net.plan.design.handed();
                self.any_acts(no, vec![tell, Act::Load(Step::Between)]);
            }
            Step::AcceptAll(listener) => {
                let again = Step::AcceptAll(listener);
                self.load_acts(no, vec![Step::Accept(listener), Step::For(Vec::new()), again]);
            }
            Step::Take => self.take_job(no),
            Step::Done(req) => {
                self.net.plan.done.push_back(req);
                let between = Act::Load(Step::For(Vec::new()));
                self.any_acts(no, vec![Act::Signal(DONE_EVENT), between]);
            }
            Step::AnswerDone => {
                let req = self.net.plan.done.pop_front().expect("told of");
                let then = self.then_by_loop(req, Step::Answer(req));
                self.load_acts(no, vec![Step::For(vec![req]), then]);
            }
            Step::AskBehind(req) => self.ask_behind(no, req),
            Step::AskOn(req) => self.ask_on(no, req),
            Step::Delay(req, then) => self.delay(no, req, *then),
            Step::Resume(req) => self.resume(req),
            Step::LetGo(req) => self.let_go(no, req),
            step => unreachable!("{step:?} is a single step"),
        }
    }

    fn ask_steps(&mut self, no: TaskNo, req: ReqNo) {
        let Req { conn, alone, parent, .. } = self.net.facts.reqs[req];
        let mut acts = vec![Act::Load(Step::For(vec![req]))];
        if alone {
            acts.push(Act::Load(Step::Connect(conn, Some(req))));
        }
        acts.extend(self.send_steps(req, CLIENT).into_iter().map(Act::Load));
        acts.extend(self.computes());
        acts.push(Act::Load(Step::Receive { conn, end: CLIENT, whole: true }));
        if alone {
            acts.push(Act::Load(Step::Close { conn, end: CLIENT, req: Some(req) }));
        }
        acts.push(Act::Load(Step::For(parent.into_iter().collect())));
        self.any_acts(no, acts);
    }

    /// The calls that send a message, in one or two parts.
    pub fn send_steps(&mut self, req: ReqNo, end: usize) -> Vec<Step> {
        let Req { conn, asked, answer, .. } = self.net.facts.reqs[req];
        let message = if end == CLIENT { asked } else { answer };
        let bytes = message.to - message.from;
        let first = if self.tape.once_in(4) { bytes.div_ceil(2) } else { bytes };
        let parts = [first, bytes - first];
        let sends = parts.into_iter().filter(|bytes| *bytes > 0).enumerate();
        let last = usize::from(first < bytes);
        sends.map(|(at, bytes)| Step::Send { conn, end, bytes, req, last: at == last }).collect()
    }
}

fn leave_of(ops: &[Op]) -> usize {
    ops.iter().position(|op| matches!(op, Op::Leave(_))).expect("a call")
}

/// Inserts an operation in the instant before the call returns.
fn insert_before_leave(ops: &mut Vec<Op>, op: Op) {
    let at = leave_of(ops);
    ops.insert(at, op);
}

fn insert_after_leave(ops: &mut Vec<Op>, more: impl IntoIterator<Item = Op>) {
    let at = leave_of(ops) + 1;
    ops.splice(at..at, more);
}
