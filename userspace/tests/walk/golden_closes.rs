//! Small traces of connections that are closed with a question, or the rest of one, unanswered. Answers are derived by
//! hand.

use rpcprobe::engine::event::{What, TYPE_TCP};
use rpcprobe::laws::check_parents;
use rpcprobe::model::{Certainty, Evidence, Request, Segment};
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

/// -EINTR.
const INTERRUPTED: i64 = -4;
const WOKEN: u8 = WAKING_SOFTIRQ | WAKING_IN_SYSCALL;

/// A server (thread 20) that opens a connection to another server (process 50) for its client (thread 10). The worker
/// (thread 51) of the other server has another connection.
struct Greeted {
    s: Story,
    front: Connection,
    back: Connection,
    old: Connection,
}

impl Greeted {
    fn new() -> Greeted {
        let [front, back, old] = [1, 2, 3].map(|number| Connection::numbered(number, TYPE_TCP));
        let mut s = Story::new();
        s.task(50, 50, "store");
        s.task(51, 50, "worker");
        for (cpu, tid) in [(0, 10), (1, 20), (2, 50), (3, 51)] {
            s.switch(10, cpu, IDLE, tid, RUNNABLE);
        }
        s.opened(3, 51, 6, (20, 24), Some(18));
        Greeted { s, front, back, old }
    }

    /// The worker is told to quit on its connection, answers nothing, and closes it.
    fn quits(&mut self, at_ns: u64) {
        let Greeted { s, old, .. } = self;
        let span = (at_ns, at_ns + 4);
        s.moved_through(6, (3, 51), (RECVFROM, old.there, old.back), (0, 5), span);
        s.closed(3, 51, 6, (at_ns + 6, at_ns + 10));
    }

    /// The client asks, and the server waits for a greeting. The acceptor (thread 50) accepts its connection at 122.
    fn asked(&mut self) {
        let Greeted { s, front, back, .. } = self;
        front.asks(s, 10, (0, 4), (100, 104));
        s.sleep_in(106, 0, (10, IDLE), (RECVFROM, 105), front.sockets[0]);
        front.hears(s, 1, 20, (0, 4), (107, 111));
        s.opened(1, 20, 7, (114, 118), None);
        s.sleep_in(121, 1, (20, IDLE), (RECVFROM, 120), back.sockets[0]);
        s.opened(2, 50, 8, (122, 126), Some(116));
    }

    /// The worker greets, and the server answers. Returns the client's request and its segments.
    fn greeted(mut self) -> (Request, Vec<Segment>) {
        let Greeted { s, front, back, .. } = &mut self;
        s.wake(154, 3, 51, 20, WOKEN);
        s.moved_through(8, (3, 51), (SENDTO, back.back, back.there), (0, 2), (150, 158));
        s.switch(156, 1, IDLE, 20, RUNNABLE);
        s.moved_through(7, (1, 20), (RECVFROM, back.back, back.there), (0, 2), (120, 160));
        s.wake(174, 1, 20, 10, WOKEN);
        front.answers(s, 1, 20, (0, 4), (170, 178));
        s.switch(176, 0, IDLE, 10, RUNNABLE);
        front.gets(s, 10, (0, 4), (105, 180));
        let mut requests = s.requests();
        assert_eq!(requests.len(), 1, "{requests:#?}");
        requests.remove(0)
    }
}

const ASKED: &str = "
        100-104 client kernel.tcp
        104-107 server queue.socket (user)
        107-111 server kernel.tcp
        111-114 server user
        114-116 server kernel.tcp
        116-122 store queue.accept (user)
        122-126 store kernel.tcp
    ";
const ANSWERED: &str = "
        150-154 worker kernel.tcp
        154-156 server runqueue.wakeup by idle
        156-160 server kernel.tcp
        160-170 server user
        170-174 server kernel.tcp
        174-176 client runqueue.wakeup by idle
        176-180 client kernel.tcp
    ";

