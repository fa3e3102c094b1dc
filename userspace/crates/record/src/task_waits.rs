//! What runtime tasks wait for: goroutines, and tasks of asyncio, tokio and Node.

/// The nature of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskWaitSort {
    /// For a descriptor to become ready.
    Descriptor,
    /// For time to pass.
    Timer,
    /// For a lock that another task holds.
    Lock,
    /// For something from another task or from a timer.
    Channel,
    /// For its turn among the waiters of a lock, a semaphore, an event or a condition. It is not visible which of
    /// these.
    Waiters,
    /// For another task to receive what this task sends: the channel has no room for it.
    Room,
    /// For another task to finish, or to release something.
    Task,
    /// For the garbage collector, or for other work that the runtime does on behalf of all. With a name: the wait of
    /// the runtime's own goroutines that do such work, while there is none; no other goroutine waits like this.
    Runtime(Option<&'static str>),
}

/// A reason for which runtime tasks wait. Its number is the kernel side's; Go's own number varies between versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskWait(u8);

use TaskWaitSort::{Channel, Descriptor, Lock, Room, Runtime, Task, Timer, Waiters};

/// All reasons, with Go's texts for them (`waitReasonStrings`, src/runtime/runtime2.go, Go 1.18 to 1.26). Captures
/// refer to positions in this list, counted from 1: append only.
const WAITS: &[(&str, TaskWaitSort)] = &[
    ("IO wait", Descriptor),
    ("sleep", Timer),
    ("sync.Mutex.Lock", Lock),
    ("sync.RWMutex.RLock", Lock),
    ("sync.RWMutex.Lock", Lock),
    ("semacquire", Task),
    ("chan receive", Channel),
    ("chan send", Room),
    ("chan receive (nil chan)", Task),
    ("chan send (nil chan)", Task),
    ("select", Channel),
    ("select (no cases)", Task),
    ("sync.Cond.Wait", Channel),
    ("sync.WaitGroup.Wait", Task),
    ("coroutine", Task),
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
    // Waits of asyncio, tokio and Node: `enum task_wait` of bpf/runtime_tasks.h.
    ("await", Channel),
    ("await (a timer)", Timer),
    ("await (a descriptor)", Descriptor),
    ("await (a lock, semaphore, event or condition)", Waiters),
    // Not reported by any runtime, but visible in what a thread does while it runs a goroutine.
    ("a mutex of Go's runtime", Lock),
];

impl TaskWait {
    /// For anything; what ends the wait shows what it was for.
    pub const AWAIT: TaskWait = TaskWait(32);
    /// For time to pass, as shown by what ended the wait.
    pub const TIMER: TaskWait = TaskWait(33);
    /// For a descriptor to become ready.
    pub const READY: TaskWait = TaskWait(34);
    /// A lock of Go's runtime itself, such as that of its run queue.
    pub const GO_RUNTIME_MUTEX: TaskWait = TaskWait(36);

    /// Returns the wait with this text.
    pub fn named(words: &str) -> Option<TaskWait> {
        let place = WAITS.iter().position(|(name, _)| *name == words)?;
        Some(TaskWait(u8::try_from(place + 1).ok()?))
    }

    /// Returns the wait with this number.
    pub fn numbered(number: u16) -> Option<TaskWait> {
        let number = u8::try_from(number).ok()?;
        let place = usize::from(number).checked_sub(1)?;
        (place < WAITS.len()).then_some(TaskWait(number))
    }

    /// Whether the text of this wait is Go's own.
    pub fn is_gos(self) -> bool {
        self.0 < TaskWait::AWAIT.0
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The text for it, which is Go's own for waits of goroutines.
    pub fn name(self) -> &'static str {
        WAITS[usize::from(self.0) - 1].0
    }

    /// The nature of the wait.
    pub fn sort(self) -> TaskWaitSort {
        WAITS[usize::from(self.0) - 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_lead_to_each_other() {
        assert_eq!(TaskWait::AWAIT.name(), "await");
        assert_eq!(TaskWait::GO_RUNTIME_MUTEX.name(), "a mutex of Go's runtime");
        for (words, sort) in WAITS {
            let wait = TaskWait::named(words).expect("it is in the list");
            assert_eq!(TaskWait::numbered(u16::from(wait.number())), Some(wait));
            assert_eq!((wait.name(), wait.sort()), (*words, *sort));
        }
        assert_eq!(TaskWait::numbered(0), None);
        assert_eq!(TaskWait::numbered(WAITS.len() as u16 + 1), None);
        assert_eq!(TaskWait::named("of a later version"), None);
    }
}
