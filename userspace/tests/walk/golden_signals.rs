//! Small traces of servers whose processes notify each other by signals, as PostgreSQL's do, with answers derived by
//! hand. The client (thread 10, CPU 0) sends a request to a process (40, CPU 1); another client (30, CPU 2) sends one
//! to a second process (50, CPU 3).

use rpcprobe::engine::event::{Call, Object, What, TYPE_UNIX};
use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL};

use super::connection::Connection;
use super::story::*;

const KILL: u16 = 62;

/// Both processes have read a request, the second process first. `tells`: the first signals the second before the first
/// rests from 120 on; the second rests from 122 to 140. `helper`: the second process has another thread. `asker`: the
/// client of the second process.
fn begun(tells: bool, helper: bool, asker: u32) -> (Story, Connection, Connection) {
    let (mut s, c, other) = begun_until_asked(helper, asker);
    match tells {
        true => {
            s.wake(115, 1, 40, 50, WAKING_IN_SYSCALL);
            s.call(1, 40, KILL, (114, 116), 0);
        }
        false => s.wake(115, 3, IDLE, 50, WAKING_HARDIRQ),
    }
    s.switch(117, 3, IDLE, 50, RUNNABLE);
    s.timed(3, 50, (97, 119), i64::from(tells));
    s.switch_in(120, 1, 40, IDLE, ASLEEP, (POLL, 118), None);
    rests(&mut s, (3, 50), 122, 140);
    (s, c, other)
}

/// Both processes have read a request. The second process has rested since 98.
fn begun_until_asked(helper: bool, asker: u32) -> (Story, Connection, Connection) {
    let mut s = Story::new();
    for (tid, comm) in [(30, "other"), (40, "first"), (50, "second")] {
        s.task(tid, tid, comm);
    }
    if helper {
        s.task(51, 50, "helper");
    }
    for (cpu, tid) in [(0, 10), (1, 40), (2, asker), (3, 50)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    let (c, other) = (Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX));
    s.moved(2, asker, (SENDTO, other.there, other.back), (0, 4), (80, 85));
    s.sleep_in(87, 2, (asker, IDLE), (RECVFROM, 86), other.sockets[0]);
    other.hears(&mut s, 3, 50, (0, 4), (90, 95));
    s.switch_in(98, 3, 50, IDLE, ASLEEP, (POLL, 97), None);
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 40, (0, 4), (110, 113));
    (s, c, other)
}

/// A thread rests until its timeout expires.
fn rests(s: &mut Story, (cpu, tid): (u32, u32), from_ns: u64, to_ns: u64) {
    s.switch_in(from_ns, cpu, tid, IDLE, ASLEEP, (POLL, from_ns - 1), None);
    s.wake(to_ns, cpu, IDLE, tid, WAKING_HARDIRQ);
    s.switch(to_ns + 1, cpu, IDLE, tid, RUNNABLE);
    s.timed(cpu, tid, (from_ns - 1, to_ns + 2), 0);
}

/// The second process signals the first at 147, and then answers its own client.
fn told(s: &mut Story, other: &Connection, asker: u32) {
    s.wake(147, 3, 50, 40, WAKING_IN_SYSCALL);
    s.call(3, 50, KILL, (145, 148), 0);
    s.switch(149, 1, IDLE, 40, RUNNABLE);
    s.timed(1, 40, (118, 151), 1);
    s.wake(154, 3, 50, asker, WAKING_IN_SYSCALL);
    other.answers(s, 3, 50, (0, 4), (150, 155));
    s.switch(156, 2, IDLE, asker, RUNNABLE);
    s.moved(2, asker, (RECVFROM, other.back, other.there), (0, 4), (86, 160));
}

/// The first process rests from 160 to 170, and answers.
fn answered(s: &mut Story, c: &Connection) {
    rests(s, (1, 40), 160, 170);
    s.wake(185, 1, 40, 10, WAKING_IN_SYSCALL);
    c.answers(s, 1, 40, (0, 4), (180, 186));
    s.switch(188, 0, IDLE, 10, RUNNABLE);
    c.gets(s, 10, (0, 4), (106, 195));
}

