//! Enforces law 6: a thread's CPU time is the own work of one request at a time, and through it of the
//! requests that this one was made for.
//!
//! Whose work a thread does is first told by its messages and wake-ups ([`crate::ownership::marks`],
//! [`crate::walk`]). Where these leave it open, the walks of two requests may come to the same work: by a
//! thread that wakes both, for instance, or one that takes the work of both from memory. Nothing shows which
//! of them it was for. The work then goes to the request that was answered first, and the other waited for
//! its turn meanwhile, which is marked as modelled.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::ownership::claim_list::{Claim, ClaimList};
pub use crate::ownership::claimant::{Claimant, Shows};
use crate::ownership::ledger::Ledger;
use crate::ownership::others::{self, Settled};
use crate::ownership::sums::Spent;
use crate::timeline::{ThreadId, World};
use crate::walk::{joins, Worker};
use rpcprobe_model::{Category, Evidence, Rule, Segments, Side, Texts, Told};

/// `detail` of what was another request's work.
pub(super) const OTHERS: &str = "its thread worked for another request";

/// Ancestors looked at.
const MOST_ANCESTORS: usize = 64;

/// What was claimed of threads' time so far.
#[derive(Debug, Default)]
pub struct Claims {
    threads: FxHashMap<ThreadId, ClaimList>,
    /// By id: those that come next to each other are near each other.
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
    /// It has some of another request's work, as one of the two was made for the other.
    has_relatives: bool,
    /// The requests whose work it has not.
    kept_by: Vec<u64>,
    /// Those of its begin, if it has claimed nothing there.
    begin_kept_by: Option<Vec<u64>>,
    /// A stretch of others' work may begin before its segments do.
    reaches_back: bool,
    /// Work that another request had claimed is this one's now.
    passed_on: bool,
}