/// The worker had been told to quit on its connection. When the acceptor hands it another connection, it does not work
/// for that question any more.
#[test]
fn a_worker_whose_connection_was_closed_is_free() {
    let mut story = Greeted::new();
    story.quits(30);
    story.s.sleep_in(50, 3, (51, IDLE), (FUTEX, 48), condition(0x100));
    story.asked();
    story.s.wake(140, 2, 50, 51, WAKING_IN_SYSCALL);
    story.s.call(2, 50, FUTEX, (138, 142), 1);
    story.s.switch(144, 3, IDLE, 51, RUNNABLE);
    story.s.call(3, 51, FUTEX, (48, 146), 0);
    let handed = "
        126-138 store user
        138-140 store kernel.futex
        140-144 worker runqueue.wakeup by idle
        144-146 worker kernel.futex
        146-150 worker user
    ";
    let (_, segments) = story.greeted();
    assert_eq!(table(&segments), expected(&format!("{ASKED}{handed}{ANSWERED}")));
}

/// The acceptor puts the connection in a queue while the worker is at work for another one. The worker takes it from
/// there when it has closed the other one, and greets.
#[test]
fn a_worker_takes_a_connection_from_memory_and_greets() {
    let mut story = Greeted::new();
    story.asked();
    story.quits(132);
    let taken = "
        126-142 worker queue.app (user, kernel.tcp)
        142-150 worker user
    ";
    let (_, segments) = story.greeted();
    assert_eq!(table(&segments), expected(&format!("{ASKED}{taken}{ANSWERED}")));
    let evidence = |from_ns: u64| {
        let at = segments.iter().find(|segment| segment.start_ns == from_ns);
        at.map(|segment| segment.evidence)
    };
    assert_eq!([126, 142, 150].map(evidence), [Some(Evidence::Modelled); 3]);
}

/// The server reads the end of each question when it has answered it, and closes the connection. That end is no question
/// that stays open: the next request is the only one that is served when the server asks another server.
#[test]
fn the_rest_of_an_answered_question_is_over_when_the_connection_is_closed() {
    let mut s = Story::new();
    let back = Connection::numbered(9, TYPE_TCP);
    s.task(50, 50, "store");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 50)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    for turn in 0..3 {
        let (front, at_ns) = (Connection::numbered(turn + 1, TYPE_TCP), 100 + 200 * turn);
        let [client, server] = [5, 15].map(|first| first + u32::try_from(turn).unwrap());
        let span = |from_ns: u64, to_ns: u64| (at_ns + from_ns, at_ns + to_ns);
        s.opened(0, 10, client.into(), span(0, 4), None);
        front.asks_through(&mut s, client, 10, (0, 8), span(6, 10));
        s.opened(1, 20, server.into(), span(12, 16), Some(at_ns + 3));
        front.hears_through(&mut s, server, 20, (0, 6), span(18, 22));
        let moved = (4 * turn, 4);
        s.moved(1, 20, (SENDTO, back.there, back.back), moved, span(26, 30));
        back.hears(&mut s, 2, 50, moved, span(34, 38));
        back.answers(&mut s, 2, 50, moved, span(40, 44));
        s.moved(1, 20, (RECVFROM, back.back, back.there), moved, span(48, 52));
        front.answers(&mut s, 1, 20, (0, 4), span(56, 60));
        front.hears(&mut s, 1, 20, (6, 2), span(64, 68));
        s.closed(1, 20, server.into(), span(70, 74));
        front.gets(&mut s, 10, (0, 4), span(76, 80));
        s.closed(0, 10, client.into(), span(84, 88));
    }
    let requests = s.requests();
    check_parents(requests.iter().map(|(request, _)| request)).expect("parents");
    let by = |request: &&Request, tid: u32| request.client.as_ref().is_some_and(|c| c.tid == tid);
    let of = |tid: u32| -> Vec<&Request> {
        requests.iter().map(|(request, _)| request).filter(|request| by(request, tid)).collect()
    };
    let ids: Vec<_> = of(10).iter().map(|front| front.request_id).collect();
    assert_eq!(ids.len(), 3);
    let parents: Vec<_> =
        of(20).iter().map(|r| r.parent_request_id.zip(r.parent_certainty)).collect();
    let sure: Vec<_> = ids.into_iter().map(|id| Some((id, Certainty::Sure))).collect();
    assert_eq!(parents, sure);
}

