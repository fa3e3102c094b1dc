//! The traces of [`super::golden_rules`]. Unless noted otherwise, the client (thread 10, CPU 0) sends its request on
//! pipe `A`, and the server (thread 20, CPU 1) answers on pipe `B`.

use rpcprobe::engine::event::{Object, Packet, What, TYPE_CHAR, TYPE_TCP, TYPE_UNIX};
use rpcprobe::records::{
    TASK_THREAD, TASK_TRACED, WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_NEW, WAKING_SOFTIRQ,
};

use super::connection::Connection;
use super::golden::{a, asked, b};
use super::story::*;

const SENT: u8 = WAKING_SOFTIRQ | WAKING_IN_SYSCALL;

/// The client waits from 120 on; the server writes at 190, and the client has the answer at 202.
fn answered(s: &mut Story) {
    s.sleep_in(120, 0, (10, IDLE), (READ, 115), b());
    s.wake(195, 1, 20, 10, WAKING_IN_SYSCALL);
    s.write(1, 20, b(), (0, 4), (190, 200));
    s.switch(198, 0, IDLE, 10, RUNNABLE);
    s.read(0, 10, b(), (0, 4), (115, 202));
}

/// Each side sleeps until the other's message wakes it.
pub fn messages() -> Story {
    let mut s = Story::new();
    asked(&mut s);
    answered(&mut s);
    s
}

/// The server computes until 150, although the request has been there since 106.
pub fn read_late() -> Story {
    let mut s = Story::new();
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.write(0, 10, a(), (0, 4), (100, 106));
    s.read(1, 20, a(), (0, 4), (150, 153));
    answered(&mut s);
    s
}

/// The client is not traced. Its request arrives at 100; the server computes until 150.
pub fn arrived() -> Story {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (150, 155));
    c.answers(&mut s, 1, 20, (0, 4), (170, 175));
    s
}

/// The server sends a request to a back end (thread 30, CPU 2). If it `turns`, it reads another client's request before
/// the answer comes, and answers that request first; otherwise it computes until it reads the back end's answer.
fn asks_a_back_end(turns: bool) -> Story {
    let mut s = Story::new();
    let [c, other, behind] = [1, 2, 3].map(|number| Connection::numbered(number, TYPE_TCP));
    s.task(30, 30, "back end");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    c.asks(&mut s, 10, (0, 4), (100, 105));
    c.hears(&mut s, 1, 20, (0, 4), (106, 110));
    s.moved(1, 20, (SENDTO, behind.there, behind.back), (0, 4), (115, 120));
    if turns {
        s.arrives(other.there, 4, 122);
        other.hears(&mut s, 1, 20, (0, 4), (124, 126));
    }
    behind.hears(&mut s, 2, 30, (0, 4), (121, 127));
    behind.answers(&mut s, 2, 30, (0, 4), (150, 155));
    if turns {
        other.answers(&mut s, 1, 20, (0, 4), (160, 165));
    }
    s.moved(1, 20, (RECVFROM, behind.back, behind.there), (0, 4), (170, 175));
    c.answers(&mut s, 1, 20, (0, 4), (180, 185));
    c.gets(&mut s, 10, (0, 4), (190, 195));
    s
}

/// The request waits for the back end, whichever request the server serves meanwhile.
pub fn asked_a_back_end() -> Story {
    asks_a_back_end(true)
}

/// The server still works for the request when the back end's answer comes.
pub fn asked_ahead() -> Story {
    asks_a_back_end(false)
}

/// A connection for one request, established at 103 and accepted at 145.
pub fn accepted() -> Story {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.opened(0, 10, 72, (100, 105), None);
    c.asks_through(&mut s, 72, 10, (0, 4), (107, 112));
    s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    s.opened(1, 20, 73, (140, 145), Some(103));
    c.hears_through(&mut s, 73, 20, (0, 4), (150, 155));
    s.wake(165, 1, 20, 10, SENT);
    c.answers(&mut s, 1, 20, (0, 4), (160, 170));
    s.switch(168, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (115, 175));
    s.closed(0, 10, 72, (178, 182));
    s
}

