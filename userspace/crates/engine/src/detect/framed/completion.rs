//! Turns ended exchanges into requests, once all calls that moved their bytes are on record.

use crate::detect::arrival::arrival_ns;
use crate::detect::book::Book;
use crate::detect::causality::{Heard, Place};
use crate::detect::found::{end_of, name_of, Found, MadeFor};
use crate::detect::framed::connection::{Connection, Leaves};
use crate::detect::framed::exchange::{Ended, Exchange};
use crate::detect::framed::hand_over::{hand_over, Askers, HandOver};
use crate::detect::lifecycle::{Clock, Patience};
use crate::event::{Object, Unit};
use crate::ownership::handed::is_task;
use crate::protocols::{End, Id, Pairing};
use crate::timeline::gallop::last_before;
use crate::timeline::{Channel, ThreadId, Transfer, World};
use crate::walk::{Goal, Message};
use rpcprobe_model::{Reason, Request, Who};

/// The calls that moved the relevant bytes of an exchange, as far as they are traced and reported.
struct Moves {
    /// The channel of the question, and its first byte.
    asked: (Object, u64),
    /// The calls that wrote and read the first byte of the question.
    sent: Option<Transfer>,
    taken: Option<Transfer>,
    /// The calls that wrote and read the last byte of the answer.
    answered: Option<Transfer>,
    received: Option<Transfer>,
    /// Whether any call of each end is known.
    client_traced: bool,
    server_traced: bool,
}

impl Moves {
    fn of(world: &World, (asked_on, answered_on): (Object, Object), exchange: &Exchange) -> Moves {
        let (asked, answered) = (world.channels.get(&asked_on), world.channels.get(&answered_on));
        let first = exchange.asked.first();
        let last = exchange.answered.last();
        let written = |channel: Option<&Channel>, at: Option<u64>| {
            Channel::find(&channel?.writes, at?).copied()
        };
        let read = |channel: Option<&Channel>, at: Option<u64>| {
            Channel::find(&channel?.reads, at?).copied()
        };
        let writes = |channel: Option<&Channel>| channel.is_some_and(|c| !c.writes.is_empty());
        let reads = |channel: Option<&Channel>| channel.is_some_and(|c| !c.reads.is_empty());
        Moves {
            asked: (asked_on, first.unwrap_or(0)),
            sent: written(asked, first),
            taken: read(asked, first),
            answered: written(answered, last),
            received: read(answered, last),
            client_traced: writes(asked) || reads(answered),
            server_traced: reads(asked) || writes(answered),
        }
    }
}

/// A request's window, and the thread that has the answer at its end.
struct Window {
    start_ns: u64,
    end_ns: u64,
    thread: ThreadId,
    /// The thread that read the answer for `thread`, and when it had the answer.
    handed: Option<(ThreadId, u64)>,
}

enum Settled {
    Complete(Window),
    Incomplete(Window, Reason),
    NotYet,
    /// The task that read the answer may still give it to another task.
    NotGiven(ThreadId),
    /// Not before that time.
    NotBefore(u64),
    /// Nothing is known of the calls that moved it.
    Nothing,
}

impl Connection {
    /// Decides the exchanges whose calls are all on record, after something was reported about `channel`. `over`: no
    /// more records will come.
    pub(super) fn decide(&mut self, world: &World, channel: Object, over: bool, book: &mut Book) {
        let Some(ends) = self.ends() else { return };
        // Only transfers on that channel show which thread asks and which process serves.
        if over || ends.0 == channel {
            let begun = std::mem::take(&mut self.begun);
            self.link_parents(world, ends, begun, book);
        }
        self.settle(world, ends, over, book);
    }

    /// Looks only at what the last frame or message began or ended, because one call may move thousands of pipelined
    /// messages. The record of that call is mostly still to come. If the call that read the message is on record, the
    /// exchanges that ended by it are decided now, because nothing else may come on the connection before the request
    /// for whose sake they were asked is walked.
    pub(super) fn told(&mut self, world: &World, unit: &Unit, book: &mut Book) {
        let Some(ends) = self.ends() else { return };
        let begun = self.begun.pop();
        self.link_parents(world, ends, begun, book);
        let from = self.served;
        self.end_services(ends, book);
        let channel = world.channels.get(&unit.channel);
        let is_read = channel.and_then(|c| c.reads.back()).is_some_and(|read| read.to >= unit.to);
        if is_read && from < self.ended.len() {
            self.settle_ended(world, ends, (from, false), book);
        }
    }

