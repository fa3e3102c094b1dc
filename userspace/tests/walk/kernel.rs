//! What the simulated kernel does: operations that take no time, and [`Op::Run`] between them.

use std::collections::VecDeque;
use std::sync::Arc;

use rpcprobe::engine::event::{Call, Exec, Io, Object, What};
use rpcprobe::model::{Category, Kind};
use rpcprobe::records::{FAULT_KERNEL, FAULT_MAJOR, TASK_THREAD, TASK_TRACED, WAKING_NEW};

use super::load::net::{NetMoved, NetOp, NetUntil};
use super::machine::{Going, Machine, Queue, State, Task};
use super::programs::Act;
use super::story;
use super::truth::{self, Asked, Doing, TaskNo, Transfer, Why, EVENTFDS};

/// A system call: its number, the object it works on, and the category of its time.
#[derive(Clone, Copy, Debug)]
pub struct Sys {
    pub nr: u16,
    pub object: Option<(Object, i32)>,
    pub category: Category,
}

/// What a task can wait for.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    Bytes(usize),
    Room(usize),
    /// Bytes in the pipe, or the timeout.
    Readable(usize, usize),
    Event(usize),
    Lock(usize),
    Token(usize),
    Zombie,
    Journal,
    Net(NetUntil),
    /// As `Net`, or the timeout.
    Timed(NetUntil, usize),
}

#[derive(Clone, Copy, Debug)]
pub enum Stage {
    Begin,
    Recheck,
    Leave,
}

#[derive(Clone, Debug)]
pub enum Moved {
    Nothing(i64),
    /// The bytes that the call moved, or the pid that it collected.
    Counted,
    In(usize),
    Out(usize),
    /// A count of one, to or from an eventfd.
    Event {
        eventfd: usize,
        is_write: bool,
    },
    Path,
    Net(NetMoved),
}

/// A new task.
#[derive(Clone, Debug)]
pub struct Birth {
    pub thread: bool,
    pub comm: &'static str,
    pub acts: VecDeque<Act>,
}

#[derive(Clone, Debug)]
pub enum Op {
    /// Work at the current level.
    Run(u64),
    Resched,
    Yield,
    Enter(Sys),
    Leave(Moved),
    Push(Doing),
    Pop(u16),
    Wait(Until, Why, Stage),
    Put {
        pipe: usize,
        left: u64,
    },
    Take {
        pipe: usize,
        want: u64,
    },
    WakeOne(Queue),
    WakeAll(Queue),
    WakePipe(usize),
    FutexWake(usize),
    EventAdd(usize),
    EventTake(usize),
    Close(usize),
    Fire(usize),
    /// An interrupt, or the softirq of this number, will fire the token.
    Later(usize, Option<u16>),
    AskJournal(usize),
    TakeJournal,
    Fork(Birth, bool),
    WakeNew,
    Exec(&'static str),
    Reap,
    Collected,
    VforkDone,
    Exit,
    /// The process can be waited for by its parent.
    Zombie(u32),
    Die,
    /// The client begins to send request `n`, or has read its answer or part of it.
    Asks(usize),
    Answered(usize),
    /// The next act of the program, before all others.
    Then(Act),
    /// Reads on until `left` bytes have come.
    ReadOn {
        pipe: usize,
        left: u64,
        trip: Option<usize>,
    },
    /// Serves the request whose bytes the last read brought, or ends at the end of the pipe.
    ServeRead,
    /// Operations on sockets and semaphores.
    Net(NetOp),
}

impl Machine {
    fn met(&self, task: TaskNo, until: Until) -> bool {
        match until {
            Until::Bytes(pipe) => self.pipes[pipe].held > 0 || self.pipes[pipe].closed,
            Until::Room(pipe) => self.pipes[pipe].held < self.pipes[pipe].capacity,
            Until::Readable(pipe, timeout) => self.pipes[pipe].held > 0 || self.tokens[timeout],
            Until::Event(eventfd) => self.eventfds[eventfd] > 0,
            Until::Lock(lock) => self.locks[lock] || self.tasks[task].futex_woken,
            Until::Token(token) => self.tokens[token],
            Until::Zombie => {
                let mine = self.tasks[task].tgid;
                self.zombies.iter().any(|(parent, _)| *parent == mine)
            }
            Until::Journal => !self.commits.is_empty(),
            Until::Net(until) => self.net_met(task, until),
            Until::Timed(until, timeout) => self.tokens[timeout] || self.net_met(task, until),
        }
    }

