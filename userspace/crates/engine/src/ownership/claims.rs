//! Enforces law 6: a thread's CPU time is the own work of one request at a time, and through it of the requests for
//! which that request was made.
//!
//! Messages and wake-ups show first for which request a thread works ([`crate::ownership::marks`], [`crate::walk`]).
//! Where they leave it open, the walks of two requests may come to the same work: by a thread that wakes both, for
//! instance, or by a thread that takes the work of both from memory. Nothing shows for which of them the work was. Then
//! the work goes to the request that was answered first. The other request waited for its turn meanwhile, which is
//! marked as modelled.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::condense::Life;
use crate::ownership::claim_list::{Claim, ClaimList};
pub use crate::ownership::claimant::{Claimant, Shows};
use crate::ownership::ledger::Ledger;
use crate::ownership::others::{is_for_others, Done, Folded, Settled};
use crate::ownership::sums::Spent;
use crate::timeline::{ThreadId, World};
use crate::walk::Worker;
use rpcprobe_model::{Category, Evidence, Rule, Segments, Side, Told};

/// `detail` of time in which the thread did another request's work.
pub(super) const OTHERS: &str = "its thread worked for another request";

/// Limit of the ancestors that are examined.
const MOST_ANCESTORS: usize = 64;

/// The claims on threads' time so far.
#[derive(Debug, Default)]
pub struct Claims {
    threads: FxHashMap<ThreadId, ClaimList>,
    /// By id: requests that are settled one after the other are near each other.
    claimants: BTreeMap<u64, Claimant>,
    /// Leave out rule `claimed`: a request keeps work that another request has claimed already.
    pub left_out: bool,
    settling: Settling,
}

/// What settling a request changed.
#[derive(Debug, Default)]
struct Settling {
    added: usize,
    released: usize,
    /// It has some of another request's work, because one of the two was made for the other.
    has_relatives: bool,
    /// The requests whose work its segments led to, and that keep it from this work.
    kept_by: Vec<u64>,
    /// The same for its begin, if it has claimed nothing there.
    begin_kept_by: Option<Vec<u64>>,
    /// A stretch of work for others may begin before its segments do.
    reaches_back: bool,
    /// Work that another request had claimed was passed on to it.
    passed_on: bool,
}

impl Claims {
    /// Gives a request the work that its segments show. Work that another request has already becomes a wait for the
    /// request's turn, one for each stretch of such work ([`Folded`]). `workers`: the workers of the segments;
    /// `begin`: how many of the segments are the request's begin; `shows`: what a segment shows; `spent`: what a thread
    /// did between two times; `life`: takes the segments if they are a program's life, to reduce them.
    pub fn settle(
        &mut self,
        claimant: Claimant,
        Segments { list: segments, texts }: Segments,
        (workers, begin): (&[Worker], usize),
        (shows, spent): (impl Fn(&Told, ThreadId) -> Shows, impl Fn(ThreadId, u64, u64) -> Spent),
        life: Option<Life>,
    ) -> Segments {
        self.claimants.insert(claimant.id, claimant);
        self.settling = Settling::default();
        // Nearly always, no other request has any of it.
        let taken = self.claim_free(&claimant, &segments, workers, &shows);
        if taken.is_none() && !segments.iter().any(is_for_others) {
            let segments = Segments { list: segments, texts };
            return match life {
                Some(life) => life.all(segments),
                None => segments,
            };
        }
        let claimed = taken.unwrap_or(segments.len());
        let mut folded = Folded::new(texts, spent, life, segments.len());
        for (index, (segment, &worker)) in segments.into_iter().zip(workers).enumerate() {
            if index == begin {
                let Settling { added, has_relatives, ref kept_by, .. } = self.settling;
                let begin_kept_by = (added == 0 && !has_relatives).then(|| kept_by.clone());
                self.settling.begin_kept_by = begin_kept_by;
            }
            let shown = shows(&segment, worker.thread);
            let taken = shown == Shows::Work
                && index >= claimed
                && (index == claimed || !self.is_free(&claimant, &segment, worker.thread));
            match taken {
                true => self.divide(&claimant, segment, worker, &mut folded),
                false => {
                    // A sleep of a thread of neither end cannot be for the request.
                    let strange = segment.side == Side::Middle && !worker.serves;
                    let slept = strange && segment.category == Category::Sleep;
                    let rested = shown == Shows::Rest && !slept;
                    folded.push(Settled { rested, ..Settled::new(segment, worker) });
                }
            }
        }
        let Done { segments, released, reaches_back } = folded.finish();
        self.settling.reaches_back = reaches_back;
        for (thread, from_ns, to_ns) in released {
            self.release(thread, (from_ns, to_ns), claimant.id);
        }
        segments
    }