impl Claims {
    /// Gives a request the work that its segments show. Work that another request has already becomes a wait for
    /// the request's turn, one for each stretch of such work ([`others::fold`]). `workers`: of the segments, of which the first
    /// `begin` are its begin; `shows`: what one shows; `spent`: what a thread did in between two times.
    pub fn settle(
        &mut self,
        claimant: Claimant,
        Segments { list: segments, mut texts }: Segments,
        (workers, begin): (&[Worker], usize),
        shows: impl Fn(&Told, ThreadId) -> Shows,
        spent: impl Fn(ThreadId, u64, u64) -> Spent,
    ) -> Segments {
        self.claimants.insert(claimant.id, claimant);
        self.settling = Settling::default();
        // Nearly always nobody else has any of it.
        let taken = self.claim_free(&claimant, &segments, workers, &shows);
        if taken.is_none() && !segments.iter().any(others::is_for_others) {
            return Segments { list: segments, texts };
        }
        let claimed = taken.unwrap_or(segments.len());
        let mut settled: Vec<Settled> = Vec::with_capacity(segments.len());
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
                true => self.divide(&claimant, segment, worker, &mut texts, &mut settled),
                false => {
                    // Nothing that a thread of neither end sleeps for can be for the request.
                    let strange = segment.side == Side::Middle && !worker.serves;
                    let slept = strange && segment.category == Category::Sleep;
                    let rested = shown == Shows::Rest && !slept;
                    settled.push(Settled { rested, ..Settled::new(segment, worker) });
                }
            }
        }
        self.settling.reaches_back = others::may_reach_back(&settled);
        let release = |thread: ThreadId, from_ns: u64, to_ns: u64| {
            self.release(thread, (from_ns, to_ns), claimant.id);
        };
        let list = others::fold(settled, &mut texts, release, spent);
        Segments { list, texts }
    }

    /// If the request that was settled last has left all claims as they were: the requests whose work its segments led
    /// to. What is settled for it is settled for any other that has the same segments and is none of theirs either.
    pub fn kept_by(&mut self) -> Option<Vec<u64>> {
        let Settling { added, released, has_relatives, mut kept_by, .. } =
            std::mem::take(&mut self.settling);
        kept_by.sort_unstable();
        kept_by.dedup();
        (added == released && !has_relatives).then_some(kept_by)
    }

    /// If the request that was settled last has claimed nothing in its begin: the requests whose work that led to. As for
    /// [`Claims::kept_by`], what is settled for it there is settled for others.
    pub fn begin_kept_by(&mut self) -> Option<Vec<u64>> {
        self.settling.begin_kept_by.take()
    }

    /// Whether its segments may be told otherwise with its begin.
    pub fn reaches_back(&self) -> bool {
        self.settling.reaches_back
    }

    /// Whether it has got work that another request had.
    pub fn has_passed_on(&self) -> bool {
        self.settling.passed_on
    }

    /// These requests, too, have kept it from their work: in its begin.
    pub fn also_kept_by(&mut self, others: &[u64]) {
        self.settling.kept_by.extend(others);
    }

    /// Enters a request that has the segments of the one that was settled last: whether these requests keep it from their
    /// work, too.
    pub fn is_kept(&mut self, claimant: Claimant, by: &[u64]) -> bool {
        self.claimants.insert(claimant.id, claimant);
        by.iter().all(|&other| !self.is_related(&claimant, other) && !self.adopts(&claimant, other))
    }

    /// Work that a request turns out not to have.
    fn release(&mut self, thread: ThreadId, (from_ns, to_ns): (u64, u64), id: u64) {
        if let Some(claims) = self.threads.get_mut(&thread) {
            self.settling.released += claims.release((from_ns, to_ns), id);
        }
    }

    /// Claims what segments show, up to the first of which others have some: its index.
    fn claim_free(
        &mut self,
        claimant: &Claimant,
        segments: &[Told],
        workers: &[Worker],
        shows: impl Fn(&Told, ThreadId) -> Shows,
    ) -> Option<usize> {
        // Many of one thread follow each other.
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

    /// Claims what a segment shows if nobody else has any of it; whether that is so.
    fn is_free(&mut self, claimant: &Claimant, segment: &Told, thread: ThreadId) -> bool {
        let is_free = self.threads.entry(thread).or_default().add(claim(claimant, segment));
        self.settling.added += usize::from(is_free);
        is_free
    }

    /// The same, of which others have some.
    fn divide(
        &mut self,
        claimant: &Claimant,
        segment: Told,
        worker: Worker,
        texts: &mut Texts,
        settled: &mut Vec<Settled>,
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
                push(settled, Settled::new(free, worker));
            }
            let mut taken = piece(&segment, from_ns, to_ns);
            // Work that several share is one's of another server's thread, too, of which no message tells.
            let shares = worker.by_marks || !worker.serves;
            // Of how many it is tells this request's own way, if that does.
            let by = if segment.shared == 1 && shares { claim.shared } else { segment.shared };
            if by > 1 {
                taken.shared = by;
            } else if self.left_out || self.related(claimant, claim.id) {
                self.settling.has_relatives = true;
                // The request that another was made for has it through that; a third one has it not.
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
                    detail: Some(texts.add(OTHERS)),
                    cause: None,
                    by: None,
                    evidence: Evidence::Modelled,
                    rule: Some(Rule::Claimed),
                    stack: None,
                    ..taken
                };
            }
            push(settled, Settled { segment: taken, worker, did: segment.category, rested: false });
            at_ns = to_ns;
        }
        if at_ns < end_ns {
            let free = piece(&segment, at_ns, end_ns);
            self.is_free(claimant, &free, thread);
            push(settled, Settled::new(free, worker));
        }
    }

    /// Whether a request was made for another, or is one of those in the life of a program.
    fn is_within(&self, claimant: &Claimant, other: u64) -> bool {
        let encloses = self.claimants.get(&other).is_some_and(|other| other.encloses);
        claimant.id != other
            && ((encloses && !claimant.encloses) || self.is_for(claimant.id, other))
    }

    /// Whether one of the two requests was made for the other. A request that nobody is known to have asked for,
    /// and that lies within a request whose server asked it, counts as made for the first such request whose path
    /// leads through it.
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

    /// Whether it is known of one of the two that it was made for the other.
    fn is_related(&self, claimant: &Claimant, other: u64) -> bool {
        let encloses = |of: &Claimant| of.encloses;
        claimant.encloses
            || self.claimants.get(&other).is_some_and(encloses)
            || claimant.id == other
            || self.is_for(other, claimant.id)
            || self.is_for(claimant.id, other)
    }

    /// Whether nobody is known to have asked for the other, which lies within the request, and whose server asked it.
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
            let before = claims.take_before(horizon_ns);
            let mut work: Vec<(u64, u64, bool)> = Vec::with_capacity(before.len());
            for claim in before {
                let shared = claim.shared > 1;
                match work.last_mut() {
                    Some((_, to_ns, as_well)) if *to_ns == claim.start_ns && *as_well == shared => {
                        *to_ns = claim.end_ns;
                    }
                    _ => work.push((claim.start_ns, claim.end_ns, shared)),
                }
            }
            let work = work.into_iter();
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

/// Waits for a turn that follow each other are one; so are pieces of what several share.
fn push(settled: &mut Vec<Settled>, more: Settled) {
    let one = more.segment.rule == Some(Rule::Claimed) || more.segment.shared > 1;
    match settled.last_mut() {
        Some(last) if one && last.did == more.did && joins(&last.segment, &more.segment) => {
            last.segment.duration_ns += more.segment.duration_ns;
        }
        _ => settled.push(more),
    }
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
