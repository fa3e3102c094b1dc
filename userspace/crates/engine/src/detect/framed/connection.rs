//! The state of one framed connection, whose frames and messages become exchanges.

mod by_id;
mod in_order;

use std::collections::{BTreeMap, VecDeque};

use crate::detect::book::Book;
use crate::detect::found::exit_reason;
use crate::detect::framed::exchange::{Bytes, Ended, Exchange, Torn};
use crate::detect::framed::hand_over::Askers;
use crate::detect::lifecycle::{Clock, Life, Patience};
use crate::event::{GapWhy, Method, Object, Protocol, Unit};
use crate::protocols::{End, Pairing, Place};
use crate::timeline::{Channel, EndedBy, Over, ProcessId, ThreadId, Transfer, World};
use in_order::Order;
use rpcprobe_model::{Reason, Who};

/// Number of units of a connection that are kept until it is known which end asks.
const MOST_EARLY: usize = 256;
/// Limit of the exchanges in progress on a connection. More is an error, or an attack.
const MOST_OPEN: usize = 1 << 16;
/// A unit that begins more than this many bytes before the last one belongs to another connection between the same
/// ends.
const REUSED_BYTES: u64 = 1 << 21;

/// An end of a connection is gone: what is open will not be answered, except by what is not on record yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    pub(super) who: Who,
    pub(super) how: Leaves,
    pub(super) at_ns: u64,
    /// The client knows since then. Otherwise the server's end has shown it.
    pub(super) is_known: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Leaves {
    /// Its process exited.
    Exits(ProcessId),
    /// It closed the connection.
    Closes,
}

impl Gone {
    /// Whether the end that has closed the connection has used it since, by another descriptor of the same socket.
    pub(super) fn came_back(&self, world: &World, (asked, answered): (Object, Object)) -> bool {
        let Leaves::Closes = self.how else { return false };
        let (read, written) = if self.is_known { (answered, asked) } else { (asked, answered) };
        let read = world.channels.get(&read).and_then(|channel| channel.reads.back());
        let written = world.channels.get(&written).and_then(|channel| channel.writes.back());
        read.into_iter().chain(written).any(|moved| moved.enter_ns > self.at_ns)
    }

    pub(super) fn reason(&self, world: &World) -> Reason {
        match self.how {
            Leaves::Exits(process) => exit_reason(self.who, world, process),
            Leaves::Closes => Reason::Closed { who: self.who },
        }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) protocol: Protocol,
    pub(super) channels: [Object; 2],
    /// Which of them the client writes on.
    pub(super) client: Option<usize>,
    /// For each channel: units before this offset have been reported.
    told: [u64; 2],
    /// For each channel: the end of the last unit, and when it was reported.
    heard: [Option<(u64, u64)>; 2],
    order: Order,
    early: VecDeque<(Unit, u64)>,
    /// For each channel: why messages are missing, until the first unit after the gap.
    gaps: [Option<Torn>; 2],
    /// Open exchanges by stream or XID.
    open: BTreeMap<u32, Box<Exchange>>,
    /// How many of them have an answer whose question is not reported yet.
    unasked: usize,
    /// Where answers come in the order of the questions: questions that are not answered, and answers to questions that
    /// are not reported yet.
    asks: VecDeque<Box<Exchange>>,
    answers: VecDeque<Box<Exchange>>,
    /// The stream or XID of the last unit of each channel.
    last: [Option<u32>; 2],
    /// First bytes of questions, with stream or XID, whose calls have not all been examined.
    pub(super) begun: Vec<(u64, u32)>,
    /// Exchanges whose end is known. The first `served` of them are known not to be served any more.
    #[expect(clippy::vec_box, reason = "exchanges are large, and move from list to list")]
    pub(super) ended: Vec<Box<Exchange>>,
    pub(super) served: usize,
    /// Ended exchanges that are not examined before a certain time, in order of that time.
    pub(super) resting: VecDeque<(u64, Box<Exchange>)>,
    /// When the first of these was noted to be due.
    due_ns: Option<u64>,
    pub(super) gone: Option<Gone>,
    pub(super) askers: Askers,
    /// Processes that have moved bytes of it.
    pub(super) users: Vec<ProcessId>,
    /// Tasks that have read an answer and may give it to another task, since these were last taken out.
    pub(super) readers: Vec<ThreadId>,
}

impl Connection {
    pub(super) fn new(unit: &Unit) -> Connection {
        Connection::between(unit.protocol, [unit.channel, unit.reverse])
    }

