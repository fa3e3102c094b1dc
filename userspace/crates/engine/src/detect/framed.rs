//! Detects requests inside byte streams with known framing. `protocols` describes each protocol.
//!
//! The kernel side reports where frames and messages begin and end. Here they become exchanges: the frames of one
//! stream; a call and the reply with its XID; or, where answers come in the order of the questions, the nth question
//! and the nth answer. A request lasts from the entry of the call that sent its first byte to the exit of the call that
//! received the last byte of its answer. If one thread of a client reads for others, it lasts until the thread that
//! asked is on a CPU.

mod completion;
mod connection;
mod exchange;
mod hand_over;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::BinaryHeap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::book::Book;
use crate::detect::{Detect, Recent, Seen};
use crate::event::{GapWhy, Method, Object, Unit};
use crate::timeline::retention::Held;
use crate::timeline::{Over, ProcessId, ThreadId, World};
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
    /// Connections of which something may have to be decided at the next check, even if nothing more is reported.
    restless: FxHashSet<u32>,
    /// When exchanges that rest are to be decided, and their connections.
    resting: BinaryHeap<Reverse<(u64, u32)>>,
    /// By a process: the connections of which it has moved bytes. There may be many more that are over, and many
    /// processes that exit.
    by_user: FxHashMap<ProcessId, Vec<u32>>,
    /// By a task that has read answers and may give them to other tasks: the connections.
    giving: FxHashMap<ThreadId, Vec<u32>>,
}

impl Detect for Framed {
    fn observe(&mut self, world: &World, seen: &Seen, book: &mut Book) {
        match *seen {
            Seen::Unit(unit) => self.unit(world, unit, book),
            Seen::Method(method) => self.method(world, method, book),
            Seen::FramingLost { channel, why } => self.framing_lost(world, channel, why, book),
            Seen::Over { over, .. } => self.over(over),
            Seen::Reopened { channel } => self.reopened(world, channel, book),
            Seen::Moved { process, io, .. } => {
                self.used(process, io.object);
                self.decide(world, io.object, book);
            }
            _ => {}
        }
    }

    /// Exchanges that the process has open will not be answered, unless records are late.
    fn exit(&mut self, world: &World, process: ProcessId, _at_ns: u64, _book: &mut Book) {
        for number in self.by_user.remove(&process).unwrap_or_default() {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            connection.exit(world, process);
            self.heed(number);
        }
    }

    fn horizon_ns(&self, _recent: Recent, _book: &Book) -> Option<u64> {
        self.connections.values().filter_map(Connection::since_ns).min()
    }

    fn hold(&self, held: &mut Held) {
        for connection in self.connections.values().filter(|c| c.has_open()) {
            held.channels.extend(connection.channels);
        }
    }

    fn forget_channels(&mut self, world: &World) {
        self.connections.retain(|_, connection| {
            connection.channels.iter().any(|channel| world.channels.contains_key(channel))
        });
        self.by_channel.retain(|_, number| self.connections.contains_key(number));
        self.restless.retain(|number| self.connections.contains_key(number));
        self.giving.retain(|_, numbers| numbers.iter().any(|n| self.connections.contains_key(n)));
        self.by_user.retain(|_, numbers| {
            numbers.retain(|number| self.connections.contains_key(number));
            !numbers.is_empty()
        });
    }

    fn finish(&mut self, world: &World, book: &mut Book) {
        self.sweep(world, true, book);
    }
}

impl Framed {
    /// Whether a channel belongs to a connection with known framing. Only this detector looks at transfers on such a
    /// channel.
    pub(super) fn takes(&self, channel: Object) -> bool {
        !self.by_channel.is_empty() && self.by_channel.contains_key(&channel)
    }

    /// Decides exchanges that have waited long enough.
    #[inline]
    pub(super) fn settle(&mut self, world: &World, book: &mut Book) {
        if world.now_ns >= self.swept_ns.saturating_add(SWEEP_EVERY_NS) {
            self.sweep(world, false, book);
        }
    }

    /// The connection of a channel about which something is reported, and its number.
    fn connection(&mut self, channel: Object) -> Option<(u32, &mut Connection)> {
        if self.by_channel.is_empty() {
            return None;
        }
        let number = *self.by_channel.get(&channel)?;
        Some((number, self.connections.get_mut(&number)?))
    }

    /// Notes when the connection is to be checked, after something was reported about it.
    fn heed(&mut self, number: u32) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match connection.is_restless() {
            true => self.restless.insert(number),
            false => self.restless.remove(&number),
        };
        if let Some(at_ns) = connection.rests_until_ns() {
            self.resting.push(Reverse((at_ns, number)));
        }
        for reader in connection.readers.drain(..) {
            let numbers = self.giving.entry(reader).or_default();
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
    }

