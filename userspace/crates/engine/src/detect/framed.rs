//! Detects requests inside byte streams with known framing: `http2`, `oncrpc`, `http1`, `resp`.
//!
//! The kernel side reports where frames and messages begin and end. Here they become exchanges: the frames of
//! one stream, a call and the reply with its XID, or, where answers come in the order of the questions, the
//! nth of each. A request lasts from the entry of the call that sent its first byte to the exit of the call
//! that received the last byte of its answer; where one thread of a client reads for others, until the thread
//! that asked is on a CPU.

mod completion;
mod connection;
mod exchange;
mod hand_over;
#[cfg(test)]
mod tests;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::Detector;
use crate::event::{GapWhy, Io, Method, Object, Unit};
use crate::timeline::retention::Held;
use crate::timeline::{ProcessId, World};
use connection::Connection;
use exchange::Torn;

/// Interval between two checks of exchanges that wait for records which may not come.
const SWEEP_EVERY_NS: u64 = 20_000_000;

/// All connections with known framing.
#[derive(Default)]
pub(super) struct Framed {
    /// Numbers of connections, by each of their two channels.
    by_channel: FxHashMap<Object, u32>,
    connections: FxHashMap<u32, Connection>,
    next: u32,
    swept_ns: u64,
}

impl Framed {
    /// Whether the channel is of such a connection.
    pub(super) fn has(&self, channel: Object) -> bool {
        self.by_channel.contains_key(&channel)
    }

    fn connection(&mut self, channel: Object) -> Option<&mut Connection> {
        self.connections.get_mut(self.by_channel.get(&channel)?)
    }

    /// The earliest instant an open exchange may still need.
    pub(super) fn horizon_ns(&self) -> Option<u64> {
        self.connections.values().filter_map(Connection::since_ns).min()
    }

    pub(super) fn hold(&self, held: &mut Held) {
        for connection in self.connections.values().filter(|c| c.since_ns().is_some()) {
            held.channels.extend(connection.channels);
        }
    }

    /// Forgets connections that the world has forgotten.
    pub(super) fn forget(&mut self, world: &World) {
        self.connections.retain(|_, connection| {
            connection.channels.iter().any(|channel| world.channels.contains_key(channel))
        });
        self.by_channel.retain(|_, number| self.connections.contains_key(number));
    }
}

impl Detector {
    /// Takes a frame or message.
    pub(super) fn unit(&mut self, world: &World, unit: &Unit) {
        let channel = unit.channel;
        let base = world.base(channel);
        let numbered = |offset: u64| offset.saturating_add(base);
        let unit = &Unit { from: numbered(unit.from), to: numbered(unit.to), ..*unit };
        let name = world.channels.get(&channel).and_then(|known| known.name.as_deref());
        if !self.wanted.takes(unit.protocol.kind(), name) {
            return;
        }
        if !self.framed.has(channel) {
            let number = self.framed.next;
            self.framed.next = number.wrapping_add(1);
            for channel in [channel, unit.reverse] {
                self.framed.by_channel.insert(channel, number);
            }
            self.framed.connections.insert(number, Connection::new(unit));
            self.drop_turns(world, unit);
        }
        let Some(connection) = self.framed.connection(channel) else { return };
        connection.unit(world, unit);
        self.told(world, channel);
    }

    /// Where messages begin on a channel is not known any more.
    pub(super) fn framing_lost(&mut self, world: &World, channel: Object, why: GapWhy) {
        let Some(connection) = self.framed.connection(channel) else { return };
        connection.gap(world, channel, Torn::Framing(why));
        self.settle_framed(world, channel, false);
    }

    /// Takes the method that a message calls.
    pub(super) fn method(&mut self, world: &World, method: &Method) {
        let Some(connection) = self.framed.connection(method.channel) else { return };
        let offset = method.offset.saturating_add(world.base(method.channel));
        if connection.method(world, method, offset) {
            self.settle_framed(world, method.channel, false);
        }
    }

    /// Takes a transfer; returns whether it is of a connection with known framing.
    pub(super) fn framed_transfer(&mut self, world: &World, io: &Io) -> bool {
        let framed = self.framed.has(io.object);
        if framed {
            self.settle_framed(world, io.object, false);
        }
        framed
    }

    /// A process is gone: what it has open will not be answered, unless records are late.
    pub(super) fn framed_exit(&mut self, world: &World, process: ProcessId) {
        for connection in self.framed.connections.values_mut() {
            connection.exit(world, process);
        }
    }

    /// Decides the exchanges that have waited long enough.
    pub(super) fn sweep_framed(&mut self, world: &World, over: bool) {
        if !over && world.now_ns < self.framed.swept_ns.saturating_add(SWEEP_EVERY_NS) {
            return;
        }
        self.framed.swept_ns = world.now_ns;
        self.tidy_framed(world);
        let waiting = self.framed.connections.iter().filter(|(_, c)| c.since_ns().is_some());
        let mut waiting: Vec<_> = waiting.map(|(number, c)| (*number, c.channels[0])).collect();
        waiting.sort_unstable();
        for (_, channel) in waiting {
            self.settle_framed(world, channel, over);
        }
    }

    /// Drops turns that were begun on a connection before its framing was known: they are no requests.
    fn drop_turns(&mut self, world: &World, unit: &Unit) {
        for object in [unit.channel, unit.reverse] {
            let reads = world.channels.get(&object).into_iter().flat_map(|channel| &channel.reads);
            let readers: FxHashSet<_> =
                reads.map(|read| world.thread(read.thread).process).collect();
            for process in readers {
                self.parents.end_all(process, object, world.now_ns);
            }
        }
        let other = |object: &Object| *object != unit.channel && *object != unit.reverse;
        self.turns.retain(|(_, object), _| other(object));
        self.unsettled.retain(|turn| other(&turn.object));
        self.served.retain(|(_, object), _| other(object));
        self.roles.retain(|(_, object), _| other(object));
    }
}
