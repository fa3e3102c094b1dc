//! Decides whether a wake-up only released a lock. The path through such a waker may belong to another
//! request, so it is not followed at first.

use crate::event::TaskWaitSort;
use crate::task_wait::task_wait;
use crate::walk::*;

impl Walk<'_> {
    /// Whether the waker of a futex wait is being explored that may only have released a lock. Then a path that leads
    /// through answers to other requests does not belong to this request.
    pub(super) fn doubts(&self) -> bool {
        self.attempts.strict && self.search.futexes > 0 && !self.goal.messages.is_empty()
    }

    /// Whether the futex of a wait that `wake` ended is a lock: by its convention, as an interpreter's lock or, while
    /// the lock rules are on, by its use. For the wait of a runtime's task, the runtime says what it is for.
    pub(super) fn is_lock(&self, thread: ThreadId, call: &OpenCall, wake: &Wake) -> bool {
        if task_wait(call.nr).is_some() {
            return self.is_known_lock(thread, call);
        }
        let futexes = &self.world.process_of(thread).futexes;
        let looks_so = || {
            waits(call.nr, call.object) == Waits::Futex
                && (futexes.lets_go(call, wake)
                    || service_start::busy_with_another(
                        self.world, self.goal, wake.waker, wake.at_ns,
                    ))
        };
        self.is_known_lock(thread, call) || self.attempts.strict && looks_so()
    }

    /// Whether a futex is a lock by its convention, or as an interpreter's lock; for the wait of a runtime's task, whether
    /// the runtime says that it is for a lock.
    pub(super) fn is_known_lock(&self, thread: ThreadId, call: &OpenCall) -> bool {
        // A runtime works for all of a program's tasks, whichever of them wakes the task that waits for it.
        match task_wait(call.nr) {
            Some(wait) => matches!(wait.sort(), TaskWaitSort::Lock | TaskWaitSort::Runtime(_)),
            None => {
                let futexes = &self.world.process_of(thread).futexes;
                call.lock().is_some() || futexes.is_interpreters(call)
            }
        }
    }

    /// Whether the server's thread answered another request by what it did at that time, if it reached a thread of
    /// another process by that.
    pub(super) fn answers_another(&self, thread: ThreadId, at_ns: u64, reached: ThreadId) -> bool {
        let of_server =
            |thread| Some(self.world.thread(thread).process) == self.goal.server_process;
        if !of_server(thread) || of_server(reached) {
            return false; // a request that the server asks for this one may be answered, too
        }
        let call = self.world.thread(thread).call_before(at_ns.saturating_add(1));
        call.is_some_and(|call| {
            at_ns <= call.exit_ns && !self.is_ours(call) && service_start::answers(self.world, call)
        })
    }
}
