//! Waits of runtimes' tasks, told as if they were system calls: to the engine a task that parks is a thread that sleeps
//! in a call.

use rpcprobe_record::TaskWait;

/// Of these numbers, which no call has, the first is of a wait of which nothing is known.
const FIRST: u16 = 0xfe00;
const LAST: u16 = 0xfeff;

/// The number of a wait, as if it were a call.
pub fn nr_of(wait: Option<TaskWait>) -> u16 {
    FIRST + wait.map_or(0, |wait| u16::from(wait.number()))
}

/// Whether it is not a call's number, but that of a wait.
pub fn is_task_wait(nr: u16) -> bool {
    (FIRST..=LAST).contains(&nr)
}

/// What a task waits for that is asleep in the call of that number.
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
