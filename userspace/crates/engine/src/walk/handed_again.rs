//! Tasks of a runtime's that were handed something for this request after another had woken them, and before they ran: as those of a
//! connection are, which one request gives back just as the next one asks on it.

use crate::ownership::handed::again;
use crate::walk::*;

impl<'w> Walk<'w> {
    /// The step to the last of those that woke the task again and whose path leads to the request, if any: from then on
    /// it waited to be run.
    pub(super) fn handed_again(
        &mut self,
        thread: ThreadId,
        off: &Off,
        wake: Wake,
        at_ns: u64,
        depth: usize,
    ) -> Result<Option<Step>, NotYet> {
        if self.world.thread(thread).woken_again.is_empty() {
            return Ok(None);
        }
        let begin_ns = wake.at_ns.max(self.goal.start_ns);
        let mut by: Vec<_> = again(self.world, thread, (off.start_ns, off.end_ns)).collect();
        by.retain(|(waker, ns)| *waker != wake.waker && *ns > begin_ns && *ns < at_ns);
        for (waker, handed_ns) in by.into_iter().rev() {
            let mark = self.output.out.len();
            self.run_queue(thread, off, handed_ns, at_ns, Category::RunqueueWakeup)?;
            let wake = Wake { at_ns: handed_ns, waker, flags: 0, block: 0 };
            let span = (handed_ns, handed_ns);
            if let Some(step) = self.through_waker(thread, off, wake, span, depth)? {
                return Ok(Some(step));
            }
            self.output.out.truncate(mark);
        }
        Ok(None)
    }
}
