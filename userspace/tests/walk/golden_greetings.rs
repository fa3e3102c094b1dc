//! Small traces of a server (thread 20) that has another server (thread 50) do a part of its work, in a conversation
//! that lasts over several requests of its client (thread 10) and that the other server begins. Answers are derived by
//! hand.

use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::laws::check_parents;
use rpcprobe::model::Request;
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

const WOKEN: u8 = WAKING_SOFTIRQ | WAKING_IN_SYSCALL;

/// The client's connection to the server, and the server's to the other server.
struct Mail {
    s: Story,
    front: Connection,
    back: Connection,
}

impl Mail {
    /// The client asks at 100. The server opens a connection to the other server, which has another connection to
    /// accept first, and waits for its greeting until 172. Then it passes on a part of what it was asked, and answers
    /// at 180, when that part has not been read.
    fn begun() -> Mail {
        let (mut s, front) = (Story::new(), Connection::new(TYPE_TCP));
        let back = Connection::numbered(2, TYPE_TCP);
        s.task(50, 50, "store");
        for (cpu, tid) in [(0, 10), (1, 20), (2, 50)] {
            s.switch(10, cpu, IDLE, tid, RUNNABLE);
        }
        front.asks(&mut s, 10, (0, 4), (100, 104));
        s.sleep_in(106, 0, (10, IDLE), (RECVFROM, 105), front.sockets[0]);
        front.hears(&mut s, 1, 20, (0, 4), (107, 111));
        s.opened(1, 20, 7, (114, 118), None);
        s.sleep_in(122, 1, (20, IDLE), (RECVFROM, 120), back.sockets[0]);
        s.opened(2, 50, 9, (130, 134), Some(90));
        s.opened(2, 50, 8, (150, 154), Some(116));
        s.wake(164, 2, 50, 20, WOKEN);
        let greets = (SENDTO, back.back, back.there);
        s.moved_through(8, (2, 50), greets, (0, 2), (160, 166));
        s.switch(168, 1, IDLE, 20, RUNNABLE);
        let is_greeted = (RECVFROM, back.back, back.there);
        s.moved_through(7, (1, 20), is_greeted, (0, 2), (120, 172));
        s.moved(1, 20, (SENDTO, back.there, back.back), (0, 4), (174, 178));
        s.wake(184, 1, 20, 10, WOKEN);
        front.answers(&mut s, 1, 20, (0, 4), (180, 188));
        s.switch(186, 0, IDLE, 10, RUNNABLE);
        front.gets(&mut s, 10, (0, 4), (105, 192));
        Mail { s, front, back }
    }

    /// The client asks again at 200. The server passes on the rest, and answers at 250, when it has the other server's
    /// answer.
    fn ended(mut self) -> Mail {
        let Mail { s, front, back } = &mut self;
        front.asks(s, 10, (4, 4), (200, 204));
        s.sleep_in(206, 0, (10, IDLE), (RECVFROM, 205), front.sockets[0]);
        front.hears(s, 1, 20, (4, 4), (206, 208));
        s.moved(1, 20, (SENDTO, back.there, back.back), (4, 8), (212, 216));
        s.sleep_in(220, 1, (20, IDLE), (RECVFROM, 218), back.sockets[0]);
        back.hears(s, 2, 50, (0, 12), (222, 226));
        s.wake(234, 2, 50, 20, WOKEN);
        back.answers(s, 2, 50, (2, 6), (230, 238));
        s.switch(236, 1, IDLE, 20, RUNNABLE);
        s.moved(1, 20, (RECVFROM, back.back, back.there), (2, 6), (218, 240));
        s.wake(254, 1, 20, 10, WOKEN);
        front.answers(s, 1, 20, (4, 4), (250, 258));
        s.switch(256, 0, IDLE, 10, RUNNABLE);
        front.gets(s, 10, (4, 4), (205, 262));
        self
    }
}

/// The server's wait for the greeting is the work of the other server, from where it accepts the connection that the
/// server opened; until then the connection waits to be accepted.
#[test]
fn a_greeting_is_work_for_what_the_connection_was_opened_for() {
    let mail = Mail::begun();
    let answer = "
        100-104 client kernel.tcp
        104-107 server queue.socket (user)
        107-111 server kernel.tcp
        111-114 server user
        114-116 server kernel.tcp
        116-150 store queue.accept (user, kernel.tcp)
        150-154 store kernel.tcp
        154-160 store user
        160-164 store kernel.tcp
        164-168 server runqueue.wakeup by idle
        168-172 server kernel.tcp
        172-174 server user
        174-178 server kernel.tcp
        178-180 server user
        180-184 server kernel.tcp
        184-186 client runqueue.wakeup by idle
        186-192 client kernel.tcp
    ";
    assert_eq!(mail.s.only(), expected(answer));
}

/// What the server passes on while it serves the second request begins a request of its own, which is made for the
/// second request.
#[test]
fn a_question_goes_on_for_the_next_request_of_its_asker() {
    let requests = Mail::begun().ended().s.requests();
    let mut all: Vec<Request> = requests.iter().map(|(request, _)| request.clone()).collect();
    all.sort_by_key(|request| request.start_ns);
    let [first, second, inner] = &all[..] else { panic!("{all:#?}") };
    let spans = [first, second, inner].map(|r| (r.start_ns, r.start_ns + r.latency_ns));
    assert_eq!(spans, [(100, 192), (200, 262), (212, 240)]);
    assert_eq!(inner.parent_request_id, Some(second.request_id), "{inner:#?}");
    assert_eq!((inner.request_bytes, inner.response_bytes), (Some(8), Some(6)));
    assert!(!inner.detached);
    check_parents(&all).expect("the invariant of parents");
    let (_, segments) = requests.iter().find(|(r, _)| r.request_id == second.request_id).unwrap();
    let answer = "
        200-204 client kernel.tcp
        204-206 server queue.socket (user)
        206-208 server kernel.tcp
        208-212 server user
        212-216 server kernel.tcp
        216-222 store queue.socket (user)
        222-226 store kernel.tcp
        226-230 store user
        230-234 store kernel.tcp
        234-236 server runqueue.wakeup by idle
        236-240 server kernel.tcp
        240-250 server user
        250-254 server kernel.tcp
        254-256 client runqueue.wakeup by idle
        256-262 client kernel.tcp
    ";
    assert_eq!(table(segments), expected(answer));
}