    fn queues(&self, task: TaskNo, until: Until) -> Vec<Queue> {
        match until {
            Until::Bytes(pipe) => vec![Queue::Readers(pipe)],
            Until::Room(pipe) => vec![Queue::Writers(pipe)],
            Until::Readable(pipe, timeout) => vec![Queue::Pollers(pipe), Queue::Token(timeout)],
            Until::Event(eventfd) => vec![Queue::Event(eventfd)],
            Until::Lock(lock) => vec![Queue::Lock(lock)],
            Until::Token(token) => vec![Queue::Token(token)],
            Until::Zombie => vec![Queue::Children(self.tasks[task].tgid)],
            Until::Journal => vec![Queue::Journal],
            Until::Net(until) => self.net_queues(until),
            Until::Timed(until, timeout) => {
                self.net_queues(until).into_iter().chain([Queue::Token(timeout)]).collect()
            }
        }
    }

    fn queue_up(&mut self, task: TaskNo, until: Until, waiting: bool) {
        for queue in self.queues(task, until) {
            let waiters = self.waiters.entry(queue).or_default();
            let was = waiters.iter().position(|&waiter| waiter == task);
            match (was, waiting) {
                (None, true) => waiters.push(task),
                (Some(at), false) => {
                    waiters.remove(at);
                }
                _ => {}
            }
        }
    }

    /// The loop of every wait: mark as asleep, check again, leave the CPU, check again.
    fn wait(&mut self, cpu: usize, no: TaskNo, until: Until, why: Why, stage: Stage) {
        let going = self.tasks[no].going;
        let leaving = matches!(stage, Stage::Leave);
        if !leaving && self.met(no, until) {
            self.queue_up(no, until, false);
            self.tasks[no].going = Going::No;
            self.tasks[no].futex_woken = false;
            return;
        }
        let (first, second, last) = (self.tape.length(2), self.tape.length(2), self.tape.length(3));
        let then = |run, stage| [Op::Run(run), Op::Wait(until, why, stage)];
        match (stage, going) {
            (Stage::Begin, _) => {
                self.queue_up(no, until, true);
                self.tasks[no].going = Going::Preparing { woken: false };
                self.tasks[no].first(then(first, Stage::Recheck));
            }
            (Stage::Recheck, Going::Preparing { woken: false }) => {
                self.tasks[no].going = Going::Leaving { wakeup: None };
                self.tasks[no].first(then(second, Stage::Leave));
            }
            // Woken in vain before it slept.
            (Stage::Recheck, _) => {
                self.tasks[no].going = Going::No;
                self.tasks[no].first(then(first, Stage::Begin));
            }
            (Stage::Leave, _) => {
                self.tasks[no].going = Going::No;
                self.tasks[no].first(then(last, Stage::Begin));
                self.tasks[no].state = State::Asleep;
                if let Going::Leaving { wakeup: Some(_) } = going {
                    self.make_ready(no);
                }
                let uninterruptible = matches!(why, Why::Disk { .. } | Why::Other);
                self.put_off(cpu, if uninterruptible { 2 } else { 1 }, false, why);
                if let (Going::Leaving { wakeup }, Some(away)) = (going, self.tasks[no].away) {
                    self.truth.aways[away].wakeup = wakeup;
                }
            }
        }
    }

