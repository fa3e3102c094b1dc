//! Timers of programs: requests that go on after a while, in an event loop or in a pool whose workers wait for them;
//! handlers that sleep; timeouts that expire for other requests or for no request.

use rpcprobe::model::Category;

use super::facts::{Delay, ReqNo};
use super::net::{NetMoved, NetOp, NetUntil};
use super::programs::{Design, FRONT};
use super::steps::{Step, HANDED};
use crate::walk::kernel::{Moved, Op, Stage, Sys, Until};
use crate::walk::machine::{Interrupt, Machine};
use crate::walk::programs::{plain, Act};
use crate::walk::story::{condition, FUTEX, POLL};
use crate::walk::truth::{TaskNo, Why};

/// Address of the futexes that are never woken, on which threads only wait for time to pass.
const NOBODY: u64 = 0xa000;
const ETIMEDOUT: i64 = 110;

/// A timer: when it is due, and the request and the step that go on then, or `None` if it belongs to no request.
#[derive(Clone, Debug)]
struct Pending {
    due_ns: u64,
    of: Option<(ReqNo, Step)>,
}

/// The timers of the server that clients ask.
#[derive(Default)]
pub struct Timers {
    /// Whether the server has timers.
    pub on: bool,
    /// The workers of a pool wait for the timers, not the thread that polls.
    by_workers: bool,
    /// The loop handles due timers before what is ready.
    first: bool,
    /// Period of a timer that belongs to no request.
    every_ns: Option<u64>,
    pending: Vec<Pending>,
    /// Whether requests hold a lock of the program's own while they are put off; which request holds it, and which wait
    /// for it.
    locked: bool,
    holder: Option<ReqNo>,
    waiting: Vec<(ReqNo, Step)>,
}

impl Timers {
    fn next_ns(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.due_ns).min()
    }

    /// The requests whose timers are due.
    fn due(&self, now_ns: u64) -> impl Iterator<Item = ReqNo> + '_ {
        let due = self.pending.iter().filter(move |pending| pending.due_ns <= now_ns);
        due.filter_map(|pending| pending.of.as_ref().map(|(req, _)| *req))
    }

    fn take_due(&mut self, now_ns: u64) -> Vec<Pending> {
        let (mut due, later): (Vec<_>, Vec<_>) =
            self.pending.drain(..).partition(|pending| pending.due_ns <= now_ns);
        self.pending = later;
        due.sort_by_key(|pending| pending.due_ns);
        due
    }
}

impl Machine {
    pub fn set_up_timers(&mut self) {
        let design = self.net.plan.design;
        let by_workers = design == Design::Pool && self.tape.once_in(2);
        let first = self.tape.once_in(2);
        let every_ns = [None, Some(60), Some(600), Some(5_000)][self.tape.pick(4) as usize];
        let loops = matches!(design, Design::Loop | Design::Batch);
        let locked = loops && self.tape.once_in(4);
        let now_ns = self.now_ns;
        let ticks = every_ns.map(|ns| Pending { due_ns: now_ns + ns, of: None });
        let pending = ticks.into_iter().collect();
        self.net.plan.timers =
            Timers { on: true, by_workers, first, every_ns, pending, locked, ..Timers::default() };
    }

    /// What the thread that polls does with a request that it has worked on: `then`, now or after a while.
    pub fn then_by_loop(&mut self, req: ReqNo, then: Step) -> Step {
        match self.net.plan.timers.by_workers {
            true => then,
            false => self.then(req, then),
        }
    }

    /// A worker answers the request now, or some worker does after a while.
    pub fn then_by_worker(&mut self, req: ReqNo) -> Step {
        match self.net.plan.timers.by_workers {
            true => self.then(req, Step::Answer(req)),
            false => Step::Answer(req),
        }
    }

    fn then(&mut self, req: ReqNo, then: Step) -> Step {
        let on = self.net.plan.timers.on && !self.is_behind(self.net.facts.reqs[req].conn);
        match on && self.tape.once_in(2) {
            true => Step::Delay(req, Box::new(then)),
            false => then,
        }
    }