    fn between(protocol: Protocol, channels: [Object; 2]) -> Connection {
        Connection {
            protocol,
            channels,
            client: None,
            told: [0; 2],
            heard: [None; 2],
            order: Order::default(),
            early: VecDeque::new(),
            gaps: [None; 2],
            open: BTreeMap::new(),
            unasked: 0,
            asks: VecDeque::new(),
            answers: VecDeque::new(),
            last: [None; 2],
            begun: Vec::new(),
            ended: Vec::new(),
            served: 0,
            resting: VecDeque::new(),
            due_ns: None,
            gone: None,
            askers: Askers::default(),
            users: Vec::new(),
            readers: Vec::new(),
        }
    }

    /// The client's channel and the server's.
    pub(super) fn ends(&self) -> Option<(Object, Object)> {
        self.client.map(|client| (self.channels[client], self.channels[1 - client]))
    }

    /// Whether exchanges are open.
    pub(super) fn has_open(&self) -> bool {
        !(self.open.is_empty()
            && self.asks.is_empty()
            && self.answers.is_empty()
            && self.ended.is_empty()
            && self.resting.is_empty()
            && self.early.is_empty())
    }

    /// The earliest time that open exchanges may still need; `None`: none are open.
    pub(super) fn since_ns(&self) -> Option<u64> {
        let open = self.open.values().chain(&self.asks).chain(&self.answers).chain(&self.ended);
        let open = open.chain(self.resting.iter().map(|(_, exchange)| exchange));
        let early = self.early.iter().map(|(_, since_ns)| *since_ns);
        open.map(|exchange| exchange.life.since_ns()).chain(early).min()
    }

    pub(super) fn unit(&mut self, world: &World, unit: &Unit) {
        let Some(index) = self.channels.iter().position(|channel| *channel == unit.channel) else {
            return;
        };
        let told = self.told[index];
        if unit.protocol != self.protocol || told.saturating_sub(unit.from) > REUSED_BYTES {
            // Another connection between the same ends.
            self.renew(Connection::new(unit));
            return self.unit(world, unit);
        }
        if unit.from < told {
            return; // told by who wrote and by who read
        }
        self.told[index] = unit.from + 1;
        if self.protocol.pairing() == Pairing::InOrder {
            let rested = self.rested(world);
            let lost = world.losses.first(0, world.now_ns).is_some();
            let gap = self.gaps[index].take_if(|_| unit.after_gap);
            if unit.after_gap && !lost && gap.is_none() {
                // The connection is older than its framing: what is open was asked before the framing began.
                self.asks.clear();
                self.answers.clear();
            } else if unit.after_gap || self.lacks(world, index, unit) {
                // It is not known how many messages are missing.
                self.tear(world, gap.unwrap_or(Torn::Records));
            } else if rested {
                self.order.sure();
            }
        }
        self.heard[index] = Some((unit.to, world.now_ns));
        if self.client.is_none() {
            let client = unit.from_client.or_else(|| self.protocol.sent_by_client(unit));
            match client {
                Some(client) => self.begin(world, if client { index } else { 1 - index }),
                None => {
                    if self.early.len() == MOST_EARLY {
                        self.early.pop_front();
                    }
                    let since_ns = self.since(world, index, unit);
                    self.early.push_back((*unit, since_ns));
                    return;
                }
            }
        }
        self.sort(world, index, unit);
    }

    /// Whether records of units before this one were lost.
    fn lacks(&self, world: &World, index: usize, unit: &Unit) -> bool {
        let lost_ns = match self.heard[index] {
            Some((to, _)) if to >= unit.from => None,
            Some((_, told_ns)) => world.losses.first(told_ns, world.now_ns),
            None => world.begin_lost_ns(unit.channel, Some(unit.reverse), unit.from),
        };
        lost_ns.is_some()
    }

    /// Whether nothing was open for so long that no end waits for an answer.
    fn rested(&self, world: &World) -> bool {
        let told_ns = self.heard.iter().flatten().map(|(_, told_ns)| *told_ns).max();
        let clock = Clock::new(world, false);
        self.asks.is_empty() && told_ns.is_some_and(|ns| clock.gives_up(Patience::Rest, ns))
    }

    /// Ends what is open: it may have been answered, and the next answer may belong to another question.
    fn tear(&mut self, world: &World, torn: Torn) {
        self.answers.clear();
        self.order.torn = Some(torn);
        let asks = std::mem::take(&mut self.asks);
        self.end_torn(world, asks, torn);
    }