    /// Performs an operation of the current task.
    pub fn perform(&mut self, cpu: usize, no: TaskNo, op: Op) {
        match op {
            Op::Run(_) => unreachable!("time passes elsewhere"),
            Op::Resched => self.may_preempt(cpu, no),
            Op::Yield => {
                if self.next_task(cpu, false).is_some() {
                    self.stay_runnable(no);
                    self.put_off(cpu, 0, false, Why::Preempted);
                }
            }
            Op::Enter(sys) => self.enter(no, sys),
            Op::Leave(moved) => self.leave_call(cpu, no, &moved),
            Op::Push(level) => self.tasks[no].levels.push((level, self.now_ns)),
            Op::Pop(number) => self.pop(cpu, no, number),
            Op::Wait(until, why, stage) => self.wait(cpu, no, until, why, stage),
            Op::Put { pipe, left } => self.put(no, pipe, left),
            Op::Take { pipe, want } => self.take(no, pipe, want),
            Op::WakeOne(queue) => {
                if let Some(&task) = self.waiters.get(&queue).and_then(|tasks| tasks.first()) {
                    self.wake(cpu, task);
                }
            }
            Op::WakeAll(queue) => self.wake_all(cpu, queue),
            Op::WakePipe(pipe) => {
                // Readers wait exclusively, pollers do not. Sometimes all are woken.
                if self.tape.once_in(5) {
                    self.wake_all(cpu, Queue::Readers(pipe));
                } else {
                    self.perform(cpu, no, Op::WakeOne(Queue::Readers(pipe)));
                }
                self.wake_all(cpu, Queue::Pollers(pipe));
            }
            Op::FutexWake(lock) => {
                let waiters = self.waiters.entry(Queue::Lock(lock)).or_default();
                if !waiters.is_empty() {
                    let task = waiters.remove(0);
                    self.tasks[task].futex_woken = true;
                    self.wake(cpu, task);
                }
            }
            Op::EventAdd(eventfd) => {
                self.eventfds[eventfd] += 1;
                self.tasks[no].moved_from = Some(self.events_moved[eventfd].0);
                self.events_moved[eventfd].0 += 1;
            }
            Op::EventTake(eventfd) => {
                self.eventfds[eventfd] -= 1;
                self.tasks[no].moved_from = Some(self.events_moved[eventfd].1);
                self.events_moved[eventfd].1 += 1;
            }
            Op::Close(pipe) => {
                self.pipes[pipe].closed = true;
                self.wake_all(cpu, Queue::Readers(pipe));
            }
            Op::Fire(token) => self.fire(cpu, token),
            Op::Later(token, softirq) => self.later(token, softirq),
            Op::AskJournal(token) => {
                self.commits.push(token);
                self.wake_all(cpu, Queue::Journal);
            }
            Op::TakeJournal => {
                let commits: Vec<_> = self.commits.drain(..).collect();
                let done = commits.into_iter().flat_map(|token| [Op::Fire(token), Op::Run(1)]);
                self.tasks[no].first(done.collect::<Vec<_>>());
            }
            Op::Fork(birth, vfork) => self.fork(cpu, no, birth, vfork),
            Op::WakeNew => {
                let child = self.tasks[no].moved as u32;
                let child = self.task_of(child);
                let (flags, own) = self.context(cpu);
                self.wake_as(cpu, child, flags | WAKING_NEW, own);
            }
            Op::Exec(comm) => self.exec(cpu, no, comm),
            Op::Reap => {
                let mine = self.tasks[no].tgid;
                let found = self.zombies.iter().position(|(parent, _)| *parent == mine);
                let (_, child) = self.zombies.remove(found.expect("waited for"));
                self.tasks[no].moved = i64::from(self.tasks[child].tid);
            }
            Op::Collected => {
                let child = self.task_of(self.tasks[no].moved as u32);
                self.plan.reaped.push((self.now_ns, no, child));
            }
            Op::VforkDone => {
                if let Some(token) = self.tasks[no].vfork {
                    self.fire(cpu, token);
                }
            }
            Op::Exit => self.exit(cpu, no),
            Op::Zombie(parent) => {
                self.zombies.push((parent, no));
                self.wake_all(cpu, Queue::Children(parent));
            }
            Op::Die => {
                self.tasks[no].state = State::Dead;
                self.put_off(cpu, 0x80, false, Why::Dead);
            }
            Op::Asks(trip) => {
                let trip = &mut self.plan.trips[trip];
                trip.start_ns.get_or_insert(self.now_ns);
            }
            Op::Answered(trip) => {
                let trip = &mut self.plan.trips[trip];
                trip.end = Some((self.now_ns, no));
            }
            Op::Then(act) => self.tasks[no].acts.push_front(act),
            Op::ReadOn { pipe, left, trip } => {
                let left = left - self.tasks[no].moved as u64;
                if left > 0 {
                    self.tasks[no].acts.push_front(Act::Read { pipe, left, trip });
                }
            }
            Op::ServeRead => self.serve_read(no),
            Op::Net(op) => self.perform_net(cpu, no, op),
        }
    }

