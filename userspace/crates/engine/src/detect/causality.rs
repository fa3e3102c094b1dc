//! Finds the parent of a request: the request that a server was serving when it asked another server, or
//! started a program.
//!
//! A process serves a question from its receipt to its answer. What a request is asked for is told by what its thread had
//! just taken in, and by what is given out just after its answer has come ([`crate::ownership::adjacent`]); and by
//! which questions were served all the while. [`evidence`] says how sure these make it. Where nothing tells, a request has no
//! parent.
//!
//! The invariant: a child begins between its parent's receipt and its parent's answer. It is checked when the child
//! is found ([`Causality::parent_of`]), and once more where rows are written (`attribute/numbers.rs`).

mod evidence;
mod services;

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::detect::ids::{Asked, Ids, Parent};
use crate::detect::lifecycle::{Clock, Patience};
use crate::detect::programs::Programs;
use crate::event::Object;
use crate::ownership::adjacent::{given_after, moved_nothing_else, taken_before, Adjacency, Given};
use crate::ownership::marks::MarkKind;
use crate::timeline::gallop::last_before;
use crate::timeline::{ProcessId, ThreadId, Transfer, World};
pub(super) use evidence::{Asking, Heard, Judged};
use evidence::{Evidence, Told};
use rpcprobe_model::Certainty;
use services::Services;

/// A request that was asked on a connection.
#[derive(Clone, Copy, Debug, Default)]
struct AskedOn {
    asked_ns: u64,
    /// Number of its first byte.
    first: u64,
    /// Its answer has come.
    heard: bool,
    /// For whom it seems to be; `None`, too, where another was under way: which is heard of next is not known.
    of: Option<Asked>,
}

#[derive(Default)]
pub(super) struct Causality {
    pub(super) ids: Ids,
    pub(super) programs: Programs,
    pub(super) services: Services,
    /// By the channel on which the answer comes.
    asked: FxHashMap<Object, VecDeque<AskedOn>>,
}

/// Where a request is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The channel of the question, and that on which the answer comes.
    pub(super) channels: [Object; 2],
    /// Number of the question's first byte.
    pub(super) first: u64,
}

impl Causality {
    /// A process has taken a question in: it gets an id if its process asks others. `pieces`: that it is not answered yet
    /// only means that more of it comes.
    pub(super) fn begin(
        &mut self,
        process: ProcessId,
        taken: &Transfer,
        asked: Asked,
        pieces: bool,
    ) {
        self.services.begin(process, taken, asked, pieces, &mut self.ids);
    }

    /// Forgets connections that the world has forgotten, and parents whose children began before `horizon_ns`.
    pub(super) fn forget(&mut self, world: &World, horizon_ns: u64) {
        self.services.forget(world, horizon_ns);
        self.asked.retain(|_, all| {
            let old = all.partition_point(|asked| asked.asked_ns < horizon_ns);
            all.drain(..old.min(all.len().saturating_sub(1)));
            true
        });
        self.asked.retain(|channel, _| world.channels.contains_key(channel));
        self.programs.forget(horizon_ns);
    }

    /// What is known of the request for which a thread asks somebody else, or starts a program, at that time; `None` if
    /// its process serves nothing. `opened`: who opened the connection for it, and when.
    pub(super) fn asks(
        &mut self,
        world: &World,
        (thread, asked_ns): (ThreadId, u64),
        opened: Option<(ThreadId, u64)>,
        place: Option<Place>,
    ) -> Option<Asking> {
        let process = world.thread(thread).process;
        if !self.services.asks(process, &mut self.ids) {
            return None;
        }
        // A connection of a pool was opened for nobody, or long ago.
        let begun = opened.and_then(|at| self.begun(world, at));
        let begun = begun.or_else(|| self.begun(world, (thread, asked_ns)));
        if let Some(Place { channels: [_, channel], first }) = place {
            let on_channel = self.asked.entry(channel).or_default();
            let alone = on_channel.back().is_none_or(|last| last.heard);
            let of = begun.filter(|(_, adjacency)| alone && *adjacency != Adjacency::InOrder);
            let of = of.map(|(asked, _)| asked);
            on_channel.push_back(AskedOn { asked_ns, first, heard: false, of });
        }
        Some(Asking { process, thread, asked_ns, begun, own: self.services.own(thread), place })
    }

