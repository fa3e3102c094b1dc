//! Finds the parent of a request: the request that a server was serving when it asked another server, or
//! started a program.
//!
//! A process serves a question from its receipt to its answer. A request that a thread makes meanwhile
//! belongs to the innermost question that the thread works for, as its messages tell, or those of the thread
//! that woke it ([`World::asks_for`]); else to the only question that the thread has taken in, or the only
//! one that its process serves. Where several are left, nothing tells which, and the request has no parent.
//!
//! The invariant: a child begins between its parent's receipt and its parent's answer. It is checked when the child
//! is found ([`Causality::parent_of`]), and once more where rows are written (`attribute/numbers.rs`).

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::detect::ids::{Asked, Ids, Link, Parent};
use crate::detect::programs::Programs;
use crate::event::Object;
use crate::ownership::marks::{AsksFor, Question};
use crate::timeline::{ProcessId, ThreadId, Transfer, World};

/// A question that is being served.
#[derive(Clone, Copy, Debug)]
struct Service {
    reader: ThreadId,
    received_ns: u64,
}

/// A request that others name as their parent.
#[derive(Clone, Copy, Debug)]
struct Named {
    id: u64,
    received_ns: u64,
    /// When its last byte so far was written, once any was.
    answered_ns: Option<u64>,
}

#[derive(Default)]
pub(super) struct Causality {
    pub(super) ids: Ids,
    pub(super) programs: Programs,
    /// What processes serve.
    open: BTreeMap<(ProcessId, Asked), Service>,
    /// The same by the thread that took it in.
    by_reader: FxHashMap<ThreadId, BTreeSet<Asked>>,
    named: FxHashMap<Asked, Named>,
}

impl Causality {
    /// A process has taken a question in. `pieces`: that it is not answered yet only means that more of it comes.
    pub(super) fn begin(
        &mut self,
        process: ProcessId,
        taken: &Transfer,
        asked: Asked,
        pieces: bool,
    ) {
        let known = match pieces {
            true => self.on_channel(process, asked.0).next().is_some(),
            false => self.open.contains_key(&(process, asked)),
        };
        if !known {
            let service = Service { reader: taken.thread, received_ns: taken.exit_ns };
            self.open.insert((process, asked), service);
            self.by_reader.entry(taken.thread).or_default().insert(asked);
        }
    }

    /// It has written the answer, or part of it.
    pub(super) fn end(&mut self, process: ProcessId, asked: Asked, answered_ns: u64) {
        if let Some(service) = self.open.remove(&(process, asked)) {
            if let Some(all) = self.by_reader.get_mut(&service.reader) {
                all.remove(&asked);
                if all.is_empty() {
                    self.by_reader.remove(&service.reader);
                }
            }
        }
        if let Some(named) = self.named.get_mut(&asked) {
            named.answered_ns = named.answered_ns.max(Some(answered_ns));
        }
    }

    /// The same for a channel on which only one question can be open.
    pub(super) fn end_all(&mut self, process: ProcessId, channel: Object, answered_ns: u64) {
        let open: Vec<Asked> = self.on_channel(process, channel).map(|(asked, _)| asked).collect();
        for asked in open {
            self.end(process, asked, answered_ns);
        }
    }

    pub(super) fn exit(&mut self, process: ProcessId, at_ns: u64) {
        let all: Vec<Asked> = self.of_process(process).map(|(asked, _)| asked).collect();
        for asked in all {
            self.end(process, asked, at_ns);
        }
    }

    /// Forgets connections that the world has forgotten, and parents whose children began before `horizon_ns`.
    pub(super) fn forget(&mut self, world: &World, horizon_ns: u64) {
        let known = |asked: &Asked| world.channels.contains_key(&asked.0);
        self.open.retain(|(_, asked), _| known(asked));
        self.by_reader.retain(|_, all| {
            all.retain(known);
            !all.is_empty()
        });
        let may_be_named =
            |named: &Named| named.answered_ns.is_none_or(|answered_ns| answered_ns >= horizon_ns);
        self.named.retain(|asked, named| known(asked) && may_be_named(named));
        self.programs.forget(horizon_ns);
    }

