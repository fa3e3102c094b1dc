//! What a wait that is kept as one wait was for: its category, and what the thread or device that
//! ended it did meanwhile.

use std::net::SocketAddr;

use super::event::{Block, Io, OpenCall, TYPE_FIFO, TYPE_UNIX};
use super::recent::{count_before, last_before, latest_before};
use super::syscall::{self, Waits, ETIMEDOUT};
use super::tile::{self, InCall};
use super::world::{Off, ThreadId, Why, World, IDLE};
use rpcprobe_model::Category;

/// Part of a wait: `[from_ns, to_ns)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub from_ns: u64,
    pub to_ns: u64,
    pub category: Category,
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
/// `unexplained`: why nothing is known of its end.
pub fn explain(
    world: &World,
    thread: ThreadId,
    off: &Off,
    from_ns: u64,
    to_ns: u64,
    unexplained: Option<&str>,
) -> Vec<Part> {
    let name = place(world, thread, off);
    let whole = |category, detail: String, cause, by| {
        vec![Part { from_ns, to_ns, category, detail, cause, by }]
    };
    if let Some(reason) = unexplained {
        return whole(Category::Unattributed, format!("{reason} (in {name})"), None, None);
    }
    let wake = off.wake;
    let by_waker = wake.is_some_and(|wake| wake.by_waker());
    let waker = wake.map(|wake| wake.waker).filter(|&waker| waker != IDLE && by_waker);
    let activity = |by: Option<ThreadId>| by.map(|by| activity(world, by, from_ns, to_ns));
    let uninterruptible = matches!(off.why, Why::Slept { uninterruptible: true, .. });
    let iowait = matches!(off.why, Why::Slept { iowait: true, .. });
    // Only the kernel's own waits: of the others the system call tells more.
    let reason = uninterruptible.then(|| world.stacks.reason(thread, off)).flatten();
    let inside = match &reason {
        Some(reason) => format!("{reason}, in {name}"),
        None => format!("in {name}"),
    };

    if let Some(lock) = kernel_lock(world, thread, off) {
        let named = reason.as_deref().filter(|reason| reason.starts_with("kernel "));
        let detail = match named {
            Some(lock) => format!("{lock}, in {name}"),
            None => format!("{lock} in {name}"),
        };
        return whole(Category::Lock, detail, activity(waker), waker);
    }
    if throttled(world, thread, off) {
        let detail = format!("throttled for dirtying pages in {name}");
        return whole(Category::Writeback, detail, None, None);
    }
    let block = wake.and_then(|wake| world.blocks.get(&wake.block));
    let asynchronous = off.call.is_some_and(|call| syscall::waits_for_asynchronous_io(call.nr));
    if let Some(block) = block.filter(|_| asynchronous && !uninterruptible) {
        return block_parts(Category::BlockIo, block, &name, from_ns, to_ns);
    }
    if uninterruptible {
        if let Some(waker) = waker.filter(|waker| world.journals.contains_key(waker)) {
            let (detail, cause) = commit(world, waker, from_ns, to_ns);
            return whole(Category::Journal, format!("{detail}, in {name}"), cause, Some(waker));
        }
        if let Some(block) = block {
            let own = off.call.is_none_or(|call| syscall::waits_for_own_data(call.nr));
            let makes_room = off.call.is_some_and(|call| world.thread(thread).made_room_in(&call));
            if block.op != 0 && !own && makes_room {
                let name = format!("{name}, to make room in the full journal");
                return block_parts(Category::Journal, block, &name, from_ns, to_ns);
            }
            let journal = world.journals.iter().find(|(_, journal)| {
                block.op != 0 && journal.dev == block.dev && journal.commits_at(block.queued_ns)
            });
            if let (false, Some((&journal, _))) = (own, journal) {
                // It wants a buffer that a commit is writing to the log.
                let (detail, cause) = commit(world, journal, from_ns, to_ns);
                let cause = cause.map(|cause| format!("{cause}; woken by the {block}"));
                let by = Some(journal);
                return whole(Category::Journal, format!("{detail}, in {name}"), cause, by);
            }
            return block_parts(Category::BlockIo, block, &name, from_ns, to_ns);
        }
        if let Some(waker) = waker.filter(|&waker| is_jbd2(world, waker, to_ns)) {
            // Its phases are not traced on this kernel.
            let by = Some(waker);
            return whole(Category::Journal, inside, activity(by), by);
        }
        let syncs = off.call.is_some_and(|call| syscall::waits_for_writeback(call.nr));
        if syncs && waker.is_some_and(|waker| world.thread(waker).kthread) {
            return whole(Category::Writeback, inside, activity(waker), waker);
        }
        if iowait {
            let detail = format!("{inside}: the request is not known");
            return whole(Category::BlockIo, detail, None, waker);
        }
    }
    let unseen = wake.is_some_and(|wake| wake.is_unseen());
    let by_timer = off.call.is_some_and(|call| waits_for_timer(&call));
    if unseen && timed_out(world, thread, off) {
        return whole(Category::Sleep, format!("asleep in {name} until its timeout"), None, None);
    }
    if unseen && !by_timer {
        let detail = format!("asleep, and no wake-up was seen (in {name})");
        return whole(Category::Unattributed, detail, None, None);
    }
    let nothing_shows = || match &reason {
        Some(_) => inside.clone(),
        None => format!("asleep in {name}: nothing shows for what"),
    };
    let Some(OpenCall { nr, object, .. }) = off.call else {
        let detail = nothing_shows();
        return whole(Category::Unattributed, detail, activity(waker), waker);
    };
    let traced = waker.is_some_and(|waker| world.thread(waker).traced);
    let detail = format!("asleep in {name}");
    match syscall::waits(nr, object) {
        Waits::Timer => whole(Category::Sleep, detail, None, None),
        // Nobody woke it: FUTEX_WAIT with a timeout is a way to sleep.
        Waits::Futex if !by_waker => whole(Category::Sleep, detail, None, None),
        Waits::Futex => {
            let detail = match off.call.and_then(|call| call.lock()) {
                Some(lock) => format!("{lock} {}", object.map_or(String::new(), |o| o.to_string())),
                None => detail,
            };
            whole(Category::Lock, detail, activity(waker), waker)
        }
        Waits::Readiness if !by_waker => match became_ready(world, thread, off) {
            // A packet, seen by whoever the interrupt hit.
            Some(ready) if ready.object.is_socket() => {
                let detail = format!("{detail} until {} was ready", peer_or_object(world, ready));
                whole(Category::IdlePeer, detail, None, None)
            }
            // Not woken by a task: a timeout, or a timer's descriptor.
            _ => whole(Category::Sleep, detail, None, None),
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
            whole(Category::IdlePeer, detail, activity(waker), waker)
        }
        Waits::Peer
            if nr == syscall::NR_CONNECT && object.is_some_and(|o| o.type_bits == TYPE_UNIX) =>
        {
            let detail = format!("no room for connections, {detail}");
            whole(Category::QueueAccept, detail, activity(waker), waker)
        }
        Waits::Peer
            if object.is_some_and(|o| o.type_bits == TYPE_FIFO) && syscall::is_write(nr) =>
        {
            let detail = format!("pipe full, {detail}");
            whole(Category::QueuePipe, detail, activity(waker), waker)
        }
        Waits::Peer if object.is_some_and(|o| o.is_socket()) && syscall::is_write(nr) => {
            let detail = format!("socket buffer full, {detail}");
            whole(Category::QueueSocket, detail, activity(waker), waker)
        }
        Waits::Readiness | Waits::Peer => {
            let detail = format!("{detail}: the peer's work began before this request");
            whole(Category::IdlePeer, detail, activity(waker), waker)
        }
        Waits::Child | Waits::Other => {
            let detail = nothing_shows();
            whole(Category::Unattributed, detail, activity(waker), waker)
        }
    }
}