    /// The requests whose work the segments of the last settled request led to, if that request has left all claims as
    /// they were. Its result then holds for any other request that has the same segments and that these requests keep
    /// from their work, too.
    pub fn kept_by(&mut self) -> Option<Vec<u64>> {
        let Settling { added, released, has_relatives, mut kept_by, .. } =
            std::mem::take(&mut self.settling);
        kept_by.sort_unstable();
        kept_by.dedup();
        (added == released && !has_relatives).then_some(kept_by)
    }

    /// The requests whose work the begin of the last settled request led to, if that request has claimed nothing in its
    /// begin. As for [`Claims::kept_by`], its result there then holds for others.
    pub fn begin_kept_by(&mut self) -> Option<Vec<u64>> {
        self.settling.begin_kept_by.take()
    }

    /// Whether the segments of the last settled request may change if its begin is added.
    pub fn reaches_back(&self) -> bool {
        self.settling.reaches_back
    }

    /// Whether the last settled request has got work that another request had.
    pub fn has_passed_on(&self) -> bool {
        self.settling.passed_on
    }

    /// Adds requests that have kept the last settled request from their work in its begin.
    pub fn also_kept_by(&mut self, others: &[u64]) {
        self.settling.kept_by.extend(others);
    }

    /// Enters a request that has the same segments as the last settled request. Returns whether the requests `by` keep
    /// it from their work, too.
    pub fn is_kept(&mut self, claimant: Claimant, by: &[u64]) -> bool {
        self.claimants.insert(claimant.id, claimant);
        by.iter().all(|&other| !self.is_related(&claimant, other) && !self.adopts(&claimant, other))
    }

    /// Releases work that a request turns out not to have.
    fn release(&mut self, thread: ThreadId, (from_ns, to_ns): (u64, u64), id: u64) {
        if let Some(claims) = self.threads.get_mut(&thread) {
            self.settling.released += claims.release((from_ns, to_ns), id);
        }
    }

    /// Claims what segments show, up to the first segment of which others have some. Returns the index of that segment.
    fn claim_free(
        &mut self,
        claimant: &Claimant,
        segments: &[Told],
        workers: &[Worker],
        shows: impl Fn(&Told, ThreadId) -> Shows,
    ) -> Option<usize> {
        // Many segments of one thread follow each other.
        let mut last: Option<(ThreadId, &mut ClaimList)> = None;
        for (index, (segment, worker)) in segments.iter().zip(workers).enumerate() {
            if shows(segment, worker.thread) != Shows::Work {
                continue;
            }
            let claims = match last.take() {
                Some((thread, claims)) if thread == worker.thread => claims,
                _ => self.threads.entry(worker.thread).or_default(),
            };
            if !claims.add(claim(claimant, segment)) {
                return Some(index);
            }
            last = Some((worker.thread, claims));
            self.settling.added += 1;
        }
        None
    }

    /// Claims what a segment shows if no other request has any of it. Returns whether that is so.
    fn is_free(&mut self, claimant: &Claimant, segment: &Told, thread: ThreadId) -> bool {
        let is_free = self.threads.entry(thread).or_default().add(claim(claimant, segment));
        self.settling.added += usize::from(is_free);
        is_free
    }

    /// Claims what a segment shows if others have some of it: divides the segment.
    fn divide(
        &mut self,
        claimant: &Claimant,
        segment: Told,
        worker: Worker,
        folded: &mut Folded<impl Fn(ThreadId, u64, u64) -> Spent>,
    ) {
        let thread = worker.thread;
        let (start_ns, end_ns) = (segment.start_ns, segment.end_ns());
        let claims = self.threads.entry(thread).or_default();
        let known: Vec<(u64, u64, Claim)> = (claims.overlapping(start_ns, end_ns))
            .map(|claim| (claim.start_ns.max(start_ns), claim.end_ns.min(end_ns), *claim))
            .collect();
        let mut at_ns = start_ns;
        for (from_ns, to_ns, claim) in known {
            if at_ns < from_ns {
                let free = piece(&segment, at_ns, from_ns);
                self.is_free(claimant, &free, thread);
                folded.push_piece(Settled::new(free, worker));
            }
            let mut taken = piece(&segment, from_ns, to_ns);
            // Work that several requests share is also this request's if marks show that, or if the thread is of
            // another server, where no message shows it.
            let shares = worker.by_marks || !worker.serves;
            // The number of requests that share it is taken from this request's own walk, if that found one.
            let by = if segment.shared == 1 && shares { claim.shared } else { segment.shared };
            if by > 1 {
                taken.shared = by;
            } else if self.left_out || self.related(claimant, claim.id) {
                self.settling.has_relatives = true;
                // If this request was made for the other, the other keeps the work through this one. A third request
                // does not get it.
                if self.is_within(claimant, claim.id) {
                    let claims = self.threads.entry(thread).or_default();
                    claims.pass_on((from_ns, to_ns), claimant.id);
                    self.settling.passed_on = true;
                }
            } else {
                if self.settling.kept_by.last() != Some(&claim.id) {
                    self.settling.kept_by.push(claim.id);
                }
                taken = Told {
                    category: Category::QueueApp,
                    detail: Some(folded.texts.add(OTHERS)),
                    cause: None,
                    by: None,
                    evidence: Evidence::Modelled,
                    rule: Some(Rule::Claimed),
                    stack: None,
                    ..taken
                };
            }
            folded.push_piece(Settled {
                segment: taken,
                worker,
                did: segment.category,
                rested: false,
            });
            at_ns = to_ns;
        }
        if at_ns < end_ns {
            let free = piece(&segment, at_ns, end_ns);
            self.is_free(claimant, &free, thread);
            folded.push_piece(Settled::new(free, worker));
        }
    }

