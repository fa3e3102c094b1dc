//! Rule `asked`: where a request waited for another request that was made for it (a child), the path is the child's
//! own.
//!
//! An event loop asks another server for one request and turns to others until the answer comes. Meanwhile the first
//! request waits for that answer, not for the loop, and the child's walk explains how the answer came. The rule is not
//! needed for a thread that went on with the request alone after it had asked: the ordinary steps lead there. There is
//! one exception: it slept until the answer came from an event loop, whose rests and turns only the child's walk tells.

use std::cmp::Reverse;

use crate::ownership::marks::{is_rest, Mark, MarkKind, Question};
use crate::walk::*;

/// A request that was made for another one.
#[derive(Debug)]
struct Child {
    id: u64,
    goal: Goal,
    /// It is certain which request it was made for.
    sure: bool,
}

/// Requests that were made for others, by the id of the other request.
#[derive(Debug, Default)]
pub struct Children(FxHashMap<u64, Vec<Child>>);

impl Children {
    /// Keeps a request that was made for `parent`.
    pub(crate) fn keep(&mut self, (parent, sure): (u64, bool), id: u64, goal: &Goal) {
        let goal = goal.clone();
        self.0.entry(parent).or_default().push(Child { id, goal, sure });
    }

    /// Forgets requests that ended before `horizon_ns`.
    pub(crate) fn forget_before(&mut self, horizon_ns: u64) {
        self.0.retain(|_, children| {
            children.retain(|child| child.goal.end_ns >= horizon_ns);
            !children.is_empty()
        });
    }
}

/// A call by which the answer to a child was read.
struct Heard<'w> {
    thread: ThreadId,
    enter_ns: u64,
    exit_ns: u64,
    /// Number of the byte after the answer.
    to: u64,
    child: &'w Child,
    /// It is certain that the child was made for the request that is walked.
    sure: bool,
    /// It was made for the request itself, not for one that was made for it.
    direct: bool,
}

/// Limit of the servers between the request that is walked and a request that was made for its sake.
const MOST_TIERS: usize = 8;

/// The requests that were made for the request that is walked.
pub(super) struct Made<'w> {
    all: &'w Children,
    /// The id of the request that is walked.
    id: u64,
    /// Also of what was made for these, and so on: the path may come to their threads without having led through the
    /// answers in between. (A server that has answered closes the connection, and its client waits for that.) In order
    /// of thread and time.
    heard: Vec<Heard<'w>>,
}

impl<'w> Made<'w> {
    pub(super) fn of(world: &World, all: &'w Children, id: u64) -> Made<'w> {
        let mut heard = Vec::new();
        let mut made = match all.0.contains_key(&id) {
            true => vec![(id, true)],
            false => Vec::new(),
        };
        for tier in 0..MOST_TIERS {
            if made.is_empty() {
                break;
            }
            let children = { made.iter() }
                .flat_map(|(id, sure)| all.0.get(id).into_iter().flatten().map(|of| (of, *sure)));
            let children: Vec<_> =
                children.map(|(child, by_sure)| (child, child.sure && by_sure)).collect();
            for (child, sure) in &children {
                push_heard(world, child, (*sure, tier == 0), &mut heard);
            }
            made = children.iter().map(|(child, sure)| (child.id, *sure)).collect();
        }
        // If one call read several answers, the last of them was waited for.
        heard.sort_unstable_by_key(|heard| (heard.thread, heard.exit_ns, Reverse(heard.to)));
        Made { all, id, heard }
    }

    /// Whether bytes belong to a message of a request that was made for this one.
    pub(super) fn has(&self, moved: &Question) -> bool {
        let of_child = |child: &Child| {
            let mut messages = child.goal.messages.iter();
            let overlaps =
                |m: &Message| m.object == moved.object && m.from < moved.to && moved.from < m.to;
            messages.any(overlaps)
        };
        self.all.0.get(&self.id).is_some_and(|children| children.iter().any(of_child))
    }

    /// The request whose answer the thread read just before that time.
    fn heard_at(&self, thread: ThreadId, at_ns: u64) -> Option<&Heard<'w>> {
        let before = |heard: &Heard| (heard.thread, heard.exit_ns) < (thread, at_ns);
        let next = self.heard.get(self.heard.partition_point(before))?;
        (next.thread == thread && next.enter_ns < at_ns).then_some(next)
    }
}

/// Adds the calls by which the answer to a child was read.
fn push_heard<'w>(
    world: &World,
    child: &'w Child,
    (sure, direct): (bool, bool),
    heard: &mut Vec<Heard<'w>>,
) {
    let asked = child.goal.messages.first().map(|asked| asked.object);
    for answer in child.goal.messages.iter().filter(|m| Some(m.object) != asked) {
        let channel = world.channels.get(&answer.object);
        let Some(channel) = channel.filter(|channel| channel.is_written) else { continue };
        let reads = Channel::overlapping(&channel.reads, answer.from, answer.to);
        heard.extend(reads.map(|read| Heard {
            thread: read.thread,
            enter_ns: read.enter_ns,
            exit_ns: read.exit_ns,
            to: answer.to,
            child,
            sure,
            direct,
        }));
    }
}

