//! Rests that end without bytes: somebody handed over what the thread waited for, and says so by a signal or through an
//! object that only counts.

use super::{became_ready, Wait};
use crate::classify::on_cpu::{call_at, InCall};
use crate::classify::syscall::{self, Waits};

impl Wait<'_> {
    /// How a thread that waited until something was ready was told, if that was not by bytes. PostgreSQL's latches, for its locks
    /// among others, are set by kill() and waited for with a signalfd (src/backend/storage/ipc/latch.c).
    pub(super) fn handed_over(&self) -> Option<String> {
        let call = self.off.call.filter(|_| self.by_waker)?;
        if syscall::waits(call.nr, call.object) != Waits::Readiness {
            return None;
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
        let counts = ready.object.type_bits == 0;
        counts.then(|| format!("{} was ready", ready.object))
    }
}
