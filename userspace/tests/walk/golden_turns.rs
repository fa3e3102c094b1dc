//! Small traces of threads that serve several requests at once, with answers derived by hand: which request each piece
//! of work belongs to.

use rpcprobe::engine::classify::syscall::SOFTIRQ_NET_RX;
use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::laws::check_exclusive;
use rpcprobe::model::{Category, Evidence};
use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

/// The table of a client's request. Checks that no request's own time is also another's.
fn of(s: &Story, tid: u32) -> String {
    let requests = s.requests();
    check_exclusive(&requests).expect("law 6");
    let is = |client: &rpcprobe::model::End| client.tid == tid;
    let ours = requests.iter().find(|(request, _)| request.client.as_ref().is_some_and(is));
    table(&ours.expect("a request").1)
}

/// A single-threaded proxy that is always awake: it sends a request to a server behind for each of two requests, and
/// reads and passes on the later one's answer first.
#[test]
fn a_proxy_works_for_whom_it_asks_and_hears() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let (behind, behind_other) =
        (Connection::numbered(3, TYPE_TCP), Connection::numbered(4, TYPE_TCP));
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.sleep_in(112, 0, (10, IDLE), (RECVFROM, 111), c.sockets[0]);
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (115, 120));
    s.sleep_in(122, 2, (30, IDLE), (RECVFROM, 121), other.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (120, 125));
    s.moved(1, 20, (SENDTO, behind.there, behind.back), (0, 4), (130, 135));
    other.hears(&mut s, 1, 20, (0, 4), (140, 145));
    s.moved(1, 20, (SENDTO, behind_other.there, behind_other.back), (0, 4), (150, 155));
    s.moved(1, 20, (RECVFROM, behind_other.back, behind_other.there), (0, 4), (160, 165));
    s.wake(172, 1, 20, 30, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(174, 2, IDLE, 30, RUNNABLE);
    other.answers(&mut s, 1, 20, (0, 4), (170, 175));
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (121, 178));
    s.moved(1, 20, (RECVFROM, behind.back, behind.there), (0, 4), (180, 185));
    s.wake(195, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(198, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 1, 20, (0, 4), (190, 200));
    c.gets(&mut s, 10, (0, 4), (111, 205));
    let answer = "
        100-110 client kernel.tcp
        110-120 server queue.socket (user)
        120-125 server kernel.tcp
        125-130 server user
        130-135 server kernel.tcp
        135-140 server user
        140-175 server queue.app (kernel.tcp, user)
        175-180 server user
        180-185 server kernel.tcp
        185-190 server user
        190-195 server kernel.tcp
        195-198 client runqueue.wakeup by idle
        198-205 client kernel.tcp
    ";
    assert_eq!(of(&s, 10), expected(answer));
    let answer = "
        115-120 other kernel.tcp
        120-140 server queue.socket (user, kernel.tcp)
        140-145 server kernel.tcp
        145-150 server user
        150-155 server kernel.tcp
        155-160 server user
        160-165 server kernel.tcp
        165-170 server user
        170-172 server kernel.tcp
        172-174 other runqueue.wakeup by idle
        174-178 other kernel.tcp
    ";
    assert_eq!(of(&s, 30), expected(answer));
}

/// A client sends two requests with one call: the work of their packet in this call belongs to both.
#[test]
fn a_packet_of_several_requests_is_shared() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.moving((105, 0), 10, (true, c.there, c.back), (0, 4));
    s.irq(0, 10, false, SOFTIRQ_NET_RX, (103, 107));
    other.asks(&mut s, 10, (0, 4), (100, 110));
    s.arrives(c.back, 4, 120);
    c.gets(&mut s, 10, (0, 4), (130, 140));
    s.arrives(other.back, 4, 145);
    other.gets(&mut s, 10, (0, 4), (150, 160));
    let requests = s.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    check_exclusive(&requests).expect("law 6");
    for ((_, segments), (arrived_ns, read_ns)) in requests.iter().zip([(120, 130), (145, 150)]) {
        let answer = format!(
            "
            100-103 client kernel.tcp shared by 2
            103-107 client wire.stack shared by 2
            107-110 client kernel.tcp shared by 2
            110-{arrived_ns} client idle.peer
            {arrived_ns}-{read_ns} client queue.socket (user)
            {read_ns}-{} client kernel.tcp
            ",
            read_ns + 10
        );
        assert_eq!(table(segments), expected(&answer));
    }
}