    /// A thread that serves one request at a time sleeps, in one of several ways.
    pub fn sleeps(&mut self) -> Vec<Act> {
        match self.net.plan.timers.on {
            true => (0..self.tape.pick(3)).map(|_| Act::Load(Step::Sleep)).collect(),
            false => Vec::new(),
        }
    }

    pub fn has_timers(&self, set: usize) -> bool {
        let timers = &self.net.plan.timers;
        timers.on && !timers.by_workers && self.net.sets[set].listener == Some(FRONT)
    }

    /// The requests whose timers are due as a poll ends.
    pub fn due_reqs(&self, set: usize) -> Vec<ReqNo> {
        match self.has_timers(set) {
            true => self.net.plan.timers.due(self.now_ns).collect(),
            false => Vec::new(),
        }
    }

    // ---- waits --------------------------------------------------------------------------------

    pub fn timed_poll(&mut self, no: TaskNo, set: usize) -> Vec<Op> {
        let next_ns = self.net.plan.timers.next_ns().filter(|_| self.has_timers(set));
        let until = NetUntil::Ready(set);
        let sys = plain(POLL, Category::KernelPoll);
        self.timed_call(no, (sys, until, Why::Readiness), next_ns, NetMoved::Ready)
    }

    /// A call that waits for `until`, and no longer than until `due_ns`.
    fn timed_call(
        &mut self,
        no: TaskNo,
        (sys, until, why): (Sys, NetUntil, Why),
        due_ns: Option<u64>,
        moved: NetMoved,
    ) -> Vec<Op> {
        let Some(due_ns) = due_ns else {
            self.local(no).timed = false;
            let wait = Op::Wait(Until::Net(until), why, Stage::Begin);
            return self.call(sys, vec![wait], Moved::Net(moved));
        };
        // A timeout of 0 does not count as a timeout.
        self.local(no).timed = due_ns > self.now_ns;
        let token = self.token();
        let late_ns = self.tape.pick(4);
        let does = vec![
            Op::Net(NetOp::Arm { token, due_ns: due_ns + late_ns }),
            Op::Run(1),
            Op::Wait(Until::Timed(until, token), why, Stage::Begin),
            Op::Net(NetOp::Disarm { token }),
        ];
        self.call(sys, does, Moved::Net(moved))
    }

    pub fn arm(&mut self, cpu: usize, token: usize, due_ns: u64) {
        if due_ns <= self.now_ns {
            self.tokens[token] = true;
            return;
        }
        let vector = rpcprobe::records::VEC_TIMER;
        let (at_ns, token) = (due_ns, Some(token));
        self.interrupts.push(Interrupt { at_ns, cpu, vector, softirq: None, token });
    }

    pub fn disarm(&mut self, token: usize) {
        self.interrupts.retain(|interrupt| interrupt.token != Some(token));
    }

    /// The return value of a call that waited without looking at descriptors.
    pub fn waited(&self, no: TaskNo, until: NetUntil) -> i64 {
        match self.net_met(no, until) {
            true => 0,
            false => -ETIMEDOUT,
        }
    }

    /// Sleeps in the middle of its work: in a call for sleeping, in a poll of nothing, or on a futex that is never
    /// woken.
    pub fn sleep_ops(&mut self, no: TaskNo) -> Vec<Op> {
        let due_ns = self.now_ns + self.tape.length(200);
        let until = NetUntil::Never;
        match self.tape.pick(3) {
            0 => {
                self.any_acts(no, vec![Act::Nap]);
                Vec::new()
            }
            1 => {
                let sys = plain(POLL, Category::KernelPoll);
                let moved = NetMoved::Slept { ret: 0 };
                self.timed_call(no, (sys, until, Why::Timer), Some(due_ns), moved)
            }
            _ => {
                let object = Some((condition(NOBODY + 16 * no as u64), 0));
                let sys = Sys { nr: FUTEX, object, category: Category::KernelFutex };
                let moved = NetMoved::Slept { ret: -ETIMEDOUT };
                self.timed_call(no, (sys, until, Why::Timer), Some(due_ns), moved)
            }
        }
    }

