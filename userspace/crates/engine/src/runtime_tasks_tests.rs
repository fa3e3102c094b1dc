use super::*;
use crate::event::{Object, TYPE_FUTEX};

const PROCESS: u32 = 7;
const FIRST: u32 = FIRST_RUNTIME_TASK;

/// What is reported of these changes, in a few words each. A thread of the process changes the goroutine at `address`,
/// one nanosecond after the other.
fn told(changes: &[(u32, u64, TaskChange)]) -> Vec<String> {
    let mut tasks = RuntimeTasks::default();
    let mut events = Vec::new();
    for (ts_ns, &(tid, address, change)) in (10..).zip(changes) {
        let what = What::RuntimeTask { tid, tgid: PROCESS, address, change };
        tasks.take(Event { ts_ns, cpu: 1, what }, &mut events);
    }
    tasks.finish(&mut events);
    events.iter().map(in_words).collect()
}

fn in_words(event: &Event) -> String {
    let who = |tid: u32| match tid.checked_sub(FIRST) {
        Some(number) => format!("g{number}"),
        None => tid.to_string(),
    };
    let at = event.ts_ns;
    match &event.what {
        What::Switch { prev, next, state, call, .. } => {
            let inside = call.map_or(String::new(), |call| format!(" in {}", name(call.nr)));
            format!("{at} {}->{} {state}{inside}", who(*prev), who(*next))
        }
        What::Waking { waker, wakee, flags, .. } => {
            format!("{at} {} wakes {} {flags}", who(*waker), who(*wakee))
        }
        What::WokenAgain { waker, wakee } => {
            format!("{at} {} wakes {} again", who(*waker), who(*wakee))
        }
        What::Fork { parent, child, .. } => format!("{at} {} makes {}", who(*parent), who(*child)),
        What::Call { tid, call } => {
            let (nr, ret) = (name(call.nr), call.ret);
            format!("{at} {} was in {nr} since {}: {ret}", who(*tid), call.enter_ns)
        }
        What::Exit { tid, .. } => format!("{at} {} ends", who(*tid)),
        What::Task { tid, .. } => format!("{at} {} is there", who(*tid)),
        What::Marked { tid, .. } => format!("{at} {} was asleep", who(*tid)),
        What::Rename { tid, comm } => format!("{at} {} is {comm}", who(*tid)),
        What::Waited { tid, since_ns, nr } => {
            format!("{at} {} was for {} since {since_ns}", who(*tid), name(*nr))
        }
        other => format!("{at} {other:?}"),
    }
}

fn name(nr: u16) -> String {
    task_wait::task_wait(nr).map_or("?".into(), |wait| wait.name().into())
}

fn parks(wait: &str) -> TaskChange {
    TaskChange::Parks(TaskWait::named(wait))
}

use TaskChange::{
    Born, Drained, Due, Ends, Made, Queued, Readied, Runs, Steps, StepsAfter, Timers, Waited,
    Yields,
};

#[test]
fn a_goroutine_lives_on_threads() {
    let changes = [
        (20, 0xa, Born),
        (20, 0xa, Runs),
        (20, 0xa, Yields),
        (21, 0xa, Runs),
        (21, 0xa, parks("sleep")),
        (20, 0xa, Readied(None)),
        (20, 0xa, Runs),
        (20, 0xa, Ends),
    ];
    let expected = [
        "10 20 makes g0",
        "10 20 wakes g0 1",
        "11 20->g0 0",
        "12 g0->20 0",
        "13 21->g0 0",
        "14 g0->21 1 in sleep",
        "15 20 wakes g0 4",
        "16 20->g0 0",
        "16 g0 was in sleep since 14: 0",
        "17 g0 ends",
        "17 g0->20 16",
    ];
    assert_eq!(told(&changes), expected);
}

