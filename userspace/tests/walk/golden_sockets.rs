//! Small traces of sockets with answers derived by hand. The client (thread 10, CPU 0) sends a request, the server
//! (thread 20) answers.

use rpcprobe::engine::classify::syscall::SOFTIRQ_NET_RX;
use rpcprobe::engine::event::{Packet, What, TYPE_TCP, TYPE_UDP, TYPE_UNIX};
use rpcprobe::engine::send_limit::SendLimit;
use rpcprobe::model::{Category, Evidence, Request, Segment};
use rpcprobe::records::{WAKING_HARDIRQ, WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

#[test]
fn over_loopback_the_senders_softirq_is_the_receiving_stack() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
    // The packet is received inside the client's send, from 103 on.
    s.wake(105, 0, 10, 20, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.irq(0, 10, false, SOFTIRQ_NET_RX, (103, 107));
    c.asks(&mut s, 10, (5000, 4), (100, 110));
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    c.hears(&mut s, 1, 20, (5000, 4), (40, 113));
    s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    s.wake(135, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.irq(1, 20, false, SOFTIRQ_NET_RX, (133, 137));
    c.answers(&mut s, 1, 20, (9000, 4), (130, 140));
    s.switch(138, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (9000, 4), (115, 142));
    let answer = "
        100-103 client kernel.tcp
        103-105 client wire.stack
        105-109 server runqueue.wakeup by idle
        109-113 server kernel.tcp
        113-130 server user
        130-133 server kernel.tcp
        133-135 server wire.stack
        135-138 client runqueue.wakeup by idle
        138-142 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

/// A softirq that hits the idle task of CPU 1 delivers the request at 125.
fn delivered_late() -> Story {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.wake(125, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(129, 1, IDLE, 20, RUNNABLE);
    c.hears(&mut s, 1, 20, (0, 4), (40, 133));
    s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    s.wake(145, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (140, 150));
    s.switch(148, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (115, 152));
    s
}

#[test]
fn a_segment_delivered_after_the_send_was_on_the_wire() {
    let s = delivered_late();
    let answer = "
        100-110 client kernel.tcp
        110-125 server wire.stack
        125-129 server runqueue.wakeup by idle
        129-133 server kernel.tcp
        133-140 server user
        140-145 server kernel.tcp
        145-148 client runqueue.wakeup by idle
        148-152 client kernel.tcp
    ";
    assert_eq!(s.only().replace(" (asleep)", ""), expected(answer));
}

/// What a request of four bytes waits for on the wire, if `unsent` of its write had not been sent.
fn on_the_wire(unsent: SendLimit) -> Option<String> {
    let mut events = delivered_late().events();
    for event in &mut events {
        if let What::Call { call, .. } = &mut event.what {
            call.io.iter_mut().filter(|io| io.is_write).for_each(|io| io.unsent = unsent);
        }
    }
    let answers = explain(2, 0, &events, 0.0);
    let segments = answers.iter().flat_map(|(_, segments)| segments);
    let mut wire = segments.filter(|segment| segment.start_ns == 110);
    wire.next().and_then(|segment| segment.detail.clone())
}

#[test]
fn bytes_that_were_held_back_say_why() {
    let small = "not sent: a small packet, until the one before is acknowledged (Nagle)";
    assert_eq!(on_the_wire(SendLimit::from_record(3 | 4 << 8)).as_deref(), Some(small));
    assert_eq!(on_the_wire(SendLimit::from_record(3 | 1 << 8)).as_deref(), Some(small));
    // Rounded down to nothing, or no limit at all: nothing is known.
    for unsent in [SendLimit::from_record(1), SendLimit::default()] {
        assert_eq!(on_the_wire(unsent).as_deref(), Some("sent, not yet delivered"));
    }
}

/// Both threads are on CPU 0. The server, which has been reading since `reads_ns`, is off the CPU, as `leaves` says.
/// The client sends its request meanwhile, and the server gets the CPU only when the client sleeps.
fn asked_before_it_has_a_cpu(reads_ns: u64, leaves: impl FnOnce(&mut Story, &Connection)) -> Story {
    let mut s = Story::new();
    let c = Connection::new(TYPE_UNIX);
    s.switch(10, 0, IDLE, 20, RUNNABLE);
    leaves(&mut s, &c);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.sleep_in(120, 0, (10, 20), (RECVFROM, 115), c.sockets[0]);
    c.hears(&mut s, 0, 20, (0, 4), (reads_ns, 125));
    s.wake(135, 0, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 0, 20, (0, 4), (130, 140));
    s.sleep_in(150, 0, (20, 10), (RECVFROM, 145), c.sockets[1]);
    c.gets(&mut s, 10, (0, 4), (115, 155));
    s
}

/// From the end of the write on, the server waits for the CPU, in the category `waits`.
fn waits_since_it_was_asked(waits: &str) -> String {
    expected(&format!(
        "
        100-110 client kernel.unix
        110-120 server {waits} by client/10
        120-125 server kernel.unix
        125-130 server user
        130-135 server kernel.unix
        135-150 client runqueue.wakeup by server/20
        150-155 client kernel.unix
    "
    ))
}

#[test]
fn a_reader_woken_in_vain_that_gets_its_message_before_a_cpu() {
    // The client reads the last answer, which makes room and so wakes the server.
    let s = asked_before_it_has_a_cpu(40, |s, c| {
        s.sleep_in(45, 0, (20, 10), (RECVFROM, 40), c.sockets[1]);
        s.wake(60, 0, 10, 20, WAKING_IN_SYSCALL);
        s.call(0, 10, RECVFROM, (50, 70), -11);
    });
    assert_eq!(s.only(), waits_since_it_was_asked("runqueue.wakeup"));
}

#[test]
fn a_reader_preempted_before_it_sleeps_gets_its_message_meanwhile() {
    let s = asked_before_it_has_a_cpu(60, |s, c| {
        s.switch_in(80, 0, 20, 10, RUNNABLE, (RECVFROM, 60), Some(c.sockets[1]));
    });
    assert_eq!(s.only(), waits_since_it_was_asked("runqueue.preempted"));
}

/// The same for the client: noise takes CPU 0 from it while the server, on CPU 1, works and answers.
#[test]
fn so_does_a_client_that_waits_for_its_answer() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_UNIX);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
    s.wake(105, 0, 10, 20, WAKING_IN_SYSCALL);
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    c.hears(&mut s, 1, 20, (0, 4), (40, 113));
    s.switch_in(117, 0, 10, 90, RUNNABLE, (RECVFROM, 115), Some(c.sockets[0]));
    c.answers(&mut s, 1, 20, (0, 4), (160, 165));
    s.switch(180, 0, 90, 10, ASLEEP);
    c.gets(&mut s, 10, (0, 4), (115, 185));
    let answer = "
        100-105 client kernel.unix
        105-109 server runqueue.wakeup by idle
        109-113 server kernel.unix
        113-160 server user
        160-165 server kernel.unix
        165-180 client runqueue.preempted by noise/90
        180-185 client kernel.unix
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_full_buffer_does_not_lead_into_the_writers_later_sleep() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_UNIX);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    // The client fills the buffer by 110 and sleeps inside its send. The server is busy until it reads at 150: the
    // first bytes were there by 110.
    s.sleep_in(110, 0, (10, IDLE), (SENDTO, 100), c.sockets[0]);
    s.wake(155, 1, 20, 10, WAKING_IN_SYSCALL);
    c.hears(&mut s, 1, 20, (0, 4), (150, 158));
    s.switch(159, 0, IDLE, 10, RUNNABLE);
    s.sleep_in(163, 1, (20, IDLE), (RECVFROM, 161), c.sockets[1]);
    s.wake(165, 0, 10, 20, WAKING_IN_SYSCALL);
    c.asks(&mut s, 10, (0, 8), (100, 170));
    s.switch(168, 1, IDLE, 20, RUNNABLE);
    c.hears(&mut s, 1, 20, (4, 4), (161, 172));
    s.sleep_in(175, 0, (10, IDLE), (RECVFROM, 173), c.sockets[0]);
    s.wake(185, 1, 20, 10, WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (180, 190));
    s.switch(188, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (173, 192));
    let answer = "
        100-110 client kernel.unix
        110-150 server queue.socket (user)
        150-155 server kernel.unix
        155-159 client runqueue.wakeup by idle
        159-165 client kernel.unix
        165-168 server runqueue.wakeup by idle
        168-172 server kernel.unix
        172-180 server user
        180-185 server kernel.unix
        185-188 client runqueue.wakeup by idle
        188-192 client kernel.unix
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_worker_that_takes_the_request_without_sleeping() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.task(30, 30, "other");
    // Thread 20 receives, thread 21 works and answers. Another client has sent a request long before, which 21 works on
    // when our request comes.
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(30, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (31, 33));
    other.hears(&mut s, 1, 20, (0, 4), (34, 36));
    s.sleep_in(38, 2, (30, 21), (RECVFROM, 37), other.sockets[0]);
    s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
    s.wake(105, 0, 10, 20, WAKING_IN_SYSCALL);
    s.switch(109, 1, IDLE, 20, RUNNABLE);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    c.hears(&mut s, 1, 20, (0, 4), (40, 113));
    // The request is put into a queue in memory: no thread is woken.
    s.sleep_in(116, 1, (20, IDLE), (RECVFROM, 115), c.sockets[1]);
    s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    other.answers(&mut s, 2, 21, (0, 4), (150, 160));
    s.wake(185, 2, 21, 10, WAKING_IN_SYSCALL);
    s.switch(188, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 2, 21, (0, 4), (180, 190));
    c.gets(&mut s, 10, (0, 4), (115, 195));
    let answer = "
        100-105 client kernel.tcp
        105-109 server runqueue.wakeup by idle
        109-113 server kernel.tcp
        113-160 helper queue.app (user, kernel.tcp)
        160-180 helper user
        180-185 helper kernel.tcp
        185-188 client runqueue.wakeup by idle
        188-195 client kernel.tcp
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_request_read_before_another_was_answered_waits_inside() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_UNIX), Connection::numbered(2, TYPE_UNIX));
    s.task(30, 30, "other");
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.switch(30, 2, IDLE, 30, RUNNABLE);
    // The server reads both requests, ours last, and answers the other first.
    s.moved(2, 30, (SENDTO, other.there, other.back), (0, 4), (50, 60));
    s.sleep_in(71, 2, (30, IDLE), (RECVFROM, 70), other.sockets[0]);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.sleep_in(112, 0, (10, IDLE), (RECVFROM, 111), c.sockets[0]);
    other.hears(&mut s, 1, 20, (0, 4), (115, 118));
    c.hears(&mut s, 1, 20, (0, 4), (120, 125));
    other.answers(&mut s, 1, 20, (0, 4), (140, 150));
    s.wake(175, 1, 20, 10, WAKING_IN_SYSCALL);
    s.switch(178, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 1, 20, (0, 4), (170, 180));
    c.gets(&mut s, 10, (0, 4), (111, 185));
    let answer = "
        100-110 client kernel.unix
        110-120 server queue.socket (user, kernel.unix)
        120-125 server kernel.unix
        125-140 server user shared by 2
         140-150 server queue.app (kernel.unix: sendto unix)
        150-170 server user
        170-175 server kernel.unix
        175-178 client runqueue.wakeup by idle
        178-185 client kernel.unix
    ";
    assert_eq!(s.only(), expected(answer));
}

