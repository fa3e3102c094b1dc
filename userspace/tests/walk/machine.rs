//! A small machine: CPUs, tasks and a scheduler, simulated one nanosecond at a time. It reports what happens twice: as
//! the events that the kernel side would send, and as the truth.

use std::collections::{BTreeMap, VecDeque};

use rpcprobe::engine::event::{Event, Object, OpenCall, What};
use rpcprobe::records::{
    VEC_CALL_FUNCTION, VEC_IRQ_WORK, VEC_RESCHEDULE, VEC_TIMER, WAKING_HARDIRQ, WAKING_IN_SYSCALL,
    WAKING_SOFTIRQ,
};

use super::kernel::{Op, Sys};
use super::load::net::{Net, NetQueue};
use super::programs::{Act, Plan};
use super::tape::Tape;
use super::truth::{
    self, Away, AwayNo, CallNo, Doing, TaskNo, Tick, Truth, Wakeup, Why, IDLE_TASK,
};

pub const START_NS: u64 = 1_000;
/// By this time every program has long ended.
pub const LAST_NS: u64 = 60_000;

/// What tasks can sleep on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Queue {
    Readers(usize),
    Writers(usize),
    Pollers(usize),
    Event(usize),
    Lock(usize),
    /// A one-time event.
    Token(usize),
    Children(u32),
    Journal,
    Net(NetQueue),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    On(usize),
    /// Runnable since before `at_ns`; a CPU may take it from `at_ns` on.
    Ready {
        at_ns: u64,
    },
    Asleep,
    Dead,
}

/// On the way to sleep, still on the CPU.
#[derive(Clone, Copy, Debug)]
pub enum Going {
    No,
    /// Marked as asleep; a wake-up now undoes that.
    Preparing {
        woken: bool,
    },
    /// Off the run queue, but not switched out yet: a wake-up now comes early.
    Leaving {
        wakeup: Option<Wakeup>,
    },
}

pub struct Task {
    pub tid: u32,
    pub tgid: u32,
    pub comm: String,
    pub traced: bool,
    pub kthread: bool,
    pub parent_tgid: u32,
    pub state: State,
    pub cpu: usize,
    pub going: Going,
    pub away: Option<AwayNo>,
    /// Innermost level last, each with its start.
    pub levels: Vec<(Doing, u64)>,
    pub call: Option<(CallNo, Sys)>,
    pub ops: VecDeque<Op>,
    /// Nanoseconds already spent on the first operation.
    pub ran_ns: u64,
    pub acts: VecDeque<Act>,
    /// The bytes that the call under way moved, or the pid that it collected.
    pub moved: i64,
    /// Their offset in the pipe.
    pub moved_from: Option<u64>,
    pub futex_woken: bool,
    /// The token that is fired when the task is gone.
    pub gone: usize,
    /// The token that is fired when its parent in vfork() may go on.
    pub vfork: Option<usize>,
    /// Which requests it works for: an index into [`super::load::facts::Facts::whose`].
    pub whose: u32,
}

impl Task {
    pub fn new(tid: u32, tgid: u32, comm: &str) -> Task {
        Task {
            tid,
            tgid,
            comm: comm.into(),
            traced: true,
            kthread: false,
            parent_tgid: 0,
            state: State::Asleep,
            cpu: 0,
            going: Going::No,
            away: None,
            levels: vec![(Doing::User, 0)],
            call: None,
            ops: VecDeque::new(),
            ran_ns: 0,
            acts: VecDeque::new(),
            moved: 0,
            moved_from: None,
            futex_woken: false,
            gone: 0,
            vfork: None,
            whose: 0,
        }
    }

    pub fn is_in(&self, what: Doing) -> bool {
        self.levels.iter().any(|(level, _)| *level == what)
    }

    /// Whether it is in a call that works on a socket.
    fn is_on_socket(&self) -> bool {
        let object = self.call.as_ref().and_then(|(_, sys)| sys.object);
        object.is_some_and(|(object, _)| object.is_socket())
    }