#[test]
fn the_scheduler_passes_on_and_goroutines_wake() {
    let waits = |wait: &str, by: u32| {
        let changes =
            [(20, 0xa, Runs), (21, 0xb, Runs), (20, 0xa, parks(wait)), (by, 0xa, Readied(None))];
        told(&changes).pop().expect("something is told")
    };
    // By g1, which runs on 21.
    for wait in ["IO wait", "sleep", "chan receive", "sync.Mutex.Lock", "wait for GC cycle"] {
        assert_eq!(waits(wait, 21), "13 g1 wakes g0 0");
    }
    // By the scheduler: a soft interrupt, or a timer's.
    assert_eq!(waits("IO wait", 20), "13 20 wakes g0 2");
    assert_eq!(waits("semacquire", 20), "13 20 wakes g0 2");
    assert_eq!(waits("wait for GC cycle", 20), "13 20 wakes g0 2");
    assert_eq!(waits("sleep", 20), "13 20 wakes g0 4");
    assert_eq!(waits("select", 20), "13 20 wakes g0 4");
}

#[test]
fn what_ran_out_says_so() {
    let changes =
        [(20, 0xa, Runs), (20, 0xa, parks("select")), (20, 0xa, Readied(None)), (20, 0xa, Runs)];
    assert_eq!(told(&changes).last().expect("told"), "13 g0 was in select since 11: -110");
    let changes =
        [(20, 0xa, Runs), (20, 0xa, parks("IO wait")), (20, 0xa, Readied(None)), (20, 0xa, Runs)];
    assert_eq!(told(&changes).last().expect("told"), "13 g0 was in IO wait since 11: 1");
}

#[test]
fn one_that_is_older_than_the_capture_is_found_when_it_is_heard_of() {
    let changes = [(20, 0xa, parks("sleep")), (20, 0xb, Readied(None)), (20, 0xa, Runs)];
    let expected = [
        "10 g0 is there",
        "10 g0 was asleep",
        "11 g1 is there",
        "11 g1 was asleep",
        // The reason for its wait is not known: it counts as a timer.
        "11 20 wakes g1 4",
        "12 20->g0 0",
        "12 g0 was in sleep since 10: 0",
    ];
    assert_eq!(told(&changes), expected);
}

/// Coroutines are left this way.
#[test]
fn one_that_is_left_untold_is_left_when_another_runs() {
    let changes =
        [(20, 0xa, Runs), (20, 0xb, Runs), (21, 0xa, Runs), (22, 0xa, Runs), (21, 0xb, Runs)];
    let switches: Vec<_> = told(&changes).into_iter().filter(|told| told.contains("->")).collect();
    let expected =
        ["10 20->g0 0", "11 g0->20 0", "11 20->g1 0", "12 21->g0 0", "13 22->g0 0", "14 21->g1 0"];
    assert_eq!(switches, expected);
}

#[test]
fn an_address_is_used_again() {
    let changes = [(20, 0xa, Born), (20, 0xa, Born)];
    let expected =
        ["10 20 makes g0", "10 20 wakes g0 1", "11 g0 ends", "11 20 makes g1", "11 20 wakes g1 1"];
    assert_eq!(told(&changes), expected);
    // Also if it was not reported that its thread left it.
    let changes = [(20, 0xa, Runs), (21, 0xa, Born), (20, 0xa, Runs), (20, 0xa, Ends)];
    let switches: Vec<_> = told(&changes).into_iter().filter(|told| told.contains("->")).collect();
    assert_eq!(switches, ["10 20->g0 0", "11 g0->20 16", "12 20->g1 0", "13 g1->20 16"]);
}

