//! Detects `pipe`, `unix`, `tcp` and `udp` requests as turns.
//!
//! A client process writes on one channel, another process reads those bytes and later writes on a second channel, and
//! the client reads them. The second channel is any pipe, or the other direction of the same connection. The client is
//! the process that opened the connection or, if that was not seen, the process that wrote first on a pair of channels;
//! that is decided once. A turn ends when the client writes again, so an answer read in pieces is one answer.

mod answer;
mod turn;
mod window;

use std::collections::hash_map::Entry;
use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::classify::syscall::NR_CLOSE;
use crate::detect::book::Book;
use crate::detect::causality::Place;
use crate::detect::lifecycle::{Clock, Life, Patience};
use crate::detect::{Detect, Recent, Seen};
use crate::event::{Call, Io, Object};
use crate::timeline::retention::Held;
use crate::timeline::{Channel, ProcessId, ThreadId, Transfer, World};
use answer::Answer;
use turn::{Ended, Turn};

/// Number of reads that are remembered for a write that is still in progress.
const RECENT_READS: usize = 64;

/// A read, and the latest end of all reads that were reported up to this one.
#[derive(Debug)]
struct RecentRead {
    object: Object,
    transfer: Transfer,
    all_exit_ns: u64,
}

#[derive(Debug, Default)]
pub(super) struct HalfDuplex {
    /// By the process that asks and the channel it asks on.
    turns: FxHashMap<(ProcessId, Object), Turn>,
    /// The channels of turns by process and socket, and of some turns that are over.
    by_socket: FxHashMap<(ProcessId, u32), Object>,
    /// The latest reads of each process.
    recent_reads: FxHashMap<ProcessId, VecDeque<RecentRead>>,
    /// Closed turns whose answer is not settled yet.
    unsettled: Vec<Turn>,
}

impl Detect for HalfDuplex {
    #[inline]
    fn observe(&mut self, world: &World, seen: &Seen, book: &mut Book) {
        match *seen {
            Seen::Moved { thread, process, call, io } if io.is_write => {
                self.write(world, process, io, Transfer::new(thread, call, io), book);
            }
            Seen::Moved { thread, process, call, io } => {
                self.read(process, io, Transfer::new(thread, call, io));
            }
            Seen::Called { thread, process, call } if call.nr == NR_CLOSE => {
                self.connection_closed(thread, process, call);
            }
            _ => {}
        }
    }

    fn exit(&mut self, _world: &World, process: ProcessId, at_ns: u64, _book: &mut Book) {
        let mine: Vec<_> =
            self.turns.keys().filter(|(owner, _)| *owner == process).copied().collect();
        self.recent_reads.remove(&process);
        for key in mine {
            if let Some(mut turn) = self.turns.remove(&key) {
                turn.life.end(Ended::Exited, at_ns);
                self.unsettled.push(turn);
            }
        }
    }

    fn horizon_ns(&self, _recent: Recent, _book: &Book) -> Option<u64> {
        self.turns.values().chain(&self.unsettled).map(Turn::since_ns).min()
    }

    fn hold(&self, held: &mut Held) {
        for turn in self.turns.values().chain(&self.unsettled) {
            turn.hold(held);
        }
        for (process, reads) in &self.recent_reads {
            held.processes.insert(*process);
            held.threads.extend(reads.iter().map(|read| read.transfer.thread));
        }
    }

    fn forget(&mut self, _world: &World, _book: &mut Book) {
        let turns = &self.turns;
        self.by_socket.retain(|&(process, socket), object| {
            turns.get(&(process, *object)).is_some_and(|turn| turn.socket == socket)
        });
    }

    fn finish(&mut self, world: &World, book: &mut Book) {
        for (_, mut turn) in std::mem::take(&mut self.turns) {
            turn.life.end(Ended::CaptureOver, world.now_ns);
            self.unsettled.push(turn);
        }
        self.unsettled.sort_by_key(|turn| turn.life.since_ns());
        self.decide(world, true, book);
    }
}

impl HalfDuplex {
    /// Decides closed turns.
    #[inline]
    pub(super) fn settle(&mut self, world: &World, book: &mut Book) {
        if !self.unsettled.is_empty() {
            self.decide(world, false, book);
        }
    }

    /// Forgets a connection whose framing is known now, with the turns that were begun on it.
    pub(super) fn leave(&mut self, channels: [Object; 2]) {
        self.turns.retain(|(_, object), _| !channels.contains(object));
        self.unsettled.retain(|turn| !channels.contains(&turn.object));
    }

    /// A process closes a socket: what it asked on that connection has all the answer it will get.
    #[inline(never)]
    fn connection_closed(&mut self, thread: ThreadId, process: ProcessId, call: &Call) {
        let Some(io) = call.io.filter(|io| io.object.is_stream() && !call.unfinished) else {
            return;
        };
        let socket = u32::try_from(io.object.ino).unwrap_or(0);
        let Some(object) = self.by_socket.remove(&(process, socket)) else { return };
        let Entry::Occupied(turn) = self.turns.entry((process, object)) else { return };
        if turn.get().socket != socket {
            return;
        }
        let mut turn = turn.remove();
        let (enter_ns, exit_ns) = (call.enter_ns, call.exit_ns);
        turn.life.end(Ended::Closed { thread, enter_ns, exit_ns }, exit_ns);
        self.unsettled.push(turn);
    }

