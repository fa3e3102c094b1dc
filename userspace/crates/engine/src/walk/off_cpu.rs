//! Steps over off-CPU intervals: why the thread was off its CPU, what ended the interval, and whether the path leads on
//! through its waker.

use crate::walk::*;

impl<'w> Walk<'w> {
    pub(super) fn off_cpu(
        &mut self,
        thread: ThreadId,
        off: &Off,
        at_ns: u64,
        depth: usize,
    ) -> Result<Step, NotYet> {
        let begin_ns = off.start_ns.max(self.goal.start_ns);
        match off.why {
            Why::Preempted => {
                if let Some(step) = self.handed_while_preempted(thread, off, at_ns)? {
                    return Ok(step);
                }
                if let Some(step) = self.awaited_without_cpu(thread, off, at_ns) {
                    return Ok(step);
                }
                self.run_queue(thread, off, begin_ns, at_ns, Category::RunqueuePreempted)?;
                return Ok(Step::Go(thread, begin_ns));
            }
            Why::Dead | Why::Unseen => {
                let detail = Some(self.output.names.texts.add("a context switch was not recorded"));
                let category = Category::Unattributed;
                let evidence = Evidence::Measured;
                self.emit(thread, begin_ns, at_ns, category, detail, None, None, None, evidence);
                return Ok(Step::Go(thread, begin_ns));
            }
            Why::Slept { .. } | Why::Born => {}
        }
        self.note_more();
        let Some(wake) = off.wake else {
            let reason = "asleep, and no wake-up was seen";
            self.charge(thread, off, begin_ns, at_ns, Some(reason));
            return Ok(Step::Go(thread, begin_ns));
        };
        let accepted = self.accepted_in_anothers_stead(thread, off, wake);
        if let Some((opener, there_ns)) = accepted.filter(|(_, ns)| *ns < at_ns) {
            let woken_ns = wake.at_ns.clamp(there_ns, at_ns);
            self.run_queue(thread, off, woken_ns, at_ns, Category::RunqueueWakeup)?;
            let span = (there_ns, woken_ns);
            self.unaccepted(thread, span);
            self.output.rule = Rule::Accept;
            return Ok(Step::Joined(opener, there_ns));
        }
        let woken_ns = wake.at_ns.max(off.start_ns).clamp(begin_ns, at_ns);
        let message = self.message_edge(thread, off, wake, at_ns);
        if let Some(step) = self.handed_since(thread, (off, wake), message, at_ns, depth)? {
            return Ok(step);
        }
        // A thread that takes work from others is woken for any available work.
        let futex = off.call.is_some_and(|call| waits(call.nr, call.object) == Waits::Futex);
        let likely = self.output.likely || futex && self.world.process_of(thread).shares_work;
        self.output.likely = likely;
        let before = self.output.out.len();
        self.run_queue(thread, off, woken_ns, at_ns, Category::RunqueueWakeup)?;

        // A wake-up that came before the switch-out found the thread on its way to sleep. The thread's last steps are
        // its own; the edge is crossed at the time of the wake-up.
        let edge_ns = wake.at_ns.clamp(self.goal.start_ns, woken_ns);
        self.note_time(edge_ns);

        // A message of this request, or a thread already at work for it.
        if let Some(message) = message {
            return self.through_message(thread, off, message, (edge_ns, woken_ns));
        }
        if let Some(step) = self.slept_for_arrival(thread, off, woken_ns, before) {
            return Ok(step);
        }
        if self.waits_for_wire(thread, off, woken_ns) {
            return Ok(Step::Go(thread, begin_ns));
        }
        if let Some(last) = self.slept_on(thread, off) {
            // Woken for nothing: this sleep and the one after it are one wait, for what ended the later one.
            let merged = Off { wake: last.wake, ..off.clone() };
            self.charge(thread, &merged, begin_ns, woken_ns, None);
            return Ok(Step::Go(thread, begin_ns));
        }
        if let Some(step) = self.polled_for_another(thread, off, woken_ns, depth) {
            return Ok(step);
        }
        if let Some(step) = self.waited_for_connection(thread, off, woken_ns) {
            return Ok(step);
        }
        if let Some(step) = self.was_given_connection(thread, (off, wake), woken_ns) {
            return Ok(step);
        }
        if wake.by_waker() && edge_ns > self.goal.start_ns {
            let span = (edge_ns, woken_ns);
            let turn_ns = self.turn_after_another(thread, off, wake);
            if let Some(step) = self.served_since(thread, (off, wake), turn_ns, span, depth)? {
                return Ok(step);
            }
            if let Some(step) = self.greeted_from_memory(thread, off, wake, span, depth)? {
                return Ok(step);
            }
            if let Some(step) = self.through_waker(thread, off, wake, span, depth)? {
                return Ok(step);
            }
            let turn_ns = self.turn_at_once(thread, off, wake);
            if let Some(step) = self.served_since(thread, (off, wake), turn_ns, span, depth)? {
                return Ok(step);
            }
        }
        if let Some(step) = self.given_while_ready(thread, (off, wake), at_ns, before)? {
            return Ok(step);
        }
        if let Some(step) = self.waited_for_timer(thread, off, woken_ns) {
            return Ok(step);
        }
        if depth == 0 && wake.by_waker() {
            if let Some(step) = self.asleep_when_received(thread, off, wake.waker, woken_ns) {
                return Ok(step);
            }
        }
        let mark = self.output.out.len();
        self.output.likely = likely;
        self.charge(thread, off, begin_ns, woken_ns, None);
        let is_idle = |raw: &Raw| match raw.category {
            Category::QueueApp => raw.rule == Rule::InMemory,
            category => category == Category::IdlePeer,
        };
        let was_idle = self.output.out[mark..].iter().any(is_idle);
        if was_idle && self.doubts() && wake.by_waker() && self.world.thread(wake.waker).traced {
            // Whatever ended that wait, it was not for this request.
            return Ok(Step::Nowhere);
        }
        Ok(Step::Go(thread, begin_ns))
    }

