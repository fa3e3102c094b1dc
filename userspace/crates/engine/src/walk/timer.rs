//! Rule `timer`: a request that its server goes on with after a rest that timed out has waited for a timer of the
//! program's own.
//!
//! An event loop, or a runtime that runs tasks on threads of its own (Go's, tokio's), serves others while a request
//! waits for time to pass. While one of its threads rests, nothing that it has is ready to run, so the request did not
//! wait for its turn; the rest ended because a timer was due. It is not seen which request the timer belongs to: it is
//! taken to be the request that the thread goes on with.

use crate::ownership::marks::{is_rest, Mark, MarkKind, Question};
use crate::walk::*;

/// `detail` of such a wait: the rest timed out; or it ended sooner, for another request. A lock that another request
/// holds, and releases after a timer of its own, looks the same (`lockwait` of experiments/runtimes): only the runtime
/// shows the difference (`--tasks`).
const TIMER: &str = "for a timer, or for another request in memory, not seen which: its thread rested until the timeout";
const PERHAPS: &str =
    "for a timer, or for another request in memory, not seen which: its thread rested, and a timer was pending";

/// Limit of the messages that are examined for an unanswered one.
const MOST_MARKS: usize = 64;

/// Limit of the wakers that are examined.
const MOST_WAKERS: usize = 8;

