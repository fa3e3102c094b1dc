//! Rule `turn` in a client: on a thread that asks for several requests, decides for which of them it works.
//!
//! A client's thread may have many requests under way: streams of one connection, or connections that it polls. Its
//! marks ([`crate::ownership::marks`]) tell when it asks and when it hears. Between what it moves for this request:
//! - before it asks, since it last moved anything or rested, it works for what it asks;
//! - after it asked, until it rests or asks for another, it works for what it has asked;
//! - before it hears an answer, it works for that one if the answer ended its rest; else for the answer that it heard
//!   before;
//! - the rest is the others', and the request waits for its turn.

use crate::ownership::marks::{rested_ns, MarkKind};
use crate::walk::*;

impl Walk<'_> {
    /// For whom a client's thread worked just before `at_ns`. `next`: its first mark that ends then or later; `inside`:
    /// in that one's call, which is not the request's.
    pub(super) fn turn_of_asker(
        &self,
        thread: ThreadId,
        (next, inside): (usize, bool),
        at_ns: u64,
    ) -> Option<Turn> {
        let t = self.world.thread(thread);
        let marks = &t.marks.list;
        let last = next.checked_sub(1)?;
        let own = self.own_mark(thread, at_ns).filter(|own| *own <= last)?;
        let own_ns = marks[own].exit_ns;
        let (goes_on, rested) = (last == own, rested_ns(t, marks[last].exit_ns, at_ns).is_some());
        let after = marks.get(next).filter(|mark| rested_ns(t, at_ns, mark.enter_ns).is_none());
        match after.map(|after| (after.kind, self.of_goal(after))) {
            _ if inside => {}
            Some((MarkKind::Asks | MarkKind::Answers, true)) if goes_on => return Some(Turn::Own),
            Some((MarkKind::Asks | MarkKind::Answers, true)) => return Some(Turn::Likely),
            Some((MarkKind::Hears | MarkKind::Takes, true)) if goes_on || rested => {
                return Some(Turn::Own);
            }
            Some((MarkKind::Hears | MarkKind::Takes, false)) if goes_on && !rested => {
                return Some(Turn::Own);
            }
            None if goes_on && !rested => return Some(Turn::Own),
            None if rested => return None,
            _ => {}
        }
        let rested_ns = rested_ns(t, own_ns, at_ns);
        let turned_ns = if goes_on && !inside { own_ns } else { marks[own + 1].enter_ns };
        let from_ns = turned_ns.max(rested_ns.unwrap_or(0));
        (from_ns < at_ns).then_some(Turn::Others { from_ns })
    }

    /// Whether a thread of the client, by its messages, works for another request at that time.
    pub(super) fn asks_for_another(&self, thread: ThreadId, at_ns: u64) -> bool {
        let process = self.world.thread(thread).process;
        process == self.goal.client_process
            && Some(process) != self.goal.server_process
            && matches!(self.turn(thread, at_ns), Some(Turn::Others { .. }))
    }
}
