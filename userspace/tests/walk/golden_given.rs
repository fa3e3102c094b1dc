//! Small traces of threads of a server that share connections to a back end, with answers derived by hand.

use rpcprobe::engine::event::TYPE_UNIX;
use rpcprobe::model::Category;
use rpcprobe::records::WAKING_IN_SYSCALL;

use super::connection::Connection;
use super::rule_stories::used;
use super::story::*;

/// How a thread of a server (20, CPU 1), whose request waits in memory, comes to ask a back end (thread 40, CPU 3) when
/// another thread (21, CPU 4) of the server wakes it.
#[derive(Clone, Copy, PartialEq)]
enum Woken {
    /// The other thread has just heard an answer on the connection, and has woken it at once.
    AtOnce,
    /// It has answered its own client before.
    AfterAnswer,
    /// The thread was woken through a third one (22, CPU 5), which had waited for the same lock.
    ThroughAnother,
    /// The server had another connection, and it was idle.
    WithSpare,
    /// The other thread has heard the answer before the request came.
    Later,
    /// The other thread has released a mutex, which guards the connection.
    FromMutex,
}

/// The server has the request at 115, and sleeps from 120 to 150.
fn woken(how: Woken) -> Story {
    let mut s = Story::new();
    let [c, other, behind, spare] = [1, 2, 3, 4].map(|at| Connection::numbered(at, TYPE_UNIX));
    s.task(22, 20, "third");
    s.task(30, 30, "other");
    s.task(40, 40, "back end");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 40), (4, 21), (5, 22)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.sleep_in(30, 5, (22, IDLE), (FUTEX, 25), condition(0x300));
    if how == Woken::WithSpare {
        used(&mut s, &spare, (1, 20), 30);
    }
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (40, 44));
    other.hears(&mut s, 4, 21, (0, 4), (50, 53));
    s.moved(4, 21, (SENDTO, behind.there, behind.back), (0, 4), (55, 58));
    behind.hears(&mut s, 3, 40, (0, 4), (60, 63));
    let hears = |s: &mut Story, at: u64| {
        s.sleep_in(66, 4, (21, IDLE), (RECVFROM, 64), behind.sockets[0]);
        s.wake(at + 2, 3, 40, 21, WAKING_IN_SYSCALL);
        behind.answers(s, 3, 40, (0, 4), (at, at + 4));
        s.switch(at + 5, 4, IDLE, 21, RUNNABLE);
        s.moved(4, 21, (RECVFROM, behind.back, behind.there), (0, 4), (64, at + 7));
    };
    if how == Woken::Later {
        hears(&mut s, 70);
    }
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    let word = if how == Woken::FromMutex { mutex(0x200) } else { condition(0x200) };
    s.sleep_in(120, 1, (20, IDLE), (FUTEX, 118), word);
    if how != Woken::Later {
        hears(&mut s, 130);
    }
    if how == Woken::AfterAnswer {
        other.answers(&mut s, 4, 21, (0, 4), (140, 144));
    }
    if how == Woken::ThroughAnother {
        s.wake(140, 4, 21, 22, WAKING_IN_SYSCALL);
        s.call(4, 21, FUTEX, (139, 141), 1);
        s.switch(143, 5, IDLE, 22, RUNNABLE);
        s.call(5, 22, FUTEX, (25, 144), 0);
        s.wake(150, 5, 22, 20, WAKING_IN_SYSCALL);
        s.call(5, 22, FUTEX, (148, 152), 1);
    } else {
        s.wake(150, 4, 21, 20, WAKING_IN_SYSCALL);
        s.call(4, 21, FUTEX, (148, 152), 1);
    }
    s.switch(154, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (118, 156), 0);
    if how != Woken::AfterAnswer {
        other.answers(&mut s, 4, 21, (0, 4), (157, 160));
    }
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (161, 162));
    s.moved(1, 20, (SENDTO, behind.there, behind.back), (4, 4), (163, 167));
    behind.hears(&mut s, 3, 40, (4, 4), (170, 173));
    s.sleep_in(176, 1, (20, IDLE), (RECVFROM, 174), behind.sockets[0]);
    s.wake(186, 3, 40, 20, WAKING_IN_SYSCALL);
    behind.answers(&mut s, 3, 40, (4, 4), (184, 188));
    s.switch(190, 1, IDLE, 20, RUNNABLE);
    s.moved(1, 20, (RECVFROM, behind.back, behind.there), (4, 4), (174, 193));
    s.wake(198, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (196, 200));
    s.switch(202, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 205));
    s
}

/// How the sleep is told: time, category, rule, and whether it is inferred.
fn sleep(how: Woken) -> Vec<String> {
    let requests = woken(how).requests();
    let ours = requests.iter().find(|(request, _)| request.start_ns == 100).expect("the request");
    let waits = ours.1.iter().filter(|segment| segment.start_ns < 150 && segment.end_ns() > 120);
    let line = |s: &rpcprobe::model::Segment| {
        let rule = s.rule.map_or("none", |rule| rule.name());
        format!("{}-{} {} {rule} {}", s.start_ns, s.end_ns(), s.category, s.evidence)
    };
    waits.filter(|s| s.category != Category::User).map(line).collect()
}

#[test]
fn a_thread_waits_for_a_connection_until_another_gives_it_back() {
    for how in [Woken::AtOnce, Woken::AfterAnswer, Woken::ThroughAnother] {
        assert_eq!(sleep(how), ["120-150 queue.app connection modelled"]);
    }
}

#[test]
fn a_thread_does_not_wait_for_a_connection_that_is_idle() {
    for how in [Woken::WithSpare, Woken::Later] {
        assert_eq!(sleep(how), ["120-150 lock charge modelled"]);
    }
}

#[test]
fn a_thread_waits_for_the_mutex_that_guards_a_connection() {
    assert_eq!(sleep(Woken::FromMutex), ["120-150 lock charge measured"]);
}
