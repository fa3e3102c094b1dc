//! Tasks and threads to which several requests hand work in memory, and that do one thing after the other without a
//! rest: for instance an actor with a channel, or a worker with a queue. Such a worker takes no questions in and
//! answers none. What it does is for the thread or task that it next hands something: since it last handed something to
//! another request, or since this request gave it the work. Until then this request waits for its turn.
//!
//! A thread or task that waits for room in such a worker's queue has its turn still to come when there is room.

use crate::ownership::handed::{
    is_task, may_be_handed, rested_for_work, waits_for_room, MOST_RIVALS,
};
use crate::ownership::marks::{Mark, MarkKind, Question};
use crate::timeline::futex_roles::condition;
use crate::timeline::gallop::count_before;
use crate::walk::*;

/// Limit of the steps over what a worker did for one request.
const MOST_STEPS: usize = 16_384;

/// Limit of the calls in which a worker asks and hears that are examined.
const MOST_ASKED: usize = 256;

impl Walk<'_> {
    /// When the turn began of a thread or task whose sleep such a worker ended, if the worker had handed something to
    /// another request meanwhile.
    pub(super) fn turn_after_another(
        &self,
        thread: ThreadId,
        off: &Off,
        wake: Wake,
    ) -> Option<u64> {
        let handed_ns = self.handed_to_another(thread, off, wake);
        handed_ns.filter(|ns| *ns > off.start_ns).map(|ns| turn_ns(ns, off, wake))
    }

    /// The same where no path leads to the request through what the worker does: the worker was at work for others when
    /// the sleep began, or has been told since that there is work.
    pub(super) fn turn_at_once(&self, thread: ThreadId, off: &Off, wake: Wake) -> Option<u64> {
        let handed_ns = self.handed_to_another(thread, off, wake);
        let since_ns = handed_ns.or_else(|| self.told_of_work(thread, off, wake));
        since_ns.map(|ns| turn_ns(ns, off, wake))
    }

    fn may_be_served_in_turn(&self, thread: ThreadId, off: &Off, wake: Wake) -> bool {
        let (t, by) = (self.world.thread(thread), self.world.thread(wake.waker));
        self.applies(Rule::Turn)
            && is_task(self.world, thread) == is_task(self.world, wake.waker)
            && (may_be_handed(self.world, thread, off) || waits_for_room(off))
            && by.process == t.process
            && !by.marks.serves()
            && !self.is_told_to_several((wake.waker, wake.at_ns), thread, off)
    }

    /// Whether the waker, just before or after, woke others that waited for the same futex. Then it told all of them
    /// something, as a virtual machine tells the threads that it had stopped, and worked for none of them alone.
    fn is_told_to_several(
        &self,
        (waker, woken_ns): (ThreadId, u64),
        woken: ThreadId,
        off: &Off,
    ) -> bool {
        let awaited = |off: &Off| off.call.as_ref().and_then(condition);
        let Some(futex) = awaited(off) else { return false };
        let woke = &self.world.thread(waker).woke;
        let before = count_before(woke, |(at_ns, _)| *at_ns < woken_ns);
        let after = count_before(woke, |(at_ns, _)| *at_ns <= woken_ns);
        let neighbors = [before.checked_sub(1), Some(after)];
        neighbors.into_iter().flatten().filter_map(|at| woke.get(at)).any(|(at_ns, to)| {
            let slept = self.world.thread(*to).off_before(*at_ns);
            let waited = |of: &Off| of.end_ns >= *at_ns && awaited(of) == Some(futex);
            *to != woken && slept.is_some_and(waited)
        })
    }

    /// When the worker last handed something to a thread or task that waited for it with another request. The worker
    /// has not rested since, nor did this request end its last rest: then it would have begun with this request.
    fn handed_to_another(&self, thread: ThreadId, off: &Off, wake: Wake) -> Option<u64> {
        if !self.may_be_served_in_turn(thread, off, wake) {
            return None;
        }
        let woke = &self.world.thread(wake.waker).woke;
        let until = count_before(woke, |(at_ns, _)| *at_ns < wake.at_ns);
        let mut handed = woke.range(..until).rev().take(MOST_RIVALS);
        let is_anothers = |at_ns: u64, to: ThreadId| {
            let t = self.world.thread(to);
            let slept = t.off_before(at_ns).filter(|of| of.end_ns >= at_ns);
            let slept = slept.filter(|of| may_be_handed(self.world, to, of));
            let is_alone = |of: &&Off| !self.is_told_to_several((wake.waker, at_ns), to, of);
            let slept = slept.filter(|of| to != thread && is_alone(of));
            let question = slept.and_then(|of| self.world.works_for(to, of.start_ns));
            question.is_some_and(|(question, _)| !self.is_goals(&question))
        };
        let (handed_ns, _) = *handed.find(|(at_ns, to)| is_anothers(*at_ns, *to))?;
        let rested = rested_for_work(self.world, wake.waker, (handed_ns, wake.at_ns))?;
        let begun = || rested_for_work(self.world, wake.waker, (0, handed_ns)).flatten()?.wake;
        let is_first =
            || begun().is_some_and(|by| by.waker == thread && by.at_ns >= self.goal.start_ns);
        let one_by_one = asks_one_by_one(self.world, wake.waker, (handed_ns, wake.at_ns));
        (rested.is_none() && one_by_one && !is_first()).then_some(handed_ns)
    }

    /// When a thread or task with a question last woke the worker, if the question is this request's, or if the worker
    /// has woken that thread since: then what it asked for is done. The worker has not rested since.
    fn told_of_work(&self, thread: ThreadId, off: &Off, wake: Wake) -> Option<u64> {
        if !self.may_be_served_in_turn(thread, off, wake) {
            return None;
        }
        let rest = rested_for_work(self.world, wake.waker, (0, wake.at_ns)).flatten()?;
        let told = rest.wake.filter(|told| told.by_waker() && told.waker != wake.waker)?;
        let by = self.world.works_for(told.waker, told.at_ns);
        let woke = &self.world.thread(wake.waker).woke;
        let since = count_before(woke, |(at_ns, _)| *at_ns <= told.at_ns);
        let woken = woke.range(since..).take_while(|(at_ns, _)| *at_ns < wake.at_ns);
        let is_done = woken.take(MOST_RIVALS).any(|(_, to)| *to == told.waker);
        // A wait for room behind what the request itself has given is no wait for others.
        let is_own = |question: &Question| self.is_goals(question) && !waits_for_room(off);
        let of_work = may_be_handed(self.world, wake.waker, rest)
            && by.is_some_and(|(question, _)| is_done || is_own(&question))
            && asks_one_by_one(self.world, wake.waker, (told.at_ns, wake.at_ns));
        of_work.then_some(told.at_ns)
    }

    /// The step over the sleep of `thread`, if its turn began: emits what the worker did since then, and the wait for
    /// the turn.
    pub(super) fn served_since(
        &mut self,
        thread: ThreadId,
        (off, wake): (&Off, Wake),
        turn_ns: Option<u64>,
        (edge_ns, woken_ns): (u64, u64),
        depth: usize,
    ) -> Result<Option<Step>, NotYet> {
        let begin_ns = off.start_ns.max(self.goal.start_ns);
        let turn_ns = turn_ns.map(|ns| ns.min(edge_ns).max(begin_ns));
        // The thread may have been woken before it slept.
        let begins = |ns: u64| ns < edge_ns || waits_for_room(off) && begin_ns < edge_ns;
        let turn_ns = turn_ns.filter(|ns| begins(*ns) && depth < MAX_DEPTH);
        let Some(turn_ns) = turn_ns else { return Ok(None) };
        let (mark, rule) = (self.output.out.len(), self.output.rule);
        let (shared, likely) = (self.output.shared, self.output.likely);
        let by_marks = self.output.by_marks;
        self.awake(thread, edge_ns, woken_ns)?;
        self.output.rule = Rule::Turn;
        let is_done = self.worked_since(wake.waker, (turn_ns, edge_ns), depth)?;
        self.output.rule = rule;
        (self.output.shared, self.output.likely) = (shared, likely);
        self.output.by_marks = by_marks;
        if !is_done {
            self.output.out.truncate(mark);
            return Ok(None);
        }
        let waited = (begin_ns, turn_ns);
        self.queue(wake.waker, waited, Category::QueueApp, OTHERS_TURN, Rule::Turn);
        Ok(Some(Step::Go(thread, begin_ns)))
    }

    /// Emits what the worker did in `[from_ns, to_ns)`, and what it waited for, if a path leads through that.
    fn worked_since(
        &mut self,
        worker: ThreadId,
        (from_ns, to_ns): (u64, u64),
        depth: usize,
    ) -> Result<bool, NotYet> {
        let (mark, astray) = (self.output.out.len(), self.attempts.astray);
        let way = self.search.set_out();
        let (mut thread, mut at_ns) = (worker, to_ns);
        let most_steps = self.settings.most_steps.min(self.attempts.steps + MOST_STEPS);
        while at_ns > from_ns && self.attempts.steps <= most_steps {
            match self.step(thread, at_ns, depth + 1)? {
                Step::Go(t, ns) | Step::Joined(t, ns) => (thread, at_ns) = (t, ns),
                Step::Nowhere | Step::NoLock => break,
            }
        }
        self.search.return_to(way);
        if at_ns > from_ns {
            return Ok(false);
        }
        // It is known which request this work was for.
        self.attempts.astray = astray;
        while self.output.out[mark..].last().is_some_and(|raw| raw.end_ns <= from_ns) {
            self.output.out.pop();
        }
        for raw in &mut self.output.out[mark..] {
            raw.start_ns = raw.start_ns.max(from_ns);
            raw.evidence = Evidence::Modelled;
            raw.cause = Some(self.output.names.texts.extend(raw.cause, HANDED_UNSEEN));
        }
        Ok(true)
    }
}