    /// Whether the request was made for `other`, or lies in the life of the program that `other` is.
    fn is_within(&self, claimant: &Claimant, other: u64) -> bool {
        let encloses = self.claimants.get(&other).is_some_and(|other| other.encloses);
        claimant.id != other
            && ((encloses && !claimant.encloses) || self.is_for(claimant.id, other))
    }

    /// Whether one of the two requests was made for the other. A request without a known parent that lies within a
    /// request whose server asked it counts as made for the first such request whose path leads through it.
    fn related(&mut self, claimant: &Claimant, other: u64) -> bool {
        if self.is_related(claimant, other) {
            return true;
        }
        let adopts = self.adopts(claimant, other);
        if let Some(other) = self.claimants.get_mut(&other).filter(|_| adopts) {
            other.parent = Some(claimant.id);
        }
        adopts
    }

    /// Whether one of the two requests is known to have been made for the other.
    fn is_related(&self, claimant: &Claimant, other: u64) -> bool {
        let encloses = |of: &Claimant| of.encloses;
        claimant.encloses
            || self.claimants.get(&other).is_some_and(encloses)
            || claimant.id == other
            || self.is_for(other, claimant.id)
            || self.is_for(claimant.id, other)
    }

    /// Whether the other request has no known parent, lies within this request, and was asked by this request's server.
    fn adopts(&self, claimant: &Claimant, other: u64) -> bool {
        self.claimants.get(&other).is_some_and(|other| {
            let within = claimant.start_ns <= other.start_ns && other.end_ns <= claimant.end_ns;
            let asked = other.client.is_some() && other.client == claimant.server;
            other.parent.is_none() && within && asked
        })
    }

    fn is_for(&self, id: u64, ancestor: u64) -> bool {
        let mut at = self.claimants.get(&id).and_then(|claimant| claimant.parent);
        for _ in 0..MOST_ANCESTORS {
            match at {
                Some(parent) if parent == ancestor => return true,
                Some(parent) => {
                    at = self.claimants.get(&parent).and_then(|claimant| claimant.parent);
                }
                None => return false,
            }
        }
        false
    }

    /// Enters into the ledger, and forgets, what no request that begins at or after `horizon_ns` can claim.
    pub fn book_before(&mut self, horizon_ns: u64, world: &World, ledger: &mut Ledger) {
        for (&thread, claims) in &mut self.threads {
            let mut before = claims.take_before(horizon_ns).peekable();
            let work = std::iter::from_fn(|| {
                let Claim { start_ns, mut end_ns, shared, .. } = before.next()?;
                let shared = shared > 1;
                let goes_on =
                    |next: &Claim, end_ns| next.start_ns == end_ns && (next.shared > 1) == shared;
                while let Some(next) = before.next_if(|next| goes_on(next, end_ns)) {
                    end_ns = next.end_ns;
                }
                Some((start_ns, end_ns, shared))
            });
            ledger.book(world, thread, work);
        }
        self.threads.retain(|_, claims| !claims.is_empty());
        self.claimants.retain(|_, claimant| claimant.end_ns >= horizon_ns);
    }
}

/// What a segment claims.
fn claim(claimant: &Claimant, segment: &Told) -> Claim {
    let (start_ns, end_ns) = (segment.start_ns, segment.end_ns());
    Claim { start_ns, end_ns, id: claimant.id, shared: segment.shared }
}

fn piece(segment: &Told, from_ns: u64, to_ns: u64) -> Told {
    Told { start_ns: from_ns, duration_ns: to_ns - from_ns, ..*segment }
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
