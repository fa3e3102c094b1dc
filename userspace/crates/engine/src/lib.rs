//! The engine: events in, requests and segments out. It keeps time lines ([`timeline`]), detects requests
//! ([`detect`]), tracks whose work a thread does ([`ownership`]) and explains each request by a backward walk
//! ([`walk`]). It makes one pass and forgets what no open request can reach; it uses no files, no clock and
//! no kernel.

mod calibration;
pub mod classify;
mod condense;
mod confidence;
pub mod decode;
pub mod detect;
mod effort;
mod endpoint_io;
pub mod event;
mod fallback;
pub mod function;
mod held_back;
pub mod object;
pub mod ownership;
pub mod processor;
pub mod protocols;
pub mod runtime_tasks;
pub mod send_limit;
mod settled;
pub mod stacks;
pub mod symbols;
pub mod task_wait;
pub mod timeline;
mod told_again;
pub mod walk;

use std::collections::VecDeque;
use std::rc::Rc;

use anyhow::Result;

pub use calibration::Rates;
use detect::{Detector, Found, InferredParents, KnownTarget};
use effort::Effort;
use event::{Event, What};
pub use fallback::FallbackGiven;
use fallback::{Fallback, HeldBack};
use held_back::{Left, Unsent};
use ownership::claims::{Claimant, Claims};
use ownership::ledger::{Account, Ledger};
use rpcprobe_model::request_filter::Wanted;
use rpcprobe_model::{Reason, Request, Rule, Segments};
use timeline::retention::Held;
use timeline::{Channel, ThreadId, World};
use told_again::ToldAgain;
use walk::{Asking, Astray, Buffers, Children, Goal, NotYet, Settings, Walked};

/// Events between two rounds of forgetting, at least. If there are many threads and channels to look through, there are
/// four events for each of these, so that an event costs the same however many there are.
const FORGET_EVERY: u64 = 1 << 14;
/// History kept regardless of the open requests, because a write under way may turn out to begin a request: this long
/// or, at high event rates, this many events.
const KEEP_NS: u64 = 1_000_000_000;
const KEEP_EVENTS: u64 = 1 << 16;
/// Events kept while something older may still turn out to begin a request: bytes that nobody has read, a forked child
/// that has not run a program.
const KEEP_BEGINS_EVENTS: u64 = 1 << 18;

/// Limit of the events kept for a request that stays open: a request that runs for hours must not take all memory.
const MOST_HISTORY_EVENTS: u64 = 1 << 23;
/// Memory that a kept event takes, with the segments of a request that is as long as the capture (0.6 KB for a program's
/// life around 150,000 requests of redis-benchmark on 5 connections, and 0.9 KB with 10,000 connections, which take
/// memory, too); and the part of the available memory that kept events may take.
const EVENT_BYTES: u64 = 1000;
const HISTORY_PART: u64 = 4;

/// A found request whose walk waits for a record of a thread.
struct Waiting {
    found: Box<Found>,
    on: ThreadId,
}

/// Takes events in time order, hands out explained requests.
pub struct Engine {
    pub world: World,
    detector: Detector,
    waiting: Vec<Waiting>,
    unsent: Unsent,
    claims: Claims,
    told_again: ToldAgain,
    astray: Astray,
    asking: Asking,
    children: Children,
    buffers: Buffers,
    ledger: Ledger,
    /// Accounts that were closed and not taken yet.
    accounts: Vec<Account>,
    settings: Settings,
    effort: Effort,
    events: u64,
    /// The next round of forgetting comes after this many events.
    next_round: u64,
    most_history_events: u64,
    /// The number of events, and the time, at each round of forgetting that still counts.
    rounds: VecDeque<(u64, u64)>,
    /// History before this time had to be forgotten although requests were open.
    given_up_ns: u64,
    /// Requests that began before this time were not seen whole.
    attached_ns: u64,
    /// Turns on stdin and stdout already explained, held until it is known that there are no other requests.
    fallback: Fallback,
}

impl Engine {
    pub fn new(cpus: u32, start_ns: u64, rates: Rates) -> Engine {
        Engine {
            world: World::new(cpus, start_ns),
            detector: Detector::default(),
            waiting: Vec::new(),
            unsent: Unsent::default(),
            claims: Claims::default(),
            told_again: ToldAgain::default(),
            astray: Astray::default(),
            asking: Asking::default(),
            children: Children::default(),
            buffers: Buffers::default(),
            ledger: Ledger::default(),
            accounts: Vec::new(),
            settings: Settings::new(rates),
            effort: Effort::default(),
            events: 0,
            next_round: FORGET_EVERY,
            most_history_events: MOST_HISTORY_EVENTS,
            rounds: VecDeque::new(),
            given_up_ns: 0,
            attached_ns: 0,
            fallback: Fallback::default(),
        }
    }