    /// Crosses the message edge that ended a sleep.
    fn through_message(
        &mut self,
        thread: ThreadId,
        off: &Off,
        (object, sender, handed_ns): (Object, ThreadId, u64),
        (edge_ns, woken_ns): (u64, u64),
    ) -> Result<Step, NotYet> {
        self.awake(thread, edge_ns, woken_ns)?;
        let handed_ns = handed_ns.min(edge_ns);
        match object.is_network() && self.applies(Rule::Wire) {
            true => {
                let last = self.last_byte(thread, off, object);
                let (sender, sent_ns) = self.link_bound(object, last, (sender, handed_ns));
                self.wire(thread, object, last, (sent_ns, edge_ns));
                self.output.rule = Rule::Message;
                return Ok(Step::Joined(sender, sent_ns));
            }
            false => {
                let span = (handed_ns, edge_ns);
                self.queue(thread, span, queue_category(object), UNREAD, Rule::Message);
            }
        }
        self.output.rule = Rule::Message;
        Ok(Step::Joined(sender, handed_ns))
    }

    /// Crosses to the waker that ended a sleep, if its path before `edge_ns` leads to the request. The sleeper
    /// itself was still on its CPU until `woken_ns`.
    pub(super) fn through_waker(
        &mut self,
        thread: ThreadId,
        off: &Off,
        wake: Wake,
        (edge_ns, woken_ns): (u64, u64),
        depth: usize,
    ) -> Result<Option<Step>, NotYet> {
        let mark = self.output.out.len();
        self.note_thread(wake.waker);
        self.awake(thread, edge_ns, woken_ns)?;
        if let Some((t, ns)) = self.work_edge(off, wake.waker, edge_ns, depth)? {
            return Ok(Some(Step::Joined(t, ns)));
        }
        let answered = thread == self.goal.client && self.passes_turn(wake.waker);
        // A lock convoy is contention, not delegation, even if we woke the holder earlier.
        let lock = off.call.is_some_and(|call| !answered && self.is_lock(thread, &call, &wake))
            || classify::off_cpu::kernel_lock(self.world, thread, off).is_some()
            || classify::off_cpu::waited_in(self.world, thread, off).is_some()
            || classify::off_cpu::throttled(self.world, thread, off);
        let asked = !self.before_asked(wake.waker, edge_ns);
        let refused = self.attempts.refused.contains(&(thread, edge_ns));
        let others = self.doubts() && self.answers_another(wake.waker, edge_ns, thread)
            || self.serves_another(thread, off, &wake)
            || self.woken_for_another(thread, off, &wake);
        let may_lead = asked && !lock && !refused && !others && self.applies(Rule::WakeUp);
        if may_lead && self.world.thread(wake.waker).traced {
            let mut joined = None;
            let known = answered
                || self.search.members.contains(&wake.waker)
                || self.works_for_life(wake.waker);
            let rule = std::mem::replace(&mut self.output.rule, Rule::WakeUp);
            if wake.waker != thread && known {
                joined = Some((wake.waker, edge_ns));
            } else if depth < MAX_DEPTH {
                joined = self.explore_waker(thread, off, &wake, edge_ns, depth)?;
                if joined.is_none() && depth == 0 && self.explores_too_much_of_life() {
                    self.search.knows_life = true;
                    // Explorations that were broken off are not known to lead nowhere.
                    self.search.dead_ends.clear();
                    joined = match self.works_for_life(wake.waker) {
                        true => Some((wake.waker, edge_ns)),
                        false => self.explore_waker(thread, off, &wake, edge_ns, depth)?,
                    };
                }
            }
            if let Some((t, ns)) = joined {
                self.search.members.insert(wake.waker);
                if depth == 0 {
                    self.search.followed.push((thread, edge_ns, wake.waker));
                }
                return Ok(Some(Step::Joined(t, ns)));
            }
            self.output.rule = rule;
        }
        self.output.out.truncate(mark);
        Ok(None)
    }

