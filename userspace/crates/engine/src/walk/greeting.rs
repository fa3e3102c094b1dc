//! Greetings by a thread that took the connection from memory.
//!
//! The request has opened a connection to a server that greets. One thread of the server accepts the connection and puts
//! it in a queue; another takes it from there and greets. If the acceptor wakes that thread, the ordinary steps lead to
//! it. If the thread was awake already, or had been woken for another connection, nothing leads from it to the acceptor.

use crate::ownership::marks::{rested_ns, MarkKind};
use crate::timeline::Opening;
use crate::walk::*;

/// `detail` of a `queue.app` segment.
const NOT_GREETED: &str = "accepted, and no thread of the server had begun to serve it";

impl Walk<'_> {
    /// Step back over a sleep that such a greeting ended: over what the greeting thread did since it had done with
    /// something else, and since when the connection waited in the queue, to the accept.
    pub(super) fn greeted_from_memory(
        &mut self,
        thread: ThreadId,
        off: &Off,
        wake: Wake,
        (edge_ns, woken_ns): (u64, u64),
        depth: usize,
    ) -> Result<Option<Step>, NotYet> {
        let Some(accepted) = self.accept_of_greeting(thread, off, wake) else { return Ok(None) };
        let worker = wake.waker;
        let Some(free_ns) = self.free_since(worker, edge_ns, accepted.exit_ns) else {
            return Ok(None);
        };
        let since_ns = free_ns.max(accepted.exit_ns);
        let (mark, way) = (self.output.out.len(), self.search.set_out());
        self.awake(thread, edge_ns, woken_ns)?;
        let by_worker = self.output.out.len();
        let rule = std::mem::replace(&mut self.output.rule, Rule::InMemory);
        let mut at_ns = edge_ns;
        while at_ns > since_ns {
            match self.step(worker, at_ns, depth)? {
                Step::Go(to, ns) if to == worker && ns < at_ns => at_ns = ns,
                _ => {
                    self.output.out.truncate(mark);
                    self.output.rule = rule;
                    self.search.return_to(way);
                    return Ok(None);
                }
            }
        }
        // A piece may have begun before the connection was accepted.
        let pieces = self.output.out.split_off(by_worker);
        let pieces = pieces.into_iter().filter(|raw| raw.end_ns > since_ns);
        self.output.out.extend(pieces.map(|raw| {
            let start_ns = raw.start_ns.max(since_ns);
            Raw { start_ns, evidence: Evidence::Modelled, ..raw }
        }));
        let span = (accepted.exit_ns, since_ns);
        self.queue(worker, span, Category::QueueApp, NOT_GREETED, Rule::InMemory);
        self.output.rule = Rule::InMemory;
        Ok(Some(Step::Joined(accepted.thread, accepted.exit_ns)))
    }

    /// The accept of the connection on which the thread, after this sleep, is greeted by its waker, if a thread of the
    /// request opened the connection for it and another thread of the server accepted it before.
    fn accept_of_greeting(&self, thread: ThreadId, off: &Off, wake: Wake) -> Option<Opening> {
        if !self.applies(Rule::InMemory) {
            return None;
        }
        let t = self.world.thread(thread);
        let next = count_before(&t.marks.list, |mark| mark.exit_ns <= off.end_ns);
        let heard = t.marks.list.get(next).filter(|mark| mark.kind == MarkKind::Hears)?;
        let answers = self.world.channels.get(&heard.moved.object)?;
        let asked = self.world.channels.get(&answers.reverse?)?;
        let greets = asked.first_since_connected_ns.is_none_or(|ns| ns >= heard.exit_ns);
        let (accepted, opened) = (asked.accepted?, asked.connected?);
        let write = Channel::find(&answers.writes, heard.moved.from)?;
        let process = |thread: ThreadId| self.world.thread(thread).process;
        let by_another = process(accepted.thread) == process(wake.waker)
            && accepted.thread != wake.waker
            && accepted.exit_ns < wake.at_ns;
        let by_it = write.thread == wake.waker && within(wake.at_ns, write);
        let rested = rested_ns(t, off.end_ns, heard.enter_ns).is_some();
        (greets && by_another && by_it && !rested && self.is_opened_for_it(&opened))
            .then_some(accepted)
    }

    /// Since when a thread had done with everything else before `at_ns`, unless it was woken after `accepted_ns`, when
    /// it may have been woken for this.
    fn free_since(&self, thread: ThreadId, at_ns: u64, accepted_ns: u64) -> Option<u64> {
        let t = self.world.thread(thread);
        let marks = &t.marks.list;
        let moved = count_before(marks, |mark| mark.exit_ns <= at_ns).checked_sub(1);
        let moved_ns = moved.map_or(0, |last| marks[last].exit_ns);
        let slept = latest_before(&t.off, |off| off.end_ns <= at_ns)
            .find(|off| off.why != Why::Preempted)
            .filter(|off| off.end_ns > moved_ns);
        match slept {
            Some(off) => {
                let wake = off.wake.filter(|wake| wake.at_ns < accepted_ns)?;
                Some(off.end_ns.max(wake.at_ns))
            }
            None => Some(moved_ns),
        }
    }
}