/// When the turn begins of a thread or task that a worker woke, if the worker has done nothing for others since
/// `since_ns`: at that time, or when there is room for what it gives.
fn turn_ns(since_ns: u64, off: &Off, wake: Wake) -> u64 {
    if waits_for_room(off) {
        wake.at_ns
    } else {
        since_ns
    }
}

/// Whether a worker, if it asks other servers at all, has one answer after the other. In that time it asked before it
/// heard anything, on one connection at a time, and before that time it had heard what it had asked last. A worker that
/// reads the answers to what others asked, or to several questions at once, works for none of them in turn. Of tasks
/// that ask, too little is known: several may share their connection.
fn asks_one_by_one(world: &World, worker: ThreadId, (from_ns, to_ns): (u64, u64)) -> bool {
    let marks = &world.thread(worker).marks.list;
    let until = count_before(marks, |mark| mark.enter_ns < to_ns);
    if until == 0 || is_task(world, worker) {
        return until == 0;
    }
    let first = count_before(marks, |mark| mark.enter_ns < from_ns).min(until);
    let mut later: Option<&Mark> = None;
    for index in (0..until).rev().take(MOST_ASKED) {
        let mark = &marks[index];
        let is_same =
            |later: &Mark| later.kind == mark.kind && later.moved.object == mark.moved.object;
        let fits = match mark.kind {
            MarkKind::Hears => {
                let goes_on = |later: &Mark| later.kind == MarkKind::Asks || is_same(later);
                index != first && world.messages_of(mark) <= 1 && later.is_none_or(goes_on)
            }
            MarkKind::Asks => match later {
                Some(later) => later.kind == MarkKind::Hears || is_same(later),
                None => index >= first,
            },
            MarkKind::Takes | MarkKind::Answers => false,
        };
        if !fits || mark.kind == MarkKind::Asks && (index == 0 || index < first) {
            return fits;
        }
        later = Some(mark);
    }
    false
}