/// The server wakes its helper through a condition variable, and the helper wakes the server through another.
pub fn handed_on() -> Story {
    let mut s = Story::new();
    s.switch(20, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(60, 2, (21, IDLE), (FUTEX, 50), condition(0x100));
    asked(&mut s);
    s.wake(118, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (115, 120), 1);
    s.switch(122, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (50, 125), 0);
    s.sleep_in(130, 1, (20, IDLE), (FUTEX, 128), condition(0x204));
    s.wake(155, 2, 21, 20, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (150, 158), 1);
    s.switch(160, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (128, 163), 0);
    answered(&mut s);
    s
}

/// The server sleeps in nanosleep() while it works for the request.
pub fn napped() -> Story {
    let mut s = Story::new();
    asked(&mut s);
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (NANOSLEEP, 117), None);
    s.wake(140, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(143, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, NANOSLEEP, (117, 146), 0);
    answered(&mut s);
    s
}

/// The server sleeps in poll(), and is back on its CPU without a recorded wake-up.
pub fn unseen() -> Story {
    let mut s = Story::new();
    asked(&mut s);
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 117), None);
    s.switch(143, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (117, 146), 1);
    answered(&mut s);
    s
}

/// The server writes to a terminal that it also reads: the bytes pass through a kernel worker.
pub fn queued_for_a_worker() -> Story {
    let mut s = Story::new();
    s.at(0, 0, What::Task { tid: 40, tgid: 40, kthread: true, comm: "kworker".into() });
    let terminal = Object { dev: 24, ino: 3, type_bits: TYPE_CHAR };
    s.switch(20, 3, IDLE, 40, RUNNABLE);
    asked(&mut s);
    s.write(1, 20, terminal, (0, 4), (120, 125));
    s.sleep_in(130, 1, (20, IDLE), (READ, 128), terminal);
    s.wake(150, 3, 40, 20, 0);
    s.at(152, 3, What::Work { tid: 40, queuer: 20, queued_ns: 123, started_ns: 140 });
    s.switch(155, 1, IDLE, 20, RUNNABLE);
    s.read(1, 20, terminal, (0, 4), (128, 158));
    answered(&mut s);
    s
}

/// Client 10 starts a program, thread 30, which runs from 109 on.
fn started(s: &mut Story) {
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, 90, IDLE, ASLEEP);
    s.makes_process(30);
    s.exec(120, 1, 30, "true");
    s.call(1, 30, EXECVE, (114, 123), 0);
}

/// The program has ended before the client waits for it.
pub fn collected_late() -> Story {
    let mut s = Story::new();
    started(&mut s);
    s.exit(135, 1, 30, 130);
    s.switch_in(140, 1, 30, IDLE, DEAD, (EXIT_GROUP, 130), None);
    s.call(0, 10, WAIT4, (155, 160), 30);
    s
}

/// The program's second thread, 31, calls exit_group(). Its first thread ends with it, in the middle of a computation.
pub fn ended_by_another_thread() -> Story {
    let mut s = Story::new();
    started(&mut s);
    let flags = TASK_TRACED | TASK_THREAD;
    let (parent, child, child_tgid, enter_ns, comm) = (30, 31, 30, 125, "true".into());
    s.at(127, 1, What::Fork { parent, child, child_tgid, flags, enter_ns, comm });
    s.wake(128, 1, 30, 31, WAKING_NEW | WAKING_IN_SYSCALL);
    s.call(1, 30, CLONE, (125, 129), 31);
    s.switch(130, 2, IDLE, 31, RUNNABLE);
    s.call(2, 31, CLONE, (127, 132), 0);
    s.switch_in(118, 0, 10, IDLE, ASLEEP, (WAIT4, 115), None);
    s.exit(155, 2, 31, 150);
    if let Some(What::Exit { tgid, .. }) = s.events.last_mut().map(|event| &mut event.what) {
        *tgid = 30;
    }
    s.switch_in(157, 2, 31, IDLE, DEAD, (EXIT_GROUP, 150), None);
    s.at(160, 1, What::Exit { tid: 30, tgid: 30, code: 0, traced: true });
    s.wake(163, 1, 30, 10, 0);
    s.switch(165, 0, IDLE, 10, RUNNABLE);
    s.switch(166, 1, 30, IDLE, DEAD);
    s.call(0, 10, WAIT4, (115, 170), 30);
    s
}