    /// Puts operations before all others, the first of them first.
    pub fn first(&mut self, ops: impl IntoIterator<Item = Op, IntoIter: DoubleEndedIterator>) {
        for op in ops.into_iter().rev() {
            self.ops.push_front(op);
        }
        self.ran_ns = 0;
    }
}

/// A pending interrupt of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Interrupt {
    pub at_ns: u64,
    pub cpu: usize,
    pub vector: u16,
    /// The softirq that runs after it.
    pub softirq: Option<u16>,
    /// The token that it fires: in the softirq, if there is one.
    pub token: Option<usize>,
}

#[derive(Default)]
pub struct Pipe {
    pub capacity: u64,
    pub held: u64,
    pub closed: bool,
    /// The kernel side's counters, updated at the exits of calls.
    pub written: u64,
    pub read: u64,
    /// The true counters.
    pub put: u64,
    pub taken: u64,
}

pub struct Machine {
    pub now_ns: u64,
    pub tape: Tape,
    pub tasks: Vec<Task>,
    /// The current task of each CPU.
    pub cpus: Vec<TaskNo>,
    pub waiters: BTreeMap<Queue, Vec<TaskNo>>,
    pub interrupts: Vec<Interrupt>,
    pub pipes: Vec<Pipe>,
    pub eventfds: Vec<u64>,
    /// Counts added to and taken from each eventfd: the true ones, and the kernel side's.
    pub events_moved: Vec<(u64, u64)>,
    pub events_counted: Vec<(u64, u64)>,
    pub locks: Vec<bool>,
    pub tokens: Vec<bool>,
    /// Processes that have ended and were not waited for yet, with their parents.
    pub zombies: Vec<(u32, TaskNo)>,
    pub commits: Vec<usize>,
    pub net: Net,
    pub plan: Plan,
    pub events: Vec<Event>,
    pub truth: Truth,
}

impl Machine {
    pub fn new(tape: Tape) -> Machine {
        let mut machine = Machine {
            now_ns: START_NS,
            tape,
            tasks: Vec::new(),
            cpus: Vec::new(),
            waiters: BTreeMap::new(),
            interrupts: Vec::new(),
            pipes: Vec::new(),
            eventfds: Vec::new(),
            events_moved: Vec::new(),
            events_counted: Vec::new(),
            locks: vec![true; 4],
            tokens: Vec::new(),
            zombies: Vec::new(),
            commits: Vec::new(),
            net: Net::default(),
            plan: Plan::default(),
            events: Vec::new(),
            truth: Truth { start_ns: START_NS, ..Truth::default() },
        };
        let mut idle = Task::new(0, 0, "idle");
        idle.traced = false;
        machine.add(idle);
        machine
    }

    /// Adds a task that exists from now on.
    pub fn add(&mut self, mut task: Task) -> TaskNo {
        task.gone = self.token();
        let unborn = Tick { doing: Doing::Unborn, call: None, whose: 0 };
        self.truth.tasks.push(truth::Task {
            tid: task.tid,
            tgid: task.tgid,
            traced: task.traced,
            jbd2: task.comm.starts_with("jbd2/"),
            ticks: vec![unborn; (self.now_ns - START_NS) as usize],
            aways: Vec::new(),
        });
        self.tasks.push(task);
        self.tasks.len() - 1
    }

    pub fn token(&mut self) -> usize {
        self.tokens.push(false);
        self.tokens.len() - 1
    }

    pub fn emit(&mut self, cpu: usize, what: What) {
        self.events.push(Event { ts_ns: self.now_ns, cpu: cpu as u32, what });
    }

    /// Runs until every traced task is gone.
    pub fn run_to_end(&mut self) {
        loop {
            for cpu in 0..self.cpus.len() {
                self.serve_cpu(cpu);
            }
            if self.tasks.iter().all(|task| !task.traced || task.state == State::Dead) {
                return;
            }
            self.advance();
            if self.now_ns > LAST_NS {
                self.deadlock();
            }
        }
    }

