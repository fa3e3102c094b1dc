//! What each act consists of: other acts, and steps inside and outside of system calls.

use super::*;

impl Machine {
    /// A task has nothing left to do: expands its next act into operations.
    pub fn next_act(&mut self, no: TaskNo) {
        let act = self.tasks[no].acts.pop_front().expect("programs end by leaving");
        self.maybe_interrupt();
        let ops = self.ops(no, act);
        self.tasks[no].ops = ops.into();
        self.tasks[no].ran_ns = 0;
    }

    pub fn run(&mut self, longest: u64) -> Op {
        Op::Run(self.tape.length(longest))
    }

    /// A call: entry, some work, its effects, some work, exit, and the return to user mode.
    pub fn call(&mut self, sys: Sys, does: Vec<Op>, moved: Moved) -> Vec<Op> {
        let mut ops = vec![self.run(3), Op::Enter(sys), self.run(5)];
        ops.extend(does);
        ops.extend([self.run(4), Op::Leave(moved), self.run(2), Op::Resched]);
        ops
    }

    pub(super) fn ops(&mut self, no: TaskNo, act: Act) -> Vec<Op> {
        match act {
            Act::Compute => {
                let mut ops = vec![self.run(12)];
                ops.extend(self.maybe_fault());
                ops.push(Op::Resched);
                ops
            }
            Act::Something => {
                let (nr, category, moved) = match self.tape.pick(3) {
                    0 => (39, Category::KernelOther, Moved::Nothing(7)),
                    1 => (12, Category::KernelMm, Moved::Nothing(0)),
                    _ => (257, Category::KernelVfs, Moved::Path),
                };
                let fault = self.maybe_fault();
                self.call(plain(nr, category), fault, moved)
            }
            Act::Nap => {
                let token = self.token();
                let wait = Op::Wait(Until::Token(token), Why::Timer, Stage::Begin);
                let does = vec![Op::Later(token, None), Op::Run(1), wait];
                self.call(plain(NANOSLEEP, Category::KernelSched), does, Moved::Nothing(0))
            }
            Act::Yield => {
                let yields = vec![Op::Yield];
                self.call(plain(24, Category::KernelSched), yields, Moved::Nothing(0))
            }
            Act::Sync => self.sync(),
            Act::Lock(lock) => self.lock(lock),
            Act::Unlock(lock) => self.unlock(lock),
            Act::Write { pipe, bytes, trip } => {
                let put = vec![Op::Put { pipe, left: bytes }];
                let mut ops =
                    self.call(on_pipe(WRITE, pipe, self.plan.descriptors), put, Moved::Out(pipe));
                if let Some(trip) = trip {
                    ops.insert(2, Op::Asks(trip));
                }
                ops
            }
            Act::Read { pipe, left, trip } => {
                let mut ops = self.read(pipe, left);
                let leave = ops.iter().position(|op| matches!(op, Op::Leave(_))).expect("a call");
                if let Some(trip) = trip {
                    ops.insert(leave + 1, Op::Answered(trip));
                }
                ops.push(Op::ReadOn { pipe, left, trip });
                ops
            }
            Act::Poll(pipe) => {
                let timeout = self.token();
                let wait = Op::Wait(Until::Readable(pipe, timeout), Why::Readiness, Stage::Begin);
                let mut does = vec![wait];
                if self.tape.once_in(3) {
                    does.splice(0..0, [Op::Later(timeout, None), Op::Run(1)]);
                }
                self.call(plain(POLL, Category::KernelPoll), does, Moved::Nothing(1))
            }
            Act::Signal(event) if self.plan.by_condition => {
                self.eventfds[event] += 1;
                if self.waiters.get(&Queue::Event(event)).is_none_or(Vec::is_empty) {
                    return vec![self.run(2)];
                }
                let does = vec![Op::WakeAll(Queue::Event(event)), Op::Run(1), Op::Resched];
                self.call(wakes(CONDITIONS + event as u64), does, Moved::Nothing(1))
            }
            Act::Await(event) if self.plan.by_condition => {
                if self.eventfds[event] > 0 {
                    self.eventfds[event] -= 1;
                    return vec![self.run(2)];
                }
                let wait = Op::Wait(Until::Event(event), Why::Condition, Stage::Begin);
                let does = vec![wait, Op::EventTake(event)];
                self.call(on_condition(event), does, Moved::Nothing(0))
            }
            Act::Signal(eventfd) => {
                let does = vec![
                    Op::EventAdd(eventfd),
                    self.run(2),
                    Op::WakeAll(Queue::Event(eventfd)),
                    Op::Run(1),
                    Op::Resched,
                ];
                self.call(
                    on_eventfd(WRITE, eventfd),
                    does,
                    Moved::Event { eventfd, is_write: true },
                )
            }
            Act::Await(eventfd) => {
                let wait = Op::Wait(Until::Event(eventfd), Why::Readiness, Stage::Begin);
                let does = vec![wait, Op::EventTake(eventfd)];
                self.call(
                    on_eventfd(READ, eventfd),
                    does,
                    Moved::Event { eventfd, is_write: false },
                )
            }
            Act::Close(pipe) => {
                self.call(plain(3, Category::KernelVfs), vec![Op::Close(pipe)], Moved::Nothing(0))
            }
            Act::Spawn(birth) => self.fork_call(435, birth, false),
            Act::Fork(birth, vfork) => self.fork_call(if vfork { 58 } else { CLONE }, birth, vfork),
            Act::Exec(comm) => {
                let mut does = self.maybe_fault();
                does.extend([Op::VforkDone, self.run(3), Op::Exec(comm)]);
                self.call(plain(EXECVE, Category::KernelExec), does, Moved::Nothing(0))
            }
            Act::Wait => {
                let wait = Op::Wait(Until::Zombie, Why::Child, Stage::Begin);
                let sys = plain(WAIT4, Category::KernelExec);
                let mut ops = self.call(sys, vec![wait, Op::Reap], Moved::Counted);
                let leave = ops.iter().position(|op| matches!(op, Op::Leave(_))).expect("a call");
                ops.insert(leave + 1, Op::Collected);
                ops
            }
            Act::Join => self.join(no),
            Act::ServeAny => {
                let mut ops = self.read(ASK, 64);
                ops.push(Op::ServeRead);
                ops
            }
            Act::Exit => {
                let nr = if self.tasks[no].tid == self.tasks[no].tgid { EXIT_GROUP } else { 60 };
                let sys = plain(nr, Category::KernelExec);
                vec![self.run(3), Op::Enter(sys), self.run(5), Op::Exit]
            }
            Act::Noise => {
                self.tasks[no].acts.push_back(Act::Noise);
                let token = self.token();
                let wait = Op::Wait(Until::Token(token), Why::Timer, Stage::Begin);
                vec![
                    Op::Run(3),
                    self.run(40),
                    Op::Resched,
                    Op::Later(token, None),
                    Op::Run(1),
                    wait,
                ]
            }
            Act::Journal => {
                self.tasks[no].acts.push_back(Act::Journal);
                let token = self.token();
                let why = Why::Disk { iowait: true };
                vec![
                    Op::Wait(Until::Journal, Why::Other, Stage::Begin),
                    self.run(4),
                    Op::Later(token, Some(4)),
                    Op::Wait(Until::Token(token), why, Stage::Begin),
                    self.run(4),
                    Op::TakeJournal,
                ]
            }
            Act::Load(step) => self.load_ops(no, step),
            act => {
                let acts = self.several(no, &act);
                for act in acts.into_iter().rev() {
                    self.tasks[no].acts.push_front(act);
                }
                vec![self.run(2)]
            }
        }
    }

