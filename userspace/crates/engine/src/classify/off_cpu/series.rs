//! Waits for a futex that come one after the other: a thread that waits with a timeout looks, as that is over, whether it may
//! go on, and else waits for the same again. HotSpot's monitors do (ObjectMonitor::EnterI, a timeout of a millisecond
//! and more). All of these wait for what ends the last.

use crate::classify::syscall::{self, Waits};
use crate::event::OpenCall;
use crate::timeline::futex_roles::condition;
use crate::timeline::gallop::count_before;
use crate::timeline::{Off, ThreadId, Why, World};

/// Waits that a series is followed through: the cost of a thread that only waits, again and again, stays linear. HotSpot's
/// timeouts grow to a second, so that no series of its has as many.
const MOST_WAITS: usize = 64;

/// The condition that a call waits for, if it is a futex.
fn waited_for(call: Option<&OpenCall>) -> Option<u64> {
    call.filter(|call| syscall::waits(call.nr, call.object) == Waits::Futex).and_then(condition)
}

/// The last of a series of waits that `off` belongs to, if another thread ended that: the next sleeps of the thread are for
/// the same futex, and in between it called for nothing else.
pub(super) fn woken_later<'w>(world: &'w World, thread: ThreadId, off: &Off) -> Option<&'w Off> {
    let t = world.thread(thread);
    let condition = waited_for(off.call.as_ref())?;
    let next = count_before(&t.off, |other| other.start_ns <= off.start_ns);
    let mut since_ns = off.end_ns;
    let sleeps = t.off.range(next..).filter(|later| matches!(later.why, Why::Slept { .. }));
    for later in sleeps.take(MOST_WAITS) {
        let first = count_before(&t.calls, |call| call.enter_ns < since_ns);
        let between = t.calls.range(first..).take_while(|call| call.enter_ns < later.start_ns);
        let mut others = between.filter(|call| syscall::waits(call.nr, None) != Waits::Futex);
        if waited_for(later.call.as_ref()) != Some(condition) || others.next().is_some() {
            return None;
        }
        if later.wake.is_some_and(|wake| wake.by_waker()) {
            return Some(later);
        }
        since_ns = later.end_ns;
    }
    None
}
