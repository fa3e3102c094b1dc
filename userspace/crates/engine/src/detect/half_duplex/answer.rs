//! The answer of a turn: the reads since its question that brought bytes written by the turn's server.

use crate::classify::syscall::{is_write, waits, Waits};
use crate::detect::book::Book;
use crate::detect::causality::Heard;
use crate::detect::found::{end_of, exit_reason, kind_of, method_of, sent_again, Found, MadeFor};
use crate::detect::half_duplex::turn::{Ended, Turn};
use crate::detect::roles::{has_proved_answers, peer_is_unknown};
use crate::event::{Object, TYPE_FIFO};
use crate::timeline::gallop::count_before;
use crate::timeline::{Channel, ProcessId, ThreadId, Transfer, World};
use crate::walk::{Goal, Message};
use rpcprobe_model::{Reason, Request, Who};

/// The answer: its bytes, its server, and the thread that had it, and when.
pub(super) struct Answered {
    /// `None`: not traced.
    server: Option<ProcessId>,
    /// The process that wrote it, if that is not the server.
    answerer: Option<ProcessId>,
    object: Object,
    from: u64,
    to: u64,
    end_ns: u64,
    client: ThreadId,
    /// Why it may be wrong.
    doubt: Option<Reason>,
}

pub(super) enum Answer {
    Found(Answered),
    /// No traced process read the message, or the message is itself an answer.
    None,
    /// The message has no known reader yet, or the bytes of a read have no known writer.
    Open,
    /// The message was read, and nothing came back.
    Missing,
}

impl Turn {
    /// The process that read the turn's message, if it is another process and traced.
    fn reader(&self, world: &World) -> Option<(ProcessId, Transfer)> {
        let channel = world.channels.get(&self.object)?;
        let read = Channel::overlapping(&channel.reads, self.from, self.to).next()?;
        let process = world.thread(read.thread).process;
        (process != self.process).then_some((process, *read))
    }

    /// Whether what `writer` wrote may be the answer to what `server` read. The writer may be the server itself; a
    /// child that the server forked since; or, on a connection, any other process that has that end.
    fn may_answer(
        &self,
        world: &World,
        writer: ProcessId,
        (server, asked): (ProcessId, &Transfer),
    ) -> bool {
        writer == server
            || self.reverse.is_some() && writer != self.process
            || world.is_forked_since(writer, server, asked.exit_ns)
    }

    /// The other process that last read from the turn's channel, and would have served the message.
    fn last_reader(&self, world: &World) -> Option<(ProcessId, Transfer)> {
        let read = world.channels.get(&self.object)?.reads.back()?;
        let process = world.thread(read.thread).process;
        (process != self.process).then_some((process, *read))
    }