/// The id of a child that is not found yet: ids of requests begin at 1.
const NOT_FOUND: u64 = 0;

/// A child through which the path leads.
struct Through {
    id: u64,
    goal: Goal,
    sure: bool,
    direct: bool,
}

impl Walk<'_> {
    /// Step back from the call in which a thread read a child's answer to where the child was asked. `None`: the
    /// ordinary steps lead on.
    pub(super) fn through_child(
        &mut self,
        thread: ThreadId,
        at_ns: u64,
    ) -> Result<Option<Step>, NotYet> {
        let Some(through) = self.through(thread, at_ns) else { return Ok(None) };
        let Through { id, goal, sure, direct } = through;
        let asked_ns = goal.start_ns;
        let asked = goal.messages.first().and_then(|asked| {
            let channel = self.world.channels.get(&asked.object)?;
            Channel::find(&channel.writes, asked.from)
        });
        let Some(asker) = asked.map(|write| write.thread) else { return Ok(None) };
        if asked_ns <= self.goal.start_ns || asked_ns >= at_ns {
            return Ok(None);
        }
        let goal = Goal { end_ns: at_ns, client: thread, handed: None, ..goal };
        let mut settings = self.settings;
        settings.most_steps = settings.most_steps.saturating_sub(self.attempts.steps);
        let (mut astray, mut buffers) = (Astray::default(), Buffers::default());
        let children = (self.made.all, id);
        let mut way =
            Walk::new(self.world, &goal, settings, &mut astray, None, children, &mut buffers);
        way.run()?;
        self.attempts.steps += way.attempts.steps + way.attempts.steps_before;
        let Output { out: raws, names, .. } = buffers.output;
        if raws.iter().any(|raw| raw.rule == Rule::Lost) {
            return Ok(None);
        }
        for raw in raws {
            self.adopt(raw, &names.texts, sure);
        }
        self.note_more();
        self.trail = Trail::default();
        self.output.rule = Rule::Asked;
        // A server that a child was asked of is not of this request yet: what it had read leads there.
        let go = if direct { Step::Joined } else { Step::Go };
        Ok(Some(go(asker, asked_ns)))
    }

    /// The child whose answer the thread read just before that time, if the thread had turned to others, or rested,
    /// since it last did anything for the request that is walked; or if it slept until the answer came, and the child's
    /// server served others meanwhile.
    fn through(&self, thread: ThreadId, at_ns: u64) -> Option<Through> {
        if !self.applies(Rule::Asked) || !(self.has_asked() || self.may_pass_on(thread)) {
            return None;
        }
        let t = self.world.thread(thread);
        let InCall::Closed(call) = classify::on_cpu::call_at(t, at_ns) else { return None };
        let mut moved = t.marks.of_call(call.enter_ns);
        if !moved.any(|mark| mark.kind == MarkKind::Hears) {
            return None;
        }
        let last = self.world.last_unless_rested(thread, call.enter_ns);
        let went_on = last.is_some_and(|(_, mark)| self.of_goal(mark));
        let slept = || t.off_before(at_ns).is_some_and(|off| off.end_ns >= at_ns && is_rest(off));
        if went_on && !slept() {
            return None;
        }
        let through = self.child_heard(thread, call, at_ns)?;
        match went_on {
            // The thread waited for this answer, whatever it was asked for.
            true if self.is_served_among_others(&through.goal) => {
                Some(Through { sure: true, ..through })
            }
            true => None,
            false => Some(through),
        }
    }

    /// The child whose answer the call read.
    fn child_heard(&self, thread: ThreadId, call: &Call, at_ns: u64) -> Option<Through> {
        match self.made.heard_at(thread, at_ns) {
            Some(Heard { child: Child { id, goal, .. }, sure, direct, .. }) => {
                Some(Through { id: *id, goal: goal.clone(), sure: *sure, direct: *direct })
            }
            None => self.not_yet_found(thread, call).or_else(|| self.passed_on_by(thread, call)),
        }
    }

    /// Whether the thread that took the child's question in, and answered it, moved messages of others in between, as an
    /// event loop does: then only the child's walk tells whose work it did meanwhile, and what it rested for.
    fn is_served_among_others(&self, child: &Goal) -> bool {
        let of_child = |object: Object| child.messages.iter().any(|m| m.object == object);
        let [asked, .., answer] = &child.messages[..] else { return false };
        let channel = |message: &Message| self.world.channels.get(&message.object);
        let taken = channel(asked).and_then(|c| Channel::find(&c.reads, asked.from));
        let given =
            channel(answer).and_then(|c| Channel::find(&c.writes, answer.to.checked_sub(1)?));
        let (Some(taken), Some(given)) = (taken, given) else { return false };
        let marks = &self.world.thread(taken.thread).marks.list;
        let first = count_before(marks, |mark| mark.enter_ns <= taken.enter_ns);
        let mut between = marks.range(first..).take_while(|mark| mark.enter_ns < given.enter_ns);
        taken.thread == given.thread
            && between.any(|mark| {
                !of_child(mark.moved.object) && !mark.of.is_some_and(|of| of_child(of.object))
            })
    }

    /// The same for a child that is not found yet, by the marks of the threads that asked and heard. (Without known
    /// framing, a request is found when the next one is asked on its connection.)
    fn not_yet_found(&self, thread: ThreadId, call: &Call) -> Option<Through> {
        let (hears, io) = self.hears_for_it(thread, call)?;
        // With known framing, every request is found when it is answered.
        let questions = self.world.channels.get(&io.reverse?);
        questions.filter(|known| known.heads.is_empty())?;
        let (asked, through) = self.exchange(thread, io)?;
        let asks = self.asks_for_it(asked)?;
        Some(Through { sure: hears.sure && asks.sure, ..through })
    }

    /// The same for a child whose parent nothing has shown, by the answer that an event loop passes on when it answers
    /// the request that is walked.
    fn passed_on_by(&self, thread: ThreadId, call: &Call) -> Option<Through> {
        if !self.may_pass_on(thread) {
            return None;
        }
        let (heard, asked) = self.passed_on(thread)?;
        let shared = self.world.channels.get(&asked.moved.object).is_none_or(|on| on.is_shared);
        let mut reads = call.transfers().filter(|io| !io.is_write);
        let read = reads.find(|io| io.object == heard.moved.object);
        let read = read.filter(|_| heard.enter_ns == call.enter_ns && !shared)?;
        let (_, through) = self.exchange(thread, read)?;
        self.is_served_among_others(&through.goal).then_some(through)
    }

    /// The child to which `io` read the answer, not known to be sure, and the call that asked for it. Its question is all
    /// that was written since the read before.
    fn exchange(&self, thread: ThreadId, io: &Io) -> Option<(&Transfer, Through)> {
        let process = |id: ThreadId| self.world.thread(id).process;
        let (answers, object) = (self.world.channels.get(&io.object)?, io.reverse?);
        let questions = self.world.channels.get(&object)?;
        let read = Channel::find(&answers.reads, io.offset).filter(|_| answers.is_written)?;
        let last = last_before(&questions.writes, |write| write.enter_ns < read.enter_ns)?;
        let before = last_before(&answers.reads, |read| read.exit_ns <= last.enter_ns);
        let since_ns = before.map_or(0, |before| before.exit_ns);
        let first = count_before(&questions.writes, |write| write.enter_ns < since_ns);
        let first = questions.writes.get(first)?;
        let server = Channel::find(&questions.reads, first.from)?.thread;
        let mut goal = Goal::new(first.enter_ns, read.exit_ns, (thread, process(thread)));
        goal.server_process = Some(process(server));
        let from = before.map_or(read.from, |before| before.to);
        goal.messages = vec![
            Message { object, from: first.from, to: last.to },
            Message { object: io.object, from, to: read.to },
        ];
        Some((first, Through { id: NOT_FOUND, goal, sure: false, direct: true }))
    }

    /// The mark and the transfer by which the call read the answer to what was asked for the request.
    pub(super) fn hears_for_it<'c>(
        &self,
        thread: ThreadId,
        call: &'c Call,
    ) -> Option<(&Mark, &'c Io)> {
        let mut marks = self.world.thread(thread).marks.of_call(call.enter_ns);
        let mark = marks.find(|mark| self.is_for_it(mark, MarkKind::Hears))?;
        let mut reads = call.transfers().rev().filter(|io| !io.is_write);
        Some((mark, reads.find(|io| io.object == mark.moved.object)?))
    }

    /// The mark of the call that made the write, if that call asked for the request.
    pub(super) fn asks_for_it(&self, write: &Transfer) -> Option<&Mark> {
        let mut marks = self.world.thread(write.thread).marks.of_call(write.enter_ns);
        marks.find(|mark| self.is_for_it(mark, MarkKind::Asks))
    }

    fn is_for_it(&self, mark: &Mark, kind: MarkKind) -> bool {
        let asked = self.goal.messages.iter();
        let of = mark.of.filter(|_| mark.kind == kind);
        of.is_some_and(|of| {
            { asked }.any(|m| m.object == of.object && m.from < of.to && of.from < m.to)
        })
    }

    /// Takes over a segment of a child's path.
    fn adopt(&mut self, raw: Raw, from: &Texts, sure: bool) {
        let texts = &mut self.output.names.texts;
        let mut same = |id: TextId| texts.add(from.get(id));
        let (detail, cause) = (raw.detail.map(&mut same), raw.cause.map(&mut same));
        let rule = if raw.rule == Rule::End { Rule::Asked } else { raw.rule };
        let evidence = if sure { raw.evidence } else { Evidence::Modelled };
        let process = self.world.thread(raw.thread).process;
        let serves = raw.serves || self.goal.is_served_by(process);
        self.output.out.push(Raw { detail, cause, rule, evidence, serves, ..raw });
    }
}
