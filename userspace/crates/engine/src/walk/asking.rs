//! What a client did from the begin of a request until the path back came to the client: the same for all requests that
//! it asked by the same calls.
//!
//! A client that has a thousand streams on a connection writes the heads of a hundred by one call, does something for
//! each, and writes the rest of each by another. All of that lies on the path of each, and nearly all of it is other
//! requests' work: reported one by one, it would cost requests times pieces. So it is walked and settled for the first
//! two, and reused for the others ([`Asking`]), however their answers came.

use crate::walk::astray::{ends, taken_alike};
use crate::walk::*;

/// Limit of the begins that are remembered, and the least number of pieces that makes a begin worth remembering.
const MOST_KNOWN: usize = 64;
const LEAST_PIECES: usize = 32;

/// Begins of requests, as they were reported.
#[derive(Debug, Default)]
pub struct Asking(Vec<Known>);

/// The begin of a request, as it was reported.
#[derive(Debug)]
struct Known {
    goal: Goal,
    entry: Entry,
    segments: Segments,
    /// The requests that kept this one from the work in its begin.
    kept_by: Vec<u64>,
}

/// Where the path back came to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    thread: ThreadId,
    pub at_ns: u64,
    rule: Rule,
    no_more_records: bool,
    strict: bool,
    /// The thread rested from then on.
    rested: bool,
}

/// What is known of the begin of a request.
#[derive(Clone, Copy, Debug)]
pub enum Begin {
    /// All of it is known from another request: it is not among the segments.
    Known(usize),
    /// It may be reused for other requests.
    New(Entry),
}

/// The entry of the walk in progress.
#[derive(Debug, Default)]
pub(super) struct Entered {
    entry: Option<Entry>,
    /// Number of segments when the walk entered.
    emitted: usize,
    known: Option<usize>,
}

impl Asking {
    fn find(&self, world: &World, goal: &Goal, entry: &Entry) -> Option<usize> {
        let same = |known: &Known| known.entry == *entry && asked_alike(world, &known.goal, goal);
        self.0.iter().rposition(same)
    }

    /// The requests that kept the known request from the work in its begin.
    pub(crate) fn kept_by(&self, known: usize) -> &[u64] {
        &self.0[known].kept_by
    }

    /// Puts a known begin before the other segments of a request.
    pub(crate) fn tell(&self, known: usize, rest: Segments) -> Segments {
        let Segments { list: told, texts: words } = &self.0[known].segments;
        let Segments { list: rest, mut texts } = rest;
        let mut list = Vec::with_capacity(told.len() + rest.len());
        let mut same = |id: TextId| texts.add(words.get(id));
        list.extend(told.iter().map(|segment| Told {
            comm: same(segment.comm),
            detail: segment.detail.map(&mut same),
            cause: segment.cause.map(&mut same),
            by: segment.by.map(&mut same),
            ..*segment
        }));
        list.extend(rest);
        Segments { list, texts }
    }

    /// Remembers the begin of a request that has been settled, if one of its segments begins where the path back
    /// entered.
    pub(crate) fn keep(
        &mut self,
        (goal, entry): (&Goal, Entry),
        segments: &Segments,
        kept_by: Vec<u64>,
    ) {
        let end = segments.list.partition_point(|segment| segment.start_ns < entry.at_ns);
        if segments.list.get(end).is_none_or(|next| next.start_ns != entry.at_ns) {
            return;
        }
        let begin = Segments { list: segments.list[..end].to_vec(), texts: segments.texts.clone() };
        if self.0.len() >= MOST_KNOWN {
            self.0.remove(0);
        }
        self.0.push(Known { goal: goal.clone(), entry, segments: begin, kept_by });
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets all begins: they may no longer hold.
    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }
}

impl Walk<'_> {
    /// To be called where the path back joins a thread. Returns whether the rest of it is known.
    pub(super) fn enters(&mut self, thread: ThreadId, at_ns: u64) -> bool {
        let entry = self.entry(thread, at_ns);
        let known = entry.zip(self.asking);
        let known = known.and_then(|(entry, asking)| asking.find(self.world, self.goal, &entry));
        self.entered = Entered { entry, emitted: self.output.out.len(), known };
        known.is_some()
    }

    /// The entry, if what the client did before depends on nothing of the request but how it was asked.
    fn entry(&self, thread: ThreadId, at_ns: u64) -> Option<Entry> {
        self.asking?;
        let goal = self.goal;
        let t = self.world.thread(thread);
        let of_client = goal.only_asks(t.process) && at_ns <= t.settled_ns;
        let plain = goal.child.is_none() && goal.handed.is_none() && goal.passed.is_none();
        let first = self.attempts.refused.is_empty() && self.attempts.received.is_none();
        let none_followed = self.search.followed.is_empty() && self.search.through.is_none();
        let wrong = self.trail.known.is_some() && self.search.is_fresh();
        if !of_client || !plain || !first || !none_followed || wrong || self.world.stacks.any() {
            return None;
        }
        // Nothing of the request was answered before.
        let asked = goal.messages.first()?;
        for answer in goal.messages.iter().filter(|message| message.object != asked.object) {
            let channel = self.world.channels.get(&answer.object)?;
            for list in [&channel.reads, &channel.writes] {
                let mut moved = Channel::overlapping(list, answer.from, answer.to);
                if moved.next().is_some_and(|first| first.enter_ns < at_ns) {
                    return None;
                }
            }
        }
        let rests = |raw: &Raw| {
            raw.thread == thread && matches!(raw.category, Category::IdlePeer | Category::Sleep)
        };
        Some(Entry {
            thread,
            at_ns,
            rule: self.output.rule,
            no_more_records: self.settings.no_more_records,
            strict: self.attempts.strict,
            rested: self.output.out.last().is_some_and(rests),
        })
    }

    /// Notes that the path from the entry on depends on more than how the request was asked.
    pub(super) fn note_more(&mut self) {
        self.entered.entry = None;
    }

    /// The begin, if it is known from another request or can be reused.
    pub(super) fn begin(&self) -> Option<Begin> {
        let Entered { entry, emitted, known } = self.entered;
        if let Some(known) = known {
            return Some(Begin::Known(known));
        }
        let entry = entry?;
        let begin = self.output.out.get(emitted..)?;
        let alone = begin.iter().all(|raw| raw.thread == entry.thread);
        (begin.len() >= LEAST_PIECES && alone).then_some(Begin::New(entry))
    }
}

/// Whether two requests were asked by the same calls of the same client, and taken in by the same calls.
fn asked_alike(world: &World, one: &Goal, other: &Goal) -> bool {
    one.start_ns == other.start_ns && ends(one) == ends(other) && taken_alike(world, one, other)
}