    /// Ends the services of exchanges whose answers have ended since.
    fn end_services(&mut self, ends: (Object, Object), book: &mut Book) {
        for exchange in self.ended.iter_mut().skip(self.served) {
            let Some((_, over_ns)) = exchange.life.over() else { continue };
            if let (Some(process), Some(first)) = (exchange.life.let_go(), exchange.asked.first()) {
                book.causality.services.end(process, (ends.0, first), over_ns);
            }
        }
        self.served = self.ended.len();
    }

    fn settle(&mut self, world: &World, ends: (Object, Object), over: bool, book: &mut Book) {
        self.end_services(ends, book);
        self.settle_ended(world, ends, (0, over), book);
        let clock = Clock::new(world, over);
        self.gone.take_if(|gone| gone.came_back(world, ends));
        let gone = self.gone.as_ref().map(|gone| gone.at_ns);
        if gone.is_some_and(|at_ns| clock.gives_up(Patience::Sign, at_ns)) {
            self.give_up(world, book);
        } else if over {
            self.open_until(world, ends, (&Reason::CaptureEnded, world.now_ns), book);
        }
    }

    /// If an end of the connection is gone, what is open was not answered.
    pub(super) fn give_up(&mut self, world: &World, book: &mut Book) {
        let (Some(ends), Some(gone)) = (self.ends(), &self.gone) else { return };
        let (reason, end_ns) = (gone.reason(world), gone.at_ns);
        // The records of a process that has exited may be late.
        self.gone.take_if(|gone| matches!(gone.how, Leaves::Closes));
        self.open_until(world, ends, (&reason, end_ns), book);
    }

    /// Hands out what is open as incomplete.
    fn open_until(
        &mut self,
        world: &World,
        ends: (Object, Object),
        (reason, end_ns): (&Reason, u64),
        book: &mut Book,
    ) {
        for exchange in self.take_open() {
            let moves = Moves::of(world, ends, &exchange);
            let Some(window) = unanswered(world, &moves, end_ns) else { continue };
            self.found(world, exchange, &window, Some(reason.clone()), book);
        }
    }

    /// Settles the exchanges that have ended, from the one at index `from` on.
    fn settle_ended(
        &mut self,
        world: &World,
        ends: (Object, Object),
        (from, over): (usize, bool),
        book: &mut Book,
    ) {
        // Exchanges that wait stay where they are: of a thousand streams, nearly all may wait.
        let (mut ended, mut decided) = (std::mem::take(&mut self.ended), Vec::new());
        let (askers, readers) = (&mut self.askers, &mut self.readers);
        let over_now = ended.extract_if(from.., |exchange| {
            let how = settled(world, ends, askers, exchange, over);
            if let Settled::NotGiven(reader) = how {
                readers.push(reader);
            }
            let is_over = !matches!(how, Settled::NotYet | Settled::NotGiven(_));
            if is_over {
                decided.push(how);
            }
            is_over
        });
        let over_now: Vec<Box<Exchange>> = over_now.collect();
        self.ended = ended;
        for (exchange, how) in over_now.into_iter().zip(decided) {
            match how {
                Settled::Complete(window) => {
                    let nth = self.protocol.pairing() == Pairing::InOrder;
                    let doubt = exchange.doubted.map(|torn| torn.before_it(nth));
                    self.found(world, exchange, &window, doubt, book);
                }
                Settled::Incomplete(window, reason) => {
                    self.found(world, exchange, &window, Some(reason), book);
                }
                Settled::NotBefore(at_ns) => self.resting.push_back((at_ns, exchange)),
                Settled::NotYet | Settled::NotGiven(_) | Settled::Nothing => {}
            }
        }
        self.served = self.ended.len();
    }

    /// For new questions, determines which thread asks and for what, and which process begins to serve them.
    fn link_parents(
        &mut self,
        world: &World,
        ends: (Object, Object),
        begun: impl IntoIterator<Item = (u64, u32)>,
        book: &mut Book,
    ) {
        for (first, id) in begun {
            let Some(channel) = world.channels.get(&ends.0) else { continue };
            let Some(exchange) = self.begun(first, id) else { continue };
            let process = |transfer: &Transfer| world.thread(transfer.thread).process;
            // Done once, when the question is asked. Later, fewer questions are being served, and one of them would
            // seem to be the only one.
            let sent = Channel::find(&channel.writes, first).filter(|_| !exchange.linked);
            if let Some(sent) = sent {
                exchange.linked = true;
                let of_it = channel.first_since_connected_ns == Some(sent.enter_ns);
                let opened = channel.connected.filter(|_| of_it);
                let opened = opened.map(|opened| (opened.thread, opened.enter_ns));
                let place = Some(Place { channels: [ends.0, ends.1], first });
                let at = (sent.thread, sent.enter_ns);
                exchange.asking = book.causality.asks(world, at, opened, place);
                exchange.program = book.causality.programs.enclosing(world, process(sent));
            }
            let taken = Channel::find(&channel.reads, first);
            if let Some(taken) = taken.filter(|_| !exchange.life.was_taken_in()) {
                book.causality.begin(process(taken), taken, (ends.0, first), false);
                exchange.life.taken_in(process(taken));
                // The question was answered before it was reported: the call that wrote it ended late.
                if let Some((_, over_ns)) = exchange.life.over() {
                    exchange.life.let_go();
                    book.causality.services.end(process(taken), (ends.0, first), over_ns);
                }
            }
            // The write's record may come after the read's.
            let asker_comes = !exchange.linked && channel.is_written;
            if taken.is_none() || asker_comes {
                self.begun.push((first, id));
            }
        }
    }

