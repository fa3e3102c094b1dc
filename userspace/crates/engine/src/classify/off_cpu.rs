//! Classifies off-CPU intervals that the walk does not follow: the category of the wait, and what the thread
//! or device that ended it did meanwhile.

mod blocks;
mod grace_period;
mod handed;
mod journal;
mod lock;
mod series;
mod timer;

use std::net::SocketAddr;

use crate::classify::on_cpu::{self, InCall};
use crate::classify::runtime_threads::with_role;
use crate::classify::syscall::{self, Waits, ETIMEDOUT};
use crate::event::{Block, Io, KernelWait, Object, OpenCall, TaskWaitSort, TYPE_FIFO, TYPE_UNIX};
use crate::task_wait::{is_task_wait, task_wait};
use crate::timeline::functions::Run;
use crate::timeline::gallop::{count_before, last_before, latest_before};
use crate::timeline::{Off, ThreadId, Why, World, IDLE};
use blocks::block_parts;
use journal::{commit, is_jbd2, Commit};
use rpcprobe_model::Category;

/// Part of a wait: `[from_ns, to_ns)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub from_ns: u64,
    pub to_ns: u64,
    pub category: Category,
    /// The category is inferred from circumstances, not from what was waited for.
    pub is_inferred: bool,
    pub detail: String,
    pub cause: Option<String>,
    pub by: Option<ThreadId>,
}

/// Contention flags, include/trace/events/lock.h.
const LCB_F_SPIN: u16 = 1;
const LCB_F_READ: u16 = 2;
const LCB_F_WRITE: u16 = 4;
const LCB_F_PERCPU: u16 = 16;
const LCB_F_MUTEX: u16 = 32;

/// Explains the sleep `off` of `thread`, clipped to `[from_ns, to_ns)`, in order of time.
/// `unexplained`: why nothing is known of the sleep's end.
pub fn explain(
    world: &World,
    thread: ThreadId,
    off: &Off,
    from_ns: u64,
    to_ns: u64,
    unexplained: Option<&str>,
) -> Vec<Part> {
    let by_waker = off.wake.is_some_and(|wake| wake.by_waker());
    let waker = off.wake.map(|wake| wake.waker).filter(|&waker| waker != IDLE && by_waker);
    let name = place(world, thread, off);
    let wait = Wait { world, thread, off, from_ns, to_ns, name, waker, by_waker };
    if let Some(reason) = unexplained {
        let detail = format!("{reason} (in {})", wait.name);
        return wait.whole(Category::Unattributed, detail, None, None);
    }
    // The stack is used only for uninterruptible sleeps. For the others, the system call says more.
    let uninterruptible = matches!(off.why, Why::Slept { uninterruptible: true, .. });
    let reason = uninterruptible.then(|| world.stacks.reason(thread, off)).flatten();
    let lock = reason.as_ref().filter(|reason| reason.is_lock).map(|lock| &*lock.text);
    let reason = reason.as_ref().map(|reason| &*reason.text);
    let parts = match uninterruptible {
        true => wait.held_up(lock).or_else(|| wait.uninterruptible(reason)),
        false => wait.held_up(None).or_else(|| wait.asynchronous_io()),
    };
    parts.or_else(|| wait.not_seen()).unwrap_or_else(|| wait.in_call(reason))
}

/// A sleep to explain.
struct Wait<'w> {
    world: &'w World,
    thread: ThreadId,
    off: &'w Off,
    from_ns: u64,
    to_ns: u64,
    /// Where it slept.
    name: String,
    /// The thread that ended the sleep, if it caused the wake-up itself.
    waker: Option<ThreadId>,
    by_waker: bool,
}

