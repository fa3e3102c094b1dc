//! What the simulated programs do: a client and a server joined by two pipes, their helpers,
//! children and competitors.

mod acts;

use std::collections::VecDeque;

use rpcprobe::engine::event::{Event, Exec, Object, What};
use rpcprobe::model::Category;

use super::kernel::{Birth, Moved, Op, Stage, Sys, Until};
use super::load::steps::Step;
use super::machine::{eventfd_object, pipe_object, Machine, Pipe, Queue, State, Task};
use super::story::{
    condition, mutex, CLONE, EXECVE, EXIT_GROUP, FUTEX, MUTEX_LOCKED, NANOSLEEP, POLL, READ, WAIT4,
    WRITE,
};
use super::tape::Tape;
use super::truth::{TaskNo, Truth, Why};

/// Pipes from client to server and from server to client.
const ASK: usize = 0;
const ANSWER: usize = 1;
/// Pipes between the threads of the server.
const TO_HELPER: usize = 2;
const FROM_HELPER: usize = 3;
/// The eventfd that says that the client's reader has an answer.
const HAVE_ANSWER: usize = 2;

const CLIENT_LOCK: usize = 0;
const SERVER_LOCK: usize = 1;
/// Held briefly, now and then, by all threads of a process.
const BUSY_LOCK: usize = 2;

/// One thing a program does; most are one system call.
#[derive(Clone, Debug)]
pub enum Act {
    Compute,
    /// A short system call, or a longer one, that does not concern other tasks.
    Something,
    Nap,
    Yield,
    Sync,
    Lock(usize),
    Unlock(usize),
    Write {
        pipe: usize,
        bytes: u64,
        trip: Option<usize>,
    },
    /// Reads until all bytes have come.
    Read {
        pipe: usize,
        left: u64,
        trip: Option<usize>,
    },
    Poll(usize),
    Signal(usize),
    Await(usize),
    Close(usize),
    Spawn(Birth),
    Fork(Birth, bool),
    Exec(&'static str),
    /// `Wait` waits for a child, `Join` for the end of all other threads.
    Wait,
    Join,
    Exit,
    /// The next request: sends it and reads the answer.
    Ask,
    /// Sends it, and waits until another thread has read the answer.
    AskOnly,
    ReadAnswer(usize),
    /// Reads a request and answers it, as the server's plan says.
    Serve,
    /// As `Serve`, by reading whatever comes.
    ServeAny,
    Help(usize),
    Respond(usize),
    Noise,
    Journal,
    /// A step of the programs in [`super::load`].
    Load(Step),
}

#[derive(Clone, Debug, Default)]
pub struct Trip {
    /// Lengths of the parts that are written and read one by one.
    pub asked: Vec<u64>,
    pub answer: Vec<u64>,
    pub asked_from: u64,
    pub answer_from: u64,
    pub start_ns: Option<u64>,
    pub end: Option<(u64, TaskNo)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Serving {
    #[default]
    Alone,
    /// Threads take turns under a lock.
    Pool,
    /// Threads all wait in read().
    FreePool,
    /// A second thread does the work. The hand-over is by an eventfd.
    Helper,
    /// As `Helper`, with a hand-over by a pipe.
    PipeHelper,
    /// As `Helper`, but the second thread answers by itself.
    Answerer,
}

#[derive(Default)]
pub struct Plan {
    pub trips: Vec<Trip>,
    pub serving: Serving,
    /// The client has a thread that only reads.
    pub split_client: bool,
    /// Threads notify each other by condition variables, not by eventfds.
    pub by_condition: bool,
    pub asked: usize,
    pub served: usize,
    pub server_tgid: u32,
    pub threads: Vec<TaskNo>,
    /// The child, the start of its fork, and whether it executed a program.
    pub children: Vec<(TaskNo, u64, bool)>,
    /// The time, the task that reaped, and the child.
    pub reaped: Vec<(u64, TaskNo, TaskNo)>,
    pub descriptors: [i32; 2],
}

/// A simulated trace: its events in order of time, and what really happened.
pub struct Trace {
    pub cpus: u32,
    pub events: Vec<Event>,
    pub truth: Truth,
}

/// Runs the machine that a tape describes.
pub fn simulate(numbers: Vec<u16>) -> Trace {
    let mut m = Machine::new(Tape::new(numbers));
    m.set_up();
    m.run_to_end();
    m.settle();
    Trace { cpus: m.cpus.len() as u32, events: m.events, truth: m.truth }
}

impl Machine {
    fn set_up(&mut self) {
        let cpus = self.tape.length(3) as usize;
        self.cpus = vec![0; cpus];
        self.truth.cpus = vec![Vec::new(); cpus];
        let capacity = if self.tape.once_in(5) { 8 } else { 64 };
        let serving = [
            Serving::Alone,
            Serving::Pool,
            Serving::FreePool,
            Serving::Helper,
            Serving::PipeHelper,
            Serving::Answerer,
        ];
        self.plan.serving = serving[self.tape.pick(6) as usize];
        // Threads that read whatever comes must get whole messages.
        let whole = self.plan.serving == Serving::FreePool;
        for _ in 0..4 {
            let capacity = if whole { 64 } else { capacity };
            self.pipes.push(Pipe { capacity, ..Pipe::default() });
        }
        self.eventfds = vec![0; 3];
        self.events_moved = vec![(0, 0); 3];
        self.events_counted = vec![(0, 0); 3];
        self.plan.split_client = self.tape.once_in(4);
        self.plan.by_condition = self.tape.once_in(3);
        self.plan.descriptors = if self.tape.once_in(4) { [0, 1] } else { [5, 6] };
        let (mut asked_from, mut answer_from) = (0, 0);
        for _ in 0..self.tape.pick(4) + 1 {
            let asked = self.parts(whole);
            let answer = self.parts(false);
            let trip = Trip { asked_from, answer_from, asked, answer, ..Trip::default() };
            asked_from += trip.asked.iter().sum::<u64>();
            answer_from += trip.answer.iter().sum::<u64>();
            self.plan.trips.push(trip);
        }

        let shell = self.add(Task { cpu: 0, ..Task::new(100, 100, "sh") });
        self.tasks[shell].acts = self.shell();
        self.tasks[shell].state = State::On(0);
        self.cpus[0] = shell;
        if self.tape.once_in(2) {
            for (tid, comm) in [(90, "noise"), (91, "noise2")] {
                let task = Task { traced: false, cpu: 0, ..Task::new(tid, tid, comm) };
                let task = self.add(task);
                let token = self.token();
                self.tasks[task].ops =
                    [Op::Wait(Until::Token(token), Why::Timer, Stage::Begin)].into();
                self.tasks[task].acts = [Act::Noise].into();
                self.waiters.insert(Queue::Token(token), vec![task]);
                self.later(token, None);
            }
        }
        let comm = "jbd2/vda1-8";
        let journal = Task { traced: false, kthread: true, ..Task::new(80, 80, comm) };
        let journal = self.add(journal);
        self.tasks[journal].acts = [Act::Journal].into();
        self.waiters.insert(Queue::Journal, vec![journal]);
        for task in 1..self.tasks.len() {
            let (tid, kthread) = (self.tasks[task].tid, self.tasks[task].kthread);
            let comm = self.tasks[task].comm.as_str().into();
            self.emit(0, What::Task { tid, tgid: tid, kthread, comm });
        }
        // The shell is traced from its execve() on.
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
    }

