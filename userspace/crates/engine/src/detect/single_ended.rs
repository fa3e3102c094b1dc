//! Detects requests on connections of which only one end is traced.
//!
//! The end that opened a connection is its client; if the opening was not seen, the end that sent the first byte. A
//! traced client's request is a turn like others, without the server's part. A traced server's request runs from the
//! arrival of what it read to the end of its last write before it reads again.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::detect::arrival::arrival_ns;
use crate::detect::book::Book;
use crate::detect::found::{end_of, kind_of, method_of, name_of, sent_again, Found, MadeFor};
use crate::detect::lifecycle::{Clock, Life, Patience};
use crate::detect::roles::{has_proved_answers, peer_is_unknown, Role};
use crate::detect::{Detect, Recent, Seen};
use crate::event::{Call, Io, Object};
use crate::timeline::retention::Held;
use crate::timeline::{EndedBy, Over, ProcessId, ThreadId, Transfer, World};
use crate::walk::{Goal, Message};
use rpcprobe_model::{Reason, Request};

/// Number of reads of a question that are remembered: the latest may prove to belong to the next question.
const RECENT_READS: usize = 64;

/// A read of a server, and when its first byte arrived.
#[derive(Debug, Clone, Copy)]
struct Taken {
    read: Transfer,
    arrived_ns: u64,
}

/// A question that a server read, and what it wrote since.
#[derive(Debug, Clone)]
struct Served {
    process: ProcessId,
    thread: ThreadId,
    life: Life<()>,
    asked: Message,
    answer: Option<Message>,
    /// Its first read.
    taken: Transfer,
    /// When the server closed the connection.
    closed_ns: Option<u64>,
    /// The latest other reads before the answer. They may prove to belong to the next question.
    more: VecDeque<Taken>,
}

impl Served {
    fn new(process: ProcessId, object: Object, Taken { read, arrived_ns }: Taken) -> Served {
        Served {
            process,
            thread: read.thread,
            life: Life::asked(arrived_ns),
            asked: Message { object, from: read.from, to: read.to },
            answer: None,
            taken: read,
            closed_ns: None,
            more: VecDeque::new(),
        }
    }

    fn takes_more(&mut self, taken: Taken) {
        self.asked.to = taken.read.to;
        if self.more.len() == RECENT_READS {
            self.more.pop_front();
        }
        self.more.push_back(taken);
    }

    fn answered(&mut self, written: &Transfer, object: Object) {
        let begin = self.answer.map_or(written.from, |answer| answer.from);
        self.answer = Some(Message { object, from: begin, to: written.to });
        self.life.answered(written.exit_ns);
        self.thread = written.thread;
    }

    /// The server has read again, or is gone. What it answered is a request, unless the client turned out to be traced,
    /// too.
    fn end(self, world: &World, book: &mut Book) {
        let (Some(answer), Some(end_ns)) = (self.answer, self.life.answered_ns()) else { return };
        let start_ns = self.life.since_ns();
        if !peer_is_unknown(world, answer.object, self.asked.object) {
            return; // a turn, with both ends
        }
        if has_proved_answers(world, self.asked.object) {
            return;
        }
        let answerer = world.thread(self.thread).process;
        let mut ends = [self.process, answerer].into_iter();
        let sure = ends.any(|process| book.roles.is_sure(process, self.asked.object));
        let request = Request {
            request_id: book.causality.id_of((self.asked.object, self.asked.from)),
            complete: sure,
            reason: (!sure).then_some(Reason::AskerUnknown),
            server: Some(end_of(world, self.thread, end_ns)),
            channel: Some(name_of(world, self.asked.object)),
            method: method_of(world, self.asked.object, self.asked.from),
            retransmissions: sent_again(world, (self.asked.object, self.asked.from, self.asked.to)),
            request_bytes: Some(self.asked.to.saturating_sub(self.asked.from)),
            response_bytes: Some(answer.to.saturating_sub(answer.from)),
            ..Request::new(kind_of(answer.object), start_ns, end_ns)
        };
        let goal = Goal {
            server_process: Some(self.process),
            answerer: Some(answerer).filter(|answerer| *answerer != self.process),
            messages: vec![self.asked, answer],
            ..Goal::new(start_ns, end_ns.max(start_ns), (self.thread, self.process))
        };
        let made_for = MadeFor::default();
        let channels = [Some(self.asked.object), None];
        book.found(world, Found { request, goal, channels, made_for });
    }

