//! Detects requests: which messages, or which fork and wait, belong together.
//!
//! One file a kind; each adds its part to [`Detector`].

mod causality;
mod connections;
mod exec;
mod framed;
mod half_duplex;
mod shared_futex;
mod single_ended;
mod stdio;

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::classify::syscall::{NR_CLOSE, NR_EXECVE, NR_EXECVEAT, NR_WAIT4};
use crate::event::{
    Call, Event, GapWhy, Io, Object, What, TYPE_EVENTFD, TYPE_SHARED_WORD, TYPE_TCP, TYPE_UDP,
    TYPE_UNIX, TYPE_UNIX_DGRAM,
};
use crate::timeline::retention::Held;
use crate::timeline::{ProcessId, ThreadId, Transfer, World};
use crate::walk::Goal;
use causality::Parents;
use exec::{exec_goal, Child, Reaped};
use framed::Framed;
pub(crate) use half_duplex::WHO_ASKS;
use half_duplex::{Ended, Turn};
use rpcprobe_model::request_filter::Wanted;
use rpcprobe_model::{End, Kind, Request};
use shared_futex::SharedWord;
use single_ended::{Part, Served};
use stdio::Stdio;

/// A request with a known end, ready to be walked.
#[derive(Debug)]
pub struct Found {
    pub request: Request,
    pub goal: Goal,
}

/// The target as whoever started it knows it, without any record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownTarget {
    pub pid: u32,
    /// When it was let go, just before it called execve().
    pub released_ns: u64,
}

/// Time after a fork within which the child must run a program to count as an `exec` request. A worker, which never
/// does, must not keep the history since its fork.
const FORK_PATIENCE_NS: u64 = 10_000_000_000;
/// Reads remembered for a write that is still under way.
const RECENT_READS: usize = 64;

#[derive(Default)]
pub struct Detector {
    turns: FxHashMap<(ProcessId, Object), Turn>,
    /// The latest reads of each process.
    recent_reads: FxHashMap<ProcessId, VecDeque<(Object, Transfer)>>,
    /// Role of each process on a connection of which one end is traced, by the channel that it reads from.
    roles: FxHashMap<(ProcessId, Object), Part>,
    served: FxHashMap<(ProcessId, Object), Served>,
    parents: Parents,
    /// Connections whose framing is known: their requests are no turns.
    framed: Framed,
    /// Futexes in memory that processes share.
    shared_words: FxHashMap<Object, SharedWord>,
    /// Closed turns whose answer is not settled yet.
    unsettled: Vec<Turn>,
    children: FxHashMap<ProcessId, Child>,
    /// Those that were found, as long as requests are open that may name them.
    reaped: FxHashMap<ProcessId, Reaped>,
    stdio: FxHashMap<ProcessId, Stdio>,
    /// The first traced process, and when its program began.
    pub root: Option<(ThreadId, u64)>,
    /// The target as whoever started it knows it, should the records of its begin be lost.
    pub target: Option<KnownTarget>,
    /// The target ran already when the capture began.
    pub attached: bool,
    next_id: u64,
    pub found: Vec<Found>,
    /// Lower-grade requests, used when there are no others.
    pub fallback: Vec<Found>,
    /// A `pipe` or `exec` request was found.
    pub found_primary: bool,
    /// What the user asked for.
    pub wanted: Wanted,
}

impl Detector {
    /// Whether the user asked for such requests.
    pub fn wants(&self, request: &Request) -> bool {
        self.wanted.takes(request.kind, request.channel.as_deref())
    }

    /// Whether there are requests of other kinds than the fallbacks `process` and `stdio`.
    pub fn has_primary(&self) -> bool {
        self.found_primary && !self.wanted.names_fallback()
    }

