//! Goroutines as threads. Go's runtime runs goroutines on threads as it likes, so that a thread's time line tells little of
//! who waits for what. Where the runtime's changes of their states were captured (`--goroutines`), each goroutine becomes a
//! thread of its process, and what the threads do while they run one is told of that one; what is left of them is the
//! runtime's scheduler. The rest of the engine sees threads that sleep, wake each other and have CPUs:
//!
//! | the runtime | as told |
//! |---|---|
//! | runs a goroutine on a thread | the thread loses its CPU to the goroutine, whose wait ends |
//! | parks it | it goes to sleep, in a call of the name that Go has for the wait; the thread has its CPU again |
//! | readies it | a wake-up: by the goroutine that did; by an interrupt, if the scheduler did, which only passes on that a descriptor is ready or a timer is due |
//! | makes it, ends it | a thread is born, exits |

use rustc_hash::FxHashMap;

use crate::event::{Call, Event, GoChange, GoWait, GoWaitSort, OpenCall, What};
use crate::go_wait;
use rpcprobe_model::FIRST_GOROUTINE;
use rpcprobe_record::{TASK_THREAD, TASK_TRACED, WAKING_HARDIRQ, WAKING_NEW, WAKING_SOFTIRQ};

/// States of a thread that leaves its CPU (include/linux/sched.h).
const TASK_RUNNING: u16 = 0;
const TASK_INTERRUPTIBLE: u16 = 1;
const EXIT_DEAD: u16 = 0x10;

/// include/uapi/asm-generic/errno.h
const ETIMEDOUT: i64 = 110;

/// Where a goroutine waits.
#[derive(Clone, Copy, Debug)]
struct Park {
    wait: Option<GoWait>,
    since_ns: u64,
    /// A timer ended it.
    ran_out: bool,
}

#[derive(Debug)]
struct Goroutine {
    number: u32,
    /// The thread that runs it.
    on: Option<u32>,
    parked: Option<Park>,
    is_of_runtime: bool,
}

/// Which goroutines there are, and which thread runs which.
#[derive(Debug, Default)]
pub struct Goroutines {
    /// By process and by what tells them apart in it.
    living: FxHashMap<(u32, u64), Goroutine>,
    /// Threads that run one: which, of those, and its number.
    running: FxHashMap<u32, ((u32, u64), u32)>,
    /// How many live in a process: most have none.
    by_process: FxHashMap<u32, usize>,
    made: u32,
}

impl Goroutines {
    /// Adds to `events` what the rest of the engine is to be told in place of `event`.
    pub fn take(&mut self, mut event: Event, events: &mut Vec<Event>) {
        let What::Goroutine { tid, tgid, address, change } = event.what else {
            if !self.living.is_empty() {
                self.gone(&event, events);
            }
            if !self.running.is_empty() {
                self.of_goroutines(&mut event.what);
            }
            return events.push(event);
        };
        let at = At { ts_ns: event.ts_ns, cpu: event.cpu, events };
        let who = (tgid, address);
        match change {
            GoChange::Born => self.born(who, tid, at),
            GoChange::Readied => self.readied(who, tid, at),
            GoChange::Runs => self.runs(who, tid, at),
            GoChange::Parks(wait) => self.parks(who, tid, wait, at),
            GoChange::Yields => self.leaves(who, tid, TASK_RUNNING, None, at),
            GoChange::Ends => self.ends(who, tid, at),
        }
    }

    /// Who does what that thread does.
    fn doer(&self, tid: u32) -> u32 {
        self.running.get(&tid).map_or(tid, |(_, number)| *number)
    }

    fn born(&mut self, who: (u32, u64), by: u32, mut at: At<'_>) {
        // Its end was not told, nor that its thread left it.
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
        self.living.insert(who, Goroutine { number, on: None, parked: None, is_of_runtime: false });
        *self.by_process.entry(who.0).or_default() += 1;
    }

