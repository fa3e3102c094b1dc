//! Small traces of errors that generated traces (see [`super::load`]) have found, with answers derived by hand.

use rpcprobe::engine::event::{Packet, What, TYPE_TCP, TYPE_UNIX};
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

/// Bytes `[from, end)` on their way from the client through a device that is idle.
fn packet(s: &mut Story, c: &Connection, (from, end): (u64, u64), sent_ns: u64, received_ns: u64) {
    for (at_ns, received_ns) in [(sent_ns, None), (received_ns, Some(received_ns))] {
        let packet = Packet { received_ns, ..Packet::new((from, end), (sent_ns, sent_ns)) };
        s.at(at_ns, 2, What::Packet { object: c.there, packet });
    }
}

/// The table of the request that began at `start_ns`.
fn began(s: &Story, start_ns: u64) -> String {
    let requests = s.requests();
    let mut ours = requests.iter().filter(|(request, _)| request.start_ns == start_ns);
    table(&ours.next().unwrap_or_else(|| panic!("{requests:#?}")).1)
}

/// A request passes through devices to a connection that is accepted at 145. From its arrival on it waits for the
/// accept, and after that for its reader.
fn through_devices_to_be_accepted(received_ns: u64) -> String {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.opened(0, 10, 72, (50, 55), None);
    packet(&mut s, &c, (0, 4), 108, received_ns);
    c.asks_through(&mut s, 72, 10, (0, 4), (100, 110));
    s.opened(1, 20, 73, (140, 145), Some(53));
    c.hears_through(&mut s, 73, 20, (0, 4), (160, 165));
    s.wake(175, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    c.answers(&mut s, 1, 20, (0, 4), (170, 180));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (115, 185));
    let whole = s.only();
    let lines = whole.lines().take_while(|line| !line.contains("160-165"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn what_is_on_its_way_does_not_wait_to_be_accepted() {
    let before = "
        100-110 client kernel.tcp
        110-130 server wire.link
        130-145 server queue.accept (user, kernel.tcp)
        145-160 server queue.socket (user)
    ";
    assert_eq!(through_devices_to_be_accepted(130), expected(before));
    let after = "
        100-110 client kernel.tcp
        110-150 server wire.link
        150-160 server queue.socket (user)
    ";
    assert_eq!(through_devices_to_be_accepted(150), expected(after));
}

/// The device's queue drops a request at 108, as netem does with loss, and TCP hands it to the device again at 140. In
/// the second case, the device sent the packet and dropped it later, so the first sending was recorded.
#[test]
fn what_is_taken_for_lost_says_so_until_it_is_sent_again() {
    for first_sent_ns in [None, Some(109)] {
        let mut s = Story::new();
        let c = Connection::new(TYPE_TCP);
        s.switch(10, 0, IDLE, 10, RUNNABLE);
        s.switch(20, 1, IDLE, 20, RUNNABLE);
        s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
        c.asks(&mut s, 10, (0, 4), (100, 110));
        s.sleep_in(116, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
        let mut packet = |queued_ns, sent_ns, received_ns: Option<u64>, again| {
            let first = Packet::new((0, 4), (queued_ns, sent_ns));
            let packet = Packet { received_ns, again, ..first };
            s.at(received_ns.unwrap_or(sent_ns), 0, What::Packet { object: c.there, packet });
        };
        if let Some(sent_ns) = first_sent_ns {
            packet(108, sent_ns, None, false);
        }
        packet(140, 142, None, true);
        packet(140, 142, Some(145), true);
        s.wake(150, 1, IDLE, 20, WAKING_SOFTIRQ);
        s.switch(152, 1, IDLE, 20, RUNNABLE);
        c.hears(&mut s, 1, 20, (0, 4), (40, 156));
        s.wake(165, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
        c.answers(&mut s, 1, 20, (0, 2), (160, 170));
        s.switch(168, 0, IDLE, 10, RUNNABLE);
        c.gets(&mut s, 10, (0, 2), (115, 175));
        let requests = s.requests();
        let of_wire = requests[0].1.iter().filter(|s| s.category.name().starts_with("wire."));
        let told: Vec<_> = of_wire
            .map(|s| (s.start_ns, s.category.name(), s.detail.as_deref().unwrap_or("")))
            .collect();
        let expected = [
            (110, "wire.stack", "taken for lost: TCP sends it again after this"),
            (140, "wire.qdisc", "queued at the sender's device"),
            (142, "wire.link", "under way, sent again"),
            (145, "wire.stack", "receive stack"),
        ];
        assert_eq!(told, expected);
    }
}

/// The client sleeps in its send until there is room. What it had sent before that was received at 140.
#[test]
fn what_a_send_under_way_has_sent_may_still_be_on_the_link() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    packet(&mut s, &c, (0, 8), 106, 140);
    s.sleep_in(110, 0, (10, IDLE), (SENDTO, 100), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 8), (150, 155));
    s.wake(153, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(158, 0, IDLE, 10, RUNNABLE);
    c.asks(&mut s, 10, (0, 8), (100, 162));
    s.sleep_in(166, 0, (10, IDLE), (RECVFROM, 164), c.sockets[0]);
    s.wake(175, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (170, 180));
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (164, 185));
    let answer = "
        100-110 client kernel.tcp
        110-140 server wire.link
        140-150 server queue.socket (user)
        150-155 server kernel.tcp
        155-170 server user
        170-175 server kernel.tcp
        175-178 client runqueue.wakeup by idle
        178-185 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// The server has read two requests. It sleeps while it sends the other's answer, for lack of room. This is no rest:
/// until that answer is sent, this request waits for its turn.
#[test]
fn a_send_that_waits_for_room_is_no_rest() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX));
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (80, 85));
    c.asks(&mut s, 10, (0, 4), (90, 95));
    s.sleep_in(98, 0, (10, IDLE), (RECVFROM, 96), c.sockets[0]);
    other.hears(&mut s, 1, 20, (0, 4), (90, 95));
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.sleep_in(125, 1, (20, IDLE), (SENDTO, 120), other.sockets[1]);
    s.wake(145, 2, 30, 20, WAKING_IN_SYSCALL);
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 4), (140, 148));
    s.switch(150, 1, IDLE, 20, RUNNABLE);
    other.answers(&mut s, 1, 20, (0, 8), (120, 160));
    s.moved(2, 30, (RECVFROM, other.back, other.there), (4, 4), (162, 166));
    s.wake(172, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (170, 175));
    s.switch(174, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (96, 180));
    let answer = "
        90-95 client kernel.unix
        95-100 server queue.socket (user)
        100-105 server kernel.unix
        105-120 server user shared by 2
        120-160 server queue.app (asleep, kernel.unix, on the run queue)
        160-170 server user
        170-172 server kernel.unix
        172-174 client runqueue.wakeup by idle
        174-180 client kernel.unix
    ";
    assert_eq!(began(&s, 90), expected(answer));
}