    /// Does everything on a CPU that takes no time.
    pub fn serve_cpu(&mut self, cpu: usize) {
        loop {
            if self.interrupted(cpu) {
                continue;
            }
            let current = self.cpus[cpu];
            if current == IDLE_TASK {
                match self.next_task(cpu, false) {
                    Some(next) => self.switch(cpu, next, 0, false, None),
                    None => return,
                }
                continue;
            }
            match self.tasks[current].ops.front() {
                Some(Op::Run(0)) => {
                    self.tasks[current].ops.pop_front();
                    self.tasks[current].ran_ns = 0;
                }
                Some(Op::Run(_)) => return,
                Some(_) => {
                    let op = self.tasks[current].ops.pop_front().expect("looked at");
                    self.tasks[current].ran_ns = 0;
                    self.perform(cpu, current, op);
                }
                None => self.next_act(current),
            }
        }
    }

    /// Lets time pass until the next thing happens.
    pub fn advance(&mut self) {
        let next_ns = self.next_ns().unwrap_or_else(|| self.deadlock());
        let passed = (next_ns - self.now_ns) as usize;
        for cpu in 0..self.cpus.len() {
            let current = self.cpus[cpu];
            let seen = self.truth.cpus[cpu].last().is_some_and(Option::is_some);
            let ran = (seen || self.switched(cpu)).then_some(current);
            self.truth.cpus[cpu].extend(std::iter::repeat_n(ran, passed));
            if let Some(Op::Run(left)) = self.tasks[current].ops.front_mut() {
                *left -= passed as u64;
                self.tasks[current].ran_ns += passed as u64;
            }
        }
        for no in 1..self.tasks.len() {
            let task = &self.tasks[no];
            let doing = match task.away {
                Some(away) => Doing::Away(away),
                None => task.levels.last().expect("user mode at least").0,
            };
            let call = task.call.as_ref().map(|(call, _)| *call);
            let tick = Tick { doing, call, whose: task.whose };
            self.truth.tasks[no].ticks.extend(std::iter::repeat_n(tick, passed));
        }
        self.now_ns = next_ns;
    }

    /// When the next thing happens, if anything still does.
    pub fn next_ns(&self) -> Option<u64> {
        let mut next_ns = self.interrupts.iter().map(|i| i.at_ns.max(self.now_ns + 1)).min();
        let mut sooner = |ns: u64| next_ns = Some(next_ns.map_or(ns, |next| next.min(ns)));
        for (cpu, &current) in self.cpus.iter().enumerate() {
            match self.tasks[current].ops.front() {
                Some(Op::Run(left)) if current != IDLE_TASK => sooner(self.now_ns + left),
                _ => {}
            }
            for task in self.tasks.iter().filter(|task| task.cpu == cpu) {
                if let (State::Ready { at_ns }, IDLE_TASK) = (task.state, current) {
                    sooner(at_ns.max(self.now_ns + 1));
                }
            }
        }
        next_ns
    }

    pub fn deadlock(&self) -> ! {
        for task in self.tasks.iter().filter(|task| task.state != State::Dead) {
            let next: Vec<_> = task.ops.iter().take(2).collect();
            eprintln!("{} {} is {:?}, next {next:?}", task.tid, task.comm, task.state);
        }
        panic!("the simulation has a deadlock at {} ns", self.now_ns);
    }

    /// Whether a switch on this CPU was recorded: only then is it known which task runs there.
    fn switched(&self, cpu: usize) -> bool {
        self.events
            .iter()
            .any(|event| event.cpu == cpu as u32 && matches!(event.what, What::Switch { .. }))
    }

    // ---- scheduling ---------------------------------------------------------------------------

