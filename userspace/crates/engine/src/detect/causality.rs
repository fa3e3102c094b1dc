//! Finds the parent of a request: the request that a server was serving when it asked another server, or
//! started a program.
//!
//! A process serves a question from its receipt to its answer. Three things show for which question a request is asked:
//! what its thread had just taken in, what is given out just after its answer has come
//! ([`crate::ownership::adjacent`]), and which questions were served throughout. [`evidence`] defines how certain these
//! make it. Without evidence, the parent is the program in whose life the request lies, if there is one.
//!
//! The invariant: a child begins between its parent's receipt and its parent's answer. It is checked when the child
//! is found ([`Causality::serving`]), and once more where rows are written (`attribute/numbers.rs`).

mod back;
mod evidence;
mod services;

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::detect::families::InferredParents;
use crate::detect::found::Found;
use crate::detect::ids::{Asked, Ids, Link, Parent};
use crate::detect::lifecycle::{Clock, Patience};
use crate::detect::programs::Programs;
use crate::event::Object;
use crate::ownership::adjacent::{
    given_after, moved_nothing_else, placed_before, taken_before, Adjacency, Given,
};
use crate::ownership::handed::{handed_by_several, handed_through, is_task};
use crate::ownership::in_order::Placed;
use crate::ownership::marks::{Mark, MarkKind, Question};
use crate::timeline::gallop::{last_before, History};
use crate::timeline::{ProcessId, ThreadId, Transfer, World};
use back::{back, By};
pub(super) use evidence::{Asking, Heard, Judged};
use evidence::{Begun, Evidence, Taken};
use rpcprobe_assign::{Served, Step, Turn};
use rpcprobe_model::Certainty;
use services::{Belongs, Services};

/// A request that was asked on a connection.
#[derive(Clone, Copy, Debug, Default)]
struct AskedOn {
    asked_ns: u64,
    /// Number of its first byte.
    first: u64,
    /// Its answer has come.
    heard: bool,
    /// The question for which it seems to be asked. Also `None` if another request was in progress on the connection:
    /// then it is not known which of them is answered next.
    of: Option<Taken>,
}

#[derive(Default)]
pub(super) struct Causality {
    pub(super) ids: Ids,
    pub(super) programs: Programs,
    pub(super) services: Services,
    /// Set if a pass before inferred parents.
    inferred: Option<Rc<InferredParents>>,
    /// By the channel on which the answer comes.
    asked: FxHashMap<Object, History<AskedOn>>,
}

/// Where a request is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The channel of the question, and the channel of the answer.
    pub(super) channels: [Object; 2],
    /// Number of the question's first byte.
    pub(super) first: u64,
}

impl Causality {
    /// A process has taken in a question. The question gets an id if the process asks others. `pieces`: while a
    /// question on the same channel is unanswered, later reads are pieces of it.
    pub(super) fn begin(
        &mut self,
        process: ProcessId,
        taken: &Transfer,
        asked: Asked,
        pieces: bool,
    ) {
        self.services.begin(process, taken, asked, pieces, &mut self.ids);
    }

    /// Forgets connections that the world has forgotten, and parents whose children all began before `horizon_ns`.
    pub(super) fn forget(&mut self, horizon_ns: u64) {
        self.services.forget(horizon_ns);
        for all in self.asked.values_mut() {
            let old = all.partition_point(|asked| asked.asked_ns < horizon_ns);
            let last = all.len().saturating_sub(1);
            all.drain(..old.min(last));
        }
        self.programs.forget(horizon_ns);
    }

    /// Drops what is kept of channels that the world has forgotten.
    pub(super) fn forget_channels(&mut self, world: &World) {
        self.services.forget_channels(world);
        self.asked.retain(|channel, _| world.channels.contains_key(channel));
    }

