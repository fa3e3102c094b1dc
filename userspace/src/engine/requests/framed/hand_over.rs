//! Answers that one thread of the client reads and hands to another, which has asked and sleeps.

use crate::engine::recent::count_before;
use crate::engine::syscall::{waits, Waits};
use crate::engine::world::{ThreadId, Transfer, Why, World, NEVER};

/// More threads than a client asks with.
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

    /// Of so many that not all are known, any may be one.
    fn has(&self, thread: ThreadId) -> bool {
        self.0.len() == MOST_ASKERS || self.0.binary_search(&thread).is_ok()
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
    let others = sent.thread == received.thread || askers.has(received.thread);
    if others || asker.process != reader.process {
        return HandOver::None;
    }
    // Who goes to sleep for more messages has told everybody.
    let after = count_before(&reader.off, |off| off.start_ns <= received.exit_ns);
    let rests_ns = reader.off.range(after..).find_map(|off| {
        let waits = off.call.map(|call| waits(call.nr, call.object));
        matches!(waits, Some(Waits::Readiness | Waits::Peer)).then_some(off.start_ns)
    });
    let not_yet = match late || rests_ns.is_some() {
        true => HandOver::None,
        false => HandOver::NotYet,
    };

    // It went to sleep after it had asked, and comes back after the answer came.
    let since = count_before(&asker.off, |off| off.start_ns < sent.exit_ns);
    let off = asker
        .off
        .range(since..)
        .find(|off| matches!(off.why, Why::Slept { .. }) && off.end_ns > received.exit_ns);
    let Some(off) = off else { return not_yet };
    let for_another = off.call.is_some_and(|call| {
        let kind = waits(call.nr, call.object);
        matches!(kind, Waits::Futex | Waits::Readiness | Waits::Peer) && call.lock().is_none()
    });
    let had = count_before(&asker.calls, |call| call.enter_ns <= received.exit_ns);
    let went_on = (asker.calls.range(had..))
        .take_while(|call| call.enter_ns < off.start_ns)
        .any(|call| call.transfers().any(|io| io.is_write));
    if !for_another || went_on {
        return HandOver::None;
    }
    let Some(wake) = off.wake else { return not_yet };
    let by_reader = wake.by_waker() && wake.waker == received.thread;
    let in_time = wake.at_ns >= received.exit_ns && rests_ns.is_none_or(|ns| wake.at_ns < ns);
    match (by_reader && in_time, off.end_ns) {
        (true, NEVER) if !late => HandOver::NotYet,
        (true, at_ns) if at_ns < NEVER && at_ns > sent.enter_ns => {
            HandOver::To { thread: sent.thread, at_ns }
        }
        _ => HandOver::None,
    }
}
