//! Which thread or task handed a thread its work in memory.
//!
//! A thread that has taken in nothing itself works on what it was woken for. Of threads only one step is believed:
//! which thread of a runtime wakes which other thread often depends on nothing but how many there are. Followed tasks
//! wake each other by what they send, so their path is followed from one task to the next, up to a task that has taken
//! something in. For example, a client of Go's net/http has one task that writes and one that reads for each
//! connection, and handlers start tasks of their own.

use crate::classify::syscall::{waits, Waits};
use crate::ownership::marks::MarkKind;
use crate::task_wait::task_wait;
use crate::timeline::gallop::{count_before, latest_before};
use crate::timeline::{Off, Thread, ThreadId, Wake, Why, World};
use rpcprobe_model::FIRST_RUNTIME_TASK;
use rpcprobe_record::TaskWaitSort;

/// Limit of the steps from one task to the next, and of the sleeps that are examined for each.
const MOST_STEPS: usize = 8;
const MOST_SLEEPS: usize = 64;
/// Limit of the wake-ups that are examined of those that woke a task before it ran: the last ones.
pub const MOST_RIVALS: usize = 64;

/// The thread or task that woke a thread for what it does at `at_ns`, and when: since `since_ns`, when the thread did
/// something else. `several`: the result of [`handed_by_several`] for this; if it has any, the last of them is
/// returned.
pub fn handed_by(
    world: &World,
    (id, since_ns, at_ns): (ThreadId, u64, u64),
    several: &[(ThreadId, u64)],
) -> Option<(ThreadId, u64)> {
    let last = several.last().copied();
    last.or_else(|| step(world, id, since_ns, at_ns).map(|(by, woke_ns, _)| (by, woke_ns)))
}

/// All tasks that woke a task before it ran and did what it does at `at_ns`, if there are several: what it does may be
/// for any of them. In order of time.
pub fn handed_by_several(
    world: &World,
    id: ThreadId,
    since_ns: u64,
    at_ns: u64,
) -> Vec<(ThreadId, u64)> {
    if world.thread(id).woken_again.is_empty() {
        return Vec::new();
    }
    let Some((off, wake)) = woken_in(world, id, since_ns, at_ns) else { return Vec::new() };
    let since_ns = woken_since_ns(world.thread(id), off, &wake);
    let mut by = vec![(wake.waker, handed_ns(world, id, (since_ns, off), &wake))];
    let later = again(world, id, (since_ns, at_ns)).filter(|(waker, _)| *waker != wake.waker);
    by.extend(later.rev().take(MOST_RIVALS));
    by[1..].reverse();
    match by.len() {
        1 => Vec::new(),
        _ => by,
    }
}

/// The tasks that woke a task again between `start_ns`, the begin of a sleep, and `end_ns`; and when.
pub fn again<'w>(
    world: &'w World,
    id: ThreadId,
    (start_ns, end_ns): (u64, u64),
) -> impl DoubleEndedIterator<Item = (ThreadId, u64)> + 'w {
    let thread = world.thread(id);
    let first = count_before(&thread.woken_again, |(at_ns, _)| *at_ns < start_ns);
    let until = count_before(&thread.woken_again, |(at_ns, _)| *at_ns <= end_ns).max(first);
    let later = thread.woken_again.range(first..until);
    let hands = move |waker: ThreadId| {
        let by = world.thread(waker);
        waker != id && by.process == thread.process && !by.marks.is_clients()
    };
    later.filter(move |(_, waker)| hands(*waker)).map(|(at_ns, waker)| (*waker, *at_ns))
}

/// The time since which wake-ups count for what a task does after a sleep: since the sleep began. If the task was woken
/// while it still ran, so that the sleep ended at once: since it began to run.
pub fn woken_since_ns(thread: &Thread, off: &Off, wake: &Wake) -> u64 {
    if wake.at_ns > off.start_ns {
        return off.start_ns;
    }
    let before = latest_before(&thread.off, |before| before.start_ns < off.start_ns);
    let mut before = before.filter(|before| before.why != Why::Preempted);
    before.next().map_or(0, |before| before.end_ns)
}

