//! Stretches of a request in which the threads on its path worked for other requests.
//!
//! A thread that waits and then works for another request waits for that request's sake. What it does in between,
//! without a message of this request, is not for this request either. So a stretch from the first such wait to the end
//! of the last such work is one wait for a turn, whatever the threads did in it; `cause` lists what they did, most
//! first. A rest is not part of a stretch: a thread at rest has nothing that is ready.

use crate::condense::Life;
use crate::ownership::claims::OTHERS;
use crate::ownership::sums::{Doing, Spent};
use crate::timeline::ThreadId;
use crate::walk::{joins, Worker};
use rpcprobe_model::{Category, Evidence, Rule, Segments, Texts, Told};

/// A segment of a request, after claims.
pub(super) struct Settled {
    pub segment: Told,
    pub worker: Worker,
    /// What its thread did, also if that was for another request.
    pub did: Category,
    /// The thread rested: nothing that it had was ready to be worked on.
    pub rested: bool,
}

impl Settled {
    pub fn new(segment: Told, worker: Worker) -> Settled {
        let did = segment.category;
        Settled { segment, worker, did, rested: false }
    }

    fn for_others(&self) -> bool {
        is_for_others(&self.segment)
    }

    /// Whether the thread waited for anything but a message of the request. A rest does not count: the request does not
    /// wait for a thread at rest.
    fn waits(&self) -> bool {
        if self.rested {
            return false;
        }
        use Category::{BlockIo, IdlePeer, Journal, Lock, Sleep, Steal, Writeback};
        use Category::{RunqueuePreempted, RunqueueWakeup};
        matches!(
            self.segment.category,
            RunqueueWakeup
                | RunqueuePreempted
                | Lock
                | Journal
                | BlockIo
                | Writeback
                | Sleep
                | IdlePeer
                | Steal
        )
    }

    fn may_be_in_a_stretch(&self) -> bool {
        self.for_others() || self.waits() || self.may_be_for_others()
    }

    /// Whether the thread did something, and no message shows for which request.
    fn may_be_for_others(&self) -> bool {
        let category = self.segment.category;
        let work = category.is_on_cpu() || category == Category::WireStack;
        work && !self.worker.by_marks && self.segment.shared == 1
    }
}

/// Whether a segment says that its thread worked for others.
pub(super) fn is_for_others(segment: &Told) -> bool {
    let by_rule = matches!(segment.rule, Some(Rule::Claimed | Rule::Turn));
    segment.category == Category::QueueApp && by_rule
}

/// The segments of a request, in order of time, with one segment for each stretch of work for others. Only those since
/// the last border across which no stretch leads are kept apart.
pub(super) struct Folded<F> {
    pub texts: Texts,
    /// What a thread did between two times.
    spent: F,
    list: Vec<Told>,
    /// Takes the segments in place of `list`.
    life: Option<Life>,
    open: Vec<Settled>,
    released: Vec<(ThreadId, u64, u64)>,
    /// `None`: as far as known, no; but that may depend on the segments to come.
    reaches_back: Option<bool>,
}

/// All segments of a request, folded.
pub(super) struct Done {
    pub segments: Segments,
    /// Work in stretches that the request had claimed: thread, begin and end.
    pub released: Vec<(ThreadId, u64, u64)>,
    /// Whether a stretch might begin before the first segment, if more segments came before it.
    pub reaches_back: bool,
}

impl<F: Fn(ThreadId, u64, u64) -> Spent> Folded<F> {
    pub fn new(texts: Texts, spent: F, life: Option<Life>, count: usize) -> Folded<F> {
        let (list, open, released) = (Vec::with_capacity(count), Vec::new(), Vec::new());
        Folded { texts, spent, list, life, open, released, reaches_back: None }
    }

    pub fn push(&mut self, next: Settled) {
        if self.open.last().is_some_and(|last| is_border(last, &next)) {
            self.fold();
        }
        match &next {
            _ if self.reaches_back.is_some() => {}
            next if next.for_others() => self.reaches_back = Some(true),
            next if !next.may_be_in_a_stretch() => self.reaches_back = Some(false),
            _ => {}
        }
        self.open.push(next);
    }