    #[inline(never)]
    fn read(&mut self, process: ProcessId, io: &Io, transfer: Transfer) {
        let recent = self.recent_reads.entry(process).or_default();
        if recent.len() == RECENT_READS {
            recent.pop_front();
        }
        let before_ns = recent.back().map_or(0, |read| read.all_exit_ns);
        let all_exit_ns = before_ns.max(transfer.exit_ns);
        recent.push_back(RecentRead { object: io.object, transfer, all_exit_ns });
        if let Some(asked) = io.reverse {
            if let Some(turn) = self.turns.get_mut(&(process, asked)) {
                turn.reads.push((io.object, transfer));
            }
            return;
        }
        for turn in self.turns.values_mut().filter(|turn| turn.process == process) {
            if turn.may_be_answered_on(io.object) {
                turn.reads.push((io.object, transfer));
            }
        }
    }

    #[inline(never)] // most of what is shown is neither this nor a read
    fn write(
        &mut self,
        world: &World,
        process: ProcessId,
        io: &Io,
        bytes: Transfer,
        book: &mut Book,
    ) {
        let Io { object, reverse, .. } = *io;
        let key = (process, object);
        if let Some(turn) = self.turns.get_mut(&key) {
            // A call's record comes when it ends: the answer may have been read before.
            if !turn.reads.iter().any(|(_, read)| read.exit_ns <= bytes.enter_ns) {
                let asking = turn.asking;
                match asking.and_then(|asking| book.causality.goes_on_for(world, &asking, &bytes)) {
                    Some(asking) => turn.begin_again(asking, &bytes),
                    None => {
                        turn.to = turn.to.max(bytes.to);
                        turn.empty += u64::from(bytes.empty);
                    }
                }
                return;
            }
            turn.reads.retain(|(_, read)| read.exit_ns <= bytes.enter_ns);
            turn.life.end(Ended::AskedAgain, bytes.enter_ns);
            if let Some(asking) = &turn.asking {
                book.causality.heard(asking);
            }
        }
        // A call's record comes when it ends. An answer that another thread read meanwhile belongs to this message.
        let answers = |on: &Object, read: &Transfer| {
            let Some(channel) = world.channels.get(on) else { return false };
            match Channel::find(&channel.writes, read.to - 1) {
                Some(write) => write.enter_ns > bytes.enter_ns,
                None => true, // told later
            }
        };
        let channel = world.channels.get(&object);
        let first = channel.is_some_and(|c| c.first_since_connected_ns == Some(bytes.enter_ns));
        let mut turn = Turn {
            socket: io.socket,
            opened: channel.and_then(|channel| channel.connected).filter(|_| first),
            object,
            reverse,
            by_client: reverse.is_some_and(|reverse| book.roles.is_client(process, reverse)),
            surely: reverse.is_some_and(|reverse| book.roles.is_sure(process, reverse)),
            client: bytes.thread,
            process,
            life: Life::asked(bytes.enter_ns),
            first: bytes.from,
            from: bytes.from,
            to: bytes.to,
            empty: u64::from(bytes.empty),
            reads: Vec::new(),
            parent: book.causality.programs.enclosing(world, process),
            asking: None,
        };
        if turn.by_client {
            let opened = turn.opened.map(|opened| (opened.thread, opened.enter_ns));
            let place =
                reverse.map(|reverse| Place { channels: [object, reverse], first: bytes.from });
            let at = (bytes.thread, bytes.enter_ns);
            turn.asking = book.causality.asks(world, at, opened, place);
        }
        let recent = self.recent_reads.get(&process).into_iter().flatten().rev();
        turn.reads = recent
            .take_while(|read| read.all_exit_ns > bytes.enter_ns)
            .map(|read| (read.object, read.transfer))
            .filter(|(on, read)| {
                read.exit_ns > bytes.enter_ns && turn.may_be_answered_on(*on) && answers(on, read)
            })
            .collect();
        turn.reads.reverse();
        if io.socket != 0 {
            self.by_socket.insert((process, io.socket), object);
        }
        // The former turn has ended.
        self.unsettled.extend(self.turns.insert(key, turn));
    }

    /// Decides closed turns whose answers are all accounted for.
    fn decide(&mut self, world: &World, over: bool, book: &mut Book) {
        let clock = Clock::new(world, over);
        let mut unsettled = std::mem::take(&mut self.unsettled);
        for turn in unsettled.drain(..) {
            let late = clock.gives_up(Patience::Record, turn.over_ns(world));
            // Without lost records, what was not reported is still to come, or came after the end.
            let torn = late && world.losses.first(turn.life.since_ns(), world.now_ns).is_some();
            match turn.answer(world, torn, book) {
                Answer::Found(answered) => turn.found(world, &answered, book),
                Answer::None => {}
                Answer::Open if !late => self.unsettled.push(turn),
                Answer::Open | Answer::Missing => turn.unanswered(world, book),
            }
        }
        if self.unsettled.is_empty() {
            self.unsettled = unsettled; // its room stays
        }
    }
}