    /// Ends questions whose answers may be missing, at the time of the last report.
    fn end_torn(
        &mut self,
        world: &World,
        asks: impl IntoIterator<Item = Box<Exchange>>,
        torn: Torn,
    ) {
        let told_ns = self.heard.iter().flatten().map(|(_, told_ns)| *told_ns).max();
        for mut ask in asks {
            ask.life.end(Ended::Torn(torn), told_ns.unwrap_or(world.now_ns));
            self.ended.push(ask);
        }
    }

    /// It is no longer known where messages begin on one of the channels.
    pub(super) fn gap(&mut self, world: &World, channel: Object, torn: Torn) {
        let Some(index) = self.channels.iter().position(|known| *known == channel) else { return };
        self.gaps[index] = Some(torn);
        self.last[index] = None;
        if self.client == Some(index) {
            // Answers to what has been asked so far are reported, but parts of the questions may be missing.
            self.open.values_mut().for_each(|exchange| exchange.doubted = Some(torn));
        } else {
            self.end_open(world, torn);
        }
    }

    /// Ends what is open, because its answers will not be recognized.
    fn end_open(&mut self, world: &World, torn: Torn) {
        self.tear(world, torn);
        self.unasked = 0;
        let open = std::mem::take(&mut self.open).into_values();
        let asked: Vec<_> = open.filter(|exchange| !exchange.asked.is_empty()).collect();
        self.end_torn(world, asked, torn);
    }

    /// There is a new connection between the same ends. What is open will not be answered.
    pub(super) fn reopen(&mut self, world: &World, book: &mut Book) {
        self.give_up(world, book);
        self.end_open(world, Torn::Framing(GapWhy::Reopened));
        self.renew(Connection::between(self.protocol, self.channels));
    }

    /// Replaces the connection by another one between the same ends, and keeps only the exchanges that have ended.
    fn renew(&mut self, other: Connection) {
        let (ended, resting) = (std::mem::take(&mut self.ended), std::mem::take(&mut self.resting));
        let users = std::mem::take(&mut self.users);
        *self = Connection { ended, resting, users, due_ns: self.due_ns, ..other };
    }

    /// It is known now which end asks.
    fn begin(&mut self, world: &World, client: usize) {
        self.client = Some(client);
        for (unit, _) in std::mem::take(&mut self.early) {
            if let Some(index) = self.channels.iter().position(|c| *c == unit.channel) {
                self.sort(world, index, &unit);
            }
        }
    }

    /// When the call that moved the unit's first byte began.
    fn since(&self, world: &World, index: usize, unit: &Unit) -> u64 {
        let moved = |channel: &Channel| {
            let write = Channel::find(&channel.writes, unit.from).map(|t| t.enter_ns);
            let read = Channel::find(&channel.reads, unit.from).map(|t| t.enter_ns);
            write.into_iter().chain(read).min()
        };
        world.channels.get(&self.channels[index]).and_then(moved).unwrap_or(world.now_ns)
    }

    fn sort(&mut self, world: &World, index: usize, unit: &Unit) {
        let asks = self.client == Some(index);
        let since_ns = self.since(world, index, unit);
        match self.protocol.pairing() {
            Pairing::ById(_) => self.numbered(world, index, asks, unit, since_ns),
            Pairing::InOrder => self.in_turn(world, asks, unit, since_ns),
        }
    }

    /// Notes which method a message calls, or how it ended; `offset`: of the method's unit. Returns whether the
    /// exchange of the message has ended already.
    pub(super) fn method(&mut self, world: &World, method: &Method, offset: u64) -> bool {
        let Some(index) = self.channels.iter().position(|channel| *channel == method.channel)
        else {
            return false;
        };
        if let (None, Some(asks)) = (self.client, method.asks) {
            self.begin(world, if asks { index } else { 1 - index });
        }
        let asks = self.client == Some(index);
        let open = self.open.get_mut(&method.id).into_iter();
        let at = self.asks.partition_point(|ask| ask.asked.first() < Some(offset));
        let open = open.chain(self.asks.get_mut(at)).map(|exchange| (exchange, false));
        let ended = self.resting.iter_mut().map(|(_, ended)| ended).chain(&mut self.ended);
        let exchanges = open.chain(ended.rev().map(|exchange| (exchange, true)));
        let of =
            |(exchange, _): &(&mut Box<Exchange>, bool)| exchange.unnamed.contains(&(asks, offset));
        let Some((exchange, ended)) = { exchanges }.find(of) else { return false };
        exchange.unnamed.retain(|unit| *unit != (asks, offset));
        self.protocol.read_method(method, asks, &mut exchange.said);
        ended
    }

