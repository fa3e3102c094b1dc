//! Waits for what another thread releases: locks, where that is known or likely, and waits for a futex that time out.

use crate::classify::off_cpu::{inferred, series, Part, Wait};
use rpcprobe_model::Category;

/// `cause` of a wait for an interpreter's lock that timed out.
const NOT_RELEASED: &str = "interpreter lock: not released before the timeout";

impl Wait<'_> {
    /// A wait that its waker ended and that may be for a lock. Nothing proves that it is.
    pub(super) fn perhaps_a_lock(&self, detail: String) -> Vec<Part> {
        inferred(self.for_a_lock(detail))
    }

    /// A wait for a lock. Its `cause` says so if the lock is an interpreter's.
    pub(super) fn for_a_lock(&self, detail: String) -> Vec<Part> {
        let mut parts = self.by_its_waker(Category::Lock, detail);
        if self.is_for_interpreter() {
            for part in &mut parts {
                let meanwhile = part.cause.take().unwrap_or_default();
                part.cause = Some(format!("interpreter lock: {meanwhile}"));
            }
        }
        parts
    }

    fn is_for_interpreter(&self) -> bool {
        let futexes = &self.world.process_of(self.thread).futexes;
        self.off.call.is_some_and(|call| futexes.is_interpreters(&call))
    }

    /// A wait that ended by its timeout. It is a sleep, unless the thread only checked whether it may go on. A thread
    /// that waits for an interpreter's lock asks the lock's holder to release it then.
    pub(super) fn ran_out(&self, detail: String) -> Vec<Part> {
        let last = series::woken_later(self.world, self.thread, self.off);
        let cause = self.is_for_interpreter().then(|| NOT_RELEASED.to_string());
        let (detail, by) = match last {
            Some(last) => {
                let by = last.wake.map(|wake| wake.waker);
                (format!("{detail}, and then again for the same"), by)
            }
            None if cause.is_some() => (detail, None),
            None => return self.whole(Category::Sleep, detail, None, None),
        };
        inferred(self.whole(Category::Lock, detail, cause, by))
    }
}