/// The server (thread 20) waits until the server that it asked (thread 30) has closed the connection. The path leads
/// from that close past the answer into thread 30, which had asked a third server. What that one waited for is told as
/// in its own request: a lock that was released by a thread at work for another client (thread 60).
#[test]
fn a_close_leads_past_the_answer_into_the_server_that_was_asked() {
    let mut s = Story::new();
    let [front, middle, back, others] = [1, 2, 3, 4].map(|at| Connection::numbered(at, TYPE_TCP));
    let tasks = [(30, 30, "middle"), (50, 50, "store"), (51, 50, "worker"), (60, 60, "other")];
    for (tid, tgid, comm) in tasks {
        s.task(tid, tgid, comm);
    }
    for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 50), (4, 51), (5, 60)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    others.asks(&mut s, 60, (0, 4), (20, 24));
    others.hears(&mut s, 4, 51, (0, 4), (30, 34));

    front.asks(&mut s, 10, (0, 4), (100, 104));
    s.sleep_in(106, 0, (10, IDLE), (RECVFROM, 105), front.sockets[0]);
    front.hears(&mut s, 1, 20, (0, 4), (104, 108));
    s.opened(1, 20, 7, (110, 112), None);
    s.moved_through(7, (1, 20), (SENDTO, middle.there, middle.back), (0, 4), (114, 118));
    s.sleep_in(122, 1, (20, IDLE), (RECVFROM, 120), middle.sockets[0]);
    s.moved_through(8, (2, 30), (RECVFROM, middle.there, middle.back), (0, 4), (118, 124));
    s.moved(2, 30, (SENDTO, back.there, back.back), (0, 4), (128, 132));
    s.sleep_in(136, 2, (30, IDLE), (RECVFROM, 134), back.sockets[0]);
    back.hears(&mut s, 3, 50, (0, 4), (132, 138));
    s.sleep_in(142, 3, (50, IDLE), (FUTEX, 140), mutex(0x10));
    s.wake(160, 4, 51, 50, WAKING_IN_SYSCALL);
    s.call(4, 51, FUTEX, (158, 162), 1);
    s.switch(162, 3, IDLE, 50, RUNNABLE);
    s.call(3, 50, FUTEX, (140, 164), 0);
    s.wake(172, 3, 50, 30, WOKEN);
    back.answers(&mut s, 3, 50, (0, 4), (170, 176));
    s.switch(174, 2, IDLE, 30, RUNNABLE);
    s.moved(2, 30, (RECVFROM, back.back, back.there), (0, 4), (134, 178));
    s.wake(184, 2, 30, 20, WOKEN);
    s.moved_through(8, (2, 30), (SENDTO, middle.back, middle.there), (0, 4), (182, 188));
    s.switch(186, 1, IDLE, 20, RUNNABLE);
    s.moved_through(7, (1, 20), (RECVFROM, middle.back, middle.there), (0, 4), (120, 190));
    s.sleep_in(194, 1, (20, IDLE), (RECVFROM, 192), middle.sockets[0]);
    s.wake(204, 2, 30, 20, WOKEN);
    s.closed(2, 30, 8, (200, 208));
    s.switch(206, 1, IDLE, 20, RUNNABLE);
    s.moved_through(7, (1, 20), (RECVFROM, middle.back, middle.there), (4, 0), (192, 210));
    s.closed(1, 20, 7, (212, 214));
    s.wake(224, 1, 20, 10, WOKEN);
    front.answers(&mut s, 1, 20, (0, 4), (220, 228));
    s.switch(226, 0, IDLE, 10, RUNNABLE);
    front.gets(&mut s, 10, (0, 4), (105, 232));
    let requests = s.requests();
    let ours = requests.iter().find(|(r, _)| r.client.as_ref().is_some_and(|c| c.tid == 10));
    let answer = "
        100-104 client kernel.tcp
        104-108 server kernel.tcp
        108-110 server user
        110-112 server kernel.tcp
        112-114 server user
        114-118 server kernel.tcp
        118-124 middle kernel.tcp
        124-128 middle user
        128-132 middle kernel.tcp
        132-138 store kernel.tcp
        138-140 store user
        140-142 store kernel.futex
        142-160 store lock by worker/51
        160-162 store runqueue.wakeup by idle
        162-164 store kernel.futex
        164-170 store user
        170-172 store kernel.tcp
        172-174 middle runqueue.wakeup by idle
        174-178 middle kernel.tcp
        178-182 middle user
        182-184 middle kernel.tcp
        184-188 middle kernel.tcp
        188-200 middle user
        200-204 middle kernel.tcp
        204-206 server runqueue.wakeup by idle
        206-210 server kernel.tcp
        210-212 server user
        212-214 server kernel.tcp
        214-220 server user
        220-224 server kernel.tcp
        224-226 client runqueue.wakeup by idle
        226-232 client kernel.tcp
    ";
    assert_eq!(table(&ours.expect("a request").1), expected(answer));
}

