//! What goroutines wait for.

/// What a wait is, for whoever asks where the time went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoWaitSort {
    /// A descriptor to be ready.
    Descriptor,
    /// Time to pass.
    Timer,
    /// A lock that another goroutine has.
    Lock,
    /// Something to come from another goroutine, or from a timer.
    Channel,
    /// For another goroutine to receive, to be done, or to let go of something.
    Goroutine,
    /// The garbage collector, or what else the runtime does for all. With a name: goroutines of the runtime that do that work
    /// wait so when there is none, and nothing else does.
    Runtime(Option<&'static str>),
}

/// A reason for which goroutines park. Its number is the kernel side's; Go's own differs from version to version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoWait(u8);

use GoWaitSort::{Channel, Descriptor, Goroutine, Lock, Runtime, Timer};

/// By the words that Go has for them (`waitReasonStrings`, src/runtime/runtime2.go, Go 1.18 to 1.26). Captures have
/// their places in this list, counted from 1: append only.
const WAITS: &[(&str, GoWaitSort)] = &[
    ("IO wait", Descriptor),
    ("sleep", Timer),
    ("sync.Mutex.Lock", Lock),
    ("sync.RWMutex.RLock", Lock),
    ("sync.RWMutex.Lock", Lock),
    ("semacquire", Goroutine),
    ("chan receive", Channel),
    ("chan send", Goroutine),
    ("chan receive (nil chan)", Goroutine),
    ("chan send (nil chan)", Goroutine),
    ("select", Channel),
    ("select (no cases)", Goroutine),
    ("sync.Cond.Wait", Channel),
    ("sync.WaitGroup.Wait", Goroutine),
    ("coroutine", Goroutine),
    ("GC assist marking", Runtime(None)),
    ("GC assist wait", Runtime(None)),
    ("GC sweep wait", Runtime(Some("Go GC sweeper"))),
    ("GC scavenge wait", Runtime(Some("Go scavenger"))),
    ("GC worker (idle)", Runtime(Some("Go GC worker"))),
    ("GC worker (active)", Runtime(None)),
    ("GC mark termination", Runtime(None)),
    ("GC weak to strong wait", Runtime(None)),
    ("garbage collection", Runtime(None)),
    ("garbage collection scan", Runtime(None)),
    ("wait for GC cycle", Runtime(None)),
    ("force gc (idle)", Runtime(Some("Go GC starter"))),
    ("finalizer wait", Runtime(Some("Go finalizers"))),
    ("cleanup wait", Runtime(Some("Go cleanups"))),
    ("stopping the world", Runtime(None)),
    ("preempted", Runtime(None)),
];

impl GoWait {
    /// That of which Go has these words.
    pub fn named(words: &str) -> Option<GoWait> {
        let place = WAITS.iter().position(|(name, _)| *name == words)?;
        Some(GoWait(u8::try_from(place + 1).ok()?))
    }

    /// That of this number.
    pub fn numbered(number: u16) -> Option<GoWait> {
        let number = u8::try_from(number).ok()?;
        let place = usize::from(number).checked_sub(1)?;
        (place < WAITS.len()).then_some(GoWait(number))
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Go's words for it.
    pub fn name(self) -> &'static str {
        WAITS[usize::from(self.0) - 1].0
    }

    /// What it is.
    pub fn sort(self) -> GoWaitSort {
        WAITS[usize::from(self.0) - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_to_each_other() {
        for (words, sort) in WAITS {
            let wait = GoWait::named(words).expect("it is in the list");
            assert_eq!(GoWait::numbered(u16::from(wait.number())), Some(wait));
            assert_eq!((wait.name(), wait.sort()), (*words, *sort));
        }
        assert_eq!(GoWait::numbered(0), None);
        assert_eq!(GoWait::numbered(WAITS.len() as u16 + 1), None);
        assert_eq!(GoWait::named("of a later version"), None);
    }
}
