//! Time lines: what every thread, CPU and channel did, kept for as long as an open request may need it.

pub mod address_space;
mod apply;
pub mod arena;
mod channel;
mod datagram_roles;
pub mod functions;
pub mod futex_roles;
pub mod gallop;
pub mod losses;
pub mod retention;
mod switches;
mod thread;
mod transfers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::classify::syscall;
use crate::event::{
    Block, Call, FileId, GapWhy, Io, Object, OpenCall, Packet, TYPE_FIFO, TYPE_TCP,
};
use crate::ownership::marks::{Marks, Question};
use crate::ownership::sakes::Sake;
use crate::ownership::sums::Sums;
use crate::ownership::work::WorkSums;
use crate::send_limit::SendLimit;
use crate::stacks::Stacks;
use crate::timeline::arena::Arena;
use crate::timeline::functions::Functions;
use crate::timeline::futex_roles::Futexes;
use crate::timeline::gallop::{count_before, last_before, History};
use crate::timeline::losses::Losses;
use rpcprobe_model::Loss;
use rpcprobe_record::{WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_NMI, WAKING_SOFTIRQ};

pub use channel::{Carries, Channel, EndedBy, Opening, Over, Transfer};
use channel::{End, Ended};
use datagram_roles::{DatagramRoles, FlowBegin};
use thread::WAKING_UNSEEN;
pub use thread::{Move, Off, Span, Thread, Wake, Why, Work};

/// Index of a thread's life: a tid that is reused gets a new one.
pub type ThreadId = u32;
/// Index of a process's life.
pub type ProcessId = u32;

/// The idle task of every CPU.
pub const IDLE: ThreadId = 0;

/// "Not yet": the end of a span that is still open.
pub const NEVER: u64 = u64::MAX;

/// Limit of the transfers of one call that are kept: the most that recvmmsg() moves, and one.
const MOST_TRANSFERS: usize = 1025;

/// Limit of the arrivals on a channel that wait for their reader: more full packets than a socket's buffer holds.
const MOST_ARRIVALS: usize = 4096;

/// A thread's last context switch comes soon after its exit, if its record is not lost.
const LAST_STEPS_NS: u64 = 1_000_000_000;

/// A program in a process: since when, and where its code begins.
#[derive(Clone, Debug)]
pub struct Program {
    pub exec_ns: u64,
    pub entry: u64,
    pub interp_base: u64,
    /// When the dynamic loader handed over to the program.
    pub loaded_ns: Option<u64>,
    pub path: Option<Box<str>>,
}

#[derive(Debug, Default)]
pub struct Process {
    pub tgid: u32,
    pub parent: Option<ProcessId>,
    pub programs: History<Program>,
    /// When its main thread exited, and the status of the thread that exited last.
    pub exited_ns: Option<u64>,
    pub exit_code: Option<i32>,
    /// The thread that exited last.
    pub last_exited: Option<ThreadId>,
    /// When it last forked a process, which has its descriptors, too.
    pub forked_ns: u64,
    /// When exit_group() ended all its threads, and which thread called it.
    pub group_exit: Option<(u64, ThreadId)>,
    pub traced: bool,
    /// The thread whose tid is the tgid.
    pub leader: ThreadId,
    /// All its threads, in the order in which they were seen.
    pub threads: Vec<ThreadId>,
    /// How its threads use their futexes.
    pub futexes: Futexes,
    /// A thread that takes questions in has answered a question that another thread had taken in: its threads take work
    /// from each other.
    pub shares_work: bool,
    /// One of its threads has moved bytes of a connection.
    pub has_connections: bool,
    /// One of its threads has asked another process on a connection.
    pub asks: bool,
    /// The channels on which it has asked; and the length of this list at which closed ones are dropped from it.
    pub asks_on: Vec<Object>,
    pub(crate) prune_asks_on_at: usize,
}

/// What a jbd2 thread has been doing.
#[derive(Debug, Default)]
pub struct Journal {
    /// major << 20 | minor
    pub dev: u32,
    /// For each phase: from when, which transaction, which phase (`enum journal_phase`).
    pub phases: History<(u64, u32, u16)>,
}

impl Journal {
    /// Whether a commit was under way: locking, flushing or logging.
    pub fn commits_at(&self, at_ns: u64) -> bool {
        let last = last_before(&self.phases, |(since_ns, ..)| *since_ns <= at_ns);
        last.is_some_and(|(_, _, phase)| matches!(phase, 1..=4))
    }
}