    fn found(
        &self,
        world: &World,
        exchange: Box<Exchange>,
        window: &Window,
        reason: Option<Reason>,
        book: &mut Book,
    ) {
        let Some(ends) = self.ends() else { return };
        let moves = Moves::of(world, ends, &exchange);
        let client = moves.received.or(moves.sent).map(|transfer| transfer.thread);
        let client = window.handed.map(|_| window.thread).or(client);
        let server = moves.taken.or(moves.answered).map(|transfer| transfer.thread);
        let process = |thread: Option<ThreadId>| thread.map(|id| world.thread(id).process);
        let server_process = process(server);
        let answerer = process(moves.answered.map(|transfer| transfer.thread));
        if let (Some(first), Some(answered)) = (exchange.asked.first(), moves.answered) {
            let server = world.thread(answered.thread).process;
            book.causality.services.end(server, (ends.0, first), answered.exit_ns);
        }
        let received = moves.received.filter(|_| reason.is_none());
        let heard = received.map(|Transfer { thread, exit_ns, .. }| Heard {
            thread,
            exit_ns,
            channel: Some(ends.1),
        });
        let (asking, program) = (exchange.asking, exchange.program);
        let made_for = MadeFor { asking, heard, program, ..MadeFor::default() };
        let protocol = self.protocol;
        let (stream_id, xid) = match protocol.pairing() {
            Pairing::ById(Id::Stream) => (Some(u64::from(exchange.id)), None),
            Pairing::ById(Id::Xid) => (None, Some(exchange.id)),
            Pairing::InOrder => (None, None),
        };
        let retransmissions = xid.map(|_| exchange.repeats);
        let complete = reason.is_none();
        let end = |thread: Option<ThreadId>| thread.map(|id| end_of(world, id, window.end_ns));
        let request_id = match exchange.asked.first() {
            Some(first) => book.causality.id_of((ends.0, first)),
            None => book.causality.ids.next(),
        };
        let request = Request {
            request_id,
            complete,
            reason,
            client: end(client),
            server: end(server),
            channel: Some(name_of(world, ends.0)),
            stream_id,
            xid,
            retransmissions,
            method: exchange.said.method,
            status: exchange.said.result.or(exchange.said.status),
            request_bytes: Some(exchange.asked.count),
            response_bytes: (!exchange.answered.is_empty()).then_some(exchange.answered.count),
            ..Request::new(protocol.kind(), window.start_ns, window.end_ns)
        };
        let messages: Vec<Message> = match complete {
            true => {
                let asked = exchange.asked.messages(ends.0);
                asked.chain(exchange.answered.messages(ends.1)).collect()
            }
            false => Vec::new(),
        };
        let goal = Goal {
            server_process,
            answerer: answerer.filter(|answerer| Some(*answerer) != server_process),
            messages,
            handed: window.handed,
            ..Goal::new(
                window.start_ns,
                window.end_ns,
                (window.thread, world.thread(window.thread).process),
            )
        };
        book.found(world, Found { request, goal, channels: [Some(ends.0), None], made_for });
    }
}

