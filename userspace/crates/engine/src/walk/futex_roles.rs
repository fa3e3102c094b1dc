//! Decides whether a wake-up only released a lock. The path through such a waker may belong to another
//! request, so it is not followed at first.

use crate::walk::*;

impl Walk<'_> {
    /// Whether the way back leads through a wait for a futex, and who ended that may only have let go of a lock:
    /// what leads back through answers to others is then not this request's way.
    pub(super) fn doubts(&self) -> bool {
        self.strict && self.futexes > 0 && !self.goal.messages.is_empty()
    }

    /// Whether the futex that a wake-up ended the wait for is a lock: it says so, or it looks so, as long as
    /// the way back does not need it for anything else.
    pub(super) fn is_lock(&self, thread: ThreadId, call: &OpenCall, wake: &Wake) -> bool {
        let looks_so = || {
            waits(call.nr, call.object) == Waits::Futex
                && (self.world.process_of(thread).futexes.lets_go(call, wake)
                    || service_start::busy_with_another(
                        self.world, self.goal, wake.waker, wake.at_ns,
                    ))
        };
        call.lock().is_some() || self.strict && looks_so()
    }

    /// Whether what the server's thread did at that time, by which it reached another process's, was to answer
    /// another request.
    pub(super) fn answers_another(&self, thread: ThreadId, at_ns: u64, reached: ThreadId) -> bool {
        let of_server =
            |thread| Some(self.world.thread(thread).process) == self.goal.server_process;
        if !of_server(thread) || of_server(reached) {
            return false; // one that the server itself asks for this one's sake may be answered, too
        }
        let call = self.world.thread(thread).call_before(at_ns.saturating_add(1));
        call.is_some_and(|call| {
            at_ns <= call.exit_ns && !self.is_ours(call) && service_start::answers(self.world, call)
        })
    }
}
