//! Found requests whose parents are not known yet. What their threads do next may still show the parents.

use std::collections::BTreeMap;

use crate::detect::causality::{Asking, Causality, Judged, NotYet};
use crate::detect::found::Found;
use crate::detect::ids::Asked;
use crate::detect::lifecycle::{Clock, Patience};
use crate::ownership::adjacent::Progress;
use crate::timeline::retention::Held;
use crate::timeline::{ProcessId, ThreadId, World};
use rpcprobe_model::Certainty;

/// Interval between two checks of requests that wait for evidence which may not come.
const SWEEP_EVERY_NS: u64 = 20_000_000;

/// A request whose parent is not known yet.
#[derive(Debug)]
struct Child {
    found: Box<Found>,
    /// The only question that was served throughout, as known when the request was found.
    only: Option<Asked>,
    /// Whether the order of messages shows what it seemed to show when the request was asked, once that is known. With
    /// hundreds of requests in progress, looking at the whole order again with each event would take most of the time.
    placed: Option<bool>,
    /// The thread whose order is to show the parent, and how far it was when it did not show it yet.
    in_round: Option<(ThreadId, Progress)>,
}

impl Child {
    /// Whether nothing can be decided yet, because the thread whose order is to show it has not gone on.
    fn waits_for_round(&self, world: &World) -> bool {
        self.in_round.is_some_and(|(id, then)| Progress::of(world.thread(id)) == then)
            && !Clock::new(world, false).gives_up(Patience::Sign, self.heard_ns())
    }

    /// When its answer had come.
    fn heard_ns(&self) -> u64 {
        self.found.made_for.heard.map_or(self.found.goal.end_ns, |heard| heard.exit_ns)
    }

