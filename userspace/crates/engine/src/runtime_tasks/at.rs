//! Collects the events that are reported of tasks.

use super::TASK_RUNNING;
use crate::event::{Event, OpenCall, What};

/// Where reported events go, and the time and CPU at which they happened.
pub(super) struct At<'e> {
    pub(super) ts_ns: u64,
    pub(super) cpu: u32,
    pub(super) events: &'e mut Vec<Event>,
}

impl At<'_> {
    pub(super) fn again(&mut self) -> At<'_> {
        At { ts_ns: self.ts_ns, cpu: self.cpu, events: &mut *self.events }
    }

    pub(super) fn tell(&mut self, what: What) {
        self.events.push(Event { ts_ns: self.ts_ns, cpu: self.cpu, what });
    }

    pub(super) fn switch(&mut self, prev: u32, next: u32, (state, call): (u16, Option<OpenCall>)) {
        let preempt = state == TASK_RUNNING;
        let (waited_ns, iowait) = (None, false);
        self.tell(What::Switch { prev, next, waited_ns, state, preempt, iowait, call });
    }
}
