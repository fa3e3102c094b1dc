//! One step back: what a thread was doing just before a time, and where that leads.
//!
//! The first question is which request the thread worked for ([`super::turns`]). The second is what it did: it was off
//! the CPU, it had just begun, or it ran, in a call or not. A call may be where the request came in, or where the
//! thread was handed it.

use crate::classify::on_cpu::Piece;
use crate::walk::*;

impl Walk<'_> {
    /// One step back from `(thread, at_ns)`. `depth`: how many wakers are being explored.
    ///
    /// # Errors
    /// [`NotYet`]: the thread's next records are still to come.
    pub(super) fn step(
        &mut self,
        thread: ThreadId,
        at_ns: u64,
        depth: usize,
    ) -> Result<Step, NotYet> {
        self.attempts.steps += 1;
        self.note_time(at_ns);
        self.note_thread(thread);
        self.note_first_read(thread, at_ns);
        if depth > 0 && self.is_before_read(thread, at_ns) {
            return Ok(Step::Nowhere);
        }
        if let Some(step) = self.through_child(thread, at_ns)? {
            return Ok(step);
        }
        if let Some(step) = self.asked_when_freed(thread, at_ns) {
            return Ok(step);
        }
        if let Some(step) = self.for_whom(thread, at_ns, depth) {
            return Ok(step);
        }
        let t = self.world.thread(thread);
        let off = t.off_before(at_ns);
        if let Some(off) = off.filter(|off| off.end_ns >= at_ns) {
            return self.off_cpu(thread, off, at_ns, depth);
        }
        let mut floor_ns = off.map_or(0, |off| off.end_ns).max(self.goal.start_ns);
        match self.ended_by_another(thread, at_ns) {
            Some(Ended::Now(step)) => return Ok(step),
            Some(Ended::Since(ended_ns)) => floor_ns = floor_ns.max(ended_ns),
            None => {}
        }
        if let Some(maker) = t.made_by.filter(|_| at_ns <= t.born_ns && t.was_made_asleep()) {
            return Ok(self.at_birth(thread, maker, at_ns));
        }
        if at_ns <= t.known_from_ns {
            self.give_up(thread, at_ns, "before anything is known of this thread");
            return Ok(Step::Go(thread, self.goal.start_ns));
        }
        let floor_ns = floor_ns.max(t.known_from_ns.min(at_ns - 1));
        let no_more = self.settings.no_more_records;
        let Some(piece) = classify::on_cpu::piece_before(t, at_ns, floor_ns, no_more) else {
            return Err(NotYet(thread));
        };
        if let Level::Call(call) = piece.level {
            if let Some(step) = self.through_call(thread, call, &piece, at_ns, depth)? {
                return Ok(step);
            }
        }
        self.on_cpu(thread, &piece, at_ns);
        Ok(Step::Go(thread, piece.start_ns))
    }

    /// Determines which requests the segments emitted next are for. Returns the step, if the thread worked for others.
    fn for_whom(&mut self, thread: ThreadId, at_ns: u64, depth: usize) -> Option<Step> {
        (self.output.shared, self.output.likely) = (1, false);
        let turn = self.turn(thread, at_ns);
        // A waker's own work may be long. If there is another way to explain the request, only work known to be for
        // others counts.
        let for_another = || self.goes_on_with_another(thread, at_ns);
        let is_astray = match depth > 0 {
            true => !self.attempts.is_bounded || for_another(),
            false => turn.is_none() && for_another(),
        };
        self.attempts.astray += usize::from(is_astray);
        self.output.by_marks = matches!(turn, Some(Turn::Own | Turn::Shared { .. } | Turn::Likely));
        match turn {
            Some(Turn::Others { .. }) if depth > 0 && self.attempts.strict => {
                return Some(Step::Nowhere)
            }
            Some(Turn::Others { from_ns }) => {
                let from_ns = from_ns.max(self.goal.start_ns);
                self.others_turn(thread, from_ns, at_ns);
                return Some(Step::Go(thread, from_ns));
            }
            Some(Turn::Shared { by, likely }) => {
                (self.output.shared, self.output.likely) = (by, likely);
                return self.worked_together(thread, at_ns);
            }
            Some(Turn::Likely) => self.output.likely = true,
            Some(_) => {}
            None => {
                if let Some(step) = self.at_work_for_another(thread, at_ns, depth) {
                    return Some(step);
                }
                let unseen = self.output.rule == Rule::InMemory;
                self.output.likely = self.may_be_anothers(thread, at_ns)
                    || unseen && self.has_taken_anothers(thread, at_ns);
            }
        }
        None
    }

    /// For a thread that another thread's exit_group() ended: what the thread did before has nothing to do with its
    /// end.
    fn ended_by_another(&mut self, thread: ThreadId, at_ns: u64) -> Option<Ended> {
        let group_exit = self.world.process_of(thread).group_exit;
        let (ended_ns, by) = group_exit.filter(|_| self.applies(Rule::GroupExit))?;
        let exited_ns = self.world.thread(thread).exited_ns?;
        if by == thread || exited_ns < ended_ns || at_ns < ended_ns {
            return None;
        }
        if at_ns > ended_ns {
            return Some(Ended::Since(ended_ns));
        }
        self.output.rule = Rule::GroupExit;
        Some(Ended::Now(Step::Go(by, ended_ns)))
    }

    /// Where a call leads in which the thread did not sleep just before. A read that found its bytes ready is where a
    /// message came in; a call before which the request waited in memory is where it was handed on.
    fn through_call(
        &mut self,
        thread: ThreadId,
        call: &Call,
        piece: &Piece,
        at_ns: u64,
        depth: usize,
    ) -> Result<Option<Step>, NotYet> {
        let read = (thread, call.enter_ns);
        if !self.search.crossed.contains(&read) {
            if let Some(step) = self.read_without_sleep(thread, call, piece.start_ns, at_ns) {
                self.search.crossed.insert(read);
                return Ok(Some(step));
            }
            if let Some(step) = self.arrived_before(thread, call, piece.start_ns, at_ns)? {
                self.search.crossed.insert(read);
                return Ok(Some(step));
            }
        }
        if let Some(step) = self.accept_without_sleep(thread, call, piece.start_ns, at_ns) {
            return Ok(Some(step));
        }
        // A path that is explored is judged by where it leads.
        if depth == 0 {
            let span = (piece.start_ns, at_ns);
            if let Some(step) = self.accepted_for_another(thread, call, span) {
                return Ok(Some(step));
            }
        }
        if let Some(step) = self.wait_without_sleep(thread, call, piece, at_ns)? {
            return Ok(Some(step));
        }
        // A waker that is explored and answers others there need not have had this request.
        let followed = depth == 0 || self.doubts();
        let taken = match followed && self.applies(Rule::InMemory) {
            true => service_start::waiting_inside(self.world, self.goal, thread, call),
            false => None,
        };
        let Some((reader, read_ns)) = taken.filter(|(_, read_ns)| *read_ns < at_ns) else {
            return Ok(None);
        };
        if depth > 0 {
            return Ok(Some(Step::Nowhere));
        }
        Ok(Some(match self.waited_in_memory(thread, (reader, read_ns), at_ns) {
            Step::Go(to, ns) if to == reader => Step::Joined(to, ns),
            step => step,
        }))
    }
}

/// When another thread's exit_group() ended a thread.
enum Ended {
    /// At this instant; the other thread's path leads on.
    Now(Step),
    /// Before, at that time.
    Since(u64),
}
