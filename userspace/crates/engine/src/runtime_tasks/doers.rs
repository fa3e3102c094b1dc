//! Who does what a thread does: the task that it runs.

use crate::event::What;
use crate::runtime_tasks::RuntimeTasks;

impl RuntimeTasks {
    /// What threads do that run tasks, those do.
    pub(super) fn of_tasks(&self, what: &mut What) {
        let running = |tid: &mut u32| *tid = self.doer(*tid);
        match what {
            What::Switch { prev, next, .. } => {
                running(prev);
                running(next);
            }
            What::Waking { waker, wakee, .. } => {
                running(waker);
                running(wakee);
            }
            What::UnseenSwitch { tid, last, .. } => {
                running(tid);
                running(last);
            }
            What::Fork { parent: tid, .. }
            | What::Call { tid, .. }
            | What::Transfer { tid, .. }
            | What::Fault { tid, .. }
            | What::Irq { tid, .. }
            | What::Contention { tid, .. }
            | What::Throttle { tid }
            | What::Function { tid, .. }
            | What::Work { queuer: tid, .. }
            | What::Stack { tid, .. }
            | What::Sample { tid, .. }
            | What::Steal { tid, .. }
            | What::Migrate { tid, .. } => running(tid),
            What::Block(block) => running(&mut block.tid),
            // Of threads themselves, of what was before, or of nobody.
            What::Lost { .. }
            | What::Exec(_)
            | What::Exit { .. }
            | What::Rename { .. }
            | What::Task { .. }
            | What::Marked { .. }
            | What::Journal { .. }
            | What::Arrival { .. }
            | What::Packet { .. }
            | What::Channel(_)
            | What::File { .. }
            | What::Role { .. }
            | What::Mapping(_)
            | What::Unit(_)
            | What::Gap { .. }
            | What::Method(_)
            | What::RuntimeTask { .. }
            | What::Waited { .. } => {}
        }
    }
}
