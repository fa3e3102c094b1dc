//! Emits waits for a CPU (rule `run-queue`): on which run queue, behind which thread, and from which CPU the thread was
//! moved.

use crate::walk::*;

/// Limit of the pieces of one wait that are reported one by one; a wait of more pieces is one segment. Of the waits of
/// redis and nginx at up to 1,000 connections, 99.8 % have at most 3 pieces. Of those of gRPC with 500 streams, 60 to
/// 69 % do, and the others have up to 309.
const MOST_BEHIND: usize = 3;
/// A thread is named if it had the CPU for at least one part in this many of a wait.
const NAMED_PART: u64 = 10;

/// A piece of a wait for a CPU, and the thread that had the CPU meanwhile.
pub(super) struct Behind {
    start_ns: u64,
    end_ns: u64,
    by: Option<ThreadId>,
    /// The CPU of the run queue, and the CPU that the thread had come from, if it is another one.
    cpu: Option<u32>,
    moved_from: Option<u32>,
}

/// `detail` of a piece in which the CPU was idle.
const WAS_IDLE: &str = "the CPU was idle: waking it up";

impl Behind {
    fn detail(&self, names: &mut Names) -> Option<TextId> {
        let moved = self.moved_from.map(|cpu| format!("moved from CPU {cpu}"));
        match (self.by == Some(IDLE), moved) {
            (true, None) => Some(names.fixed(WAS_IDLE)),
            (true, Some(moved)) => Some(names.texts.add(&format!("{WAS_IDLE}; {moved}"))),
            (false, moved) => moved.map(|moved| names.texts.add(&moved)),
        }
    }
}

