//! Which request another one was made for: a server that asks a server while it serves.
//!
//! What a process has read on a connection as its server, and not answered, is being served. A thread
//! that asks does so for what it has read itself, or else for the only thing its process serves. Where
//! there are several, nothing tells which, and the request has no parent.

use rustc_hash::FxHashMap;

use super::Detector;
use crate::engine::event::Object;
use crate::engine::world::{ProcessId, ThreadId, World};

/// A request by the first byte of its message.
pub(super) type Asked = (Object, u64);

struct Serving {
    asked: Asked,
    thread: ThreadId,
}

#[derive(Default)]
pub(super) struct Parents {
    serving: FxHashMap<ProcessId, Vec<Serving>>,
    /// Numbers given out before their requests were found.
    ids: FxHashMap<Asked, u64>,
}

impl Parents {
    /// A server has read; more of what it has not answered yet changes nothing.
    pub(super) fn read(&mut self, process: ProcessId, thread: ThreadId, asked: Asked) {
        let serving = self.serving.entry(process).or_default();
        if !serving.iter().any(|known| known.asked.0 == asked.0) {
            serving.push(Serving { asked, thread });
        }
    }

    /// A server has answered what it read on that channel.
    pub(super) fn answered(&mut self, process: ProcessId, channel: Object) {
        if let Some(serving) = self.serving.get_mut(&process) {
            serving.retain(|known| known.asked.0 != channel);
        }
    }

    /// A server has read the begin of a request on a channel that may carry several at once.
    pub(super) fn begin(&mut self, process: ProcessId, thread: ThreadId, asked: Asked) {
        let serving = self.serving.entry(process).or_default();
        if !serving.iter().any(|known| known.asked == asked) {
            serving.push(Serving { asked, thread });
        }
    }

    /// And that one is answered.
    pub(super) fn end(&mut self, process: ProcessId, asked: Asked) {
        if let Some(serving) = self.serving.get_mut(&process) {
            serving.retain(|known| known.asked != asked);
        }
    }

    pub(super) fn exit(&mut self, process: ProcessId) {
        self.serving.remove(&process);
    }

    /// Forgets connections that the world has forgotten.
    pub(super) fn forget(&mut self, world: &World) {
        let known = |asked: &Asked| world.channels.contains_key(&asked.0);
        self.serving.retain(|_, serving| {
            serving.retain(|serving| known(&serving.asked));
            !serving.is_empty()
        });
        self.ids.retain(|asked, _| known(asked));
    }

    fn of(&self, process: ProcessId, thread: ThreadId) -> Option<Asked> {
        let serving = self.serving.get(&process)?;
        let own = serving.iter().rev().find(|serving| serving.thread == thread);
        let only = match &serving[..] {
            [only] => Some(only),
            _ => None,
        };
        own.or(only).map(|serving| serving.asked)
    }
}

impl Detector {
    /// The id of the request for which that thread asks somebody else, if it does for one.
    pub(super) fn parent_id(&mut self, process: ProcessId, thread: ThreadId) -> Option<u64> {
        let asked = self.parents.of(process, thread)?;
        if let Some(&id) = self.parents.ids.get(&asked) {
            return Some(id);
        }
        let id = self.id_ahead();
        self.parents.ids.insert(asked, id);
        Some(id)
    }

    /// The id of a request that has been found.
    pub(super) fn id_of(&mut self, asked: Asked) -> u64 {
        match self.parents.ids.remove(&asked) {
            Some(id) => id,
            None => self.new_id(),
        }
    }
}