#[test]
fn a_poll_is_for_what_became_ready() {
    // In the middle of its work the server polls. A packet of an untraced peer ends this, in a softirq that hits the
    // idle task. Then the server polls again, until the timeout.
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    s.sleep_in(112, 0, (10, IDLE), (RECVFROM, 111), c.sockets[0]);
    c.hears(&mut s, 1, 20, (0, 4), (110, 113));
    let (remote, to_remote) = (connection(77, TYPE_TCP), connection(78, TYPE_TCP));
    s.moved(1, 20, (SENDTO, to_remote, remote), (0, 9), (114, 115));
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 115), None);
    s.wake(130, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(131, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (115, 132), 1);
    s.moved(1, 20, (RECVFROM, remote, to_remote), (0, 9), (133, 135));
    s.switch_in(140, 1, 20, IDLE, ASLEEP, (POLL, 136), None);
    s.wake(150, 1, IDLE, 20, WAKING_HARDIRQ);
    s.switch(151, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (136, 152), 0);
    s.wake(165, 1, 20, 10, WAKING_IN_SYSCALL);
    s.switch(168, 0, IDLE, 10, RUNNABLE);
    c.answers(&mut s, 1, 20, (0, 4), (160, 170));
    c.gets(&mut s, 10, (0, 4), (111, 175));
    let answer = "
        100-110 client kernel.tcp
        110-113 server kernel.tcp
        113-114 server user
        114-115 server kernel.tcp
        115-120 server kernel.poll
        120-130 server idle.peer
        130-131 server runqueue.wakeup by idle
        131-132 server kernel.poll
        132-133 server user
        133-135 server kernel.tcp
        135-136 server user
        136-140 server kernel.poll
        140-150 server sleep
        150-151 server runqueue.wakeup by idle
        151-152 server kernel.poll
        152-160 server user
        160-165 server kernel.tcp
        165-168 client runqueue.wakeup by idle
        168-175 client kernel.tcp
    ";
    let mut requests = s.requests();
    requests.retain(|(request, _)| request.start_ns == 100);
    let segments = requests.remove(0).1;
    assert_eq!(table(&segments), expected(answer));
    let detail = segments.iter().find(|segment| segment.start_ns == 120).unwrap().detail.as_deref();
    assert_eq!(detail, Some("asleep in poll until tcp was ready"));
}

