//! Questions that processes serve, from receipt to answer, and the questions that may become parents.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::ids::{Asked, Ids, Link};
use crate::event::Object;
use crate::ownership::marks::Question;
use crate::timeline::{ProcessId, ThreadId, Transfer, World};

/// Number of answered questions that are remembered. If more were answered since an answer came, it is not known which
/// questions were served before.
const MOST_ANSWERED: usize = 1024;
/// Number of questions of a connection that are searched for the question that is answered. If more lie in between, on
/// a connection with many streams, nothing is concluded.
const MOST_STREAMS: usize = 64;
/// Sorts before all other questions.
const FIRST: Asked = (Object { dev: 0, ino: 0, type_bits: 0 }, 0);

/// A question that is being served.
#[derive(Clone, Copy, Debug)]
struct Service {
    reader: ThreadId,
    received_ns: u64,
}

/// A request that may be the parent of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named {
    pub(super) id: u64,
    process: ProcessId,
    pub(super) reader: ThreadId,
    pub(super) received_ns: u64,
    /// When the last byte of its answer so far was written, if any was.
    pub(super) answered_ns: Option<u64>,
}

/// The question to which bytes belong that a process has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// To a question that the process served then.
    To(Asked),
    /// To a question that it did not serve then, or to several questions.
    ToNone,
    /// To a question that was not reported.
    Untold,
}

/// A question that was served.
#[derive(Clone, Copy, Debug)]
struct Answered {
    process: ProcessId,
    asked: Asked,
    received_ns: u64,
    answered_ns: u64,
}

#[derive(Debug, Default)]
pub(in crate::detect) struct Services {
    open: BTreeMap<(ProcessId, Asked), Service>,
    /// The same, by time of receipt.
    by_received: BTreeSet<(ProcessId, u64, Asked)>,
    /// The same, by the thread that took them in.
    by_reader: FxHashMap<ThreadId, BTreeSet<Asked>>,
    /// The latest answered questions, in the order in which they were answered.
    answered: VecDeque<Answered>,
    /// Processes that ask others while they serve: the questions that they serve may be parents.
    askers: FxHashSet<ProcessId>,
    named: BTreeMap<Asked, Named>,
}

impl Services {
    /// A process has taken in a question. `pieces`: while a question on the same channel is unanswered, later reads are
    /// pieces of it.
    pub(super) fn begin(
        &mut self,
        process: ProcessId,
        taken: &Transfer,
        asked: Asked,
        pieces: bool,
        ids: &mut Ids,
    ) {
        let known = match pieces {
            true => self.on_channel(process, asked.0).next().is_some(),
            false => self.open.contains_key(&(process, asked)),
        };
        if known {
            return;
        }
        let service = Service { reader: taken.thread, received_ns: taken.exit_ns };
        self.open.insert((process, asked), service);
        self.by_received.insert((process, service.received_ns, asked));
        self.by_reader.entry(taken.thread).or_default().insert(asked);
        if self.askers.contains(&process) {
            self.name(process, asked, service, ids);
        }
    }

    /// The process has written the answer, or part of it.
    pub(in crate::detect) fn end(&mut self, process: ProcessId, asked: Asked, answered_ns: u64) {
        if let Some(Service { received_ns, .. }) = self.close(process, asked) {
            if self.answered.len() == MOST_ANSWERED {
                self.answered.pop_front();
            }
            self.answered.push_back(Answered { process, asked, received_ns, answered_ns });
        }
        if let Some(named) = self.named.get_mut(&asked) {
            named.answered_ns = named.answered_ns.max(Some(answered_ns));
        }
    }

    fn close(&mut self, process: ProcessId, asked: Asked) -> Option<Service> {
        let service = self.open.remove(&(process, asked))?;
        self.by_received.remove(&(process, service.received_ns, asked));
        if let Some(all) = self.by_reader.get_mut(&service.reader) {
            all.remove(&asked);
            if all.is_empty() {
                self.by_reader.remove(&service.reader);
            }
        }
        Some(service)
    }

    /// Withdraws what seemed to be served on a channel: it is no question.
    pub(in crate::detect) fn withdraw_all(&mut self, process: ProcessId, channel: Object) {
        let open: Vec<Asked> = self.on_channel(process, channel).collect();
        for asked in open {
            self.close(process, asked);
        }
    }

    /// As [`Services::end`], for a channel on which only one question can be open.
    pub(in crate::detect) fn end_all(
        &mut self,
        process: ProcessId,
        channel: Object,
        answered_ns: u64,
    ) {
        let open: Vec<Asked> = self.on_channel(process, channel).collect();
        for asked in open {
            self.end(process, asked, answered_ns);
        }
    }

    pub(in crate::detect) fn exit(&mut self, process: ProcessId, at_ns: u64) {
        for asked in self.of_process(process) {
            self.end(process, asked, at_ns);
        }
        self.askers.remove(&process);
    }

    /// Forgets parents whose children all began before `horizon_ns`.
    pub(super) fn forget(&mut self, horizon_ns: u64) {
        self.named.retain(|_, named| named.answered_ns.is_none_or(|ns| ns >= horizon_ns));
    }

    /// Drops what is kept of channels that the world has forgotten.
    pub(super) fn forget_channels(&mut self, world: &World) {
        let known = |asked: &Asked| world.channels.contains_key(&asked.0);
        self.open.retain(|(_, asked), _| known(asked));
        self.by_received.retain(|(_, _, asked)| known(asked));
        self.by_reader.retain(|_, all| {
            all.retain(known);
            !all.is_empty()
        });
        self.named.retain(|asked, _| known(asked));
    }

