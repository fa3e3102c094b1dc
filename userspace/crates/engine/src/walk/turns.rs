//! Rule `turn`: decides for which of several requests a thread works.
//!
//! A server's thread may work for other requests between taking a request in and answering it. That work is not this
//! request's, which waits for its turn meanwhile. The thread's marks ([`crate::ownership::marks`]) decide:
//! - from where it takes the request in, or goes on with it, until it turns to another, it works for this
//!   request;
//! - before it answers this request, since it last answered another or rested, it works for this request, too;
//! - between taking in the last of several requests and the first thing it does for any, it may work for all of them;
//!   if the first thing is for another request, which it had before, for that one as well;
//! - otherwise it works for others.
//!
//! Of a client's thread only this is known: a call that moves others' messages is work for the others.

use std::ops::Range;

use crate::ownership::marks::{batch_begin, is_rest, rested_ns, Mark, MarkKind, Question};
use crate::walk::*;

/// Limit of the marks of a thread among which its next answer is searched.
const MOST_NEXT: usize = 4;

/// Limit of the servers that are followed between the request's server and the server that is asked.
const MOST_TIERS: usize = 8;

/// For which requests a thread works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// For others, since `from_ns`.
    Others { from_ns: u64 },
    /// For the request alone, as the thread's messages show.
    Own,
    /// For `by` requests, this one among them; `likely`: inferred, for instance because nothing shows how the thread
    /// got it.
    Shared { by: u32, likely: bool },
    /// For the request, inferred: the thread had taken others' in, too, or may have taken others' work from another
    /// thread, and only the order of its messages shows it.
    Likely,
}

/// The turn of a thread between two of its marks, where it is the same at all times in `(after_ns, until_ns]`.
#[derive(Clone, Copy)]
pub(super) struct Known {
    thread: ThreadId,
    after_ns: u64,
    until_ns: u64,
    turn: Turn,
}

impl Known {
    fn at(&self, thread: ThreadId, at_ns: u64) -> Option<Turn> {
        let since_ns = match self.turn {
            Turn::Others { from_ns } => from_ns,
            Turn::Own | Turn::Shared { .. } | Turn::Likely => 0,
        };
        let holds = self.thread == thread
            && (self.after_ns.max(since_ns) < at_ns)
            && at_ns <= self.until_ns;
        holds.then_some(self.turn)
    }
}

/// The requests that the time between two marks belongs to.
struct Gap {
    /// It belongs to the request, perhaps with others.
    ours: bool,
    /// Number of requests that it belongs to; 0: nothing shows it.
    count: u32,
    /// It is inferred from the mark on one side only.
    likely: bool,
}