impl Wait<'_> {
    fn whole(
        &self,
        category: Category,
        detail: String,
        cause: Option<String>,
        by: Option<ThreadId>,
    ) -> Vec<Part> {
        let (from_ns, to_ns) = (self.from_ns, self.to_ns);
        vec![Part { from_ns, to_ns, category, is_inferred: false, detail, cause, by }]
    }

    /// The whole wait as one part; its `cause` is what the waker did meanwhile.
    fn by_its_waker(&self, category: Category, detail: String) -> Vec<Part> {
        let cause = self.waker.map(|waker| activity(self.world, waker, self.from_ns, self.to_ns));
        self.whole(category, detail, cause, self.waker)
    }

    fn inside(&self, reason: Option<&str>) -> String {
        match reason {
            Some(reason) => format!("{reason}, in {}", self.name),
            None => format!("in {}", self.name),
        }
    }

    /// A wait for a kernel lock (which the stack may name), a wait in a hooked function, or a pause for dirtying pages.
    fn held_up(&self, named: Option<&str>) -> Option<Vec<Part>> {
        let Wait { world, thread, off, ref name, .. } = *self;
        if let Some(lock) = kernel_lock(world, thread, off) {
            let detail = match named {
                Some(lock) => format!("{lock}, in {name}"),
                None => format!("{lock} in {name}"),
            };
            return Some(self.by_its_waker(Category::Lock, detail));
        }
        if let Some(parts) = self.in_function() {
            return Some(parts);
        }
        let detail = format!("throttled for dirtying pages in {name}");
        throttled(world, thread, off).then(|| self.whole(Category::Writeback, detail, None, None))
    }

    /// A wait in a directly hooked function that sleeps for one thing only.
    fn in_function(&self) -> Option<Vec<Part>> {
        let Wait { world, thread, off, from_ns, to_ns, ref name, waker, .. } = *self;
        let run = waited_in(world, thread, off)?;
        let function = run.what.name();
        let journal = waker.filter(|waker| world.journals.contains_key(waker));
        let committing = journal.map(|journal| commit(world, journal, from_ns, to_ns));
        let (what, cause) = match (run.what, committing) {
            (KernelWait::Socket, _) => {
                let detail = format!("the socket's lock, in {function}, in {name}");
                return Some(self.by_its_waker(Category::Lock, detail));
            }
            (KernelWait::Commit, committing) => {
                let number = run.number;
                match committing {
                    Some(Commit { device, cause, .. }) => {
                        (format!("commit of transaction {number} on {device}"), Some(cause))
                    }
                    None => (format!("commit of transaction {number}"), None),
                }
            }
            (KernelWait::Handle, Some(commit)) => (commit.to_string(), Some(commit.cause)),
            (KernelWait::Handle, None) => match self.block() {
                Some(block) => {
                    let name = format!("{name}, to make room in the full journal");
                    return Some(self.block_parts(Category::Journal, block, &name));
                }
                None => ("the journal".to_owned(), None),
            },
        };
        let detail = format!("{what}, in {function}, in {name}");
        Some(self.whole(Category::Journal, detail, cause, waker))
    }

    /// The block request whose completion ended the sleep.
    fn block(&self) -> Option<&Block> {
        self.world.blocks.get(&self.off.wake?.block)
    }

    fn block_parts(&self, category: Category, block: &Block, name: &str) -> Vec<Part> {
        block_parts(category, block, name, self.from_ns, self.to_ns)
    }

    fn asynchronous_io(&self) -> Option<Vec<Part>> {
        self.off.call.filter(|call| syscall::waits_for_asynchronous_io(call.nr))?;
        Some(self.block_parts(Category::BlockIo, self.block()?, &self.name))
    }

    /// A wait for a journal, a device or writeback.
    fn uninterruptible(&self, reason: Option<&str>) -> Option<Vec<Part>> {
        let Wait { world, off, from_ns, to_ns, ref name, waker, .. } = *self;
        if let Some(waker) = waker.filter(|waker| world.journals.contains_key(waker)) {
            let commit = commit(world, waker, from_ns, to_ns);
            let detail = format!("{commit}, in {name}");
            return Some(self.whole(Category::Journal, detail, Some(commit.cause), Some(waker)));
        }
        if let Some(block) = self.block() {
            return Some(self.for_block(block));
        }
        if waker.is_some_and(|waker| is_jbd2(world, waker, to_ns)) {
            // The journal's phases are not traced on this kernel.
            return Some(self.by_its_waker(Category::Journal, self.inside(reason)));
        }
        let syncs = off.call.is_some_and(|call| syscall::waits_for_writeback(call.nr));
        if syncs && waker.is_some_and(|waker| world.thread(waker).kthread) {
            return Some(self.by_its_waker(Category::Writeback, self.inside(reason)));
        }
        if matches!(off.why, Why::Slept { iowait: true, .. }) {
            let detail = format!("{}: the request is not known", self.inside(reason));
            return Some(self.whole(Category::BlockIo, detail, None, waker));
        }
        self.for_grace_period()
    }

    /// A wait for a block request, or for the commit that submitted it.
    fn for_block(&self, block: &Block) -> Vec<Part> {
        let Wait { world, thread, off, from_ns, to_ns, ref name, .. } = *self;
        let own = off.call.is_none_or(|call| syscall::waits_for_own_data(call.nr));
        let makes_room = off.call.is_some_and(|call| world.thread(thread).made_room_in(&call));
        if block.op != 0 && !own && makes_room {
            let name = format!("{name}, to make room in the full journal");
            return self.block_parts(Category::Journal, block, &name);
        }
        let journal = world.journals.iter().find(|(_, journal)| {
            block.op != 0 && journal.dev == block.dev && journal.commits_at(block.queued_ns)
        });
        match journal.filter(|_| !own) {
            Some((&journal, _)) => {
                // The thread waits for a buffer that a commit is writing to the log.
                let commit = commit(world, journal, from_ns, to_ns);
                let cause = format!("{}; woken by the {block}", commit.cause);
                let detail = format!("{commit}, in {name}");
                self.whole(Category::Journal, detail, Some(cause), Some(journal))
            }
            None => self.block_parts(Category::BlockIo, block, name),
        }
    }

    /// A wait whose wake-up was not seen.
    fn not_seen(&self) -> Option<Vec<Part>> {
        let Wait { world, thread, off, ref name, .. } = *self;
        off.wake.filter(|wake| wake.is_unseen())?;
        if timed_out(world, thread, off) {
            return Some(self.ran_out(format!("asleep in {name} until its timeout")));
        }
        let by_timer = off.call.is_some_and(|call| waits_for_timer(&call));
        let detail = format!("asleep, and no wake-up was seen (in {name})");
        (!by_timer).then(|| self.whole(Category::Unattributed, detail, None, None))
    }

    /// A wait in a poll() for bytes of one connection. A server that polls its client's connection until a timeout lets
    /// time pass instead.
    fn for_polled_peer(&self) -> Option<Vec<Part>> {
        let Wait { world, thread, off, ref name, .. } = *self;
        let polled = off.polled()?;
        let serves = world.channels.get(&polled).is_some_and(|channel| channel.taken.is_some());
        let timed_out = timed_out(world, thread, off);
        let peer = peer_on(world, polled, false);
        let peer = peer.map_or_else(|| "its peer".into(), |peer| format!("peer {peer}"));
        let until = if timed_out { ", or its timeout" } else { "" };
        let detail = format!("asleep in {name} until {peer} was ready{until}");
        (!serves || !timed_out).then(|| self.by_its_waker(Category::IdlePeer, detail))
    }

    /// Classifies the wait by what its system call waits for.
    fn in_call(&self, reason: Option<&str>) -> Vec<Part> {
        let Wait { world, thread, off, ref name, waker, by_waker, .. } = *self;
        let nothing_shows = || match reason {
            Some(_) => self.inside(reason),
            None => format!("asleep in {name}: nothing shows for what"),
        };
        let Some(OpenCall { nr, object, .. }) = off.call else {
            return self.by_its_waker(Category::Unattributed, nothing_shows());
        };
        let traced = waker.is_some_and(|waker| world.thread(waker).traced);
        let detail = format!("asleep in {name}");
        if let Some(how) = self.handed_over() {
            return self.perhaps_a_lock(format!("{detail} until {how}: what for is not seen"));
        }
        if let Some(parts) = self.for_polled_peer().filter(|_| !traced) {
            return parts;
        }
        match syscall::waits(nr, object) {
            Waits::Timer => self.for_timer(detail),
            // No task woke it: FUTEX_WAIT with a timeout was used as a sleep.
            Waits::Futex if !by_waker && may_run_out(nr) => self.ran_out(detail),
            Waits::Futex if is_for(nr, TaskWaitSort::Room) => {
                let detail = format!("{detail}: there is no room");
                inferred(self.by_its_waker(Category::QueueApp, detail))
            }
            Waits::Futex => match off.call.and_then(|call| call.lock()) {
                Some(lock) => {
                    // For a lock inside a runtime, nothing shows which lock it is.
                    let object = object.map_or(String::new(), |object| format!(" {object}"));
                    self.for_a_lock(format!("{lock}{object}"))
                }
                None => self.perhaps_a_lock(detail),
            },
            Waits::Readiness if !by_waker => match became_ready(world, thread, off) {
                // A packet's interrupt woke it, in the context of whichever task was running.
                Some(ready) if ready.object.is_socket() => {
                    let detail =
                        format!("{detail} until {} was ready", peer_or_object(world, ready));
                    self.whole(Category::IdlePeer, detail, None, None)
                }
                _ if is_for(nr, TaskWaitSort::Descriptor) => {
                    self.whole(Category::IdlePeer, detail, None, None)
                }
                _ if self.was_interrupted() => self.taken_up_again(detail),
                // No task woke it, and it next reads an object that only counts: probably a timer's descriptor.
                Some(ready) if ready.object.only_counts() && !ready.is_write => {
                    inferred(self.whole(Category::Sleep, detail, None, None))
                }
                _ => self.whole(Category::Sleep, detail, None, None),
            },
            Waits::Readiness | Waits::Peer if !traced => {
                let detail = match became_ready(world, thread, off) {
                    Some(ready) if object != Some(ready.object) => {
                        format!("{detail} until {} was ready", peer_or_object(world, ready))
                    }
                    Some(_) => detail,
                    None => match transfer(world, thread, off).and_then(|io| peer(world, io)) {
                        Some(peer) => format!("asleep in {}, peer {peer}", syscall::name(nr)),
                        None => detail,
                    },
                };
                self.by_its_waker(Category::IdlePeer, detail)
            }
            Waits::Peer
                if nr == syscall::NR_CONNECT
                    && object.is_some_and(|o| o.type_bits == TYPE_UNIX) =>
            {
                let detail = format!("no room for connections, {detail}");
                self.by_its_waker(Category::QueueAccept, detail)
            }
            Waits::Peer
                if object.is_some_and(|o| o.type_bits == TYPE_FIFO) && syscall::is_write(nr) =>
            {
                let detail = format!("pipe full, {detail}");
                self.by_its_waker(Category::QueuePipe, detail)
            }
            Waits::Peer if object.is_some_and(|o| o.is_socket()) && syscall::is_write(nr) => {
                let detail = format!("socket buffer full, {detail}");
                self.by_its_waker(Category::QueueSocket, detail)
            }
            Waits::Readiness | Waits::Peer => {
                let detail = format!("{detail}: the peer's work began before this request");
                self.by_its_waker(Category::IdlePeer, detail)
            }
            Waits::Child | Waits::Other => {
                let detail = nothing_shows();
                self.by_its_waker(Category::Unattributed, detail)
            }
        }
    }
}