    /// Explores the waker that ended a sleep.
    fn explore_waker(
        &mut self,
        thread: ThreadId,
        off: &Off,
        wake: &Wake,
        edge_ns: u64,
        depth: usize,
    ) -> Result<Option<(ThreadId, u64)>, NotYet> {
        let futex = off.call.is_some_and(|c| waits(c.nr, c.object) == Waits::Futex);
        self.search.futexes += usize::from(futex);
        let met = std::mem::take(&mut self.search.met_a_row);
        let mut found = self.explore(wake.waker, edge_ns, depth + 1);
        let row = self.search.met_a_row && !self.search.in_a_row;
        if matches!(found, Ok(None)) && row && self.slept_for_own(thread, off, wake) {
            found = self.explore_in_a_row(wake.waker, edge_ns, depth + 1);
        }
        self.search.met_a_row |= met;
        self.search.futexes -= usize::from(futex);
        found
    }

    /// Whether a thread belongs to a server whose only way to its client is a word in shared memory.
    pub(super) fn passes_turn(&self, thread: ThreadId) -> bool {
        self.goal.passed.is_some()
            && Some(self.world.thread(thread).process) == self.goal.server_process
    }

    /// The last sleep in the call of `off`, if there is a later one and the call waits for one thing only. (A read or
    /// write may have got some of its bytes in between.)
    pub(super) fn slept_on(&self, thread: ThreadId, off: &Off) -> Option<&'w Off> {
        let call = off.call?;
        if !matches!(waits(call.nr, call.object), Waits::Futex | Waits::Readiness | Waits::Child) {
            return None;
        }
        let t = self.world.thread(thread);
        let record = last_before(&t.calls, |known| known.enter_ns <= call.enter_ns);
        let record = record.filter(|known| known.enter_ns == call.enter_ns);
        let exit_ns = record.map_or(u64::MAX, |known| known.exit_ns);
        latest_before(&t.off, |later| later.start_ns < exit_ns)
            .take_while(|later| later.start_ns >= off.end_ns)
            .find(|later| waits_for_bytes(later) && later.call.is_some_and(|c| c == call))
    }

    /// Emits what `thread` did on its CPU in `[from_ns, to_ns)`.
    pub(super) fn awake(
        &mut self,
        thread: ThreadId,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<(), NotYet> {
        let t = self.world.thread(thread);
        let mut at_ns = to_ns;
        while at_ns > from_ns {
            let no_more = self.settings.no_more_records;
            let Some(piece) = classify::on_cpu::piece_before(t, at_ns, from_ns, no_more) else {
                return Err(NotYet(thread));
            };
            self.on_cpu(thread, &piece, at_ns);
            at_ns = piece.start_ns;
        }
        Ok(())
    }

    /// Follows a waker back. If its path returns to a thread already in the request, keeps what it emitted and returns
    /// where it came out. Otherwise it leaves no trace.
    pub(super) fn explore(
        &mut self,
        waker: ThreadId,
        woken_ns: u64,
        depth: usize,
    ) -> Result<Option<(ThreadId, u64)>, NotYet> {
        let mark = self.output.out.len();
        let way = self.search.set_out();
        let (mut thread, mut at_ns) = (waker, woken_ns);
        // Paths meet where a thread comes back on its CPU.
        let mut visited = vec![(waker, woken_ns, self.search.through_read)];
        let most_steps = self.settings.most_steps;
        while at_ns > self.goal.start_ns && self.attempts.steps <= most_steps && !self.is_astray() {
            if self.explores_too_much_of_life() {
                break;
            }
            if self.search.dead_ends.contains(&(thread, at_ns, self.search.through_read)) {
                break;
            }
            match self.step(thread, at_ns, depth)? {
                Step::Go(t, ns) => (thread, at_ns) = (t, ns),
                Step::Nowhere | Step::NoLock => break,
                Step::Joined(t, ns) => {
                    self.join(waker);
                    return Ok(Some((t, ns)));
                }
            }
            if self.world.thread(thread).off_before(at_ns).is_some_and(|off| off.end_ns == at_ns) {
                visited.push((thread, at_ns, self.search.through_read));
            }
        }
        self.output.out.truncate(mark);
        self.search.return_to(way);
        self.search.dead_ends.extend(visited);
        Ok(None)
    }

    /// The same, also over several hand-overs in a row that found their threads awake.
    fn explore_in_a_row(
        &mut self,
        waker: ThreadId,
        woken_ns: u64,
        depth: usize,
    ) -> Result<Option<(ThreadId, u64)>, NotYet> {
        let dead_ends = std::mem::take(&mut self.search.dead_ends);
        self.search.in_a_row = true;
        let found = self.explore(waker, woken_ns, depth);
        self.search.in_a_row = false;
        self.search.dead_ends = dead_ends;
        found
    }

    /// Emits the wait `[from_ns, to_ns)` of `thread` as one wait; see [`classify::off_cpu::explain`].
    pub(super) fn charge(
        &mut self,
        thread: ThreadId,
        off: &Off,
        from_ns: u64,
        to_ns: u64,
        unexplained: Option<&str>,
    ) {
        let parts =
            classify::off_cpu::explain(self.world, thread, off, from_ns, to_ns, unexplained);
        for mut part in parts.into_iter().rev() {
            if part.category == Category::IdlePeer && part.cause.is_none() {
                part.cause = self.held_back(thread, off).map(|why| format!("at first {why}"));
            }
            let futex = off.call.filter(|call| waits(call.nr, call.object) == Waits::Futex);
            // A rest that ended for another request does not show that this request's peer was waited for.
            let idle = part.category == Category::IdlePeer && self.rested_for_another(thread, off);
            if idle && self.is_in_memory(thread, off) {
                self.rested_meanwhile(thread, off, (part.from_ns, part.to_ns));
                continue;
            }
            let woken = |call: &OpenCall| self.world.process_of(thread).futexes.is_woken(call);
            let shaky = part.category == Category::Sleep
                && (self.may_rest_for_others(thread, off) || futex.as_ref().is_some_and(woken));
            let stolen = self.output.likely && self.world.process_of(thread).shares_work;
            let evidence = match idle || shaky || part.is_inferred || stolen {
                true => Evidence::Modelled,
                false => Evidence::Measured,
            };
            let detail = Some(self.output.names.texts.add(&part.detail));
            let cause = part.cause.map(|cause| self.output.names.texts.add(&cause));
            self.emit(
                thread,
                part.from_ns,
                part.to_ns,
                part.category,
                detail,
                cause,
                part.by,
                off.cpu,
                evidence,
            );
        }
    }
}
