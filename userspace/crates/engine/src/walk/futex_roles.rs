//! Decides whether a wake-up only released a lock. The path through such a waker may belong to another
//! request, so it is not followed at first.

use crate::event::TaskWaitSort;
use crate::task_wait::task_wait;
use crate::walk::*;

impl Walk<'_> {
    /// Whether the waker of a futex wait is being explored, which may only have released a lock. A path that leads
    /// through answers to other requests is then not this request's.
    pub(super) fn doubts(&self) -> bool {
        self.attempts.strict && self.search.futexes > 0 && !self.goal.messages.is_empty()
    }

    /// Whether the futex of a wait that `wake` ended is a lock: by its convention, as an interpreter's, or, while the lock rules
    /// are on, by its use. Of the wait of a runtime's task the runtime says what it is for.
    pub(super) fn is_lock(&self, thread: ThreadId, call: &OpenCall, wake: &Wake) -> bool {
        // A runtime works for all of a program's tasks, whichever wakes the one that waits for it.
        if let Some(wait) = task_wait(call.nr) {
            return matches!(wait.sort(), TaskWaitSort::Lock | TaskWaitSort::Runtime(_));
        }
        let futexes = &self.world.process_of(thread).futexes;
        let looks_so = || {
            waits(call.nr, call.object) == Waits::Futex
                && (futexes.lets_go(call, wake)
                    || service_start::busy_with_another(
                        self.world, self.goal, wake.waker, wake.at_ns,
                    ))
        };
        let known = call.lock().is_some() || futexes.is_interpreters(call);
        known || self.attempts.strict && looks_so()
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