    /// What is known about the parent when a thread asks another server, or starts a program, at `asked_ns`. `None` if
    /// the thread's process serves nothing and the thread has taken in nothing. `opened`: the thread that opened the
    /// connection for this request, and when.
    pub(super) fn asks(
        &mut self,
        world: &World,
        (thread, asked_ns): (ThreadId, u64),
        opened: Option<(ThreadId, u64)>,
        place: Option<Place>,
    ) -> Option<Asking> {
        let process = world.thread(thread).process;
        // A connection of a pool was opened for no request, or long ago. A connection is not for its opener either if
        // another task hands over what is asked on it.
        let opened = opened.filter(|_| !was_handed(world, (thread, asked_ns)));
        let begun = opened.and_then(|(thread, at_ns)| self.begun(world, (thread, at_ns), false));
        let begun = begun.or_else(|| self.begun(world, (thread, asked_ns), true));
        if begun.is_none() && !self.services.serves(process) {
            return None;
        }
        self.services.asks(process, &mut self.ids);
        if let Some(Place { channels: [_, channel], first }) = place {
            let on_channel = self.asked.entry(channel).or_default();
            let alone = on_channel.back().is_none_or(|last| last.heard);
            let of = begun.filter(|begun| alone && begun.adjacency != Adjacency::InOrder);
            let of = of.map(|begun| begun.taken);
            on_channel.push_back(AskedOn { asked_ns, first, heard: false, of });
        }
        let mut askers =
            std::iter::once(thread).chain(askers(world, thread, asked_ns).map(|(id, _)| id));
        let own = askers.find_map(|id| self.services.own(id));
        Some(Asking { process, thread, asked_ns, begun, own, place })
    }

    /// What is known about the parent of the request that begins with `bytes`, if these follow an earlier part for which
    /// no answer has come: that part was asked for a question that has been answered since, and the thread has taken in
    /// another one. `None`: they are asked for the same question as the earlier part, or it is not known for which.
    pub(super) fn goes_on_for(
        &mut self,
        world: &World,
        asking: &Asking,
        bytes: &Transfer,
    ) -> Option<Asking> {
        let of = self.begun_for(asking).or(asking.own)?;
        let now = self.services.own(bytes.thread).filter(|now| *now != of)?;
        let received_ns = self.services.named(&now)?.received_ns;
        let answered_ns = self.services.named(&of)?.answered_ns?;
        if answered_ns > received_ns || received_ns > bytes.enter_ns {
            return None;
        }
        self.heard(asking);
        let place = Place { first: bytes.from, ..asking.place? };
        self.asks(world, (bytes.thread, bytes.enter_ns), None, Some(place))
    }

    /// What a thread had just taken in at `at_ns`: a question that its process serves, or the answer to a request that
    /// was asked for such a question. `handed`: also considers what was taken in by the tasks that handed the thread
    /// its work.
    fn begun(
        &self,
        world: &World,
        (thread, at_ns): (ThreadId, u64),
        handed: bool,
    ) -> Option<Begun> {
        let taken = |at: (ThreadId, u64)| Some((at, taken_before(world, at.0, at.1)?));
        let handed = || {
            let by = handed.then(|| askers(world, thread, at_ns));
            by.into_iter().flatten().find_map(taken)
        };
        let own = taken((thread, at_ns));
        let (at, (mark, adjacency)) = match own {
            // A task of a connection that has been handed work since it heard that answer.
            Some((_, (mark, _)))
                if mark.kind == MarkKind::Hears && was_handed(world, (thread, at_ns)) =>
            {
                handed().filter(|(_, (mark, _))| mark.kind == MarkKind::Takes)?
            }
            own => own.or_else(handed)?,
        };
        self.begun_at(world, (at, at_ns), mark, adjacency)
    }

    /// What the first of the tasks `by` that had just taken in anything had taken in, when they handed on what another
    /// task asked for at `asked_ns`.
    fn begun_by(&self, world: &World, by: &[(ThreadId, u64)], asked_ns: u64) -> Option<Begun> {
        let taken = |at: &(ThreadId, u64)| Some((*at, taken_before(world, at.0, at.1)?));
        let (at, (mark, adjacency)) = by.iter().find_map(taken)?;
        self.begun_at(world, (at, asked_ns), mark, adjacency)
    }

