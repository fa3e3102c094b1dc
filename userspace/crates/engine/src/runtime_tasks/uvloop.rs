//! uvloop: what a task gives to a stream, the loop writes when the steps are over. This counts as a step of the task,
//! which lets others go first until then.

use super::{At, RuntimeTasks};
use crate::event::TaskWait;

impl RuntimeTasks {
    /// The task that the thread runs has given a stream something to write.
    pub(super) fn gives(&mut self, stream: (u32, u64), tid: u32, at: At<'_>) {
        let Some(&(giver, number)) = self.running.get(&tid) else {
            return self.readied(stream, tid, Some(TaskWait::AWAIT), at);
        };
        self.given.insert(stream, giver);
        if let Some(task) = self.living.get_mut(&giver) {
            task.readied_early(number, TaskWait::AWAIT, at);
        }
    }

    /// Who takes a step: the giver, if it is a stream that has been given something, and whether another task has
    /// readied the giver meanwhile.
    pub(super) fn writer(&mut self, who: (u32, u64)) -> ((u32, u64), bool) {
        let giver = self.given.remove(&who);
        let task = giver.and_then(|giver| Some((giver, self.living.get(&giver)?)));
        task.map_or((who, false), |(giver, task)| (giver, task.is_readied))
    }

    /// A task that writes has been readied before, so it does not wait after that.
    pub(super) fn goes_on_after_writing(&mut self, who: (u32, u64)) {
        if let Some(task) = self.living.get_mut(&who) {
            task.early = Some((task.number, TaskWait::AWAIT));
        }
    }
}
