//! Off the CPU: what a task waited for, and where the walk goes on.

use super::*;

impl<'t> Walk<'t> {
    pub(super) fn away(&mut self, task: TaskNo, no: AwayNo, at_ns: u64) -> Step {
        let away = &self.truth.aways[no];
        let begin_ns = away.from_ns.max(self.asked.start_ns);
        if away.why == Why::Preempted {
            if let Some((read, write, handed_ns)) = self.handed_meanwhile(task, away, at_ns) {
                self.run_queue(task, away, handed_ns, at_ns, Category::RunqueuePreempted);
                let calls = &self.truth.calls;
                return self.to_writer(&calls[read], &calls[write], handed_ns);
            }
            self.run_queue(task, away, begin_ns, at_ns, Category::RunqueuePreempted);
            return Step::Go(task, begin_ns);
        }
        let wakeup = away.wakeup.expect("all sleeps end");
        let woken_ns = wakeup.at_ns.max(begin_ns).min(at_ns);
        let message = self.message(task, away, wakeup, at_ns);
        if let Some((writer, handed_ns)) = message.filter(|(_, ns)| *ns > wakeup.at_ns) {
            // The write came when something else had woken the task and it was still waiting for a CPU.
            let handed_ns = handed_ns.max(begin_ns);
            self.run_queue(task, away, handed_ns, at_ns, Category::RunqueueWakeup);
            return Step::Joined(writer, handed_ns);
        }
        self.run_queue(task, away, woken_ns, at_ns, Category::RunqueueWakeup);
        // A task woken on its way to sleep took its last steps itself.
        let edge_ns = wakeup.at_ns.max(self.asked.start_ns).min(woken_ns);
        let said = self.said.len();
        if let Some((writer, handed_ns)) = message {
            self.last_steps(task, edge_ns, woken_ns);
            // The bytes were ready before another task woke it for them.
            let handed_ns = handed_ns.min(edge_ns);
            self.say(task, edge_ns - handed_ns, Category::QueuePipe);
            return Step::Joined(writer, handed_ns);
        }
        if let Some(last) = self.slept_on(task, away) {
            let wakeup = last.wakeup.expect("all sleeps end");
            self.say(task, woken_ns - begin_ns, self.charged(last, wakeup));
            return Step::Go(task, begin_ns);
        }
        let traced = self.truth.tasks[wakeup.waker].traced;
        let inside = edge_ns > self.asked.start_ns && !self.unasked(wakeup.waker, edge_ns);
        let refused = self.refused.contains(&(task, edge_ns));
        if wakeup.own && traced && inside && away.why != Why::Mutex && !refused {
            self.last_steps(task, edge_ns, woken_ns);
            let joined = if wakeup.waker != task && self.members.contains(&wakeup.waker) {
                Some((wakeup.waker, edge_ns))
            } else {
                let met = std::mem::take(&mut self.met_a_row);
                let mut found = self.explore(wakeup.waker, edge_ns);
                let row = self.met_a_row && !self.in_a_row;
                if found.is_none() && row && self.slept_for_own(away, wakeup) {
                    let vain = std::mem::take(&mut self.vain);
                    self.in_a_row = true;
                    found = self.explore(wakeup.waker, edge_ns);
                    self.in_a_row = false;
                    self.vain = vain;
                }
                self.met_a_row |= met;
                found
            };
            if let Some((member, ns)) = joined {
                if self.exploring == 0 {
                    self.followed.push((task, edge_ns));
                }
                return Step::Joined(member, ns);
            }
            self.said.truncate(said);
        }
        self.say(task, woken_ns - begin_ns, self.charged(away, wakeup));
        Step::Go(task, begin_ns)
    }

