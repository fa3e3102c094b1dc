//! Small traces of requests with many pieces, with answers derived by hand: which pieces are merged into one segment.

use rpcprobe::engine::event::{What, TYPE_TCP};
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::laws::check_exclusive;
use rpcprobe::model::{check_conservation, Kind, Segment, ADDED_UP};
use rpcprobe::records::WAKING_IN_SYSCALL;

use super::connection::Connection;
use super::golden::{a, asked, b, ASKED};
use super::laws::sums;
use super::story::*;

/// The answers with every piece as a segment.
fn every_piece(s: &Story) -> Answers {
    let mut engine = Engine::new(4, 0, Rates::default());
    engine.tell_every_piece();
    explain_with(engine, &s.events())
}

fn is_added_up(segment: &Segment) -> bool {
    segment.cause.as_deref().is_some_and(|cause| cause.contains(ADDED_UP))
}

/// The server loses its CPU at 117 to these threads, one after the other, each until the given time. Then it answers.
fn behind(others: &[(u32, u64)]) -> Story {
    let mut s = Story::new();
    asked(&mut s);
    let (mut at_ns, mut from) = (117, 20);
    for &(to, until_ns) in others.iter().chain([&(20, 0)]) {
        let (prev, next) = (from, to);
        let what = What::Switch {
            prev,
            next,
            waited_ns: None,
            state: RUNNABLE,
            preempt: true,
            iowait: false,
            call: None,
        };
        s.at(at_ns, 1, what);
        (at_ns, from) = (until_ns, to);
    }
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(235, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (230, 240));
    s.switch(238, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 242));
    s
}

#[test]
fn a_wait_behind_few_is_told_one_by_one() {
    let s = behind(&[(90, 150), (91, 160), (90, 217)]);
    let rest = "
        113-117 server user
        117-150 server runqueue.preempted by noise/90
        150-160 server runqueue.preempted by ?/91
        160-217 server runqueue.preempted by noise/90
        217-230 server user
        230-235 server kernel.pipe
        235-238 client runqueue.wakeup by idle
        238-242 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
}

/// A wait behind many threads is one segment. It names the thread that had the CPU for most of it, and the cause gives
/// the shares.
#[test]
fn a_wait_behind_many_is_one() {
    let s = behind(&[(91, 127), (90, 167), (92, 171), (91, 191), (93, 195), (90, 217)]);
    let rest = "
        113-117 server user
        117-217 server runqueue.preempted by noise/90
        217-230 server user
        230-235 server kernel.pipe
        235-238 client runqueue.wakeup by idle
        238-242 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(&[ASKED, rest].concat()));
    let (_, segments) = s.requests().remove(0);
    let wait = segments.iter().find(|segment| segment.start_ns == 117).expect("the wait");
    assert_eq!(wait.cause.as_deref(), Some("noise/90 62 %, ?/91 30 %, 2 others 8 %"));
    let every = every_piece(&s);
    assert_eq!(every[0].1.len(), segments.len() + 5);
    assert_eq!(sums(&every), sums(&s.requests()));
}

/// The server computes and makes calls alternately, `times` times from 200 on, and then computes until 90,000.
fn crumbs(times: u64) -> Story {
    let mut s = Story::new();
    asked(&mut s);
    for turn in 0..times {
        s.call(1, 20, NANOSLEEP, (200 + 10 * turn, 205 + 10 * turn), 0);
    }
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(90_005, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (90_000, 90_010));
    s.switch(90_008, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 90_012));
    s
}

#[test]
fn crumbs_of_a_stretch_are_added_up() {
    let s = crumbs(60);
    let rest = "
        100-105 client kernel.pipe
        105-109 server runqueue.wakeup by idle
        109-113 server kernel.pipe
        113-495 server user
        495-795 server kernel.sched
        795-90000 server user
        90000-90005 server kernel.pipe
        90005-90008 client runqueue.wakeup by idle
        90008-90012 client kernel.pipe
    ";
    assert_eq!(s.only(), expected(rest));
    let (_, segments) = s.requests().remove(0);
    let told: Vec<_> = segments.iter().filter_map(|segment| segment.cause.as_deref()).collect();
    let expected = ["1 of the pieces added up", "60 pieces added up", "60 pieces added up"];
    assert_eq!(told, expected);
    assert_eq!(segments[4].detail.as_deref(), Some("nanosleep"));
    let every = every_piece(&s);
    assert!(every[0].1.len() > 120 && !every[0].1.iter().any(is_added_up));
    assert_eq!(sums(&every), sums(&s.requests()));
}

#[test]
fn of_fewer_segments_each_is_told() {
    let s = crumbs(40);
    assert_eq!(s.requests(), every_piece(&s));
}

/// A server reads two requests, makes this number of calls, loses its CPU in between, and answers both.
fn work_for_two(calls: u64) -> Story {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (100, 110));
    c.hears(&mut s, 1, 20, (0, 4), (120, 130));
    other.hears(&mut s, 1, 20, (0, 4), (140, 150));
    for turn in 0..calls {
        s.call(1, 20, NANOSLEEP, (200 + 10 * turn, 204 + 10 * turn), 0);
    }
    for (at_ns, prev, next) in [(6_000, 20, 90), (6_500, 90, 20)] {
        let (waited_ns, state, call) = (None, RUNNABLE, None);
        let what =
            What::Switch { prev, next, waited_ns, state, preempt: true, iowait: false, call };
        s.at(at_ns, 1, what);
    }
    c.answers(&mut s, 1, 20, (0, 4), (8_000, 8_010));
    other.answers(&mut s, 1, 20, (0, 4), (8_020, 8_030));
    c.gets(&mut s, 10, (0, 4), (8_040, 8_050));
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (8_040, 8_050));
    s
}

