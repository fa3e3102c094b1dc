//! `pipe` requests.
//!
//! A `pipe` request is a turn: a client process writes on one pipe, another process reads those
//! bytes and later writes on a second pipe, and the client reads them. Which of the two is the
//! client is decided once a pair of pipes: who wrote first. A turn ends when the client writes
//! again, so an answer read in pieces is one answer.

use super::{end_of, Detector, Found};
use crate::engine::event::{Object, TYPE_FIFO};
use crate::engine::walk::{Goal, Message};
use crate::engine::world::{Channel, ProcessId, ThreadId, Transfer, World};
use crate::model::{Kind, Request};

/// How long an answer whose write has not ended yet is waited for.
const ANSWER_PATIENCE_NS: u64 = 2_000_000_000;

/// A client's message and the reads that may have brought its answer.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    pub(super) object: Object,
    pub(super) client: ThreadId,
    pub(super) process: ProcessId,
    pub(super) start_ns: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) reads: Vec<(Object, Transfer)>,
    pub(super) closed_ns: Option<u64>,
    /// Enclosing exec request, by its process.
    pub(super) parent: Option<ProcessId>,
}

enum Answer {
    Found {
        server: ProcessId,
        object: Object,
        from: u64,
        to: u64,
        end_ns: u64,
        client: ThreadId,
    },
    /// Nobody traced read the message, or it is itself an answer.
    None,
    /// A read's bytes have no known writer yet.
    Open,
    /// The message was read, and nothing came back.
    Missing,
}

impl Detector {
    pub(super) fn write(
        &mut self,
        world: &World,
        process: ProcessId,
        object: Object,
        bytes: Transfer,
    ) {
        let key = (process, object);
        if let Some(turn) = self.turns.get_mut(&key) {
            // A call's record comes when it ends: the answer may have been read before.
            if !turn.reads.iter().any(|(_, read)| read.exit_ns <= bytes.enter_ns) {
                turn.to = turn.to.max(bytes.to);
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
        let recent = self.recent_reads.get(&process).into_iter().flatten();
        let reads = recent
            .filter(|(on, read)| {
                *on != object && read.exit_ns > bytes.enter_ns && answers(on, read)
            })
            .copied()
            .collect();
        let turn = Turn {
            object,
            client: bytes.thread,
            process,
            start_ns: bytes.enter_ns,
            from: bytes.from,
            to: bytes.to,
            reads,
            closed_ns: None,
            parent: self.enclosing(world, process),
        };
        self.turns.insert(key, turn);
    }

    pub(super) fn close(&mut self, mut turn: Turn, at_ns: u64) {
        turn.closed_ns = Some(at_ns);
        self.unsettled.push(turn);
    }

    /// Decides closed turns whose answers are all accounted for.
    pub(super) fn settle(&mut self, world: &World, over: bool) {
        for turn in std::mem::take(&mut self.unsettled) {
            match self.answer(world, &turn) {
                Answer::Found { server, object, from, to, end_ns, client } => {
                    self.pipe_found(world, &turn, server, object, from, to, end_ns, client);
                }
                Answer::None => {}
                Answer::Open => {
                    let waited_ns =
                        world.now_ns.saturating_sub(turn.closed_ns.unwrap_or(world.now_ns));
                    if over || waited_ns > ANSWER_PATIENCE_NS {
                        self.unanswered(world, &turn);
                    } else {
                        self.unsettled.push(turn);
                    }
                }
                Answer::Missing => self.unanswered(world, &turn),
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

    fn answer(&self, world: &World, turn: &Turn) -> Answer {
        let Some((server, _)) = Self::reader(world, turn) else {
            return match Self::last_reader(world, turn) {
                Some(_) => Answer::Missing,
                None => Answer::None,
            };
        };
        let request_channel = &world.channels[&turn.object];
        let mut uncovered = Vec::new();
        let mut found: Option<(Object, u64, u64, u64, ThreadId)> = None;
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
                    if channel.first_write_ns < request_channel.first_write_ns {
                        return Answer::None;
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
            Some((object, ..)) if uncovered.contains(&object) => Answer::Open,
            Some(found) if self.answers_elsewhere(world, turn, server, found.0) => Answer::None,
            Some((object, from, to, end_ns, client)) => {
                Answer::Found { server, object, from, to, end_ns, client }
            }
            None if !uncovered.is_empty() => Answer::Open,
            None => Answer::Missing,
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of an answer
    fn pipe_found(
        &mut self,
        world: &World,
        turn: &Turn,
        server: ProcessId,
        object: Object,
        from: u64,
        to: u64,
        end_ns: u64,
        client: ThreadId,
    ) {
        self.found_primary = true;
        let parent_request_id = turn.parent.and_then(|process| self.exec_id(process));
        let server_thread = Self::reader(world, turn).map(|(_, read)| read.thread);
        let request = Request {
            request_id: self.new_id(),
            parent_request_id,
            kind: Kind::Pipe,
            start_ns: turn.start_ns,
            latency_ns: end_ns - turn.start_ns,
            complete: true,
            reason: None,
            client: Some(end_of(world, client, end_ns)),
            server: server_thread.map(|thread| end_of(world, thread, end_ns)),
            channel: Some(format!("{} {}", turn.object, object)),
            stream_id: None,
            xid: None,
            method: None,
            status: None,
            request_bytes: Some(turn.to - turn.from),
            response_bytes: Some(to - from),
        };
        let goal = Goal {
            start_ns: turn.start_ns,
            end_ns,
            client,
            client_process: turn.process,
            server_process: Some(server),
            messages: vec![
                Message { object: turn.object, from: turn.from, to: turn.to },
                Message { object, from, to },
            ],
            child: None,
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
        if world.channels[&turn.object].carries_requests {
            return false; // decided before
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
            off.start_ns >= turn.start_ns
                && off
                    .call
                    .and_then(|call| call.object)
                    .is_some_and(|object| object.type_bits == TYPE_FIFO && object != turn.object)
        });
        let carries = (world.channels.get(&turn.object)).is_some_and(|c| c.carries_requests);
        if !(carries || waiting) || !turn.reads.is_empty() || Self::is_answer(world, turn, server) {
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
        self.found_primary = true;
        let parent_request_id = turn.parent.and_then(|process| self.exec_id(process));
        let request = Request {
            request_id: self.new_id(),
            parent_request_id,
            kind: Kind::Pipe,
            start_ns: turn.start_ns,
            latency_ns: end_ns - turn.start_ns,
            complete: false,
            reason: Some(reason),
            client: Some(end_of(world, turn.client, end_ns)),
            server: Some(end_of(world, read.thread, end_ns)),
            channel: Some(turn.object.to_string()),
            stream_id: None,
            xid: None,
            method: None,
            status: None,
            request_bytes: Some(turn.to - turn.from),
            response_bytes: None,
        };
        let goal = Goal {
            start_ns: turn.start_ns,
            end_ns,
            client: turn.client,
            client_process: turn.process,
            server_process: Some(server),
            messages: Vec::new(),
            child: None,
        };
        self.found.push(Found { request, goal });
    }
}

fn exit_reason(who: &str, world: &World, process: ProcessId) -> String {
    let code = world.processes[process as usize].exit_code.unwrap_or(0);
    match code & 0x7f {
        0 => format!("{who} exited with status {} before the answer", (code >> 8) & 0xff),
        signal => format!("{who} was killed by signal {signal} before the answer"),
    }
}
