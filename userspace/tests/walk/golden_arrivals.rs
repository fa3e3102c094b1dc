//! Small traces with only one end traced, with answers derived by hand. The capture says when bytes came to the traced
//! socket, but not who sent them.

use rpcprobe::engine::event::{Packet, What, TYPE_TCP, TYPE_UDP, TYPE_UNIX, TYPE_UNIX_DGRAM};
use rpcprobe::engine::send_limit::SendLimit;
use rpcprobe::model::HeldBy;
use rpcprobe::records::WAKING_SOFTIRQ;

use super::connection::Connection;
use super::story::*;

/// The table of the request that began at `start_ns`.
fn began(s: &Story, start_ns: u64) -> String {
    let requests = s.requests();
    let mut ours = requests.iter().filter(|(request, _)| request.start_ns == start_ns);
    table(&ours.next().unwrap_or_else(|| panic!("{requests:#?}")).1)
}

/// A client loses its CPU after it has sent its request, for example to its server, and then sleeps until the answer
/// comes. With a CPU it would only have slept longer, so this time counts as waiting for the server.
#[test]
fn who_has_no_cpu_before_it_waits_for_its_peer_waits_for_that() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    c.asks(&mut s, 10, (0, 4), (100, 105));
    s.switch(110, 0, 10, 40, RUNNABLE);
    s.switch(150, 0, 40, 10, RUNNABLE);
    s.switch_in(156, 0, 10, IDLE, ASLEEP, (POLL, 154), None);
    s.arrives(c.back, 4, 160);
    s.wake(161, 0, IDLE, 10, WAKING_SOFTIRQ);
    s.switch(162, 0, IDLE, 10, RUNNABLE);
    s.call(0, 10, POLL, (154, 164), 1);
    c.gets(&mut s, 10, (0, 4), (165, 170));
    let answer = "
        100-105 client kernel.tcp
        105-110 client user
        110-150 client idle.peer
        150-154 client user
        154-156 client kernel.poll
        156-160 client idle.peer
        160-161 client queue.socket (asleep)
        161-162 client runqueue.wakeup by idle
        162-164 client kernel.poll
        164-165 client user
        165-170 client kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

#[test]
fn a_request_waits_in_its_socket_while_the_server_is_busy() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    other.hears(&mut s, 1, 20, (0, 4), (80, 85));
    s.arrives(c.there, 4, 100);
    other.answers(&mut s, 1, 20, (0, 4), (140, 150));
    c.hears(&mut s, 1, 20, (0, 4), (150, 155));
    c.answers(&mut s, 1, 20, (0, 4), (170, 175));
    let answer = "
        100-150 server queue.socket (user, kernel.tcp)
        150-155 server kernel.tcp
        155-170 server user
        170-175 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