fn waits_for_timer(call: &OpenCall) -> bool {
    syscall::waits(call.nr, call.object) == Waits::Timer
}

/// Whether the call in which it slept came back because its time was over.
fn timed_out(world: &World, thread: ThreadId, off: &Off) -> bool {
    let Some(open) = off.call else { return false };
    let InCall::Closed(call) = tile::call_at(world.thread(thread), off.end_ns) else {
        return false;
    };
    match syscall::waits(open.nr, open.object) {
        _ if call.unfinished || call.enter_ns != open.enter_ns => false,
        Waits::Futex => call.ret == -ETIMEDOUT,
        Waits::Readiness => call.ret == 0,
        _ => false,
    }
}

/// What a poll(), select() or epoll_wait() that ended with something ready had waited for: what the
/// thread read, wrote or accepted on next.
fn became_ready<'w>(world: &'w World, thread: ThreadId, off: &Off) -> Option<&'w Io> {
    let t = world.thread(thread);
    let InCall::Closed(polled) = tile::call_at(t, off.end_ns) else { return None };
    let polls = syscall::waits(polled.nr, None) == Waits::Readiness;
    if !polls || polled.ret <= 0 || polled.unfinished {
        return None;
    }
    let next = count_before(&t.calls, |call| call.enter_ns < polled.exit_ns);
    t.calls.range(next..).find_map(|call| call.io.as_ref())
}