    pub fn task_of(&self, tid: u32) -> TaskNo {
        self.tasks.iter().position(|task| task.tid == tid).expect("a task of that tid")
    }

    // ---- system calls -------------------------------------------------------------------------

    pub fn enter(&mut self, no: TaskNo, sys: Sys) {
        self.truth.calls.push(truth::Call {
            task: no,
            category: sys.category,
            enter_ns: self.now_ns,
            exit_ns: u64::MAX,
            transfer: None,
        });
        let task = &mut self.tasks[no];
        task.call = Some((self.truth.calls.len() - 1, sys));
        task.levels.push((Doing::Call, self.now_ns));
        task.moved = 0;
        task.moved_from = None;
    }

    fn leave_call(&mut self, cpu: usize, no: TaskNo, moved: &Moved) {
        let now_ns = self.now_ns;
        let (call, sys) = self.tasks[no].call.take().expect("in a call");
        let level = self.tasks[no].levels.pop();
        assert!(matches!(level, Some((Doing::Call, _))));
        self.truth.calls[call].exit_ns = now_ns;
        let count = self.tasks[no].moved;
        let mut io = None;
        let (mut path, mut accepted_of_ns, mut has_timeout) = (None, None, false);
        let ret = match *moved {
            Moved::Nothing(ret) => ret,
            Moved::Counted => count,
            Moved::In(number) | Moved::Out(number) => {
                let is_write = matches!(moved, Moved::Out(_));
                let pipe = &mut self.pipes[number];
                let counter = if is_write { &mut pipe.written } else { &mut pipe.read };
                let (object, fd) = sys.object.expect("a pipe");
                let offset = if count > 0 { *counter } else { 0 };
                io = Some(story::io(object, fd, is_write, (offset, count)));
                if count > 0 {
                    let (from, to) = (*counter, *counter + count as u64);
                    self.truth.miscounted |= self.tasks[no].moved_from != Some(from);
                    *counter = to;
                    self.truth.calls[call].transfer =
                        Some(Transfer { pipe: number, is_write, from, to });
                }
                count
            }
            Moved::Event { eventfd, is_write } => {
                let (object, fd) = sys.object.expect("an eventfd");
                let (added, taken) = &mut self.events_counted[eventfd];
                let counter = if is_write { added } else { taken };
                let from = *counter;
                *counter += 1;
                io = Some(story::io(object, fd, is_write, (from, 1)));
                self.truth.miscounted |= self.tasks[no].moved_from != Some(from);
                let pipe = EVENTFDS + eventfd;
                self.truth.calls[call].transfer =
                    Some(Transfer { pipe, is_write, from, to: from + 1 });
                8
            }
            Moved::Path => {
                path = Some("/etc/hosts".into());
                3
            }
            Moved::Net(moved) => {
                let told = self.net_moved(cpu, no, moved);
                (io, accepted_of_ns) = (told.io, told.accepted_of_ns);
                has_timeout = told.has_timeout;
                told.ret
            }
        };
        if self.tasks[no].traced {
            let enter_ns = self.truth.calls[call].enter_ns;
            let call = rpc_call(&sys, enter_ns, now_ns, ret, io, path);
            let mut call = Call { has_timeout, ..call };
            if accepted_of_ns.is_some() {
                call.rare_mut().accepted_of_ns = accepted_of_ns;
            }
            let tid = self.tasks[no].tid;
            self.emit(cpu, What::Call { tid, call });
        }
    }

    fn put(&mut self, no: TaskNo, pipe: usize, left: u64) {
        let room = self.pipes[pipe].capacity - self.pipes[pipe].held;
        let task = &mut self.tasks[no];
        if room == 0 {
            task.first([
                Op::Wait(Until::Room(pipe), Why::Pipe, Stage::Begin),
                Op::Put { pipe, left },
            ]);
            return;
        }
        let now = room.min(left);
        task.moved_from.get_or_insert(self.pipes[pipe].put);
        self.pipes[pipe].put += now;
        self.pipes[pipe].held += now;
        task.moved += now as i64;
        let (before, after) = (self.tape.pick(4), self.tape.length(3));
        let mut ops = vec![Op::Run(before), Op::WakePipe(pipe), Op::Run(after), Op::Resched];
        if left > now {
            ops.push(Op::Put { pipe, left: left - now });
        }
        // As over loopback: the wake-up may come from a softirq that runs inside the call.
        if self.tape.once_in(8) {
            ops[0] = Op::Run(before + 1);
            ops.insert(1, Op::Push(Doing::Softirq));
            ops.insert(2, Op::Run(1));
            ops.insert(4, Op::Run(1));
            ops.insert(5, Op::Pop(3));
        }
        self.tasks[no].first(ops);
    }

