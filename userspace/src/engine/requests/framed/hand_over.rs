//! Answers that one thread of the client reads and hands to another, which has asked and sleeps.

use crate::engine::syscall::{waits, Waits};
use crate::engine::world::{Off, ThreadId, Transfer, Why, World, NEVER};

/// More threads than any client asks with are not remembered.
const MOST_ASKERS: usize = 4096;

/// The threads that ask on a connection.
#[derive(Debug, Default)]
pub(super) struct Askers(Vec<ThreadId>);

impl Askers {
    pub(super) fn note(&mut self, asker: ThreadId) {
        if let Err(at) = self.0.binary_search(&asker) {
            if self.0.len() < MOST_ASKERS {
                self.0.insert(at, asker);
            }
        }
    }

    fn has(&self, thread: ThreadId) -> bool {
        self.0.binary_search(&thread).is_ok()
    }
}

/// What became of an answer in its client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HandOver {
    /// The thread that reads wakes the one that asked, which comes on a CPU then.
    To { thread: ThreadId, at_ns: u64 },
    /// Nothing tells of one.
    None,
    /// It may still come.
    NotYet,
}

/// Whether the thread that received an answer handed it to the one that had asked and sleeps since, by
/// waking it. Only of threads that do nothing but read: where any thread does any work (as in Go), one
/// that is woken need not be the one the answer is for. `late`: what has not come yet never will.
pub(super) fn hand_over(
    world: &World,
    askers: &Askers,
    sent: &Transfer,
    received: &Transfer,
    late: bool,
) -> HandOver {
    let (asker, reader) = (world.thread(sent.thread), world.thread(received.thread));
    if askers.has(received.thread) || asker.process != reader.process {
        return HandOver::None;
    }
    // Who goes to sleep for more messages has told everybody.
    let awaits_more = |off: &Off| {
        let waits = off.call.map(|call| waits(call.nr, call.object));
        off.start_ns > received.exit_ns && matches!(waits, Some(Waits::Readiness | Waits::Peer))
    };
    let over = late || reader.off.back().is_some_and(awaits_more);
    let not_yet = if over { HandOver::None } else { HandOver::NotYet };

    // It went to sleep after it had asked, and comes back after the answer came.
    let mut sleeps = asker.off.iter().filter(|off| {
        let slept = matches!(off.why, Why::Slept { .. }) && off.start_ns >= sent.exit_ns;
        slept && off.end_ns > received.exit_ns
    });
    let Some(off) = sleeps.next() else { return not_yet };
    let for_another = off.call.is_some_and(|call| {
        let kind = waits(call.nr, call.object);
        matches!(kind, Waits::Futex | Waits::Readiness | Waits::Peer) && call.lock().is_none()
    });
    if !for_another {
        return HandOver::None;
    }
    let Some(wake) = off.wake else { return not_yet };
    let by_reader = wake.by_waker() && wake.waker == received.thread;
    match (by_reader && wake.at_ns >= received.exit_ns, off.end_ns) {
        (false, _) => HandOver::None,
        (true, NEVER) if late => HandOver::None,
        (true, NEVER) => HandOver::NotYet,
        (true, at_ns) => HandOver::To { thread: sent.thread, at_ns },
    }
}