/// What the call moved in which it slept.
fn transfer<'w>(world: &'w World, thread: ThreadId, off: &Off) -> Option<&'w Io> {
    match tile::call_at(world.thread(thread), off.end_ns) {
        InCall::Closed(call) => call.io.as_ref(),
        _ => None,
    }
}

/// The address of who is at the other end of the network connection.
fn peer(world: &World, io: &Io) -> Option<SocketAddr> {
    let [from, to] = world.channels.get(&io.object)?.ends?;
    Some(if io.is_write { to } else { from })
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
    let closed = tile::call_at(world.thread(thread), off.end_ns);
    match (closed, call.object) {
        (InCall::Closed(call), _) if call.path.is_some() => tile::describe_call(call),
        (_, Some(object)) => format!("{} {object}", syscall::name(call.nr)),
        (InCall::Closed(call), None) => tile::describe_call(call),
        _ => syscall::name(call.nr).into_owned(),
    }
}

/// The kernel lock the sleep was for: it lies within a contention.
pub(super) fn kernel_lock(world: &World, thread: ThreadId, off: &Off) -> Option<&'static str> {
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

/// Whether the thread was told to pause since it last ran before this sleep.
pub(super) fn throttled(world: &World, thread: ThreadId, off: &Off) -> bool {
    let t = world.thread(thread);
    let told = last_before(&t.throttles, |at_ns| *at_ns <= off.start_ns);
    let Some(&told_ns) = told else { return false };
    let former = t.off_before(off.start_ns).map_or(0, |former| former.end_ns);
    // The pause itself: for a given time, counted as a wait for a device (io_schedule_timeout()). Some
    // are told and not made.
    let paused = matches!(off.why, Why::Slept { uninterruptible: true, iowait: true });
    told_ns >= former && paused && off.wake.is_none_or(|wake| wake.by_interrupt())
}

/// The wait for a block request in its parts.
fn block_parts(
    category: Category,
    block: &Block,
    name: &str,
    from_ns: u64,
    to_ns: u64,
) -> Vec<Part> {
    let borders = [
        (block.queued_ns, "before it was queued"),
        (block.issued_ns, "queue"),
        (block.done_ns, "service"),
        (u64::MAX, "completion"),
    ];
    let mut parts = Vec::new();
    let mut at_ns = from_ns;
    for (border_ns, cause) in borders {
        let end_ns = border_ns.clamp(at_ns, to_ns);
        if at_ns < end_ns {
            parts.push(Part {
                from_ns: at_ns,
                to_ns: end_ns,
                category,
                detail: format!("{block}, in {name}"),
                cause: Some(cause.into()),
                by: None,
            });
        }
        at_ns = end_ns;
    }
    parts
}

