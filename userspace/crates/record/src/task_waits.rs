//! What tasks of runtimes wait for: goroutines, and those of asyncio, tokio and Node.

/// What a wait is, for whoever asks where the time went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskWaitSort {
    /// A descriptor to be ready.
    Descriptor,
    /// Time to pass.
    Timer,
    /// A lock that another task has.
    Lock,
    /// Something to come from another task, or from a timer.
    Channel,
    /// Its turn among those that wait for a lock, a semaphore, an event or a condition: which of these is not seen.
    Waiters,
    /// For another task to receive what it gives: there is no room for that in the channel.
    Room,
    /// For another task to be done, or to let go of something.
    Task,
    /// The garbage collector, or what else the runtime does for all. With a name: goroutines of the runtime that do that work
    /// wait so when there is none, and nothing else does.
    Runtime(Option<&'static str>),
}

/// A reason for which tasks of a runtime wait. Its number is the kernel side's; Go's own differs from version to version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskWait(u8);

use TaskWaitSort::{Channel, Descriptor, Lock, Room, Runtime, Task, Timer, Waiters};

/// By the words that Go has for them (`waitReasonStrings`, src/runtime/runtime2.go, Go 1.18 to 1.26). Captures have
/// their places in this list, counted from 1: append only.
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
    // Of asyncio, tokio and Node: `enum task_wait` of bpf/runtime_tasks.h.
    ("await", Channel),
    ("await (a timer)", Timer),
    ("await (a descriptor)", Descriptor),
    ("await (a lock, semaphore, event or condition)", Waiters),
    // Told by no runtime: what a thread does while it runs a goroutine shows it.
    ("a mutex of Go's runtime", Lock),
];

impl TaskWait {
    /// Anything: what ends it tells what it was.
    pub const AWAIT: TaskWait = TaskWait(32);
    /// Time to pass, as what ended it told.
    pub const TIMER: TaskWait = TaskWait(33);
    /// A descriptor to be ready.
    pub const READY: TaskWait = TaskWait(34);
    /// A lock of Go's runtime itself, such as that of its run queue.
    pub const GO_RUNTIME_MUTEX: TaskWait = TaskWait(36);

    /// That of which Go has these words.
    pub fn named(words: &str) -> Option<TaskWait> {
        let place = WAITS.iter().position(|(name, _)| *name == words)?;
        Some(TaskWait(u8::try_from(place + 1).ok()?))
    }

    /// That of this number.
    pub fn numbered(number: u16) -> Option<TaskWait> {
        let number = u8::try_from(number).ok()?;
        let place = usize::from(number).checked_sub(1)?;
        (place < WAITS.len()).then_some(TaskWait(number))
    }

    /// Whether those are Go's own words.
    pub fn is_gos(self) -> bool {
        self.0 < TaskWait::AWAIT.0
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
