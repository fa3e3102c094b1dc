//! Decodes what a thread has done with a runtime's task.

use rpcprobe_record::*;

use crate::event::TaskChange;

/// The change that a record reports (`enum runtime_task_change` of `bpf/records.h`); `None`: a later version's.
pub(super) fn task_change(hdr: &RecHdr) -> Option<TaskChange> {
    Some(match hdr.flags {
        RUNTIME_TASK_RUNS => TaskChange::Runs,
        RUNTIME_TASK_PARKS => TaskChange::Parks(TaskWait::numbered(hdr.aux)),
        RUNTIME_TASK_YIELDS => TaskChange::Yields,
        RUNTIME_TASK_ENDS => TaskChange::Ends,
        RUNTIME_TASK_READIED => TaskChange::Readied(TaskWait::numbered(hdr.aux)),
        RUNTIME_TASK_BORN => TaskChange::Born,
        RUNTIME_TASK_STEPS => match TaskWait::numbered(hdr.aux) {
            Some(wait @ (TaskWait::TIMER | TaskWait::READY)) => TaskChange::StepsAfter(wait),
            _ => TaskChange::Steps,
        },
        RUNTIME_TASK_QUEUED => match TaskWait::numbered(hdr.aux) {
            Some(TaskWait::READY) => TaskChange::Gives,
            _ => TaskChange::Queued,
        },
        RUNTIME_TASK_DUE => TaskChange::Due,
        RUNTIME_TASK_MADE => TaskChange::Made,
        RUNTIME_TASK_TIMERS => TaskChange::Timers,
        RUNTIME_TASK_DRAINED => TaskChange::Drained,
        RUNTIME_TASK_WAITED => TaskChange::Waited(TaskWait::numbered(hdr.aux)),
        _ => return None,
    })
}