#[test]
fn one_end_alone_may_send_its_records_in_any_order() {
    // A client that read before it sent, and a server whose byte numbers go backwards: whatever the numbers are, no
    // arithmetic overflows, and the segments tile the requests.
    let mut s = Story::new();
    let (client, server) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    client.asks(&mut s, 10, (0, 4), (30, 35));
    client.gets(&mut s, 10, (50, 4), (36, 40));
    client.asks(&mut s, 10, (4, 4), (60, 70));
    client.gets(&mut s, 10, (10, 4), (50, 55));
    server.hears(&mut s, 1, 20, (100, 4), (40, 45));
    server.hears(&mut s, 1, 20, (50, 4), (46, 50));
    server.answers(&mut s, 1, 20, (100, 4), (51, 55));
    server.answers(&mut s, 1, 20, (50, 4), (56, 60));
    let found = s.requests();
    assert!(found.iter().all(|(request, _)| request.latency_ns <= 70), "{found:?}");
    let served = found.iter().find(|(request, _)| request.client.is_none()).expect("the server's");
    assert_eq!((served.0.request_bytes, served.0.response_bytes), (Some(0), Some(0)));
}

#[test]
fn datagrams_of_two_clients_moved_by_one_call_each_way() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_UDP), Connection::numbered(2, TYPE_UDP));
    s.task(30, 30, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    // Both clients send while the server is busy. It reads both requests, ours first, and answers both, ours last.
    c.asks(&mut s, 10, (40, 4), (100, 110));
    s.sleep_in(112, 0, (10, IDLE), (RECVFROM, 111), c.sockets[0]);
    s.moved(2, 30, (SENDTO, other.there, other.back), (7, 1), (105, 108));
    s.sleep_in(110, 2, (30, IDLE), (RECVFROM, 109), other.sockets[0]);
    s.moving((122, 1), 20, (false, c.there, c.back), (40, 4));
    other.hears(&mut s, 1, 20, (7, 1), (120, 125));
    s.wake(142, 1, 20, 30, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    s.moving((143, 1), 20, (true, other.back, other.there), (0, 1));
    s.wake(146, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (90, 4), (140, 150));
    s.switch(148, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (90, 4), (111, 155));
    s.switch(149, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (RECVFROM, other.back, other.there), (0, 1), (109, 153));
    let requests = s.requests();
    assert_eq!(requests.len(), 2, "{requests:#?}");
    let of = |tid| {
        let ours = |(request, _): &&(Request, Vec<Segment>)| {
            request.client.as_ref().is_some_and(|client| client.tid == tid)
        };
        table(&requests.iter().find(ours).expect("a request").1)
    };
    let answer = "
        100-110 client kernel.udp
        110-120 server queue.socket (user)
        120-125 server kernel.udp shared by 2
        125-140 server user shared by 2
        140-146 server kernel.udp shared by 2
        146-148 client runqueue.wakeup by idle
        148-155 client kernel.udp
    ";
    assert_eq!(of(10), expected(answer));
    let answer = "
        105-108 other kernel.udp
        108-120 server queue.socket (user)
        120-125 server kernel.udp shared by 2
        125-140 server user shared by 2
        140-142 server kernel.udp shared by 2
        142-149 other runqueue.wakeup by idle
        149-153 other kernel.udp
    ";
    assert_eq!(of(30), expected(answer));
}

/// A request of eight bytes, written in `[100, 112)`, in these packets. The server is woken for it at `woken_ns`, has
/// it 6 ns later, and the client has the answer 22 ns after `woken_ns`.
fn in_packets(packets: &[Packet], woken_ns: u64) -> Story {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(20, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
    c.asks(&mut s, 10, (0, 8), (100, 112));
    s.sleep_in(116, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    for packet in packets {
        let sent = Packet { received_ns: None, ..*packet };
        s.at(sent.sent_ns, 0, What::Packet { object: c.there, packet: sent });
        let received_ns = packet.received_ns.expect("on this machine");
        s.at(received_ns, 0, What::Packet { object: c.there, packet: *packet });
    }
    s.wake(woken_ns, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(woken_ns + 2, 1, IDLE, 20, RUNNABLE);
    c.hears(&mut s, 1, 20, (0, 8), (40, woken_ns + 6));
    s.wake(woken_ns + 15, 1, 20, 10, WAKING_SOFTIRQ | WAKING_IN_SYSCALL);
    c.answers(&mut s, 1, 20, (0, 4), (woken_ns + 10, woken_ns + 20));
    s.switch(woken_ns + 18, 0, IDLE, 10, RUNNABLE);
    c.gets(&mut s, 10, (0, 4), (115, woken_ns + 22));
    s
}

/// A packet of four bytes, with the times at which it was queued, sent and received.
fn four_bytes(from: u64, [queued_ns, sent_ns, received_ns]: [u64; 3]) -> Packet {
    let sent = Packet::new((from, from + 4), (queued_ns, sent_ns));
    Packet { received_ns: Some(received_ns), ..sent }
}

/// The request's way on the wire, if its two halves were queued, sent and received at these times.
fn in_two_packets(first: [u64; 3], second: [u64; 3], woken_ns: u64) -> String {
    let whole = in_packets(&[four_bytes(0, first), four_bytes(4, second)], woken_ns).only();
    let lines = whole.lines().take_while(|line| !line.contains("runqueue"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// To a server behind a router. The first packet is recorded at both devices. Some kernels lose the second packet's
/// record at the router's device: then it is not measured since when the packet was in the receive stack.
#[test]
fn a_packet_that_passed_a_device_unseen_is_not_told_to_be_in_the_receive_stack() {
    let routed = Packet { forwarded: true, device: 2, ..four_bytes(0, [104, 105, 106]) };
    let packets = [four_bytes(0, [102, 103, 104]), routed, four_bytes(4, [108, 109, 113])];
    let requests = in_packets(&packets, 140).requests();
    let told: Vec<_> = requests[0].1.iter().filter(|s| s.category == Category::WireStack).collect();
    let [stack] = told[..] else { panic!("{told:#?}") };
    assert_eq!((stack.start_ns, stack.duration_ns), (113, 27), "{stack:?}");
    assert_eq!(stack.evidence, Evidence::Modelled);
    assert_eq!(stack.detail.as_deref(), Some("passes a device, unseen"));
}

/// The second packet, with the last byte, stays in the socket until the first has left the queue, and then waits for
/// longer than it came late: the device was busy with the first. So the device had the message from 108 on, whatever
/// its sender still did.
#[test]
fn a_message_waits_in_its_devices_queue_and_on_the_link() {
    let way = "
        100-108 client kernel.tcp
        108-125 server wire.qdisc
        125-128 server wire.link
        128-130 server wire.qdisc
        130-140 server wire.qdisc
        140-147 server wire.link
        147-150 server wire.stack
    ";
    assert_eq!(in_two_packets([108, 125, 128], [130, 140, 147], 150), expected(way));
}

/// The second packet passes the queue at once, as a device may let a little more than its rate through. It came after
/// the first had left. This was not the sender's doing, as long as the first had waited for longer.
#[test]
fn between_two_packets_of_a_busy_link_is_tcps_time() {
    let way = "
        100-108 client kernel.tcp
        108-140 server wire.qdisc
        140-141 server wire.link
        141-150 server wire.stack
        150-151 server wire.qdisc
        151-155 server wire.link
        155-160 server wire.stack
    ";
    assert_eq!(in_two_packets([108, 140, 141], [150, 151, 155], 160), expected(way));
}

/// Neither packet waits: the sender is the slow part, up to the end of its write.
#[test]
fn a_link_that_is_faster_than_its_sender_is_not_what_was_waited_for() {
    let way = "
        100-112 client kernel.tcp
        112-113 server wire.link
        113-120 server wire.stack
    ";
    assert_eq!(in_two_packets([102, 103, 104], [111, 112, 113], 120), expected(way));
}
