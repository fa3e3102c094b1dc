//! Lives of programs that do more than is explored of them.

use super::story::*;
use rpcprobe::engine::event::What;
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::model::{Category, Kind};
use rpcprobe::records::{TASK_THREAD, TASK_TRACED, WAKING_IN_SYSCALL, WAKING_NEW};

/// So many that a thread's way back through them has more steps than are explored of a life.
const ROUNDS: u64 = 200_000;
const ROUND_NS: u64 = 40;
const BEGUN_NS: u64 = 1000;

/// A program (30) whose main thread waits until its thread 31 is done, or `by_server` what works for that tells it. That is a server (20), for 20 of
/// 40 ns in each round.
fn program_with_a_worker(by_server: bool) -> Story {
    let mut s = Story::new();
    let end_ns = BEGUN_NS + ROUNDS * ROUND_NS;
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, 90, IDLE, ASLEEP);
    s.switch(20, 2, IDLE, 20, RUNNABLE);
    s.call(2, 20, POLL, (30, 35), 0);
    s.starts_program("program");
    let comm = "worker".into();
    let (parent, child, child_tgid, flags) = (30, 31, 30, TASK_TRACED | TASK_THREAD);
    s.at(133, 1, What::Fork { parent, child, child_tgid, flags, enter_ns: 130, comm });
    s.wake(136, 1, 30, 31, WAKING_NEW | WAKING_IN_SYSCALL);
    s.switch(139, 3, IDLE, 31, RUNNABLE);
    s.call(3, 31, CLONE, (133, 141), 0);
    s.call(1, 30, CLONE, (130, 142), 31);
    s.sleep_in(150, 1, (30, IDLE), (FUTEX, 145), condition(0));
    s.sleep_in(160, 2, (20, IDLE), (POLL, 155), condition(8));
    let (mut rested_ns, mut served_ns) = (0, 155);
    for round in 0..ROUNDS {
        let at_ns = BEGUN_NS + round * ROUND_NS;
        if round > 0 {
            s.call(3, 31, POLL, (rested_ns, at_ns), 1);
        }
        s.wake(at_ns + 4, 3, 31, 20, WAKING_IN_SYSCALL);
        s.call(3, 31, WRITE, (at_ns + 3, at_ns + 6), 8);
        s.switch(at_ns + 8, 2, IDLE, 20, RUNNABLE);
        s.call(2, 20, POLL, (served_ns, at_ns + 9), 1);
        rested_ns = at_ns + 10;
        s.sleep_in(at_ns + 12, 3, (31, IDLE), (POLL, rested_ns), condition(16));
        s.wake(at_ns + 30, 2, 20, 31, WAKING_IN_SYSCALL);
        s.call(2, 20, WRITE, (at_ns + 29, at_ns + 31), 8);
        served_ns = at_ns + 32;
        s.switch(at_ns + 34, 3, IDLE, 31, RUNNABLE);
        s.sleep_in(at_ns + 36, 2, (20, IDLE), (POLL, served_ns), condition(8));
    }
    s.call(3, 31, POLL, (rested_ns, end_ns), 1);
    match by_server {
        false => s.wake(end_ns + 5, 3, 31, 30, WAKING_IN_SYSCALL),
        true => {
            s.wake(end_ns + 1, 3, 31, 20, WAKING_IN_SYSCALL);
            s.switch(end_ns + 3, 2, IDLE, 20, RUNNABLE);
            s.call(2, 20, POLL, (served_ns, end_ns + 4), 1);
            s.wake(end_ns + 5, 2, 20, 30, WAKING_IN_SYSCALL);
            s.call(2, 20, WRITE, (end_ns + 4, end_ns + 6), 8);
        }
    }
    s.at(end_ns + 7, 3, What::Exit { tid: 31, tgid: 30, code: 0, traced: true });
    s.switch(end_ns + 8, 1, IDLE, 30, RUNNABLE);
    s.switch_in(end_ns + 9, 3, 31, IDLE, DEAD, (EXIT_GROUP, end_ns + 6), None);
    s.call(1, 30, FUTEX, (145, end_ns + 10), 0);
    s.exit(end_ns + 22, 1, 30, end_ns + 20);
    s.wake(end_ns + 25, 1, 30, 10, WAKING_IN_SYSCALL);
    s.switch(end_ns + 27, 0, IDLE, 10, RUNNABLE);
    s.switch_in(end_ns + 28, 1, 30, IDLE, DEAD, (EXIT_GROUP, end_ns + 20), None);
    s.call(0, 10, WAIT4, (115, end_ns + 30), 30);
    s
}