    /// Looks for certain requests only.
    pub fn look_for(&mut self, wanted: Wanted) {
        self.detector.look_for(wanted);
    }

    /// Sets the target's pid beforehand. The target was released when the capture began.
    pub fn expect_target(&mut self, pid: u32) {
        let released_ns = self.world.start_ns;
        self.detector.expect_target(KnownTarget { pid, released_ns });
    }

    /// The target already ran, and everything is known from `attached_ns` on. Requests that began before are
    /// incomplete; those that also ended before are left out.
    pub fn attached_at(&mut self, attached_ns: u64) {
        self.attached_ns = attached_ns;
        self.world.attached_at(attached_ns);
        self.detector.attached_at(attached_ns);
    }

    /// Attributes without this rule, to show what the rule is worth. The other rules decide what it would have decided.
    /// `end`, `run-queue`, `charge` and `lost` are what remains without any rule: leaving them out changes nothing.
    pub fn leave_out(&mut self, rule: Rule) {
        self.settings.without = Some(rule);
        self.claims.left_out = rule == Rule::Claimed;
    }

    /// Reports every request piece by piece, however many pieces it has.
    pub fn tell_every_piece(&mut self) {
        self.settings.every_piece = true;
    }

    /// Walks each request's path by itself, without results from other requests' walks: this must not make a
    /// difference.
    pub fn walk_alone(&mut self) {
        self.settings.alone = true;
    }

    /// Finds no turns on standard input and output and no life of the target, because there are other requests: for
    /// a pass after one that ended in [`FallbackGiven`].
    pub fn leave_out_fallback(&mut self) {
        self.detector.leave_out_fallback();
    }

    /// Sets the parents that a pass over the same events has inferred. This pass infers none.
    pub fn know_parents(&mut self, inferred: Rc<InferredParents>) {
        self.detector.know_parents(inferred);
    }

    /// Keeps no more events for any request than fit into the part of `bytes` that they may take.
    pub fn limit_memory(&mut self, bytes: u64) {
        let events = bytes / HISTORY_PART / EVENT_BYTES;
        self.limit_history(events.clamp(KEEP_EVENTS, MOST_HISTORY_EVENTS));
    }

