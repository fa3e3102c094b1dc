//! Stream sockets and semaphores of the simulated kernel: their state, and what calls do with them. `bytes.rs` moves
//! bytes from one end to the other.

use std::collections::{BTreeMap, VecDeque};

use rpcprobe::engine::event::{Object, TYPE_TCP};
use rpcprobe::model::Category;

use super::facts::{Facts, LinkNo, ReqNo};
use super::steps::{After, Plan};
use crate::walk::kernel::Sys;
use crate::walk::machine::{Machine, Queue};
use crate::walk::story::{connection, socket};
use crate::walk::truth::{Doing, TaskNo, Why};

/// How bytes get from one end of a connection to the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// A Unix socket: immediately.
    Unix,
    /// TCP over loopback: in a softirq, mostly inside the sender's own call.
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
    /// What the kernel side knows of it: whether its arrivals are reported, and whether a traced task writes to it.
    pub known: bool,
    pub has_writer: bool,
    /// Its sender is traced, and so its packets are reported.
    pub(super) tells_packets: bool,
    /// What arrived before the connection was accepted: up to which byte, and when.
    pub unaccepted: Option<(u64, u64)>,
    /// Packets in the device's queue and on the link, first in, first out.
    pub(super) queued: VecDeque<usize>,
    pub(super) under_way: VecDeque<usize>,
}

pub struct Conn {
    pub way: Way,
    pub listener: usize,
    /// The client's socket and the server's.
    pub sockets: [Object; 2],
    pub closed: [bool; 2],
    pub is_open: bool,
}

/// What a poll waits for.
#[derive(Clone, Debug, Default)]
pub struct Set {
    pub listener: Option<usize>,
    pub links: Vec<LinkNo>,
    pub event: Option<usize>,
}

/// What tasks wait for, and the name of the wait queue.
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
    /// A packet with all bytes written since byte `from` enters the device's queue.
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
    /// From now on the task works for the requests of this number.
    Label(u32),
    /// The call under way was for these requests from its start; a poll, since it last slept.
    Relabel(u32),
    Begins(ReqNo),
    After(After),
    /// `Arm`: a timer will fire the token at `due_ns`. `Disarm`: it will not.
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
    /// The number of ready descriptors.
    Ready,
    Waited(NetUntil),
    Slept {
        ret: i64,
    },
}

/// What happens when a token is fired.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
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
    pub(super) effects: BTreeMap<usize, Effect>,
    pub facts: Facts,
    pub plan: Plan,
}

/// The descriptor number of every socket.
pub const FD: i32 = 5;

impl Net {
    /// A connection that no task has opened yet.
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

    /// Whether the token delivers packets. Such an interrupt is not taken while the CPU is in a call on a socket: the
    /// engine does not check whose bytes a softirq delivers there (docs/limits.md).
    pub fn is_awaited(&self, token: usize) -> bool {
        self.effects.contains_key(&token)
    }

    /// Whether a read would not sleep: bytes are there, or the end.
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

/// The category of the kernel's time for a socket: that of its protocol.
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

    /// What a thread did before it turned to a request, since it last slept or worked for a request, is marked as its
    /// way to the request.
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

    pub(super) fn wake_readers(&mut self, cpu: usize, queue: NetUntil, (flags, own): (u8, bool)) {
        let first = self.waiters.get(&Queue::Net(queue)).and_then(|tasks| tasks.first().copied());
        if let Some(task) = first {
            self.wake_as(cpu, task, flags, own);
        }
    }

    pub(super) fn wake_pollers(
        &mut self,
        cpu: usize,
        has: impl Fn(&Set) -> bool,
        (flags, own): (u8, bool),
    ) {
        let sets: Vec<_> = (0..self.net.sets.len()).filter(|at| has(&self.net.sets[*at])).collect();
        for set in sets {
            let queue = Queue::Net(NetUntil::Ready(set));
            for task in self.waiters.get(&queue).cloned().unwrap_or_default() {
                self.wake_as(cpu, task, flags, own);
            }
        }
    }
}