/// The life is the worker's time and the server's, not a wait of the main thread's, nor of the worker's for a peer whose work is
/// seen.
fn check_life(answers: &Answers, kind: Kind) {
    let (_, segments) = answers.iter().find(|(of, _)| of.kind == kind).expect("a life");
    let time_of = |tid: u32, category: Category| -> u64 {
        let of = segments.iter().filter(|of| of.tid == tid && of.category == category);
        of.map(|segment| segment.duration_ns).sum()
    };
    assert_eq!(time_of(20, Category::User), ROUNDS * 20);
    assert_eq!(time_of(31, Category::IdlePeer), 0);
    assert_eq!(time_of(30, Category::Lock), 0);
    let lost = segments.iter().find(|of| of.category == Category::Unattributed);
    assert!(lost.is_none(), "{lost:?}");
}

#[test]
fn a_long_life_leads_through_the_threads_of_its_program() {
    check_life(&program_with_a_worker(false).requests(), Kind::Exec);
}

#[test]
fn a_long_life_leads_through_a_peer_that_tells_its_end() {
    check_life(&program_with_a_worker(true).requests(), Kind::Exec);
}

/// The same of the program that was started, whose end nobody waits for.
#[test]
fn the_long_life_of_the_target_leads_through_its_threads() {
    let mut events = program_with_a_worker(false).events();
    let of_parent = |what: &What| match what {
        What::Fork { parent: tid, .. } | What::Call { tid, .. } => *tid == 10,
        What::Waking { waker, wakee, .. } => [*waker, *wakee].contains(&10),
        What::Switch { prev, next, .. } => [*prev, *next].contains(&10),
        _ => false,
    };
    events.retain(|event| !of_parent(&event.what));
    let mut engine = Engine::new(4, 0, Rates::default());
    engine.expect_target(30);
    check_life(&explain_with(engine, &events), Kind::Process);
}

/// A program (30) whose parent knows it by `number`. With `by_another_too`, another process has the kernel's number of the
/// program before the parent's wait returns.
fn waited_for(number: u32, by_another_too: bool) -> Answers {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(15, 2, IDLE, 40, RUNNABLE);
    s.switch(20, 1, 90, IDLE, ASLEEP);
    s.makes_process(number);
    s.exec(120, 1, 30, "true");
    s.call(1, 30, EXECVE, (114, 123), 0);
    s.exit(150, 1, 30, 148);
    s.switch_in(154, 1, 30, IDLE, DEAD, (EXIT_GROUP, 148), None);
    if by_another_too {
        let comm = "rival".into();
        let (parent, child, child_tgid) = (40, 30, 30);
        s.at(158, 2, What::Fork { parent, child, child_tgid, flags: 0, enter_ns: 0, comm });
    }
    s.call(0, 10, WAIT4, (155, 160), i64::from(number));
    s.requests()
}

#[test]
fn a_child_is_known_by_the_number_that_its_parent_was_told() {
    let plain = waited_for(30, false);
    assert_eq!(plain.len(), 1);
    assert!(plain[0].0.complete);
    for other in [waited_for(30, true), waited_for(2, false), waited_for(2, true)] {
        assert_eq!(other, plain);
    }
}