    /// A task that waits for this CPU; with `pull`, possibly one that waits for another CPU.
    pub fn next_task(&mut self, cpu: usize, pull: bool) -> Option<TaskNo> {
        let now_ns = self.now_ns;
        let mut ready: Vec<(u64, TaskNo)> = (self.tasks.iter().enumerate())
            .filter(|(_, task)| task.cpu == cpu || pull)
            .filter_map(|(no, task)| match task.state {
                State::Ready { at_ns } if at_ns <= now_ns => Some((at_ns, no)),
                _ => None,
            })
            .collect();
        ready.sort_unstable();
        let (_, no) = *ready.first()?;
        Some(no)
    }

    /// Gives the CPU to `next`. `why` says why the current task leaves; it is `None` for idle.
    pub fn switch(
        &mut self,
        cpu: usize,
        next: TaskNo,
        state: u16,
        preempt: bool,
        why: Option<Why>,
    ) {
        let prev = self.cpus[cpu];
        assert_ne!(prev, next);
        let mut call = None;
        if let Some(why) = why {
            let away = self.leave(prev, why);
            let task = &mut self.tasks[prev];
            task.away = Some(away);
            let open = task.call.as_ref().filter(|_| task.traced);
            call = open.map(|(no, sys)| OpenCall {
                nr: sys.nr,
                enter_ns: self.truth.calls[*no].enter_ns,
                object: sys.object.map(|(object, _)| object),
                fd: sys.object.map_or(-1, |(_, fd)| fd),
            });
        }
        if next != IDLE_TASK {
            self.pull(cpu, next);
        }
        let iowait = matches!(why, Some(Why::Disk { iowait: true }));
        let (prev, next_tid) = (self.tasks[prev].tid, self.tasks[next].tid);
        self.emit(
            cpu,
            What::Switch { prev, next: next_tid, waited_ns: None, state, preempt, iowait, call },
        );
        self.cpus[cpu] = next;
        if next != IDLE_TASK {
            let now_ns = self.now_ns;
            let task = &mut self.tasks[next];
            task.state = State::On(cpu);
            task.cpu = cpu;
            if let Some(away) = task.away.take() {
                self.truth.aways[away].to_ns = now_ns;
                self.truth.aways[away].cpu = cpu;
            }
        }
    }

    /// Moves a runnable task to the run queue of this CPU.
    fn pull(&mut self, cpu: usize, task: TaskNo) {
        let Task { tid, traced, cpu: from, away, .. } = self.tasks[task];
        self.tasks[task].cpu = cpu;
        if let (true, true, Some(away)) = (traced, from != cpu, away) {
            self.truth.aways[away].moves.push((self.now_ns, from, cpu));
            let (from_cpu, to_cpu) = (from as u32, cpu as u32);
            self.emit(cpu, What::Migrate { tid, from_cpu, to_cpu });
        }
    }

    /// Balances the load: moves the task that has waited longest to this CPU.
    fn balance(&mut self, cpu: usize) {
        if let Some(task) = self.next_task(cpu, true) {
            self.pull(cpu, task);
        }
    }

    /// Notes that a task is off the CPU from now on.
    pub fn leave(&mut self, task: TaskNo, why: Why) -> AwayNo {
        let call = self.tasks[task].call.as_ref().map(|(call, _)| *call);
        let (from_ns, to_ns) = (self.now_ns, u64::MAX);
        let (wakeup, cpu, moves) = (None, 0, Vec::new());
        self.truth.aways.push(Away { from_ns, to_ns, why, wakeup, cpu, moves, call });
        let away = self.truth.aways.len() - 1;
        self.truth.tasks[task].aways.push(away);
        away
    }

    /// Takes the current task off its CPU, for another or for idleness.
    pub fn put_off(&mut self, cpu: usize, state: u16, preempt: bool, why: Why) {
        if self.tape.once_in(4) {
            self.balance(cpu);
        }
        let pull = self.tape.once_in(3);
        let next = self.next_task(cpu, pull).unwrap_or(IDLE_TASK);
        self.switch(cpu, next, state, preempt, Some(why));
    }

