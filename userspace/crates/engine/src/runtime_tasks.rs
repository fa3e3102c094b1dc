//! Presents tasks of runtimes as threads. Go's runtime, tokio, asyncio and Node run tasks on threads as they like, so a
//! thread's time line says little about which task waits for what. Where the changes of tasks' states were captured
//! (`--tasks`), each task becomes a thread of its process. What a thread does while it runs a task is presented as done
//! by that task. The remaining time of the threads is the runtime's scheduler. The rest of the engine sees threads that
//! sleep, wake each other and have CPUs:
//!
//! | the runtime | what the engine sees |
//! |---|---|
//! | runs a task on a thread | the thread loses its CPU to the task, whose wait ends |
//! | parks it | it goes to sleep, in a call with the runtime's name for the wait; the thread has its CPU again |
//! | readies it | a wake-up by the task or thread that did so; by an interrupt, if the scheduler did, which only passes on that a descriptor is ready or a timer is due |
//! | makes it, ends it | a thread is born, exits |
//!
//! asyncio and tokio do not say what a task waits for when it parks (`TaskWait::AWAIT`); the event that ends the wait
//! shows it. A task that is readied before it has parked is woken when it parks. In asyncio, a timer's callback is no
//! task: a task that it wakes has waited for time to pass, until the loop found the timer due.

mod at;
mod doers;
mod held;
mod node;
mod task;
mod uvloop;

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Call, Event, OpenCall, TaskChange, TaskWait, TaskWaitSort, What};
use crate::task_wait;
use at::At;
use held::Held;
use rpcprobe_model::FIRST_RUNTIME_TASK;
use rpcprobe_record::{TASK_THREAD, TASK_TRACED, WAKING_HARDIRQ, WAKING_NEW};
use task::{waking_of_goroutine, Park, Task};

/// States of a thread that leaves its CPU (include/linux/sched.h).
const TASK_RUNNING: u16 = 0;
const TASK_INTERRUPTIBLE: u16 = 1;
const EXIT_DEAD: u16 = 0x10;

/// include/uapi/asm-generic/errno.h
const ETIMEDOUT: i64 = 110;

/// The tasks that live, and the threads that run them.
#[derive(Debug, Default)]
pub struct RuntimeTasks {
    /// By process and by what distinguishes tasks in it.
    living: FxHashMap<(u32, u64), Task>,
    /// For each thread that runs a task: that task and its number.
    running: FxHashMap<u32, ((u32, u64), u32)>,
    /// The number of live tasks in a process; most processes have none.
    by_process: FxHashMap<u32, usize>,
    /// Processes whose tasks are goroutines.
    of_go: FxHashSet<u32>,
    /// Tasks known only from their making: which thread or task made them, and when.
    made_by: FxHashMap<(u32, u64), (u32, u64)>,
    /// Timers that are due, and since when, by what distinguishes their callbacks; and the threads that run timers'
    /// callbacks, with the time since which those were due.
    due: FxHashMap<(u32, u64), u64>,
    in_timers: FxHashMap<u32, u64>,
    /// Streams that are to write, and the tasks that have given them what to write.
    given: FxHashMap<(u32, u64), (u32, u64)>,
    /// When each thread that runs Node's event loop last learned what is ready.
    looked_ns: FxHashMap<u32, u64>,
    /// Node's timers in the order in which they were made. Timers among them that have not run may have been given up.
    timers: VecDeque<(u32, u64)>,
    held: Held,
    made: u32,
}

impl RuntimeTasks {
    /// Adds to `events` what the rest of the engine gets in place of `event`, or of events before it.
    /// [`RuntimeTasks::finish`] must be called after the last event.
    pub fn take(&mut self, event: Event, events: &mut Vec<Event>) {
        let (living, made_by) = (&self.living, &self.made_by);
        let is_known = |who| living.contains_key(&who) || made_by.contains_key(&who);
        match self.held.take(event, is_known) {
            Some(event) => self.tell(event, events),
            None => self.tell_known(events),
        }
    }

    /// There are no more events.
    pub fn finish(&mut self, events: &mut Vec<Event>) {
        self.held.give_up();
        self.tell_known(events);
    }

    fn tell_known(&mut self, events: &mut Vec<Event>) {
        while let Some(event) = self.held.next() {
            self.tell(event, events);
        }
    }