    /// A worker waits for work and for the next timer. `None`: a timer is due already.
    pub fn wait_for_work(&mut self, no: TaskNo, sys: Sys, number: usize) -> Option<Vec<Op>> {
        let timers = &self.net.plan.timers;
        let next_ns = timers.next_ns().filter(|_| timers.by_workers && number == HANDED);
        self.local(no).for_timer = next_ns.is_some_and(|ns| ns <= self.now_ns);
        if self.local(no).for_timer {
            return None;
        }
        let until = NetUntil::Semaphore(number);
        let moved = NetMoved::Waited(until);
        Some(self.timed_call(no, (sys, until, Why::Condition), next_ns, moved))
    }

    // ---- what is due --------------------------------------------------------------------------

    /// Puts a request off; or lets it wait for the lock.
    pub fn delay(&mut self, no: TaskNo, req: ReqNo, then: Step) {
        let timers = &mut self.net.plan.timers;
        if timers.locked && timers.holder.is_some() {
            timers.waiting.push((req, then));
        } else {
            if timers.locked {
                timers.holder = Some(req);
            }
            let due_ns = self.now_ns + self.tape.length(400);
            self.net.plan.timers.pending.push(Pending { due_ns, of: Some((req, then)) });
            let (from_ns, resumed_ns) = (self.now_ns, None);
            self.net.facts.delays.push(Delay { req, from_ns, due_ns, resumed_ns });
        }
        self.load_acts(no, vec![Step::For(Vec::new())]);
    }

    /// The thread that polls handles due timers, before or after what is ready.
    pub fn with_due(&mut self, set: usize, ready: Vec<Act>) -> Vec<Act> {
        if !self.has_timers(set) {
            return ready;
        }
        let mut due = Vec::new();
        for pending in self.net.plan.timers.take_due(self.now_ns) {
            due.extend(self.goes_on(pending));
        }
        let mut parts = [due, ready];
        if !self.net.plan.timers.first {
            parts.reverse();
        }
        parts.concat()
    }

    fn goes_on(&mut self, pending: Pending) -> Vec<Act> {
        let Some((req, then)) = pending.of else {
            let every_ns = self.net.plan.timers.every_ns.expect("it is nobody's");
            let due_ns = self.now_ns + every_ns;
            self.net.plan.timers.pending.push(Pending { due_ns, of: None });
            return vec![Act::Load(Step::For(Vec::new())), Act::Compute];
        };
        let mut acts = vec![Act::Load(Step::For(vec![req])), Act::Load(Step::Resume(req))];
        acts.extend(self.computes());
        acts.push(Act::Load(then));
        if self.net.plan.timers.locked {
            acts.push(Act::Load(Step::LetGo(req)));
        }
        acts
    }

    pub fn resume(&mut self, req: ReqNo) {
        let now_ns = self.now_ns;
        let mut delays = self.net.facts.delays.iter_mut().rev();
        let delay = delays.find(|delay| delay.req == req).expect("it was put off");
        delay.resumed_ns = Some(now_ns);
    }

    /// Gives the lock to the next request that waits for it.
    pub fn let_go(&mut self, no: TaskNo, req: ReqNo) {
        let timers = &mut self.net.plan.timers;
        if timers.holder != Some(req) {
            return;
        }
        timers.holder = None;
        if timers.waiting.is_empty() {
            return;
        }
        let (next, then) = timers.waiting.remove(0);
        let mut acts = vec![Act::Load(Step::For(vec![next]))];
        acts.extend(self.computes());
        acts.push(Act::Load(Step::Delay(next, Box::new(then))));
        self.any_acts(no, acts);
    }

    /// A worker handles the first due timer, if no other worker does.
    pub fn take_due(&mut self, no: TaskNo) {
        let due = self.net.plan.timers.take_due(self.now_ns);
        let mut due = due.into_iter();
        let first = due.next();
        self.net.plan.timers.pending.extend(due);
        let mut acts = first.map_or(Vec::new(), |first| self.goes_on(first));
        acts.push(Act::Load(Step::For(Vec::new())));
        acts.extend(self.net.plan.design.worker());
        self.any_acts(no, acts);
    }
}