    fn parts(&mut self, whole: bool) -> Vec<u64> {
        let mut parts = vec![self.tape.length(12)];
        if !whole && self.tape.once_in(3) {
            parts.push(self.tape.length(12));
        }
        parts
    }

    // ---- programs -----------------------------------------------------------------------------

    fn shell(&mut self) -> VecDeque<Act> {
        let server = Birth { thread: false, comm: "server0", acts: self.server() };
        let client = Birth { thread: false, comm: "client0", acts: self.client() };
        let vfork = self.tape.once_in(8);
        let mut acts = VecDeque::from([Act::Compute, Act::Fork(server, false)]);
        if self.tape.once_in(3) {
            acts.push_back(Act::Compute);
        }
        acts.extend([Act::Fork(client, vfork)]);
        if self.tape.once_in(3) {
            acts.push_back(Act::Fork(self.child(), false));
            acts.push_back(Act::Wait);
        }
        acts.extend([Act::Wait, Act::Wait, Act::Exit]);
        acts
    }

    /// A short-lived process.
    fn child(&mut self) -> Birth {
        let mut acts = VecDeque::new();
        acts.extend(self.anything());
        if !self.tape.once_in(4) {
            acts.push_back(Act::Exec("true"));
        }
        acts.push_back(Act::Compute);
        acts.extend(self.anything());
        if self.tape.once_in(6) {
            acts.extend([Act::Fork(self.child(), false), Act::Compute, Act::Wait]);
        }
        acts.push_back(Act::Exit);
        Birth { thread: false, comm: "child", acts }
    }

