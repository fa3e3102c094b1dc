//! Emits long work that a thread does for many requests at once (rule `turn`, shared).

use crate::ownership::work::{is_long, Stretch, Telling};
use crate::walk::*;
use rpcprobe_model::ADDED_UP;

impl Walk<'_> {
    /// Step for a thread that, as its messages show, works just before `at_ns` for several requests, this one among
    /// them. What it did for them all, since it had taken in the last of them or slept, is the same for each. If it is
    /// much, it is reported by category, at a cost that does not grow with it. No path leads to another thread in
    /// between: this one has had the request since before.
    pub(super) fn worked_together(&mut self, thread: ThreadId, at_ns: u64) -> Option<Step> {
        let t = self.world.thread(thread);
        let settled = self.settings.no_more_records || at_ns <= t.settled_ns;
        let ended = self.world.process_of(thread).group_exit.is_some_and(|(ns, _)| ns < at_ns);
        if self.settings.every_piece || self.world.stacks.any() || !settled || ended {
            return None;
        }
        let marks = &t.marks.list;
        let next = count_before(marks, |mark| mark.exit_ns < at_ns);
        let last = next.checked_sub(1).map(|last| &marks[last])?;
        if marks.get(next).is_some_and(|mark| mark.enter_ns < at_ns) {
            return None; // in the call that moves them
        }
        let from_ns = last.exit_ns.max(self.goal.start_ns).max(t.known_from_ns).max(t.born_ns);
        if from_ns >= at_ns || t.had_phase_since(from_ns) {
            return None;
        }
        // Each part of a short stretch is short.
        let is_short = |&(of, since_ns, until_ns): &(_, _, _)| {
            of == thread && since_ns <= from_ns && at_ns <= until_ns
        };
        if self.search.short.as_ref().is_some_and(is_short) {
            return None;
        }
        if !is_long(t, from_ns, at_ns) {
            self.search.short = Some((thread, from_ns, at_ns));
            return None;
        }
        let telling = Telling { rates: self.settings.rates, wire: self.applies(Rule::Wire) };
        let Stretch { from_ns, sums } =
            self.world.work_sums.until((thread, t), (from_ns, at_ns), &telling)?;
        let told = Some(self.output.names.texts.add(ADDED_UP));
        let mut end_ns = at_ns;
        // Longest first, in reading order.
        for (category, evidence, ns) in sums.into_iter().rev() {
            let start_ns = end_ns - ns;
            self.emit(thread, start_ns, end_ns, category, None, told, None, None, evidence);
            self.of_them_all(start_ns);
            end_ns = start_ns;
        }
        Some(Step::Go(thread, from_ns))
    }

    /// Marks the segment that was emitted last, if it begins at `start_ns`, as work that several requests share,
    /// whatever its thread did meanwhile.
    fn of_them_all(&mut self, start_ns: u64) {
        let shared = self.output.shared;
        if let Some(raw) = self.output.out.last_mut().filter(|raw| raw.start_ns == start_ns) {
            (raw.shared, raw.cpu) = (shared, None);
        }
    }
}