fn ours(s: &Story) -> Vec<String> {
    let requests = s.requests();
    let is_ours = |tid: u32| move |end: &rpcprobe::model::End| end.tid == tid;
    let found = requests.iter().find(|(of, _)| of.client.as_ref().is_some_and(is_ours(10)));
    let segments = found.expect("a request").1.iter();
    let waits = segments.filter(|segment| segment.tid != 10 && !segment.category.is_on_cpu());
    let shown = waits.map(|segment| {
        let by = segment.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        let span = format!("{}-{}", segment.start_ns, segment.end_ns());
        format!("{span} {} {} {}{by}", segment.comm, segment.category, segment.evidence)
    });
    shown.filter(|line| !line.contains("runqueue") && !line.contains("queue.socket")).collect()
}

/// A process that serves another client signals the first process. Its work is not for this request: the wait is for a
/// lock, a latch or some other hand-over. The rest after that times out. The first process serves no other request, so
/// this rest is its own.
#[test]
fn who_is_told_by_a_signal_waited_for_no_peer() {
    let (mut s, c, other) = begun(false, false, 30);
    told(&mut s, &other, 30);
    answered(&mut s, &c);
    let expected = ["120-147 first lock modelled by second/50", "160-170 first sleep measured"];
    assert_eq!(ours(&s), expected);
    let (_, segments) = s.requests().into_iter().find(|(of, _)| of.start_ns == 100).expect("ours");
    let lock = segments.iter().find(|segment| segment.start_ns == 120).expect("the wait");
    let detail = "asleep in poll until a signal: what for is not seen";
    assert_eq!(lock.detail.as_deref(), Some(detail));
}

/// Before that, the first process had signalled the second, which looks as if it had asked for what comes back. The
/// second serves another client all the same, and its own rest is not part of this request. If its process has other
/// threads, it may have given its request to one of them, and be this request's helper.
#[test]
fn who_serves_another_is_no_helper_though_it_was_told_something() {
    // The second process's client is another process, or the process that also sends to the first.
    for (helper, asker) in [(false, 30), (true, 30), (false, 11), (true, 11)] {
        let (mut s, c, other) = begun(true, helper, asker);
        told(&mut s, &other, asker);
        answered(&mut s, &c);
        let expected = ["120-147 first lock modelled by second/50", "160-170 first sleep measured"];
        assert_eq!(ours(&s) == expected, !helper, "{asker}: {:?}", ours(&s));
    }
}

/// The process that is signalled takes the CPU of the process that signalled it at once. A thread that has lost its CPU
/// to another request's work waits in the run queue, although it woke that work's thread.
#[test]
fn who_is_told_and_preempts_works_for_whom_it_serves() {
    for helper in [false, true] {
        let (mut s, c, other) = begun_until_asked(helper, 30);
        s.wake(115, 1, 40, 50, WAKING_IN_SYSCALL);
        s.call(1, 40, KILL, (114, 116), 0);
        s.switch(118, 1, 40, 50, RUNNABLE);
        s.timed(1, 50, (97, 120), 1);
        s.switch_in(143, 1, 50, 40, ASLEEP, (POLL, 142), None);
        s.wake(185, 1, 40, 10, WAKING_IN_SYSCALL);
        c.answers(&mut s, 1, 40, (0, 4), (180, 186));
        s.switch(188, 0, IDLE, 10, RUNNABLE);
        c.gets(&mut s, 10, (0, 4), (106, 195));
        s.wake(200, 1, IDLE, 50, WAKING_HARDIRQ);
        s.switch(202, 1, 40, 50, RUNNABLE);
        s.timed(1, 50, (142, 205), 0);
        s.wake(215, 1, 50, 30, WAKING_IN_SYSCALL);
        other.answers(&mut s, 1, 50, (0, 4), (210, 216));
        s.switch(218, 2, IDLE, 30, RUNNABLE);
        s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (86, 220));
        let requests = s.requests();
        let (_, segments) = requests.iter().find(|(of, _)| of.start_ns == 100).expect("ours");
        let helped = segments.iter().any(|segment| segment.tid == 50);
        assert_eq!(helped, helper, "{segments:?}");
    }
}