    fn begun_at(
        &self,
        world: &World,
        (at, asked_ns): ((ThreadId, u64), u64),
        mark: &Mark,
        adjacency: Adjacency,
    ) -> Option<Begun> {
        let is_question = mark.kind == MarkKind::Takes;
        let taken = match (mark.kind, adjacency) {
            (MarkKind::Takes, _) => {
                let process = world.thread(at.0).process;
                let known = self.services.begins_in(process, mark.moved, asked_ns);
                known.map_or(Taken::Bytes(mark.moved), Taken::Known)
            }
            (MarkKind::Hears, Adjacency::Alone | Adjacency::Polled) => {
                let all = self.asked.get(&mark.moved.object)?;
                last_before(all, |asked| asked.asked_ns < mark.exit_ns)?.of?
            }
            _ => return None,
        };
        Some(Begun { taken, adjacency, is_question, at })
    }

    /// The question that `taken` belongs to, by what is known by now.
    fn told(&self, asking: &Asking, taken: Taken) -> Belongs {
        match taken {
            Taken::Known(asked) => Belongs::To(asked),
            Taken::Bytes(bytes) => self.services.belongs(asking.process, bytes, asking.asked_ns),
        }
    }

    /// The question that a thread had just taken in when it asked, by what is known by now.
    fn begun_for(&self, asking: &Asking) -> Option<Asked> {
        match self.told(asking, asking.begun?.taken) {
            Belongs::To(asked) => Some(asked),
            Belongs::ToNone | Belongs::Untold => None,
        }
    }

    /// The answer to a request has come.
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

    /// The only question that was served from when the request was asked until `heard_ns`, by what is known by now.
    pub(super) fn only(&self, asking: &Asking, heard_ns: u64) -> Option<Asked> {
        self.services.only(asking.process, (asking.asked_ns, heard_ns))
    }

