//! First passes, with the lock rules on, that go too far through work that is not known to be for the request
//! ([`Walk::is_astray`]). If the first pass of one request has gone astray from some thread and time on, so do those of
//! other requests that come to that place, if nothing on the path is theirs either. Such passes are not made again.

use crate::ownership::marks::{Mark, MarkKind};
use crate::walk::alike::moved_by_same;
use crate::walk::*;

/// Limits of the paths that are remembered: for all threads that answer, and for each of them.
const MOST_WAYS: usize = 64;
const MOST_OF_THREAD: usize = 2;
/// Limit of the places of a path that are remembered.
const MOST_STATES: usize = 512;

/// Where first passes have gone astray lately.
#[derive(Debug, Default)]
pub struct Astray(Vec<Way>);

/// The path of a pass that went astray.
#[derive(Debug)]
struct Way {
    goal: Goal,
    first_read: Transfer,
    no_more_records: bool,
    /// The earliest time that the pass came to.
    low_ns: u64,
    /// The threads that the pass met.
    met: Vec<ThreadId>,
    /// The pass asked what was done for the request before.
    asks_back: bool,
    /// Until this time, what each thread answered next was another request.
    unanswered_ns: u64,
    states: States,
}

/// Where a pass was while it had found nothing out, latest first; and its steps astray by then.
type States = Vec<(ThreadId, u64, usize)>;

/// The path of the first pass so far.
#[derive(Default)]
pub(super) struct Trail {
    is_first: bool,
    states: States,
    low_ns: u64,
    met: Vec<ThreadId>,
    asks_back: bool,
    /// Number of members that it began with.
    members: usize,
    /// A remembered path of another request on which this one finds the same, and the time up to which this holds.
    pub(super) known: Option<(usize, u64)>,
}