/// The last rest of a thread, before `at_ns` and since `since_ns`, in which it waited for anything but locks, time and
/// what it had begun itself, if it had one; outer `None`: it had too many sleeps to decide.
pub fn rested_for_work(
    world: &World,
    id: ThreadId,
    (since_ns, at_ns): (u64, u64),
) -> Option<Option<&Off>> {
    let slept = latest_before(&world.thread(id).off, |off| off.start_ns < at_ns);
    let mut slept = slept.take_while(|off| off.end_ns > since_ns).take(MOST_SLEEPS);
    let is_own = |off: &Off| match is_task(world, id) {
        true => is_own(off),
        false => is_own_of_thread(world, id, off),
    };
    let (mut count, is_rest) = (0, |off: &&Off| off.why != Why::Preempted && !is_own(off));
    let rest = slept.by_ref().inspect(|_| count += 1).find(is_rest);
    (rest.is_some() || count < MOST_SLEEPS).then_some(rest)
}

/// Whether what a thread or task waits for may be handed to it. For a thread, this is a futex that is not known to be a
/// lock.
pub fn may_be_handed(world: &World, id: ThreadId, off: &Off) -> bool {
    if is_task(world, id) {
        return hands(off) && off.why != Why::Born;
    }
    let futex = off.call.is_some_and(|call| waits(call.nr, call.object) == Waits::Futex);
    futex && matches!(off.why, Why::Slept { .. }) && !is_own_of_thread(world, id, off)
}

/// Whether a thread waited for a known lock, for time to pass, or in a read for an answer.
fn is_own_of_thread(world: &World, id: ThreadId, off: &Off) -> bool {
    let Some(call) = off.call else { return false };
    let futexes = &world.process_of(id).futexes;
    let has_asked = || {
        let marks = &world.thread(id).marks.list;
        let last = count_before(marks, |mark| mark.exit_ns <= off.start_ns).checked_sub(1);
        last.is_some_and(|last| matches!(marks[last].kind, MarkKind::Asks | MarkKind::Hears))
    };
    let lets_go = || off.wake.is_some_and(|wake| futexes.lets_go(&call, &wake));
    match waits(call.nr, call.object) {
        Waits::Timer => true,
        Waits::Futex => call.lock().is_some() || futexes.is_interpreters(&call) || lets_go(),
        Waits::Peer => has_asked(),
        _ => false,
    }
}

/// The only waker of a thread for what it does at `at_ns`, or else its maker; when; and whether the wake-up was the
/// thread's birth.
fn step(world: &World, id: ThreadId, since_ns: u64, at_ns: u64) -> Option<(ThreadId, u64, bool)> {
    woken_by(world, id, since_ns, at_ns).or_else(|| {
        let (maker, born_ns) = made_for(world, id, since_ns, at_ns)?;
        Some((maker, born_ns, false))
    })
}

/// The maker of a task that was made asleep and has not slept again since, and when. The task works for whatever its
/// maker worked for.
pub fn made_for(world: &World, id: ThreadId, since_ns: u64, at_ns: u64) -> Option<(ThreadId, u64)> {
    let thread = world.thread(id);
    let maker = thread.made_by.filter(|_| is_task(world, id) && thread.was_made_asleep())?;
    let mut later = thread.off.iter().take_while(|off| off.start_ns < at_ns);
    let born = later.next().filter(|off| off.end_ns > since_ns && off.end_ns <= at_ns)?;
    let has_slept = later.any(|off| off.why != Why::Preempted);
    (born.why == Why::Born && !has_slept).then_some((maker, thread.born_ns))
}