#[test]
fn goroutines_of_the_runtime_have_names() {
    let changes = [(20, 0xa, Runs), (20, 0xa, parks("GC worker (idle)")), (20, 0xb, Runs)];
    assert!(told(&changes).contains(&"11 g0 is Go GC worker".into()), "{:?}", told(&changes));
    // It looks which descriptors are ready when it lets all goroutines go on.
    let collector = |wait: &str| {
        let changes = [
            (20, 0xa, Runs),
            (20, 0xa, parks("GC worker (idle)")),
            (20, 0xa, Runs),
            (21, 0xb, Runs),
            (21, 0xb, parks(wait)),
            (20, 0xb, Readied(None)),
        ];
        told(&changes).pop().expect("something is told")
    };
    assert_eq!(collector("IO wait"), "15 g0 wakes g1 2");
    assert_eq!(collector("wait for GC cycle"), "15 g0 wakes g1 0");
}

/// What a thread does is done by the goroutine that it runs, and by no other.
#[test]
fn what_a_thread_does_is_its_goroutines() {
    let mut tasks = RuntimeTasks::default();
    let mut events = Vec::new();
    let at = |ts_ns, what| Event { ts_ns, cpu: 0, what };
    let runs = What::RuntimeTask { tid: 20, tgid: PROCESS, address: 0xa, change: Runs };
    tasks.take(at(10, runs), &mut events);
    events.clear();
    for tid in [20, 21] {
        let call = Call::new(0, (11, 12), 0);
        tasks.take(at(12, What::Call { tid, call }), &mut events);
    }
    let what = What::Waking { waker: 20, wakee: 21, flags: 0, block: 0 };
    tasks.take(at(13, what), &mut events);
    let tids = [&events[0].what, &events[1].what].map(|what| match what {
        What::Call { tid, .. } => *tid,
        other => panic!("{other:?}"),
    });
    assert_eq!(tids, [FIRST, 21]);
    assert_eq!(in_words(&events[2]), "13 g0 wakes 21 0");
    // The goroutine ends with its process.
    events.clear();
    let exit = What::Exit { tid: PROCESS, tgid: PROCESS, code: 0, traced: true };
    tasks.take(at(14, exit), &mut events);
    let words: Vec<_> = events.iter().map(in_words).collect();
    assert_eq!(words, ["14 g0->20 1", "14 g0 ends", "14 7 ends"]);
}

/// Such a wait is known to be the runtime's only on a thread that runs a goroutine, and not with the tasks of other
/// runtimes.
#[test]
fn gos_runtime_has_locks_of_its_own() {
    let told = |word: &str, expected: i32| {
        let mut tasks = RuntimeTasks::default();
        let mut events = Vec::new();
        let mut take = |ts_ns, what| tasks.take(Event { ts_ns, cpu: 0, what }, &mut events);
        for (ts_ns, change) in (10..).zip([Runs, parks(word), Readied(None), Runs]) {
            take(ts_ns, What::RuntimeTask { tid: 20, tgid: PROCESS, address: 0xa, change });
        }
        for prev in [20, 21] {
            let object = Some(Object { dev: 128, ino: 0x1000, type_bits: TYPE_FUTEX });
            let call = Some(OpenCall { nr: 202, enter_ns: 15, object, fd: expected });
            let (waited_ns, preempt, iowait, state) = (None, false, false, TASK_INTERRUPTIBLE);
            take(16, What::Switch { prev, next: 0, waited_ns, state, preempt, iowait, call });
        }
        events[events.len() - 2..].iter().map(in_words).collect::<Vec<_>>()
    };
    let [semaphore, other] = [-1, 0];
    assert_eq!(
        told("select", semaphore),
        ["16 g0->0 1 in a mutex of Go's runtime", "16 21->0 1 in ?"]
    );
    assert_eq!(told("select", other), ["16 g0->0 1 in ?", "16 21->0 1 in ?"]);
    assert_eq!(told("await", semaphore), ["16 g0->0 1 in ?", "16 21->0 1 in ?"]);
}