    fn take(&mut self, no: TaskNo, pipe: usize, want: u64) {
        let held = &mut self.pipes[pipe].held;
        let now = want.min(*held);
        let was_full = *held == self.pipes[pipe].capacity;
        let held = &mut self.pipes[pipe].held;
        *held -= now;
        let left = *held;
        self.tasks[no].moved = now as i64;
        self.tasks[no].moved_from = Some(self.pipes[pipe].taken);
        self.pipes[pipe].taken += now;
        let mut ops = Vec::new();
        if now > 0 {
            ops.push(Op::Run(self.tape.length(3)));
            // The buffer may be on a page that is not present.
            ops.extend(self.maybe_fault());
        }
        if left > 0 {
            ops.extend([Op::WakeOne(Queue::Readers(pipe)), Op::Run(1)]);
        }
        if was_full {
            ops.extend([Op::WakeAll(Queue::Writers(pipe)), Op::Run(1)]);
        }
        self.tasks[no].first(ops);
    }

    /// Sometimes a page fault; some of these wait for a disk.
    pub fn maybe_fault(&mut self) -> Vec<Op> {
        if !self.tape.once_in(8) {
            return Vec::new();
        }
        let major = self.tape.once_in(3);
        let mut ops = vec![Op::Push(Doing::Fault), Op::Run(self.tape.length(3))];
        if major {
            let token = self.token();
            ops.extend([
                Op::Later(token, Some(4)),
                Op::Wait(Until::Token(token), Why::Disk { iowait: true }, Stage::Begin),
            ]);
        }
        ops.extend([Op::Run(self.tape.length(3)), Op::Pop(u16::from(major)), Op::Run(1)]);
        ops
    }

    /// The end of a fault or interrupt.
    fn pop(&mut self, cpu: usize, no: TaskNo, number: u16) {
        let (level, enter_ns) = self.tasks[no].levels.pop().expect("something to end");
        if !self.tasks[no].traced {
            return;
        }
        let tid = self.tasks[no].tid;
        let what = match level {
            Doing::Fault => {
                let kernel = if self.tasks[no].call.is_some() { FAULT_KERNEL } else { 0 };
                let flags = kernel | if number != 0 { FAULT_MAJOR } else { 0 };
                What::Fault { tid, enter_ns, ip: 0x5000, flags }
            }
            Doing::Hardirq => What::Irq { tid, enter_ns, hard: true, number },
            Doing::Softirq => What::Irq { tid, enter_ns, hard: false, number },
            other => unreachable!("{other:?} does not end like that"),
        };
        self.emit(cpu, what);
    }

    // ---- processes ----------------------------------------------------------------------------

    fn fork(&mut self, cpu: usize, parent: TaskNo, birth: Birth, vfork: bool) {
        let tid = 100 + self.tasks.len() as u32;
        let tgid = if birth.thread { self.tasks[parent].tgid } else { tid };
        let mut task = Task::new(tid, tgid, birth.comm);
        task.cpu = cpu;
        task.traced = self.tasks[parent].traced;
        task.acts = birth.acts;
        if !birth.thread {
            task.parent_tgid = self.tasks[parent].tgid;
        }
        let child = self.add(task);
        // The child's first system call exit is that of a clone() that it never entered.
        let clone = Sys { nr: super::story::CLONE, object: None, category: Category::KernelExec };
        self.enter(child, clone);
        let run = self.tape.length(4);
        self.tasks[child].ops = [Op::Run(run), Op::Leave(Moved::Nothing(0)), Op::Run(1)].into();
        let away = self.leave(child, Why::Born);
        self.tasks[child].away = Some(away);

        let (call, _) = self.tasks[parent].call.as_ref().expect("in clone()");
        let enter_ns = self.truth.calls[*call].enter_ns;
        self.tasks[parent].moved = i64::from(tid);
        if birth.thread {
            self.plan.threads.push(child);
        } else {
            self.plan.children.push((child, enter_ns, false));
            self.net.plan.born(child, birth.comm);
            if birth.comm == "server0" {
                self.plan.server_tgid = tid;
            }
        }
        if vfork {
            let token = self.token();
            self.tasks[child].vfork = Some(token);
            let wait = Op::Wait(Until::Token(token), Why::Other, Stage::Begin);
            // After the wake-up of the child, which is the second operation from now.
            let at = self.tasks[parent].ops.len().min(3);
            self.tasks[parent].ops.insert(at, wait);
        }
        let what = What::Fork {
            parent: self.tasks[parent].tid,
            child: tid,
            child_tgid: tgid,
            flags: if self.tasks[child].traced { TASK_TRACED } else { 0 }
                | if birth.thread { TASK_THREAD } else { 0 },
            enter_ns,
            comm: birth.comm.into(),
        };
        self.emit(cpu, what);
    }