    fn of_process(&self, process: ProcessId) -> impl Iterator<Item = (Asked, &Service)> {
        let all = self.open.range((process, FIRST)..).map(|(key, service)| (*key, service));
        all.take_while(move |((of, _), _)| *of == process)
            .map(|((_, asked), service)| (asked, service))
    }

    fn on_channel(
        &self,
        process: ProcessId,
        channel: Object,
    ) -> impl Iterator<Item = (Asked, &Service)> {
        let all = self.open.range((process, (channel, 0))..=(process, (channel, u64::MAX)));
        all.map(|((_, asked), service)| (*asked, service))
    }

    /// The question that the process serves and that these bytes, which it has read, belong to.
    fn of_question(&self, process: ProcessId, question: Question) -> Option<Asked> {
        let begins = (process, (question.object, question.from));
        let ends = (process, (question.object, question.to));
        let mut inside = self.open.range(begins..ends);
        match (inside.next(), inside.next()) {
            (Some(((_, asked), _)), None) => Some(*asked),
            (Some(_), Some(_)) => None,
            // A later piece of it.
            (None, _) => {
                let before = (process, (question.object, 0))..begins;
                self.open.range(before).next_back().map(|((_, asked), _)| *asked)
            }
        }
    }

    /// The question that the process serves and for which one of its threads would ask another one at that time.
    fn of(&self, world: &World, process: ProcessId, thread: ThreadId, at_ns: u64) -> Option<Asked> {
        let told = match world.asks_for(thread, at_ns) {
            AsksFor::Question(question) => self.of_question(process, question),
            AsksFor::GoesOnWith(question) => {
                let asked = self.of_question(process, question);
                // Of a pool, it may have taken up another that nobody had to wake it for.
                let reader = asked.and_then(|asked| self.open.get(&(process, asked)));
                let own = reader.is_none_or(|service| service.reader == thread);
                if !own && self.of_process(process).nth(1).is_some() {
                    return None;
                }
                asked
            }
            AsksFor::OneOfSeveral => return None,
            AsksFor::NothingTells => None,
        };
        let own = || match self.by_reader.get(&thread) {
            Some(all) if all.len() == 1 => all.first().copied(),
            _ => None,
        };
        let only = || {
            let mut all = self.of_process(process);
            all.next().filter(|_| all.next().is_none()).map(|(asked, _)| asked)
        };
        let asked = told.or_else(own).or_else(only)?;
        self.open.get(&(process, asked)).filter(|service| service.received_ns <= at_ns)?;
        Some(asked)
    }

    /// The request for which that thread asks somebody else at that time, if it does for one that it serves.
    pub(super) fn asks_for(
        &mut self,
        world: &World,
        process: ProcessId,
        thread: ThreadId,
        at_ns: u64,
    ) -> Option<Link> {
        let asked = self.of(world, process, thread, at_ns)?;
        if let Some(named) = self.named.get(&asked) {
            return Some(Link { asked, id: named.id });
        }
        let received_ns = self.open.get(&(process, asked))?.received_ns;
        let id = self.ids.ahead();
        self.named.insert(asked, Named { id, received_ns, answered_ns: None });
        Some(Link { asked, id })
    }

    /// The parent of a request with that window: the request for which it seemed to be made, if it began while that
    /// one was served; else the program in whose life it lies.
    pub(super) fn parent_of(
        &mut self,
        world: &World,
        link: Option<Link>,
        program: Option<ProcessId>,
        (start_ns, end_ns): (u64, u64),
    ) -> Option<Parent> {
        let served = link.and_then(|link| {
            let named = self.named.get(&link.asked).filter(|named| named.id == link.id)?;
            let within = named.received_ns <= start_ns
                && named.answered_ns.is_none_or(|answered_ns| start_ns <= answered_ns);
            let detached = named.answered_ns.is_some_and(|answered_ns| answered_ns < end_ns);
            within.then_some(Parent { id: named.id, detached })
        });
        served.or_else(|| self.programs.around(world, program?, (start_ns, end_ns), &mut self.ids))
    }

    /// The id of a request that has been found.
    pub(super) fn id_of(&mut self, asked: Asked) -> u64 {
        match self.named.get(&asked) {
            Some(named) => named.id,
            None => self.ids.next(),
        }
    }
}

/// Before all others.
const FIRST: Asked = (Object { dev: 0, ino: 0, type_bits: 0 }, 0);
