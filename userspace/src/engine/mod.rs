//! From events to segments: timelines and messages ([`world`]), requests ([`requests`]), the walk
//! ([`walk`]). Streaming: one pass, and what no open request can reach is forgotten.

pub mod event;
pub mod requests;
pub mod space;
pub mod stacks;
pub mod syscall;
pub mod tile;
pub mod wait;
pub mod walk;
pub mod world;

use anyhow::Result;

use crate::model::{Request, Segment};
use event::Event;
use requests::{Detector, Found};
use walk::{NotYet, Settings};
use world::{ThreadId, World};

/// Events between two rounds of forgetting.
const FORGET_EVERY: u64 = 1 << 16;
/// History kept whatever the open requests: a write under way may turn out to begin one.
const KEEP_NS: u64 = 1_000_000_000;

/// A found request whose walk waits for a record of a thread.
struct Waiting {
    found: Found,
    on: ThreadId,
}

/// Takes events in time order, hands out explained requests.
pub struct Engine {
    pub world: World,
    detector: Detector,
    waiting: Vec<Waiting>,
    settings: Settings,
    events: u64,
    /// Stdin/stdout turns already explained, held until it is known that nothing better comes.
    held: Vec<(Request, Vec<Segment>)>,
}

impl Engine {
    /// `copy_ns_per_byte`: the calibrated rate behind modelled copies.
    pub fn new(cpus: u32, start_ns: u64, copy_ns_per_byte: f64) -> Engine {
        Engine {
            world: World::new(cpus, start_ns),
            detector: Detector::default(),
            waiting: Vec::new(),
            settings: Settings { copy_ns_per_byte, no_more_records: false },
            events: 0,
            held: Vec::new(),
        }
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// Whatever `sink` returns.
    pub fn push(
        &mut self,
        event: &Event,
        sink: &mut impl FnMut(&Request, &[Segment]) -> Result<()>,
    ) -> Result<()> {
        let settled = self.world.apply(event);
        self.detector.observe(&self.world, event);
        if let Some(thread) = settled {
            if self.waiting.iter().any(|waiting| waiting.on == thread) {
                let (ready, waiting) = std::mem::take(&mut self.waiting)
                    .into_iter()
                    .partition(|waiting| waiting.on == thread);
                self.waiting = waiting;
                for Waiting { found, .. } in ready {
                    self.explain(found, sink)?;
                }
            }
        }
        for found in std::mem::take(&mut self.detector.found) {
            self.explain(found, sink)?;
        }
        for found in std::mem::take(&mut self.detector.fallback) {
            self.hold(found);
        }
        if self.detector.found_primary && !self.held.is_empty() {
            self.held.clear();
        }
        self.events += 1;
        if self.events.is_multiple_of(FORGET_EVERY) {
            self.forget();
        }
        Ok(())
    }

    /// No more events: explains what is left.
    ///
    /// # Errors
    /// Whatever `sink` returns.
    pub fn finish(
        &mut self,
        end_ns: Option<u64>,
        sink: &mut impl FnMut(&Request, &[Segment]) -> Result<()>,
    ) -> Result<()> {
        self.settings.no_more_records = true;
        if let Some(end_ns) = end_ns {
            self.world.now_ns = self.world.now_ns.max(end_ns);
        }
        self.detector.finish(&self.world);
        for Waiting { found, .. } in std::mem::take(&mut self.waiting) {
            self.explain(found, sink)?;
        }
        for found in std::mem::take(&mut self.detector.found) {
            self.explain(found, sink)?;
        }
        if !self.detector.found_primary {
            for found in std::mem::take(&mut self.detector.fallback) {
                self.hold(found);
            }
            let mut held = std::mem::take(&mut self.held);
            held.sort_by_key(|(request, _)| (request.start_ns, u64::MAX - request.latency_ns));
            for (mut request, segments) in held {
                request.request_id = self.detector.new_id();
                sink(&request, &segments)?;
            }
        }
        Ok(())
    }

    fn explain(
        &mut self,
        found: Found,
        sink: &mut impl FnMut(&Request, &[Segment]) -> Result<()>,
    ) -> Result<()> {
        match self.walked(&found) {
            Ok(segments) => {
                for message in &found.goal.messages {
                    if let Some(channel) = self.world.channels.get_mut(&message.object) {
                        channel.carries_requests = true;
                    }
                }
                let request = self.judged(found.request);
                sink(&request, &segments)
            }
            Err(NotYet(on)) => {
                self.waiting.push(Waiting { found, on });
                Ok(())
            }
        }
    }

    fn hold(&mut self, found: Found) {
        if let Ok(segments) = self.walked(&found) {
            let request = self.judged(found.request);
            self.held.push((request, segments));
        }
    }

    fn walked(&self, found: &Found) -> Result<Vec<Segment>, NotYet> {
        if found.goal.end_ns <= found.goal.start_ns {
            return Ok(Vec::new());
        }
        let mut settings = self.settings;
        // An incomplete request is explained as far as it is known.
        settings.no_more_records |= !found.request.complete;
        walk::walk(&self.world, &found.goal, settings)
    }

    /// Marks a request that lost records touch.
    fn judged(&self, mut request: Request) -> Request {
        let end_ns = request.start_ns + request.latency_ns;
        let lost: u64 = (self.world.losses.iter())
            .filter(|loss| loss.first_ns <= end_ns && request.start_ns <= loss.last_ns)
            .map(|loss| loss.count)
            .sum();
        if lost > 0 && request.complete {
            request.complete = false;
            request.reason = Some(format!("{lost} records were lost while it was under way"));
        }
        request
    }

    fn forget(&mut self) {
        let waiting = self.waiting.iter().map(|waiting| waiting.found.goal.start_ns).min();
        let horizon_ns = self
            .detector
            .horizon_ns()
            .min(waiting.unwrap_or(u64::MAX))
            .min(self.world.now_ns.saturating_sub(KEEP_NS))
            .min(self.world.oldest_write_under_way_ns());
        self.world.forget_before(horizon_ns);
    }
}