    /// The only question that was served throughout.
    fn only(&self, asking: &Asking, causality: &Causality) -> Option<Asked> {
        match asking.took_bytes() {
            true => causality.only(asking, self.heard_ns()),
            false => self.only,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Children {
    /// By the process, and its thread that received the answer.
    waiting: BTreeMap<(ProcessId, ThreadId), Vec<Child>>,
    swept_ns: u64,
}

impl Children {
    /// Takes a found request. Returns it with its parent, unless later events may still show the parent.
    pub(super) fn take(
        &mut self,
        world: &World,
        found: Box<Found>,
        causality: &mut Causality,
    ) -> Option<Box<Found>> {
        let Some(asking) = found.made_for.asking else {
            return Some(with_parent(world, found, Judged::Nobody, causality));
        };
        let heard = found.made_for.heard;
        if heard.is_some() {
            causality.heard(&asking);
        }
        let mut child = Child { found, only: None, placed: None, in_round: None };
        child.only = causality.only(&asking, child.heard_ns());
        match (judged(world, child, false, causality), heard) {
            (Err(child), Some(heard)) => {
                let key = (world.thread(heard.thread).process, heard.thread);
                self.waiting.entry(key).or_default().push(*child);
                None
            }
            (Err(child), None) => judged(world, *child, true, causality).ok(),
            (Ok(found), _) => Some(found),
        }
    }

    /// Requests that may be children of the request `id` of a process, which is found now; and all requests whose
    /// parents are known by now.
    pub(super) fn before(
        &mut self,
        world: &World,
        process: ProcessId,
        id: u64,
        causality: &mut Causality,
    ) -> Vec<Box<Found>> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let of_process = self.waiting.range((process, 0)..=(process, ThreadId::MAX));
        let threads: Vec<_> = of_process.map(|(key, _)| *key).collect();
        let may_be = |child: &Child, causality: &Causality| {
            let asking = child.found.made_for.asking;
            asking.is_some_and(|asking| {
                causality.may_be_for(&asking, child.only(&asking, causality), id)
            })
        };
        let each = |key| self.look(world, key, causality, may_be);
        threads.into_iter().flat_map(each).collect()
    }

    /// Whether no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Requests whose parents are shown by what the thread has just done.
    pub(super) fn told_by(
        &mut self,
        world: &World,
        thread: ThreadId,
        causality: &mut Causality,
    ) -> Vec<Box<Found>> {
        let key = (world.thread(thread).process, thread);
        self.look(world, key, causality, |_, _| false)
    }

    /// Requests that have waited long enough; `over`: all requests.
    pub(super) fn sweep(
        &mut self,
        world: &World,
        over: bool,
        causality: &mut Causality,
    ) -> Vec<Box<Found>> {
        let due = world.now_ns >= self.swept_ns.saturating_add(SWEEP_EVERY_NS);
        if !(due || over) {
            return Vec::new();
        }
        self.swept_ns = world.now_ns;
        let keys: Vec<_> = self.waiting.keys().copied().collect();
        keys.into_iter().flat_map(|key| self.look(world, key, causality, |_, _| over)).collect()
    }

    /// Looks at the requests whose answers a thread received. `over`: whether a request is decided without waiting for
    /// more.
    fn look(
        &mut self,
        world: &World,
        key: (ProcessId, ThreadId),
        causality: &mut Causality,
        over: impl Fn(&Child, &Causality) -> bool,
    ) -> Vec<Box<Found>> {
        let Some(children) = self.waiting.remove(&key) else { return Vec::new() };
        let (mut told, mut waiting) = (Vec::new(), Vec::new());
        for child in children {
            let over = over(&child, causality);
            if !over && child.waits_for_round(world) {
                waiting.push(child);
                continue;
            }
            match judged(world, child, over, causality) {
                Ok(found) => told.push(found),
                Err(child) => waiting.push(*child),
            }
        }
        if !waiting.is_empty() {
            self.waiting.insert(key, waiting);
        }
        told
    }

    /// The earliest begin of the waiting requests.
    pub(super) fn since_ns(&self) -> Option<u64> {
        self.waiting.values().flatten().map(|child| child.found.goal.start_ns).min()
    }

    /// Adds the threads, processes and channels that they refer to.
    pub(super) fn hold(&self, held: &mut Held) {
        for child in self.waiting.values().flatten() {
            child.found.hold(held);
        }
    }
}

/// The request with its parent, if that is decided; otherwise the child again.
fn judged(
    world: &World,
    mut child: Child,
    over: bool,
    causality: &mut Causality,
) -> Result<Box<Found>, Box<Child>> {
    let made_for = child.found.made_for;
    let judged = match made_for.asking {
        Some(asking) => {
            let all_the_while = (child.only(&asking, causality), child.heard_ns());
            let heard = made_for.heard.as_ref();
            causality.judge(world, &asking, heard, all_the_while, over, &mut child.placed)
        }
        None => Ok(Judged::Nobody),
    };
    match judged {
        Ok(judged) => Ok(with_parent(world, child.found, judged, causality)),
        Err(NotYet { round_of }) => {
            child.in_round = round_of.map(|id| (id, Progress::of(world.thread(id))));
            Err(Box::new(child))
        }
    }
}

/// The request with its parent: the request for which evidence shows that it was made, or all requests together
/// ([`Causality::inferred`]), if it began while that was served; otherwise the program in whose life it lies. What the
/// steps of all requests show replaces what evidence only guesses.
fn with_parent(
    world: &World,
    mut found: Box<Found>,
    judged: Judged,
    causality: &mut Causality,
) -> Box<Found> {
    let request = &found.request;
    let window = (request.start_ns, request.start_ns.saturating_add(request.latency_ns));
    let by_evidence = match judged {
        Judged::For { link, certainty } => Some((link, certainty)),
        Judged::Nobody | Judged::Untold => None,
    };
    let asked = found.made_for.asking.is_some() && !matches!(judged, Judged::Untold);
    let by_all = causality.inferred(&found).filter(|_| asked);
    let by_all = by_all.map(|link| (link, Certainty::Guessed));
    let is_firm = by_evidence.is_some_and(|(_, certainty)| certainty != Certainty::Guessed);
    let each = if is_firm { [by_evidence, by_all] } else { [by_all, by_evidence] };
    let served = each
        .into_iter()
        .flatten()
        .find_map(|(link, certainty)| Some((link, causality.serving(link, window)?, certainty)));
    found.made_for.sake =
        served.map(|(link, _, certainty)| (link.asked, certainty == Certainty::Sure));
    found.made_for.orphan = asked && served.is_none();
    let parent = served.map(|(_, parent, certainty)| (parent, certainty)).or_else(|| {
        let program = found.made_for.program.filter(|_| !matches!(judged, Judged::Untold))?;
        Some((causality.program_around(world, program, window)?, Certainty::Sure))
    });
    if let Some((parent, certainty)) = parent {
        let request = &mut found.request;
        request.parent_request_id = Some(parent.id);
        request.parent_certainty = Some(certainty);
        request.detached = parent.detached;
    }
    found
}