/// One thread of the server reads, another answers. The answering thread answers another request first, and then this
/// one without a sleep in between.
pub fn taken_from_memory() -> Story {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX));
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 21), (3, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.moved(3, 30, (SENDTO, other.there, other.back), (0, 4), (80, 85));
    s.sleep_in(88, 3, (30, IDLE), (RECVFROM, 87), other.sockets[0]);
    other.hears(&mut s, 1, 20, (0, 4), (90, 95));
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(108, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.sleep_in(120, 1, (20, IDLE), (RECVFROM, 118), other.sockets[1]);
    s.wake(145, 2, 21, 30, WAKING_IN_SYSCALL);
    other.answers(&mut s, 2, 21, (0, 4), (140, 150));
    s.switch(148, 3, IDLE, 30, RUNNABLE);
    s.moved(3, 30, (RECVFROM, other.back, other.there), (0, 4), (87, 152));
    s.wake(175, 2, 21, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 2, 21, (0, 4), (170, 180));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 185));
    s
}

/// One thread reads two requests, and answers this one last.
pub fn served_in_turn() -> Story {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX));
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (80, 85));
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(108, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    other.hears(&mut s, 1, 20, (0, 4), (100, 105));
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    other.answers(&mut s, 1, 20, (0, 4), (130, 140));
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (145, 150));
    s.wake(175, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (170, 180));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 185));
    s
}

/// An event loop reads two requests. It answers the later one at once, and the other after a poll that times out.
pub fn rested_for_a_timer() -> Story {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX));
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (125, 130));
    s.wake(128, 2, 30, 20, WAKING_IN_SYSCALL);
    s.sleep_in(132, 2, (30, IDLE), (RECVFROM, 131), other.sockets[0]);
    s.switch(133, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (118, 134), 1);
    other.hears(&mut s, 1, 20, (0, 4), (135, 137));
    s.wake(141, 1, 20, 30, WAKING_IN_SYSCALL);
    other.answers(&mut s, 1, 20, (0, 4), (139, 142));
    s.switch(143, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (131, 146));
    s.switch_in(145, 1, 20, IDLE, ASLEEP, (POLL, 144), None);
    s.wake(160, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(162, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (144, 164), 0);
    s.wake(175, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (170, 176));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 185));
    s
}

/// One thread of the server reads two requests and wakes a helper. The helper works until 140, and then wakes one
/// thread for each request: nothing shows which request it worked for. The other request is answered first.
pub fn claimed_by_another() -> Story {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX));
    for (tid, tgid, comm) in [(22, 20, "worker"), (23, 20, "worker2"), (30, 30, "other")] {
        s.task(tid, tgid, comm);
    }
    for (cpu, tid) in [(0, 10), (1, 20), (2, 21), (3, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.sleep_in(60, 2, (21, 22), (FUTEX, 50), condition(0x100));
    s.sleep_in(70, 2, (22, 23), (FUTEX, 65), condition(0x204));
    s.sleep_in(80, 2, (23, IDLE), (FUTEX, 75), condition(0x304));
    s.moved(3, 30, (SENDTO, other.there, other.back), (0, 4), (90, 95));
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(108, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    other.hears(&mut s, 1, 20, (0, 4), (100, 105));
    c.hears(&mut s, 1, 20, (0, 4), (106, 112));
    s.wake(115, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (114, 117), 1);
    s.switch(118, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (50, 120), 0);
    s.wake(142, 2, 21, 22, WAKING_IN_SYSCALL);
    s.wake(145, 2, 21, 23, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (140, 148), 2);
    s.switch(147, 4, IDLE, 22, RUNNABLE);
    s.call(4, 22, FUTEX, (65, 149), 0);
    other.answers(&mut s, 4, 22, (0, 4), (152, 158));
    s.moved(3, 30, (RECVFROM, other.back, other.there), (0, 4), (159, 162));
    s.switch(165, 5, IDLE, 23, RUNNABLE);
    s.call(5, 23, FUTEX, (75, 167), 0);
    s.wake(175, 5, 23, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 5, 23, (0, 4), (170, 180));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 185));
    s
}

