//! Small traces of which end of a connection is the client, with answers derived by hand.

use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::model::Certainty;
use rpcprobe::records::WAKING_IN_SYSCALL;

use super::connection::Connection;
use super::story::*;

/// A server that writes a greeting first, as servers of MySQL, SMTP and SSH do. The client is the end that opened the
/// connection, whether both ends are traced or one. `traced`: client, server.
fn greets(traced: [bool; 2]) -> Answers {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    let (there, back) = ((c.there, c.back), (c.back, c.there));
    let moves = |s: &mut Story, is_server: bool, is_write: bool, bytes, span| {
        let (cpu, tid, socket) = if is_server { (1, 20, 6) } else { (0, 10, 5) };
        let (object, reverse) = if is_server == is_write { back } else { there };
        let nr = if is_write { SENDTO } else { RECVFROM };
        if traced[usize::from(is_server)] {
            s.moved_through(socket, (cpu, tid), (nr, object, reverse), bytes, span);
        }
    };
    if traced[0] {
        s.switch(10, 0, IDLE, 10, RUNNABLE);
        s.opened(0, 10, 5, (100, 110), None);
    }
    if traced[1] {
        s.switch(20, 1, IDLE, 20, RUNNABLE);
        s.opened(1, 20, 6, (112, 114), Some(107));
    }
    moves(&mut s, true, true, (0, 9), (120, 130));
    moves(&mut s, false, false, (0, 9), (115, 140));
    for (number, at_ns) in [200, 300].into_iter().enumerate() {
        let (asks, answer) = ((4 * number as u64, 4), (9 + 5 * number as u64, 5));
        moves(&mut s, false, true, asks, (at_ns, at_ns + 5));
        if traced[1] {
            s.arrives(c.there, asks.0 + 4, at_ns + 4);
        }
        moves(&mut s, true, false, asks, (at_ns + 10, at_ns + 15));
        moves(&mut s, true, true, answer, (at_ns + 40, at_ns + 45));
        moves(&mut s, false, false, answer, (at_ns + 50, at_ns + 55));
    }
    s.requests()
}

#[test]
fn a_server_that_greets_is_no_client() {
    let found = |traced| {
        let answers = greets(traced);
        let told = answers.iter().map(|(request, _)| {
            let ends = [&request.client, &request.server];
            let ends = ends.map(|end| end.as_ref().map(|end| end.tid));
            (request.start_ns, request.start_ns + request.latency_ns, ends, request.complete)
        });
        told.collect::<Vec<_>>()
    };
    let both = [Some(10), Some(20)];
    assert_eq!(found([true, true]), [(200, 255, both, true), (300, 355, both, true)]);
    let client = [Some(10), None];
    assert_eq!(found([true, false]), [(200, 255, client, true), (300, 355, client, true)]);
    let server = [None, Some(20)];
    assert_eq!(found([false, true]), [(204, 245, server, true), (304, 345, server, true)]);
}

/// An acceptor forks a process for each connection, and closes its own descriptor before that process writes a greeting
/// (sshd, inetd). The connection still counts as accepted.
#[test]
fn who_forks_and_closes_has_accepted_all_the_same() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.opened(1, 20, 6, (100, 110), Some(95));
    s.fork(120, 1, 20, 21, 115);
    s.closed(1, 20, 6, (125, 130));
    s.switch_to(140, 1, (20, 21), 5);
    s.moved_through(6, (1, 21), (SENDTO, c.back, c.there), (0, 9), (150, 160));
    s.arrives(c.there, 4, 200);
    s.moved_through(6, (1, 21), (RECVFROM, c.there, c.back), (0, 4), (165, 210));
    s.moved_through(6, (1, 21), (SENDTO, c.back, c.there), (9, 5), (240, 250));
    s.moved_through(6, (1, 21), (RECVFROM, c.there, c.back), (4, 4), (255, 310));
    s.moved_through(6, (1, 21), (SENDTO, c.back, c.there), (14, 5), (340, 350));
    s.closed(1, 21, 6, (360, 370));
    let requests = s.requests();
    let ends: Vec<_> = requests
        .iter()
        .map(|(request, _)| {
            let server = request.server.as_ref().map(|end| end.tid);
            (request.start_ns, request.start_ns + request.latency_ns, server, request.complete)
        })
        .collect();
    let server = Some(21);
    assert_eq!(ends[0], (200, 250, server, true), "{requests:#?}");
    assert_eq!((ends.len(), ends[1].1, ends[1].2), (2, 350, server), "{requests:#?}");
}