    /// Keeps at most `events` events for any request.
    pub fn limit_history(&mut self, events: u64) {
        self.most_history_events = events;
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// Whatever `sink` returns; [`FallbackGiven`].
    pub fn push(
        &mut self,
        event: &Event,
        sink: &mut impl FnMut(Request, Segments) -> Result<()>,
    ) -> Result<()> {
        self.effort.earn();
        self.told_again.forget();
        let settled = self.world.apply(event);
        self.detector.observe(&self.world, event);
        self.refuse_fallback()?;
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
        // Few events find a request.
        let found = self.detector.has_found();
        if found {
            self.explain_found(sink)?;
        }
        if let What::Packet { object, packet } = &event.what {
            for (request, segments) in self.unsent.left(*object, packet) {
                sink(request, segments)?;
            }
        }
        if found {
            self.explain_fallback(sink)?;
        }
        self.events += 1;
        if self.events >= self.next_round {
            self.forget();
            // A round looks through all that is kept: with 10,000 connections of a Redis client this takes 8 % of the
            // time.
            self.next_round = self.events + FORGET_EVERY.max(4 * self.world.kept());
            for (request, segments) in self.unsent.given_up(self.world.now_ns) {
                sink(request, segments)?;
            }
        }
        Ok(())
    }

    /// No more events: explains what is left.
    ///
    /// # Errors
    /// Whatever `sink` returns; [`FallbackGiven`].
    pub fn finish(
        &mut self,
        end_ns: Option<u64>,
        sink: &mut impl FnMut(Request, Segments) -> Result<()>,
    ) -> Result<()> {
        self.told_again.forget();
        self.settings.no_more_records = true;
        if let Some(end_ns) = end_ns {
            self.world.now_ns = self.world.now_ns.max(end_ns);
        }
        self.detector.finish(&self.world);
        self.refuse_fallback()?;
        for Waiting { found, .. } in std::mem::take(&mut self.waiting) {
            self.explain(found, sink)?;
        }
        self.explain_found(sink)?;
        for (request, segments) in self.unsent.all() {
            sink(request, segments)?;
        }
        self.explain_fallback(sink)?;
        self.give_fallback(sink)?;
        self.ledger.count(&self.world, self.world.now_ns);
        self.claims.book_before(u64::MAX, &self.world, &mut self.ledger);
        self.accounts.extend(self.ledger.accounts());
        Ok(())
    }

    /// Parents without firm evidence, inferred from the steps of all requests; after [`Engine::finish`]. Ownership
    /// depends on parents, so another pass has to be made that knows them ([`Engine::know_parents`]).
    pub fn infer_parents(&mut self) -> InferredParents {
        self.detector.infer_parents()
    }

    /// The accounts of threads that are gone, closed since the last call.
    pub fn take_accounts(&mut self) -> Vec<Account> {
        std::mem::take(&mut self.accounts)
    }

    fn explain_found(
        &mut self,
        sink: &mut impl FnMut(Request, Segments) -> Result<()>,
    ) -> Result<()> {
        let mut found = self.detector.take_found(&self.world);
        // The request that is answered first claims its threads' work first. Requests that the capture's end cuts are
        // found with the last turns, and claim what those leave.
        let cut = |found: &Found| self.settings.no_more_records && !found.request.complete;
        found.sort_by_key(|found| (cut(found), found.goal.end_ns));
        for found in &found {
            found.tell_sake(&mut self.world);
            if let Some(parent) = found.served_parent() {
                self.children.keep(parent, found.request.request_id, &found.goal);
            }
        }
        for found in found {
            // If the request began before the capture, it may not have been known which end asks.
            if found.goal.start_ns >= self.attached_ns {
                let answer = found.goal.messages.iter().skip(1);
                answer.for_each(|message| self.world.answers_on(message.object));
            }
            self.explain(found, sink)?;
        }
        Ok(())
    }

    fn explain(
        &mut self,
        found: Box<Found>,
        sink: &mut impl FnMut(Request, Segments) -> Result<()>,
    ) -> Result<()> {
        if !self.settings.alone && !self.world.has_asked(&found.goal) {
            let of = (&found.goal, found.request.complete);
            let again = self.told_again.of(&self.world, &mut self.claims, of, found.claimant());
            if let Some(segments) = again {
                return self.give(found, segments, sink);
            }
        }
        match self.walked(&found, true) {
            Ok(Walked { segments, workers, .. }) if found.request.kind.is_fallback() => {
                let claimant = found.claimant();
                let request = self.completed(found);
                match self.fallback.hold(HeldBack { request, segments, workers, claimant }) {
                    true => self.give_fallback(sink),
                    false => Ok(()),
                }
            }
            Ok(walked) => match self.settled(&found, walked) {
                Ok(segments) => self.give(found, segments, sink),
                Err(NotYet(on)) => {
                    self.waiting.push(Waiting { found, on });
                    Ok(())
                }
            },
            Err(NotYet(on)) => {
                self.waiting.push(Waiting { found, on });
                Ok(())
            }
        }
    }

    fn give(
        &mut self,
        found: Box<Found>,
        segments: Segments,
        sink: &mut impl FnMut(Request, Segments) -> Result<()>,
    ) -> Result<()> {
        let left = held_back::of(&self.world, &found.goal);
        let request = self.completed(found);
        if left == Left::Unknown {
            return sink(request, segments);
        }
        match self.unsent.take((request, segments), left) {
            Some((request, segments)) => sink(request, segments),
            None => Ok(()),
        }
    }

    /// Explains requests of kinds that are reported only where there are no others.
    fn explain_fallback(
        &mut self,
        sink: &mut impl FnMut(Request, Segments) -> Result<()>,
    ) -> Result<()> {
        for found in self.detector.take_fallback(&self.world) {
            if !self.fallback.is_refused() {
                self.explain(found, sink)?;
            }
        }
        Ok(())
    }

    /// Drops these requests once there are requests of other kinds.
    fn refuse_fallback(&mut self) -> Result<(), FallbackGiven> {
        if !self.fallback.is_refused() && self.detector.has_primary() {
            self.fallback.refuse()?;
            self.waiting.retain(|waiting| !waiting.found.request.kind.is_fallback());
        }
        Ok(())
    }

    /// Hands out all of these that are held.
    fn give_fallback(
        &mut self,
        sink: &mut impl FnMut(Request, Segments) -> Result<()>,
    ) -> Result<()> {
        for HeldBack { mut request, segments, workers, claimant } in self.fallback.take() {
            request.request_id = self.detector.new_id();
            let claimant = Claimant { id: request.request_id, ..claimant };
            let segments = self.claimed(claimant, segments, (&workers, 0));
            let segments = self.few(&claimant, segments);
            sink(request, segments)?;
        }
        Ok(())
    }

    /// A request with what else is known of it.
    fn completed(&self, found: Box<Found>) -> Request {
        let Found { request, goal, .. } = *found;
        let mut request = self.judged(request);
        self.judge_channels(&mut request, &goal);
        request.certainty = confidence::of(&self.world, &goal, &request);
        [request.client_moved, request.server_moved] =
            endpoint_io::moved(&self.world, &goal, &self.settings.rates);
        request
    }

    /// Marks a request over a channel whose bytes were counted anew before the request's end.
    fn judge_channels(&self, request: &mut Request, goal: &Goal) {
        let end_ns = request.start_ns + request.latency_ns;
        let forgotten = |channel: &Channel| channel.forgotten_ns.is_some_and(|ns| ns <= end_ns);
        let mut channels =
            goal.messages.iter().filter_map(|message| self.world.channels.get(&message.object));
        if request.complete && channels.any(forgotten) {
            request.complete = false;
            request.reason = Some(Reason::ChannelForgotten);
        }
    }

    /// Marks a request that lost records touch, or that outlived what could be kept.
    fn judged(&self, mut request: Request) -> Request {
        if request.start_ns < self.given_up_ns && request.complete {
            request.complete = false;
            let most_events = self.most_history_events;
            request.reason = Some(Reason::BeginForgotten { most_events });
        }
        if request.start_ns < self.attached_ns {
            request.complete = false;
            request.reason = Some(Reason::BeganBefore);
        }
        let end_ns = request.start_ns + request.latency_ns;
        let lost = self.world.losses.count(request.start_ns, end_ns);
        request.records_lost = lost;
        if lost > 0 && request.complete {
            request.complete = false;
            request.reason = Some(Reason::RecordsLost);
        }
        request
    }

    fn forget(&mut self) {
        self.rounds.push_back((self.events, self.world.now_ns));
        while let Some(&(events, at_ns)) = self.rounds.front() {
            if events + self.most_history_events >= self.events {
                break;
            }
            self.given_up_ns = at_ns;
            self.rounds.pop_front();
        }
        let before = |most_events: u64| {
            let enough = |(events, _): &&(u64, u64)| events + most_events <= self.events;
            self.rounds.iter().rev().find(enough).map_or(0, |(_, at_ns)| *at_ns)
        };
        let (busy_ns, begins_ns) = (before(KEEP_EVENTS), before(KEEP_BEGINS_EVENTS));
        let waiting = self.waiting.iter().map(|waiting| waiting.found.goal.start_ns).min();
        let horizon_ns = self
            .detector
            .horizon_ns(self.world.now_ns, begins_ns)
            .min(waiting.unwrap_or(u64::MAX))
            .min(self.world.now_ns.saturating_sub(KEEP_NS).max(busy_ns))
            .min(self.world.oldest_write_under_way_ns());
        let arrived_ns = self.world.oldest_arrival_ns(horizon_ns).max(begins_ns);
        let horizon_ns = horizon_ns.min(arrived_ns).max(self.given_up_ns);
        let mut held = Held::default();
        self.detector.hold(&mut held);
        self.waiting.iter().for_each(|waiting| waiting.found.hold(&mut held));
        held.threads.extend(self.waiting.iter().map(|waiting| waiting.on));
        self.ledger.count(&self.world, horizon_ns);
        self.claims.book_before(horizon_ns, &self.world, &mut self.ledger);
        self.asking.forget();
        self.children.forget_before(horizon_ns);
        if !self.fallback.holds_any() {
            self.accounts.extend(self.ledger.close_before(&self.world, horizon_ns));
        }
        let channels_gone = self.world.forget_before(horizon_ns, held);
        self.ledger.forget(&self.world);
        self.detector.forget(&self.world, horizon_ns, channels_gone);
    }
}

#[cfg(test)]
mod fallback_tests;
#[cfg(test)]
mod tests;