impl Walk<'_> {
    /// The requests for which the thread worked just before `at_ns`; `None`: its messages do not show them.
    #[inline]
    pub(super) fn turn(&self, thread: ThreadId, at_ns: u64) -> Option<Turn> {
        let t = self.world.thread(thread);
        if t.marks.list.is_empty() || !self.applies(Rule::Turn) {
            return None;
        }
        // Most steps lead from piece to piece of what a thread did between two messages.
        if let Some(turn) = self.turn_known.get().and_then(|known| known.at(thread, at_ns)) {
            return Some(turn);
        }
        let turn = self.turn_by_marks(thread, t, at_ns);
        if let Some(known) = turn.and_then(|turn| self.known(thread, t, at_ns, turn)) {
            self.turn_known.set(Some(known));
        }
        turn
    }

    /// For how long a turn holds, if the thread had it between two marks without a rest, and if no thread takes work
    /// from others.
    fn known(&self, thread: ThreadId, t: &Thread, at_ns: u64, turn: Turn) -> Option<Known> {
        let marks = &t.marks.list;
        let next = count_before(marks, |mark| mark.exit_ns < at_ns);
        let (after_ns, until_ns) =
            (marks.get(next.checked_sub(1)?)?.exit_ns, marks.get(next)?.enter_ns);
        let is_between = after_ns < at_ns && at_ns <= until_ns;
        let by_marks = Some(t.process) == self.goal.server_process
            && !self.world.process_of(thread).shares_work
            && rested_ns(t, after_ns, until_ns).is_none();
        if !is_between || !by_marks {
            return None;
        }
        // Nor does the thread move the request's messages meanwhile, in calls without a mark.
        let own = self.last_worked(|id| id == thread, until_ns);
        own.is_none_or(|(_, own_ns)| own_ns <= after_ns).then_some(Known {
            thread,
            after_ns,
            until_ns,
            turn,
        })
    }

    fn turn_by_marks(&self, thread: ThreadId, t: &Thread, at_ns: u64) -> Option<Turn> {
        let marks = &t.marks.list;
        let next = count_before(marks, |mark| mark.exit_ns < at_ns);
        let inside = marks.get(next).is_some_and(|mark| mark.enter_ns < at_ns);
        if t.off_before(at_ns).is_some_and(|off| off.end_ns >= at_ns && is_rest(off)) {
            return None;
        }
        if inside {
            let (all, ours) = self.one_call(marks, next);
            if ours {
                let is_sure = same_call(marks, next).any(|mark| mark.sure && self.of_goal(mark));
                return Some(match all > 1 {
                    true => Turn::Shared { by: all, likely: !is_sure },
                    false if is_sure => Turn::Own,
                    false => Turn::Likely,
                });
            }
        }
        if Some(t.process) != self.goal.server_process {
            // A client's thread moves others' messages, and none of this request's.
            let of_client = t.process == self.goal.client_process && !self.goal.messages.is_empty();
            let others = inside && of_client && !self.is_for_its_sake(thread, &marks[next]);
            return others.then(|| Turn::Others { from_ns: marks[next].enter_ns });
        }
        let last = next.checked_sub(1)?;
        let Some(own) = self.own_mark(thread, at_ns).filter(|own| *own <= last) else {
            // The thread got the request from another thread at an unseen time, and answers it together with others.
            let answers = !inside
                && marks.get(next).is_some_and(|mark| mark.kind == MarkKind::Answers)
                && rested_ns(t, at_ns, marks[next].enter_ns).is_none();
            let (all, ours) = if answers { self.one_call(marks, next) } else { (0, false) };
            return (ours && all > 1).then_some(Turn::Shared { by: all, likely: true });
        };
        if !inside {
            match self.gap(t, (own, last), at_ns) {
                Gap { ours: true, count: 1, likely: true } => return Some(Turn::Likely),
                Gap { count: 0, .. } => return None,
                Gap { ours: true, count: 1, .. } => {
                    return Some(match self.may_be_anothers(thread, at_ns) {
                        true => Turn::Likely,
                        false => Turn::Own,
                    })
                }
                Gap { ours: true, count, likely } => {
                    return Some(Turn::Shared { by: count, likely })
                }
                Gap { ours: false, .. } if last == own => {
                    let served_ns = marks[own].exit_ns;
                    let from_ns = rested_ns(t, served_ns, at_ns).unwrap_or(served_ns);
                    return (from_ns < at_ns).then_some(Turn::Others { from_ns });
                }
                Gap { ours: false, .. } => {}
            }
        }
        // Since the thread turned to the first of the others, or rested; except for what it did for all that it had
        // taken in together with the request.
        let rested_ns = rested_ns(t, marks[own].exit_ns, at_ns);
        let mut from_ns = marks[own + 1].enter_ns.max(rested_ns.unwrap_or(0));
        if marks[own].kind == MarkKind::Takes {
            let first = count_before(marks, |mark| mark.turns <= marks[own].turns);
            let first = marks.get(first).filter(|mark| mark.rests == marks[own].rests);
            if let Some(first) = first.filter(|mark| mark.enter_ns < at_ns) {
                from_ns = from_ns.max(first.enter_ns);
            }
        }
        (from_ns < at_ns).then_some(Turn::Others { from_ns })
    }

    /// Whether `thread`, when it fell asleep, served the request by its messages, and the thread that woke it serves,
    /// by its own messages, another request. Then `thread` had waited for something that the waker released.
    pub(super) fn serves_another(&self, thread: ThreadId, off: &Off, wake: &Wake) -> bool {
        let process = |thread: ThreadId| self.world.thread(thread).process;
        let serves_it =
            self.served_by(thread, off.start_ns, 0).is_some_and(|mark| self.of_goal(mark))
                || self.has_it_from_memory(thread, off, wake);
        let within = process(thread) == process(wake.waker)
            && (self.has_taken_anothers(wake.waker, wake.at_ns)
                || self.has_answered_another(off, wake));
        serves_it && (within || self.serves_a_stranger(wake.waker, wake.at_ns))
    }

    /// Whether a thread serves a question that is neither the request nor made for it.
    pub(super) fn serves_a_stranger(&self, thread: ThreadId, at_ns: u64) -> bool {
        let mark = self.served_by(thread, at_ns, 1);
        mark.is_some_and(|mark| {
            mark.kind == MarkKind::Takes && !self.of_goal(mark) && !self.may_be_for_it(mark.moved)
        })
    }

    /// The mark of what a thread serves at that time, as far as its messages show: a question that it has taken in, has
    /// asked or heard for, or has begun to answer. The thread has not rested since, or is its process's only thread and
    /// has `others` open questions of others.
    fn served_by(&self, thread: ThreadId, at_ns: u64, others: usize) -> Option<&Mark> {
        let unless_rested = self.world.last_unless_rested(thread, at_ns).map(|(_, mark)| mark);
        unless_rested.or_else(|| {
            let marks = &self.world.thread(thread).marks.list;
            let last = count_before(marks, |mark| mark.exit_ns <= at_ns).checked_sub(1)?;
            self.serves_alone(thread, at_ns, others).then(|| &marks[last])
        })
    }

    /// Whether a thread is its process's only one, and had taken in `others` other questions that it had not answered.
    pub(super) fn serves_alone(&self, thread: ThreadId, at_ns: u64, others: usize) -> bool {
        self.world.process_of(thread).threads.len() == 1
            && self.others_open(thread, at_ns) == others
    }

    /// Whether a question may have been asked for the request: by its server, or by a process that serves a question
    /// for which this holds. What a client asks besides is for itself, unless the request is its life.
    fn may_be_for_it(&self, mut question: Question) -> bool {
        for _ in 0..MOST_TIERS {
            let channel = self.world.channels.get(&question.object);
            let asked = channel.and_then(|channel| Channel::find(&channel.writes, question.from));
            let Some(asked) = asked else { return false };
            let asker = self.world.thread(asked.thread);
            if Some(asker.process) == self.goal.server_process {
                return true;
            }
            if asker.process == self.goal.client_process {
                return self.goal.messages.is_empty();
            }
            let marks = &asker.marks.list;
            let first = count_before(marks, |mark| mark.enter_ns < asked.enter_ns);
            let asks = |mark: &&Mark| mark.moved.object == question.object;
            match same_call(marks, first).find(asks).map(|mark| mark.of) {
                Some(Some(of)) => question = of,
                // A client, or a server for which nothing shows which question it asks for.
                _ => return marks.iter().any(|mark| mark.kind == MarkKind::Takes),
            }
        }
        true
    }

    /// Whether the thread, after a rest, went on with a message that is not the request's.
    pub(super) fn rested_for_another(&self, thread: ThreadId, off: &Off) -> bool {
        let marks = &self.world.thread(thread).marks.list;
        let next = marks.get(count_before(marks, |mark| mark.exit_ns <= off.end_ns));
        is_rest(off) && next.is_some_and(|next| !self.of_goal(next))
    }

    /// The requests that the time between the thread's mark `last` and its next mark belongs to, at `at_ns`.
    fn gap(&self, t: &Thread, (own, last): (usize, usize), at_ns: u64) -> Gap {
        let marks = &t.marks.list;
        let before = &marks[last];
        let rested = rested_ns(t, before.exit_ns, at_ns).is_some();
        let after = marks.get(last + 1).filter(|mark| rested_ns(t, at_ns, mark.enter_ns).is_none());
        let gives = after.filter(|mark| mark.kind != MarkKind::Takes);
        let begin = batch_begin(marks, last);
        let taken = match rested || before.kind != MarkKind::Takes {
            true => 0,
            false => last + 1 - begin,
        };
        let alone = |mark: &Mark, likely: bool| {
            let (ours, count) = (self.of_goal(mark), self.world.messages_of(mark));
            Gap { ours, count, likely }
        };
        // Work for one of several requests, not known which, is inferred to be for this one.
        let sure = |ours: bool, count: u32| Gap { ours, count, likely: count > 1 };
        match (taken, gives) {
            // The thread goes on with what it has asked for, or is woken for whatever comes next.
            (0, None) => match before.kind {
                MarkKind::Asks | MarkKind::Hears if !rested && before.of.is_some() => {
                    alone(before, after.is_some() || !before.sure)
                }
                // The path leads to the time after the answer: the thread ends its work for the request (it closes the
                // connection, for instance).
                MarkKind::Answers if !rested && self.of_goal(before) => {
                    Gap { ours: true, count: 1, likely: true }
                }
                _ => match (rested, after) {
                    (true, Some(after)) => alone(after, false),
                    (true, None) => sure(false, 0),
                    (false, _) => sure(false, 1),
                },
            },
            // If no message led there, the path led there by a wake-up in between: by that wake-up the thread handed
            // the answer on, before it turned to another request.
            (0, Some(gives))
                if before.kind == MarkKind::Hears
                    && !rested
                    && self.of_goal(before)
                    && !self.of_goal(gives) =>
            {
                alone(before, true)
            }
            (0, Some(gives)) => {
                let (count, ours) = self.one_call(marks, last + 1);
                // Woken, with others at hand: the thread works for what it gives next. Some of it may be for what it
                // had heard of.
                let heard = before.kind == MarkKind::Hears && !rested && !self.of_goal(before);
                Gap { ours, count, likely: rested && last != own || heard || !gives.sure }
            }
            // The thread begins with what it has just read.
            (_, None) if taken == 1 || after.is_some() => alone(before, after.is_some()),
            (_, None) => sure(own >= begin, number(taken)),
            (_, Some(gives)) => {
                let (answers, ours) = self.one_call(marks, last + 1);
                let given: Vec<&Mark> = same_call(marks, last + 1).collect();
                let last_only = given.len() == 1 && gives.of == Some(before.moved);
                if last_only && !self.answers_more(t, (begin, last)) {
                    let count = self.world.messages_of(before);
                    let ours = ours || self.of_goal(before);
                    return Gap { ours, count, likely: count > 1 || !gives.sure };
                }
                let among = |mark: &&&Mark| self.is_among(marks, begin..last + 1, mark.of);
                if given.len() == 1 && self.goes_on_one_by_one(t, (begin, last)) {
                    return Gap { ours, count: 1, likely: true };
                }
                let others = given.iter().filter(|mark| !among(mark)).count();
                let count = number(taken).max(answers).saturating_add(number(others));
                let taken_together = marks[own].kind == MarkKind::Takes && own >= begin;
                // It goes on with another request that it had before: the begin and the end of this time point to
                // different requests.
                Gap { ours: ours || taken_together, count, likely: others > 0 || count > 1 }
            }
        }
    }

    /// Whether what a thread does between its messages may be for a question that another thread has taken in: the
    /// server's threads take work from each other, and one of them answers such a question next.
    #[inline]
    pub(super) fn may_be_anothers(&self, thread: ThreadId, at_ns: u64) -> bool {
        let process = self.world.process_of(thread);
        process.shares_work && self.may_be_anothers_of(process, at_ns)
    }

    /// Whether the thread has taken in a question that is not the request's, and has not rested since.
    pub(super) fn has_taken_anothers(&self, thread: ThreadId, at_ns: u64) -> bool {
        let last = self.world.last_unless_rested(thread, at_ns);
        last.is_some_and(|(_, mark)| mark.kind == MarkKind::Takes && !self.of_goal(mark))
    }

    /// Whether a thread had taken the request from memory when it fell asleep: another thread of the server than the
    /// waker had read it, and the thread gives something out for it next, without a rest.
    fn has_it_from_memory(&self, thread: ThreadId, off: &Off, wake: &Wake) -> bool {
        let t = self.world.thread(thread);
        let next = t.marks.list.get(count_before(&t.marks.list, |mark| mark.enter_ns < off.end_ns));
        let gives = next.is_some_and(|next| {
            matches!(next.kind, MarkKind::Answers | MarkKind::Asks)
                && self.of_goal(next)
                && rested_ns(t, off.start_ns, next.enter_ns).is_none()
        });
        gives && Some(t.process) == self.goal.server_process && {
            let received = service_start::received(self.world, self.goal, t.process, off.start_ns);
            received.is_some_and(|(reader, _)| reader != thread && reader != wake.waker)
        }
    }

    /// Whether the waker that ended a wait for a futex had answered another request and has not rested since.
    fn has_answered_another(&self, off: &Off, wake: &Wake) -> bool {
        let last = self.world.last_unless_rested(wake.waker, wake.at_ns);
        off.call.is_some_and(|call| waits(call.nr, call.object) == Waits::Futex)
            && last.is_some_and(|(_, mark)| mark.kind == MarkKind::Answers && !self.of_goal(mark))
    }

    fn may_be_anothers_of(&self, process: &Process, at_ns: u64) -> bool {
        process.threads.iter().take(MOST_THREADS).any(|&id| {
            let marks = &self.world.thread(id).marks.list;
            let next = count_before(marks, |mark| mark.exit_ns <= at_ns);
            let mut next = marks.range(next..).take(MOST_NEXT);
            let answers = next.find(|mark| mark.kind == MarkKind::Answers && !self.of_goal(mark));
            let read = answers.and_then(|mark| self.world.read_of(&mark.of?));
            read.is_some_and(|read| read.exit_ns <= at_ns)
        })
    }

    /// How many messages the call of that mark moved, and whether one of them belongs to the request.
    fn one_call(&self, marks: &History<Mark>, first: usize) -> (u32, bool) {
        same_call(marks, first).fold((0, false), |(all, ours), mark| {
            (self.world.messages_of(mark).saturating_add(all), ours || self.of_goal(mark))
        })
    }

    /// The index of the thread's last mark, up to `at_ns`, that belongs to the request.
    fn own_mark(&self, thread: ThreadId, at_ns: u64) -> Option<usize> {
        let marks = &self.world.thread(thread).marks.list;
        let (_, last_ns) = self.last_worked(|id| id == thread, at_ns)?;
        let first = count_before(marks, |mark| mark.exit_ns < last_ns);
        let same = marks.range(first..).take_while(|mark| mark.exit_ns == last_ns);
        { same }.position(|mark| self.of_goal(mark)).map(|at| first + at)
    }

    /// Whether a mark belongs to the request that this one was asked for, which is read and passed on in pieces.
    fn is_for_its_sake(&self, thread: ThreadId, mark: &Mark) -> bool {
        let own = self.own_mark(thread, mark.enter_ns);
        let of = own.and_then(|own| self.world.thread(thread).marks.list[own].of);
        let is = |question: Question| of.is_some_and(|of| of.object == question.object);
        is(mark.moved) || mark.of.is_some_and(is)
    }

    /// Whether a mark belongs to the request: it moves the request's own messages, or what was asked for it.
    pub(super) fn of_goal(&self, mark: &Mark) -> bool {
        let is = |question: &Question| self.is_goals(question);
        match mark.kind {
            MarkKind::Takes | MarkKind::Answers => is(&mark.moved),
            MarkKind::Asks | MarkKind::Hears => is(&mark.moved) || mark.of.as_ref().is_some_and(is),
        }
    }

    /// Whether some of these bytes are the request's messages.
    pub(super) fn is_goals(&self, question: &Question) -> bool {
        let overlaps = |m: &Message| {
            m.object == question.object && m.from < question.to && question.from < m.to
        };
        self.goal.messages.iter().any(overlaps)
    }

    /// Whether a thread that took in the questions of marks `begin..=last`, and answered one next, answered another of
    /// them after that, with nothing else taken or asked in between, and no rest.
    fn answers_more(&self, t: &Thread, (begin, last): (usize, usize)) -> bool {
        let marks = &t.marks.list;
        next_two(t, last).is_some_and(|[_, next]| {
            next.kind == MarkKind::Answers && self.is_among(marks, begin..last, next.of)
        })
    }

    /// Whether the thread next asks for one of these questions, and then asks for or answers another: it serves one
    /// after the other.
    fn goes_on_one_by_one(&self, t: &Thread, (begin, last): (usize, usize)) -> bool {
        let among = |mark: &Mark| self.is_among(&t.marks.list, begin..last + 1, mark.of);
        next_two(t, last).is_some_and(|[first, next]| {
            let several = next.enter_ns != first.enter_ns && next.of != first.of;
            first.kind == MarkKind::Asks
                && !next.takes_in()
                && several
                && among(first)
                && among(next)
        })
    }

    /// Whether one of the marks `among` took in that question. There may be as many marks as connections, so the mark
    /// is found by the call that read the question.
    fn is_among(
        &self,
        marks: &History<Mark>,
        among: Range<usize>,
        question: Option<Question>,
    ) -> bool {
        let read = question.and_then(|question| self.world.read_of(&question));
        read.is_some_and(|read| {
            let first = count_before(marks, |mark| mark.enter_ns < read.enter_ns);
            let of_call = marks.range(first.clamp(among.start, among.end)..among.end);
            { of_call }
                .take_while(|mark| mark.enter_ns == read.enter_ns)
                .any(|mark| Some(mark.moved) == question)
        })
    }
}

/// The two marks after mark `last`, if there is no rest in between.
fn next_two(t: &Thread, last: usize) -> Option<[&Mark; 2]> {
    let marks = &t.marks.list;
    let (first, next) = (marks.get(last + 1)?, marks.get(last + 2)?);
    rested_ns(t, first.exit_ns, next.enter_ns).is_none().then_some([first, next])
}

/// The marks of one call, from mark `first` on.
fn same_call(marks: &History<Mark>, first: usize) -> impl Iterator<Item = &Mark> {
    let enter_ns = marks.get(first).map(|mark| mark.enter_ns);
    marks.range(first..).take_while(move |mark| Some(mark.enter_ns) == enter_ns)
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