    fn exec(&mut self, cpu: usize, no: TaskNo, comm: &str) {
        self.tasks[no].comm = comm.into();
        for child in &mut self.plan.children {
            child.2 |= child.0 == no;
        }
        let tid = self.tasks[no].tid;
        self.emit(cpu, What::Rename { tid, comm: comm.into() });
        let exec = Exec {
            tid,
            old_tid: tid,
            traced: true,
            entry: 0x40_0000,
            interp_base: 0,
            comm: comm.into(),
            path: None,
        };
        self.emit(cpu, What::Exec(Box::new(exec)));
    }

    /// sched_process_exit, and what comes after it.
    fn exit(&mut self, cpu: usize, no: TaskNo) {
        let now_ns = self.now_ns;
        let (call, sys) = *self.tasks[no].call.as_ref().expect("in exit()");
        let (tid, tgid) = (self.tasks[no].tid, self.tasks[no].tgid);
        let mut record = rpc_call(&sys, self.truth.calls[call].enter_ns, now_ns, 0, None, None);
        record.unfinished = true;
        let traced = self.tasks[no].traced;
        if traced {
            self.emit(cpu, What::Call { tid, call: record });
        }
        self.emit(cpu, What::Exit { tid, tgid, code: 0, traced });
        let gone = self.tasks[no].gone;
        let mut ops = vec![Op::Run(self.tape.length(3))];
        if let Some(token) = self.tasks[no].vfork {
            ops.extend([Op::Fire(token), Op::Run(1)]);
        }
        ops.extend([Op::Fire(gone), Op::Run(self.tape.length(3))]);
        if tid == tgid {
            let parent = self.tasks[no].parent_tgid;
            ops.extend([Op::Zombie(parent), Op::Run(1)]);
        }
        ops.push(Op::Die);
        self.tasks[no].first(ops);
    }

    /// Records the requests that were performed, at the end of the run.
    pub fn settle(&mut self) {
        for trip in &self.plan.trips {
            let (Some(start_ns), Some((end_ns, client))) = (trip.start_ns, trip.end) else {
                continue;
            };
            self.truth.asked.push(Asked {
                kind: Kind::Pipe,
                start_ns,
                end_ns,
                client,
                server_tgid: self.plan.server_tgid,
                child: None,
                messages: vec![
                    (0, trip.asked_from, trip.asked_from + trip.asked.iter().sum::<u64>()),
                    (1, trip.answer_from, trip.answer_from + trip.answer.iter().sum::<u64>()),
                ],
            });
        }
        for &(child, start_ns, execs) in &self.plan.children {
            let reaped = self.plan.reaped.iter().find(|(_, _, reaped)| *reaped == child);
            if let (true, Some(&(end_ns, client, _))) = (execs, reaped) {
                self.truth.asked.push(Asked {
                    kind: Kind::Exec,
                    start_ns,
                    end_ns,
                    client,
                    server_tgid: self.tasks[child].tgid,
                    child: Some(child),
                    messages: Vec::new(),
                });
            }
        }
    }
}

fn rpc_call(
    sys: &Sys,
    enter_ns: u64,
    exit_ns: u64,
    ret: i64,
    io: Option<Io>,
    path: Option<Arc<str>>,
) -> Call {
    Call { io, path, ..Call::new(sys.nr, (enter_ns, exit_ns), ret) }
}