fn woken_by(
    world: &World,
    id: ThreadId,
    since_ns: u64,
    at_ns: u64,
) -> Option<(ThreadId, u64, bool)> {
    let (off, wake) = woken_in(world, id, since_ns, at_ns)?;
    let since_ns = woken_since_ns(world.thread(id), off, &wake);
    let alone = again(world, id, (since_ns, at_ns)).all(|(waker, _)| waker == wake.waker);
    let handed_ns = handed_ns(world, id, (since_ns, off), &wake);
    alone.then_some((wake.waker, handed_ns, off.why == Why::Born))
}

/// When a task was woken. A wake-up while the task still ran is reported when the task parks; this is the earlier time.
/// `since_ns`: [`woken_since_ns`].
fn handed_ns(world: &World, id: ThreadId, (since_ns, off): (u64, &Off), wake: &Wake) -> u64 {
    let mut early = again(world, id, (since_ns, off.start_ns.min(wake.at_ns)));
    let early = early.find(|(waker, _)| *waker == wake.waker);
    early.map_or(wake.at_ns, |(_, at_ns)| at_ns)
}

/// The sleep from which a thread was woken for what it does at `at_ns`, and the wake-up.
fn woken_in(world: &World, id: ThreadId, since_ns: u64, at_ns: u64) -> Option<(&Off, Wake)> {
    let thread = world.thread(id);
    let slept = latest_before(&thread.off, |off| off.start_ns < at_ns);
    let slept = slept.take_while(|off| off.end_ns > since_ns && off.end_ns <= at_ns);
    let task = is_task(world, id);
    // A task that opens connections, or asks and hears on them, only hands on connections and answers.
    let by_client = |off: &Off| {
        let waker = off.wake.map(|wake| world.thread(wake.waker));
        task && waker.is_some_and(|waker| waker.marks.is_clients())
    };
    // A task that it has begun itself, or a callback of that task, only reports that it is done.
    let by_own = |off: &Off| {
        off.why != Why::Born
            && off.wake.is_some_and(|wake| world.thread(wake.waker).made_by == Some(id))
    };
    // It may have lost its CPU since.
    let is_other =
        |off: &Off| off.why == Why::Preempted || is_own(off) || by_client(off) || by_own(off);
    let most = if task { MOST_SLEEPS } else { usize::MAX };
    let off = slept.take(most).find(|off| !is_other(off))?;
    if task && !hands(off) {
        return None;
    }
    let wake = off.wake.filter(|wake| wake.by_waker() && wake.waker != id)?;
    (world.thread(wake.waker).process == thread.process).then_some((off, wake))
}

/// The tasks through which a task was handed what it does at `at_ns`, the last first; for a thread, none. One of them
/// may have been begun for this. A task that was begun by a task that was itself begun may be there for anything: the
/// task that opens a connection of a pool begins the task that writes to it, and the first request that comes gets it.
/// A task that takes in questions itself was not handed what it hands on.
pub fn handed_through(
    world: &World,
    id: ThreadId,
    (since_ns, at_ns): (u64, u64),
) -> impl Iterator<Item = (ThreadId, u64)> + '_ {
    let from = is_task(world, id).then_some((id, since_ns, at_ns, false));
    let steps = std::iter::successors(from, move |&(of, since_ns, at_ns, begun)| {
        if of != id && world.thread(of).marks.takes_questions() {
            return None;
        }
        let (by, woke_ns, born) = step(world, of, since_ns, at_ns)?;
        (is_task(world, by) && !(begun && born)).then_some((by, 0, woke_ns, begun || born))
    });
    steps.skip(1).take(MOST_STEPS).map(|(id, _, at_ns, _)| (id, at_ns))
}