/// Only the server is traced, over a Unix socket. The thread that reads the request hands it on by a semaphore. What it
/// did before that is the request's work.
#[test]
fn who_reads_of_a_server_alone_works_for_the_request() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_UNIX);
    let semaphore = condition(0x100);
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.switch(10, 2, IDLE, 21, RUNNABLE);
    s.sleep_in(60, 2, (21, IDLE), (FUTEX, 50), semaphore);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.wake(125, 1, 20, 21, WAKING_IN_SYSCALL);
    s.call(1, 20, FUTEX, (120, 130), 1);
    s.switch(128, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (50, 132), 0);
    c.answers(&mut s, 2, 21, (0, 4), (150, 155));
    let answer = "
        100-105 server kernel.unix
        105-120 server user
        120-125 server kernel.futex
        125-128 helper runqueue.wakeup by idle
        128-132 helper kernel.futex
        132-150 helper user
        150-155 helper kernel.unix
    ";
    assert_eq!(s.only(), expected(answer));
}

/// While the client connects, a softirq in its call ends the server's wait in a page fault. The connection is accepted
/// later, so the request waited for the accept from when the connection was established.
#[test]
fn the_end_of_a_page_fault_is_no_connection() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(90, 1, 20, IDLE, DISK);
    s.wake(104, 0, 10, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.switch(106, 1, IDLE, 20, RUNNABLE);
    s.opened(0, 10, 72, (100, 112), None);
    c.asks_through(&mut s, 72, 10, (0, 4), (115, 120));
    s.sleep_in(125, 0, (10, IDLE), (RECVFROM, 122), c.sockets[0]);
    s.opened(1, 20, 73, (140, 145), Some(110));
    c.hears_through(&mut s, 73, 20, (0, 4), (150, 155));
    s.wake(165, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (160, 170));
    s.switch(168, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (122, 175));
    s.closed(0, 10, 72, (178, 182));
    let answer = "
        100-110 client kernel.tcp
        110-140 server queue.accept (user)
        140-145 server kernel.tcp
        145-150 server user
        150-155 server kernel.tcp
        155-160 server user
        160-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
        175-178 client user
        178-182 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// Only the server is traced. One thread reads, another answers. The client has the answer, and has sent its next
/// request, before the call that wrote the answer ends.
#[test]
fn an_answer_that_ends_after_the_next_question_is_read() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.switch(10, 2, IDLE, 21, RUNNABLE);
    s.arrives(c.there, 4, 98);
    c.hears(&mut s, 1, 20, (0, 4), (100, 105));
    s.arrives(c.there, 8, 126);
    c.hears(&mut s, 1, 20, (4, 4), (130, 135));
    c.answers(&mut s, 2, 21, (0, 4), (110, 150));
    c.answers(&mut s, 2, 21, (4, 4), (170, 175));
    let requests = s.requests();
    let latencies: Vec<_> =
        requests.iter().map(|(request, _)| (request.start_ns, request.latency_ns)).collect();
    assert_eq!(latencies, [(98, 150 - 98), (126, 175 - 126)]);
}