pub struct World {
    pub threads: Arena<Thread>,
    pub processes: Arena<Process>,
    pub(crate) by_tid: FxHashMap<u32, ThreadId>,
    pub(crate) by_tgid: FxHashMap<u32, ProcessId>,
    /// The threads that ran on each CPU: from when, which.
    pub cpus: Vec<History<(u64, ThreadId)>>,
    pub channels: FxHashMap<Object, Channel>,
    /// The names by which files were opened last.
    files: FxHashMap<FileId, Arc<str>>,
    /// Connections that were opened and accepted, and on which nothing has been sent or read yet, by socket.
    pub(crate) connected: FxHashMap<u64, Opening>,
    pub(crate) accepted: FxHashMap<u64, Opening>,
    /// The connection that each socket is an end of.
    sockets: FxHashMap<u64, End>,
    /// What the last call showed of the end of its connection.
    pub over: Option<Over>,
    datagram_roles: DatagramRoles,
    /// Losses known beforehand, or reported so far.
    pub losses: Losses,
    /// Switches of all threads are recorded, so a gap in a CPU's chain is a missed switch.
    pub whole_machine: bool,
    /// Context switches from and to traced threads (from one to another counts as two), and wake-ups by them.
    pub traced_switches: u64,
    pub traced_wakings: u64,
    /// Context switches that left no record; see `check_switch_chain`.
    pub missed_switches: u64,
    /// How often the framing of a stream was lost, by reason.
    pub framing_lost: BTreeMap<GapWhy, u64>,
    /// Channels that the kernel side had forgotten when they were used again.
    pub channels_forgotten: u64,
    /// Context switches that left no record but are known from the scheduler's own account.
    pub restored_switches: u64,
    /// Wake-ups of traced threads that are known in this way.
    pub restored_wakes: u64,
    /// Time that the hypervisor took from traced threads at unknown instants.
    pub steal_unplaced_ns: u64,
    /// Completed block requests by number.
    pub blocks: FxHashMap<u32, Block>,
    /// Commits of each journal, by its thread.
    pub journals: FxHashMap<ThreadId, Journal>,
    /// The stacks with which threads slept and ran, if captured.
    pub stacks: Stacks,
    /// What threads did, added up.
    pub sums: Sums,
    /// The work of threads for many requests at once, added up.
    pub work_sums: WorkSums,
    /// Time of the latest event.
    pub now_ns: u64,
    pub start_ns: u64,
}

/// Kernel task states, include/linux/sched.h.
const TASK_UNINTERRUPTIBLE: u16 = 0x02;
const EXIT_DEAD_OR_ZOMBIE: u16 = 0x10 | 0x20 | 0x80;

/// Limit of the file names that are kept; beyond it all of them are forgotten.
const MOST_FILES: usize = 1 << 16;

/// The phase of a process's life that a call is, if it is one.
fn phase_of(nr: u16) -> Option<&'static str> {
    match nr {
        syscall::NR_EXIT | syscall::NR_EXIT_GROUP => Some("exit"),
        syscall::NR_EXECVE | syscall::NR_EXECVEAT => Some("exec"),
        nr if syscall::makes_thread(nr) => Some("fork"),
        syscall::NR_WAIT4 | syscall::NR_WAITID => Some("wait"),
        _ => None,
    }
}

impl World {
    pub fn new(cpus: u32, start_ns: u64) -> World {
        let mut world = World {
            threads: Arena::default(),
            processes: Arena::default(),
            by_tid: FxHashMap::default(),
            by_tgid: FxHashMap::from_iter([(0, 0)]),
            cpus: vec![History::default(); cpus as usize],
            channels: FxHashMap::default(),
            files: FxHashMap::default(),
            connected: FxHashMap::default(),
            accepted: FxHashMap::default(),
            sockets: FxHashMap::default(),
            over: None,
            datagram_roles: DatagramRoles::default(),
            blocks: FxHashMap::default(),
            journals: FxHashMap::default(),
            stacks: Stacks::default(),
            sums: Sums::default(),
            work_sums: WorkSums::default(),
            losses: Losses::default(),
            whole_machine: true,
            traced_switches: 0,
            traced_wakings: 0,
            missed_switches: 0,
            framing_lost: BTreeMap::new(),
            channels_forgotten: 0,
            restored_switches: 0,
            restored_wakes: 0,
            steal_unplaced_ns: 0,
            now_ns: start_ns,
            start_ns,
        };
        world.processes.push(Process::default());
        world.threads.push(Thread {
            names: History::from([(0, "idle".into())]),
            kthread: true,
            gone_ns: NEVER,
            ..Thread::default()
        });
        world.by_tid.insert(0, IDLE);
        world
    }

