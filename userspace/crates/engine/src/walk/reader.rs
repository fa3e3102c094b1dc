//! Rule `wake-up`: in the server's process, a path leads to the time before its first read of the request only through
//! that read. Until then, only the thread that reads, and the thread that woke it, can have had the request.

use crate::walk::*;

/// The server's first read of a request.
pub(super) fn first_read(world: &World, goal: &Goal) -> Option<Transfer> {
    let asked = goal.messages.first()?;
    let channel = world.channels.get(&asked.object)?;
    let first = Channel::overlapping(&channel.reads, asked.from, asked.to).next()?;
    (Some(world.thread(first.thread).process) == goal.server_process).then_some(*first)
}

impl Walk<'_> {
    /// Notes whether the path leads through the first read.
    pub(super) fn note_first_read(&mut self, thread: ThreadId, at_ns: u64) {
        let is_in = |first: Transfer| {
            thread == first.thread && first.enter_ns < at_ns && at_ns <= first.exit_ns
        };
        self.search.through_read |= self.first_read.is_some_and(is_in);
    }

    /// Whether what a thread did there was before the first read, and so for others: no path through it leads to the
    /// request.
    pub(super) fn is_before_read(&self, thread: ThreadId, at_ns: u64) -> bool {
        !self.search.through_read
            && self.first_read.is_some_and(|first| at_ns <= first.enter_ns)
            && Some(self.world.thread(thread).process) == self.goal.server_process
    }

    /// Whether the path, which leads to the request's begin through its read only, has come to a time before that.
    pub(super) fn comes_in_too_late(&self, thread: ThreadId, at_ns: u64) -> bool {
        let has_own_client = self.goal.server_process != Some(self.goal.client_process);
        self.is_before_read(thread, at_ns) && (has_own_client || self.must_come_in())
    }
}