/// A task of asyncio is handed its first step, waits for a timer and goes on; its loop rests in epoll.
#[test]
fn a_context_steps_and_a_timer_is_no_task() {
    let rests = TaskChange::Parks(Some(TaskWait::AWAIT));
    let ready = Readied(TaskWait::named("await (a descriptor)"));
    let changes = [
        (20, 0xa, ready),  // the loop: a descriptor's callback
        (20, 0xa, Steps),  // 11
        (20, 0xb, Made),   // a task
        (20, 0xb, Queued), // 13
        (20, 0xb, Steps),  // 14: the callback is over
        (20, 0xc, Made),   // its timer
        (20, 0, rests),    // 16
        (20, 0xc, Due),
        (20, 0xc, Steps),  // 18: it wakes the task
        (20, 0xb, Queued), // 19
        (20, 0, rests),
        (20, 0xb, Steps), // 21
        (20, 0, rests),
    ];
    let expected = [
        "10 g0 is there",
        "10 g0 was asleep",
        "10 20 wakes g0 2",
        "11 20->g0 0",
        "12 g0 makes g1",
        "13 g0 wakes g1 0",
        "14 g0->20 1 in await",
        "14 20->g1 0",
        "16 g1->20 1 in await",
        "17 g1 was for await (a timer) since 16",
        "17 20 wakes g1 4",
        "21 20->g1 0",
        "21 g1 was in await (a timer) since 16: 0",
        "22 g1->20 1 in await",
    ];
    assert_eq!(told(&changes), expected);
}

/// The context was made for a callback that waits for a descriptor.
#[test]
fn what_a_callback_waited_for_is_known_from_when_it_was_made() {
    let ready = Readied(TaskWait::named("await (a descriptor)"));
    let changes = [(20, 0xa, Runs), (20, 0xb, Made), (20, 0, parks("await")), (20, 0xb, ready)];
    let expected = [
        "10 g0 is there",
        "10 g0 was asleep",
        "10 20->g0 0",
        "12 g0->20 1 in await",
        "11 g0 makes g1",
        "13 g1 was for await (a descriptor) since 11",
        "13 20 wakes g1 2",
    ];
    assert_eq!(told(&changes), expected);
}

/// A task of tokio is woken by another thread before it has parked: it is then woken when it parks. A task that wakes
/// itself lets others go first.
#[test]
fn a_task_that_is_readied_as_it_runs_is_woken_as_it_parks() {
    let by_hand = Readied(Some(TaskWait::AWAIT));
    let changes = [
        (20, 0xa, Runs),
        (21, 0xa, by_hand),
        (20, 0xa, parks("await")),
        (21, 0xa, Runs),
        (21, 0xa, by_hand),
        (21, 0xa, parks("await")),
        (21, 0xa, Runs),
    ];
    let expected = [
        "10 g0 is there",
        "10 g0 was asleep",
        "10 20->g0 0",
        "11 21 wakes g0 again",
        "12 g0->20 1 in await",
        "12 21 wakes g0 0",
        "13 21->g0 0",
        "13 g0 was in await since 12: 0",
        "15 g0->21 0",
        "16 21->g0 0",
    ];
    assert_eq!(told(&changes), expected);
}

/// A task waits for a semaphore if it had looked at one last and its waker released one, or if that is reported
/// afterwards, once.
#[test]
fn what_is_let_go_of_is_a_wait_for_others() {
    let waiters = TaskWait::named("await (a lock, semaphore, event or condition)");
    let changes = [
        (20, 0xa, Runs),
        (20, 0xa, parks("await (a lock, semaphore, event or condition)")),
        (21, 0xa, Readied(waiters)),
        (20, 0xa, Runs),
        (20, 0xa, parks("await")),
        (21, 0xa, Readied(waiters)),
        (20, 0xa, Steps),
        (20, 0, Waited(waiters)),
        (20, 0, Waited(waiters)),
    ];
    let expected = [
        "10 g0 is there",
        "10 g0 was asleep",
        "10 20->g0 0",
        "11 g0->20 1 in await (a lock, semaphore, event or condition)",
        "12 21 wakes g0 0",
        "13 20->g0 0",
        "13 g0 was in await (a lock, semaphore, event or condition) since 11: 0",
        "14 g0->20 1 in await",
        "15 21 wakes g0 0",
        "16 20->g0 0",
        "16 g0 was in await since 14: 0",
        "17 g0 was for await (a lock, semaphore, event or condition) since 14",
    ];
    assert_eq!(told(&changes), expected);
}

