//! A turn: what a client asked, and the reads that may have brought the answer.

use crate::classify::syscall::{waits, Waits};
use crate::detect::causality::Asking;
use crate::detect::found::name_of;
use crate::detect::lifecycle::Life;
use crate::event::{Object, OpenCall, TYPE_FIFO};
use crate::timeline::retention::Held;
use crate::timeline::{Opening, ProcessId, ThreadId, Transfer, World};

/// A client's message and the reads that may have brought its answer.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) object: Object,
    /// The only channel on which the answer can come; `None` for pipes.
    pub(super) reverse: Option<Object>,
    /// On a connection: `process` is the client ([`crate::detect::roles`]).
    pub(super) by_client: bool,
    /// Whether that role is sure.
    pub(super) surely: bool,
    pub(super) client: ThreadId,
    pub(super) process: ProcessId,
    /// From the begin of its first write to what ended it.
    pub(super) life: Life<Ended>,
    /// Number of the first byte since the answer before. The server may have begun with it.
    pub(super) first: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Number of datagrams without payload among these.
    pub(super) empty: u64,
    pub(super) reads: Vec<(Object, Transfer)>,
    /// The inode of the socket; 0: not known.
    pub(super) socket: u32,
    /// The call that opened the connection, if nothing was sent on it before.
    pub(super) opened: Option<Opening>,
    /// Enclosing exec request, by its process.
    pub(super) parent: Option<ProcessId>,
    /// What was known about its parent when it was asked.
    pub(super) asking: Option<Asking>,
}

impl Turn {
    /// Begins again with `bytes`: what came before had been asked for a question that has been answered without it.
    pub(super) fn begin_again(&mut self, asking: Asking, bytes: &Transfer) {
        self.client = bytes.thread;
        self.life = Life::asked(bytes.enter_ns);
        (self.from, self.to) = (bytes.from, bytes.to);
        self.empty = u64::from(bytes.empty);
        self.opened = None;
        self.asking = Some(asking);
    }

    pub(super) fn may_be_answered_on(&self, object: Object) -> bool {
        match self.reverse {
            Some(reverse) => object == reverse,
            None => object.type_bits == TYPE_FIFO && object != self.object,
        }
    }

    /// When it was over.
    pub(super) fn over_ns(&self, world: &World) -> u64 {
        self.life.over().map_or(world.now_ns, |(_, at_ns)| at_ns)
    }

    /// Adds the threads, processes and channels that it refers to.
    pub(super) fn hold(&self, held: &mut Held) {
        held.threads.insert(self.client);
        held.processes.insert(self.process);
        held.processes.extend(self.parent);
        held.channels.insert(self.object);
        held.threads.extend(self.opened.map(|opened| opened.thread));
        if let Some((Ended::Closed { thread, .. }, _)) = self.life.over() {
            held.threads.insert(thread);
        }
        held.channels.extend(self.reads.iter().map(|(object, _)| *object));
        held.threads.extend(self.reads.iter().map(|(_, read)| read.thread));
    }

    pub(super) fn request_bytes(&self) -> u64 {
        (self.to - self.from).saturating_sub(self.empty)
    }

    /// Number of datagrams without payload that may be the answer.
    pub(super) fn empty_answers(&self, object: Object) -> u64 {
        let empty = self.reads.iter().filter(|(on, read)| *on == object && read.empty);
        empty.count() as u64
    }

    /// The connection from its client's side, or the one or two pipes.
    pub(super) fn channel_name(&self, world: &World, answer: Option<Object>) -> String {
        let mut name = name_of(world, self.object);
        if let Some(answer) = answer.filter(|_| self.reverse.is_none()) {
            name.push(' ');
            answer.push_name(&mut name);
        }
        name
    }

    /// Whether a call's object shows that its caller waits for the answer.
    pub(super) fn waits_on(&self, call: &OpenCall) -> bool {
        match (self.reverse, call.object) {
            (None, Some(object)) => object.type_bits == TYPE_FIFO && object != self.object,
            (Some(_), Some(object)) if object.is_socket() => true,
            (Some(_), _) => waits(call.nr, None) == Waits::Readiness,
            (None, None) => false,
        }
    }
}

/// What ended a turn for its client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    /// Its next question on the channel.
    AskedAgain,
    /// It closed the connection.
    Closed {
        thread: ThreadId,
        enter_ns: u64,
        exit_ns: u64,
    },
    Exited,
    CaptureOver,
}