    /// Splits off the reads that ended after a write began at `began_ns`. That write cannot answer them, so they are
    /// another question. (A call's record comes when the call ends.)
    fn asked_since(&mut self, began_ns: u64) -> Option<Served> {
        let later = self.more.iter().position(|taken| taken.read.exit_ns > began_ns)?;
        let mut later = self.more.split_off(later);
        let mut next = Served::new(self.process, self.asked.object, later.pop_front()?);
        self.asked.to = next.asked.from;
        next.asked.to = later.back().map_or(next.asked.to, |taken| taken.read.to);
        next.more = later;
        Some(next)
    }
}

#[derive(Debug, Default)]
pub(super) struct SingleEnded {
    /// By the process and the channel that it reads from.
    served: FxHashMap<(ProcessId, Object), Served>,
    /// When servers have closed connections on which they serve.
    closed: VecDeque<(u64, (ProcessId, Object))>,
}

impl Detect for SingleEnded {
    fn observe(&mut self, world: &World, seen: &Seen, book: &mut Book) {
        match *seen {
            Seen::Moved { thread, process, call, io } => {
                self.moved(world, (process, thread), call, io, book);
            }
            Seen::Over { process, over } => self.over(world, process, over, book),
            _ => {}
        }
    }

    fn exit(&mut self, world: &World, process: ProcessId, _at_ns: u64, book: &mut Book) {
        let mut own: Vec<_> =
            self.served.keys().filter(|(of, _)| *of == process).copied().collect();
        own.sort_unstable();
        for key in own {
            match self.served.get(&key).is_some_and(|served| served.answer.is_none()) {
                // Another process may have the connection, and answer.
                true => self.done(world, key),
                false => self.end(world, key, book),
            }
        }
        book.roles.exit(world, process);
    }

    fn horizon_ns(&self, _recent: Recent, _book: &Book) -> Option<u64> {
        self.served.values().map(|served| served.life.since_ns()).min()
    }

    fn hold(&self, held: &mut Held) {
        for served in self.served.values() {
            held.threads.insert(served.thread);
            held.channels.insert(served.asked.object);
            held.channels.extend(served.answer.map(|answer| answer.object));
        }
    }

    fn finish(&mut self, world: &World, book: &mut Book) {
        self.end_all(world, book);
    }
}

impl SingleEnded {
    /// Forgets a connection whose framing is known now.
    pub(super) fn leave(&mut self, channels: [Object; 2]) {
        self.served.retain(|(_, object), _| !channels.contains(object));
    }

    /// Looks at a transfer through a connection.
    fn moved(
        &mut self,
        world: &World,
        (process, thread): (ProcessId, ThreadId),
        call: &Call,
        io: &Io,
        book: &mut Book,
    ) {
        let Some(reverse) = io.reverse else { return };
        let (asked, answer) = if io.is_write { (reverse, io.object) } else { (io.object, reverse) };
        if book.roles.of(world, process, io, asked) == Role::Client {
            return;
        }
        let moved = Transfer::new(thread, call, io);
        match io.is_write {
            true => self.answer(world, process, &moved, (asked, answer), book),
            false => {
                let arrived_ns = arrival_ns(world, thread, call, (asked, moved.from));
                let taken = Taken { read: moved, arrived_ns };
                self.question(world, process, taken, asked, book);
            }
        }
    }

    fn answer(
        &mut self,
        world: &World,
        process: ProcessId,
        written: &Transfer,
        (asked, answer): (Object, Object),
        book: &mut Book,
    ) {
        let key = (process, asked);
        self.inherit(world, key);
        let served = self.served.get_mut(&key);
        if served.as_ref().is_some_and(|served| written.enter_ns < served.taken.exit_ns) {
            return; // more of the answer before
        }
        let reader = served.as_ref().map_or(process, |served| served.process);
        book.causality.services.end_all(reader, asked, written.exit_ns);
        let Some(served) = served else { return };
        book.causality.services.end(reader, (asked, served.asked.from), written.exit_ns);
        let next = match served.answer {
            None => served.asked_since(written.enter_ns),
            Some(_) => None,
        };
        served.answered(written, answer);
        if let Some(next) = next {
            book.causality.begin(reader, &next.taken, (asked, next.asked.from), true);
            if let Some(served) = self.served.insert(key, next) {
                served.end(world, book);
            }
        }
    }

