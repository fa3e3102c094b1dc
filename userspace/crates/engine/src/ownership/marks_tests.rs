use super::*;
use crate::event::{Event, OpenCall, What, TYPE_TCP};

const RECVFROM: u16 = 45;
const SENDTO: u16 = 44;

fn connection(number: u64) -> [Object; 2] {
    [2 * number, 2 * number + 1].map(|ino| Object { dev: 0, ino, type_bits: TYPE_TCP })
}

fn moved(tid: u32, nr: u16, [object, reverse]: [Object; 2], at_ns: u64, from: u64) -> What {
    let io = Io {
        object,
        fd: 5,
        is_write: nr == SENDTO,
        offset: from,
        bytes: 4,
        reverse: Some(reverse),
        empty: false,
        socket: 0,
        unsent: Default::default(),
    };
    What::Call { tid, call: Call { io: Some(io), ..Call::new(nr, (at_ns, at_ns + 2), 4) } }
}

fn switch(prev: u32, next: u32, state: u16) -> What {
    let (waited_ns, preempt, iowait, call) = (None, false, false, None);
    What::Switch { prev, next, waited_ns, state, preempt, iowait, call }
}

/// A worker is woken by the thread that takes in questions, for one question after the other, and asks for their sake.
/// For the second question it asks only after it has been preempted.
#[test]
fn a_worker_works_for_what_it_was_woken_for_though_it_lost_its_cpu_since() {
    const TAKER: u32 = 20;
    const WORKER: u32 = 21;
    let mut world = World::new(2, 0);
    let task = |tid| What::Task { tid, tgid: TAKER, kthread: false, comm: "server".into() };
    let wake = What::Waking { waker: TAKER, wakee: WORKER, flags: 0, block: 0 };
    let (fronts, behind) = ([connection(1), connection(2)], connection(3));
    let events = [
        (0, task(TAKER)),
        (0, task(WORKER)),
        (10, switch(0, TAKER, 0)),
        (10, switch(0, WORKER, 0)),
        (12, switch(WORKER, 0, 1)),
        (22, moved(TAKER, RECVFROM, fronts[0], 20, 0)),
        (25, wake.clone()),
        (26, switch(0, WORKER, 0)),
        (32, moved(WORKER, SENDTO, behind, 30, 0)),
        (35, switch(WORKER, 0, 1)),
        (42, moved(TAKER, RECVFROM, fronts[1], 40, 0)),
        (45, wake),
        (46, switch(0, WORKER, 0)),
        (47, switch(WORKER, 99, 0)),
        (48, switch(99, WORKER, 0)),
        (52, moved(WORKER, SENDTO, behind, 50, 4)),
    ];
    for (number, (ts_ns, what)) in events.into_iter().enumerate() {
        // The taker is on one CPU, the worker on the other.
        let cpu = u32::from(number != 2);
        world.apply(&Event { ts_ns, cpu, what });
    }
    let worker = world.thread_by_tid(WORKER).expect("it is there");
    let asked_for = world.thread(worker).marks.list.iter().map(|mark| mark.of);
    let objects: Vec<_> = asked_for.map(|of| of.expect("it is known").object).collect();
    assert_eq!(objects, fronts.map(|[there, _]| there));
}

/// A task that has been handed what it waited for may still give something out, until it has run and rests again.
#[test]
fn who_has_been_woken_has_yet_to_go_on() {
    use crate::ownership::adjacent::{given_next, Given};
    const RESTS_IN_POLL: u16 = 7;
    let mut world = World::new(2, 0);
    let sleeps = |at_ns| {
        let call = OpenCall { nr: RESTS_IN_POLL, enter_ns: at_ns, object: None, fd: -1 };
        let (waited_ns, preempt, iowait) = (None, false, false);
        let call = Some(call);
        What::Switch { prev: 20, next: 0, waited_ns, state: 1, preempt, iowait, call }
    };
    let polled = |enter_ns, exit_ns| What::Call {
        tid: 20,
        call: Call::new(RESTS_IN_POLL, (enter_ns, exit_ns), 1),
    };
    let wakes = || What::Waking { waker: 21, wakee: 20, flags: 0, block: 0 };
    let task = |tid| What::Task { tid, tgid: 20, kthread: false, comm: "server".into() };
    let mut apply = |ts_ns, what| {
        world.apply(&Event { ts_ns, cpu: 0, what });
        let id = world.thread_by_tid(20).expect("it is there");
        given_next(&world, id, 40)
    };
    apply(0, task(20));
    apply(0, task(21));
    apply(10, switch(0, 20, 0));
    apply(22, moved(20, RECVFROM, connection(1), 20, 0));
    apply(25, sleeps(24));
    assert_eq!(apply(40, wakes()), Given::NotYet);
    apply(45, switch(0, 20, 0));
    assert_eq!(apply(46, polled(24, 46)), Given::NotYet);
    assert_eq!(apply(50, sleeps(49)), Given::Nothing);
}
