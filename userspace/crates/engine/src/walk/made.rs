//! Tasks that were made asleep, such as timers: what they do when they run is for their maker. If the maker worked for
//! another request, it went on with this request on its way, as code that releases a lock does in an event loop.

use crate::ownership::handed::made_for;
use crate::ownership::marks::{Mark, MarkKind};
use crate::walk::*;

/// Limit of the chain of tasks that made each other.
const MOST_MAKERS: usize = 64;
/// `detail` of what such a request waited for.
const HANDED_ON: &str = "until what another request had waited for was over: what for is not seen";

impl Walk<'_> {
    /// The step from the birth of a task to what made it.
    pub(super) fn at_birth(&mut self, task: ThreadId, maker: ThreadId, at_ns: u64) -> Step {
        if let Some((reader, rested_ns)) = self.waits_for_maker(maker, at_ns) {
            let texts = &mut self.output.names;
            let detail = Some(texts.fixed(HANDED_ON));
            let (category, evidence) = (Category::Lock, Evidence::Modelled);
            let span = (rested_ns.max(self.goal.start_ns), at_ns);
            self.emit(task, span.0, span.1, category, detail, None, Some(maker), None, evidence);
            return Step::Go(reader, rested_ns);
        }
        // The task works for what it was made for.
        self.output.rule = Rule::WakeUp;
        match self.search.members.contains(&maker) {
            true => Step::Joined(maker, at_ns),
            false => Step::Go(maker, at_ns),
        }
    }

    /// If the maker of a task worked for another request at `at_ns`: the thread that read this request, and since when
    /// it had rested.
    fn waits_for_maker(&self, maker: ThreadId, at_ns: u64) -> Option<(ThreadId, u64)> {
        let process = self.world.thread(maker).process;
        if Some(process) != self.goal.server_process {
            return None;
        }
        let (reader, read_ns) = service_start::received(self.world, self.goal, process, at_ns)?;
        let rested_ns = self.worked_on_until(reader, read_ns).filter(|ns| *ns < at_ns)?;
        self.works_for_another(maker, at_ns, reader).then_some((reader, rested_ns))
    }

    /// Whether a task works, at `at_ns`, for another request than the one that `reader` has read: by what it moves in
    /// that step, or by what its maker moved.
    fn works_for_another(&self, maker: ThreadId, at_ns: u64, reader: ThreadId) -> bool {
        let (mut task, mut at_ns) = (maker, at_ns);
        for _ in 0..MOST_MAKERS {
            let t = self.world.thread(task);
            let slept = |off: &&Off| off.why != Why::Preempted;
            let before = latest_before(&t.off, |off| off.start_ns < at_ns).find(slept);
            let began_ns = before.map_or(0, |off| off.end_ns);
            let next = count_before(&t.marks.list, |mark| mark.exit_ns < at_ns);
            if task == reader {
                return false;
            }
            let before =
                { t.marks.list.range(..next).rev() }.take_while(|mark| mark.enter_ns >= began_ns);
            let first = count_before(&t.off, |off| off.start_ns < at_ns);
            let rests_ns =
                { t.off.range(first..) }.find(slept).map_or(u64::MAX, |off| off.start_ns);
            let after = { t.marks.list.range(next..) }.take_while(|mark| mark.enter_ns < rests_ns);
            let served = |mark: &&Mark| matches!(mark.kind, MarkKind::Takes | MarkKind::Answers);
            let mut of_step = before.chain(after).filter(served).peekable();
            if of_step.peek().is_some() {
                return !of_step.any(|mark| self.of_goal(mark));
            }
            let Some(by) = made_for(self.world, task, 0, at_ns) else { return false };
            (task, at_ns) = by;
        }
        false
    }
}