    /// Finds the answer. `torn`: no more records are waited for, and some were lost.
    pub(super) fn answer(&self, world: &World, torn: bool, book: &Book) -> Answer {
        let Some((server, asked)) = self.reader(world) else {
            return match self.last_reader(world) {
                // A call that moves bytes from one pipe to the other reports both when it ends.
                Some(_) if self.awaits_a_writer(world) => Answer::Open,
                Some(_) => Answer::Missing,
                None => self.untraced_answer(world),
            };
        };
        let request_channel = &world.channels[&self.object];
        let mut uncovered = Vec::new();
        let mut found: Option<(Object, u64, u64, u64, ThreadId)> = None;
        let (mut doubt, mut answerer) = (None, None);
        for (object, read) in &self.reads {
            let Some(channel) = world.channels.get(object) else { continue };
            if read.exit_ns <= self.life.since_ns() {
                continue; // records out of order
            }
            match Channel::find(&channel.writes, read.to - 1) {
                Some(write) => {
                    let writer = world.thread(write.thread).process;
                    if !self.may_answer(world, writer, (server, &asked)) {
                        continue;
                    }
                    // The client is the process that wrote first on the pair, or that opened the connection.
                    let first = world.first_written(self.object, *object);
                    if channel.first_write_ns < request_channel.first_write_ns
                        && first != Some(self.object)
                    {
                        return Answer::None;
                    }
                    if first != Some(self.object) {
                        doubt = Some(Reason::AskerUnknown);
                    }
                    let asked_first =
                        Channel::overlapping(&request_channel.reads, self.from, self.to)
                            .any(|asked| asked.exit_ns <= write.exit_ns);
                    if !asked_first {
                        continue;
                    }
                    answerer = Some(writer).filter(|writer| *writer != server);
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
            // More of the answer was read than the records of its writer show so far.
            Some((object, ..)) if uncovered.contains(&object) && !torn => Answer::Open,
            Some(found) if self.answers_elsewhere(world, server, found.0, book) => Answer::None,
            Some((object, from, to, end_ns, client)) => {
                let unseen = uncovered.contains(&object);
                let doubt = doubt.or(unseen.then_some(Reason::WriterUnseen));
                let server = Some(server);
                Answer::Found(Answered {
                    server,
                    answerer,
                    object,
                    from,
                    to,
                    end_ns,
                    client,
                    doubt,
                })
            }
            None if torn => self.torn(world, server, &uncovered, book),
            None if !uncovered.is_empty() => Answer::Open,
            None => Answer::Missing,
        }
    }

    /// Whether a read since was reported before the write of its bytes, although the writer is known.
    fn awaits_a_writer(&self, world: &World) -> bool {
        self.reads.iter().any(|(object, read)| {
            let last = world.channels.get(object).and_then(|channel| channel.writes.back());
            last.is_some_and(|last| last.to < read.to)
        })
    }

    /// For an answer that was not seen written: what was read first, if it surely is an answer.
    fn torn(&self, world: &World, server: ProcessId, uncovered: &[Object], book: &Book) -> Answer {
        let torn = self.reads.iter().find(|(object, read)| {
            read.exit_ns > self.life.since_ns()
                && uncovered.contains(object)
                && (self.reverse.is_some() || book.carries_answers(*object))
                && world.first_written(self.object, *object) != Some(*object)
        });
        let Some((object, read)) = torn else { return Answer::Missing };
        Answer::Found(Answered {
            server: Some(server),
            answerer: None,
            object: *object,
            from: read.from,
            to: read.to,
            end_ns: read.exit_ns,
            client: read.thread,
            doubt: Some(Reason::WriterUnseen),
        })
    }

    /// On a connection whose other end is not traced, the answer is whatever came back.
    fn untraced_answer(&self, world: &World) -> Answer {
        let Some(reverse) = self.reverse else { return Answer::None };
        if !self.by_client
            || !peer_is_unknown(world, self.object, reverse)
            || has_proved_answers(world, self.object)
        {
            return Answer::None;
        }
        // Records out of order are left out.
        let mut reads = self.reads.iter().filter(|(_, read)| read.exit_ns > self.life.since_ns());
        let Some((object, first)) = reads.next() else { return Answer::None };
        let last = reads.next_back().map_or(first, |(_, last)| last);
        Answer::Found(Answered {
            server: None,
            answerer: None,
            object: *object,
            from: first.from,
            to: last.to.max(first.to),
            end_ns: last.exit_ns,
            client: last.thread,
            doubt: (!self.surely).then_some(Reason::AskerUnknown),
        })
    }

    pub(super) fn found(&self, world: &World, answered: &Answered, book: &mut Book) {
        let Answered { server, answerer, object, from, to, .. } = *answered;
        let (start_ns, end_ns, client) = self.window(world, answered.end_ns, answered.client);
        // More of the answer was on its way when the capture ended.
        let cut = self.over_ns(world) == world.now_ns
            && world
                .channels
                .get(&object)
                .is_some_and(|answer| answer.writes.back().is_some_and(|write| write.to > to));
        let reason = cut.then_some(Reason::CaptureEnded).or_else(|| answered.doubt.clone());
        let heard = Some(Heard {
            thread: answered.client,
            exit_ns: answered.end_ns,
            channel: Some(object),
        });
        let (asking, program) = (self.asking, self.parent);
        let made_for = MadeFor { asking, heard, program, ..MadeFor::default() };
        let server_thread = self.reader(world).map(|(_, read)| read.thread);
        let request = Request {
            request_id: book.causality.id_of((self.object, self.first)),
            complete: reason.is_none(),
            reason,
            client: Some(end_of(world, client, end_ns)),
            server: server_thread.map(|thread| end_of(world, thread, end_ns)),
            channel: Some(self.channel_name(world, Some(object))),
            method: method_of(world, self.object, self.from),
            retransmissions: sent_again(world, (self.object, self.from, self.to)),
            request_bytes: Some(self.request_bytes()),
            response_bytes: Some((to - from).saturating_sub(self.empty_answers(object))),
            ..Request::new(kind_of(self.object), start_ns, end_ns)
        };
        let goal = Goal {
            server_process: server,
            answerer,
            messages: vec![
                Message { object: self.object, from: self.from, to: self.to },
                Message { object, from, to },
            ],
            ..Goal::new(start_ns, end_ns, (client, self.process))
        };
        let answer = Some(object).filter(|_| self.reverse.is_none());
        book.found(world, Found { request, goal, channels: [Some(self.object), answer], made_for });
    }

    /// Whether what looks like the answer, on `object`, is a question: the turn's process answers it on yet another
    /// pipe. This is so with a server that first says "ready" on a pipe of its own.
    fn answers_elsewhere(
        &self,
        world: &World,
        peer: ProcessId,
        object: Object,
        book: &Book,
    ) -> bool {
        if self.reverse.is_some() || book.carries_requests(self.object) {
            return false; // the two directions of a connection, or decided before
        }
        let Some(asked_ns) = self.reads.iter().find(|(on, _)| *on == object) else { return false };
        let is = |thread, process| world.thread(thread).process == process;
        world.channels.iter().any(|(other, channel)| {
            *other != self.object
                && channel.reads.back().is_some_and(|read| is(read.thread, peer))
                && channel.writes.back().is_some_and(|write| {
                    is(write.thread, self.process) && write.enter_ns >= asked_ns.1.exit_ns
                })
        })
    }

    /// Whether the turn's message is itself an answer: its reader wrote first to its writer.
    fn is_answer(&self, world: &World, reader: ProcessId) -> bool {
        let wrote = |channel: &Channel, process| {
            channel.writes.iter().any(|write| world.thread(write.thread).process == process)
        };
        let read = |channel: &Channel, process| {
            channel.reads.iter().any(|read| world.thread(read.thread).process == process)
        };
        let own = world.channels.get(&self.object).and_then(|channel| channel.first_write_ns);
        if let Some(reverse) = self.reverse {
            let other = world.channels.get(&reverse).and_then(|channel| channel.first_write_ns);
            return other.is_some_and(|other_ns| own.is_none_or(|own_ns| other_ns < own_ns));
        }
        // For a connection this is known by other means than time.
        let others = world.channels.iter().filter(|(on, _)| on.type_bits == TYPE_FIFO);
        others.map(|(_, channel)| channel).any(|channel| {
            channel.first_write_ns < own && wrote(channel, reader) && read(channel, self.process)
        })
    }

    /// Whether the client closed the connection just after its message, without a look for an answer: it expected none
    /// (MySQL's COM_QUIT, PostgreSQL's Terminate).
    fn is_farewell(&self, world: &World) -> bool {
        let Some((Ended::Closed { thread, enter_ns, .. }, _)) = self.life.over() else {
            return false;
        };
        let channel = world.channels.get(&self.object);
        let sent = channel.and_then(|known| Channel::find(&known.writes, self.to.checked_sub(1)?));
        let t = world.thread(thread);
        let looked = |since_ns: u64| {
            let next = count_before(&t.calls, |call| call.enter_ns < since_ns);
            let calls = t.calls.range(next..).take_while(|call| call.enter_ns < enter_ns);
            { calls }.any(|call| {
                let object = call.io.as_ref().map(|io| io.object);
                matches!(waits(call.nr, object), Waits::Readiness | Waits::Peer)
                    && !is_write(call.nr)
            })
        };
        let alone = || world.process_of(thread).threads.len() == 1;
        sent.is_some_and(|sent| sent.thread == thread && alone() && !looked(sent.exit_ns))
    }

    /// A turn that ended without an answer is an incomplete request if the pipe carries requests,
    /// or if the client was waiting on a pipe when it, or the capture, ended.
    pub(super) fn unanswered(&self, world: &World, book: &mut Book) {
        let reader = self.reader(world).or_else(|| self.last_reader(world));
        let Some((server, read)) = reader else { return };
        let thread = world.thread(self.client);
        let waiting = thread.off.back().is_some_and(|off| {
            off.start_ns >= self.life.since_ns()
                && off.call.is_some_and(|call| self.waits_on(&call))
        });
        let carries = book.carries_requests(self.object);
        // A reader may take a datagram at the very moment when it comes, before the sender's record.
        let unseen = self.object.is_datagram() && !self.reads.is_empty();
        let answered = !self.reads.is_empty() && !unseen;
        let expects_one = !self.is_farewell(world);
        if !(carries || waiting) || answered || !expects_one || self.is_answer(world, server) {
            return;
        }
        let end_ns = self.over_ns(world).max(self.life.since_ns());
        let client = &world.processes[self.process as usize];
        let server_exit = world.processes[server as usize].exited_ns;
        let reason = match (client.exited_ns, server_exit) {
            (Some(client_ns), Some(server_ns)) if server_ns < client_ns => {
                exit_reason(Who::Server, world, server)
            }
            (Some(_), _) => exit_reason(Who::Client, world, self.process),
            (None, Some(_)) => exit_reason(Who::Server, world, server),
            (None, None) => match self.life.over() {
                Some((Ended::Closed { .. }, _)) => Reason::Closed { who: Who::Client },
                _ => Reason::CaptureEnded,
            },
        };
        let reason = match unseen {
            true => Reason::DatagramUnseen,
            false => reason,
        };
        let (asking, program) = (self.asking, self.parent);
        let made_for = MadeFor { asking, program, ..MadeFor::default() };
        let request = Request {
            request_id: book.causality.id_of((self.object, self.first)),
            complete: false,
            reason: Some(reason),
            client: Some(end_of(world, self.client, end_ns)),
            server: Some(end_of(world, read.thread, end_ns)),
            channel: Some(self.channel_name(world, None)),
            method: method_of(world, self.object, self.from),
            retransmissions: sent_again(world, (self.object, self.from, self.to)),
            request_bytes: Some(self.request_bytes()),
            ..Request::new(kind_of(self.object), self.life.since_ns(), end_ns)
        };
        let goal = Goal {
            server_process: Some(server),
            ..Goal::new(self.life.since_ns(), end_ns, (self.client, self.process))
        };
        book.found(world, Found { request, goal, channels: [Some(self.object), None], made_for });
    }
}
