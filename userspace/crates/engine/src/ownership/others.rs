//! Stretches of a request in which the threads on its path worked for other requests.
//!
//! A thread that waits and then works for another request waits for that request's sake. What it does in between,
//! without a message of this request, is not for this request either. So a stretch from the first such wait to the end
//! of the last such work is one wait for a turn, whatever the threads did in it; `cause` lists what they did, most
//! first. A rest is not part of a stretch: a thread at rest has nothing that is ready.

use crate::ownership::claims::OTHERS;
use crate::ownership::sums::{Doing, Spent};
use crate::timeline::ThreadId;
use crate::walk::Worker;
use rpcprobe_model::{Category, Evidence, Rule, Texts, Told};

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

/// The segments of a request, in order of time, with one segment for each stretch of work for others. `release` is
/// called with the thread, begin and end of work in a stretch that the request had claimed; `spent` returns what a
/// thread did between two times.
pub(super) fn fold(
    mut settled: Vec<Settled>,
    texts: &mut Texts,
    mut release: impl FnMut(ThreadId, u64, u64),
    spent: impl Fn(ThreadId, u64, u64) -> Spent,
) -> Vec<Told> {
    let mut latest_first = Vec::with_capacity(settled.len());
    while let Some(last) = settled.pop() {
        if !last.for_others() {
            latest_first.push(last.segment);
            continue;
        }
        let first = first_of_stretch(&settled, &last);
        let before = settled.split_off(first);
        for part in before.iter().filter(|part| part.may_be_for_others()) {
            let segment = &part.segment;
            release(part.worker.thread, segment.start_ns, segment.end_ns());
        }
        latest_first.push(one_wait(&before, last, texts, &spent));
    }
    latest_first.reverse();
    latest_first
}

/// Whether a stretch of work for others might begin before these segments, if more segments came before them.
pub(super) fn may_reach_back(settled: &[Settled]) -> bool {
    let goes_on = |part: &&Settled| part.for_others() || part.waits() || part.may_be_for_others();
    settled.iter().take_while(goes_on).any(Settled::for_others)
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