/// The request passes through a device, and the server reads it as it arrives.
pub fn through_a_device() -> Story {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    for received_ns in [None, Some(140)] {
        let packet = Packet { received_ns, ..Packet::new((0, 4), (106, 120)) };
        s.at(received_ns.unwrap_or(packet.sent_ns), 2, What::Packet { object: c.there, packet });
    }
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.sleep_in(125, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (140, 145));
    s.wake(165, 1, 20, 10, SENT);
    c.answers(&mut s, 1, 20, (0, 4), (160, 170));
    s.switch(168, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (115, 175));
    s
}

/// The server wakes its helper, which runs in the server's place on the same CPU until it has nothing left to do.
pub fn helped_in_its_place() -> Story {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 21, RUNNABLE);
    s.sleep_in(24, 1, (21, 20), (FUTEX, 22), condition(0x100));
    c.asks(&mut s, 10, (0, 4), (100, 106));
    s.sleep_in(108, 0, (10, IDLE), (RECVFROM, 107), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.wake(120, 1, 20, 21, 0);
    s.switch_in(122, 1, 20, 21, RUNNABLE, (FUTEX, 118), None);
    s.call(1, 21, FUTEX, (22, 125), 0);
    s.sleep_in(150, 1, (21, 20), (FUTEX, 148), condition(0x100));
    s.call(1, 20, FUTEX, (118, 152), 1);
    s.wake(165, 1, 20, 10, SENT);
    s.switch(167, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 1, 20, (0, 4), (160, 170));
    c.gets(&mut s, 10, (0, 4), (107, 175));
    s
}

/// How a server with one connection to a back end (thread 40, CPU 3) comes to ask for a request only when it has the
/// answer to another client's (thread 30, CPU 2).
#[derive(Clone, Copy, PartialEq)]
pub enum Until {
    /// The connection was in use for the other client.
    Free,
    /// It was idle, and the other client's next request ends the rest.
    Another,
    /// It was in use for the other client, but the server had another one that was idle.
    Spare,
    /// It was in use for the other client, but the rest ended as its time was over.
    Time,
    /// It was in use for the other client, but the server's helper (thread 21) ended the rest.
    Helper,
    /// A question was asked on it while another was under way: nobody has to wait for it.
    Shared,
}

/// A thread asks the back end (thread 40, CPU 3) on a connection, and has the answer eight nanoseconds later.
pub fn used(s: &mut Story, on: &Connection, (cpu, tid): (u32, u32), at_ns: u64) {
    s.moved(cpu, tid, (SENDTO, on.there, on.back), (0, 4), (at_ns, at_ns + 2));
    on.hears(s, 3, 40, (0, 4), (at_ns + 3, at_ns + 4));
    on.answers(s, 3, 40, (0, 4), (at_ns + 5, at_ns + 6));
    s.moved(cpu, tid, (RECVFROM, on.back, on.there), (0, 4), (at_ns + 7, at_ns + 8));
}

