//! When the bytes that a thread read had arrived.

use crate::classify::syscall::{waits, Waits};
use crate::event::{Call, Object};
use crate::timeline::gallop::latest_before;
use crate::timeline::{ThreadId, Why, World};

/// When the first byte of this read arrived, as far as it is known. If the arrival was not reported (for TCP it is): at
/// the wake-up, if the thread slept for the byte in the read or in the poll before it; otherwise by the begin of the
/// read.
pub(super) fn arrival_ns(
    world: &World,
    thread: ThreadId,
    call: &Call,
    (object, byte): (Object, u64),
) -> u64 {
    let told_ns = world.channels.get(&object).and_then(|channel| channel.arrived_ns(byte));
    if let Some(told_ns) = told_ns {
        return told_ns.min(call.exit_ns);
    }
    let t = world.thread(thread);
    let Some(off) = t.off_before(call.exit_ns) else { return call.enter_ns };
    let (Why::Slept { uninterruptible: false, .. }, Some(open)) = (off.why, off.call) else {
        return call.enter_ns;
    };
    let polled = waits(open.nr, None) == Waits::Readiness;
    // A poll may have reported several descriptors. If the thread read in between, an earlier one had ended the poll.
    let first = || {
        let calls = latest_before(&t.calls, |other| other.enter_ns < call.enter_ns);
        !{ calls }
            .take_while(|other| other.enter_ns >= off.end_ns)
            .any(|other| other.transfers().any(|io| !io.is_write))
    };
    if off.start_ns >= call.enter_ns || (polled && first()) {
        return off.runnable_ns().unwrap_or(call.enter_ns);
    }
    call.enter_ns
}