/// A client sends its request in two parts, and another request in between: the call in between does not belong to the
/// first request.
#[test]
fn a_call_that_moves_others_messages_only_is_theirs() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    other.asks(&mut s, 10, (0, 4), (115, 120));
    c.asks(&mut s, 10, (4, 8), (125, 130));
    s.arrives(c.back, 4, 140);
    c.gets(&mut s, 10, (0, 4), (150, 160));
    s.arrives(other.back, 4, 165);
    other.gets(&mut s, 10, (0, 4), (170, 180));
    let requests = s.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    check_exclusive(&requests).expect("law 6");
    let answer = "
        100-110 client kernel.tcp
        110-115 client user
        115-120 client queue.app (kernel.tcp: sendto tcp)
        120-125 client user
        125-130 client kernel.tcp
        130-140 client idle.peer
        140-150 client queue.socket (user)
        150-160 client kernel.tcp
    ";
    assert_eq!(table(&requests[0].1), expected(answer));
}

/// A proxy passes a request on in pieces. Reading the second piece is not another request's turn.
#[test]
fn what_is_read_to_be_passed_on_is_not_others() {
    let mut s = Story::new();
    let (c, behind) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    for (cpu, tid) in [(0, 10), (1, 20)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    c.asks(&mut s, 10, (0, 4), (100, 110));
    c.hears(&mut s, 1, 20, (0, 4), (120, 125));
    s.moved(1, 20, (SENDTO, behind.there, behind.back), (0, 4), (130, 135));
    c.asks(&mut s, 10, (4, 4), (132, 138));
    c.hears(&mut s, 1, 20, (4, 4), (140, 145));
    s.moved(1, 20, (SENDTO, behind.there, behind.back), (4, 4), (150, 155));
    s.arrives(behind.back, 4, 160);
    s.moved(1, 20, (RECVFROM, behind.back, behind.there), (0, 4), (170, 175));
    c.answers(&mut s, 1, 20, (0, 4), (180, 190));
    c.gets(&mut s, 10, (0, 4), (195, 200));
    let answer = "
        130-135 server kernel.tcp
        135-140 server user
        140-145 server kernel.tcp
        145-150 server user
        150-155 server kernel.tcp
        155-160 server idle.peer
        160-170 server queue.socket (user)
        170-175 server kernel.tcp
    ";
    assert_eq!(of(&s, 20), expected(answer));
}

/// A worker that never sleeps takes two requests from memory, which another thread had read, and answers both with one
/// call. What it did before, since it had answered a third, was apparently for both.
#[test]
fn what_is_answered_together_was_worked_for_together() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let third = Connection::numbered(3, TYPE_TCP);
    for (cpu, tid) in [(0, 10), (1, 20), (2, 21)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    third.asks(&mut s, 10, (0, 4), (70, 75));
    c.asks(&mut s, 10, (0, 4), (80, 85));
    other.asks(&mut s, 10, (0, 4), (90, 95));
    third.hears(&mut s, 1, 20, (0, 4), (100, 105));
    c.hears(&mut s, 1, 20, (0, 4), (110, 120));
    other.hears(&mut s, 1, 20, (0, 4), (125, 130));
    third.answers(&mut s, 2, 21, (0, 4), (140, 150));
    s.call(2, 21, FUTEX, (170, 180), 0);
    s.moving((205, 2), 21, (true, c.back, c.there), (0, 4));
    other.answers(&mut s, 2, 21, (0, 4), (200, 210));
    third.gets(&mut s, 10, (0, 4), (220, 225));
    c.gets(&mut s, 10, (0, 4), (230, 235));
    other.gets(&mut s, 10, (0, 4), (240, 245));
    let requests = s.requests();
    check_exclusive(&requests).expect("law 6");
    let asked = |start_ns: u64| requests.iter().find(|(r, _)| r.start_ns == start_ns).unwrap();
    for start_ns in [80, 90] {
        let (_, segments) = asked(start_ns);
        let before: Vec<_> = segments
            .iter()
            .filter(|s| (150..200).contains(&s.start_ns) && s.comm == "helper")
            .map(|s| (s.start_ns, s.end_ns(), s.category.name(), s.shared, s.evidence))
            .collect();
        let modelled = Evidence::Modelled;
        let both = [
            (150, 170, "user", 2, modelled),
            (170, 180, "kernel.futex", 2, modelled),
            (180, 200, "user", 2, modelled),
        ];
        assert_eq!(before, both, "{}", table(segments));
    }
}

/// A helper wakes two threads after one piece of work: nothing shows which of them the work was for.
#[test]
fn what_two_come_to_is_the_first_ones() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(22, 20, "worker");
    s.task(23, 20, "worker2");
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 22), (2, 23), (3, 21)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    // Each request is read by a thread of its own, which wakes the helper and sleeps until the helper wakes it.
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.sleep_in(112, 0, (10, 30), (RECVFROM, 111), c.sockets[0]);
    s.moved(0, 30, (SENDTO, other.there, other.back), (0, 4), (115, 120));
    s.sleep_in(122, 0, (30, IDLE), (RECVFROM, 121), other.sockets[0]);
    c.hears(&mut s, 1, 22, (0, 4), (110, 125));
    other.hears(&mut s, 2, 23, (0, 4), (120, 126));
    let condition = condition(0x100);
    s.sleep_in(60, 3, (21, IDLE), (FUTEX, 50), condition);
    s.wake(130, 1, 22, 21, 0);
    s.switch(132, 3, IDLE, 21, RUNNABLE);
    s.sleep_in(134, 1, (22, IDLE), (FUTEX, 133), condition);
    s.sleep_in(136, 2, (23, IDLE), (FUTEX, 133), condition);
    s.call(3, 21, FUTEX, (50, 133), 0);
    s.wake(150, 3, 21, 22, 0);
    s.switch(152, 1, IDLE, 22, RUNNABLE);
    s.wake(155, 3, 21, 23, 0);
    s.switch(157, 2, IDLE, 23, RUNNABLE);
    s.call(1, 22, FUTEX, (133, 153), 0);
    s.call(2, 23, FUTEX, (133, 158), 0);
    s.call(3, 21, FUTEX, (148, 158), 2);
    s.wake(165, 1, 22, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(166, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 1, 22, (0, 4), (160, 168));
    c.gets(&mut s, 10, (0, 4), (111, 170));
    s.sleep_in(172, 0, (10, IDLE), (RECVFROM, 171), c.sockets[0]);
    s.wake(185, 2, 23, 30, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(186, 0, IDLE, 30, RUNNABLE);
    other.answers(&mut s, 2, 23, (0, 4), (180, 188));
    s.moved(0, 30, (RECVFROM, other.back, other.there), (0, 4), (121, 190));
    let first = of(&s, 10);
    assert!(first.contains("helper user"), "{first}");
    let second = of(&s, 30);
    assert!(!second.contains("helper user"), "{second}");
}

/// As in Go: the thread that read the request rests until a timer is due, and wakes another thread, which answers
/// another request first. The request waited for its turn from the end of the rest on, and for the timer before.
#[test]
fn who_waits_for_a_timer_does_not_wait_for_its_turn() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 21)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    let parked = condition(0x100);
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (80, 85));
    s.sleep_in(87, 2, (30, IDLE), (RECVFROM, 86), other.sockets[0]);
    other.hears(&mut s, 1, 20, (0, 4), (90, 95));
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.sleep_in(117, 3, (21, IDLE), (FUTEX, 116), parked);
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
    s.wake(140, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(141, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (118, 142), 0);
    s.wake(145, 1, 20, 21, 0);
    s.call(1, 20, FUTEX, (144, 146), 1);
    s.switch(147, 3, IDLE, 21, RUNNABLE);
    s.call(3, 21, FUTEX, (116, 148), 0);
    s.wake(152, 3, 21, 30, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    other.answers(&mut s, 3, 21, (0, 4), (150, 155));
    s.switch(154, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (86, 158));
    s.wake(172, 3, 21, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 3, 21, (0, 4), (165, 175));
    s.switch(174, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 180));
    let answer = "
        100-105 client kernel.tcp
        105-110 server queue.socket (user)
        110-115 server kernel.tcp
        115-118 server user shared by 2
        118-120 server kernel.poll shared by 2
        120-140 server sleep
        140-141 server runqueue.wakeup by idle
        141-155 helper queue.app (kernel.tcp, asleep, user, on the run queue, kernel.futex)
        155-165 helper user
        165-172 helper kernel.tcp
        172-174 client runqueue.wakeup by idle
        174-180 client kernel.tcp
    ";
    assert_eq!(of(&s, 10), expected(answer));
}