    /// If a process writes without having read a question on the channel, it takes over a question that its parent, or
    /// an ancestor, had read before the process was forked; or one that another process had read and left unanswered,
    /// which has passed the connection on. (Dovecot's login process passes the connection of a user who has logged in
    /// to another process, which answers.)
    fn inherit(&mut self, world: &World, key: (ProcessId, Object)) {
        if self.served.contains_key(&key) {
            return;
        }
        let (mut process, asked) = key;
        while let Some(parent) = world.forked_by(process, 0) {
            let served = self.served.get(&(parent, asked));
            let is_inherited = served.is_some_and(|served| {
                let read_ns = served.taken.exit_ns;
                served.answer.is_none() && world.forked_by(process, read_ns).is_some()
            });
            if is_inherited {
                return self.take_over((parent, asked), key);
            }
            process = parent;
        }
        let last = world.channels.get(&asked).and_then(|channel| channel.reads.back());
        let Some(reader) = last.map(|last| world.thread(last.thread).process) else { return };
        if self.served.get(&(reader, asked)).is_some_and(|served| served.answer.is_none()) {
            self.take_over((reader, asked), key);
        }
    }

    fn take_over(&mut self, from: (ProcessId, Object), key: (ProcessId, Object)) {
        let served = self.served.remove(&from);
        self.served.extend(served.map(|served| (key, Served { closed_ns: None, ..served })));
    }

    fn question(
        &mut self,
        world: &World,
        process: ProcessId,
        taken: Taken,
        asked: Object,
        book: &mut Book,
    ) {
        book.causality.begin(process, &taken.read, (asked, taken.read.from), true);
        let key = (process, asked);
        match self.served.get_mut(&key) {
            Some(served) if served.answer.is_none() => served.takes_more(taken),
            _ => {
                if let Some(served) = self.served.insert(key, Served::new(process, asked, taken)) {
                    served.end(world, book);
                }
            }
        }
    }

    /// A server that has closed a connection, or sends nothing more, has answered what it will answer there. The record
    /// of another thread's write may be late. What is unanswered may be the rest of a question that was answered before
    /// all of it was read (php-fpm reads the end of FastCGI's input last), or a question that has no answer.
    fn over(&mut self, world: &World, process: ProcessId, over: &Over, book: &mut Book) {
        let read = match over.sends {
            true => world.channels.get(&over.channel).and_then(|channel| channel.reverse),
            false => Some(over.channel),
        };
        let Some(read) = read.filter(|_| over.by != EndedBy::Peer) else { return };
        book.causality.services.end_all(process, read, over.at_ns);
        self.done(world, (process, read));
    }

    /// A process is done with a question: it has closed the connection, or exited.
    fn done(&mut self, world: &World, key: (ProcessId, Object)) {
        if let Some(served) = self.served.get_mut(&key).filter(|served| served.closed_ns.is_none())
        {
            served.closed_ns = Some(world.now_ns);
            self.closed.push_back((world.now_ns, key));
        }
    }

    fn end(&mut self, world: &World, key: (ProcessId, Object), book: &mut Book) {
        if let Some(served) = self.served.remove(&key) {
            served.end(world, book);
        }
    }

    /// Ends what was served on connections that have been closed for long enough.
    #[inline]
    pub(super) fn settle(&mut self, world: &World, book: &mut Book) {
        let clock = Clock::new(world, false);
        while let Some(&(at_ns, key)) = self.closed.front() {
            if !clock.gives_up(Patience::Sign, at_ns) {
                return;
            }
            self.closed.pop_front();
            let is_it = |served: &Served| served.closed_ns == Some(at_ns);
            if self.served.get(&key).is_some_and(is_it) {
                self.end(world, key, book);
            }
        }
    }

    /// Ends what is still open.
    fn end_all(&mut self, world: &World, book: &mut Book) {
        let mut open: Vec<_> = self.served.keys().copied().collect();
        open.sort_unstable();
        for key in open {
            self.end(world, key, book);
        }
    }
}
