//! Waits of runtimes' tasks, presented as system calls: to the engine, a task that parks is a thread that sleeps in a
//! call.

use rpcprobe_record::TaskWait;

/// The numbers of waits; no system call has them. The first stands for a wait with no known reason.
const FIRST: u16 = 0xfe00;
const LAST: u16 = 0xfeff;

/// The number of a wait, as if it were a call.
pub fn nr_of(wait: Option<TaskWait>) -> u16 {
    FIRST + wait.map_or(0, |wait| u16::from(wait.number()))
}

/// Whether the number is that of a task's wait, and not of a call.
pub fn is_task_wait(nr: u16) -> bool {
    (FIRST..=LAST).contains(&nr)
}

/// The wait that a number stands for.
pub fn task_wait(nr: u16) -> Option<TaskWait> {
    TaskWait::numbered(nr.checked_sub(FIRST)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_numbers_of_their_own() {
        let wait = TaskWait::named("chan receive");
        assert!(wait.is_some() && task_wait(nr_of(wait)) == wait && is_task_wait(nr_of(wait)));
        assert!(is_task_wait(nr_of(None)) && task_wait(nr_of(None)).is_none());
        assert!(!is_task_wait(202) && task_wait(202).is_none() && task_wait(u16::MAX).is_none());
    }
}
