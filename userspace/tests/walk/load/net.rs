//! Stream sockets and semaphores of the simulated kernel.

use std::collections::{BTreeMap, VecDeque};

use rpcprobe::engine::event::{Object, What, TYPE_TCP};
use rpcprobe::model::Category;

use super::facts::{Facts, LinkNo, ReqNo};
use super::steps::{After, Plan};
use crate::walk::kernel::{Op, Stage, Sys, Until};
use crate::walk::machine::{Machine, Queue};
use crate::walk::story::{connection, socket};
use crate::walk::truth::{Doing, TaskNo, Why};

/// How bytes get from one end of a connection to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// A Unix socket: at once.
    Unix,
    /// TCP over loopback: in a softirq, mostly of the sender's own call.
    Loopback,
    /// TCP through devices, with queues.
    Devices,
}

/// One direction: bytes written, in the reader's socket, read.
pub struct Pipe {
    pub object: Object,
    pub put: u64,
    pub there: u64,
    pub taken: u64,
    pub capacity: u64,
    /// As the kernel side knows it: its arrivals are told; somebody traced writes on it.
    pub known: bool,
    pub has_writer: bool,
    /// Its sender is traced, and so are the packets on their way.
    tells_packets: bool,
    /// What came before the connection was accepted: up to which byte, and when.
    pub unaccepted: Option<(u64, u64)>,
    /// Packets in the device's queue and on the link, first in first out.
    queued: VecDeque<usize>,
    under_way: VecDeque<usize>,
}

pub struct Conn {
    pub way: Way,
    pub listener: usize,
    /// Of the client, of the server.
    pub sockets: [Object; 2],
    pub closed: [bool; 2],
    pub is_open: bool,
}

/// What a poll looks at.
#[derive(Clone, Debug, Default)]
pub struct Set {
    pub listener: Option<usize>,
    pub links: Vec<LinkNo>,
    pub event: Option<usize>,
}

/// What tasks wait for, and the queue in which they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NetUntil {
    Bytes(LinkNo),
    Room(LinkNo),
    Backlog(usize),
    Ready(usize),
    Semaphore(usize),
    Never,
}

pub type NetQueue = NetUntil;

#[derive(Clone, Debug)]
pub enum NetOp {
    Connect(usize),
    Put {
        link: LinkNo,
        left: u64,
    },
    Deliver {
        link: LinkNo,
        end: u64,
    },
    /// A packet of all that was put since byte `from` gets into the device's queue.
    Enqueue {
        link: LinkNo,
        from: u64,
    },
    Take {
        link: LinkNo,
    },
    Accept(usize),
    Close {
        conn: usize,
        end: usize,
    },
    /// From now on it works for those.
    Label(u32),
    /// All of the call under way was for those; of a poll what it did since it last slept.
    Relabel(u32),
    Begins(ReqNo),
    After(After),
    /// A timer will fire the token then; or not.
    Arm {
        token: usize,
        due_ns: u64,
    },
    Disarm {
        token: usize,
    },
}

/// What a call has done.
#[derive(Clone, Copy, Debug)]
pub enum NetMoved {
    Stream {
        link: LinkNo,
        end: usize,
    },
    Opened(usize),
    Accepted,
    Closed {
        conn: usize,
        end: usize,
    },
    /// So many are ready.
    Ready,
    Waited(NetUntil),
    Slept {
        ret: i64,
    },
}

/// What comes about when a token is fired.
#[derive(Clone, Copy, Debug)]
enum Effect {
    Deliver { link: LinkNo, end: u64 },
    Send(LinkNo),
    Receive(LinkNo),
}

#[derive(Default)]
pub struct Net {
    pub pipes: Vec<Pipe>,
    pub conns: Vec<Conn>,
    pub backlogs: Vec<VecDeque<usize>>,
    pub sets: Vec<Set>,
    pub semaphores: Vec<u64>,
    effects: BTreeMap<usize, Effect>,
    pub facts: Facts,
    pub plan: Plan,
}

const NET_TX: u16 = 2;
const NET_RX: u16 = 3;
/// The descriptor of every socket.
pub const FD: i32 = 5;

