//! `pipe`, `unix` and `tcp` requests.
//!
//! They are turns: a client process writes on one channel, another process reads those bytes and
//! later writes on a second channel, and the client reads them. The second is any pipe, or the
//! other direction of the same connection. Which of the two processes is the client is decided once
//! a pair of channels: who wrote first. A turn ends when the client writes again, so an answer read
//! in pieces is one answer.

use crate::classify::syscall::{waits, Waits};
use crate::detect::causality::Link;
use crate::detect::single_ended::peer_is_unknown;
use crate::detect::{end_of, kind_of, name_of, Detector, Found};
use crate::event::{Io, Object, OpenCall, TYPE_FIFO};
use crate::timeline::{Channel, Opening, ProcessId, ThreadId, Transfer, World};
use crate::walk::{Goal, Message};
use rpcprobe_model::Request;

/// How long an answer whose write has not ended yet is waited for.
const ANSWER_PATIENCE_NS: u64 = 2_000_000_000;

const UNSEEN: &str = "nobody saw which datagram the server read";
pub(crate) const WHO_ASKS: &str = "records of its channel's begin were lost: who asks is not known";
const TORN: &str = "nobody saw who wrote part of its answer";

/// A client's message and the reads that may have brought its answer.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) object: Object,
    /// The only channel the answer can come on; pipes have no such.
    pub(super) reverse: Option<Object>,
    /// On a connection: its process moved the first byte.
    pub(super) by_client: bool,
    /// And that is sure.
    pub(super) surely: bool,
    pub(super) client: ThreadId,
    pub(super) process: ProcessId,
    pub(super) start_ns: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Datagrams without payload among them.
    pub(super) empty: u64,
    pub(super) reads: Vec<(Object, Transfer)>,
    pub(super) closed_ns: Option<u64>,
    /// The inode of the socket; 0: not known.
    pub(super) socket: u32,
    /// The call that opened the connection, if nothing was sent on it before.
    pub(super) opened: Option<Opening>,
    /// What ended the connection after this turn.
    pub(super) ended: Option<Ended>,
    /// Enclosing exec request, by its process.
    pub(super) parent: Option<ProcessId>,
    /// The request for which it seems to be asked.
    pub(super) made_for: Option<Link>,
}

impl Turn {
    pub(super) fn may_be_answered_on(&self, object: Object) -> bool {
        match self.reverse {
            Some(reverse) => object == reverse,
            None => object.type_bits == TYPE_FIFO && object != self.object,
        }
    }

    fn request_bytes(&self) -> u64 {
        (self.to - self.from).saturating_sub(self.empty)
    }

    /// Datagrams without payload that may be the answer.
    fn empty_answers(&self, object: Object) -> u64 {
        let empty = self.reads.iter().filter(|(on, read)| *on == object && read.empty);
        empty.count() as u64
    }

    /// The connection from its client's side, or the pipe or two.
    fn channel_name(&self, world: &World, answer: Option<Object>) -> String {
        let asked = name_of(world, self.object);
        match answer.filter(|_| self.reverse.is_none()) {
            Some(answer) => format!("{asked} {answer}"),
            None => asked,
        }
    }

    /// Whether a call's object shows that its caller waits for the answer.
    fn waits_on(&self, call: &OpenCall) -> bool {
        match (self.reverse, call.object) {
            (None, Some(object)) => object.type_bits == TYPE_FIFO && object != self.object,
            (Some(_), Some(object)) if object.is_socket() => true,
            (Some(_), _) => waits(call.nr, None) == Waits::Readiness,
            (None, None) => false,
        }
    }
}

/// How a connection ended for its client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    Closed { thread: ThreadId, enter_ns: u64, exit_ns: u64 },
    Exited,
}

/// What came back, from whom, and who had it when.
struct Answered {
    /// `None`: not traced.
    server: Option<ProcessId>,
    object: Object,
    from: u64,
    to: u64,
    end_ns: u64,
    client: ThreadId,
    /// Why it may be wrong.
    doubt: Option<&'static str>,
}

enum Answer {
    Found(Answered),
    /// Nobody traced read the message, or it is itself an answer.
    None,
    /// A read's bytes have no known writer yet.
    Open,
    /// The message was read, and nothing came back.
    Missing,
}