    pub(super) fn read(&mut self, pipe: usize, want: u64) -> Vec<Op> {
        let wait = Op::Wait(Until::Bytes(pipe), Why::Pipe, Stage::Begin);
        let does = vec![wait, Op::Take { pipe, want }];
        self.call(on_pipe(READ, pipe, self.plan.descriptors), does, Moved::In(pipe))
    }

    pub(super) fn sync(&mut self) -> Vec<Op> {
        let token = self.token();
        let journal = self.tape.once_in(2);
        let why = Why::Disk { iowait: !journal };
        let ask = if journal { Op::AskJournal(token) } else { Op::Later(token, Some(4)) };
        let wait = Op::Wait(Until::Token(token), why, Stage::Begin);
        self.call(plain(74, Category::KernelVfs), vec![ask, Op::Run(1), wait], Moved::Nothing(0))
    }

    pub(super) fn lock(&mut self, lock: usize) -> Vec<Op> {
        if self.locks[lock] {
            self.locks[lock] = false;
            return vec![self.run(2)];
        }
        let wait = Op::Wait(Until::Lock(lock), Why::Mutex, Stage::Begin);
        let mut ops = self.call(on_mutex(lock), vec![wait], Moved::Nothing(0));
        ops.push(Op::Then(Act::Lock(lock)));
        ops
    }