    /// A point where the current task may lose its CPU to a task that waits for it.
    pub fn may_preempt(&mut self, cpu: usize, task: TaskNo) {
        let inner = [Doing::Softirq, Doing::Hardirq].map(|level| self.tasks[task].is_in(level));
        let leaving = matches!(self.tasks[task].going, Going::Leaving { .. });
        if inner.contains(&true) || leaving || self.next_task(cpu, false).is_none() {
            return;
        }
        if self.tape.pick(2) == 0 {
            return;
        }
        // A task preempted on its way to sleep shows that state, but it comes back without a wake-up.
        let state = u16::from(matches!(self.tasks[task].going, Going::Preparing { woken: false }));
        self.stay_runnable(task);
        self.put_off(cpu, state, true, Why::Preempted);
    }

    /// Prepares a task to leave its CPU although it could run.
    pub fn stay_runnable(&mut self, task: TaskNo) {
        let back = self.tape.length(2);
        self.tasks[task].state = State::Ready { at_ns: self.now_ns + 1 };
        self.tasks[task].first([Op::Run(back)]);
    }

    // ---- wake-ups -----------------------------------------------------------------------------

    /// Flags of a wake-up by the current task, and whether the wake-up is the task's own doing.
    pub fn context(&self, cpu: usize) -> (u8, bool) {
        let current = &self.tasks[self.cpus[cpu]];
        let (hard, soft) = (current.is_in(Doing::Hardirq), current.is_in(Doing::Softirq));
        let in_call = current.traced && current.call.is_some();
        let mut flags = 0;
        for (on, flag) in
            [(hard, WAKING_HARDIRQ), (soft, WAKING_SOFTIRQ), (in_call, WAKING_IN_SYSCALL)]
        {
            flags |= if on { flag } else { 0 };
        }
        (flags, !hard && (!soft || in_call))
    }

    /// try_to_wake_up() by the current task of `cpu`.
    pub fn wake(&mut self, cpu: usize, wakee: TaskNo) {
        let (flags, own) = self.context(cpu);
        self.wake_as(cpu, wakee, flags, own);
    }

    pub fn wake_as(&mut self, cpu: usize, wakee: TaskNo, flags: u8, own: bool) {
        let waker = self.cpus[cpu];
        let wakeup = Wakeup { at_ns: self.now_ns, waker, own };
        match (self.tasks[wakee].going, self.tasks[wakee].state) {
            (Going::Preparing { woken: false }, _) => {
                self.tasks[wakee].going = Going::Preparing { woken: true };
            }
            (Going::Leaving { wakeup: None }, _) => {
                self.tasks[wakee].going = Going::Leaving { wakeup: Some(wakeup) };
            }
            (Going::No, State::Asleep) => {
                if let Some(away) = self.tasks[wakee].away {
                    self.truth.aways[away].wakeup = Some(wakeup);
                }
                self.make_ready(wakee);
            }
            _ => return,
        }
        let what = What::Waking {
            waker: self.tasks[waker].tid,
            wakee: self.tasks[wakee].tid,
            flags,
            block: 0,
        };
        self.emit(cpu, what);
    }

    /// Puts a woken task on the run queue of some CPU.
    pub fn make_ready(&mut self, task: TaskNo) {
        let cpus = self.cpus.len() as u64;
        let cpu = (self.tasks[task].cpu + self.tape.pick(cpus) as usize) % self.cpus.len();
        let at_ns = self.now_ns + self.tape.length(4);
        self.tasks[task].cpu = cpu;
        self.tasks[task].state = State::Ready { at_ns };
        if self.cpus[cpu] != IDLE_TASK && self.tape.once_in(3) {
            let vector = VEC_RESCHEDULE;
            self.interrupts.push(Interrupt { at_ns, cpu, vector, softirq: None, token: None });
        }
    }

    pub fn fire(&mut self, cpu: usize, token: usize) {
        self.tokens[token] = true;
        let (flags, own) = self.context(cpu);
        self.take_effect(cpu, token, (flags, own));
        self.wake_all(cpu, Queue::Token(token));
    }

    pub fn wake_all(&mut self, cpu: usize, queue: Queue) {
        for task in self.waiters.get(&queue).cloned().unwrap_or_default() {
            self.wake(cpu, task);
        }
    }