impl Net {
    /// A connection that nobody has opened yet.
    pub fn new_conn(&mut self, way: Way, listener: usize, capacity: u64) -> usize {
        let type_bits =
            if way == Way::Unix { rpcprobe::engine::event::TYPE_UNIX } else { TYPE_TCP };
        let conn = self.conns.len();
        for link in 2 * conn..2 * conn + 2 {
            let first = if way == Way::Unix { 0 } else { 5_000 * (1 + link as u64) };
            self.pipes.push(Pipe {
                object: connection(1_000 + link as u64, type_bits),
                put: first,
                there: first,
                taken: first,
                capacity,
                known: false,
                has_writer: false,
                tells_packets: false,
                unaccepted: None,
                queued: VecDeque::new(),
                under_way: VecDeque::new(),
            });
            self.facts.links.push(Default::default());
        }
        let sockets = [0, 1].map(|end| socket(300 + 2 * conn as u64 + end, type_bits));
        let (closed, is_open) = ([false; 2], false);
        self.conns.push(Conn { way, listener, sockets, closed, is_open });
        self.facts.opened.push(Default::default());
        conn
    }

    /// Whether packets come with that token. They do not while a CPU is in a call on a socket: the engine does not look
    /// at whose bytes a softirq delivers there (docs/limits.md).
    pub fn is_awaited(&self, token: usize) -> bool {
        self.effects.contains_key(&token)
    }

    /// Whether a read would not sleep: bytes, or the end.
    pub fn is_readable(&self, link: LinkNo) -> bool {
        let pipe = &self.pipes[link];
        pipe.there > pipe.taken || self.conns[link / 2].closed[link % 2]
    }
}

/// The system call `nr` on one end of a connection.
pub fn on_socket(net: &Net, nr: u16, conn: usize, end: usize) -> Sys {
    let object = net.conns[conn].sockets[end];
    Sys { nr, object: Some((object, FD)), category: category(object) }
}

/// As the kernel's own parts: what it does for a socket is its protocol's.
pub fn category(object: Object) -> Category {
    if object.type_bits == TYPE_TCP {
        Category::KernelTcp
    } else {
        Category::KernelUnix
    }
}

impl Machine {
    pub fn net_met(&self, task: TaskNo, until: NetUntil) -> bool {
        let net = &self.net;
        match until {
            NetUntil::Bytes(link) => net.is_readable(link),
            NetUntil::Room(link) => {
                net.pipes[link].put - net.pipes[link].taken < net.pipes[link].capacity
            }
            NetUntil::Backlog(listener) => !net.backlogs[listener].is_empty(),
            NetUntil::Ready(set) => {
                let set = &net.sets[set];
                set.listener.is_some_and(|listener| !net.backlogs[listener].is_empty())
                    || set.links.iter().any(|link| net.is_readable(*link))
                    || set.event.is_some_and(|event| self.eventfds[event] > 0)
            }
            NetUntil::Semaphore(number) => {
                net.semaphores[number] > 0 || self.tasks[task].futex_woken
            }
            NetUntil::Never => false,
        }
    }

    pub fn net_queues(&self, until: NetUntil) -> Vec<Queue> {
        let event = match until {
            NetUntil::Ready(set) => self.net.sets[set].event.map(Queue::Event),
            _ => None,
        };
        [Queue::Net(until)].into_iter().chain(event).collect()
    }

    pub fn perform_net(&mut self, cpu: usize, no: TaskNo, op: NetOp) {
        let context = self.context(cpu);
        match op {
            NetOp::Connect(conn) => {
                let now_ns = self.now_ns;
                self.net.facts.opened[conn].established_ns = Some(now_ns);
                self.net.conns[conn].is_open = true;
                let listener = self.net.conns[conn].listener;
                self.net.backlogs[listener].push_back(conn);
                self.wake_readers(cpu, NetUntil::Backlog(listener), context);
                let has = |set: &Set| set.listener == Some(listener);
                self.wake_pollers(cpu, has, context);
            }
            NetOp::Put { link, left } => self.put_stream(no, link, left),
            NetOp::Deliver { link, end } => self.deliver(cpu, link, end, context),
            NetOp::Enqueue { link, from } => self.enqueue(cpu, link, from),
            NetOp::Take { link } => self.take_stream(no, link),
            NetOp::Accept(listener) => {
                let conn = self.net.backlogs[listener].pop_front().expect("waited for");
                self.tasks[no].moved = conn as i64;
            }
            NetOp::Close { conn, end } => {
                self.net.conns[conn].closed[end] = true;
                let link = 2 * conn + end;
                self.wake_readers(cpu, NetUntil::Bytes(link), context);
                self.wake_pollers(cpu, |set| set.links.contains(&link), context);
            }
            NetOp::Label(whose) => {
                self.tasks[no].whose = whose;
                self.label_way_here(no, whose);
            }
            NetOp::Relabel(whose) => self.relabel(no, whose),
            NetOp::Begins(req) => {
                let now_ns = self.now_ns;
                self.net.facts.reqs[req].start_ns.get_or_insert(now_ns);
            }
            NetOp::After(after) => self.after(no, after),
            NetOp::Arm { token, due_ns } => self.arm(cpu, token, due_ns),
            NetOp::Disarm { token } => self.disarm(token),
        }
    }

