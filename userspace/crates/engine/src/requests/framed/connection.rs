//! One connection: its units become exchanges.

use std::collections::{BTreeMap, VecDeque};

use super::exchange::{Bytes, Ended, Exchange, Torn};
use super::hand_over::Askers;
use crate::event::{Method, Object, Protocol, Unit};
use crate::world::{Channel, ProcessId, Transfer, World};
use rpcprobe_record::{
    UNIT_ASIDE, UNIT_ERROR, UNIT_LAST, UNIT_MORE, UNIT_OPEN, UNIT_REQUEST, UNIT_RESPONSE,
};

/// Frames of HTTP/2 (RFC 9113, section 6), and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// "HEAD"
const HEAD: u32 = 0x4845_4144;

/// Units of a connection kept until it is known who asks.
const MOST_EARLY: usize = 256;
/// Exchanges under way on a connection. More is a mistake, or an attack.
const MOST_OPEN: usize = 1 << 16;
/// A client that had so many questions open so often, and never more, keeps to that.
const SETTLED_TIMES: u32 = 8;
/// A connection on which all is answered, and nothing came for so long, rests.
const REST_NS: u64 = 100_000_000;
/// A unit that lies so far before the last one is of another connection between the same ends.
const REUSED_BYTES: u64 = 1 << 21;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) protocol: Protocol,
    pub(super) channels: [Object; 2],
    /// Which of them is the client's.
    pub(super) client: Option<usize>,
    /// Units before that offset have been told, of each channel.
    told: [u64; 2],
    /// The end of the last one, and when it was told.
    heard: [Option<(u64, u64)>; 2],
    order: Order,
    early: VecDeque<(Unit, u64)>,
    /// Why messages on each channel are not known since, until one comes that says so.
    gaps: [Option<Torn>; 2],
    /// By stream or XID.
    open: BTreeMap<u32, Exchange>,
    /// Where answers come in the order of the questions: those not answered, those that answer what
    /// is not told yet.
    asks: VecDeque<Exchange>,
    answers: VecDeque<Exchange>,
    /// Which stream or XID the last unit of each channel was of.
    last: [Option<u32>; 2],
    /// First bytes of questions, with stream or XID, whose calls are not all looked at.
    pub(super) begun: Vec<(u64, u32)>,
    /// Those whose end is told; of the first so many it is known that nobody serves them any more.
    pub(super) ended: Vec<Exchange>,
    pub(super) served: usize,
    /// Those of them that are not looked at before a time, in order of it.
    pub(super) resting: VecDeque<(u64, Exchange)>,
    /// The client or the server is gone: who, and when.
    pub(super) gone: Option<(ProcessId, bool, u64)>,
    pub(super) askers: Askers,
}

impl Connection {
    pub(super) fn new(unit: &Unit) -> Connection {
        Connection {
            protocol: unit.protocol,
            channels: [unit.channel, unit.reverse],
            client: None,
            told: [0; 2],
            heard: [None; 2],
            order: Order::default(),
            early: VecDeque::new(),
            gaps: [None; 2],
            open: BTreeMap::new(),
            asks: VecDeque::new(),
            answers: VecDeque::new(),
            last: [None; 2],
            begun: Vec::new(),
            ended: Vec::new(),
            served: 0,
            resting: VecDeque::new(),
            gone: None,
            askers: Askers::default(),
        }
    }

    /// The client's channel and the server's.
    pub(super) fn ends(&self) -> Option<(Object, Object)> {
        self.client.map(|client| (self.channels[client], self.channels[1 - client]))
    }

    /// The earliest instant that what is open may still need; `None`: nothing is.
    pub(super) fn since_ns(&self) -> Option<u64> {
        let open = self.open.values().chain(&self.asks).chain(&self.answers).chain(&self.ended);
        let open = open.chain(self.resting.iter().map(|(_, exchange)| exchange));
        let early = self.early.iter().map(|(_, since_ns)| *since_ns);
        open.map(|exchange| exchange.since_ns).chain(early).min()
    }

