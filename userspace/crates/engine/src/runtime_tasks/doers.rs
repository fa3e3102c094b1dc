//! Assigns what a thread does to the task that it runs.

use rpcprobe_record::TaskWait;

use crate::event::{OpenCall, What, TYPE_FUTEX};
use crate::runtime_tasks::RuntimeTasks;
use crate::task_wait;

impl RuntimeTasks {
    /// Replaces each thread that runs a task with that task.
    pub(super) fn of_tasks(&self, what: &mut What) {
        let running = |tid: &mut u32| *tid = self.doer(*tid);
        match what {
            What::Switch { prev, next, call, .. } => {
                if let Some(call) = call.as_mut().filter(|call| waits_as_gos_runtime(call)) {
                    if self.runs_goroutine(*prev) {
                        call.nr = task_wait::nr_of(Some(TaskWait::GO_RUNTIME_MUTEX));
                    }
                }
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
            // These concern threads themselves, what was before, or no thread.
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
            | What::Encrypted { .. }
            | What::Method(_)
            | What::RuntimeTask { .. }
            | What::Waited { .. }
            | What::WokenAgain { .. } => {}
        }
    }
    /// Whether a thread runs a task of a process whose tasks are goroutines.
    fn runs_goroutine(&self, tid: u32) -> bool {
        self.running.get(&tid).is_some_and(|((tgid, _), _)| self.of_go.contains(tgid))
    }
}

/// Whether a thread waits as Go's runtime does for its own locks: on a semaphore that each thread has, whose value is
/// -1 meanwhile (`semasleep()`, src/runtime/lock_futex.go; since Go 1.24 used by `lock2()` only,
/// src/runtime/lock_spinbit.go).
fn waits_as_gos_runtime(call: &OpenCall) -> bool {
    const FUTEX_WAIT: u32 = 0;
    let futex = call.object.filter(|object| object.type_bits == TYPE_FUTEX);
    call.fd == -1 && futex.is_some_and(|futex| futex.dev & 0x7f == FUTEX_WAIT)
}