    fn relabel(&mut self, no: TaskNo, whose: u32) {
        let Some((call, sys)) = self.tasks[no].call.as_ref().map(|(call, sys)| (*call, *sys))
        else {
            return;
        };
        let mut from_ns = self.truth.calls[call].enter_ns;
        if sys.category == Category::KernelPoll {
            let last = self.truth.tasks[no].aways.last().map(|&away| self.truth.aways[away].to_ns);
            from_ns = from_ns.max(last.unwrap_or(0));
        }
        let first = (from_ns - self.truth.start_ns) as usize;
        for tick in &mut self.truth.tasks[no].ticks[first..] {
            tick.whose = whose;
        }
        self.tasks[no].whose = whose;
        self.label_ticks(no, first, whose);
    }

    fn label_way_here(&mut self, no: TaskNo, whose: u32) {
        self.label_ticks(no, self.truth.tasks[no].ticks.len(), whose);
    }

    /// What a thread did before it turned to a request, since it last slept or worked for any, was its way there.
    fn label_ticks(&mut self, no: TaskNo, before: usize, whose: u32) {
        let of = self.net.facts.whose[whose as usize].of.clone();
        if of.is_empty() {
            return;
        }
        let way = self.net.facts.number_of(&of, true);
        let (aways, ticks) = (&self.truth.aways, &mut self.truth.tasks[no].ticks);
        for tick in ticks[..before].iter_mut().rev() {
            let awake = match tick.doing {
                Doing::Away(away) => aways[away].why == Why::Preempted,
                doing => doing != Doing::Unborn,
            };
            if tick.whose != 0 || !awake {
                return;
            }
            tick.whose = way;
        }
    }

    fn wake_readers(&mut self, cpu: usize, queue: NetUntil, (flags, own): (u8, bool)) {
        let first = self.waiters.get(&Queue::Net(queue)).and_then(|tasks| tasks.first().copied());
        if let Some(task) = first {
            self.wake_as(cpu, task, flags, own);
        }
    }

    fn wake_pollers(&mut self, cpu: usize, has: impl Fn(&Set) -> bool, (flags, own): (u8, bool)) {
        let sets: Vec<_> = (0..self.net.sets.len()).filter(|at| has(&self.net.sets[*at])).collect();
        for set in sets {
            let queue = Queue::Net(NetUntil::Ready(set));
            for task in self.waiters.get(&queue).cloned().unwrap_or_default() {
                self.wake_as(cpu, task, flags, own);
            }
        }
    }

    // ---- bytes --------------------------------------------------------------------------------

    fn put_stream(&mut self, no: TaskNo, link: LinkNo, left: u64) {
        let pipe = &mut self.net.pipes[link];
        let room = pipe.capacity - (pipe.put - pipe.taken);
        if room == 0 {
            let until = Until::Net(NetUntil::Room(link));
            let wait = Op::Wait(until, Why::Pipe, Stage::Begin);
            self.tasks[no].first([wait, Op::Net(NetOp::Put { link, left })]);
            return;
        }
        let (from, now) = (pipe.put, room.min(left));
        pipe.put += now;
        pipe.tells_packets |= self.tasks[no].traced;
        let end = pipe.put;
        self.net.facts.links[link].put.note(end, self.now_ns);
        self.tasks[no].moved_from.get_or_insert(from);
        self.tasks[no].moved += now as i64;
        let (before, after) = (self.tape.pick(3), self.tape.length(3));
        let deliver = Op::Net(NetOp::Deliver { link, end });
        let mut ops = match self.net.conns[link / 2].way {
            Way::Unix => {
                self.arrive(link, end);
                vec![Op::Run(before), deliver]
            }
            Way::Loopback if self.tape.once_in(6) => {
                self.effect_later(Effect::Deliver { link, end }, 0, NET_RX);
                vec![Op::Run(before)]
            }
            Way::Loopback => vec![
                Op::Run(before + 1),
                Op::Push(Doing::Softirq),
                Op::Run(1),
                deliver,
                Op::Run(1),
                Op::Pop(NET_RX),
            ],
            Way::Devices => vec![Op::Run(before), Op::Net(NetOp::Enqueue { link, from })],
        };
        ops.extend([Op::Run(after), Op::Resched]);
        if left > now {
            ops.push(Op::Net(NetOp::Put { link, left: left - now }));
        }
        self.tasks[no].first(ops);
    }

    /// Bytes before `end` are in the reader's socket.
    fn arrive(&mut self, link: LinkNo, end: u64) {
        let pipe = &mut self.net.pipes[link];
        pipe.there = pipe.there.max(end);
        self.net.facts.links[link].there.note(pipe.there, self.now_ns);
    }