    pub(super) fn unit(&mut self, world: &World, unit: &Unit) {
        let Some(index) = self.channels.iter().position(|channel| *channel == unit.channel) else {
            return;
        };
        let told = self.told[index];
        if unit.protocol != self.protocol || told.saturating_sub(unit.from) > REUSED_BYTES {
            // Another connection of the same ends.
            let (ended, resting) =
                (std::mem::take(&mut self.ended), std::mem::take(&mut self.resting));
            *self = Connection { ended, resting, ..Connection::new(unit) };
            return self.unit(world, unit);
        }
        if unit.from < told {
            return; // told by who wrote and by who read
        }
        self.told[index] = unit.from + 1;
        if matches!(self.protocol, Protocol::Http1 | Protocol::Resp) {
            let rested = self.rested(world);
            let lost = world.losses.first(0, world.now_ns).is_some();
            let gap = self.gaps[index].take_if(|_| unit.after_gap);
            if unit.after_gap && !lost && gap.is_none() {
                // In the middle of its life: what is open was asked before anybody looked.
                self.asks.clear();
                self.answers.clear();
            } else if unit.after_gap || self.lacks(world, index, unit) {
                // How many are missing is not known.
                self.tear(world, gap.unwrap_or(Torn::Records));
            } else if rested {
                self.order.sure();
            }
        }
        self.heard[index] = Some((unit.to, world.now_ns));
        if self.client.is_none() {
            let client = match (self.protocol, unit.kind) {
                (_, _) if unit.from_client.is_some() => unit.from_client,
                (Protocol::Http2, _) => None,
                (_, UNIT_REQUEST) => Some(true),
                (_, UNIT_RESPONSE | UNIT_ASIDE) => Some(false),
                _ => None,
            };
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

    /// Nothing was open for so long that nobody waits for an answer.
    fn rested(&self, world: &World) -> bool {
        let told_ns = self.heard.iter().flatten().map(|(_, told_ns)| *told_ns).max();
        self.asks.is_empty() && told_ns.is_some_and(|ns| ns.saturating_add(REST_NS) < world.now_ns)
    }

    /// What is open has perhaps been answered, and what comes next may be an answer to something else.
    fn tear(&mut self, world: &World, torn: Torn) {
        self.answers.clear();
        self.order.torn = Some(torn);
        let asks = std::mem::take(&mut self.asks);
        self.end_torn(world, asks, torn);
    }

    /// Ends questions whose answers may be among what is missing: when something was last told.
    fn end_torn(&mut self, world: &World, asks: impl IntoIterator<Item = Exchange>, torn: Torn) {
        let told_ns = self.heard.iter().flatten().map(|(_, told_ns)| *told_ns).max();
        for mut ask in asks {
            ask.ended = Some(Ended::Torn(torn));
            ask.ended_ns = told_ns.unwrap_or(world.now_ns);
            self.ended.push(ask);
        }
    }

    /// Where messages begin on one of the channels is not known any more.
    pub(super) fn gap(&mut self, world: &World, channel: Object, torn: Torn) {
        let Some(index) = self.channels.iter().position(|known| *known == channel) else { return };
        self.gaps[index] = Some(torn);
        self.last[index] = None;
        if self.client == Some(index) {
            // Answers to what has been asked by then are told; but more of it may be missing.
            self.open.values_mut().for_each(|exchange| exchange.doubted = Some(torn));
        } else {
            self.tear(world, torn);
            let open = std::mem::take(&mut self.open).into_values();
            let asked: Vec<_> = open.filter(|exchange| !exchange.asked.is_empty()).collect();
            self.end_torn(world, asked, torn);
        }
    }

    /// It is known who asks.
    fn begin(&mut self, world: &World, client: usize) {
        self.client = Some(client);
        for (unit, _) in std::mem::take(&mut self.early) {
            if let Some(index) = self.channels.iter().position(|c| *c == unit.channel) {
                self.sort(world, index, &unit);
            }
        }
    }

    /// When the call began that moved the unit's first byte.
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
        match self.protocol {
            Protocol::Http2 => self.frame(world, asks, unit, since_ns),
            Protocol::OncRpc => self.record(world, index, asks, unit, since_ns),
            Protocol::Http1 | Protocol::Resp => self.message(world, asks, unit, since_ns),
        }
    }

    /// A frame of HTTP/2.
    fn frame(&mut self, world: &World, asks: bool, unit: &Unit, since_ns: u64) {
        if unit.kind == GOAWAY && !asks {
            let refused: Vec<_> = self.open.range(unit.numbers[0].saturating_add(1)..).collect();
            let refused: Vec<u32> = refused.into_iter().map(|(id, _)| *id).collect();
            for id in refused {
                self.end(world, id, Ended::Refused);
            }
            return;
        }
        // Clients' streams have odd numbers. The server's, pushed, answer no question of their own.
        if unit.id.is_multiple_of(2) {
            return;
        }
        if !self.open.contains_key(&unit.id) {
            // What goes on with a stream that began before the capture is not one.
            if unit.kind != HEADERS || self.open.len() >= MOST_OPEN {
                return;
            }
            let exchange = Exchange { id: unit.id, since_ns, ..Exchange::default() };
            self.open.insert(unit.id, exchange);
        }
        let Some(exchange) = self.open.get_mut(&unit.id) else { return };
        exchange.since_ns = exchange.since_ns.min(since_ns);
        if asks && exchange.asked.is_empty() {
            self.begun.push((unit.from, unit.id));
        }
        let bytes = if asks { &mut exchange.asked } else { &mut exchange.answered };
        bytes.add(unit.from, unit.to);
        if unit.named {
            exchange.unnamed.push((asks, unit.from));
        }
        if unit.kind == RST_STREAM {
            let reset = Ended::Reset { by_client: asks, code: unit.numbers[0] };
            return self.end(world, unit.id, reset);
        }
        if asks {
            if let Some(how) = exchange.ended {
                self.end(world, unit.id, how); // its answer was told before
            }
            return;
        }
        let last = match unit.kind {
            DATA => unit.flags & END_STREAM != 0,
            HEADERS => {
                exchange.ending = unit.flags & END_STREAM != 0;
                exchange.ending && unit.flags & END_HEADERS != 0
            }
            CONTINUATION => exchange.ending && unit.flags & END_HEADERS != 0,
            _ => false,
        };
        if last {
            self.end(world, unit.id, Ended::Answered);
        }
    }

    /// A fragment of an ONC RPC record.
    fn record(&mut self, world: &World, index: usize, asks: bool, unit: &Unit, since_ns: u64) {
        let id = match unit.kind {
            UNIT_MORE => self.last[index].unwrap_or(unit.id),
            // Calls the other way (NFS has them) are not followed.
            UNIT_REQUEST if !asks => return,
            UNIT_RESPONSE if asks => return,
            _ => unit.id,
        };
        self.last[index] = Some(id);
        if !self.open.contains_key(&id) {
            if unit.kind == UNIT_MORE || self.open.len() >= MOST_OPEN {
                return;
            }
            self.open.insert(id, Exchange { id, since_ns, ..Exchange::default() });
        }
        let Some(exchange) = self.open.get_mut(&id) else { return };
        exchange.since_ns = exchange.since_ns.min(since_ns);
        if asks {
            if unit.kind == UNIT_REQUEST && !exchange.asked.is_empty() {
                exchange.repeats += 1;
            }
            if exchange.method.is_none() && unit.kind == UNIT_REQUEST {
                let [program, version, procedure] = unit.numbers;
                exchange.method = Some(format!("{program}.{version}.{procedure}"));
            }
            if exchange.asked.is_empty() {
                self.begun.push((unit.from, id));
            }
            exchange.asked.add(unit.from, unit.to);
            if let Some(how) = exchange.ended {
                self.end(world, id, how); // its answer was told before
            }
            return;
        }
        exchange.answered.add(unit.from, unit.to);
        if unit.status_known {
            exchange.status = i32::try_from(unit.numbers[0]).ok();
        }
        if unit.flags & UNIT_LAST != 0 {
            self.end(world, id, Ended::Answered);
        }
    }

    /// A message, or part of one, of a protocol that answers in order.
    fn message(&mut self, world: &World, asks: bool, unit: &Unit, since_ns: u64) {
        if unit.kind == UNIT_ASIDE {
            return;
        }
        let fits = unit.kind == UNIT_MORE || (unit.kind == UNIT_REQUEST) == asks;
        let queue = if asks { &mut self.asks } else { &mut self.answers };
        if !fits || queue.len() >= MOST_OPEN {
            return;
        }
        if unit.kind != UNIT_MORE {
            if asks {
                self.begun.push((unit.from, 0));
            }
            queue.push_back(Exchange {
                since_ns,
                doubted: self.order.torn,
                head_only: asks && self.protocol == Protocol::Http1 && unit.numbers[0] == HEAD,
                head_bytes: u64::from(unit.numbers[1]),
                unnamed: if unit.named { vec![(asks, unit.from)] } else { Vec::new() },
                ..Exchange::default()
            });
        }
        let Some(last) = queue.back_mut().filter(|last| last.ended.is_none()) else { return };
        let bytes = if asks { &mut last.asked } else { &mut last.answered };
        bytes.add(unit.from, unit.to);
        if !asks && unit.kind == UNIT_RESPONSE {
            last.status = match self.protocol {
                Protocol::Resp => Some(i32::from(unit.flags & UNIT_ERROR != 0)),
                _ => i32::try_from(unit.numbers[0]).ok().filter(|_| unit.status_known),
            };
        }
        if unit.flags & (UNIT_LAST | UNIT_OPEN) != 0 {
            let open = unit.flags & UNIT_OPEN != 0;
            last.ended = Some(if open { Ended::UntilClose } else { Ended::Answered });
        }
        self.pair(world);
        if asks && unit.kind == UNIT_REQUEST && self.order.asked(self.asks.len()) {
            self.asks.iter_mut().for_each(|ask| ask.doubted = None);
        }
    }

    /// Brings questions and answers together, oldest first.
    fn pair(&mut self, world: &World) {
        let Some((asked_on, answered_on)) = self.ends() else { return };
        while let (Some(ask), Some(answer)) = (self.asks.front(), self.answers.front()) {
            // The answer to HEAD may claim a body that is not there.
            if answer.ended.is_none() && !ask.head_only {
                return;
            }
            let moved = |object, bytes: &Bytes| first_moved(world, object, bytes);
            let before = match (moved(asked_on, &ask.asked), moved(answered_on, &answer.answered)) {
                (Some(asked), Some(answered)) => answered.exit_ns <= asked.enter_ns,
                _ => false,
            };
            let Some(answer) = self.answers.pop_front() else { return };
            if before {
                continue; // to a question of before the capture
            }
            let Some(mut exchange) = self.asks.pop_front() else { return };
            exchange.answered = answer.answered;
            exchange.status = answer.status;
            exchange.ended = answer.ended.or(Some(Ended::Answered));
            if exchange.head_only && answer.head_bytes > 0 {
                exchange.answered.cut(answer.head_bytes);
                exchange.ended = Some(Ended::Answered);
            }
            exchange.since_ns = exchange.since_ns.min(answer.since_ns);
            exchange.ended_ns = world.now_ns;
            self.ended.push(exchange);
        }
    }

    fn end(&mut self, world: &World, id: u32, how: Ended) {
        if let Some(mut exchange) = self.open.remove(&id) {
            if exchange.asked.is_empty() && how == Ended::Answered {
                // The question is told later.
                exchange.ended = Some(how);
                exchange.ended_ns = world.now_ns;
                self.open.insert(id, exchange);
                return;
            }
            exchange.ended = Some(how);
            exchange.ended_ns = world.now_ns;
            self.ended.push(exchange);
        }
    }

    /// Says what a message calls, or how it ended; `offset`: of the method's unit. Returns whether the exchange it is of
    /// has ended already.
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
        let of = |(exchange, _): &(&mut Exchange, bool)| exchange.unnamed.contains(&(asks, offset));
        let Some((exchange, ended)) = { exchanges }.find(of) else { return false };
        exchange.unnamed.retain(|unit| *unit != (asks, offset));
        if asks {
            let path = method.path.as_deref().filter(|path| !path.is_empty());
            exchange.method = exchange.method.take().or(path.map(Into::into));
        } else {
            // 100 and the like come before the answer's own.
            let status = method.status.filter(|status| *status >= 200);
            exchange.status = status.or(exchange.status);
            exchange.result = method.result.or(exchange.result);
        }
        ended
    }