/// The tasks or threads that `reader` woke between `heard_ns`, when it had heard an answer, and its next message: these
/// were given the answer. In order of time, and when.
pub fn handed_back(
    world: &World,
    (reader, heard_ns): (ThreadId, u64),
) -> impl Iterator<Item = (ThreadId, u64)> + '_ {
    let thread = world.thread(reader);
    let marks = &thread.marks.list;
    let next = marks.get(count_before(marks, |mark| mark.exit_ns <= heard_ns));
    let until_ns = next.map_or(u64::MAX, |mark| mark.exit_ns);
    let first = count_before(&thread.woke, |(at_ns, _)| *at_ns < heard_ns);
    let woke = thread.woke.range(first..).take_while(move |(at_ns, _)| *at_ns < until_ns);
    let was_handed = move |at_ns: u64, wakee: ThreadId| {
        let slept = world.thread(wakee).off_before(at_ns.saturating_add(1));
        let waited = |off: &Off| match is_task(world, wakee) {
            true => off.end_ns < at_ns || hands(off),
            false => off.end_ns >= at_ns && may_be_handed(world, wakee, off),
        };
        wakee != reader && slept.is_some_and(waited)
    };
    let woke = woke.take(if is_task(world, reader) { usize::MAX } else { MOST_RIVALS });
    woke.filter(move |(at_ns, wakee)| was_handed(*at_ns, *wakee)).map(|(at_ns, id)| (*id, *at_ns))
}

/// Whether `giver` woke a thread between `since_ns` and what the thread does at `at_ns`, and the thread moved no message in
/// between; or, for a task, whether this holds of the task or thread that woke it for that.
pub fn was_given_by(
    world: &World,
    giver: ThreadId,
    (since_ns, at_ns): (u64, u64),
    asker: ThreadId,
) -> bool {
    let (mut id, mut at_ns) = (asker, at_ns);
    for _ in 0..MOST_STEPS {
        let thread = world.thread(id);
        let marks = &thread.marks.list;
        let last = count_before(marks, |mark| mark.exit_ns <= at_ns).checked_sub(1);
        let from_ns = last.map_or(since_ns, |last| marks[last].exit_ns.max(since_ns));
        let slept = latest_before(&thread.off, |off| off.end_ns <= at_ns);
        let slept = slept.take(MOST_SLEEPS).take_while(|off| off.end_ns >= from_ns);
        let mut wakes = slept
            .filter_map(|off| off.wake)
            .filter(|wake| wake.by_waker() && wake.at_ns >= from_ns);
        let Some(last) = wakes.next() else { return false };
        if last.waker == giver || wakes.any(|wake| wake.waker == giver) {
            return true;
        }
        if !is_task(world, id) {
            return false;
        }
        (id, at_ns) = (last.waker, last.at_ns);
    }
    false
}

/// Whether the thread is a task of a runtime.
pub fn is_task(world: &World, id: ThreadId) -> bool {
    world.thread(id).tid >= FIRST_RUNTIME_TASK
}

/// Whether a task's wait ends by something that another task hands over, or is its birth. Of a wait that had begun
/// before the capture nothing else is known, so it counts.
pub fn hands(off: &Off) -> bool {
    let sort = off.call.and_then(|call| task_wait(call.nr)).map(|wait| wait.sort());
    match off.why {
        Why::Born => true,
        Why::Slept { .. } => off.call.is_none() || sort == Some(TaskWaitSort::Channel),
        _ => false,
    }
}

/// Whether a task waits for room in a channel, to give something to another task.
pub fn waits_for_room(off: &Off) -> bool {
    let wait = off.call.and_then(|call| task_wait(call.nr));
    matches!(off.why, Why::Slept { .. })
        && wait.is_some_and(|wait| wait.sort() == TaskWaitSort::Room)
}

/// Whether a task's wait is part of its own work: for a lock, for time to pass, for room in a channel, or for other
/// tasks.
fn is_own(off: &Off) -> bool {
    let sort = off.call.and_then(|call| task_wait(call.nr)).map(|wait| wait.sort());
    use TaskWaitSort::{Lock, Room, Task, Timer, Waiters};
    matches!(sort, Some(Lock | Timer | Room | Task | Waiters))
}