    fn deliver(&mut self, cpu: usize, link: LinkNo, end: u64, context: (u8, bool)) {
        self.arrive(link, end);
        let (now_ns, is_tcp) = (self.now_ns, self.net.conns[link / 2].way != Way::Unix);
        let pipe = &mut self.net.pipes[link];
        let (object, end) = (pipe.object, pipe.there);
        if is_tcp && pipe.known && !pipe.has_writer {
            self.emit(cpu, What::Arrival { object, end, arrived_ns: now_ns });
        } else if is_tcp && !pipe.known {
            self.net.facts.links[link].untold |= pipe.unaccepted.is_some();
            pipe.unaccepted.get_or_insert((end, now_ns));
        }
        self.wake_readers(cpu, NetUntil::Bytes(link), context);
        self.wake_pollers(cpu, |set| set.links.contains(&link), context);
    }

    fn take_stream(&mut self, no: TaskNo, link: LinkNo) {
        let pipe = &mut self.net.pipes[link];
        let (from, now) = (pipe.taken, pipe.there - pipe.taken);
        let was_full = pipe.put - pipe.taken == pipe.capacity;
        pipe.taken += now;
        self.net.facts.links[link].taken.note(pipe.taken, self.now_ns);
        self.tasks[no].moved = now as i64;
        self.tasks[no].moved_from = Some(from);
        let mut ops = Vec::new();
        if now > 0 {
            ops.push(Op::Run(self.tape.length(3)));
            ops.extend(self.maybe_fault());
        }
        if was_full {
            let queue = Queue::Net(NetUntil::Room(link));
            ops.extend([Op::WakeAll(queue), Op::Run(1)]);
        }
        self.tasks[no].first(ops);
    }

    // ---- packets ------------------------------------------------------------------------------

    fn effect_later(&mut self, effect: Effect, wait_ns: u64, softirq: u16) {
        let token = self.token();
        self.net.effects.insert(token, effect);
        self.later(token, Some(softirq));
        let interrupt = self.interrupts.last_mut().expect("just added");
        interrupt.at_ns = self.now_ns + 1 + wait_ns + self.tape.pick(12);
    }

    fn enqueue(&mut self, cpu: usize, link: LinkNo, from: u64) {
        let end = self.net.pipes[link].put;
        let (sent_ns, received_ns, queued_ns) = (None, None, self.now_ns);
        let packets = &mut self.net.facts.packets;
        packets.push(super::facts::Packet { link, from, end, queued_ns, sent_ns, received_ns });
        let packet = packets.len() - 1;
        let is_idle = self.net.pipes[link].queued.is_empty();
        self.net.pipes[link].queued.push_back(packet);
        match is_idle && self.tape.pick(2) == 0 {
            true => self.send_packet(cpu, link),
            false => self.effect_later(Effect::Send(link), 10, NET_TX),
        }
    }

    fn send_packet(&mut self, cpu: usize, link: LinkNo) {
        let Some(packet) = self.net.pipes[link].queued.pop_front() else { return };
        self.net.facts.packets[packet].sent_ns = Some(self.now_ns);
        self.tell_packet(cpu, packet);
        self.net.pipes[link].under_way.push_back(packet);
        self.effect_later(Effect::Receive(link), 3, NET_RX);
    }

    fn tell_packet(&mut self, cpu: usize, packet: usize) {
        let told = self.net.facts.packets[packet];
        let pipe = &self.net.pipes[told.link];
        if !pipe.tells_packets {
            return;
        }
        let packet = rpcprobe::engine::event::Packet {
            from: told.from,
            end: told.end,
            queued_ns: told.queued_ns,
            sent_ns: told.sent_ns.expect("sent"),
            received_ns: told.received_ns,
            again: false,
            forwarded: false,
            device: told.link as u32,
        };
        let object = pipe.object;
        self.emit(cpu, What::Packet { object, packet });
    }

    pub fn take_effect(&mut self, cpu: usize, token: usize, context: (u8, bool)) {
        match self.net.effects.remove(&token) {
            None => {}
            Some(Effect::Deliver { link, end }) => self.deliver(cpu, link, end, context),
            Some(Effect::Send(link)) => self.send_packet(cpu, link),
            Some(Effect::Receive(link)) => {
                let packet = self.net.pipes[link].under_way.pop_front().expect("one a token");
                self.net.facts.packets[packet].received_ns = Some(self.now_ns);
                self.tell_packet(cpu, packet);
                let end = self.net.facts.packets[packet].end;
                self.deliver(cpu, link, end, context);
            }
        }
    }
}