/// What a journal's thread did in `[from_ns, to_ns)`: the transaction; phases and device time.
fn commit(
    world: &World,
    journal_thread: ThreadId,
    from_ns: u64,
    to_ns: u64,
) -> (String, Option<String>) {
    let journal = &world.journals[&journal_thread];
    let mut spent: Vec<(&'static str, u64)> = Vec::new();
    let mut transaction = None;
    let mut at_ns = from_ns;
    let first = count_before(&journal.phases, |(since_ns, ..)| *since_ns <= from_ns);
    for index in first.saturating_sub(1)..journal.phases.len() {
        let (since_ns, number, phase) = journal.phases[index];
        if since_ns >= to_ns {
            break;
        }
        let until_ns = journal.phases.get(index + 1).map_or(to_ns, |next| next.0.min(to_ns));
        let begin_ns = since_ns.max(from_ns);
        if begin_ns > at_ns {
            add(&mut spent, "between commits", begin_ns - at_ns);
        }
        let name = match phase {
            1 => "starting",
            2 => "locking",
            3 => "flushing",
            4 => "logging and callbacks", // no tracepoint tells where these begin
            _ => "between commits",
        };
        add(&mut spent, name, until_ns.saturating_sub(begin_ns));
        at_ns = until_ns;
        if phase != 5 {
            transaction = Some(number);
        }
    }
    if at_ns < to_ns {
        add(&mut spent, "between commits", to_ns - at_ns);
    }
    let whole_ns = (to_ns - from_ns).max(1);
    let share = |ns: u64| percent(ns, whole_ns);
    let mut phrases: Vec<String> =
        spent.iter().map(|(name, ns)| format!("{name} {} %", share(*ns))).collect();
    let (device_ns, started_by) = device_time(world, journal_thread, from_ns, to_ns);
    phrases.push(format!("its device {} %", share(device_ns)));
    if let Some(by) = started_by {
        phrases.push(format!("asked for by {by}"));
    }
    let (major, minor) = (journal.dev >> 20, journal.dev & 0xf_ffff);
    let detail = match transaction {
        Some(number) => format!("commit of transaction {number} on {major}:{minor}"),
        None => format!("commit on {major}:{minor}"),
    };
    (detail, Some(phrases.join(", ")))
}

/// How long a journal's thread waited for its device, and who last woke it to commit.
fn device_time(
    world: &World,
    journal_thread: ThreadId,
    from_ns: u64,
    to_ns: u64,
) -> (u64, Option<String>) {
    let t = world.thread(journal_thread);
    let mut device_ns = 0;
    let mut started_by = None;
    // One after that rests: it has no time of its own in there.
    for off in latest_before(&t.off, |off| off.start_ns < to_ns) {
        let overlap_ns = off.end_ns.min(to_ns).saturating_sub(off.start_ns.max(from_ns));
        let Why::Slept { uninterruptible, .. } = off.why else { continue };
        if uninterruptible {
            if off.wake.is_some_and(|wake| wake.block != 0) {
                device_ns += overlap_ns;
            }
        } else if off.start_ns < to_ns {
            // Its own rest ended: somebody asked for a commit, or the timer did.
            started_by = off.wake.map(|wake| match wake.by_waker() {
                true => {
                    let waker = world.thread(wake.waker);
                    format!("{}/{}", waker.name_at(wake.at_ns), waker.tid)
                }
                false => "the commit timer".into(),
            });
            break;
        }
    }
    (device_ns, started_by)
}

fn add(list: &mut Vec<(&'static str, u64)>, name: &'static str, ns: u64) {
    match list.iter_mut().find(|(known, _)| *known == name) {
        _ if ns == 0 => {}
        Some((_, sum)) => *sum += ns,
        None => list.push((name, ns)),
    }
}

fn percent(part_ns: u64, whole_ns: u64) -> u64 {
    (u128::from(part_ns) * 100 / u128::from(whole_ns)) as u64
}

/// How a thread spent an interval, in one phrase.
pub fn activity(world: &World, thread: ThreadId, from_ns: u64, to_ns: u64) -> String {
    let t = world.thread(thread);
    let off_ns: u64 = t
        .off
        .iter()
        .rev()
        .take_while(|off| off.end_ns > from_ns)
        .map(|off| off.end_ns.min(to_ns).saturating_sub(off.start_ns.max(from_ns)))
        .fold(0, u64::saturating_add);
    let whole_ns = (to_ns - from_ns).max(1);
    let percent = percent(whole_ns.saturating_sub(off_ns), whole_ns);
    format!("{} on CPU {percent} % of the time", t.name_at(to_ns))
}

fn is_jbd2(world: &World, thread: ThreadId, at_ns: u64) -> bool {
    let t = world.thread(thread);
    t.kthread && t.name_at(at_ns).starts_with("jbd2/")
}