#[test]
fn a_server_asleep_is_woken_by_an_arrival() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.switch_in(90, 1, 20, IDLE, ASLEEP, (POLL, 80), None);
    s.arrives(c.there, 4, 100);
    s.wake(101, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(105, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (80, 108), 1);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    c.answers(&mut s, 1, 20, (0, 4), (120, 125));
    let answer = "
        100-101 server queue.socket (asleep)
        101-105 server runqueue.wakeup by idle
        105-108 server kernel.poll
        108-110 server user
        110-115 server kernel.tcp
        115-120 server user
        120-125 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// The poll returned for another request first, so this request's turn comes after it.
#[test]
fn of_two_arrivals_one_is_served_first() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.switch_in(90, 1, 20, IDLE, ASLEEP, (POLL, 80), None);
    s.arrives(other.there, 4, 99);
    s.arrives(c.there, 4, 100);
    s.wake(101, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(105, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (80, 108), 1);
    other.hears(&mut s, 1, 20, (0, 4), (110, 115));
    other.answers(&mut s, 1, 20, (0, 4), (130, 135));
    c.hears(&mut s, 1, 20, (0, 4), (140, 145));
    c.answers(&mut s, 1, 20, (0, 4), (150, 155));
    let answer = "
        100-140 server queue.socket (user, kernel.tcp, on the run queue)
        140-145 server kernel.tcp
        145-150 server user
        150-155 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// The server's thread 20 reads requests and puts them into a queue in memory, from which its thread 21 answers. Until
/// 21 has answered the other request, this one waited in that queue, as in captures of both ends.
#[test]
fn what_is_read_before_another_is_answered_waits_inside() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.switch(10, 2, IDLE, 21, RUNNABLE);
    other.hears(&mut s, 1, 20, (0, 4), (80, 85));
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.sleep_in(118, 1, (20, IDLE), (POLL, 116), c.sockets[1]);
    other.answers(&mut s, 2, 21, (0, 4), (150, 160));
    c.answers(&mut s, 2, 21, (0, 4), (180, 190));
    let answer = "
        100-110 server queue.socket (user)
        110-115 server kernel.tcp
        115-160 helper queue.app (user, kernel.tcp)
        160-180 helper user
        180-190 helper kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// A client that never rests has two requests in flight. One answer arrives while the client is already reading it: the
/// request waited for its peer until then, and not for the client's work for the other request.
#[test]
fn an_answer_that_comes_during_its_read_was_waited_for_until_then() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    c.asks(&mut s, 10, (0, 4), (100, 110));
    other.asks(&mut s, 10, (0, 4), (120, 130));
    s.arrives(other.back, 4, 135);
    other.gets(&mut s, 10, (0, 4), (140, 145));
    s.arrives(c.back, 4, 204);
    c.gets(&mut s, 10, (0, 4), (200, 210));
    let answer = "
        100-110 client kernel.tcp
        110-204 client idle.peer
        204-210 client kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// A byte of the answer stays behind, and leaves when the client has acknowledged the rest. The request must say so.
#[test]
fn what_stays_behind_of_an_answer_is_told_with_it() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    c.answers(&mut s, 1, 20, (0, 4), (120, 125));
    let packet = Packet::new((3, 4), (40_000_125, 40_000_126));
    s.at(packet.sent_ns, 2, What::Packet { object: c.back, packet });
    s.arrives(c.there, 8, 50_000_000);
    let mut events = s.events();
    for event in &mut events {
        if let What::Call { call, .. } = &mut event.what {
            let unsent = SendLimit::from_record(3 | 1 << 8);
            call.io.iter_mut().filter(|io| io.is_write).for_each(|io| io.unsent = unsent);
        }
    }
    let answers = explain(2, 0, &events, 0.0);
    let [(request, segments)] = &answers[..] else { panic!("{answers:#?}") };
    assert_eq!((request.start_ns, request.latency_ns), (100, 25));
    assert_eq!(
        (request.held_back_ns, request.held_back_by),
        (Some(40_000_000), Some(HeldBy::Nagle))
    );
    let why = "1 B of the answer not sent: a small packet, until the one before is acknowledged (Nagle), but \
               40.000 ms later";
    assert_eq!(segments.last().expect("its write").cause.as_deref(), Some(why));
}

/// A message arrives in two pieces. Between them the server waits for its peer.
#[test]
fn the_rest_of_a_message_comes_later() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.arrives(c.there, 4, 100);
    c.hears(&mut s, 1, 20, (0, 4), (110, 115));
    s.switch_in(120, 1, 20, IDLE, ASLEEP, (POLL, 118), None);
    s.arrives(c.there, 8, 200);
    s.wake(201, 1, IDLE, 20, WAKING_SOFTIRQ);
    s.switch(205, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, POLL, (118, 208), 1);
    c.hears(&mut s, 1, 20, (4, 4), (210, 215));
    c.answers(&mut s, 1, 20, (0, 4), (220, 225));
    let answer = "
        100-110 server queue.socket (user)
        110-115 server kernel.tcp
        115-118 server user
        118-120 server kernel.poll
        120-200 server idle.peer
        200-201 server queue.socket (asleep)
        201-205 server runqueue.wakeup by idle
        205-208 server kernel.poll
        208-210 server user
        210-215 server kernel.tcp
        215-220 server user
        220-225 server kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// What a client does for other requests until the answer comes is not work for this request.
#[test]
fn a_client_of_many_connections_waits_for_one() {
    let mut s = Story::new();
    let (c, other) = (Connection::new(TYPE_TCP), Connection::numbered(2, TYPE_TCP));
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    c.asks(&mut s, 10, (0, 4), (100, 105));
    other.asks(&mut s, 10, (0, 4), (110, 115));
    s.switch_in(120, 0, 10, IDLE, ASLEEP, (POLL, 118), None);
    s.arrives(other.back, 4, 125);
    s.wake(126, 0, IDLE, 10, WAKING_SOFTIRQ);
    s.switch(128, 0, IDLE, 10, RUNNABLE);
    s.call(0, 10, POLL, (118, 129), 1);
    s.arrives(c.back, 4, 130);
    other.gets(&mut s, 10, (0, 4), (135, 140));
    c.gets(&mut s, 10, (0, 4), (150, 155));
    let answer = "
        100-105 client kernel.tcp
        105-130 client idle.peer
        130-150 client queue.socket (user, kernel.tcp)
        150-155 client kernel.tcp
    ";
    assert_eq!(began(&s, 100), expected(answer));
}

/// The writer is not traced, but it wakes the reader itself: its own call put the bytes there.
#[test]
fn over_a_unix_stream_the_writer_wakes_who_waits_for_it() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_UNIX);
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.sleep_in(90, 1, (20, IDLE), (RECVFROM, 80), c.sockets[1]);
    s.switch(95, 0, IDLE, 99, RUNNABLE);
    s.arrives(c.there, 4, 100);
    s.wake(101, 0, 99, 20, 0);
    s.switch(105, 1, IDLE, 20, RUNNABLE);
    c.hears(&mut s, 1, 20, (0, 4), (80, 108));
    // The next request comes while the server works for this one, and the rest of it while the server answers.
    s.arrives(c.there, 6, 112);
    c.answers(&mut s, 1, 20, (0, 4), (120, 130));
    s.arrives(c.there, 8, 125);
    c.hears(&mut s, 1, 20, (4, 4), (140, 145));
    c.answers(&mut s, 1, 20, (4, 4), (150, 155));
    let answer = "
        100-101 server queue.socket (asleep)
        101-105 server runqueue.wakeup by idle
        105-108 server kernel.unix
        108-120 server user
        120-130 server kernel.unix
    ";
    assert_eq!(began(&s, 100), expected(answer));
    let answer = "
        112-125 server idle.peer
        125-140 server queue.socket (user, kernel.unix)
        140-145 server kernel.unix
        145-150 server user
        150-155 server kernel.unix
    ";
    assert_eq!(began(&s, 112), expected(answer));
}