    /// What a thread had just taken in at that time: a question that its process serves, or an answer to what was asked for
    /// one.
    fn begun(&self, world: &World, (thread, at_ns): (ThreadId, u64)) -> Option<Told> {
        let (mark, adjacency) = taken_before(world, thread, at_ns)?;
        let asked = match (mark.kind, adjacency) {
            (MarkKind::Takes, _) => {
                let process = world.thread(thread).process;
                self.services.of_question(process, mark.moved, at_ns)?
            }
            (MarkKind::Hears, Adjacency::Alone | Adjacency::Polled) => {
                let all = self.asked.get(&mark.moved.object)?;
                last_before(all, |asked| asked.asked_ns < mark.exit_ns)?.of?
            }
            _ => return None,
        };
        Some((asked, adjacency))
    }

    /// The answer to what was asked has come.
    pub(super) fn heard(&mut self, asking: &Asking) {
        if let Some(asked) = self.asked_on(asking) {
            asked.heard = true;
        }
    }

    fn asked_on(&mut self, asking: &Asking) -> Option<&mut AskedOn> {
        let Place { channels: [_, channel], first } = asking.place?;
        let all = self.asked.get_mut(&channel)?;
        all.iter_mut().rev().find(|asked| asked.first == first)
    }

    /// The only question that was served from when that was asked until then.
    pub(super) fn only(&self, asking: &Asking, heard_ns: u64) -> Option<Asked> {
        self.services.only(asking.process, (asking.asked_ns, heard_ns))
    }

    /// For whom that was asked; `Err`: what its thread does next may still tell. `over`: nothing more is waited for.
    pub(super) fn judge(
        &mut self,
        world: &World,
        asking: &Asking,
        heard: Option<&Heard>,
        only: Option<Asked>,
        over: bool,
    ) -> Result<Option<Judged>, NotYet> {
        let clock = Clock::new(world, over);
        let given = match heard {
            Some(Heard { thread, exit_ns, channel: Some(channel) }) => {
                match given_after(world, *thread, *exit_ns, *channel) {
                    Given::NotYet if !clock.gives_up(Patience::Sign, *exit_ns) => {
                        return Err(NotYet)
                    }
                    given => given,
                }
            }
            _ => Given::Nothing,
        };
        let ended = match given {
            Given::Answer { of, enter_ns, adjacency } => {
                let answered = self.services.answered_by(asking.process, of, enter_ns);
                answered.map(|asked| (asked, adjacency))
            }
            Given::NotYet | Given::Nothing => None,
        };
        let own = asking.place.as_ref().map_or(&[][..], |place| &place.channels);
        let did_nothing_else = heard.is_some_and(|heard| {
            heard.thread == asking.thread
                && moved_nothing_else(world, asking.thread, (asking.asked_ns, heard.exit_ns), own)
        });
        let Asking { begun, own, .. } = *asking;
        let judged = Evidence { begun, ended, only, own, did_nothing_else }.judged();
        if let (Some((asked, _)), Some(known)) = (judged, self.asked_on(asking)) {
            known.of = Some(asked);
        }
        Ok(judged.and_then(|(asked, certainty)| {
            self.services.link(asked).map(|link| Judged { link, certainty })
        }))
    }

    /// Whether that may turn out to be asked for the request of that id.
    pub(super) fn may_be_for(&self, asking: &Asking, only: Option<Asked>, id: u64) -> bool {
        let told = [asking.begun.map(|(asked, _)| asked), asking.own, only];
        let mut told = told.into_iter().flatten().filter_map(|asked| self.services.link(asked));
        told.any(|link| link.id == id)
    }

    /// The parent of a request with that window: the request for which it seemed to be made, if it began while that
    /// one was served; else the program in whose life it lies.
    pub(super) fn parent_of(
        &mut self,
        world: &World,
        judged: Option<Judged>,
        program: Option<ProcessId>,
        (start_ns, end_ns): (u64, u64),
    ) -> Option<(Parent, Certainty)> {
        let served = judged.and_then(|Judged { link, certainty }| {
            let named = self.services.named(&link.asked).filter(|named| named.id == link.id)?;
            let within = named.received_ns <= start_ns
                && named.answered_ns.is_none_or(|answered_ns| start_ns <= answered_ns);
            let detached = named.answered_ns.is_some_and(|answered_ns| answered_ns < end_ns);
            within.then_some((Parent { id: named.id, detached }, certainty))
        });
        served.or_else(|| {
            let around = self.programs.around(world, program?, (start_ns, end_ns), &mut self.ids);
            around.map(|parent| (parent, Certainty::Sure))
        })
    }

    /// The id of a request that has been found.
    pub(super) fn id_of(&mut self, asked: Asked) -> u64 {
        match self.services.named(&asked) {
            Some(named) => named.id,
            None => self.ids.next(),
        }
    }
}

/// What a thread does next may still tell for whom it asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotYet;
