//! Holds back events while a thread runs Node's timers. Which timer the thread runs is known only when the timer's
//! callback has returned. Until then, what the thread does and everything that happens meanwhile is held back.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::{Event, TaskChange, TaskWait, What};

/// A callback that takes longer than this many events is not waited for.
const MOST_HELD: usize = 1 << 16;

/// The events that are held back, in order.
#[derive(Debug, Default)]
pub struct Held {
    events: VecDeque<Event>,
    /// The number of events before these.
    before: u64,
    /// For each thread that runs a timer not known yet: where, counted over all events, the thread came to it.
    open: FxHashMap<u32, u64>,
    /// Tasks that were made in these events.
    made: FxHashSet<(u32, u64)>,
}

impl Held {
    /// Returns the event, if nothing is held back. `is_known`: whether a task of that process and address is known from
    /// before.
    pub fn take(&mut self, event: Event, is_known: impl Fn((u32, u64)) -> bool) -> Option<Event> {
        let mut comes_to = None;
        match &event.what {
            What::RuntimeTask { tid, tgid, address, change } => match change {
                // The timer's callback has returned; it has run since the thread came to the timer. If no timer of this
                // number was made, another timer has been given up.
                TaskChange::StepsAfter(TaskWait::TIMER) => {
                    let who = (*tgid, *address);
                    let is_made = self.made.contains(&who) || is_known(who);
                    if let Some(since) = is_made.then(|| self.since(*tid)).flatten() {
                        since.what = event.what;
                        return None;
                    }
                }
                TaskChange::Timers | TaskChange::Drained => comes_to = Some(*tid),
                TaskChange::StepsAfter(_) => self.goes_on(*tid),
                TaskChange::Parks(_) if *address == 0 => self.goes_on(*tid),
                _ => {}
            },
            What::Exit { tid, .. } => self.goes_on(*tid),
            _ => {}
        }
        if self.events.is_empty() && comes_to.is_none() {
            return Some(event);
        }
        if let What::RuntimeTask { tgid, address, change: TaskChange::Made, .. } = event.what {
            self.made.insert((tgid, address));
        }
        let came = comes_to.map(|tid| (tid, came_to_timer(&event)));
        self.events.push_back(event);
        if let Some((tid, came)) = came {
            self.goes_on(tid);
            self.open.insert(tid, self.before + self.events.len() as u64);
            self.events.push_back(came);
        }
        if self.events.len() > MOST_HELD {
            self.give_up();
        }
        None
    }

    /// The event at which the thread came to the timer that it runs.
    fn since(&mut self, tid: u32) -> Option<&mut Event> {
        let number = self.open.remove(&tid)?;
        self.events.get_mut(usize::try_from(number - self.before).ok()?)
    }

    /// The thread does something else, without having run a timer.
    fn goes_on(&mut self, tid: u32) {
        self.open.remove(&tid);
    }

    /// The next event that need not be held back any longer.
    pub fn next(&mut self) -> Option<Event> {
        if self.open.values().any(|number| *number == self.before) {
            return None;
        }
        let event = self.events.pop_front()?;
        self.before += 1;
        if let What::RuntimeTask { tgid, address, change: TaskChange::Made, .. } = event.what {
            self.made.remove(&(tgid, address));
        }
        Some(event)
    }

    /// Timers that are not known yet will not become known.
    pub fn give_up(&mut self) {
        self.open.clear();
    }
}

/// A placeholder for the timer to which a thread comes. It says nothing as long as the timer is not known.
fn came_to_timer(event: &Event) -> Event {
    let mut came = event.clone();
    if let What::RuntimeTask { change, .. } = &mut came.what {
        *change = TaskChange::Drained;
    }
    came
}
