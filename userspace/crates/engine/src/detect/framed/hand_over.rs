//! Answers that one thread of the client reads and hands to another thread, which asked and sleeps.

use crate::classify::syscall::{waits, Waits};
use crate::event::{Io, TYPE_EVENTFD};
use crate::ownership::handed::is_task;
use crate::timeline::gallop::count_before;
use crate::timeline::{Thread, ThreadId, Transfer, Why, World, NEVER};

/// Limit of asking threads that are remembered. A client asks with fewer.
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

    /// Whether the thread asks on the connection. If there are so many that not all are known, any thread may be one of
    /// them.
    fn has(&self, thread: ThreadId) -> bool {
        self.0.len() == MOST_ASKERS || self.0.binary_search(&thread).is_ok()
    }
}

/// What became of an answer in its client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HandOver {
    /// The thread that reads wakes the thread that asked, which is on a CPU at `at_ns`.
    To { thread: ThreadId, at_ns: u64 },
    /// Nothing shows a hand-over.
    None,
    /// A hand-over may still come.
    NotYet,
}

/// Whether the thread that received an answer handed it, by a wake-up, to the thread that had asked and sleeps since.
/// This is found only for threads that do nothing but read: where any thread does any work (as in Go), a woken thread
/// need not be the thread that the answer is for. `late`: what has not come yet never will.
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
    if is_task(world, received.thread) && gave_another(reader, received.exit_ns, sent.thread) {
        return HandOver::None;
    }
    // A reader that goes to sleep for more messages has handed over all answers.
    let after = count_before(&reader.off, |off| off.start_ns <= received.exit_ns);
    let rests_ns = reader.off.range(after..).find_map(|off| {
        let waits = off.call.map(|call| waits(call.nr, call.object));
        matches!(waits, Some(Waits::Readiness | Waits::Peer)).then_some(off.start_ns)
    });
    let not_yet = match late || rests_ns.is_some() {
        true => HandOver::None,
        false => HandOver::NotYet,
    };

    // The asker went to sleep after it had asked, and comes back after the answer came.
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
    let by_futex = off.call.is_some_and(|call| waits(call.nr, call.object) == Waits::Futex);
    if by_futex && told_another(reader, received.exit_ns, wake.at_ns) {
        return HandOver::None;
    }
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

/// Whether a task that received an answer has given it to another task than `asker`: the first task that it woke then.
/// A client of Go's net/http has one task that writes and one that reads for each connection, and the answer is for
/// neither.
fn gave_another(reader: &Thread, received_ns: u64, asker: ThreadId) -> bool {
    let since = count_before(&reader.woke, |(at_ns, _)| *at_ns < received_ns);
    reader.woke.get(since).is_some_and(|(_, to)| *to != asker)
}

/// Whether a thread that received an answer has notified a thread by an eventfd, and slept since. A thread that it
/// wakes by a futex after that is woken for something else. (The first request on a gRPC connection is sent by the
/// library's thread that opened the connection, which then waits for any available work.)
fn told_another(reader: &Thread, received_ns: u64, woke_ns: u64) -> bool {
    let after = count_before(&reader.calls, |call| call.enter_ns < received_ns);
    let writes_eventfd = |io: &Io| io.is_write && io.object.type_bits == TYPE_EVENTFD;
    let told = (reader.calls.range(after..))
        .take_while(|call| call.exit_ns <= woke_ns)
        .find(|call| call.transfers().any(writes_eventfd));
    told.is_some_and(|told| {
        let after = count_before(&reader.off, |off| off.start_ns < told.exit_ns);
        let mut off = reader.off.range(after..).take_while(|off| off.end_ns <= woke_ns);
        off.any(|off| matches!(off.why, Why::Slept { .. }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Call, Event, Object, OpenCall, What, TYPE_FUTEX};
    use crate::send_limit::SendLimit;

    const NR_WRITE: u16 = 1;
    const NR_FUTEX: u16 = 202;

    fn transfer(thread: ThreadId, enter_ns: u64, exit_ns: u64) -> Transfer {
        let unsent = SendLimit::default();
        Transfer { from: 0, to: 4, thread, enter_ns, exit_ns, empty: false, unsent }
    }

    fn futex(enter_ns: u64) -> Option<OpenCall> {
        let object = Some(Object { dev: 137, ino: 0x1000, type_bits: TYPE_FUTEX });
        Some(OpenCall { nr: NR_FUTEX, enter_ns, fd: 0, object })
    }

    fn switch(prev: u32, next: u32, call: Option<OpenCall>) -> What {
        let (waited_ns, state, preempt, iowait) = (None, 1, false, false);
        What::Switch { prev, next, waited_ns, state, preempt, iowait, call }
    }

    /// Thread 10 asks and sleeps; 11 reads the answer until 50, perhaps writes to an eventfd, sleeps from 60 to
    /// 85, and wakes 10, which has a CPU at 95.
    fn woken_late(tells: bool) -> HandOver {
        let mut world = World::new(2, 0);
        let mut at = |ts_ns, cpu, what| world.apply(&Event { ts_ns, cpu, what });
        for tid in [10, 11] {
            at(0, 0, What::Task { tid, tgid: 10, kthread: false, comm: "client".into() });
        }
        at(1, 0, switch(0, 10, None));
        at(1, 1, switch(0, 11, None));
        at(30, 0, switch(10, 0, futex(25)));
        if tells {
            let object = Object { dev: 0, ino: 7, type_bits: TYPE_EVENTFD };
            let io = Io {
                object,
                fd: 5,
                is_write: true,
                offset: 0,
                bytes: 1,
                reverse: None,
                empty: false,
                socket: 0,
                unsent: SendLimit::default(),
            };
            let call = Call { io: Some(io), ..Call::new(NR_WRITE, (52, 55), 8) };
            at(55, 1, What::Call { tid: 11, call });
        }
        at(60, 1, switch(11, 0, futex(58)));
        at(85, 1, switch(0, 11, None));
        at(90, 1, What::Waking { waker: 11, wakee: 10, flags: 0, block: 0 });
        at(95, 0, switch(0, 10, None));
        let thread = |tid| world.thread_by_tid(tid).expect("known");
        let (asker, reader) = (thread(10), thread(11));
        let mut askers = Askers::default();
        askers.note(asker);
        let (sent, received) = (transfer(asker, 10, 20), transfer(reader, 40, 50));
        hand_over(&world, &askers, &sent, &received, true)
    }

    #[test]
    fn who_slept_after_telling_another_wakes_the_sender_for_something_else() {
        let handed = |tells| match woken_late(tells) {
            HandOver::To { at_ns, .. } => Some(at_ns),
            _ => None,
        };
        assert_eq!((handed(false), handed(true)), (Some(95), None));
    }
}