impl Detector {
    pub(super) fn write(&mut self, world: &World, process: ProcessId, io: &Io, bytes: Transfer) {
        let Io { object, reverse, .. } = *io;
        let key = (process, object);
        if let Some(turn) = self.turns.get_mut(&key) {
            // A call's record comes when it ends: the answer may have been read before.
            if !turn.reads.iter().any(|(_, read)| read.exit_ns <= bytes.enter_ns) {
                turn.to = turn.to.max(bytes.to);
                turn.empty += u64::from(bytes.empty);
                return;
            }
            let mut turn = self.turns.remove(&key).expect("present");
            turn.reads.retain(|(_, read)| read.exit_ns <= bytes.enter_ns);
            self.close(turn, bytes.enter_ns);
        }
        // A call's record comes when it ends: an answer read meanwhile, by another thread, is this
        // message's.
        let answers = |on: &Object, read: &Transfer| {
            let Some(channel) = world.channels.get(on) else { return false };
            match Channel::find(&channel.writes, read.to - 1) {
                Some(write) => write.enter_ns > bytes.enter_ns,
                None => true, // told later
            }
        };
        let channel = world.channels.get(&object);
        let first = channel.is_some_and(|c| c.first_write_ns == Some(bytes.enter_ns));
        let mut turn = Turn {
            socket: io.socket,
            opened: channel.and_then(|channel| channel.connected).filter(|_| first),
            ended: None,
            object,
            reverse,
            by_client: reverse.is_some_and(|reverse| self.is_client(process, reverse)),
            surely: reverse.is_some_and(|reverse| self.is_surely(process, reverse)),
            client: bytes.thread,
            process,
            start_ns: bytes.enter_ns,
            from: bytes.from,
            to: bytes.to,
            empty: u64::from(bytes.empty),
            reads: Vec::new(),
            closed_ns: None,
            parent: self.enclosing(world, process),
            made_for: None,
        };
        if turn.by_client {
            turn.made_for = self.asks_for(world, process, bytes.thread, bytes.enter_ns);
        }
        let recent = self.recent_reads.get(&process).into_iter().flatten();
        turn.reads = recent
            .filter(|(on, read)| {
                read.exit_ns > bytes.enter_ns && turn.may_be_answered_on(*on) && answers(on, read)
            })
            .copied()
            .collect();
        self.turns.insert(key, turn);
    }

    pub(super) fn close(&mut self, mut turn: Turn, at_ns: u64) {
        turn.closed_ns = Some(at_ns);
        self.unsettled.push(turn);
    }

    /// Decides closed turns whose answers are all accounted for.
    pub(super) fn settle(&mut self, world: &World, over: bool) {
        for turn in std::mem::take(&mut self.unsettled) {
            let waited_ns = world.now_ns.saturating_sub(turn.closed_ns.unwrap_or(world.now_ns));
            let late = over || waited_ns > ANSWER_PATIENCE_NS;
            // Without a loss, what nobody has told of is still to come, or came after the end.
            let torn = late && world.losses.first(turn.start_ns, world.now_ns).is_some();
            match self.answer(world, &turn, torn) {
                Answer::Found(answered) => self.turn_found(world, &turn, &answered),
                Answer::None => {}
                Answer::Open if !late => self.unsettled.push(turn),
                Answer::Open | Answer::Missing => self.unanswered(world, &turn),
            }
        }
    }

    /// The process that read the turn's message, if it is another and traced.
    fn reader(world: &World, turn: &Turn) -> Option<(ProcessId, Transfer)> {
        let channel = world.channels.get(&turn.object)?;
        let read = Channel::overlapping(&channel.reads, turn.from, turn.to).next()?;
        let process = world.thread(read.thread).process;
        (process != turn.process).then_some((process, *read))
    }

    /// The other process that last read from the turn's pipe: who would have served it.
    fn last_reader(world: &World, turn: &Turn) -> Option<(ProcessId, Transfer)> {
        let read = world.channels.get(&turn.object)?.reads.back()?;
        let process = world.thread(read.thread).process;
        (process != turn.process).then_some((process, *read))
    }

