//! Consecutive waits for one futex. A thread that waits with a timeout checks, when the timeout expires, whether it may
//! go on; otherwise it waits for the same futex again. HotSpot's monitors do this (ObjectMonitor::EnterI, with timeouts
//! of a millisecond and more). All of these waits are for what ends the last one.

use crate::classify::syscall::{self, Waits};
use crate::event::OpenCall;
use crate::timeline::futex_roles::condition;
use crate::timeline::gallop::count_before;
use crate::timeline::{Off, ThreadId, Why, World};

/// Limit of the waits of a series that are followed, so that the cost of a thread that only waits stays linear.
/// HotSpot's timeouts grow to a second, so its series are shorter.
const MOST_WAITS: usize = 64;

/// The condition that a call waits for, if the call waits for a futex.
fn waited_for(call: Option<&OpenCall>) -> Option<u64> {
    call.filter(|call| syscall::waits(call.nr, call.object) == Waits::Futex).and_then(condition)
}

/// The last wait of the series that `off` belongs to, if another thread ended that wait. The thread's sleeps in the
/// series are for the same futex, and the thread made only futex calls in between.
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