    /// One that is older than the capture; asleep, as far as is known.
    fn found(&mut self, who: (u32, u64), at: &mut At<'_>) -> &mut Goroutine {
        let (next, by_process) = (next(&mut self.made), &mut self.by_process);
        self.living.entry(who).or_insert_with(|| {
            let (tid, tgid) = (next(), who.0);
            *by_process.entry(tgid).or_default() += 1;
            at.tell(What::Task { tid, tgid, kthread: false, comm: Box::default() });
            at.tell(What::Marked { tid, tgid, asleep: Some(TASK_INTERRUPTIBLE), call: None });
            Goroutine { number: tid, on: None, parked: None, is_of_runtime: false }
        })
    }

    fn readied(&mut self, who: (u32, u64), by: u32, mut at: At<'_>) {
        let waker = self.doer(by);
        let goroutine_of = |by: u32| self.living.get(&self.running.get(&by)?.0);
        let by = goroutine_of(by).map(|by| by.is_of_runtime);
        let goroutine = self.found(who, &mut at);
        let sort = goroutine.parked.and_then(|park| park.wait).map(GoWait::sort);
        let flags = match (sort, by) {
            // The collector looks what is ready when it lets all go on.
            (Some(GoWaitSort::Descriptor), None | Some(true)) => WAKING_SOFTIRQ,
            (_, Some(_)) => 0,
            (Some(GoWaitSort::Timer | GoWaitSort::Channel) | None, None) => WAKING_HARDIRQ,
            (Some(_), None) => WAKING_SOFTIRQ,
        };
        if let Some(park) = &mut goroutine.parked {
            park.ran_out = flags == WAKING_HARDIRQ;
        }
        at.tell(What::Waking { waker, wakee: goroutine.number, flags, block: 0 });
    }

    fn runs(&mut self, who: (u32, u64), tid: u32, mut at: At<'_>) {
        match self.running.get(&tid) {
            Some((running, _)) if *running == who => return,
            // It left it in a way that is not told, for one that goes on with what it did (as coroutines do).
            Some(&(left, _)) => self.left(left, tid, TASK_RUNNING, None, &mut at),
            None => {}
        }
        let goroutine = self.found(who, &mut at);
        let number = goroutine.number;
        let parked = goroutine.parked.take();
        if let Some(before) = goroutine.on.replace(tid) {
            self.running.remove(&before); // that it was left there was not told
        }
        self.running.insert(tid, (who, number));
        at.switch(tid, number, (TASK_RUNNING, None));
        if let Some(Park { wait, since_ns, ran_out }) = parked {
            let ret = match wait.map(GoWait::sort) {
                Some(GoWaitSort::Descriptor) => 1,
                Some(GoWaitSort::Timer) => 0,
                _ if ran_out => -ETIMEDOUT,
                _ => 0,
            };
            let call = Call::new(go_wait::nr_of(wait), (since_ns, at.ts_ns), ret);
            at.tell(What::Call { tid: number, call });
        }
    }

    fn parks(&mut self, who: (u32, u64), tid: u32, wait: Option<GoWait>, mut at: At<'_>) {
        let since_ns = at.ts_ns;
        let call = OpenCall { nr: go_wait::nr_of(wait), enter_ns: since_ns, object: None, fd: -1 };
        let known = self.living.contains_key(&who);
        let goroutine = self.found(who, &mut at);
        goroutine.parked = Some(Park { wait, since_ns, ran_out: false });
        let number = goroutine.number;
        // Others have their program's name.
        if let Some(GoWaitSort::Runtime(Some(name))) = wait.map(GoWait::sort) {
            if !std::mem::replace(&mut goroutine.is_of_runtime, true) {
                at.tell(What::Rename { tid: number, comm: name.into() });
            }
        }
        if known {
            self.leaves(who, tid, TASK_INTERRUPTIBLE, Some(call), at);
        }
    }