impl Walk<'_> {
    /// Emits `[from_ns, to_ns)`, in which `thread` was runnable and others had the CPU on whose queue it was: one
    /// segment for each of them, or one for all if there are many pieces. What a helper did (a thread that preempted it
    /// and works for the request, too) is the helper's work.
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
        let mut pieces = std::mem::take(&mut self.output.behind);
        // Backwards, from the queue on which it got its CPU.
        let (mut cpu, mut until_ns) = (off.cpu, to_ns);
        for moved in t.moves_until(off.end_ns) {
            if moved.at_ns < from_ns || cpu.is_some_and(|cpu| cpu != moved.to_cpu) {
                break;
            }
            let queue = (Some(moved.to_cpu), Some(moved.from_cpu));
            self.behind(thread, queue, (moved.at_ns, until_ns), category, &mut pieces)?;
            (cpu, until_ns) = (Some(moved.from_cpu), until_ns.min(moved.at_ns));
        }
        self.behind(thread, (cpu, ran_on), (from_ns, until_ns), category, &mut pieces)?;
        self.emit_behind(thread, category, &mut pieces);
        self.output.behind = pieces;
        Ok(())
    }

    /// The pieces on one queue, latest first, to which the thread came from another CPU or from the same one.
    fn behind(
        &mut self,
        thread: ThreadId,
        (cpu, came_from): (Option<u32>, Option<u32>),
        (from_ns, to_ns): (u64, u64),
        category: Category,
        pieces: &mut Vec<Behind>,
    ) -> Result<(), NotYet> {
        if from_ns >= to_ns {
            return Ok(());
        }
        let moved_from = came_from.filter(|_| cpu.is_some()).filter(|_| came_from != cpu);
        let runs = cpu.and_then(|cpu| self.world.cpus.get(cpu as usize));
        let mut at_ns = to_ns;
        if let Some(runs) = runs {
            let mut index = count_before(runs, |(since_ns, _)| *since_ns < to_ns);
            while at_ns > from_ns && index > 0 {
                index -= 1;
                let (since_ns, who) = runs[index];
                let start_ns = since_ns.max(from_ns);
                let preempts = category == Category::RunqueuePreempted && who != thread;
                let answered = self.answered_for_it(who, (start_ns, at_ns)).filter(|_| preempts);
                let helped_ns = answered.map_or(at_ns, |answered_ns| answered_ns - 1);
                if preempts && start_ns < at_ns && self.helps(who, helped_ns, thread) {
                    if let Some(end_ns) = answered.filter(|answered_ns| *answered_ns < at_ns) {
                        let (start_ns, end_ns, by) = (end_ns, at_ns, Some(who));
                        pieces.push(Behind { start_ns, end_ns, by, cpu, moved_from });
                        at_ns = start_ns;
                    }
                    self.emit_behind(thread, category, pieces);
                    let rule = std::mem::replace(&mut self.output.rule, Rule::Helper);
                    let likely = std::mem::replace(&mut self.output.likely, true);
                    self.awake(who, start_ns, at_ns)?;
                    (self.output.rule, self.output.likely) = (rule, likely);
                    at_ns = start_ns;
                }
                if who != thread && start_ns < at_ns {
                    let by = Some(who);
                    pieces.push(Behind { start_ns, end_ns: at_ns, by, cpu, moved_from });
                    at_ns = start_ns;
                }
            }
        }
        if from_ns < at_ns {
            let (start_ns, end_ns) = (from_ns, at_ns);
            pieces.push(Behind { start_ns, end_ns, by: None, cpu, moved_from });
        }
        Ok(())
    }

    /// Emits pieces of a wait that follow each other, latest first.
    fn emit_behind(&mut self, thread: ThreadId, category: Category, pieces: &mut Vec<Behind>) {
        let evidence = Evidence::Measured;
        let few = pieces.len() <= MOST_BEHIND || self.settings.every_piece;
        let one = pieces.first().zip(pieces.last()).filter(|_| !few);
        if let Some((last, first)) = one {
            let (start_ns, end_ns, cpu) = (first.start_ns, last.end_ns, last.cpu);
            let shares = shares(pieces);
            let by = shares.first().and_then(|(by, _)| *by);
            let moved = pieces.iter().find_map(|piece| piece.moved_from);
            let moved =
                moved.map(|cpu| self.output.names.texts.add(&format!("moved from CPU {cpu}")));
            let cause = self.in_words(&shares, end_ns);
            let cause = Some(self.output.names.texts.add(&cause));
            self.emit(thread, start_ns, end_ns, category, moved, cause, by, cpu, evidence);
            pieces.clear();
        }
        for piece in pieces.drain(..) {
            let Behind { start_ns, end_ns, by, cpu, .. } = piece;
            let detail = piece.detail(&mut self.output.names);
            self.emit(thread, start_ns, end_ns, category, detail, None, by, cpu, evidence);
        }
    }

    /// `noise/90 60 %, sh/91 25 %, 3 others 15 %`.
    fn in_words(&self, shares: &[(Option<ThreadId>, u64)], at_ns: u64) -> String {
        let all_ns = shares.iter().map(|(_, ns)| ns).sum::<u64>().max(1);
        let percent = |ns: u64| (u128::from(ns) * 100 / u128::from(all_ns)) as u64;
        let named = shares.iter().take_while(|(_, ns)| *ns >= all_ns / NAMED_PART).count().max(1);
        let (named, others) = shares.split_at(named.min(shares.len()));
        let mut words: Vec<String> = Vec::with_capacity(named.len() + 1);
        for &(by, ns) in named {
            let name = by.map_or("not known".into(), |by| self.name_of(by, at_ns));
            words.push(format!("{name} {} %", percent(ns)));
        }
        match others {
            [] => {}
            [(_, ns)] => words.push(format!("another {} %", percent(*ns))),
            _ => {
                let others_ns = others.iter().map(|(_, ns)| ns).sum();
                words.push(format!("{} others {} %", others.len(), percent(others_ns)));
            }
        }
        words.join(", ")
    }
}

/// How long each thread had the CPU, longest first.
fn shares(pieces: &[Behind]) -> Vec<(Option<ThreadId>, u64)> {
    let mut sums: FxHashMap<Option<ThreadId>, u64> = FxHashMap::default();
    for piece in pieces {
        *sums.entry(piece.by).or_default() += piece.end_ns - piece.start_ns;
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(by, ns)| (std::cmp::Reverse(*ns), *by));
    sums
}
