//! Small traces of which end of a connection asks, with answers derived by hand.

use rpcprobe::engine::event::TYPE_TCP;

use super::connection::Connection;
use super::story::*;

/// A server that greets whoever connects, as those of MySQL, SMTP and SSH do: which end asks is by who opened the connection,
/// whether both ends are traced or one. `traced`: client, server.
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

/// An acceptor that forks a process for each connection and closes its own descriptor before that one greets (sshd, inetd): the
/// connection is accepted all the same.
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