    /// Decides for which question a request was asked that was answered at `heard_ns`. `Err`: later events may still
    /// show it. `over`: does not wait for more events. `placed`: what the order of messages has shown, once it has.
    pub(super) fn judge(
        &mut self,
        world: &World,
        asking: &Asking,
        heard: Option<&Heard>,
        (only, heard_ns): (Option<Asked>, u64),
        over: bool,
        placed: &mut Option<bool>,
    ) -> Result<Judged, NotYet> {
        let clock = Clock::new(world, over);
        let back = heard.and_then(|heard| back(world, asking, heard));
        let was_rival = back.as_ref().filter(|back| asking.begun.is_none() && back.by == By::Rival);
        let of_rival = was_rival.and_then(|back| self.begun_by(world, &back.to, asking.asked_ns));
        let begun = asking.begun.or(of_rival);
        let shown = placed.filter(|_| asking.begun.is_some());
        let in_order = shown.or_else(|| begun.map_or(Some(true), |begun| in_order(world, &begun)));
        *placed = in_order;
        let belongs = begun.map(|begun| self.told(asking, begun.taken));
        let waits = belongs == Some(Belongs::Untold) || in_order.is_none();
        if waits && !clock.gives_up(Patience::Sign, heard_ns) {
            let round_of = begun.filter(|_| in_order.is_none()).map(|begun| begun.at.0);
            return Err(NotYet { round_of });
        }
        let given = match heard {
            Some(Heard { thread, exit_ns, channel: Some(channel) }) => {
                let given = match &back {
                    Some(back) => back.given(world),
                    None => given_after(world, *thread, *exit_ns, *channel),
                };
                match given {
                    Given::NotYet | Given::NotYetInOrder
                        if !clock.gives_up(Patience::Sign, *exit_ns) =>
                    {
                        let in_order = given == Given::NotYetInOrder;
                        return Err(NotYet { round_of: in_order.then_some(*thread) });
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
            Given::NotYet | Given::NotYetInOrder | Given::Nothing => None,
        };
        let own = asking.place.as_ref().map_or(&[][..], |place| &place.channels);
        let did_nothing_else = back.as_ref().is_some_and(|back| back.by != By::Nothing)
            || heard.is_some_and(|heard| {
                let window = (asking.asked_ns, heard.exit_ns);
                heard.thread == asking.thread
                    && moved_nothing_else(world, asking.thread, window, own)
            });
        let told = match (begun, belongs) {
            (Some(begun), Some(Belongs::To(asked))) if in_order == Some(true) => {
                Some((asked, begun.adjacency))
            }
            _ => None,
        };
        let untold = match begun {
            Some(Begun { taken: Taken::Bytes(bytes), .. }) if belongs == Some(Belongs::Untold) => {
                self.services.is_asked_on(asking.process, bytes.object)
            }
            _ => false,
        };
        // Two other questions count as served: a question that was taken in and not reported yet; and the question that
        // is answered next, if it had been read by then, even if a part of its answer was written before.
        let served_too = match given {
            Given::Answer { of, .. } => {
                world.read_of(&of).is_some_and(|read| read.exit_ns <= asking.asked_ns).then_some(of)
            }
            Given::NotYet | Given::NotYetInOrder | Given::Nothing => None,
        };
        // What was read last on the question's own connection may be a later piece of the question.
        let another = |(object, _): &Asked| served_too.is_some_and(|of| of.object != *object);
        let alone = |asked: Option<Asked>| asked.filter(|asked| !untold && !another(asked));
        let (only, own) = (alone(only), alone(asking.own));
        let is_question = begun.is_some_and(|begun| begun.is_question);
        let by_task = is_question && is_task(world, asking.thread);
        let begun = told;
        // The thread that a thread wakes next may have waited for something other than the answer.
        let may_err = !is_task(world, asking.thread)
            && back.as_ref().is_some_and(|back| back.by == By::Nothing)
            && begun.is_none();
        let judged = Evidence { begun, ended, only, own, did_nothing_else, by_task }.judged();
        let judged = judged.map(|(asked, certainty)| match certainty {
            Certainty::Sure if may_err => (asked, Certainty::Likely),
            certainty => (asked, certainty),
        });
        if let (Some((asked, _)), Some(known)) = (judged, self.asked_on(asking)) {
            known.of = Some(Taken::Known(asked));
        }
        let linked = judged.and_then(|(asked, certainty)| {
            self.services.link(asked).map(|link| Judged::For { link, certainty })
        });
        Ok(linked.unwrap_or(if untold { Judged::Untold } else { Judged::Nobody }))
    }

    /// Whether the request may turn out to be asked for the request with this `id`.
    pub(super) fn may_be_for(&self, asking: &Asking, only: Option<Asked>, id: u64) -> bool {
        let told = [self.begun_for(asking), asking.own, only];
        let mut told = told.into_iter().flatten().filter_map(|asked| self.services.link(asked));
        told.any(|link| link.id == id)
    }

    pub(super) fn know_inferred(&mut self, inferred: Rc<InferredParents>) {
        self.inferred = Some(inferred);
    }

    /// Whether a pass before has inferred parents.
    pub(super) fn knows_inferred(&self) -> bool {
        self.inferred.is_some()
    }

    /// The question for which a request was made, as a pass before has inferred from the steps of all requests.
    pub(super) fn inferred(&self, found: &Found) -> Option<Link> {
        let of = *self.inferred.as_ref()?.get(&found.question()?)?;
        self.services.link(of)
    }

    /// The request for which another with the given window seems to be made, if that one began while it was served.
    pub(super) fn serving(&self, link: Link, (start_ns, end_ns): (u64, u64)) -> Option<Parent> {
        let named = self.services.named(&link.asked).filter(|named| named.id == link.id)?;
        let within = named.received_ns <= start_ns
            && named.answered_ns.is_none_or(|answered_ns| start_ns <= answered_ns);
        let detached = named.answered_ns.is_some_and(|answered_ns| answered_ns < end_ns);
        within.then_some(Parent { id: named.id, detached })
    }

    /// The program of a process in whose life a window lies.
    pub(super) fn program_around(
        &mut self,
        world: &World,
        process: ProcessId,
        window: (u64, u64),
    ) -> Option<Parent> {
        self.programs.around(world, process, window, &mut self.ids)
    }

    /// When a found request was served, if it may be a parent.
    pub(super) fn served(&self, world: &World, found: &Found) -> Option<Served> {
        let first = found.goal.messages.first()?;
        let named = self.services.named(&(first.object, first.from))?;
        let id = found.request.request_id;
        let answered_ns = named.answered_ns.filter(|_| named.id == id)?;
        let step = |ns| step(world, named.reader, ns);
        Some(Served { id, received: step(named.received_ns), answered: step(answered_ns) })
    }

    /// The id of a request that has been found.
    pub(super) fn id_of(&mut self, asked: Asked) -> u64 {
        match self.services.named(&asked) {
            Some(named) => named.id,
            None => self.ids.next(),
        }
    }
}

/// For a question inferred from the order of messages: whether everything that the thread gave out still shows the same
/// question as when the thread asked. `None`: the thread may give out more.
fn in_order(world: &World, begun: &Begun) -> Option<bool> {
    if begun.adjacency != Adjacency::InOrder {
        return Some(true);
    }
    let is_in = |moved: Question| match begun.taken {
        Taken::Known((object, first)) => {
            object == moved.object && (moved.from..moved.to).contains(&first)
        }
        Taken::Bytes(bytes) => bytes == moved,
    };
    match placed_before(world, begun.at.0, begun.at.1) {
        Placed::NotYet => None,
        Placed::At(mark) => Some(is_in(mark.moved)),
        Placed::Nothing => Some(false),
    }
}

/// The tasks through which a thread was handed, since it last moved a message, what it asks for at `at_ns`.
fn askers(
    world: &World,
    thread: ThreadId,
    at_ns: u64,
) -> impl Iterator<Item = (ThreadId, u64)> + '_ {
    let before = last_before(&world.thread(thread).marks.list, |mark| mark.exit_ns <= at_ns);
    handed_through(world, thread, (before.map_or(0, |mark| mark.exit_ns), at_ns))
}

/// Whether a thread was handed anything, since it last moved a message, for what it does at `at_ns`.
fn was_handed(world: &World, (thread, at_ns): (ThreadId, u64)) -> bool {
    askers(world, thread, at_ns).next().is_some() || !rivals(world, (thread, at_ns)).is_empty()
}

/// The tasks that each handed a thread something before it ran, if there are several. Then it is not known for which of
/// them it asks at `at_ns`.
fn rivals(world: &World, (thread, at_ns): (ThreadId, u64)) -> Vec<(ThreadId, u64)> {
    let before = last_before(&world.thread(thread).marks.list, |mark| mark.exit_ns <= at_ns);
    handed_by_several(world, thread, before.map_or(0, |mark| mark.exit_ns), at_ns)
}

/// The step of a thread at `ns`, when one of its calls began or ended.
pub(super) fn step(world: &World, thread: ThreadId, ns: u64) -> Step {
    let turn = world.polls_at(thread, ns).filter(|number| *number > 0);
    let turn = turn.map(|number| Turn { thread, number, begun_ns: world.polled(thread, number) });
    Step { ns, turn }
}

/// What a thread does next may still show for which question it asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct NotYet {
    /// The thread whose order of messages will show it, but not before this thread's [`Progress`] differs.
    ///
    /// [`Progress`]: crate::ownership::adjacent::Progress
    pub(super) round_of: Option<ThreadId>,
}