    fn tell(&mut self, mut event: Event, events: &mut Vec<Event>) {
        let What::RuntimeTask { tid, tgid, address, change } = event.what else {
            if !self.has_nothing() {
                self.gone(&event, events);
            }
            if let (What::Call { tid, call }, false) = (&event.what, self.looked_ns.is_empty()) {
                self.looked(*tid, call, event.ts_ns);
            }
            if !self.running.is_empty() {
                self.of_tasks(&mut event.what);
            }
            return events.push(event);
        };
        let at = At { ts_ns: event.ts_ns, cpu: event.cpu, events };
        let who = (tgid, address);
        match change {
            TaskChange::Born => self.born(who, tid, at),
            TaskChange::Readied(wait) => self.readied(who, tid, wait, at),
            TaskChange::Steps => self.steps(who, tid, at),
            TaskChange::StepsAfter(wait) => self.steps_after(who, tid, wait, at),
            TaskChange::Timers => self.timers(tid, at),
            TaskChange::Drained => {}
            TaskChange::Queued if self.is_known(who) => {
                self.readied(who, tid, Some(TaskWait::AWAIT), at)
            }
            TaskChange::Queued => self.born(who, tid, at),
            TaskChange::Gives => self.gives(who, tid, at),
            TaskChange::Due => {
                self.made_by.remove(&who);
                self.due.insert(who, event.ts_ns);
            }
            TaskChange::Made => self.made(who, tid, at),
            TaskChange::Waited(wait) => self.waited(tid, wait, at),
            TaskChange::Runs => self.runs(who, tid, at),
            TaskChange::Parks(wait) if address == 0 => self.rests(tid, wait, at),
            TaskChange::Parks(wait) => self.parks(who, tid, wait, at),
            TaskChange::Yields => self.leaves(who, tid, TASK_RUNNING, None, at),
            TaskChange::Ends => self.ends(who, tid, at),
        }
    }

    fn has_nothing(&self) -> bool {
        self.living.is_empty()
            && self.made_by.is_empty()
            && self.due.is_empty()
            && self.in_timers.is_empty()
            && self.looked_ns.is_empty()
    }

    fn is_known(&self, who: (u32, u64)) -> bool {
        self.living.contains_key(&who) || self.made_by.contains_key(&who)
    }

    /// The number of the task that the thread runs, or else of the thread.
    fn doer(&self, tid: u32) -> u32 {
        self.running.get(&tid).map_or(tid, |(_, number)| *number)
    }

    fn born(&mut self, who: (u32, u64), by: u32, mut at: At<'_>) {
        // A former task of this address: its end was not reported, nor that its thread left it.
        if let Some(on) = self.living.get(&who).and_then(|former| former.on) {
            self.left(who, on, EXIT_DEAD, None, &mut at);
        }
        self.end(who, &mut at);
        let number = next(&mut self.made)();
        let parent = self.doer(by);
        let comm = Box::default();
        let flags = TASK_THREAD | TASK_TRACED;
        let (child_tgid, enter_ns) = (who.0, at.ts_ns);
        at.tell(What::Fork { parent, child: number, child_tgid, flags, enter_ns, comm });
        at.tell(What::Waking { waker: parent, wakee: number, flags: WAKING_NEW, block: 0 });
        self.living.insert(who, Task::new(number));
        *self.by_process.entry(who.0).or_default() += 1;
    }

    /// A task was made. A former task of its address is over.
    fn made(&mut self, who: (u32, u64), by: u32, mut at: At<'_>) {
        if let Some(on) = self.living.get(&who).and_then(|former| former.on) {
            self.left(who, on, EXIT_DEAD, None, &mut at);
        }
        self.end(who, &mut at);
        self.due.remove(&who);
        self.made_by.insert(who, (self.doer(by), at.ts_ns));
        self.made_timer(who);
    }

    /// The task of that address. If it is not known yet, it was made before (and is born now), or it is older than the
    /// capture; then it is asleep, as far as is known.
    fn found(&mut self, who: (u32, u64), at: &mut At<'_>) -> &mut Task {
        if let Some((parent, made_ns)) = self.made_by.remove(&who) {
            let number = next(&mut self.made)();
            let (flags, comm, tgid) = (TASK_THREAD | TASK_TRACED, Box::default(), who.0);
            let (child, child_tgid, enter_ns) = (number, tgid, made_ns);
            let what = What::Fork { parent, child, child_tgid, flags, enter_ns, comm };
            at.events.push(Event { ts_ns: made_ns, cpu: at.cpu, what });
            *self.by_process.entry(tgid).or_default() += 1;
            let park = Park { wait: None, since_ns: made_ns, ran_out: false };
            self.living.insert(who, Task { parked: Some(park), ..Task::new(number) });
        }
        let (next, by_process) = (next(&mut self.made), &mut self.by_process);
        self.living.entry(who).or_insert_with(|| {
            let (tid, tgid) = (next(), who.0);
            *by_process.entry(tgid).or_default() += 1;
            at.tell(What::Task { tid, tgid, kthread: false, comm: Box::default() });
            at.tell(What::Marked { tid, tgid, asleep: Some(TASK_INTERRUPTIBLE), call: None });
            Task::new(tid)
        })
    }

