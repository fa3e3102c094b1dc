//! Waits of goroutines, told as if they were system calls: to the engine a goroutine that parks is a thread that sleeps
//! in a call.

use rpcprobe_record::GoWait;

/// Of these numbers, which no call has, the first is of a wait of which nothing is known.
const FIRST: u16 = 0xfe00;
const LAST: u16 = 0xfeff;

/// The number of a wait, as if it were a call.
pub fn nr_of(wait: Option<GoWait>) -> u16 {
    FIRST + wait.map_or(0, |wait| u16::from(wait.number()))
}

/// Whether it is not a call's number, but that of a wait.
pub fn is_go_wait(nr: u16) -> bool {
    (FIRST..=LAST).contains(&nr)
}

/// What a goroutine waits for that is asleep in the call of that number.
pub fn go_wait(nr: u16) -> Option<GoWait> {
    GoWait::numbered(nr.checked_sub(FIRST)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_numbers_of_their_own() {
        let wait = GoWait::named("chan receive");
        assert!(wait.is_some() && go_wait(nr_of(wait)) == wait && is_go_wait(nr_of(wait)));
        assert!(is_go_wait(nr_of(None)) && go_wait(nr_of(None)).is_none());
        assert!(!is_go_wait(202) && go_wait(202).is_none() && go_wait(u16::MAX).is_none());
    }
}