    /// A process has moved bytes of a channel.
    fn used(&mut self, process: ProcessId, channel: Object) {
        let Some((number, connection)) = self.connection(channel) else { return };
        if !connection.users.contains(&process) {
            connection.users.push(process);
            self.by_user.entry(process).or_default().push(number);
        }
    }

    /// Looks at a frame or message.
    fn unit(&mut self, world: &World, unit: &Unit, book: &mut Book) {
        let channel = unit.channel;
        let base = world.base(channel);
        let numbered = |offset: u64| offset.saturating_add(base);
        let unit = &Unit { from: numbered(unit.from), to: numbered(unit.to), ..*unit };
        let known = world.channels.get(&channel);
        let has_port = |port| known.is_some_and(|known| known.has_port(port));
        if !book.wanted.takes(unit.protocol.kind(), has_port) {
            return;
        }
        if !self.takes(channel) {
            let number = self.next;
            self.next = number.wrapping_add(1);
            for channel in [channel, unit.reverse] {
                self.by_channel.insert(channel, number);
            }
            self.connections.insert(number, Connection::new(unit));
            withdraw_other_services(world, unit, book);
            for object in [channel, unit.reverse] {
                let channel = world.channels.get(&object).into_iter();
                let moved = channel.flat_map(|channel| channel.writes.iter().chain(&channel.reads));
                moved.for_each(|moved| self.used(world.thread(moved.thread).process, object));
            }
        }
        let Some((number, connection)) = self.connection(channel) else { return };
        connection.unit(world, unit);
        connection.told(world, unit, book);
        self.heed(number);
    }

    /// A task has woken another one: it may have given it an answer.
    pub(super) fn woke(&mut self, world: &World, task: ThreadId, book: &mut Book) {
        if self.giving.is_empty() {
            return;
        }
        for number in self.giving.remove(&task).into_iter().flatten() {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            if let Some((_, answers)) = connection.ends() {
                connection.decide(world, answers, false, book);
                self.heed(number);
            }
        }
    }

    /// It is no longer known where messages begin on a channel.
    fn framing_lost(&mut self, world: &World, channel: Object, why: GapWhy, book: &mut Book) {
        let Some((_, connection)) = self.connection(channel) else { return };
        connection.gap(world, channel, Torn::Framing(why));
        self.decide(world, channel, book);
    }

    /// A connection is over at one of its ends.
    fn over(&mut self, over: &Over) {
        let Some((number, connection)) = self.connection(over.channel) else { return };
        connection.over(over);
        self.heed(number);
    }

    /// A new connection was established between a channel's ends: what is open was asked on the former connection.
    fn reopened(&mut self, world: &World, channel: Object, book: &mut Book) {
        let Some((_, connection)) = self.connection(channel) else { return };
        connection.reopen(world, book);
        self.decide(world, channel, book);
    }

    /// Looks at the method that a message calls.
    fn method(&mut self, world: &World, method: &Method, book: &mut Book) {
        let Some((_, connection)) = self.connection(method.channel) else { return };
        let offset = method.offset.saturating_add(world.base(method.channel));
        if connection.method(world, method, offset) {
            self.decide(world, method.channel, book);
        }
    }

    fn decide(&mut self, world: &World, channel: Object, book: &mut Book) {
        let Some((number, connection)) = self.connection(channel) else { return };
        connection.decide(world, channel, false, book);
        self.heed(number);
    }

    /// Decides exchanges that have waited long enough; `over`: all exchanges.
    fn sweep(&mut self, world: &World, over: bool, book: &mut Book) {
        self.swept_ns = world.now_ns;
        let mut due: Vec<u32> = match over {
            true => self.connections.keys().copied().collect(),
            false => self.restless.iter().copied().collect(),
        };
        while let Some(next) = self.resting.peek_mut() {
            if next.0 .0 >= world.now_ns {
                break;
            }
            due.push(PeekMut::pop(next).0 .1);
        }
        due.sort_unstable();
        due.dedup();
        let mut waiting = Vec::with_capacity(due.len());
        for number in due {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            connection.tidy(world);
            connection.resume(world.now_ns, over);
            if connection.has_open() {
                waiting.push((number, connection.channels[0]));
            }
        }
        for (number, channel) in waiting {
            if let Some(connection) = self.connections.get_mut(&number) {
                connection.decide(world, channel, over, book);
                self.heed(number);
            }
        }
    }
}

/// Withdraws services that began on a connection before its framing was known: they are not real.
fn withdraw_other_services(world: &World, unit: &Unit, book: &mut Book) {
    for object in [unit.channel, unit.reverse] {
        let reads = world.channels.get(&object).into_iter().flat_map(|channel| &channel.reads);
        let readers: FxHashSet<_> = reads.map(|read| world.thread(read.thread).process).collect();
        for process in readers {
            book.causality.services.withdraw_all(process, object);
        }
    }
}