    fn of_process(&self, process: ProcessId) -> Vec<Asked> {
        let all = self.open.range((process, FIRST)..);
        all.take_while(|((of, _), _)| *of == process).map(|((_, asked), _)| *asked).collect()
    }

    fn on_channel(&self, process: ProcessId, channel: Object) -> impl Iterator<Item = Asked> + '_ {
        let all = self.open.range((process, (channel, 0))..=(process, (channel, u64::MAX)));
        all.map(|((_, asked), _)| *asked)
    }

    fn name(&mut self, process: ProcessId, asked: Asked, service: Service, ids: &mut Ids) {
        let Service { reader, received_ns } = service;
        let named = || Named { id: ids.ahead(), process, reader, received_ns, answered_ns: None };
        self.named.entry(asked).or_insert_with(named);
    }

    /// Whether the process serves anything.
    pub(super) fn serves(&self, process: ProcessId) -> bool {
        self.received_until(process, u64::MAX).next().is_some()
    }

    /// From now on, the questions that the process serves may be parents.
    pub(super) fn asks(&mut self, process: ProcessId, ids: &mut Ids) {
        if self.askers.insert(process) {
            for asked in self.of_process(process) {
                let service = self.open[&(process, asked)];
                self.name(process, asked, service, ids);
            }
        }
    }

    pub(super) fn named(&self, asked: &Asked) -> Option<&Named> {
        self.named.get(asked)
    }

    pub(super) fn link(&self, asked: Asked) -> Option<Link> {
        self.named.get(&asked).map(|named| Link { asked, id: named.id })
    }

    /// The only question that the process serves, had received by `at_ns`, and that begins in `bytes`, which it has
    /// read.
    pub(super) fn begins_in(
        &self,
        process: ProcessId,
        bytes: Question,
        at_ns: u64,
    ) -> Option<Asked> {
        let begins = (process, (bytes.object, bytes.from));
        let ends = (process, (bytes.object, bytes.to));
        let mut inside = self.open.range(begins..ends);
        let only = inside.next().filter(|_| inside.next().is_none());
        only.filter(|(_, service)| service.received_ns <= at_ns).map(|((_, asked), _)| *asked)
    }

    /// The question to which these bytes belong, of those that the process, which asks others, served at `at_ns`; by
    /// what is known by now.
    pub(super) fn belongs(&self, process: ProcessId, bytes: Question, at_ns: u64) -> Belongs {
        let served = |named: &Named| {
            let open = named.answered_ns.is_none_or(|answered_ns| answered_ns >= at_ns);
            named.process == process && open && named.received_ns <= at_ns
        };
        let (begins, ends) = ((bytes.object, bytes.from), (bytes.object, bytes.to));
        let mut inside = self.named.range(begins..ends);
        match (inside.next(), inside.next()) {
            (Some((asked, named)), None) if served(named) => Belongs::To(*asked),
            (Some(_), _) => Belongs::ToNone,
            // A later piece of a question.
            (None, _) => {
                let before = self.named.range((bytes.object, 0)..begins).rev().take(MOST_STREAMS);
                let mut before = before.filter(|(_, named)| served(named));
                before.next().map_or(Belongs::Untold, |(asked, _)| Belongs::To(*asked))
            }
        }
    }

    /// Whether the process, which asks others, has been asked on `channel`.
    pub(super) fn is_asked_on(&self, process: ProcessId, channel: Object) -> bool {
        let mut named = self.named.range((channel, 0)..=(channel, u64::MAX));
        named.any(|(_, named)| named.process == process)
    }

    /// The question that the process answered at `answer_ns`, if `question` holds the last bytes of it that the process
    /// had read; `None` if that may be several questions.
    pub(super) fn answered_by(
        &self,
        process: ProcessId,
        question: Question,
        answer_ns: u64,
    ) -> Option<Asked> {
        let all = self.named.range((question.object, 0)..=(question.object, question.from));
        let mut all = all.rev().take(MOST_STREAMS).filter(|(_, named)| {
            let open = named.answered_ns.is_none_or(|answered_ns| answered_ns >= answer_ns);
            named.process == process && open && named.received_ns <= answer_ns
        });
        let only = all.next().filter(|_| all.next().is_none());
        only.map(|(asked, _)| *asked)
    }

    /// The only question that the thread has taken in and that is not answered; `None` if there are several.
    pub(super) fn own(&self, thread: ThreadId) -> Option<Asked> {
        self.by_reader.get(&thread).filter(|all| all.len() == 1)?.first().copied()
    }

    fn received_until(&self, process: ProcessId, at_ns: u64) -> impl Iterator<Item = Asked> + '_ {
        let all = self.by_received.range((process, 0, FIRST)..);
        let all =
            all.take_while(move |(of, received_ns, _)| *of == process && *received_ns <= at_ns);
        all.map(|(_, _, asked)| *asked)
    }

    /// The only question that the process served from `from_ns` to `to_ns`; `None` if there are several, or if it is
    /// not known.
    pub(super) fn only(&self, process: ProcessId, (from_ns, to_ns): (u64, u64)) -> Option<Asked> {
        let since = self.answered.iter().rev().take_while(|answered| answered.answered_ns >= to_ns);
        let mut looked_at = 0;
        let ended = since
            .inspect(|_| looked_at += 1)
            .filter(|answered| answered.process == process && answered.received_ns <= from_ns);
        let ended: Vec<Asked> = ended.map(|answered| answered.asked).take(2).collect();
        if looked_at == MOST_ANSWERED {
            return None;
        }
        let mut all = self.received_until(process, from_ns).chain(ended);
        all.next().filter(|_| all.next().is_none())
    }
}
