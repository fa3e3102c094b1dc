//! Rests that end without bytes: another thread handed over what the thread waited for, and notified it by a signal or
//! through an object that only counts.

use super::{became_ready, inferred, Part, Wait};
use crate::classify::on_cpu::{call_at, InCall};
use crate::classify::syscall::{self, Waits};
use crate::timeline::gallop::count_before;
use crate::timeline::Off;
use rpcprobe_model::Category;

/// What an interrupted call returns: EINTR, or a code that restarts the call (include/linux/errno.h).
const INTERRUPTED: [i64; 5] = [-4, -512, -513, -514, -516];
/// Limit of the later rests that are examined to find what the earlier ones were for.
const MOST_RESTS: usize = 8;

impl Wait<'_> {
    /// How a thread that waited for readiness was notified, if not by bytes. PostgreSQL sets its latches, which its
    /// locks use among others, by kill() and waits for them with a signalfd (src/backend/storage/ipc/latch.c).
    pub(super) fn handed_over(&self) -> Option<String> {
        let call = self.off.call.filter(|_| self.by_waker)?;
        if syscall::waits(call.nr, call.object) != Waits::Readiness {
            return None;
        }
        if self.was_interrupted() {
            return Some("a signal".to_owned());
        }
        let (at_ns, waker) = (self.off.wake?.at_ns, self.world.thread(self.waker?));
        let woke_in = match call_at(waker, at_ns) {
            InCall::Closed(call) => Some(call.nr),
            InCall::Open { nr, .. } => Some(nr),
            InCall::No { .. } | InCall::NotYetKnown { .. } => None,
        };
        if waker.traced {
            return woke_in.filter(|nr| syscall::sends_signal(*nr)).map(|_| "a signal".to_owned());
        }
        let ready = became_ready(self.world, self.thread, self.off)?;
        ready.object.only_counts().then(|| format!("{} was ready", ready.object))
    }

    /// Whether a signal ended the rest: a thread's or, if no thread woke it, a timer's (setitimer, timer_create). A
    /// timer's signal is not what the thread waited for.
    pub(super) fn was_interrupted(&self) -> bool {
        let call = call_at(self.world.thread(self.thread), self.off.end_ns);
        matches!(call, InCall::Closed(call) if INTERRUPTED.contains(&call.ret))
    }

    /// A rest that a timer's signal interrupted. It was for what ends the next rests, if that is seen. PostgreSQL's
    /// processes use such a timer to look for deadlocks while they wait for a lock.
    pub(super) fn taken_up_again(&self, detail: String) -> Vec<Part> {
        let t = self.world.thread(self.thread);
        let next = count_before(&t.off, |other| other.start_ns <= self.off.start_ns);
        for off in t.off.range(next..).filter(|off| is_readiness(off)).take(MOST_RESTS) {
            let by_waker = off.wake.is_some_and(|wake| wake.by_waker());
            let waker = off.wake.map(|wake| wake.waker).filter(|_| by_waker);
            let later = Wait { off, waker, by_waker, name: String::new(), ..*self };
            if let Some(how) = later.handed_over() {
                let detail =
                    format!("{detail}, interrupted by a timer, until {how}: what for is not seen");
                return inferred(self.whole(Category::Lock, detail, None, waker));
            }
            if !later.was_interrupted() {
                break;
            }
        }
        let detail = format!("{detail} until a timer interrupted it: what for is not seen");
        inferred(self.whole(Category::Sleep, detail, None, None))
    }
}

fn is_readiness(off: &Off) -> bool {
    off.call.is_some_and(|call| syscall::waits(call.nr, call.object) == Waits::Readiness)
}