    fn readied(&mut self, who: (u32, u64), by: u32, told: Option<TaskWait>, mut at: At<'_>) {
        let waker = self.doer(by);
        let by_task = self.running.get(&by).and_then(|(who, _)| self.living.get(who));
        let by_runtime = by_task.map(|by| by.is_of_runtime);
        let due_ns = self.in_timers.get(&by).copied();
        let told = told.map(|wait| if due_ns.is_some() { TaskWait::TIMER } else { wait });
        let task = self.found(who, &mut at);
        // From when the timer was due, the task waited for its turn, as the callback did.
        if let (Some(due_ns), Some(park)) = (due_ns, task.parked) {
            at.ts_ns = due_ns.max(park.since_ns);
        }
        match told {
            Some(wait) if task.on.is_some() => task.readied_early(waker, wait, at),
            Some(wait) => task.woken(waker, wait, at),
            None => {
                let sort = task.parked.and_then(|park| park.wait).map(TaskWait::sort);
                let flags = waking_of_goroutine(sort, by_runtime);
                if let Some(park) = &mut task.parked {
                    park.ran_out = flags == WAKING_HARDIRQ;
                }
                at.tell(What::Waking { waker, wakee: task.number, flags, block: 0 });
            }
        }
    }

    /// A step of asyncio's loop.
    fn steps(&mut self, who: (u32, u64), tid: u32, mut at: At<'_>) {
        self.in_timers.remove(&tid);
        let (who, is_awaited) = self.writer(who);
        if let Some(&(running, _)) = self.running.get(&tid) {
            if running == who && !self.due.contains_key(&who) {
                // The task takes two steps in a row: it did not wait.
                self.living.entry(who).and_modify(|task| task.early = None);
                return;
            }
            self.parks(running, tid, Some(TaskWait::AWAIT), at.again());
        }
        match self.due.remove(&who) {
            Some(due_ns) => drop(self.in_timers.insert(tid, due_ns)),
            None => self.runs(who, tid, at),
        }
        if is_awaited {
            self.goes_on_after_writing(who);
        }
    }

    /// The thread waits for whatever is ready next.
    fn rests(&mut self, tid: u32, wait: Option<TaskWait>, at: At<'_>) {
        self.in_timers.remove(&tid);
        if let Some(&(running, _)) = self.running.get(&tid) {
            self.parks(running, tid, wait, at);
        }
    }

    fn waited(&mut self, tid: u32, wait: Option<TaskWait>, mut at: At<'_>) {
        let running = self.running.get(&tid).and_then(|(who, _)| self.living.get_mut(who));
        let Some(task) = running else { return };
        if let (Some(since_ns), Some(_)) = (task.waited_since_ns.take(), wait) {
            let nr = task_wait::nr_of(wait);
            at.tell(What::Waited { tid: task.number, since_ns, nr });
        }
    }

    fn runs(&mut self, who: (u32, u64), tid: u32, mut at: At<'_>) {
        match self.running.get(&tid) {
            Some((running, _)) if *running == who => return,
            // The thread left the task in a way that is not reported, for a task that continues its work (as coroutines
            // do).
            Some(&(left, _)) => self.left(left, tid, TASK_RUNNING, None, &mut at),
            None => {}
        }
        let task = self.found(who, &mut at);
        let number = task.number;
        let parked = task.parked.take();
        (task.early, task.is_readied) = (None, false);
        let by_hand = parked.filter(|park| park.wait == Some(TaskWait::AWAIT));
        task.waited_since_ns = by_hand.map(|park| park.since_ns);
        if let Some(before) = task.on.replace(tid) {
            self.running.remove(&before); // its leaving that thread was not reported
        }
        self.running.insert(tid, (who, number));
        at.switch(tid, number, (TASK_RUNNING, None));
        if let Some(Park { wait, since_ns, ran_out }) = parked {
            let ret = match wait.map(TaskWait::sort) {
                Some(TaskWaitSort::Descriptor) => 1,
                Some(TaskWaitSort::Timer) => 0,
                _ if ran_out => -ETIMEDOUT,
                _ => 0,
            };
            let call = Call::new(task_wait::nr_of(wait), (since_ns, at.ts_ns), ret);
            at.tell(What::Call { tid: number, call });
        }
    }