    /// The thread leaves it, if it ran it.
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
        if let Some(goroutine) = self.living.get_mut(&who) {
            goroutine.on = None;
            at.switch(goroutine.number, tid, (state, call));
        }
    }

    fn ends(&mut self, who: (u32, u64), tid: u32, mut at: At<'_>) {
        let ran = self.running.get(&tid).is_some_and(|(running, _)| *running == who);
        let number = self.living.get(&who).map(|goroutine| goroutine.number);
        self.end(who, &mut at);
        if let (true, Some(number)) = (ran, number) {
            self.running.remove(&tid);
            at.switch(number, tid, (EXIT_DEAD, None));
        }
    }

    fn end(&mut self, who: (u32, u64), at: &mut At<'_>) {
        let Some(goroutine) = self.living.remove(&who) else { return };
        let (tid, tgid) = (goroutine.number, who.0);
        if let Some(on) = goroutine.on {
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

    /// Goroutines end with their process, and with its program.
    fn gone(&mut self, event: &Event, events: &mut Vec<Event>) {
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
        if !self.by_process.contains_key(&process) {
            return;
        }
        let mut at = At { ts_ns: event.ts_ns, cpu: event.cpu, events };
        let mut of_process: Vec<_> =
            self.living.iter().filter(|((tgid, _), _)| *tgid == process).collect();
        of_process.sort_unstable_by_key(|(_, goroutine)| goroutine.number);
        let of_process: Vec<_> =
            of_process.into_iter().map(|(who, goroutine)| (*who, goroutine.on)).collect();
        for (who, on) in of_process {
            if let Some(tid) = on {
                self.left(who, tid, TASK_INTERRUPTIBLE, None, &mut at);
            }
            self.end(who, &mut at);
        }
    }

    /// What threads do that run goroutines, those do.
    fn of_goroutines(&self, what: &mut What) {
        let running = |tid: &mut u32| *tid = self.doer(*tid);
        match what {
            What::Switch { prev, next, .. } => {
                running(prev);
                running(next);
            }
            What::Waking { waker, wakee, .. } => {
                running(waker);
                running(wakee);
            }
            What::UnseenSwitch { tid, last, .. } => {
                running(tid);
                running(last);
            }
            What::Fork { parent: tid, .. }
            | What::Call { tid, .. }
            | What::Transfer { tid, .. }
            | What::Fault { tid, .. }
            | What::Irq { tid, .. }
            | What::Contention { tid, .. }
            | What::Throttle { tid }
            | What::Function { tid, .. }
            | What::Work { queuer: tid, .. }
            | What::Stack { tid, .. }
            | What::Sample { tid, .. }
            | What::Steal { tid, .. }
            | What::Migrate { tid, .. } => running(tid),
            What::Block(block) => running(&mut block.tid),
            // Of threads themselves, of what was before, or of nobody.
            What::Lost { .. }
            | What::Exec(_)
            | What::Exit { .. }
            | What::Rename { .. }
            | What::Task { .. }
            | What::Marked { .. }
            | What::Journal { .. }
            | What::Arrival { .. }
            | What::Packet { .. }
            | What::Channel(_)
            | What::File { .. }
            | What::Role { .. }
            | What::Mapping(_)
            | What::Unit(_)
            | What::Gap { .. }
            | What::Method(_)
            | What::Goroutine { .. } => {}
        }
    }
}

/// Where what is told goes, and when and where it happened.
struct At<'e> {
    ts_ns: u64,
    cpu: u32,
    events: &'e mut Vec<Event>,
}

impl At<'_> {
    fn tell(&mut self, what: What) {
        self.events.push(Event { ts_ns: self.ts_ns, cpu: self.cpu, what });
    }

    fn switch(&mut self, prev: u32, next: u32, (state, call): (u16, Option<OpenCall>)) {
        let preempt = state == TASK_RUNNING;
        let (waited_ns, iowait) = (None, false);
        self.tell(What::Switch { prev, next, waited_ns, state, preempt, iowait, call });
    }
}

/// Numbers one more.
fn next(made: &mut u32) -> impl FnOnce() -> u32 + '_ {
    || {
        let number = FIRST_GOROUTINE + *made;
        // There are 2^31 of them: more than a capture can hold records of.
        *made = (*made + 1) & (FIRST_GOROUTINE - 1);
        number
    }
}

#[cfg(test)]
#[path = "goroutines_tests.rs"]
mod tests;
