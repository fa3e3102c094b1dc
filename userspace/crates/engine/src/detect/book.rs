//! What all detectors share: ids and parents, which end asks on a connection, what the user selected, and what was
//! found.

use rustc_hash::FxHashMap;

use crate::detect::causality::Causality;
use crate::detect::children::Children;
use crate::detect::families::{Families, InferredParents};
use crate::detect::found::Found;
use crate::detect::roles::Roles;
use crate::event::Object;
use crate::timeline::retention::Held;
use crate::timeline::{ThreadId, World};
use rpcprobe_model::request_filter::Wanted;

#[derive(Default)]
pub(super) struct Book {
    pub(super) causality: Causality,
    pub(super) roles: Roles,
    /// What the user asked for.
    pub(super) wanted: Wanted,
    /// Set if the target ran already when the capture began: the time of that begin. Requests that ended before it are
    /// left out.
    pub(super) attached_ns: Option<u64>,
    /// It is known beforehand that there are requests of other kinds than the fallbacks.
    pub(super) no_fallback: bool,
    carried: Carried,
    /// Requests whose parents are not known yet.
    children: Children,
    families: Families,
    found: Vec<Box<Found>>,
    /// Requests of the fallback kinds that were not taken yet.
    fallback: Vec<Box<Found>>,
    /// A request of a kind that is no fallback was found.
    found_primary: bool,
}

impl Book {
    pub(super) fn found(&mut self, world: &World, found: Found) {
        self.found_primary = true;
        // A request's children come before it.
        if let Some(process) = found.goal.server_process {
            self.causality.programs.served(process);
            let id = found.request.request_id;
            let children = self.children.before(world, process, id, &mut self.causality);
            self.found.extend(children);
        }
        self.found.extend(self.children.take(world, Box::new(found), &mut self.causality));
    }

    /// Whether any requests wait until their parents are known.
    pub(super) fn waits(&self) -> bool {
        !self.children.is_empty()
    }

    /// Looks again at requests whose parents may be shown by what a thread has just done.
    pub(super) fn thread_did(&mut self, world: &World, thread: ThreadId) {
        self.found.extend(self.children.told_by(world, thread, &mut self.causality));
    }

    /// Looks again at requests that have waited long enough; `over`: at all requests.
    pub(super) fn sweep(&mut self, world: &World, over: bool) {
        self.found.extend(self.children.sweep(world, over, &mut self.causality));
    }

    /// The earliest begin of the requests whose parents are not known yet.
    pub(super) fn since_ns(&self) -> Option<u64> {
        self.children.since_ns()
    }

    /// Adds a request of a fallback kind, which is used when there are no others.
    pub(super) fn found_fallback(&mut self, found: Found) {
        self.fallback.push(Box::new(found));
    }

    /// Whether there are requests of other kinds than the fallbacks, so that fallbacks are left out. Found requests do
    /// not count if the user selected a fallback kind.
    pub(super) fn has_primary(&self) -> bool {
        self.no_fallback || self.found_primary && !self.wanted.names_fallback()
    }

    /// Whether requests were found on the channel.
    pub(super) fn carries_requests(&self, channel: Object) -> bool {
        self.carried.0.contains_key(&channel)
    }

    /// Whether answers were found on the channel.
    pub(super) fn carries_answers(&self, channel: Object) -> bool {
        self.carried.0.get(&channel).is_some_and(|carries| carries.answers)
    }

    /// Whether anything was found and not taken yet.
    pub(super) fn has_found(&self) -> bool {
        !(self.found.is_empty() && self.fallback.is_empty())
    }

    /// Takes the found requests that the user selected.
    pub(super) fn take_found(&mut self, world: &World) -> Vec<Box<Found>> {
        let mut found = std::mem::take(&mut self.found);
        found.retain(|found| self.gives(world, found));
        if !self.causality.knows_inferred() {
            for found in &found {
                self.families.note(world, found, &self.causality);
            }
        }
        // If a request began before the capture, it may not have been known which end asks.
        let attached_ns = self.attached_ns.unwrap_or(0);
        for found in found.iter().filter(|found| found.goal.start_ns >= attached_ns) {
            self.carried.note(world, found);
        }
        found
    }

    /// Parents without firm evidence, inferred from the steps of all requests. None if a pass before inferred them.
    pub(super) fn infer_parents(&mut self) -> InferredParents {
        std::mem::take(&mut self.families).infer()
    }

    pub(super) fn take_fallback(&mut self, world: &World) -> Vec<Box<Found>> {
        let mut fallback = std::mem::take(&mut self.fallback);
        fallback.retain(|found| self.gives(world, found));
        fallback
    }

    /// Whether a request belongs to the capture, and the user selected such requests.
    fn gives(&self, world: &World, found: &Found) -> bool {
        found.goal.end_ns >= self.attached_ns.unwrap_or(0)
            && self.wanted.takes(found.request.kind, |port| found.has_port(world, port))
    }

    /// Forgets connections that the world has forgotten, and what no request since `horizon_ns` can refer to.
    pub(super) fn forget(&mut self, horizon_ns: u64) {
        self.causality.forget(horizon_ns);
    }

    /// Drops what is kept of channels that the world has forgotten.
    pub(super) fn forget_channels(&mut self, world: &World) {
        self.roles.forget(world);
        self.causality.forget_channels(world);
        self.carried.0.retain(|channel, _| world.channels.contains_key(channel));
    }

    pub(super) fn hold(&self, held: &mut Held) {
        self.roles.hold(held);
        self.causality.programs.hold(held);
        self.children.hold(held);
    }
}

/// What the requests found on a channel show about it.
#[derive(Clone, Copy, Debug, Default)]
struct Carries {
    answers: bool,
}

/// Channels on which requests were found.
#[derive(Debug, Default)]
struct Carried(FxHashMap<Object, Carries>);

impl Carried {
    fn note(&mut self, world: &World, found: &Found) {
        let messages = found.goal.messages.iter().enumerate();
        for (index, message) in
            messages.filter(|(_, message)| world.channels.contains_key(&message.object))
        {
            self.0.entry(message.object).or_default().answers |= index > 0;
        }
    }
}
