//! Rule `asked`: the way through what was asked for the sake of a request is that of the request which that is.
//!
//! An event loop asks another server for one request and turns to others until the answer comes. What the first
//! request waits for meanwhile is that answer, not the loop, and how it came to be is told by the way back of what
//! was asked. A thread that went on with the request alone after it had asked, or slept in the read of the answer, tells
//! by itself what the request waited for.

use crate::ownership::marks::MarkKind;
use crate::walk::*;

/// A request that was made for another one.
#[derive(Debug)]
struct Child {
    id: u64,
    goal: Goal,
    /// It is sure that it was made for that.
    sure: bool,
}

/// Requests that were made for others, by those.
#[derive(Debug, Default)]
pub struct Children(FxHashMap<u64, Vec<Child>>);

impl Children {
    /// Keeps a request that was made for `parent`.
    pub(crate) fn keep(&mut self, (parent, sure): (u64, bool), id: u64, goal: &Goal) {
        let goal = goal.clone();
        self.0.entry(parent).or_default().push(Child { id, goal, sure });
    }

    /// Forgets those of requests that are over.
    pub(crate) fn forget_before(&mut self, horizon_ns: u64) {
        self.0.retain(|_, children| children.iter().any(|child| child.goal.end_ns >= horizon_ns));
    }

    /// Whether any was made for the request.
    pub(crate) fn any_of(&self, id: u64) -> bool {
        self.0.contains_key(&id)
    }
}

/// A call by which the answer to a child was read.
struct Heard<'w> {
    thread: ThreadId,
    enter_ns: u64,
    exit_ns: u64,
    child: &'w Child,
}

/// What was made for the request that is walked.
pub(super) struct Made<'w> {
    all: &'w Children,
    /// In order of thread and time.
    heard: Vec<Heard<'w>>,
}

impl<'w> Made<'w> {
    pub(super) fn of(world: &World, all: &'w Children, id: u64) -> Made<'w> {
        let mut heard = Vec::new();
        for child in all.0.get(&id).into_iter().flatten() {
            let asked = child.goal.messages.first().map(|asked| asked.object);
            let answers = child.goal.messages.iter().filter(|m| Some(m.object) != asked);
            for answer in answers {
                let Some(channel) = world.channels.get(&answer.object) else { continue };
                if channel.is_written {
                    let reads = Channel::overlapping(&channel.reads, answer.from, answer.to);
                    heard.extend(reads.map(|read| Heard {
                        thread: read.thread,
                        enter_ns: read.enter_ns,
                        exit_ns: read.exit_ns,
                        child,
                    }));
                }
            }
        }
        heard.sort_unstable_by_key(|heard| (heard.thread, heard.exit_ns));
        Made { all, heard }
    }

    /// The child of which the thread heard just before that time.
    fn heard_at(&self, thread: ThreadId, at_ns: u64) -> Option<&'w Child> {
        let before = |heard: &Heard| (heard.thread, heard.exit_ns) < (thread, at_ns);
        let next = self.heard.get(self.heard.partition_point(before))?;
        (next.thread == thread && next.enter_ns < at_ns).then_some(next.child)
    }
}

/// The number of what has not been found: none has it.
const NOT_FOUND: u64 = 0;

/// A request through which the way leads.
struct Through {
    id: u64,
    goal: Goal,
    sure: bool,
}