impl Walk<'_> {
    /// Step for a thread that rested in `off`, not yet or no longer at work for the request, with a timer pending: the
    /// request waited for the timer since a thread last worked for it.
    pub(super) fn waited_for_timer(
        &mut self,
        thread: ThreadId,
        off: &Off,
        woken_ns: u64,
    ) -> Option<Step> {
        let process = self.world.thread(thread).process;
        if Some(process) != self.goal.server_process {
            return None;
        }
        let ran_out = self.ran_out(thread, off)?;
        let of_process = |id: ThreadId| self.world.thread(id).process == process;
        if !self.had_all(off.start_ns) || !ran_out && self.others_had_it(thread, off, |_| true) {
            return None;
        }
        self.note_past();
        let (worker, worked_ns) = self.last_worked(of_process, off.start_ns)?;
        let from_ns = self.let_go_ns(worker, worked_ns)?.min(off.start_ns);
        let own = worker == thread && self.only_slept(thread, worked_ns, off);
        if ran_out && (own || from_ns == off.start_ns) {
            return None; // the thread's own wait
        }
        let detail = Some(self.output.names.texts.add(if ran_out { TIMER } else { PERHAPS }));
        self.output.wait_rule = Some(Rule::Timer);
        let (category, evidence) = (Category::Sleep, Evidence::Modelled);
        self.emit(thread, from_ns, woken_ns, category, detail, None, None, off.cpu, evidence);
        self.output.rule = Rule::Timer;
        Some(Step::Joined(worker, from_ns))
    }

    /// Whether a rest timed out, rather than ended for another request while a timer was still pending; `None`:
    /// neither.
    fn ran_out(&self, thread: ThreadId, off: &Off) -> Option<bool> {
        // The timeout of a poll() of one connection is that connection's.
        if !self.applies(Rule::Timer) || !is_rest(off) || off.polled().is_some() {
            return None;
        }
        if classify::off_cpu::timed_out(self.world, thread, off) {
            return Some(true);
        }
        let call = classify::on_cpu::call_at(self.world.thread(thread), off.end_ns);
        let pending = matches!(call, InCall::Closed(call) if call.has_timeout && !call.unfinished);
        (pending && self.rested_for_another(thread, off)).then_some(false)
    }

    /// The last rest with a timer pending that led to what a thread did up to `to_ns`, if it began after `from_ns`: the
    /// thread's own, or that of a thread that woke it, directly or through others. Returns the thread that rested, and
    /// the rest's end. What waited in the server's memory by then did not wait for that thread.
    pub(super) fn timer_pending_until(
        &self,
        mut thread: ThreadId,
        (from_ns, mut to_ns): (u64, u64),
    ) -> Option<(ThreadId, u64)> {
        for _ in 0..MOST_WAKERS {
            let t = self.world.thread(thread);
            let mut slept = latest_before(&t.off, |off| off.end_ns < to_ns);
            let off = slept.find(|off| waits_for_bytes(off))?;
            if off.start_ns <= from_ns {
                return None;
            }
            let timed_out =
                off.polled().is_none() && classify::off_cpu::timed_out(self.world, thread, off);
            if self.applies(Rule::Timer) && timed_out || self.ran_out(thread, off).is_some() {
                return Some((thread, off.end_ns));
            }
            let wake = off.wake.filter(|wake| wake.by_waker() && wake.waker != thread)?;
            if self.world.thread(wake.waker).process != t.process {
                return None;
            }
            (thread, to_ns) = (wake.waker, wake.at_ns.min(off.end_ns));
        }
        None
    }

    /// Whether the server had read all of the question by `at_ns`.
    pub(super) fn had_all(&self, at_ns: u64) -> bool {
        let last_read = |asked: &Message| {
            let channel = self.world.channels.get(&asked.object)?;
            let mut reads =
                Channel::overlapping(&channel.reads, asked.to.checked_sub(1)?, asked.to);
            reads.next().map(|read| read.exit_ns)
        };
        self.goal.messages.first().and_then(last_read).is_none_or(|read_ns| read_ns <= at_ns)
    }

    /// Whether a rest of the request's server may have been for another request, or the request may have been with
    /// another thread that moves messages.
    pub(super) fn may_rest_for_others(&self, thread: ThreadId, off: &Off) -> bool {
        let process = self.world.thread(thread).process;
        Some(process) == self.goal.server_process
            && is_rest(off)
            && (self.has_others_open(thread, off.start_ns)
                || self.others_had_it(thread, off, |id| self.moves_messages(id)))
    }

    /// Whether the thread had not answered the last other question that it had taken in. It may have given earlier ones
    /// to other threads.
    fn has_others_open(&self, thread: ThreadId, at_ns: u64) -> bool {
        self.others_taken(thread, at_ns).next() == Some(true)
    }

    /// How many other questions the only thread of a process had taken in and not answered.
    pub(super) fn others_open(&self, thread: ThreadId, at_ns: u64) -> usize {
        self.others_taken(thread, at_ns).filter(|open| *open).count()
    }

    /// For each other question that the thread had taken in, the last one first: whether it was still open.
    fn others_taken(&self, thread: ThreadId, at_ns: u64) -> impl Iterator<Item = bool> + '_ {
        let marks = &self.world.thread(thread).marks.list;
        let before = marks.range(..count_before(marks, |mark| mark.exit_ns <= at_ns));
        let mut answered: Vec<Question> = Vec::new();
        before.rev().take(MOST_MARKS).filter_map(move |mark| match mark.kind {
            MarkKind::Answers => {
                answered.extend(mark.of);
                None
            }
            MarkKind::Takes if !self.of_goal(mark) => {
                let is =
                    |of: &Question| of.object == mark.moved.object && of.from >= mark.moved.from;
                let open = !answered.iter().any(is);
                // Each piece of a question that came in pieces has a mark.
                answered.extend(open.then_some(mark.moved));
                Some(open)
            }
            _ => None,
        })
    }

    fn moves_messages(&self, thread: ThreadId) -> bool {
        !self.world.thread(thread).marks.list.is_empty()
    }

    /// Whether another thread of the server that satisfies `of` ran during the rest, or was about to: it may have had
    /// the request.
    fn others_had_it(&self, thread: ThreadId, off: &Off, of: impl Fn(ThreadId) -> bool) -> bool {
        let to_ns = off.runnable_ns().unwrap_or(off.end_ns);
        let threads = &self.world.process_of(thread).threads;
        let asleep = |id: ThreadId| {
            let t = self.world.thread(id);
            let slept = t.off_before(off.end_ns).is_some_and(|other| {
                other.start_ns <= off.start_ns && other.runnable_ns().is_none_or(|ns| ns >= to_ns)
            });
            slept
                || t.born_ns >= off.end_ns
                || t.exited_ns.is_some_and(|exited_ns| exited_ns <= off.start_ns)
        };
        let mut others = threads.iter().filter(|&&id| id != thread && of(id));
        threads.len() > MOST_THREADS || others.any(|&id| !asleep(id))
    }

    /// Whether a thread, since it last worked for the request and until that rest, did nothing for others as far as is
    /// known: all of its rests timed out, or it is its process's only thread and has no other request. Then these rests
    /// are its own, and what it did between them was for the request.
    fn only_slept(&self, thread: ThreadId, worked_ns: u64, off: &Off) -> bool {
        let t = self.world.thread(thread);
        let next = t.marks.list.get(count_before(&t.marks.list, |mark| mark.exit_ns <= worked_ns));
        let turned = next.is_some_and(|mark| mark.exit_ns <= off.start_ns && !self.of_goal(mark));
        let before = latest_before(&t.off, |before| before.end_ns <= off.start_ns);
        let mut rests = before
            .take_while(|before| before.start_ns >= worked_ns)
            .filter(|before| is_rest(before));
        let alone = self.serves_alone(thread, off.start_ns, 0);
        !turned
            && (alone || rests.all(|rest| classify::off_cpu::timed_out(self.world, thread, rest)))
    }

    /// When a thread that moved a message of the request, up to `worked_ns`, stopped working for it, as far as is
    /// known: it rested or waited for another thread, or turned to another request.
    pub(super) fn let_go_ns(&self, worker: ThreadId, worked_ns: u64) -> Option<u64> {
        let t = self.world.thread(worker);
        let first = count_before(&t.off, |off| off.end_ns <= worked_ns);
        let mut later = t.off.range(first..).filter(|off| off.start_ns >= worked_ns);
        let slept_ns =
            later.find(|off| is_rest(off) || waits_for_thread(off)).map(|off| off.start_ns);
        let marks = &t.marks.list;
        let next = count_before(marks, |mark| mark.exit_ns <= worked_ns);
        let turns = next.checked_sub(1).map(|own| marks[own].turns);
        let in_batch = |mark: &Mark| mark.kind == MarkKind::Takes && Some(mark.turns) == turns;
        let mut after = marks.range(next..);
        let other = after.find(|mark| !in_batch(mark) && !self.of_goal(mark));
        let turned_ns = other.map(|mark| mark.enter_ns);
        match (slept_ns, turned_ns) {
            (Some(slept_ns), Some(turned_ns)) => Some(slept_ns.min(turned_ns)),
            (slept_ns, turned_ns) => slept_ns.or(turned_ns),
        }
    }
}
