//! Rule `asked`: the way through what was asked for the sake of a request is that of the request which that is.
//!
//! An event loop asks another server for one request and turns to others until the answer comes. What the first
//! request waits for meanwhile is that answer, not the loop, and how it came to be is told by the way back of what
//! was asked. A thread that went on with the request alone after it had asked, or slept in the read of the answer, tells
//! by itself what the request waited for.

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

    /// The call in which the thread heard of a child just before that time.
    fn heard_at(&self, thread: ThreadId, at_ns: u64) -> Option<&Heard<'w>> {
        let next =
            self.heard.partition_point(|heard| (heard.thread, heard.exit_ns) < (thread, at_ns));
        self.heard.get(next).filter(|heard| heard.thread == thread && heard.enter_ns < at_ns)
    }
}

impl Walk<'_> {
    /// Step back from the call in which a thread heard of what was asked for the request to where that was asked.
    pub(super) fn through_child(
        &mut self,
        thread: ThreadId,
        at_ns: u64,
    ) -> Result<Option<Step>, NotYet> {
        let Some(heard) = self.made.heard_at(thread, at_ns) else { return Ok(None) };
        let (child, asked_ns) = (heard.child, heard.child.goal.start_ns);
        let after_start = asked_ns > self.goal.start_ns && asked_ns < at_ns;
        if !after_start || !self.turned_away(heard) || !self.applies(Rule::Asked) {
            return Ok(None);
        }
        let goal = Goal { end_ns: at_ns, client: thread, handed: None, ..child.goal.clone() };
        let mut settings = self.settings;
        settings.most_steps = settings.most_steps.saturating_sub(self.attempts.steps);
        let (mut astray, of_child) = (Astray::default(), (self.made.all, child.id));
        let mut way = Walk::new(self.world, &goal, settings, &mut astray, None, of_child);
        way.run()?;
        self.attempts.steps += way.attempts.steps;
        let (raws, texts) = (way.output.out, way.output.names.texts);
        let asker = raws.last().map_or(thread, |raw| raw.thread);
        for raw in raws {
            self.adopt(raw, &texts, child.sure);
        }
        self.note_more();
        self.trail = Trail::default();
        self.output.rule = Rule::Asked;
        Ok(Some(Step::Joined(asker, asked_ns)))
    }

    /// Whether the thread that read the answer had turned to others, or rested, since it last did anything for the request.
    fn turned_away(&self, heard: &Heard) -> bool {
        let last = self.world.last_unless_rested(heard.thread, heard.enter_ns);
        !last.is_some_and(|(_, mark)| self.of_goal(mark))
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