/// A loop rests, reads a request, and next answers one that it had read earlier. What it did in between is for either
/// request, and nothing shows for which. (The timer may have been the earlier one's.)
#[test]
fn between_a_question_and_an_earlier_ones_answer_the_work_is_either_ones() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.arrives(other.there, 4, 50);
    other.hears(&mut s, 1, 20, (0, 4), (60, 65));
    s.switch_in(70, 1, 20, IDLE, ASLEEP, (POLL, 68), None);
    s.arrives(c.there, 4, 90);
    s.wake(91, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(92, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (68, 94), 1);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    other.answers(&mut s, 1, 20, (0, 4), (140, 145));
    c.answers(&mut s, 1, 20, (0, 4), (170, 175));
    let requests = s.requests();
    check_exclusive(&requests).expect("law 6");
    for start_ns in [50, 90] {
        let (_, segments) = requests.iter().find(|(r, _)| r.start_ns == start_ns).expect("it");
        let work = segments.iter().find(|s| s.start_ns == 105).expect("what is either one's");
        let told = (work.end_ns(), work.category.name(), work.shared, work.evidence);
        assert_eq!(told, (140, "user", 2, Evidence::Modelled), "{}", table(segments));
    }
}

/// A server reads the requests of three clients one after the other, and answers them in the reverse order, as Redis
/// does. Before that it makes all of them durable at once. If it `rests` after the first answer, the work may have been
/// for that request alone.
fn answered_in_reverse(rests: bool) -> Vec<(u64, Vec<(u32, Evidence)>)> {
    let mut s = Story::new();
    let connections = [1, 2, 3].map(|number| Connection::numbered(number, TYPE_TCP));
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    for (c, at_ns) in connections.iter().zip([40, 42, 44]) {
        s.arrives(c.there, 4, at_ns);
    }
    for (c, at_ns) in connections.iter().zip([60, 70, 80]) {
        c.hears(&mut s, 1, 20, (0, 4), (at_ns, at_ns + 5));
    }
    s.call(1, 20, FDATASYNC, (90, 140), 0);
    connections[2].answers(&mut s, 1, 20, (0, 4), (150, 155));
    if rests {
        s.switch_in(160, 1, 20, IDLE, ASLEEP, (POLL, 158), None);
        s.wake(162, 1, IDLE, 20, WAKING_SOFTIRQ);
        s.switch(163, 1, IDLE, 20, RUNNABLE);
        s.call(1, 20, POLL, (158, 164), 1);
    }
    connections[1].answers(&mut s, 1, 20, (0, 4), (170, 175));
    connections[0].answers(&mut s, 1, 20, (0, 4), (180, 185));
    let requests = s.requests();
    check_exclusive(&requests).expect("law 6");
    let told = requests.iter().map(|(request, segments)| {
        let synced = segments.iter().filter(|s| s.start_ns >= 85 && s.end_ns() <= 150);
        let synced = synced.filter(|s| s.category.name() == "kernel.vfs");
        (request.start_ns, synced.map(|s| (s.shared, s.evidence)).collect())
    });
    told.collect()
}