/// A datagram's arrival is reported when the datagram is read.
fn datagrams_wait(type_bits: u16, kernel: &str) {
    let mut s = Story::new();
    let (c, other) = (Connection::new(type_bits), Connection::numbered(2, type_bits));
    let told = |s: &mut Story, object, end, (arrived_ns, read_ns)| {
        s.at(read_ns, 1, What::Arrival { object, end, arrived_ns });
    };
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    other.hears(&mut s, 1, 20, (0, 4), (80, 85));
    other.answers(&mut s, 1, 20, (0, 4), (140, 150));
    told(&mut s, c.there, 4, (100, 155));
    c.hears(&mut s, 1, 20, (0, 4), (150, 155));
    c.answers(&mut s, 1, 20, (0, 4), (170, 175));
    // The other client's next request has come meanwhile.
    told(&mut s, other.there, 8, (160, 185));
    other.hears(&mut s, 1, 20, (4, 4), (180, 185));
    other.answers(&mut s, 1, 20, (4, 4), (190, 195));
    let answer = format!(
        "
        100-150 server queue.socket (user, {kernel})
        150-155 server {kernel}
        155-170 server user
        170-175 server {kernel}
    "
    );
    assert_eq!(began(&s, 100), expected(&answer));
    let answer = format!(
        "
        160-180 server queue.socket (user, {kernel})
        180-185 server {kernel}
        185-190 server user
        190-195 server {kernel}
    "
    );
    assert_eq!(began(&s, 160), expected(&answer));
    // The arrival of the first datagram was not seen. The arrival of the next one does not tell it.
    let answer = format!(
        "
        80-85 server {kernel}
        85-140 server user
        140-150 server {kernel}
    "
    );
    assert_eq!(began(&s, 80), expected(&answer));
}

#[test]
fn a_datagram_waits_in_its_socket_while_the_server_is_busy() {
    datagrams_wait(TYPE_UDP, "kernel.udp");
}

#[test]
fn a_packet_of_a_unix_socket_waits_while_the_server_is_busy() {
    datagrams_wait(TYPE_UNIX_DGRAM, "kernel.unix");
}