/// A timer of the same wait is also due before the task runs. It did not end the wait.
#[test]
fn what_comes_after_a_wake_up_did_not_end_the_wait() {
    let timer = Readied(Some(TaskWait::TIMER));
    let changes = [
        (20, 0xa, Runs),
        (20, 0xa, parks("await")),
        (21, 0xa, Readied(Some(TaskWait::AWAIT))),
        (21, 0xa, timer),
        (20, 0xa, Runs),
    ];
    let expected = [
        "10 g0 is there",
        "10 g0 was asleep",
        "10 20->g0 0",
        "11 g0->20 1 in await",
        "12 21 wakes g0 0",
        "14 20->g0 0",
        "14 g0 was in await since 11: 0",
    ];
    assert_eq!(told(&changes), expected);
}

/// The timer was cancelled after it was due, and its context's address now belongs to another task.
#[test]
fn a_timer_that_never_ran_is_no_tasks() {
    let changes =
        [(20, 0xa, Runs), (20, 0xb, Due), (20, 0xb, Made), (20, 0xb, Queued), (20, 0xb, Steps)];
    let expected = [
        "10 g0 is there",
        "10 g0 was asleep",
        "10 20->g0 0",
        "12 g0 makes g1",
        "13 g0 wakes g1 0",
        "14 g0->20 1 in await",
        "14 20->g1 0",
    ];
    assert_eq!(told(&changes), expected);
}

const RESTS: TaskChange = TaskChange::Parks(Some(TaskWait::AWAIT));
const STREAM: TaskChange = StepsAfter(TaskWait::READY);
const TIMER: TaskChange = StepsAfter(TaskWait::TIMER);

/// A stream sets two timers, which run one after the other, each from when the thread may have come to it. A timer that
/// was never set does not count.
#[test]
fn timers_of_node_run_from_where_their_callbacks_began() {
    let changes = [
        (20, 0xa, STREAM),
        (20, 0xb, Made),
        (20, 0xc, Made), // 12
        (20, 0, RESTS),
        (20, 0, Timers),  // 14
        (20, 0xd, Made),  // in the callback of the first
        (20, 0xb, TIMER), // 16
        (20, 0xe, TIMER), // another one is given up
        (20, 0, Drained), // 18
        (20, 0xe, TIMER), // and one in the callback of the second
        (20, 0xc, TIMER), // 20
        (20, 0, Drained),
        (20, 0, RESTS), // 22
    ];
    let expected = [
        "10 g0 is there",
        "10 g0 was asleep",
        "10 20->g0 0",
        "13 g0->20 1 in await",
        "11 g0 makes g1",
        "14 g1 was for await (a timer) since 11",
        "14 20 wakes g1 4",
        "14 20->g1 0",
        "14 g1 was in await (a timer) since 11: 0",
        "18 g1 ends",
        "18 g1->20 16",
        "12 g0 makes g2",
        "14 g2 was for await (a timer) since 12",
        "14 20 wakes g2 4",
        "18 20->g2 0",
        "18 g2 was in await (a timer) since 12: 0",
        "22 g2 ends",
        "22 g2->20 16",
    ];
    assert_eq!(told(&changes), expected);
}