/// A thread reads two requests, sleeps, answers one, sleeps again and answers the other. The second sleep is the
/// latter's. Nothing shows whether the first sleep was for one of them or for both.
#[test]
fn what_it_waited_for_before_one_of_several_is_answered_is_inferred() {
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    let mut s = Story::new();
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.arrives(c.there, 4, 90);
    s.arrives(other.there, 4, 95);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    other.hears(&mut s, 1, 20, (0, 4), (110, 115));
    for (asleep_ns, woken_ns) in [(120, 150), (170, 200)] {
        s.switch_in(asleep_ns, 1, 20, IDLE, ASLEEP, (NANOSLEEP, asleep_ns - 1), None);
        s.wake(woken_ns, 1, IDLE, 20, WAKING_HARDIRQ);
        s.switch(woken_ns, 1, IDLE, 20, RUNNABLE);
        s.call(1, 20, NANOSLEEP, (asleep_ns - 1, woken_ns + 1), 0);
        let answered = if asleep_ns == 120 { &c } else { &other };
        answered.answers(&mut s, 1, 20, (0, 4), (woken_ns + 5, woken_ns + 10));
    }
    let slept = |start_ns: u64| {
        let requests = s.requests();
        let (_, segments) = requests.iter().find(|(r, _)| r.start_ns == start_ns).expect("it");
        let sleeps = segments.iter().filter(|segment| segment.category == Category::Sleep);
        sleeps.map(|sleep| (sleep.start_ns, sleep.shared, sleep.evidence)).collect::<Vec<_>>()
    };
    assert_eq!(slept(90), [(120, 2, Evidence::Modelled)]);
    assert_eq!(slept(95), [(120, 2, Evidence::Modelled), (170, 1, Evidence::Measured)]);
}

