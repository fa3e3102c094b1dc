//! Steps over on-CPU intervals, and rule `child`.

use crate::classify::parts::{parts, Part};
use crate::walk::*;

impl Walk<'_> {
    pub(super) fn on_cpu(
        &mut self,
        thread: ThreadId,
        piece: &classify::on_cpu::Piece<'_>,
        end_ns: u64,
    ) {
        let t = self.world.thread(thread);
        let wire = self.applies(Rule::Wire);
        let within = t.functions.transport_at(end_ns);
        let of_piece = self.output.names.describe(&piece.level, within);
        let [parts @ .., around] = parts(t, piece, end_ns, &self.settings.rates, wire);
        for Part { start_ns, end_ns, category, evidence } in parts {
            if start_ns < end_ns {
                let packet = category == Category::WireStack;
                let detail = match packet {
                    true => Some(self.output.names.fixed("receive stack")),
                    false => of_piece,
                };
                self.emit(thread, start_ns, end_ns, category, detail, None, None, None, evidence);
                if packet {
                    self.as_its_call(start_ns);
                }
            }
        }
        let Part { start_ns, end_ns, category, evidence } = around;
        if start_ns < end_ns {
            let detail = Some(self.output.names.fixed("entry and return"));
            self.emit(thread, start_ns, end_ns, category, detail, None, None, None, evidence);
        }
    }

    /// What a packet does in the call that sends it is work of the call, shared by as many requests: the packet carries
    /// messages of all of them.
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
        // The child's last context switch comes a little after the moment it could be collected.
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