    pub(super) fn unlock(&mut self, lock: usize) -> Vec<Op> {
        self.locks[lock] = true;
        if self.waiters.get(&Queue::Lock(lock)).is_none_or(Vec::is_empty) {
            return vec![self.run(2)];
        }
        let does = vec![Op::FutexWake(lock), Op::Run(1), Op::Resched];
        self.call(wakes(MUTEXES + lock as u64), does, Moved::Nothing(1))
    }

    pub(super) fn fork_call(&mut self, nr: u16, birth: Birth, vfork: bool) -> Vec<Op> {
        let does = vec![Op::Fork(birth, vfork), self.run(3), Op::WakeNew, self.run(3), Op::Resched];
        self.call(plain(nr, Category::KernelExec), does, Moved::Counted)
    }

    /// Waits for one of the other threads of its process, then for the next.
    pub(super) fn join(&mut self, no: TaskNo) -> Vec<Op> {
        let mine = self.tasks[no].tgid;
        let others = self.plan.threads.iter().filter(|&&task| self.tasks[task].tgid == mine);
        let alive = others.map(|&task| self.tasks[task].gone).find(|&gone| !self.tokens[gone]);
        let Some(gone) = alive else { return vec![self.run(2)] };
        let wait = Op::Wait(Until::Token(gone), Why::Condition, Stage::Begin);
        let mut ops = self.call(on_condition(gone), vec![wait], Moved::Nothing(0));
        ops.push(Op::Then(Act::Join));
        ops
    }

    /// Acts that consist of others.
    pub(super) fn several(&mut self, no: TaskNo, act: &Act) -> Vec<Act> {
        let mut acts = Vec::new();
        match *act {
            Act::Ask => {
                let trip = self.plan.asked;
                let others =
                    self.plan.threads.iter().any(|&t| self.tasks[t].tgid == self.tasks[no].tgid);
                if others && !matches!(self.tasks[no].acts.front(), Some(Act::Unlock(CLIENT_LOCK)))
                {
                    // Again, with the lock.
                    return vec![Act::Lock(CLIENT_LOCK), Act::Ask, Act::Unlock(CLIENT_LOCK)];
                }
                self.plan.asked += 1;
                acts.extend(self.ask(trip));
                acts.extend(self.busy());
                if self.tape.once_in(4) {
                    acts.push(Act::Poll(ANSWER));
                }
                acts.extend(self.answer_parts(trip));
            }
            Act::AskOnly => {
                let trip = self.plan.asked;
                self.plan.asked += 1;
                acts.extend(self.ask(trip));
                acts.extend(self.busy());
                acts.push(Act::Await(HAVE_ANSWER));
            }
            Act::ReadAnswer(trip) => {
                acts.extend(self.answer_parts(trip));
                acts.push(Act::Signal(HAVE_ANSWER));
                acts.extend(self.busy());
            }
            Act::Serve => {
                let pool = self.plan.serving == Serving::Pool;
                if pool && !matches!(self.tasks[no].acts.front(), Some(Act::Unlock(SERVER_LOCK))) {
                    if self.plan.served < self.plan.trips.len() {
                        acts = vec![Act::Lock(SERVER_LOCK), Act::Serve, Act::Unlock(SERVER_LOCK)];
                    }
                    return acts;
                }
                let trip = self.plan.served;
                if trip == self.plan.trips.len() {
                    return acts;
                }
                self.plan.served += 1;
                for bytes in self.plan.trips[trip].asked.clone() {
                    acts.push(Act::Read { pipe: ASK, left: bytes, trip: None });
                    acts.extend(self.busy());
                }
                if pool {
                    // The thread answers only after it has released the lock.
                    self.tasks[no].acts.insert(1, Act::Respond(trip));
                    self.tasks[no].acts.insert(2, Act::Serve);
                } else {
                    acts.extend([Act::Respond(trip), Act::Serve]);
                }
            }
            Act::Respond(trip) => acts = self.respond(trip),
            Act::Help(trip) => acts = self.help(trip),
            _ => unreachable!("{act:?} is a single act"),
        }
        acts
    }