#[test]
fn what_is_done_before_all_of_several_are_answered_is_for_all_of_them() {
    let mut told = answered_in_reverse(false);
    told.sort_unstable_by_key(|(start_ns, _)| *start_ns);
    let shared = vec![(3, Evidence::Modelled)];
    assert_eq!(told, [(40, shared.clone()), (42, shared.clone()), (44, shared)]);
    let mut told = answered_in_reverse(true);
    told.sort_unstable_by_key(|(start_ns, _)| *start_ns);
    assert_eq!(told, [(40, vec![]), (42, vec![]), (44, vec![(1, Evidence::Measured)])]);
}

/// Another thread wakes a server thread, which answers two requests, that of the later connection first. Both requests
/// are found when nothing more comes, and claim the thread's work in the order of their answers.
#[test]
fn who_is_answered_first_claims_first() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    for (cpu, tid) in [(1, 20), (3, 21)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.sleep_in(60, 3, (21, IDLE), (FUTEX, 50), condition(0x100));
    s.arrives(c.there, 4, 90);
    s.arrives(other.there, 4, 95);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    other.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.wake(120, 1, 20, 21, 0);
    s.switch(122, 3, IDLE, 21, RUNNABLE);
    s.call(3, 21, FUTEX, (50, 123), 0);
    other.answers(&mut s, 3, 21, (0, 4), (150, 155));
    c.answers(&mut s, 3, 21, (0, 4), (190, 195));
    let requests = s.requests();
    check_exclusive(&requests).expect("law 6");
    let own = |start_ns: u64| -> Vec<_> {
        let (_, segments) = requests.iter().find(|(r, _)| r.start_ns == start_ns).expect("it");
        let of_worker = segments.iter().filter(|s| s.tid == 21 && s.category == Category::User);
        of_worker.map(|s| (s.start_ns, s.end_ns())).collect()
    };
    assert_eq!((own(95), own(90)), (vec![(123, 150)], vec![(155, 190)]));
}
