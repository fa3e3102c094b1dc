//! Rule `wake-up` in a program's life: a thread of the program was made by another of its threads, and so on, so its
//! path leads to the begin of the life in any case.
//!
//! It is explored all the same, as other wakers are: the path back shows what it did for whom. With thousands of
//! connections that may be all that the program and its peers did. So there is a bound ([`MOST_STEPS_OF_LIFE`]). Beyond
//! it, a thread of the program that wakes another is taken to work for the program's life.

use crate::walk::*;

impl Walk<'_> {
    /// Whether a waker is taken to work for the life without being explored.
    pub(super) fn works_for_life(&self, waker: ThreadId) -> bool {
        self.search.knows_life && self.goal.life() == Some(self.world.thread(waker).process)
    }

    /// Whether too much of a life is being explored.
    pub(super) fn explores_too_much_of_life(&self) -> bool {
        !self.search.knows_life
            && self.goal.life().is_some()
            && self.attempts.astray > MOST_STEPS_OF_LIFE
    }
}