/// Whether the call is a task's wait of that sort. A wait of sort `Descriptor`, for instance, ends by a descriptor's
/// readiness, not by a timer.
fn is_for(nr: u16, sort: TaskWaitSort) -> bool {
    task_wait(nr).is_some_and(|wait| wait.sort() == sort)
}

/// Whether a timeout can end the wait. Of tasks' waits in memory, only those on a channel can time out.
fn may_run_out(nr: u16) -> bool {
    !is_task_wait(nr) || is_for(nr, TaskWaitSort::Channel)
}

fn inferred(mut parts: Vec<Part>) -> Vec<Part> {
    parts.iter_mut().for_each(|part| part.is_inferred = true);
    parts
}

fn waits_for_timer(call: &OpenCall) -> bool {
    syscall::waits(call.nr, call.object) == Waits::Timer
}

/// Whether the call in which the thread slept returned because its timeout expired.
pub(crate) fn timed_out(world: &World, thread: ThreadId, off: &Off) -> bool {
    let Some(open) = off.call else { return false };
    let InCall::Closed(call) = on_cpu::call_at(world.thread(thread), off.end_ns) else {
        return false;
    };
    match syscall::waits(open.nr, open.object) {
        _ if call.unfinished || call.enter_ns != open.enter_ns => false,
        Waits::Futex => call.ret == -ETIMEDOUT,
        Waits::Readiness => call.ret == 0,
        _ => false,
    }
}