    /// Looks at an event the world has just applied.
    pub fn observe(&mut self, world: &World, event: &Event) {
        match &event.what {
            What::Fork { child_tgid, child, parent, enter_ns, .. } if child == child_tgid => {
                let (Some(process), Some(parent)) =
                    (world.process_of_tgid(*child_tgid), world.thread_by_tid(*parent))
                else {
                    return;
                };
                if world.processes[process as usize].traced && *enter_ns != 0 {
                    let parent_process = world.thread(parent).process;
                    let child = Child {
                        parent,
                        start_ns: *enter_ns,
                        request_id: None,
                        made_for: self.asks_for(world, parent_process, parent, *enter_ns),
                        runs_program: false,
                    };
                    self.children.insert(process, child);
                }
            }
            What::Exec(exec) => {
                let Some(thread) = world.thread_by_tid(exec.tid) else { return };
                let process = world.thread(thread).process;
                if let Some(child) = self.children.get_mut(&process) {
                    child.runs_program = true;
                }
            }
            What::Call { tid, call } => {
                let Some(thread) = world.thread_by_tid(*tid) else { return };
                // As the world knows it: with all it moved.
                let call = world.thread(thread).calls.back().unwrap_or(call);
                self.call(world, thread, call);
            }
            What::Exit { tid, tgid, .. } if tid == tgid => {
                let Some(thread) = world.thread_by_tid(*tid) else { return };
                let process = world.thread(thread).process;
                let mine: Vec<_> =
                    self.turns.keys().filter(|(owner, _)| *owner == process).copied().collect();
                self.recent_reads.remove(&process);
                self.parents.exit(process, event.ts_ns);
                for key in mine {
                    let mut turn = self.turns.remove(&key).expect("just listed");
                    turn.ended = Some(Ended::Exited);
                    self.close(turn, event.ts_ns);
                }
                self.end_all_served(world, Some(process));
                self.framed_exit(world, process);
                self.shared_exit(world, process, event.ts_ns);
                if let Some(turn) = self.stdio.remove(&process) {
                    self.end_stdio(world, process, turn);
                }
            }
            What::Unit(unit) => self.unit(world, unit),
            What::Method(method) => self.method(world, method),
            What::Channel { object, .. } => {
                let channel = world.channels.get(object);
                if channel.is_some_and(|channel| channel.forgotten_ns == Some(event.ts_ns)) {
                    self.framing_lost(world, *object, GapWhy::Forgotten);
                }
            }
            What::Gap { channel, why } => self.framing_lost(world, *channel, *why),
            _ => {}
        }
        self.sweep_framed(world, false);
        if !self.unsettled.is_empty() {
            self.settle(world, false);
        }
    }

    /// The earliest instant that an open request may still need. For what may become a request, nothing from before
    /// `busy_ns` is kept, because so much has happened since.
    pub fn horizon_ns(&self, now_ns: u64, busy_ns: u64) -> u64 {
        let turns = self.turns.values().chain(&self.unsettled).map(Turn::since_ns);
        let may_be_one = |child: &&Child| {
            let young = child.start_ns.saturating_add(FORK_PATIENCE_NS) > now_ns;
            child.runs_program || (young && child.start_ns >= busy_ns)
        };
        let children = self.children.values().filter(may_be_one).map(|child| child.start_ns);
        let fallbacks = self.stdio.values().map(|turn| turn.start_ns);
        let served = self.served.values().map(|served| served.start_ns);
        let known_ns = self.target.map(|target| target.released_ns);
        let root = known_ns.or(self.root.map(|(_, start_ns)| start_ns));
        let root = root.filter(|_| !self.has_primary());
        let framed = self.framed.horizon_ns();
        let shared = self.shared_words.values().filter_map(SharedWord::since_ns);
        let turns = turns.chain(framed).chain(shared);
        turns.chain(children).chain(served).chain(fallbacks).chain(root).min().unwrap_or(u64::MAX)
    }

    /// Forgets connections that the world has forgotten, and what no request since `horizon_ns` can name.
    pub fn forget(&mut self, world: &World, horizon_ns: u64) {
        self.shared_late(world);
        self.roles.retain(|(_, asked), _| world.channels.contains_key(asked));
        self.parents.forget(world, horizon_ns);
        self.reaped.retain(|_, reaped| reaped.end_ns >= horizon_ns);
        self.framed.forget(world);
    }

    /// Adds the threads, processes and channels that open requests refer to.
    pub fn hold(&self, held: &mut Held) {
        for turn in self.turns.values().chain(&self.unsettled) {
            held.threads.insert(turn.client);
            held.processes.insert(turn.process);
            held.processes.extend(turn.parent);
            held.channels.insert(turn.object);
            held.threads.extend(turn.opened.map(|opened| opened.thread));
            if let Some(Ended::Closed { thread, .. }) = turn.ended {
                held.threads.insert(thread);
            }
            held.channels.extend(turn.reads.iter().map(|(object, _)| *object));
            held.threads.extend(turn.reads.iter().map(|(_, read)| read.thread));
        }
        self.framed.hold(held);
        for word in self.shared_words.values() {
            held.threads.extend(word.threads());
            held.processes.extend(word.processes());
        }
        for served in self.served.values() {
            held.threads.insert(served.thread);
            held.channels.insert(served.asked.object);
            held.channels.extend(served.answer.map(|answer| answer.object));
        }
        held.processes.extend(self.roles.keys().map(|(process, _)| *process));
        for (process, reads) in &self.recent_reads {
            held.processes.insert(*process);
            held.threads.extend(reads.iter().map(|(_, read)| read.thread));
        }
        held.processes.extend(self.children.keys().chain(self.stdio.keys()));
        held.threads.extend(self.children.values().map(|child| child.parent));
        held.threads.extend(self.stdio.values().map(|turn| turn.thread));
        held.threads.extend(self.root.map(|(thread, _)| thread));
    }