/// What other threads do meanwhile comes after what is held back, and nothing is lost where the capture ends.
#[test]
fn what_is_held_back_is_told_in_order() {
    let mut tasks = RuntimeTasks::default();
    let mut events = Vec::new();
    let change = |tid, address, change| What::RuntimeTask { tid, tgid: PROCESS, address, change };
    let other = |tid| What::Throttle { tid };
    let all = [
        change(20, 0xa, STREAM),
        change(20, 0xb, Made),
        change(20, 0, Timers),
        other(20),
        other(30),
        change(20, 0xb, TIMER),
        other(20),
        change(20, 0, Drained),
        other(20),
        other(31),
    ];
    let take = |tasks: &mut RuntimeTasks, events: &mut Vec<Event>, from: usize, to: usize| {
        for (number, what) in all.iter().enumerate().take(to).skip(from) {
            tasks.take(Event { ts_ns: 10 + number as u64, cpu: 1, what: what.clone() }, events);
        }
    };
    let throttled = |events: &[Event]| -> Vec<(u64, u32)> {
        let of = |event: &Event| match event.what {
            What::Throttle { tid } => Some((event.ts_ns, tid.wrapping_sub(FIRST))),
            _ => None,
        };
        events.iter().filter_map(of).collect()
    };
    take(&mut tasks, &mut events, 0, 5);
    assert_eq!(throttled(&events), []);
    take(&mut tasks, &mut events, 5, 7);
    let number = |tid: u32| tid.wrapping_sub(FIRST);
    let timers = [(13, 1), (14, number(30)), (16, 1)];
    assert_eq!(throttled(&events), timers);
    take(&mut tasks, &mut events, 7, 10);
    assert_eq!(throttled(&events), timers);
    tasks.finish(&mut events);
    assert_eq!(throttled(&events)[3..], [(18, 1), (19, number(31))]);
}

/// It is not reported which timers a program gives up. Of many, only the latest are remembered.
#[test]
fn timers_that_never_run_are_forgotten() {
    let mut tasks = RuntimeTasks::default();
    let mut events = Vec::new();
    let first = 1 << 63;
    let count = (1 << 16) + 10;
    for number in 0..count {
        let what =
            What::RuntimeTask { tid: 20, tgid: PROCESS, address: first + number, change: Made };
        tasks.take(Event { ts_ns: number, cpu: 1, what }, &mut events);
    }
    assert_eq!(tasks.made_by.len(), 1 << 16);
    assert!(!tasks.is_known((PROCESS, first + 9)) && tasks.is_known((PROCESS, first + 10)));
}

/// uvloop writes when the steps are over what a task (at 1) has given to a stream (at 9): a step of that task, which has
/// not waited for anything.
#[test]
fn what_a_task_has_given_to_a_stream_it_writes_itself() {
    use TaskChange::{Gives, Queued, Steps};
    let wait = TaskChange::Parks(Some(TaskWait::AWAIT));
    let changes =
        [(8, 1, Queued), (8, 1, Steps), (8, 9, Gives), (8, 0, wait), (8, 9, Steps), (8, 0, wait)];
    let events = told(&changes);
    let writes = ["11 8->g0 0", "13 g0->8 0", "14 8->g0 0", "15 g0->8 1 in await"];
    assert_eq!(events[2..], writes, "{events:#?}");
}

/// Another task (at 2) has readied the writer before it writes, so that the writer does not wait afterwards.
#[test]
fn a_task_that_writes_goes_on_if_it_was_readied_before() {
    use TaskChange::{Gives, Queued, Steps};
    let wait = TaskChange::Parks(Some(TaskWait::AWAIT));
    let changes = [
        (8, 1, Queued),
        (8, 2, Queued),
        (8, 1, Steps),
        (8, 9, Gives),
        (8, 2, Steps),
        (8, 1, Queued),
        (8, 0, wait),
        (8, 9, Steps),
        (8, 0, wait),
        (8, 1, Steps),
    ];
    let events = told(&changes);
    let last = ["17 8->g0 0", "18 g0->8 0", "19 8->g0 0"];
    assert_eq!(events[events.len() - 3..], last, "{events:#?}");
}