/// The transfer that a poll(), select() or epoll_wait() waited for, if it returned with something ready: the thread's
/// next read, write or accept.
fn became_ready<'w>(world: &'w World, thread: ThreadId, off: &Off) -> Option<&'w Io> {
    let t = world.thread(thread);
    let InCall::Closed(polled) = on_cpu::call_at(t, off.end_ns) else { return None };
    let polls = syscall::waits(polled.nr, None) == Waits::Readiness;
    if !polls || polled.ret <= 0 || polled.unfinished {
        return None;
    }
    let next = count_before(&t.calls, |call| call.enter_ns < polled.exit_ns);
    t.calls.range(next..).find_map(|call| call.io.as_ref())
}

/// The transfer of the call in which the thread slept.
fn transfer<'w>(world: &'w World, thread: ThreadId, off: &Off) -> Option<&'w Io> {
    match on_cpu::call_at(world.thread(thread), off.end_ns) {
        InCall::Closed(call) => call.io.as_ref(),
        _ => None,
    }
}

/// The address of the other end of the network connection.
fn peer(world: &World, io: &Io) -> Option<SocketAddr> {
    peer_on(world, io.object, io.is_write)
}

/// The address of the other end of a direction of a network connection, in which this end sends or receives.
fn peer_on(world: &World, object: Object, sends: bool) -> Option<SocketAddr> {
    let [from, to] = world.channels.get(&object)?.ends?;
    Some(if sends { to } else { from })
}

