//! Rule `work-queue`: edges through kernel workers to the threads that queued their work.

use crate::walk::*;

impl Walk<'_> {
    /// The work-queue edge of a wake-up by a kernel worker, if the thread that queued the work leads back to a
    /// member: that thread, and when it queued the work.
    pub(super) fn work_edge(
        &mut self,
        off: &Off,
        worker: ThreadId,
        woken_ns: u64,
        depth: usize,
    ) -> Result<Option<(ThreadId, u64)>, NotYet> {
        if !self.applies(Rule::WorkQueue) {
            return Ok(None);
        }
        // A wait for writeback has a category of its own.
        if off.call.is_some_and(|call| waits_for_writeback(call.nr)) {
            return Ok(None);
        }
        let works = &self.world.thread(worker).works;
        let Some(&Work { queued_ns, started_ns, ended_ns, queuer }) =
            last_before(works, |work| work.started_ns < woken_ns)
        else {
            return Ok(None);
        };
        if ended_ns < woken_ns {
            return Ok(None);
        }
        self.note_time(queued_ns);
        self.note_thread(queuer);
        if queued_ns <= self.goal.start_ns {
            return Ok(None);
        }
        let mark = self.output.out.len();
        let rule = std::mem::replace(&mut self.output.rule, Rule::WorkQueue);
        self.at_work(worker, started_ns, woken_ns)?;
        let detail = Some(self.output.names.texts.add("given to a kernel worker, not yet begun"));
        let cause = classify::off_cpu::activity(self.world, worker, queued_ns, started_ns);
        let cause = Some(self.output.names.texts.add(&cause));
        let (category, evidence) = (Category::QueueApp, Evidence::Measured);
        self.output.wait_rule = Some(Rule::WorkQueue);
        self.emit(worker, queued_ns, started_ns, category, detail, cause, None, None, evidence);
        if self.search.members.contains(&queuer) {
            return Ok(Some((queuer, queued_ns)));
        }
        if depth < MAX_DEPTH {
            if let Some(found) = self.explore(queuer, queued_ns, depth + 1)? {
                self.search.members.insert(queuer);
                return Ok(Some(found));
            }
        }
        self.output.out.truncate(mark);
        self.output.rule = rule;
        Ok(None)
    }

    /// Emits what a kernel worker did in `[from_ns, to_ns)`.
    pub(super) fn at_work(
        &mut self,
        worker: ThreadId,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<(), NotYet> {
        let mut at_ns = to_ns;
        while at_ns > from_ns {
            let off = self.world.thread(worker).off_before(at_ns);
            match off.filter(|off| off.end_ns >= at_ns) {
                Some(off) if off.why == Why::Preempted => {
                    let begin_ns = off.start_ns.max(from_ns);
                    self.run_queue(worker, off, begin_ns, at_ns, Category::RunqueuePreempted)?;
                    at_ns = begin_ns;
                }
                Some(off) => {
                    let begin_ns = off.start_ns.max(from_ns);
                    let woken_ns = off.runnable_ns().unwrap_or(at_ns).clamp(begin_ns, at_ns);
                    self.run_queue(worker, off, woken_ns, at_ns, Category::RunqueueWakeup)?;
                    self.charge(worker, off, begin_ns, woken_ns, None);
                    at_ns = begin_ns;
                }
                None => {
                    let begin_ns = off.map_or(from_ns, |off| off.end_ns.max(from_ns));
                    let detail = Some(self.output.names.texts.add("at work for the request"));
                    let (category, evidence) = (Category::KernelOther, Evidence::Measured);
                    self.emit(
                        worker, begin_ns, at_ns, category, detail, None, None, None, evidence,
                    );
                    at_ns = begin_ns;
                }
            }
        }
        Ok(())
    }
}