    /// Sometimes something that takes time.
    fn anything(&mut self) -> Vec<Act> {
        vec![match self.tape.pick(9) {
            1 => Act::Compute,
            2 => Act::Something,
            3 => Act::Nap,
            4 => Act::Yield,
            5 => Act::Sync,
            6 => {
                let held = if self.tape.once_in(3) { Act::Nap } else { Act::Compute };
                return vec![Act::Lock(BUSY_LOCK), held, Act::Unlock(BUSY_LOCK)];
            }
            _ => return Vec::new(),
        }]
    }

    /// Zero to two things that keep a thread busy.
    fn busy(&mut self) -> Vec<Act> {
        (0..self.tape.pick(3)).flat_map(|_| self.anything()).collect()
    }

    fn client(&mut self) -> VecDeque<Act> {
        let mut acts = VecDeque::new();
        if self.tape.once_in(3) {
            acts.push_back(Act::Exec("client"));
        }
        let count = self.plan.trips.len();
        let mut threads: Vec<VecDeque<Act>> = vec![VecDeque::new(); 1 + self.tape.pick(3) as usize];
        if self.plan.split_client {
            threads = vec![VecDeque::new(), (0..count).map(Act::ReadAnswer).collect()];
        }
        let askers = if self.plan.split_client { 1 } else { threads.len() as u64 };
        for _ in 0..count {
            let thread = self.tape.pick(askers) as usize;
            let ask = if self.plan.split_client { Act::AskOnly } else { Act::Ask };
            threads[thread].push_back(ask);
            threads[thread].extend(self.anything());
            if self.tape.once_in(8) {
                threads[thread]
                    .extend([Act::Fork(self.child(), self.tape.pick(2) == 1), Act::Wait]);
            }
        }
        let main = threads.remove(0);
        for mut acts_of in threads {
            acts_of.push_back(Act::Exit);
            acts.push_back(Act::Spawn(Birth { thread: true, comm: "client", acts: acts_of }));
        }
        acts.extend(main);
        acts.extend([Act::Join, Act::Close(ASK), Act::Exit]);
        acts
    }

    fn server(&mut self) -> VecDeque<Act> {
        let mut acts = VecDeque::new();
        if self.tape.once_in(3) {
            acts.push_back(Act::Exec("server"));
        }
        let count = self.plan.trips.len();
        let others: Vec<VecDeque<Act>> = match self.plan.serving {
            Serving::Alone => Vec::new(),
            Serving::Pool => vec![[Act::Serve].into(); 1 + self.tape.pick(2) as usize],
            Serving::FreePool => vec![[Act::ServeAny].into(); 1 + self.tape.pick(2) as usize],
            _ => vec![(0..count).map(Act::Help).collect()],
        };
        for mut acts_of in others {
            acts_of.push_back(Act::Exit);
            acts.push_back(Act::Spawn(Birth { thread: true, comm: "server", acts: acts_of }));
        }
        acts.push_back(match self.plan.serving {
            Serving::FreePool => Act::ServeAny,
            _ => Act::Serve,
        });
        acts.extend([Act::Join, Act::Exit]);
        acts
    }
}

pub fn plain(nr: u16, category: Category) -> Sys {
    Sys { nr, object: None, category }
}

fn on(nr: u16, object: Object, fd: i32, category: Category) -> Sys {
    Sys { nr, object: Some((object, fd)), category }
}

fn on_pipe(nr: u16, pipe: usize, descriptors: [i32; 2]) -> Sys {
    let fd = if pipe < 2 { descriptors[usize::from(nr == WRITE)] } else { 8 };
    on(nr, pipe_object(pipe), fd, Category::KernelPipe)
}

/// Addresses of futexes.
const MUTEXES: u64 = 0x7000;
const CONDITIONS: u64 = 0x8000;

fn on_mutex(lock: usize) -> Sys {
    on(FUTEX, mutex(MUTEXES + lock as u64), MUTEX_LOCKED, Category::KernelFutex)
}

fn on_condition(number: usize) -> Sys {
    on(FUTEX, condition(CONDITIONS + number as u64), MUTEX_LOCKED, Category::KernelFutex)
}

/// FUTEX_WAKE of one waiter.
pub fn wakes(address: u64) -> Sys {
    on(FUTEX, Object { dev: 128 | 1, ..mutex(address) }, 1, Category::KernelFutex)
}

fn on_eventfd(nr: u16, eventfd: usize) -> Sys {
    on(nr, eventfd_object(eventfd), 9, Category::KernelVfs)
}