    /// If the process is an end of it: what is open will not be answered.
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
            self.gone = Some((process, client, world.now_ns));
        }
    }

    /// The question that begins there, and whether it is still to be answered.
    pub(super) fn begun(&mut self, first: u64, id: u32) -> Option<(&mut Exchange, bool)> {
        let open = self.open.get_mut(&id).into_iter().map(|open| {
            let unanswered = open.ended.is_none();
            (open, unanswered)
        });
        // In the order in which they were asked.
        let at = self.asks.partition_point(|ask| ask.asked.first() < Some(first));
        let ask = self.asks.get_mut(at).into_iter().map(|ask| (ask, true));
        let ended = self.resting.iter_mut().map(|(_, ended)| ended).chain(&mut self.ended);
        let mut all = open.chain(ask).chain(ended.rev().map(|ended| (ended, false)));
        all.find(|(exchange, _)| exchange.asked.first() == Some(first))
    }

    /// Looks again at what had to wait until then; `over`: at all of it.
    pub(super) fn resume(&mut self, now_ns: u64, over: bool) {
        let ready = self.resting.iter().take_while(|(at_ns, _)| over || *at_ns < now_ns).count();
        self.ended.extend(self.resting.drain(..ready).map(|(_, exchange)| exchange));
    }

    /// Takes what will not be answered any more.
    pub(super) fn take_open(&mut self) -> Vec<Exchange> {
        self.answers.clear();
        let open = std::mem::take(&mut self.open).into_values();
        open.chain(std::mem::take(&mut self.asks)).filter(|e| !e.asked.is_empty()).collect()
    }

    /// Drops answers whose question never came.
    pub(super) fn tidy(&mut self, world: &World, patience_ns: u64) {
        let old = |e: &Exchange| e.since_ns.saturating_add(patience_ns) < world.now_ns;
        self.open.retain(|_, e| !(e.asked.is_empty() && old(e)));
        while self.asks.is_empty()
            && self.answers.front().is_some_and(|e| e.ended.is_some() && old(e))
        {
            self.answers.pop_front();
        }
    }
}

/// Whether the nth answer is to the nth question of those that are told. Where records were lost,
/// questions may have been open that nobody knows of. There are none if as many are known to be open as
/// the client ever had, or if the connection rested.
#[derive(Debug, Default)]
struct Order {
    torn: Option<Torn>,
    /// Most questions open at once, and how often it was as many.
    most: usize,
    times: u32,
}

impl Order {
    /// So many are open, with the one just asked; whether it is known now that there are no others.
    fn asked(&mut self, open: usize) -> bool {
        if self.torn.is_some() {
            if self.times >= SETTLED_TIMES && open >= self.most {
                self.torn = None;
                return true;
            }
        } else if open > self.most {
            (self.most, self.times) = (open, 1);
        } else if open == self.most {
            self.times = self.times.saturating_add(1);
        }
        false
    }

    fn sure(&mut self) {
        self.torn = None;
    }
}

/// The call that wrote the first of these bytes, or else the one that read it.
fn first_moved(world: &World, object: Object, bytes: &Bytes) -> Option<Transfer> {
    let channel = world.channels.get(&object)?;
    let first = bytes.first()?;
    Channel::find(&channel.writes, first).or(Channel::find(&channel.reads, first)).copied()
}