#[test]
fn long_work_for_several_is_told_by_category() {
    let s = work_for_two(120);
    let requests = s.requests();
    check_exclusive(&requests).expect("law 6");
    assert_eq!(requests.len(), 2);
    for (_, segments) in &requests {
        let told: Vec<_> = segments.iter().filter(|s| is_added_up(s)).collect();
        let told: Vec<_> =
            told.iter().map(|s| (s.category.name(), s.duration_ns, s.shared)).collect();
        let all = [("user", 6_870, 2), ("runqueue.preempted", 500, 2), ("kernel.sched", 480, 2)];
        assert_eq!(told, all);
    }
    let every = every_piece(&s);
    assert!(every[0].1.len() > 240 && !every[0].1.iter().any(is_added_up));
    assert_eq!(sums(&every), sums(&requests));
}

/// Each of the two requests has the shared work.
#[test]
fn pieces_of_work_for_several_are_added_up_in_short_requests_too() {
    let s = work_for_two(40);
    let (few, every) = (s.requests(), every_piece(&s));
    assert_eq!(sums(&few), sums(&every));
    for ((_, few), (_, every)) in few.iter().zip(&every) {
        assert!(every.len() < 100 && few.len() < every.len() / 3, "{}", table(few));
        assert!(few.iter().all(|segment| segment.shared == 2 || !is_added_up(segment)));
    }
}

/// Client 10 starts a program that sends this number of requests to server 20, one every 100 ns from 1000 on, and ends.
fn program_that_asks(times: u64) -> Story {
    let mut s = Story::new();
    let end_ns = 1000 + 100 * times;
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, 90, IDLE, ASLEEP);
    s.switch(20, 2, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 2, (20, IDLE), (READ, 40), a());
    s.starts_program("true");
    let mut waits_since_ns = 40;
    for turn in 0..times {
        let (at_ns, from) = (1000 + 100 * turn, 4 * turn);
        s.wake(at_ns + 5, 1, 30, 20, WAKING_IN_SYSCALL);
        s.switch(at_ns + 9, 2, IDLE, 20, RUNNABLE);
        s.write(1, 30, a(), (from, 4), (at_ns, at_ns + 10));
        s.read(2, 20, a(), (from, 4), (waits_since_ns, at_ns + 13));
        s.sleep_in(at_ns + 15, 1, (30, IDLE), (READ, at_ns + 12), b());
        s.wake(at_ns + 25, 2, 20, 30, WAKING_IN_SYSCALL);
        s.switch(at_ns + 28, 1, IDLE, 30, RUNNABLE);
        s.write(2, 20, b(), (from, 4), (at_ns + 20, at_ns + 30));
        s.read(1, 30, b(), (from, 4), (at_ns + 12, at_ns + 32));
        waits_since_ns = at_ns + 33;
        s.sleep_in(at_ns + 36, 2, (20, IDLE), (READ, waits_since_ns), a());
    }
    s.exit(end_ns + 12, 1, 30, end_ns + 10);
    s.wake(end_ns + 15, 1, 30, 10, WAKING_IN_SYSCALL);
    s.switch(end_ns + 17, 0, IDLE, 10, RUNNABLE);
    s.switch_in(end_ns + 18, 1, 30, IDLE, DEAD, (EXIT_GROUP, end_ns + 10), None);
    s.call(0, 10, WAIT4, (115, end_ns + 20), 30);
    s
}

fn life_of(answers: &Answers) -> &[Segment] {
    let life = answers.iter().find(|(request, _)| request.kind == Kind::Exec);
    &life.expect("a program's life").1
}

/// In a life of thousands of segments, short segments are added up by category.
#[test]
fn a_life_does_not_repeat_its_many_requests() {
    let s = program_that_asks(300);
    let (few, every) = (s.requests(), every_piece(&s));
    assert_eq!(few.len(), 301);
    assert_eq!(check_exclusive(&few), Ok(()));
    assert_eq!(sums(&few), sums(&every));
    let (few_of_life, all_of_life) = (life_of(&few), life_of(&every));
    assert!(all_of_life.len() > 300 * 8, "{}", all_of_life.len());
    assert!(few_of_life.len() < 100 * 12, "{}", few_of_life.len());
    // Before its first request the program did so little that nothing is added up.
    let own = |segments: &[Segment]| -> Vec<Segment> {
        segments.iter().filter(|segment| segment.end_ns() <= 1000).cloned().collect()
    };
    assert_eq!(own(few_of_life), own(all_of_life));
    for (request, segments) in &few {
        assert_eq!(check_conservation(request, segments), Ok(()));
        assert!(request.kind == Kind::Exec || !segments.iter().any(is_added_up));
    }
}

#[test]
fn a_life_repeats_a_few_requests() {
    let s = program_that_asks(100);
    assert_eq!(s.requests(), every_piece(&s));
}
