//! From a found request to the segments that it has beside other requests: its walk, its claims, and the reduction to
//! few segments.

use crate::condense::{condense, Life};
use crate::detect::Found;
use crate::ownership::claims::{Claimant, Shows};
use crate::ownership::marks::is_rest;
use crate::timeline::ThreadId;
use crate::walk::{self, Begin, NotYet, Walked, Worker};
use crate::Engine;
use rpcprobe_model::{Category, Segments, Told};

impl Engine {
    /// Walks a request's path; `with_others`: its begin may be known from another request.
    pub(crate) fn walked(&mut self, found: &Found, with_others: bool) -> Result<Walked, NotYet> {
        if found.goal.end_ns <= found.goal.start_ns {
            return Ok(Walked::default());
        }
        let mut settings = self.settings;
        // An incomplete request is explained as far as it is known.
        settings.no_more_records |= !found.request.complete;
        settings.most_steps = self.effort.for_request(&found.request);
        let with_others = with_others
            && !(settings.alone || settings.every_piece)
            && found.request.complete
            && !self.world.has_asked(&found.goal)
            && !found.request.kind.is_fallback();
        let asking = with_others.then_some(&self.asking);
        let (children, astray) = ((&self.children, found.request.request_id), &mut self.astray);
        let (world, buffers) = (&self.world, &mut self.buffers);
        let walked = walk::walk(world, &found.goal, settings, astray, asking, children, buffers)?;
        self.effort.spend(&found.request, walked.steps);
        Ok(walked)
    }

    /// The segments of a request that was walked. (If its begin is another request's, and does not hold for this
    /// request, this request is walked again.)
    pub(crate) fn settled(&mut self, found: &Found, walked: Walked) -> Result<Segments, NotYet> {
        let claimant = found.claimant();
        let segments = match walked.begin {
            Some(Begin::Known(known)) => match self.after_known(claimant, walked, known) {
                Some(segments) => segments,
                None => {
                    let Walked { segments, workers, .. } = self.walked(found, false)?;
                    self.claimed(claimant, segments, (&workers, 0))
                }
            },
            Some(Begin::New(entry)) => {
                let Walked { segments, workers, .. } = walked;
                let begin = segments.list.partition_point(|s| s.start_ns < entry.at_ns);
                let segments = self.claimed(claimant, segments, (&workers, begin));
                if let Some(kept_by) = self.claims.begin_kept_by() {
                    self.asking.keep((&found.goal, entry), &segments, kept_by);
                }
                segments
            }
            None => self.claimed(claimant, walked.segments, (&walked.workers, 0)),
        };
        let segments = self.few(&claimant, segments);
        let of = (&found.goal, found.request.complete);
        // A path that leads through what was asked for this request is no other request's.
        let kept_by = self.claims.kept_by().filter(|_| !self.world.has_asked(&found.goal));
        self.told_again.keep(of, &segments, kept_by);
        Ok(segments)
    }

    /// The segments of a request whose begin is known from another request and not among the segments of the walk;
    /// `None`: that begin does not hold for this request.
    fn after_known(
        &mut self,
        claimant: Claimant,
        Walked { segments, workers, .. }: Walked,
        known: usize,
    ) -> Option<Segments> {
        if !self.claims.is_kept(claimant, self.asking.kept_by(known)) {
            return None;
        }
        let segments = self.claimed(claimant, segments, (&workers, 0));
        if self.claims.reaches_back() || self.claims.has_passed_on() {
            return None;
        }
        self.claims.also_kept_by(self.asking.kept_by(known));
        Some(self.asking.tell(known, segments))
    }

    /// The segments without work that is another request's own; of a program's life, few. `workers`: the segments'
    /// workers, and how many of them, from the first on, belong to the request's begin.
    pub(crate) fn claimed(
        &mut self,
        claimant: Claimant,
        segments: Segments,
        workers: (&[Worker], usize),
    ) -> Segments {
        let world = &self.world;
        let shows = |segment: &Told, thread: ThreadId| {
            let asleep = || {
                let off = world.thread(thread).off_before(segment.end_ns());
                off.filter(|off| off.end_ns >= segment.end_ns())
            };
            match segment.category {
                category if category.is_on_cpu() => Shows::Work,
                // In work that is reported by category, it is not known where the thread had no CPU.
                Category::RunqueuePreempted if segment.shared > 1 => Shows::Work,
                Category::WireStack if asleep().is_none() => Shows::Work,
                Category::Sleep | Category::IdlePeer if asleep().is_some_and(is_rest) => {
                    Shows::Rest
                }
                _ => Shows::Wait,
            }
        };
        let spent = |thread: ThreadId, from_ns: u64, to_ns: u64| {
            world.sums.spent(thread, world.thread(thread), from_ns, to_ns)
        };
        let life = (claimant.encloses && !self.settings.every_piece)
            .then(|| Life::new(claimant.latency_ns()));
        let segments = self.claims.settle(claimant, segments, workers, (shows, spent), life);
        if self.claims.has_passed_on() {
            self.asking.forget();
        }
        segments
    }

    /// Reduces the segments of a request that has many. (Those of a program's life were reduced as they were claimed.)
    pub(crate) fn few(&self, claimant: &Claimant, segments: Segments) -> Segments {
        match claimant.encloses || self.settings.every_piece {
            true => segments,
            false => condense(segments, claimant.latency_ns()),
        }
    }
}