    /// If the task lost its CPU in a read, and the bytes of this request that the read brings were written before it
    /// was back: the read, the write, and the time of the hand-over.
    pub(super) fn handed_meanwhile(
        &mut self,
        task: TaskNo,
        away: &Away,
        at_ns: u64,
    ) -> Option<(CallNo, CallNo, u64)> {
        let read = self.truth.before(task, away.from_ns).call?;
        let no = self.arrival(task, read)?;
        let write = &self.truth.calls[no];
        if !(away.from_ns..at_ns).contains(&write.enter_ns) {
            return None;
        }
        let over = write.exit_ns <= at_ns;
        let latest_ns = if over { write.exit_ns } else { write.enter_ns };
        Some((read, no, self.handed_by(write, latest_ns)))
    }

    /// Whether the waker is of the same process and wrote what the sleeper then read.
    pub(super) fn slept_for_own(&self, away: &Away, wakeup: Wakeup) -> bool {
        let Some(call) = away.call.map(|call| &self.truth.calls[call]) else { return false };
        let tgid = |task: TaskNo| self.truth.tasks[task].tgid;
        let written = self.written(call).map(|write| self.truth.calls[write].task);
        written == Some(wakeup.waker) && tgid(wakeup.waker) == tgid(call.task)
    }

    /// The last sleep for the same reason in the same call, if this sleep ended in vain.
    pub(super) fn slept_on(&self, task: TaskNo, away: &Away) -> Option<&'t Away> {
        if !matches!(away.why, Why::Mutex | Why::Condition | Why::Readiness | Why::Child) {
            return None;
        }
        let aways = self.truth.tasks[task].aways.iter().rev().map(|&no| &self.truth.aways[no]);
        aways
            .take_while(|later| later.from_ns >= away.to_ns)
            .find(|later| later.call.is_some() && later.call == away.call && later.why == away.why)
    }

    /// What the task did on its CPU between a wake-up and its switch-out.
    pub(super) fn last_steps(&mut self, task: TaskNo, from_ns: u64, to_ns: u64) {
        for at_ns in (from_ns + 1..=to_ns).rev() {
            let category = self.did(task, at_ns);
            self.say(task, 1, category);
        }
    }

    /// If the sleep ended because bytes of this request came: their writer, and the time of the hand-over.
    pub(super) fn message(
        &mut self,
        task: TaskNo,
        away: &Away,
        wakeup: Wakeup,
        at_ns: u64,
    ) -> Option<(TaskNo, u64)> {
        if let Some(&write) = self.expected.get(&task) {
            if self.woke(away, write) {
                self.expected.remove(&task);
                return Some((wakeup.waker, wakeup.at_ns));
            }
        }
        if away.why != Why::Pipe {
            return None;
        }
        let (bytes, no) = self.brought(&self.truth.calls[away.call?])?;
        let write = &self.truth.calls[no];
        if !self.is_ours(&bytes) || write.enter_ns >= at_ns {
            return None;
        }
        if self.woke(away, no) {
            return Some((write.task, wakeup.at_ns));
        }
        if write.enter_ns > wakeup.at_ns {
            return Some((write.task, self.handed_by(write, write.exit_ns.min(at_ns))));
        }
        Some((write.task, self.handed_by(write, write.exit_ns.min(wakeup.at_ns))))
    }

    /// Crosses over to a write that had not ended at `at_ns`.
    pub(super) fn under_way(&mut self, read: &Call, write: &Call, at_ns: u64) -> Step {
        let handed_ns = self.handed_by(write, at_ns);
        self.say(read.task, at_ns - handed_ns, queue_of(write));
        self.to_writer(read, write, handed_ns)
    }

    /// When the bytes were written, `latest_ns` at the latest: a writer without a CPU writes nothing.
    pub(super) fn handed_by(&self, write: &Call, latest_ns: u64) -> u64 {
        let mut at_ns = latest_ns;
        while at_ns > write.enter_ns
            && matches!(self.truth.before(write.task, at_ns).doing, Doing::Away(_))
        {
            at_ns -= 1;
        }
        at_ns
    }

    /// Follows a waker back until an edge leads to a member. Leaves no trace in the walk if none does.
    pub(super) fn explore(&mut self, waker: TaskNo, woken_ns: u64) -> Option<(TaskNo, u64)> {
        if self.vain.contains(&(waker, woken_ns)) {
            return None;
        }
        let said = self.said.len();
        let (through, expected) = (self.through.take(), self.expected.clone());
        let (mut task, mut at_ns) = (waker, woken_ns);
        self.exploring += 1;
        while at_ns > self.asked.start_ns {
            match self.step(task, at_ns) {
                Step::Go(t, ns) => (task, at_ns) = (t, ns),
                Step::Joined(t, ns) => {
                    self.join(waker);
                    self.exploring -= 1;
                    return Some((t, ns));
                }
            }
        }
        self.exploring -= 1;
        self.said.truncate(said);
        (self.through, self.expected) = (through, expected);
        self.vain.insert((waker, woken_ns));
        None
    }

    /// The category of a wait that the walk does not follow.
    pub(super) fn charged(&self, away: &Away, wakeup: Wakeup) -> Category {
        let jbd2 = self.truth.tasks[wakeup.waker].jbd2;
        let transfer = away.call.and_then(|call| self.truth.calls[call].transfer);
        let writes = transfer.is_some_and(|transfer| transfer.is_write);
        match away.why {
            Why::Disk { .. } if wakeup.own && jbd2 => Category::Journal,
            Why::Disk { iowait: true } => Category::BlockIo,
            Why::Timer => Category::Sleep,
            Why::Condition if !wakeup.own => Category::Sleep,
            Why::Mutex | Why::SemaphoreLock | Why::Condition => Category::Lock,
            Why::Readiness if !wakeup.own => Category::Sleep,
            // The pipe is full, and its reader does something else.
            Why::Pipe if wakeup.own && self.truth.tasks[wakeup.waker].traced && writes => {
                Category::QueuePipe
            }
            Why::Readiness | Why::Pipe => Category::IdlePeer,
            _ => Category::Unattributed,
        }
    }

    /// Says which task had the CPU on whose run queue the task waited.
    pub(super) fn run_queue(
        &mut self,
        task: TaskNo,
        away: &Away,
        from_ns: u64,
        to_ns: u64,
        category: Category,
    ) {
        for at_ns in (from_ns..to_ns).rev() {
            let by = self.truth.cpus[away.queue_at(at_ns)][(at_ns - self.truth.start_ns) as usize];
            let preempts = category == Category::RunqueuePreempted;
            match by.filter(|&by| preempts && by != task && self.helps(by, at_ns + 1, task)) {
                Some(helper) => {
                    let call = self.truth.before(helper, at_ns + 1).call;
                    let exit_ns = call.map(|call| self.truth.calls[call].exit_ns);
                    // The record of a call that ends at the same moment may come later.
                    self.saw_unended |= exit_ns.is_some_and(|ns| ns >= self.asked.end_ns);
                    let category = self.did(helper, at_ns + 1);
                    self.say(helper, 1, category);
                }
                None => self.said.push(Said { task, category, by }),
            }
        }
    }

    /// Whether a task that had the CPU of `preempted` was woken out of its last sleep, since the request began, by
    /// `preempted` or by a task for which the same holds.
    pub(super) fn helps(&self, by: TaskNo, at_ns: u64, preempted: TaskNo) -> bool {
        let task = &self.truth.tasks[by];
        let aways = task.aways.iter().map(|&away| &self.truth.aways[away]);
        let goes_on =
            |why: Why| matches!(why, Why::Preempted | Why::Mutex | Why::Disk { .. } | Why::Other);
        let slept = aways.rev().find(|away| away.from_ns < at_ns && !goes_on(away.why));
        let Some(wakeup) = slept.and_then(|away| away.wakeup) else { return false };
        let for_it = wakeup.own
            && wakeup.at_ns >= self.asked.start_ns
            && wakeup.waker != by
            && !self.unasked(wakeup.waker, wakeup.at_ns);
        task.traced
            && by != IDLE_TASK
            && for_it
            && (wakeup.waker == preempted || self.helps(wakeup.waker, wakeup.at_ns, preempted))
    }
}