    /// As `push`, but merges waits for a turn that follow each other, and pieces of shared work.
    pub fn push_piece(&mut self, next: Settled) {
        let one = next.segment.rule == Some(Rule::Claimed) || next.segment.shared > 1;
        match self.open.last_mut() {
            Some(last) if one && last.did == next.did && joins(&last.segment, &next.segment) => {
                last.segment.duration_ns += next.segment.duration_ns;
            }
            _ => self.push(next),
        }
    }

    pub fn finish(mut self) -> Done {
        self.fold();
        let Folded { mut texts, mut list, life, released, reaches_back, .. } = self;
        if let Some(life) = life {
            list = life.finish(&mut texts);
        }
        let segments = Segments { list, texts };
        Done { segments, released, reaches_back: reaches_back.unwrap_or(false) }
    }

    /// Closes all segments so far: no stretch leads across their end.
    fn fold(&mut self) {
        let begin = self.list.len();
        while let Some(last) = self.open.pop() {
            if !last.for_others() {
                self.list.push(last.segment);
                continue;
            }
            let first = first_of_stretch(&self.open, &last);
            let before = &self.open[first..];
            for part in before.iter().filter(|part| part.may_be_for_others()) {
                let segment = &part.segment;
                self.released.push((part.worker.thread, segment.start_ns, segment.end_ns()));
            }
            self.list.push(one_wait(before, last, &mut self.texts, &self.spent));
            self.open.truncate(first);
        }
        // The stretches were found from the last to the first.
        self.list[begin..].reverse();
        if let Some(life) = &mut self.life {
            self.list.drain(..).for_each(|segment| life.push(segment, &mut self.texts));
        }
    }
}

/// Whether no stretch leads across the border between two segments: see [`first_of_stretch`].
fn is_border(last: &Settled, next: &Settled) -> bool {
    let apart = last.worker.thread != next.worker.thread;
    !last.may_be_in_a_stretch() || (apart && !last.for_others())
}

/// Where the stretch of work for others that ends with `last` begins: an index of `settled`, the segments before
/// `last`.
fn first_of_stretch(settled: &[Settled], last: &Settled) -> usize {
    let mut first = settled.len();
    // The thread whose waits and work belong to the stretch.
    let mut thread = last.worker.thread;
    for (index, part) in settled.iter().enumerate().rev() {
        let goes_on = part.worker.thread == thread;
        if part.for_others() {
            (first, thread) = (index, part.worker.thread);
        } else if part.waits() && goes_on {
            if first == index + 1 {
                first = index;
            }
        } else if !(part.may_be_for_others() && goes_on) {
            break;
        }
    }
    first
}

/// `before` and `last`, which follow each other, as one wait.
fn one_wait(
    before: &[Settled],
    last: Settled,
    texts: &mut Texts,
    spent_by: impl Fn(ThreadId, u64, u64) -> Spent,
) -> Told {
    let Some(first) = before.first() else { return last.segment };
    let mut spent = Spent::default();
    for part in before.iter().chain([&last]) {
        let doing = match part.did {
            Category::RunqueueWakeup => Doing::Woken,
            Category::RunqueuePreempted => Doing::Preempted,
            Category::QueueApp => {
                let (from_ns, to_ns) = (part.segment.start_ns, part.segment.end_ns());
                spent = spent.plus(&spent_by(part.worker.thread, from_ns, to_ns));
                continue;
            }
            _ if part.waits() => Doing::Asleep,
            did => Doing::Ran(did),
        };
        spent.add(doing, part.segment.duration_ns);
    }
    let start_ns = first.segment.start_ns;
    let claimed = |part: &Settled| part.segment.rule == Some(Rule::Claimed);
    let rule = match before.iter().chain([&last]).any(claimed) {
        true => Rule::Claimed,
        false => Rule::Turn,
    };
    Told {
        start_ns,
        duration_ns: last.segment.end_ns() - start_ns,
        detail: match rule {
            Rule::Claimed => Some(texts.add(OTHERS)),
            _ => last.segment.detail,
        },
        cause: Some(texts.add(&spent.in_words())),
        cpu: None,
        evidence: Evidence::Modelled,
        rule: Some(rule),
        ..last.segment
    }
}