fn peer_or_object(world: &World, io: &Io) -> String {
    peer(world, io).map_or_else(|| io.object.to_string(), |peer| format!("peer {peer}"))
}

/// Where the thread slept: `fsync`, `read file:[12]`, `read /path`, `openat /path`.
fn place(world: &World, thread: ThreadId, off: &Off) -> String {
    let Some(call) = off.call else {
        let kthread = world.thread(thread).kthread;
        return if kthread { "a kernel thread" } else { "a page fault" }.into();
    };
    let closed = on_cpu::call_at(world.thread(thread), off.end_ns);
    match (closed, call.object) {
        (InCall::Closed(call), _) if call.path.is_some() => on_cpu::describe_call(call),
        (_, Some(object)) if off.polled().is_none() => {
            format!("{} {object}", syscall::name(call.nr))
        }
        (InCall::Closed(call), _) => on_cpu::describe_call(call),
        _ => syscall::name(call.nr).into_owned(),
    }
}

/// The directly hooked function in which the sleep lies and which sleeps for one thing only.
pub(crate) fn waited_in<'w>(
    world: &'w World,
    thread: ThreadId,
    off: &Off,
) -> Option<&'w Run<KernelWait>> {
    world.thread(thread).functions.wait_around(off)
}

/// The kernel lock that the sleep was for: the sleep lies within a recorded contention.
pub(crate) fn kernel_lock(world: &World, thread: ThreadId, off: &Off) -> Option<&'static str> {
    let contentions = &world.thread(thread).contentions;
    let span = last_before(contentions, |span| span.start_ns <= off.start_ns)?;
    if span.end_ns < off.end_ns {
        return None;
    }
    Some(match span.number {
        flags if flags & LCB_F_MUTEX != 0 => "kernel mutex",
        flags if flags & LCB_F_SPIN != 0 => "kernel spinlock",
        flags if flags & LCB_F_PERCPU != 0 => "kernel per-CPU rwsem",
        flags if flags & LCB_F_READ != 0 => "kernel rwsem (read)",
        flags if flags & LCB_F_WRITE != 0 => "kernel rwsem (write)",
        _ => "kernel semaphore",
    })
}

/// Whether the sleep is a pause for dirtying pages that the thread was told to make since it last came to a CPU.
pub(crate) fn throttled(world: &World, thread: ThreadId, off: &Off) -> bool {
    let t = world.thread(thread);
    let told = last_before(&t.throttles, |at_ns| *at_ns <= off.start_ns);
    let Some(&told_ns) = told else { return false };
    let former = t.off_before(off.start_ns).map_or(0, |former| former.end_ns);
    // The pause itself sleeps for a given time and counts as a wait for a device (io_schedule_timeout()). Some pauses
    // are announced and not made.
    let paused = matches!(off.why, Why::Slept { uninterruptible: true, iowait: true });
    told_ns >= former && paused && off.wake.is_none_or(|wake| wake.by_interrupt())
}

fn percent(part_ns: u64, whole_ns: u64) -> u64 {
    (u128::from(part_ns) * 100 / u128::from(whole_ns)) as u64
}

/// How a thread spent an interval, in one phrase.
pub fn activity(world: &World, thread: ThreadId, from_ns: u64, to_ns: u64) -> String {
    let t = world.thread(thread);
    let off_ns: u64 = latest_before(&t.off, |off| off.start_ns < to_ns)
        .take_while(|off| off.end_ns > from_ns)
        .map(|off| off.end_ns.min(to_ns).saturating_sub(off.start_ns.max(from_ns)))
        .fold(0, u64::saturating_add);
    let whole_ns = (to_ns - from_ns).max(1);
    let percent = percent(whole_ns.saturating_sub(off_ns), whole_ns);
    format!("{} on CPU {percent} % of the time", with_role(t.name_at(to_ns)))
}