fn settled(
    world: &World,
    ends: (Object, Object),
    askers: &mut Askers,
    exchange: &mut Exchange,
    over: bool,
) -> Settled {
    let Some((how, ended_ns)) = exchange.life.over() else { return Settled::NotYet };
    let clock = Clock::new(world, over);
    if !exchange.unnamed.is_empty() && !clock.gives_up(Patience::Sign, ended_ns) {
        return Settled::NotYet;
    }
    if how == Ended::Told(End::UntilClose) {
        let Some(last) = last_moved(world, ends.1) else { return Settled::Nothing };
        if !clock.gives_up(Patience::Close, last.exit_ns.max(ended_ns)) {
            return Settled::NotYet;
        }
        exchange.answered.reach(last.to);
    }
    let moves = Moves::of(world, ends, exchange);
    let end = match how {
        Ended::Told(end) => end,
        Ended::Torn(torn) => {
            return match unanswered(world, &moves, ended_ns) {
                Some(window) => Settled::Incomplete(window, torn.before_its_answer()),
                None => Settled::Nothing,
            };
        }
    };
    let given_up = match end {
        End::Reset { by_client, code } => {
            let who = if by_client { Who::Client } else { Who::Server };
            Some(Reason::Reset { who, code })
        }
        End::Refused => Some(Reason::Refused),
        End::Answered | End::UntilClose => None,
    };
    if let Some(reason) = given_up {
        let at_ns = moves.received.or(moves.answered).map_or(ended_ns, |t| t.exit_ns);
        return match unanswered(world, &moves, at_ns) {
            Some(window) => Settled::Incomplete(window, reason),
            None => Settled::Nothing,
        };
    }
    let late = clock.gives_up(Patience::Record, ended_ns);
    let cut = clock.cuts_short(Patience::Record, ended_ns);
    match (moves.sent, moves.received) {
        (Some(sent), Some(received)) => {
            let server_known = moves.answered.is_some() && moves.taken.is_some();
            if moves.server_traced && !server_known && !late {
                return Settled::NotYet;
            }
            askers.note(sent.thread);
            let late = clock.gives_up(Patience::Sign, received.exit_ns);
            match hand_over(world, askers, &sent, &received, late) {
                HandOver::NotYet if is_task(world, received.thread) => {
                    Settled::NotGiven(received.thread)
                }
                HandOver::NotYet => Settled::NotYet,
                HandOver::None => complete(sent.enter_ns, received.exit_ns, received.thread),
                HandOver::To { thread, at_ns } => {
                    let handed = Some((received.thread, received.exit_ns));
                    let start_ns = sent.enter_ns;
                    Settled::Complete(Window { start_ns, end_ns: at_ns, thread, handed })
                }
            }
        }
        _ if moves.client_traced && !late => Settled::NotYet,
        _ if moves.client_traced => match unanswered(world, &moves, world.now_ns) {
            Some(window) => {
                let reason = if cut { Reason::CaptureEnded } else { Reason::AnswerUnread };
                Settled::Incomplete(window, reason)
            }
            None => Settled::Nothing,
        },
        _ => match (moves.taken, moves.answered) {
            (Some(taken), Some(answered)) if clock.gives_up(Patience::Sign, ended_ns) => {
                complete(arrived(world, &moves, &taken), answered.exit_ns, answered.thread)
            }
            (Some(_), Some(_)) => Settled::NotBefore(Patience::Sign.until_ns(ended_ns)),
            _ if late => match unanswered(world, &moves, world.now_ns) {
                Some(window) => {
                    let reason = if cut { Reason::CaptureEnded } else { Reason::AnswerUnwritten };
                    Settled::Incomplete(window, reason)
                }
                None => Settled::Nothing,
            },
            _ => Settled::NotYet,
        },
    }
}

fn complete(start_ns: u64, end_ns: u64, thread: ThreadId) -> Settled {
    match start_ns < end_ns {
        true => Settled::Complete(Window { start_ns, end_ns, thread, handed: None }),
        false => Settled::Nothing, // records out of order
    }
}

/// The window of an exchange without its answer.
fn unanswered(world: &World, moves: &Moves, end_ns: u64) -> Option<Window> {
    let (start_ns, thread) = match (&moves.sent, &moves.taken) {
        (Some(sent), _) => (sent.enter_ns, sent.thread),
        (None, Some(taken)) => (arrived(world, moves, taken), taken.thread),
        (None, None) => return None,
    };
    Some(Window { start_ns, end_ns: end_ns.max(start_ns), thread, handed: None })
}

/// When the first byte of an exchange arrived at its server, as far as it is known.
fn arrived(world: &World, moves: &Moves, taken: &Transfer) -> u64 {
    let calls = &world.thread(taken.thread).calls;
    match last_before(calls, |call| call.enter_ns <= taken.enter_ns) {
        Some(call) if call.exit_ns == taken.exit_ns => {
            arrival_ns(world, taken.thread, call, moves.asked).min(call.exit_ns)
        }
        _ => taken.enter_ns,
    }
}

/// The last read on a channel or, if no reads are known, the last write.
fn last_moved(world: &World, object: Object) -> Option<Transfer> {
    let channel = world.channels.get(&object)?;
    channel.reads.back().or(channel.writes.back()).copied()
}