    /// `torn`: no more records are waited for, and some were lost.
    fn answer(&self, world: &World, turn: &Turn, torn: bool) -> Answer {
        let Some((server, _)) = Self::reader(world, turn) else {
            return match Self::last_reader(world, turn) {
                Some(_) => Answer::Missing,
                None => self.untraced_answer(world, turn),
            };
        };
        let request_channel = &world.channels[&turn.object];
        let mut uncovered = Vec::new();
        let mut found: Option<(Object, u64, u64, u64, ThreadId)> = None;
        let mut doubt = None;
        for (object, read) in &turn.reads {
            let Some(channel) = world.channels.get(object) else { continue };
            if read.exit_ns <= turn.start_ns {
                continue; // records out of order
            }
            match Channel::find(&channel.writes, read.to - 1) {
                Some(write) => {
                    if world.thread(write.thread).process != server {
                        continue;
                    }
                    // Who wrote first on the pair is the client.
                    let first = world.first_written(turn.object, *object);
                    if channel.first_write_ns < request_channel.first_write_ns
                        && first != Some(turn.object)
                    {
                        return Answer::None;
                    }
                    if first != Some(turn.object) {
                        doubt = Some(WHO_ASKS);
                    }
                    let asked_first =
                        Channel::overlapping(&request_channel.reads, turn.from, turn.to)
                            .any(|asked| asked.exit_ns <= write.exit_ns);
                    if !asked_first {
                        continue;
                    }
                    let entry = found.get_or_insert((*object, read.from, read.to, 0, read.thread));
                    if entry.0 == *object {
                        entry.2 = entry.2.max(read.to);
                        if read.exit_ns > entry.3 {
                            (entry.3, entry.4) = (read.exit_ns, read.thread);
                        }
                    }
                }
                None => uncovered.push(*object),
            }
        }
        match found {
            // More of the answer was read than its writer's records tell of as yet.
            Some((object, ..)) if uncovered.contains(&object) && !torn => Answer::Open,
            Some(found) if self.answers_elsewhere(world, turn, server, found.0) => Answer::None,
            Some((object, from, to, end_ns, client)) => {
                let doubt = doubt.or(uncovered.contains(&object).then_some(TORN));
                let server = Some(server);
                Answer::Found(Answered { server, object, from, to, end_ns, client, doubt })
            }
            None if torn => Self::torn(world, turn, server, &uncovered),
            None if !uncovered.is_empty() => Answer::Open,
            None => Answer::Missing,
        }
    }

    /// Of an answer nobody saw written what was read first, if it surely was one.
    fn torn(world: &World, turn: &Turn, server: ProcessId, uncovered: &[Object]) -> Answer {
        let torn = turn.reads.iter().find(|(object, read)| {
            let channel = world.channels.get(object);
            read.exit_ns > turn.start_ns
                && uncovered.contains(object)
                && (turn.reverse.is_some() || channel.is_some_and(|channel| channel.answers))
                && world.first_written(turn.object, *object) != Some(*object)
        });
        let Some((object, read)) = torn else { return Answer::Missing };
        Answer::Found(Answered {
            server: Some(server),
            object: *object,
            from: read.from,
            to: read.to,
            end_ns: read.exit_ns,
            client: read.thread,
            doubt: Some(TORN),
        })
    }

    /// On a connection whose other end is not traced: whatever came back.
    fn untraced_answer(&self, world: &World, turn: &Turn) -> Answer {
        let Some(reverse) = turn.reverse else { return Answer::None };
        if !turn.by_client || !peer_is_unknown(world, turn.object, reverse) {
            return Answer::None;
        }
        // Records out of order apart.
        let mut reads = turn.reads.iter().filter(|(_, read)| read.exit_ns > turn.start_ns);
        let Some((object, first)) = reads.next() else { return Answer::None };
        let last = reads.next_back().map_or(first, |(_, last)| last);
        Answer::Found(Answered {
            server: None,
            object: *object,
            from: first.from,
            to: last.to.max(first.to),
            end_ns: last.exit_ns,
            client: last.thread,
            doubt: (!turn.surely).then_some(WHO_ASKS),
        })
    }

    fn turn_found(&mut self, world: &World, turn: &Turn, answered: &Answered) {
        let Answered { server, object, from, to, .. } = *answered;
        let (start_ns, end_ns, client) = turn.window(world, answered.end_ns, answered.client);
        // More of the answer was on its way when the capture ended.
        let cut = turn.closed_ns == Some(world.now_ns)
            && world
                .channels
                .get(&object)
                .is_some_and(|answer| answer.writes.back().is_some_and(|write| write.to > to));
        let doubt = answered.doubt.filter(|_| !cut).map(str::to_string);
        self.found_primary = true;
        let parent = self.parent_of(world, turn.made_for, turn.parent, (start_ns, end_ns));
        let server_thread = Self::reader(world, turn).map(|(_, read)| read.thread);
        let request = Request {
            request_id: self.id_of((turn.object, turn.from)),
            parent_request_id: parent.map(|parent| parent.id),
            detached: parent.is_some_and(|parent| parent.detached),
            complete: !cut && doubt.is_none(),
            reason: cut.then(|| "the capture ended before the answer".to_string()).or(doubt),
            client: Some(end_of(world, client, end_ns)),
            server: server_thread.map(|thread| end_of(world, thread, end_ns)),
            channel: Some(turn.channel_name(world, Some(object))),
            request_bytes: Some(turn.request_bytes()),
            response_bytes: Some((to - from).saturating_sub(turn.empty_answers(object))),
            ..Request::new(kind_of(turn.object), start_ns, end_ns)
        };
        let goal = Goal {
            server_process: server,
            messages: vec![
                Message { object: turn.object, from: turn.from, to: turn.to },
                Message { object, from, to },
            ],
            ..Goal::new(start_ns, end_ns, (client, turn.process))
        };
        self.found.push(Found { request, goal });
    }