/// A server reads the request and forks a child, which answers. `traced`: client, server.
fn answered_by_a_child(traced: [bool; 2]) -> Answers {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    if traced[0] {
        s.switch(10, 0, IDLE, 10, RUNNABLE);
        s.opened(0, 10, 5, (20, 25), None);
        c.asks_through(&mut s, 5, 10, (0, 4), (100, 110));
        s.sleep_in(120, 0, (10, IDLE), (RECVFROM, 115), c.sockets[0]);
    }
    if traced[1] {
        s.switch(10, 1, IDLE, 20, RUNNABLE);
        s.opened(1, 20, 6, (26, 30), Some(24));
        s.sleep_in(45, 1, (20, IDLE), (RECVFROM, 40), c.sockets[1]);
        s.arrives(c.there, 4, 105);
        let waker = if traced[0] { 10 } else { IDLE };
        s.wake(105, 0, waker, 20, 0);
        s.switch(109, 1, IDLE, 20, RUNNABLE);
        c.hears_through(&mut s, 6, 20, (0, 4), (40, 113));
        s.fork(118, 1, 20, 22, 115);
        s.wake(120, 1, 20, 22, WAKING_IN_SYSCALL);
        s.call(1, 20, CLONE, (115, 124), 22);
        s.switch(126, 2, IDLE, 22, RUNNABLE);
        s.sleep_in(132, 1, (20, IDLE), (WAIT4, 128), socket(0, 0));
        s.wake(145, 2, 22, 10, 0);
        s.moved_through(6, (2, 22), (SENDTO, c.back, c.there), (0, 5), (140, 150));
        s.exit(160, 2, 22, 155);
    }
    if traced[0] {
        s.switch(148, 0, IDLE, 10, RUNNABLE);
        c.gets_through(&mut s, 5, 10, (0, 5), (115, 155));
    }
    s.requests()
}

#[test]
fn a_forked_child_answers_what_its_parent_has_read() {
    let of = |traced| {
        let mut answers = answered_by_a_child(traced);
        assert_eq!(answers.len(), 1, "{traced:?}: {answers:#?}");
        let (request, segments) = answers.remove(0);
        assert_eq!(request.certainty, Certainty::Likely, "{request:?}");
        let sides = segments.iter().map(|segment| format!("{:?} ", segment.side));
        (table(&segments), sides.collect::<String>())
    };
    let served = "
        109-113 server kernel.tcp
        113-115 server user
        115-120 server kernel.exec
        120-126 sh runqueue.wakeup
        126-140 sh user
    ";
    let client = "
        100-105 client kernel.tcp
        105-109 server runqueue.wakeup by idle
    ";
    let heard = "
        140-145 sh kernel.tcp
        145-148 client runqueue.wakeup by idle
        148-155 client kernel.tcp
    ";
    let both = expected(client) + &expected(served) + &expected(heard);
    let sides = "Client Server Server Server Server Server Server Server Client Client ";
    assert_eq!(of([true, true]), (both, sides.to_string()));
    let server = "105-109 server runqueue.wakeup by idle\n".to_string();
    let server = server + &expected(served) + "140-150 sh kernel.tcp\n";
    assert_eq!(of([false, true]), (server, "Server ".repeat(7)));
}

/// Another process answers, which existed before the request was read. The role is a guess: nothing shows that the
/// process was handed the request.
#[test]
fn an_elder_process_that_answers_in_anothers_stead_is_a_guess() {
    let mut s = Story::new();
    let c = Connection::new(TYPE_TCP);
    s.switch(10, 0, IDLE, 10, RUNNABLE);
    s.switch(10, 1, IDLE, 20, RUNNABLE);
    s.opened(0, 10, 5, (20, 25), None);
    s.fork(40, 1, 20, 22, 35);
    s.switch_to(50, 2, (IDLE, 22), 5);
    c.asks_through(&mut s, 5, 10, (0, 4), (100, 110));
    c.hears_through(&mut s, 6, 20, (0, 4), (105, 115));
    s.moved_through(6, (2, 22), (SENDTO, c.back, c.there), (0, 5), (140, 150));
    c.gets_through(&mut s, 5, 10, (0, 5), (120, 155));
    let requests = s.requests();
    let told: Vec<_> = requests.iter().map(|(r, _)| (r.start_ns, r.certainty)).collect();
    assert_eq!(told, [(100, Certainty::Guessed)]);
}