    pub(super) fn ask(&mut self, trip: usize) -> Vec<Act> {
        let mut acts = Vec::new();
        for bytes in self.plan.trips[trip].asked.clone() {
            acts.push(Act::Write { pipe: ASK, bytes, trip: Some(trip) });
        }
        acts
    }

    pub(super) fn answer_parts(&mut self, trip: usize) -> Vec<Act> {
        let mut acts = Vec::new();
        for left in self.plan.trips[trip].answer.clone() {
            acts.push(Act::Read { pipe: ANSWER, left, trip: Some(trip) });
            acts.extend(self.anything());
        }
        acts
    }

    /// From having read a request to having answered it, and a bit beyond.
    pub(super) fn respond(&mut self, trip: usize) -> Vec<Act> {
        let mut acts = self.busy();
        match self.plan.serving {
            Serving::Helper => acts.extend([Act::Signal(0), Act::Await(1)]),
            Serving::PipeHelper => acts.extend([
                Act::Write { pipe: TO_HELPER, bytes: 8, trip: None },
                Act::Read { pipe: FROM_HELPER, left: 8, trip: None },
            ]),
            Serving::Answerer => {
                acts.push(Act::Signal(0));
                return acts;
            }
            _ => acts.push(Act::Compute),
        }
        acts.extend(self.write_answer(trip));
        acts.extend(self.busy());
        acts
    }

    pub(super) fn write_answer(&mut self, trip: usize) -> Vec<Act> {
        let mut acts = Vec::new();
        for bytes in self.plan.trips[trip].answer.clone() {
            acts.push(Act::Write { pipe: ANSWER, bytes, trip: None });
        }
        acts
    }

    pub(super) fn help(&mut self, trip: usize) -> Vec<Act> {
        let pipes = self.plan.serving == Serving::PipeHelper;
        let mut acts = vec![if pipes {
            Act::Read { pipe: TO_HELPER, left: 8, trip: None }
        } else {
            Act::Await(0)
        }];
        acts.push(Act::Compute);
        acts.extend(self.busy());
        match self.plan.serving {
            Serving::PipeHelper => {
                acts.push(Act::Write { pipe: FROM_HELPER, bytes: 8, trip: None })
            }
            Serving::Helper => acts.push(Act::Signal(1)),
            _ => acts.extend(self.write_answer(trip)),
        }
        acts.extend(self.busy());
        acts
    }

    /// What a thread of the free pool does with what it has read.
    pub fn serve_read(&mut self, no: TaskNo) {
        let bytes = self.tasks[no].moved as u64;
        if bytes == 0 {
            return;
        }
        let from = self.pipes[ASK].read - bytes;
        let trip = self.plan.trips.iter().position(|trip| trip.asked_from == from);
        let trip = trip.expect("a message read whole");
        self.tasks[no].acts.push_front(Act::ServeAny);
        self.tasks[no].acts.push_front(Act::Respond(trip));
    }
}