    // ---- interrupts ---------------------------------------------------------------------------

    /// Lets something outside fire `token` after a while, on any CPU: in a hard interrupt, or in the softirq after it.
    pub fn later(&mut self, token: usize, in_softirq: Option<u16>) {
        let at_ns = self.now_ns + 3 + self.tape.pick(40);
        let cpu = self.tape.pick(self.cpus.len() as u64) as usize;
        let vector = if in_softirq.is_some() { 30 } else { VEC_TIMER };
        let softirq = in_softirq;
        self.interrupts.push(Interrupt { at_ns, cpu, vector, softirq, token: Some(token) });
    }

    /// Sometimes an interrupt that concerns no task.
    pub fn maybe_interrupt(&mut self) {
        if !self.tape.once_in(6) {
            return;
        }
        let vectors = [VEC_TIMER, VEC_CALL_FUNCTION, VEC_IRQ_WORK, 31];
        let vector = vectors[self.tape.pick(4) as usize];
        let softirq = self.tape.once_in(2).then_some(7);
        let cpu = self.tape.pick(self.cpus.len() as u64) as usize;
        let at_ns = self.now_ns + self.tape.length(30);
        self.interrupts.push(Interrupt { at_ns, cpu, vector, softirq, token: None });
    }

    /// Begins an interrupt that is due, if the CPU can take it now.
    fn interrupted(&mut self, cpu: usize) -> bool {
        let due = |i: &Interrupt| i.cpu == cpu && i.at_ns <= self.now_ns;
        let Some(index) = self.interrupts.iter().position(due) else { return false };
        let interrupt = self.interrupts[index];
        let current = self.cpus[cpu];
        if current == IDLE_TASK {
            self.interrupts.remove(index);
            if let Some(token) = interrupt.token {
                self.tokens[token] = true;
                let flags =
                    if interrupt.softirq.is_some() { WAKING_SOFTIRQ } else { WAKING_HARDIRQ };
                self.take_effect(cpu, token, (flags, false));
                for task in self.waiters.get(&Queue::Token(token)).cloned().unwrap_or_default() {
                    self.wake_as(cpu, task, flags, false);
                }
            }
            return true;
        }
        let task = &self.tasks[current];
        // Only inside a stretch of work, so that no two things happen in one instant; not with interrupts off; softirqs
        // do not nest.
        let inside =
            matches!(task.ops.front(), Some(Op::Run(left)) if *left > 0 && task.ran_ns > 0);
        if !inside
            || task.is_in(Doing::Hardirq)
            || matches!(task.going, Going::Leaving { .. })
            || (interrupt.softirq.is_some() && task.is_in(Doing::Softirq))
            || (interrupt.token.is_some_and(|token| self.net.is_awaited(token))
                && task.is_on_socket())
        {
            return false;
        }
        self.interrupts.remove(index);
        let fire = |wanted: bool| interrupt.token.filter(|_| wanted).map(Op::Fire);
        let mut ops = vec![Op::Push(Doing::Hardirq), Op::Run(self.tape.length(3))];
        ops.extend(fire(interrupt.softirq.is_none()));
        ops.extend([Op::Run(self.tape.length(2)), Op::Pop(interrupt.vector), Op::Run(1)]);
        if let Some(softirq) = interrupt.softirq {
            ops.extend([Op::Push(Doing::Softirq), Op::Run(self.tape.length(4))]);
            ops.extend(fire(true));
            ops.extend([Op::Run(self.tape.length(3)), Op::Pop(softirq), Op::Run(1)]);
        }
        ops.push(Op::Resched);
        self.tasks[current].first(ops);
        true
    }
}

/// Pipe and eventfd objects by number, apart from each other.
pub fn pipe_object(pipe: usize) -> Object {
    super::story::pipe(1 + pipe as u64)
}

pub fn eventfd_object(eventfd: usize) -> Object {
    super::story::eventfd(100 + eventfd as u64)
}