/// The client, of one thread, sends a last message and closes the connection. If it does not look for an answer in between, it expects
/// none: the message is no request. The server reads the message and closes its end.
#[test]
fn a_client_that_closes_at_once_expects_no_answer() {
    let of = |looks: bool| {
        let (mut s, c) = (Story::new(), Connection::new(TYPE_TCP));
        s.task(40, 40, "alone");
        s.switch(10, 0, IDLE, 40, RUNNABLE);
        s.switch(20, 1, IDLE, 20, RUNNABLE);
        s.opened(0, 40, 5, (90, 94), None);
        s.opened(1, 20, 6, (95, 98), Some(93));
        c.asks_through(&mut s, 5, 40, (0, 4), (100, 104));
        c.hears_through(&mut s, 6, 20, (0, 4), (106, 110));
        s.moved_through(6, (1, 20), (SENDTO, c.back, c.there), (0, 4), (120, 124));
        c.gets_through(&mut s, 5, 40, (0, 4), (130, 134));
        c.asks_through(&mut s, 5, 40, (4, 5), (200, 204));
        if looks {
            s.sleep_in(206, 0, (40, IDLE), (RECVFROM, 205), c.sockets[0]);
            s.wake(208, 2, 90, 40, 0);
            s.switch(209, 0, IDLE, 40, RUNNABLE);
            s.call(0, 40, RECVFROM, (205, 210), INTERRUPTED);
        }
        c.hears_through(&mut s, 6, 20, (4, 5), (206, 211));
        s.closed(0, 40, 5, (212, 216));
        s.closed(1, 20, 6, (220, 224));
        let requests = explain(3, 0, &s.events(), 0.0);
        let told = |request: &Request| (request.start_ns, request.complete);
        requests.iter().map(|(request, _)| told(request)).collect::<Vec<_>>()
    };
    assert_eq!(of(false), [(100, true)]);
    assert_eq!(of(true), [(100, true), (200, false)]);
}

/// The login process (thread 20) reads the question of an untraced client, passes the connection to another process
/// (thread 50) in a message, closes it and exits. The other process answers.
#[test]
fn a_connection_that_was_passed_on_is_answered_by_another_process() {
    let mut s = Story::new();
    let [front, inside] = [1, 2].map(|number| Connection::numbered(number, TYPE_TCP));
    s.task(40, 40, "login");
    s.task(50, 50, "mail");
    s.switch(10, 1, IDLE, 40, RUNNABLE);
    s.switch(10, 2, IDLE, 50, RUNNABLE);
    s.opened(1, 40, 6, (20, 24), Some(18));
    s.arrives(front.there, 8, 100);
    s.sleep_in(115, 2, (50, IDLE), (RECVFROM, 112), inside.sockets[1]);
    s.moved_through(6, (1, 40), (RECVFROM, front.there, front.back), (0, 8), (104, 110));
    s.wake(124, 1, 40, 50, WOKEN);
    s.moved(1, 40, (SENDTO, inside.there, inside.back), (0, 4), (120, 128));
    s.switch(126, 2, IDLE, 50, RUNNABLE);
    s.moved(2, 50, (RECVFROM, inside.there, inside.back), (0, 4), (112, 130));
    s.closed(1, 40, 6, (132, 136));
    s.at(140, 1, What::Exit { tid: 40, tgid: 40, code: 0, traced: true });
    s.switch(142, 1, 40, IDLE, DEAD);
    s.moved_through(7, (2, 50), (SENDTO, front.back, front.there), (0, 3), (150, 156));
    let requests = s.requests();
    let [(request, segments)] = &requests[..] else { panic!("{requests:#?}") };
    let ends = (request.start_ns, request.start_ns + request.latency_ns);
    assert_eq!((ends, request.certainty), ((100, 156), Certainty::Guessed));
    let answer = "
        100-104 login queue.socket (user)
        104-110 login kernel.tcp
        110-120 login user
        120-124 login kernel.tcp
        124-126 mail runqueue.wakeup by idle
        126-130 mail kernel.tcp
        130-150 mail user
        150-156 mail kernel.tcp
    ";
    assert_eq!(table(segments), expected(answer));
}