    /// Whether something may have to be decided at the next check, even if nothing more is reported.
    pub(super) fn is_restless(&self) -> bool {
        debug_assert_eq!(self.unasked, self.open.values().filter(|e| e.asked.is_empty()).count());
        !self.ended.is_empty()
            || !self.answers.is_empty()
            || self.unasked > 0
            || (self.gone.is_some() && !(self.open.is_empty() && self.asks.is_empty()))
    }

    /// From when on an exchange that rests is to be decided; `None`: none rests, or this was asked before.
    pub(super) fn rests_until_ns(&mut self) -> Option<u64> {
        let next = self.resting.front().map(|(at_ns, _)| *at_ns);
        if std::mem::replace(&mut self.due_ns, next) == next {
            return None;
        }
        next
    }

    /// If the process is an end of the connection, what is open will not be answered.
    pub(super) fn exit(&mut self, world: &World, process: ProcessId) {
        let Some((asked, answered)) = self.ends() else { return };
        let is = |end: Option<&Transfer>| {
            end.is_some_and(|end| world.thread(end.thread).process == process)
        };
        let channel = |object| world.channels.get(&object);
        let of =
            |asks: fn(&Channel) -> Option<&Transfer>, object| is(channel(object).and_then(asks));
        let client = of(|c| c.writes.back(), asked) || of(|c| c.reads.back(), answered);
        let server = of(|c| c.reads.back(), asked) || of(|c| c.writes.back(), answered);
        if (client || server) && self.gone.is_none() {
            let who = if client { Who::Client } else { Who::Server };
            let how = Leaves::Exits(process);
            self.gone = Some(Gone { who, how, at_ns: world.now_ns, is_known: true });
        }
    }

    /// A call has shown that one end is done. A client that sends nothing more may still read its answers, and a server
    /// that has read its last question may still answer.
    pub(super) fn over(&mut self, over: &Over) {
        let Some((asked, _)) = self.ends() else { return };
        if self.open.is_empty() && self.asks.is_empty() {
            return;
        }
        let at_client = over.sends == (over.channel == asked);
        let is_gone = match over.by {
            EndedBy::Close => true,
            EndedBy::Shutdown => !at_client,
            EndedBy::Peer => at_client,
        };
        match &mut self.gone {
            // The request of a traced client lasts until the client knows.
            Some(gone) if is_gone && at_client && gone.who == Who::Server && !gone.is_known => {
                (gone.at_ns, gone.is_known) = (over.at_ns, true);
            }
            None if is_gone => {
                let who = if at_client != over.by_peer { Who::Client } else { Who::Server };
                let (how, at_ns) = (Leaves::Closes, over.at_ns);
                self.gone = Some(Gone { who, how, at_ns, is_known: at_client });
            }
            _ => {}
        }
    }

    /// The exchange whose question begins at `first`.
    pub(super) fn begun(&mut self, first: u64, id: u32) -> Option<&mut Box<Exchange>> {
        let open = self.open.get_mut(&id);
        // The questions are in the order in which they were asked.
        let at = self.asks.partition_point(|ask| ask.asked.first() < Some(first));
        let ended = self.resting.iter_mut().map(|(_, ended)| ended).chain(&mut self.ended);
        let mut all = open.into_iter().chain(self.asks.get_mut(at)).chain(ended.rev());
        all.find(|exchange| exchange.asked.first() == Some(first))
    }

    /// Moves exchanges whose time has come to those that are decided next; `over`: all exchanges. This is done for all
    /// connections at once, so that requests that end together are handed out in the order of their ends.
    pub(super) fn resume(&mut self, now_ns: u64, over: bool) {
        let ready = self.resting.iter().take_while(|(at_ns, _)| over || *at_ns < now_ns).count();
        self.ended.extend(self.resting.drain(..ready).map(|(_, exchange)| exchange));
    }

    /// Takes the exchanges that will not be answered any more.
    pub(super) fn take_open(&mut self) -> impl Iterator<Item = Box<Exchange>> + use<> {
        self.answers.clear();
        self.unasked = 0;
        let open = std::mem::take(&mut self.open).into_values();
        open.chain(std::mem::take(&mut self.asks)).filter(|e| !e.asked.is_empty())
    }

    /// Drops answers whose question never came.
    pub(super) fn tidy(&mut self, world: &World) {
        let clock = Clock::new(world, false);
        let old = |e: &Exchange| clock.gives_up(Patience::Record, e.life.since_ns());
        if self.unasked > 0 {
            let before = self.open.len();
            self.open.retain(|_, e| !(e.asked.is_empty() && old(e)));
            self.unasked -= before - self.open.len();
        }
        while self.asks.is_empty()
            && self.answers.front().is_some_and(|e| e.whole.is_some() && old(e))
        {
            self.answers.pop_front();
        }
    }
}
