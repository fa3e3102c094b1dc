//! Steps over on-CPU intervals, and rule `child`.

use crate::walk::*;

impl Walk<'_> {
    pub(super) fn on_cpu(
        &mut self,
        thread: ThreadId,
        piece: &classify::on_cpu::Piece<'_>,
        end_ns: u64,
    ) {
        let mut category = classify::on_cpu::category(&piece.level);
        let mut detail = self.output.names.describe(&piece.level);
        if let Level::Softirq(span) = piece.level {
            let t = self.world.thread(thread);
            let received = span.number == SOFTIRQ_NET_RX && self.applies(Rule::Wire);
            if received && classify::on_cpu::in_network_call(t, span.end_ns) {
                // Its own packet, on its way to the socket's other end.
                category = Category::WireStack;
                detail = Some(self.output.names.texts.add("receive stack"));
            }
        }
        let t = self.world.thread(thread);
        let (rates, mut outside) = (self.settings.rates, None);
        if let Level::User | Level::Call(_) = piece.level {
            // Entry and return cannot be bracketed: they count from the end on.
            let fault = last_before(&t.faults, |span| span.start_ns < piece.start_ns);
            let ended = fault.filter(|fault| fault.end_ns == piece.start_ns);
            if let Some(fault) = ended {
                let inside_ns = fault.end_ns - fault.start_ns;
                outside = Some((rates.outside_fault_ns(inside_ns), Category::Fault));
            } else if t.call_before(piece.start_ns).is_some_and(|c| c.exit_ns == piece.start_ns) {
                outside = Some((rates.call_outside_ns, Category::KernelOther));
            }
        }
        let copy = match piece.level {
            Level::Call(call) => rates.copied(t, call),
            _ => None,
        };
        let (outside_ns, around) = outside.unwrap_or((0, Category::User));
        let inside_from = end_ns.min(piece.start_ns.saturating_add(outside_ns));
        let (copy_from, copy_to) = match copy {
            Some((from, to)) => (from.clamp(inside_from, end_ns), to.clamp(inside_from, end_ns)),
            None => (end_ns, end_ns),
        };
        let pieces = [
            (copy_to, end_ns, category, Evidence::Measured),
            (copy_from, copy_to, Category::Copy, Evidence::Modelled),
            (inside_from, copy_from, category, Evidence::Measured),
        ];
        for (from_ns, to_ns, category, evidence) in pieces {
            if from_ns < to_ns {
                self.emit(thread, from_ns, to_ns, category, detail, None, None, None, evidence);
                if category == Category::WireStack {
                    self.as_its_call(from_ns);
                }
            }
        }
        if piece.start_ns < inside_from {
            let (from_ns, to_ns) = (piece.start_ns, inside_from);
            let detail = Some(self.output.names.texts.add("entry and return"));
            let evidence = Evidence::Modelled;
            self.emit(thread, from_ns, to_ns, around, detail, None, None, None, evidence);
        }
    }

    /// What a packet does in the call that sends it is work of the call, for as many requests: the packet carries them all.
    fn as_its_call(&mut self, from_ns: u64) {
        let (shared, likely) = (self.output.shared, self.output.likely);
        let from_ns = from_ns.max(self.goal.start_ns);
        let last = self.output.out.last_mut();
        if let Some(raw) = last.filter(|raw| raw.start_ns == from_ns) {
            raw.shared = shared;
            if likely {
                raw.evidence = Evidence::Modelled;
            }
        }
    }

    /// The request's child had ended before its parent waited for it.
    pub(super) fn wait_without_sleep(
        &mut self,
        thread: ThreadId,
        call: &Call,
        piece: &classify::on_cpu::Piece<'_>,
        at_ns: u64,
    ) -> Result<Option<Step>, NotYet> {
        let child = self.goal.child.filter(|_| self.applies(Rule::Child));
        let Some(child) = child else { return Ok(None) };
        if call.exit_ns != self.goal.end_ns || thread != self.goal.client {
            return Ok(None);
        }
        let t = self.world.thread(thread);
        let slept = latest_before(&t.off, |off| off.start_ns < call.exit_ns)
            .take_while(|off| off.start_ns >= call.enter_ns)
            .any(|off| matches!(off.why, Why::Slept { .. }));
        if slept || piece.start_ns > call.enter_ns {
            return Ok(None);
        }
        let Some(last) = self.world.processes[child as usize].last_exited else { return Ok(None) };
        let dead = self.world.thread(last);
        // Its last context switch comes a little after the moment it could be collected.
        let gone = dead.off.back().filter(|off| off.why == Why::Dead);
        let ended_ns = match (gone, dead.exited_ns) {
            (Some(off), _) => off.start_ns,
            (None, _) if !self.settings.no_more_records => return Err(NotYet(last)),
            (None, Some(exited_ns)) => exited_ns,
            (None, None) => return Ok(None),
        }
        .min(call.enter_ns);
        if ended_ns <= self.goal.start_ns {
            return Ok(None);
        }
        self.on_cpu(thread, piece, at_ns);
        let detail = "child ended, not yet waited for";
        self.queue(thread, (ended_ns, call.enter_ns), Category::QueueApp, detail, Rule::Child);
        self.output.rule = Rule::Child;
        Ok(Some(Step::Joined(last, ended_ns)))
    }
}