/// A timer's signal interrupts the wait, as in PostgreSQL, which then looks for deadlocks. The wait was not for this
/// timer.
#[test]
fn a_timer_that_interrupts_a_wait_is_not_what_it_was_for() {
    for told_at_last in [true, false] {
        let (mut s, c, other) = begun(false, false, 30);
        s.wake(124, 1, IDLE, 40, WAKING_HARDIRQ);
        s.switch(125, 1, IDLE, 40, RUNNABLE);
        s.call(1, 40, POLL, (118, 127), -4);
        s.switch_in(131, 1, 40, IDLE, ASLEEP, (POLL, 130), None);
        if told_at_last {
            s.wake(147, 3, 50, 40, WAKING_IN_SYSCALL);
            s.call(3, 50, KILL, (145, 148), 0);
        } else {
            s.wake(147, 1, IDLE, 40, WAKING_HARDIRQ);
        }
        s.switch(149, 1, IDLE, 40, RUNNABLE);
        s.timed(1, 40, (130, 151), i64::from(told_at_last));
        s.wake(154, 3, 50, 30, WAKING_IN_SYSCALL);
        other.answers(&mut s, 3, 50, (0, 4), (150, 155));
        s.switch(156, 2, IDLE, 30, RUNNABLE);
        s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (86, 160));
        answered(&mut s, &c);
        let expected = match told_at_last {
            true => [
                "120-124 first lock modelled by second/50",
                "131-147 first lock modelled by second/50",
                "160-170 first sleep measured",
            ],
            false => [
                "120-124 first sleep modelled",
                "131-147 first sleep measured",
                "160-170 first sleep measured",
            ],
        };
        assert_eq!(ours(&s), expected);
    }
}

/// The signal comes from an untraced process. The wait was not for a peer's bytes either.
#[test]
fn who_is_interrupted_by_a_signal_waited_for_no_peer() {
    let (mut s, c, other) = begun(false, false, 30);
    s.wake(147, 2, 90, 40, WAKING_IN_SYSCALL);
    s.switch(149, 1, IDLE, 40, RUNNABLE);
    s.call(1, 40, POLL, (118, 151), -4);
    s.wake(154, 3, 50, 30, WAKING_IN_SYSCALL);
    other.answers(&mut s, 3, 50, (0, 4), (150, 155));
    s.switch(156, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (86, 160));
    answered(&mut s, &c);
    let expected = ["120-147 first lock modelled by noise/90", "160-170 first sleep measured"];
    assert_eq!(ours(&s), expected);
}

/// The wake-up came from no task, and the process then reads a descriptor that only counts: apparently a timer's.
#[test]
fn a_descriptor_that_only_counts_is_a_timers_as_it_seems() {
    let (mut s, c, other) = begun(false, false, 30);
    s.wake(124, 1, IDLE, 40, WAKING_HARDIRQ);
    s.switch(125, 1, IDLE, 40, RUNNABLE);
    s.call(1, 40, POLL, (118, 127), 1);
    let anonymous = Object { dev: 0, ino: 20, type_bits: 0 };
    let read =
        Call { io: Some(io(anonymous, 20, false, (0, 8))), ..Call::new(READ, (128, 130), 8) };
    s.at(130, 1, What::Call { tid: 40, call: read });
    s.wake(154, 3, 50, 30, WAKING_IN_SYSCALL);
    other.answers(&mut s, 3, 50, (0, 4), (150, 155));
    s.switch(156, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (86, 160));
    answered(&mut s, &c);
    assert_eq!(ours(&s), ["120-124 first sleep modelled", "160-170 first sleep measured"]);
}