impl Walk<'_> {
    /// Step back from the call in which a thread heard of what was asked for the request to where that was asked.
    pub(super) fn through_child(
        &mut self,
        thread: ThreadId,
        at_ns: u64,
    ) -> Result<Option<Step>, NotYet> {
        let Some(through) = self.through(thread, at_ns) else { return Ok(None) };
        let Through { id, goal, sure } = through;
        let asked_ns = goal.start_ns;
        if asked_ns <= self.goal.start_ns || asked_ns >= at_ns {
            return Ok(None);
        }
        let goal = Goal { end_ns: at_ns, client: thread, handed: None, ..goal };
        let mut settings = self.settings;
        settings.most_steps = settings.most_steps.saturating_sub(self.attempts.steps);
        let mut astray = Astray::default();
        let mut way =
            Walk::new(self.world, &goal, settings, &mut astray, None, (self.made.all, id));
        way.run()?;
        self.attempts.steps += way.attempts.steps;
        let (raws, texts) = (way.output.out, way.output.names.texts);
        let asker = raws.last().map_or(thread, |raw| raw.thread);
        for raw in raws {
            self.adopt(raw, &texts, sure);
        }
        self.note_more();
        self.trail = Trail::default();
        self.output.rule = Rule::Asked;
        Ok(Some(Step::Joined(asker, asked_ns)))
    }

    /// The request of which the thread heard just before that time, if it had turned to others, or rested, since it last did
    /// anything for the one that is walked.
    fn through(&self, thread: ThreadId, at_ns: u64) -> Option<Through> {
        if !self.applies(Rule::Asked) || !self.has_asked() {
            return None;
        }
        let t = self.world.thread(thread);
        let InCall::Closed(call) = classify::on_cpu::call_at(t, at_ns) else { return None };
        let mut moved = t.marks.of_call(call.enter_ns);
        if !moved.any(|mark| mark.kind == MarkKind::Hears) {
            return None;
        }
        let last = self.world.last_unless_rested(thread, call.enter_ns);
        if last.is_some_and(|(_, mark)| self.of_goal(mark)) {
            return None;
        }
        match self.made.heard_at(thread, at_ns) {
            Some(Child { id, goal, sure }) => {
                Some(Through { id: *id, goal: goal.clone(), sure: *sure })
            }
            None => self.not_yet_found(thread, call),
        }
    }

    /// The same of one that is not found yet, as nothing was asked on its connection since: by the marks of those who asked and
    /// heard. Its question is all that was written before this read and after the last one before that.
    fn not_yet_found(&self, thread: ThreadId, call: &Call) -> Option<Through> {
        let marks_of = |transfer: &Transfer| {
            self.world.thread(transfer.thread).marks.of_call(transfer.enter_ns)
        };
        let process = |id: ThreadId| self.world.thread(id).process;
        let io = call.transfers().find(|io| !io.is_write && io.reverse.is_some())?;
        let (answers, object) = (self.world.channels.get(&io.object)?, io.reverse?);
        // Where messages are told, all are found as they are answered.
        let questions = self.world.channels.get(&object).filter(|known| known.heads.is_empty())?;
        let read = Channel::find(&answers.reads, io.offset).filter(|_| answers.is_written)?;
        let heard =
            { marks_of(read) }.find(|mark| mark.kind == MarkKind::Hears && self.of_goal(mark))?;
        let last = last_before(&questions.writes, |write| write.enter_ns < call.enter_ns)?;
        let before = last_before(&answers.reads, |read| read.exit_ns <= last.enter_ns);
        let since_ns = before.map_or(0, |before| before.exit_ns);
        let first = count_before(&questions.writes, |write| write.enter_ns < since_ns);
        let first = questions.writes.get(first)?;
        let asked =
            { marks_of(first) }.find(|mark| mark.kind == MarkKind::Asks && self.of_goal(mark))?;
        let server = Channel::find(&questions.reads, first.from)?.thread;
        let mut goal = Goal::new(first.enter_ns, read.exit_ns, (thread, process(thread)));
        goal.server_process = Some(process(server));
        let from = before.map_or(read.from, |before| before.to);
        goal.messages = vec![
            Message { object, from: first.from, to: last.to },
            Message { object: io.object, from, to: read.to },
        ];
        Some(Through { id: NOT_FOUND, goal, sure: heard.sure && asked.sure })
    }

    /// Takes over a segment of a child's way.
    fn adopt(&mut self, raw: Raw, from: &Texts, sure: bool) {
        let texts = &mut self.output.names.texts;
        let mut same = |id: TextId| texts.add(from.get(id));
        let (detail, cause) = (raw.detail.map(&mut same), raw.cause.map(&mut same));
        let rule = if raw.rule == Rule::End { Rule::Asked } else { raw.rule };
        let evidence = if sure { raw.evidence } else { Evidence::Modelled };
        self.output.out.push(Raw { detail, cause, rule, evidence, ..raw });
    }
}