impl Walk<'_> {
    /// To be called when a pass begins.
    pub(super) fn begin_trail(&mut self) {
        let Attempts { strict, ref refused, ref received, .. } = self.attempts;
        let is_first = strict && refused.is_empty() && received.is_none() && !self.settings.alone;
        let (low_ns, members) = (self.goal.end_ns, self.search.members.len());
        self.trail = Trail { is_first, low_ns, members, ..Trail::default() };
        if !is_first || self.first_read.is_none() {
            return;
        }
        let likewise = |way: &Way| {
            ends(&way.goal) == ends(self.goal)
                && way.no_more_records == self.settings.no_more_records
                && (!way.asks_back && self.is_strange_to(&way.met, way.low_ns)
                    || taken_alike(self.world, &way.goal, self.goal))
        };
        let known = self.astray.0.iter().rposition(likewise);
        self.trail.known = known.and_then(|known| {
            let until_ns = self.unanswered_ns()?.min(self.astray.0[known].unanswered_ns);
            Some((known, until_ns))
        });
    }

    /// Notes the time from which the pass steps back.
    pub(super) fn note_time(&mut self, at_ns: u64) {
        self.trail.low_ns = self.trail.low_ns.min(at_ns);
    }

    /// Notes that the pass depends on whether that thread has, or had, the request.
    pub(super) fn note_thread(&mut self, thread: ThreadId) {
        if self.trail.is_first && !self.trail.met.contains(&thread) {
            self.trail.met.push(thread);
        }
    }

    /// Notes that the pass depends on which thread worked for the request before, and when.
    pub(super) fn note_past(&mut self) {
        self.trail.asks_back = true;
    }

    /// Whether the first pass, which has come to `(thread, at_ns)`, goes astray as that of another request did from
    /// there.
    pub(super) fn goes_astray(&mut self, thread: ThreadId, at_ns: u64) -> bool {
        let is_first = self.trail.is_first && self.search.members.len() == self.trail.members;
        if !is_first || !self.search.is_fresh() {
            return false;
        }
        let astray = self.attempts.astray;
        let known = self.trail.known.filter(|(_, until_ns)| at_ns <= *until_ns);
        let there = known.and_then(|(known, _)| {
            let states = &self.astray.0[known].states;
            let later = states.partition_point(|(_, ns, _)| *ns > at_ns);
            let mut then = states[later..].iter().take_while(|(_, ns, _)| *ns == at_ns);
            let there = then.position(|(of, _, before)| *of == thread && *before <= astray)?;
            Some((known, later + there))
        });
        match there {
            Some((known, there)) => self.remember_astray(Some((known, there))),
            None => self.trail.states.push((thread, at_ns, astray)),
        }
        there.is_some()
    }

    /// Remembers the path of a pass that has gone astray, if it has not come to a time before the request had been
    /// read: so far it is the same whenever the request arrived. `joins`: the place of a remembered path that the pass
    /// has come to; the pass is the same from there.
    pub(super) fn remember_astray(&mut self, joins: Option<(usize, usize)>) {
        let Some((first_read, unanswered_ns)) = self.first_read.zip(self.unanswered_ns()) else {
            return;
        };
        let trail = std::mem::take(&mut self.trail);
        let Trail { mut states, mut low_ns, mut met, mut asks_back, .. } = trail;
        states.retain(|(_, at_ns, _)| *at_ns <= unanswered_ns);
        if let Some((known, there)) = joins {
            let rest = &self.astray.0[known];
            states.extend(rest.states[there..].iter().take(MOST_STATES));
            let more: Vec<_> = rest.met.iter().copied().filter(|id| !met.contains(id)).collect();
            met.extend(more);
            low_ns = low_ns.min(rest.low_ns);
            asks_back |= rest.asks_back;
        }
        if states.is_empty() || !self.was_read_by(low_ns, |_| true) {
            return;
        }
        states.truncate(MOST_STATES);
        asks_back |= !self.is_strange_to(&met, low_ns);
        let (goal, no_more_records) = (self.goal.clone(), self.settings.no_more_records);
        let ways = &mut self.astray.0;
        let of_thread = |way: &Way| way.goal.client == goal.client;
        let same = ways.iter().position(|way| of_thread(way) && way.first_read == first_read);
        let many = ways.iter().filter(|way| of_thread(way)).count() >= MOST_OF_THREAD;
        let oldest = match many {
            true => ways.iter().position(of_thread),
            false => (ways.len() >= MOST_WAYS).then_some(0),
        };
        if let Some(old) = same.or(oldest) {
            ways.remove(old);
        }
        ways.push(Way {
            goal,
            first_read,
            no_more_records,
            low_ns,
            met,
            asks_back,
            unanswered_ns,
            states,
        });
    }

    /// Whether all of the request had been read by `at_ns`, by threads that satisfy `by`.
    fn was_read_by(&self, at_ns: u64, by: impl Fn(ThreadId) -> bool) -> bool {
        let was_read = |asked: &Message| {
            let channel = self.world.channels.get(&asked.object);
            channel.is_some_and(|channel| {
                let mut reads = Channel::overlapping(&channel.reads, asked.from, asked.to);
                reads.all(|read| read.exit_ns <= at_ns && by(read.thread))
            })
        };
        questions(self.goal).all(was_read)
    }

    /// Whether the request had been read by `at_ns`, by threads of the server that are not among `met`, and nothing was
    /// asked for it.
    fn is_strange_to(&self, met: &[ThreadId], at_ns: u64) -> bool {
        let asked = self.goal.messages.first();
        let channel = asked.and_then(|asked| self.world.channels.get(&asked.object));
        let of_server =
            |thread: ThreadId| Some(self.world.thread(thread).process) == self.goal.server_process;
        channel.is_some_and(|channel| channel.sakes.is_empty())
            && self.was_read_by(at_ns, |reader| of_server(reader) && !met.contains(&reader))
    }

    /// Until when what any thread answered next was another request: the begin of the last answer to another request
    /// that was given, before the answer to this one, by the same thread.
    fn unanswered_ns(&self) -> Option<u64> {
        let goal = self.goal;
        if goal.child.is_some() || goal.handed.is_some() || goal.passed.is_some() {
            return None;
        }
        let asked = goal.messages.first()?;
        let mut least = None;
        for answer in goal.messages.iter().filter(|message| message.object != asked.object) {
            let channel = self.world.channels.get(&answer.object)?;
            for write in Channel::overlapping(&channel.writes, answer.from, answer.to) {
                let marks = &self.world.thread(write.thread).marks.list;
                let mut before = latest_before(marks, |mark| mark.exit_ns <= write.enter_ns);
                let others = |mark: &&Mark| mark.kind == MarkKind::Answers && !self.of_goal(mark);
                let answered_ns = before.find(others)?.enter_ns;
                least = Some(least.map_or(answered_ns, |ns: u64| ns.min(answered_ns)));
            }
        }
        least
    }
}

/// The messages of the question.
fn questions(goal: &Goal) -> impl Iterator<Item = &Message> {
    let object = goal.messages.first().map(|asked| asked.object);
    goal.messages.iter().filter(move |message| Some(message.object) == object)
}

/// The thread that had the answer, and the processes of client and server.
pub(super) fn ends(goal: &Goal) -> (ThreadId, ProcessId, Option<ProcessId>) {
    (goal.client, goal.client_process, goal.server_process)
}

/// Whether the same calls moved two requests' questions.
pub(super) fn taken_alike(world: &World, one: &Goal, other: &Goal) -> bool {
    questions(one).count() == questions(other).count()
        && questions(one).zip(questions(other)).all(|(one, other)| moved_by_same(world, one, other))
}