    fn parks(&mut self, who: (u32, u64), tid: u32, wait: Option<TaskWait>, mut at: At<'_>) {
        let since_ns = at.ts_ns;
        if wait.is_some_and(TaskWait::is_gos) {
            self.of_go.insert(who.0);
        }
        let call =
            OpenCall { nr: task_wait::nr_of(wait), enter_ns: since_ns, object: None, fd: -1 };
        let known = self.living.contains_key(&who);
        let task = self.found(who, &mut at);
        if task.runs_once {
            return self.ends(who, tid, at);
        }
        task.parked = Some(Park { wait, since_ns, ran_out: false });
        let number = task.number;
        let early = task.early.take();
        task.is_readied = false;
        if early.is_some_and(|(waker, _)| waker == number) {
            task.parked = None; // it lets others go first
            return self.leaves(who, tid, TASK_RUNNING, None, at);
        }
        // Other tasks have their program's name.
        if let Some(TaskWaitSort::Runtime(Some(name))) = wait.map(TaskWait::sort) {
            if !std::mem::replace(&mut task.is_of_runtime, true) {
                at.tell(What::Rename { tid: number, comm: name.into() });
            }
        }
        if known {
            self.leaves(who, tid, TASK_INTERRUPTIBLE, Some(call), at.again());
        }
        if let (Some((waker, wait)), Some(task)) = (early, self.living.get_mut(&who)) {
            task.woken(waker, wait, at);
        }
    }

    /// The thread leaves the task, if it ran it.
    fn leaves(
        &mut self,
        who: (u32, u64),
        tid: u32,
        state: u16,
        call: Option<OpenCall>,
        mut at: At<'_>,
    ) {
        if self.running.get(&tid).is_some_and(|(running, _)| *running == who) {
            self.left(who, tid, state, call, &mut at);
        }
    }

    fn left(
        &mut self,
        who: (u32, u64),
        tid: u32,
        state: u16,
        call: Option<OpenCall>,
        at: &mut At<'_>,
    ) {
        self.running.remove(&tid);
        if let Some(task) = self.living.get_mut(&who) {
            task.on = None;
            at.switch(task.number, tid, (state, call));
        }
    }

    fn ends(&mut self, who: (u32, u64), tid: u32, mut at: At<'_>) {
        let ran = self.running.get(&tid).is_some_and(|(running, _)| *running == who);
        let number = self.living.get(&who).map(|task| task.number);
        self.end(who, &mut at);
        if let (true, Some(number)) = (ran, number) {
            self.running.remove(&tid);
            at.switch(number, tid, (EXIT_DEAD, None));
        }
    }

    fn end(&mut self, who: (u32, u64), at: &mut At<'_>) {
        let Some(task) = self.living.remove(&who) else { return };
        let (tid, tgid) = (task.number, who.0);
        if let Some(on) = task.on {
            self.running.remove(&on);
        }
        if let Some(count) = self.by_process.get_mut(&tgid) {
            *count -= 1;
            if *count == 0 {
                self.by_process.remove(&tgid);
            }
        }
        at.tell(What::Exit { tid, tgid, code: 0, traced: true });
    }

    /// Tasks end with their process, and with its program.
    fn gone(&mut self, event: &Event, events: &mut Vec<Event>) {
        if let What::Exit { tid, .. } = &event.what {
            self.in_timers.remove(tid);
            self.looked_ns.remove(tid);
        }
        let process = match &event.what {
            What::Exit { tid, tgid, .. } if tid == tgid => *tgid,
            What::Exit { tid, .. } if self.running.contains_key(tid) => {
                let (who, _) = self.running[tid];
                let mut at = At { ts_ns: event.ts_ns, cpu: event.cpu, events };
                return self.left(who, *tid, TASK_INTERRUPTIBLE, None, &mut at);
            }
            What::Exec(exec) => exec.tid,
            _ => return,
        };
        self.made_by.retain(|(tgid, _), _| *tgid != process);
        self.due.retain(|(tgid, _), _| *tgid != process);
        self.of_go.remove(&process);
        self.given.retain(|(tgid, _), _| *tgid != process);
        if !self.by_process.contains_key(&process) {
            return;
        }
        let mut at = At { ts_ns: event.ts_ns, cpu: event.cpu, events };
        let mut of_process: Vec<_> =
            self.living.iter().filter(|((tgid, _), _)| *tgid == process).collect();
        of_process.sort_unstable_by_key(|(_, task)| task.number);
        let of_process: Vec<_> =
            of_process.into_iter().map(|(who, task)| (*who, task.on)).collect();
        for (who, on) in of_process {
            if let Some(tid) = on {
                self.left(who, tid, TASK_INTERRUPTIBLE, None, &mut at);
            }
            self.end(who, &mut at);
        }
    }
}

/// Gives the next task its number.
fn next(made: &mut u32) -> impl FnOnce() -> u32 + '_ {
    || {
        let number = FIRST_RUNTIME_TASK + *made;
        // There are 2^31 of them, more than a capture can hold records of.
        *made = (*made + 1) & (FIRST_RUNTIME_TASK - 1);
        number
    }
}

#[cfg(test)]
#[path = "runtime_tasks_tests.rs"]
mod tests;