    /// Whether what looks like the answer, on `object`, is a request: the turn's process answers it
    /// on yet another pipe. So it is with a server that first says "ready" on a pipe of its own.
    fn answers_elsewhere(
        &self,
        world: &World,
        turn: &Turn,
        peer: ProcessId,
        object: Object,
    ) -> bool {
        if turn.reverse.is_some() || world.channels[&turn.object].carries_requests {
            return false; // the two directions of a connection, or decided before
        }
        let Some(asked_ns) = turn.reads.iter().find(|(on, _)| *on == object) else { return false };
        let is = |thread, process| world.thread(thread).process == process;
        world.channels.iter().any(|(other, channel)| {
            *other != turn.object
                && channel.reads.back().is_some_and(|read| is(read.thread, peer))
                && channel.writes.back().is_some_and(|write| {
                    is(write.thread, turn.process) && write.enter_ns >= asked_ns.1.exit_ns
                })
        })
    }

    /// Whether the turn's message is itself an answer: its reader wrote first to its writer.
    fn is_answer(world: &World, turn: &Turn, reader: ProcessId) -> bool {
        let wrote = |channel: &Channel, process| {
            channel.writes.iter().any(|write| world.thread(write.thread).process == process)
        };
        let read = |channel: &Channel, process| {
            channel.reads.iter().any(|read| world.thread(read.thread).process == process)
        };
        let own = world.channels.get(&turn.object).and_then(|channel| channel.first_write_ns);
        if let Some(reverse) = turn.reverse {
            let other = world.channels.get(&reverse).and_then(|channel| channel.first_write_ns);
            return other.is_some_and(|other_ns| own.is_none_or(|own_ns| other_ns < own_ns));
        }
        world.channels.values().any(|channel| {
            channel.first_write_ns < own && wrote(channel, reader) && read(channel, turn.process)
        })
    }

    /// A turn that ended without an answer is an incomplete request if the pipe carries requests,
    /// or if the client was waiting on a pipe when it, or the capture, ended.
    fn unanswered(&mut self, world: &World, turn: &Turn) {
        let reader = Self::reader(world, turn).or_else(|| Self::last_reader(world, turn));
        let Some((server, read)) = reader else { return };
        let thread = world.thread(turn.client);
        let waiting = thread.off.back().is_some_and(|off| {
            off.start_ns >= turn.start_ns && off.call.is_some_and(|call| turn.waits_on(&call))
        });
        let carries = (world.channels.get(&turn.object)).is_some_and(|c| c.carries_requests);
        // Who reads a datagram at the very moment it comes may take it before its sender tells of it.
        let unseen = turn.object.is_datagram() && !turn.reads.is_empty();
        let answered = !turn.reads.is_empty() && !unseen;
        if !(carries || waiting) || answered || Self::is_answer(world, turn, server) {
            return;
        }
        let end_ns = turn.closed_ns.unwrap_or(world.now_ns).max(turn.start_ns);
        let client = &world.processes[turn.process as usize];
        let server_exit = world.processes[server as usize].exited_ns;
        let reason = match (client.exited_ns, server_exit) {
            (Some(client_ns), Some(server_ns)) if server_ns < client_ns => {
                exit_reason("the server", world, server)
            }
            (Some(_), _) => exit_reason("the client", world, turn.process),
            (None, Some(_)) => exit_reason("the server", world, server),
            (None, None) => "the capture ended before the answer".to_string(),
        };
        let reason = match unseen {
            true => UNSEEN.to_string(),
            false => reason,
        };
        self.found_primary = true;
        let parent = self.parent_of(world, turn.made_for, turn.parent, (turn.start_ns, end_ns));
        let request = Request {
            request_id: self.id_of((turn.object, turn.from)),
            parent_request_id: parent.map(|parent| parent.id),
            detached: parent.is_some_and(|parent| parent.detached),
            complete: false,
            reason: Some(reason),
            client: Some(end_of(world, turn.client, end_ns)),
            server: Some(end_of(world, read.thread, end_ns)),
            channel: Some(turn.channel_name(world, None)),
            request_bytes: Some(turn.request_bytes()),
            ..Request::new(kind_of(turn.object), turn.start_ns, end_ns)
        };
        let goal = Goal {
            server_process: Some(server),
            ..Goal::new(turn.start_ns, end_ns, (turn.client, turn.process))
        };
        self.found.push(Found { request, goal });
    }
}

pub(super) fn exit_reason(who: &str, world: &World, process: ProcessId) -> String {
    let code = world.processes[process as usize].exit_code.unwrap_or(0);
    match code & 0x7f {
        0 => format!("{who} exited with status {} before the answer", (code >> 8) & 0xff),
        signal => format!("{who} was killed by signal {signal} before the answer"),
    }
}