    fn call(&mut self, world: &World, thread: ThreadId, call: &Call) {
        let process = world.thread(thread).process;
        if (call.nr == NR_EXECVE || call.nr == NR_EXECVEAT) && call.ret == 0 && !call.unfinished {
            self.root.get_or_insert((thread, call.enter_ns));
        }
        let reaped = call.reaped || (call.nr == NR_WAIT4 && call.ret > 0);
        if reaped && !call.unfinished {
            self.reap(world, thread, call);
        }
        if call.nr == NR_CLOSE {
            self.connection_closed(thread, process, call);
        }
        for io in call.transfers().filter(|io| io.object.type_bits != TYPE_EVENTFD) {
            self.transfer(world, thread, call, io);
        }
        for io in call.more.iter().filter(|io| io.object.type_bits == TYPE_SHARED_WORD) {
            self.shared_word(world, thread, call, io);
        }
        if call.ret > 0 && !call.unfinished {
            self.stdio_call(world, process, thread, call);
        }
    }

    fn transfer(&mut self, world: &World, thread: ThreadId, call: &Call, io: &Io) {
        if self.framed_transfer(world, io) {
            return;
        }
        let process = world.thread(thread).process;
        let transfer = Transfer::new(thread, call, io);
        self.one_sided(world, process, thread, call, io);
        if io.is_write {
            self.write(world, process, io, transfer);
            return;
        }
        let recent = self.recent_reads.entry(process).or_default();
        if recent.len() == RECENT_READS {
            recent.pop_front();
        }
        recent.push_back((io.object, transfer));
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

    /// No more events will come: decides everything still open.
    pub fn finish(&mut self, world: &World) {
        let end_ns = world.now_ns;
        for (_, turn) in std::mem::take(&mut self.turns) {
            self.close(turn, end_ns);
        }
        self.end_all_served(world, None);
        self.sweep_framed(world, true);
        self.end_shared(world);
        self.unsettled.sort_by_key(|turn| turn.start_ns);
        self.settle(world, true);

        let mut children: Vec<(ProcessId, Child)> = (self.children.iter())
            .filter(|(_, child)| child.runs_program)
            .map(|(process, child)| (*process, *child))
            .collect();
        children.sort_by_key(|(_, child)| child.start_ns);
        for (process, child) in children {
            let id = self.exec_id(process).expect("present");
            let exited_ns = world.processes[process as usize].exited_ns;
            let reason = match exited_ns {
                Some(_) => "its parent never waited for it",
                None => "the capture ended before it did",
            };
            let end_ns = exited_ns.unwrap_or(end_ns);
            let request = Request {
                request_id: id,
                complete: false,
                reason: Some(reason.into()),
                ..self.exec_request(world, process, child.parent, &child, end_ns)
            };
            let goal = exec_goal(world, process, child.parent, &child, end_ns);
            self.found_primary = true;
            self.found.push(Found { request, goal });
        }
        self.children.clear();
        if !self.has_primary() {
            for (process, turn) in std::mem::take(&mut self.stdio) {
                self.end_stdio(world, process, turn);
            }
            self.whole_life(world);
        }
    }

    /// An id for a request; the tables have others, without gaps.
    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// An id for a request that is yet to be found, if it ever is: others may name it as their parent.
    fn id_ahead(&mut self) -> u64 {
        AHEAD | self.new_id()
    }
}

/// Marks ids given ahead.
const AHEAD: u64 = 1 << 62;

/// Whether an id was given before its request was found. Only such ids are named as parents.
pub fn is_ahead(id: u64) -> bool {
    id & AHEAD != 0
}

fn kind_of(channel: Object) -> Kind {
    match channel.type_bits {
        TYPE_UNIX | TYPE_UNIX_DGRAM => Kind::Unix,
        TYPE_UDP => Kind::Udp,
        TYPE_TCP => Kind::Tcp,
        _ => Kind::Pipe,
    }
}

/// `tcp 127.0.0.1:4000 > 127.0.0.1:80`, `unix /run/x.sock`, `pipe:[12]`
fn name_of(world: &World, channel: Object) -> String {
    match world.channels.get(&channel).and_then(|known| known.name.as_deref()) {
        Some(name) => format!("{channel} {name}"),
        None => channel.to_string(),
    }
}

fn end_of(world: &World, thread: ThreadId, at_ns: u64) -> End {
    let t = world.thread(thread);
    End { pid: world.process_of(thread).tgid, tid: t.tid, comm: t.name_at(at_ns).to_string() }
}