    pub fn thread(&self, id: ThreadId) -> &Thread {
        &self.threads[id as usize]
    }

    pub fn process_of(&self, id: ThreadId) -> &Process {
        &self.processes[self.thread(id).process as usize]
    }

    /// The present owner of a tid. If the owner was never announced (its record was lost), it is added.
    pub fn thread_of_tid(&mut self, tid: u32) -> ThreadId {
        if let Some(&id) = self.by_tid.get(&tid) {
            return id;
        }
        self.add_thread(tid, tid, "?", self.now_ns, false)
    }

    /// The present owner of a tid, if known.
    pub fn thread_by_tid(&self, tid: u32) -> Option<ThreadId> {
        self.by_tid.get(&tid).copied()
    }

    /// The first owner of a tid that is not forgotten, alive or not.
    pub fn first_thread_of_tid(&self, tid: u32) -> Option<ThreadId> {
        let owners = self.threads.iter().filter(|(_, thread)| thread.tid == tid);
        owners.min_by_key(|(_, thread)| thread.born_ns).map(|(id, _)| id as ThreadId)
    }

    /// Entry of the oldest call in which a traced thread sleeps and that may be sending.
    pub fn oldest_write_under_way_ns(&self) -> u64 {
        // write, pwrite64, writev, sendfile, sendto, sendmsg, pwritev, sendmmsg, pwritev2
        // splice, tee, vmsplice; connect, with which a request may begin
        let writes = [1, 18, 20, 40, 42, 44, 46, 275, 276, 278, 296, 307, 328];
        (self.threads.iter())
            .filter_map(|(_, thread)| thread.open_call)
            .filter(|call| writes.contains(&call.nr))
            .map(|call| call.enter_ns)
            .min()
            .unwrap_or(NEVER)
    }

    /// Notes that answers to requests were found on a channel. Detection reports nothing else to the time lines.
    pub fn answers_on(&mut self, channel: Object) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.answers = true;
        }
    }

    /// Returns whether `process` descends from `from` by forks since `since_ns`.
    pub fn is_forked_since(&self, mut process: ProcessId, from: ProcessId, since_ns: u64) -> bool {
        while let Some(parent) = self.forked_by(process, since_ns) {
            if parent == from {
                return true;
            }
            process = parent;
        }
        false
    }

    /// The parent of a process, if the process was forked since `since_ns`.
    pub fn forked_by(&self, process: ProcessId, since_ns: u64) -> Option<ProcessId> {
        let Process { parent, leader, .. } = self.processes[process as usize];
        parent.filter(|_| self.thread(leader).born_ns >= since_ns)
    }

    pub fn process_of_tgid(&self, tgid: u32) -> Option<ProcessId> {
        self.by_tgid.get(&tgid).copied()
    }

    fn add_thread(
        &mut self,
        tid: u32,
        tgid: u32,
        comm: &str,
        now_ns: u64,
        new_process: bool,
    ) -> ThreadId {
        let id = self.threads.next() as ThreadId;
        let process = match self.by_tgid.get(&tgid) {
            Some(&process) if !new_process => process,
            _ => {
                let process = self.processes.next() as ProcessId;
                self.processes.push(Process { tgid, leader: id, ..Process::default() });
                self.by_tgid.insert(tgid, process);
                process
            }
        };
        let leader = self.processes[process as usize].leader;
        // A runtime's task has no name of its own.
        let name = match comm.is_empty() && leader != id {
            true => self.thread(leader).name_at(now_ns).into(),
            false => comm.into(),
        };
        self.processes[process as usize].threads.push(id);
        if tid == tgid {
            self.processes[process as usize].leader = id;
        }
        self.threads.push(Thread {
            tid,
            process,
            names: History::from([(0, name)]),
            born_ns: now_ns,
            known_from_ns: now_ns,
            settled_ns: now_ns,
            gone_ns: NEVER,
            ..Thread::default()
        });
        self.give_tid(tid, id);
        id
    }

    /// Gives a tid to a thread. Its former owner is dead.
    fn give_tid(&mut self, tid: u32, id: ThreadId) {
        if let Some(former) = self.by_tid.insert(tid, id).filter(|former| *former != id) {
            let former = &mut self.threads[former as usize];
            former.gone_ns = former.gone_ns.min(self.now_ns);
        }
    }
}