/// The server has the request at 115, rests from 120 to 143, and asks for it at 163.
pub fn waited(until: Until) -> Story {
    let mut s = Story::new();
    let [c, other, behind, third] = [1, 2, 3, 4].map(|at| Connection::numbered(at, TYPE_UNIX));
    s.task(30, 30, "other");
    s.task(40, 40, "back end");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 40)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.switch(20, 4, IDLE, 21, RUNNABLE);
    s.sleep_in(30, 4, (21, IDLE), (FUTEX, 25), condition(0x100));
    let asks = |s: &mut Story, at: u64, span| {
        s.moved(1, 20, (SENDTO, behind.there, behind.back), (at, 4), span);
    };
    let gets = |s: &mut Story, at: u64, span| {
        s.moved(1, 20, (RECVFROM, behind.back, behind.there), (at, 4), span);
    };
    if until == Until::Spare {
        let spare = Connection::numbered(5, TYPE_UNIX);
        used(&mut s, &spare, (1, 20), 30);
    }
    if until != Until::Another {
        s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (40, 44));
        other.hears(&mut s, 1, 20, (0, 4), (50, 53));
        asks(&mut s, 0, (55, 58));
        behind.hears(&mut s, 3, 40, (0, 4), (60, 63));
    }
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.sleep_in(107, 0, (10, IDLE), (RECVFROM, 106), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    let mut asked = 4;
    if until == Until::Shared {
        s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
        s.moved(2, 30, (SENDTO, third.there, third.back), (0, 4), (121, 124));
        s.wake(123, 2, 30, 20, WAKING_IN_SYSCALL);
        s.switch(125, 1, IDLE, 20, RUNNABLE);
        s.timed(1, 20, (118, 126), 1);
        third.hears(&mut s, 1, 20, (0, 4), (127, 129));
        asks(&mut s, 4, (130, 132));
        behind.hears(&mut s, 3, 40, (4, 4), (133, 134));
        s.switch_in(136, 1, 20, IDLE, ASLEEP, (POLL, 134), None);
        asked = 8;
    } else {
        s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
    }
    match until {
        Until::Another => s.wake(143, 2, 30, 20, WAKING_IN_SYSCALL),
        Until::Time => s.wake(143, 1, IDLE, 20, WAKING_HARDIRQ),
        Until::Helper => {
            s.switch(138, 4, IDLE, 21, RUNNABLE);
            s.call(4, 21, FUTEX, (25, 140), 0);
            s.wake(143, 4, 21, 20, 0);
        }
        _ => s.wake(143, 3, 40, 20, WAKING_IN_SYSCALL),
    }
    match until {
        Until::Another => s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (140, 146)),
        _ => behind.answers(&mut s, 3, 40, (0, 4), (140, 146)),
    }
    s.switch(148, 1, IDLE, 20, RUNNABLE);
    let found = i64::from(until != Until::Time);
    s.timed(1, 20, (if asked == 8 { 134 } else { 118 }, 150), found);
    match until {
        Until::Another => other.hears(&mut s, 1, 20, (0, 4), (152, 155)),
        _ => gets(&mut s, 0, (152, 155)),
    }
    other.answers(&mut s, 1, 20, (0, 4), (157, 160));
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (161, 164));
    let asked = if until == Until::Another { 0 } else { asked };
    asks(&mut s, asked, (163, 167));
    if until == Until::Shared {
        behind.answers(&mut s, 3, 40, (4, 4), (168, 169));
        gets(&mut s, 4, (170, 172));
        third.answers(&mut s, 1, 20, (0, 4), (173, 175));
    }
    behind.hears(&mut s, 3, 40, (asked, 4), (176, 179));
    s.switch_in(180, 1, 20, IDLE, ASLEEP, (POLL, 177), None);
    s.wake(190, 3, 40, 20, WAKING_IN_SYSCALL);
    behind.answers(&mut s, 3, 40, (asked, 4), (186, 192));
    s.switch(194, 1, IDLE, 20, RUNNABLE);
    s.timed(1, 20, (177, 196), 1);
    gets(&mut s, asked, (198, 201));
    s.wake(206, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (203, 208));
    s.switch(210, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (106, 215));
    s
}

/// The server's connection to its back end is in use for another client when the request comes.
pub fn waited_for_a_connection() -> Story {
    waited(Until::Free)
}
