//! Emits waits for a CPU (rule `run-queue`): on which run queue, behind which thread, and moved from which
//! CPU.

use crate::walk::*;

impl Walk<'_> {
    /// Emits `[from_ns, to_ns)`: `thread` was runnable and others had the CPU on whose queue it was; one segment
    /// for each of them. What a helper did (a thread that preempted it and works for the request, too) is the
    /// helper's work.
    pub(super) fn run_queue(
        &mut self,
        thread: ThreadId,
        off: &Off,
        from_ns: u64,
        to_ns: u64,
        category: Category,
    ) -> Result<(), NotYet> {
        let t = self.world.thread(thread);
        let before = last_before(&t.cpus, |(since_ns, _)| *since_ns < off.start_ns);
        let ran_on = before.map(|(_, cpu)| *cpu);
        // Backwards, from the queue on which it got its CPU.
        let (mut cpu, mut until_ns) = (off.cpu, to_ns);
        for moved in t.moves_until(off.end_ns) {
            if moved.at_ns < from_ns || cpu.is_some_and(|cpu| cpu != moved.to_cpu) {
                break;
            }
            let came_from = Some(moved.from_cpu);
            self.behind(thread, Some(moved.to_cpu), came_from, moved.at_ns, until_ns, category)?;
            (cpu, until_ns) = (came_from, until_ns.min(moved.at_ns));
        }
        self.behind(thread, cpu, ran_on, from_ns, until_ns, category)
    }

    /// The same on one queue, to which the thread came from another CPU or the same.
    fn behind(
        &mut self,
        thread: ThreadId,
        cpu: Option<u32>,
        came_from: Option<u32>,
        from_ns: u64,
        to_ns: u64,
        category: Category,
    ) -> Result<(), NotYet> {
        if from_ns >= to_ns {
            return Ok(());
        }
        let other = came_from.filter(|_| cpu.is_some()).filter(|_| came_from != cpu);
        let moved = other.map(|other| format!("moved from CPU {other}"));
        let runs = cpu.and_then(|cpu| self.world.cpus.get(cpu as usize));
        let mut at_ns = to_ns;
        if let Some(runs) = runs {
            let mut index = count_before(runs, |(since_ns, _)| *since_ns < to_ns);
            while at_ns > from_ns && index > 0 {
                index -= 1;
                let (since_ns, who) = runs[index];
                let start_ns = since_ns.max(from_ns);
                let preempts = category == Category::RunqueuePreempted && who != thread;
                if preempts && start_ns < at_ns && self.helps(who, at_ns, thread) {
                    let rule = std::mem::replace(&mut self.rule, Rule::Helper);
                    self.likely = true;
                    self.awake(who, start_ns, at_ns)?;
                    (self.rule, self.likely) = (rule, false);
                    at_ns = start_ns;
                }
                if who != thread && start_ns < at_ns {
                    let by = Some(who);
                    let idle = (who == IDLE).then(|| "the CPU was idle: waking it up".to_string());
                    let detail = match (idle, &moved) {
                        (Some(idle), Some(moved)) => Some(format!("{idle}; {moved}")),
                        (idle, moved) => idle.or_else(|| moved.clone()),
                    };
                    let evidence = Evidence::Measured;
                    self.emit(thread, start_ns, at_ns, category, detail, None, by, cpu, evidence);
                    at_ns = start_ns;
                }
            }
        }
        let evidence = Evidence::Measured;
        self.emit(thread, from_ns, at_ns, category, moved, None, None, cpu, evidence);
        Ok(())
    }
}
