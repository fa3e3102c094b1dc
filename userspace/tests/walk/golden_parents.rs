//! Small traces of servers that send requests to servers, with answers derived by hand: which request each of these is
//! made for.

use std::rc::Rc;

use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::laws::check_parents;
use rpcprobe::model::{Category, Certainty, Evidence, Request, Segment};
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::story::*;

/// Three clients (threads 10, 30 and 40), each on its own connection to a server (thread 20), and three connections on
/// which the server sends requests to an untraced server.
struct Proxy {
    s: Story,
    fronts: [Connection; 3],
    backs: [Connection; 3],
    /// Bytes moved so far by the clients, which send and read answers, and by the server, which reads requests,
    /// answers, sends and reads answers.
    moved: [[u64; 3]; 6],
}

const CLIENTS: [u32; 3] = [10, 30, 40];
/// The CPU of each client.
const CPUS: [u32; 3] = [0, 2, 3];

impl Proxy {
    fn new() -> Proxy {
        let mut s = Story::new();
        s.task(30, 30, "other");
        s.task(40, 40, "third");
        for (cpu, tid) in [(0, 10), (1, 20), (2, 30), (3, 40)] {
            s.switch(10, cpu, IDLE, tid, RUNNABLE);
        }
        let fronts = [1, 2, 5].map(|number| Connection::numbered(number, TYPE_TCP));
        let backs = [3, 4, 6].map(|number| Connection::numbered(number, TYPE_TCP));
        Proxy { s, fronts, backs, moved: Default::default() }
    }

    /// The next four bytes moved in this step on this connection.
    fn next(&mut self, step: usize, which: usize) -> (u64, i64) {
        let from = self.moved[step][which];
        self.moved[step][which] += 4;
        (from, 4)
    }

    /// Both clients have sent a request; the server has read none.
    fn asked_by_both() -> Proxy {
        let mut p = Proxy::new();
        p.client_asks(0, 100);
        p.client_asks(1, 105);
        p
    }

    /// The server has read both requests, one after the other.
    fn taken_from_both() -> Proxy {
        let mut p = Proxy::asked_by_both();
        p.takes(0, 110);
        p.takes(1, 115);
        p
    }

    fn client_asks(&mut self, which: usize, at_ns: u64) {
        let bytes = self.next(0, which);
        let c = &self.fronts[which];
        let call = (SENDTO, c.there, c.back);
        self.s.moved(CPUS[which], CLIENTS[which], call, bytes, (at_ns, at_ns + 3));
    }

    fn client_hears(&mut self, which: usize, at_ns: u64) {
        let bytes = self.next(1, which);
        let c = &self.fronts[which];
        let call = (RECVFROM, c.back, c.there);
        self.s.moved(CPUS[which], CLIENTS[which], call, bytes, (at_ns, at_ns + 3));
    }

    fn takes(&mut self, which: usize, at_ns: u64) {
        let bytes = self.next(2, which);
        self.fronts[which].hears(&mut self.s, 1, 20, bytes, (at_ns, at_ns + 3));
    }

    fn answers(&mut self, which: usize, at_ns: u64) {
        let bytes = self.next(3, which);
        self.fronts[which].answers(&mut self.s, 1, 20, bytes, (at_ns, at_ns + 3));
    }

    fn asks(&mut self, which: usize, at_ns: u64) {
        let bytes = self.next(4, which);
        let c = &self.backs[which];
        self.s.moved(1, 20, (SENDTO, c.there, c.back), bytes, (at_ns, at_ns + 3));
    }

    fn hears(&mut self, which: usize, at_ns: u64) {
        let bytes = self.next(5, which);
        let c = &self.backs[which];
        self.s.moved(1, 20, (RECVFROM, c.back, c.there), bytes, (at_ns, at_ns + 3));
    }

    /// The server reads both answers from 140 on, in the other order, and answers both clients. After that it reads
    /// another request, so nothing more is sent for what it has read.
    fn hears_both_and_answers(&mut self) {
        self.hears(1, 140);
        self.hears(0, 150);
        self.answers(1, 160);
        self.answers(0, 170);
        self.client_hears(0, 180);
        self.client_hears(1, 190);
        self.client_asks(2, 200);
        self.takes(2, 210);
    }

    /// The server polls, and sleeps meanwhile.
    fn rests(&mut self, (from_ns, to_ns): (u64, u64)) {
        self.s.switch_in(from_ns, 1, 20, IDLE, ASLEEP, (POLL, from_ns - 1), None);
        self.s.wake(to_ns, 1, IDLE, 20, WAKING_SOFTIRQ);
        self.s.switch(to_ns + 1, 1, IDLE, 20, RUNNABLE);
        self.s.call(1, 20, POLL, (from_ns - 1, to_ns + 2), 1);
    }

    /// For the request that the server sends at `asked_ns`: the client it is made for, how sure this is, and whether it
    /// is detached.
    fn told(&self, asked_ns: u64) -> Option<(usize, Certainty, bool)> {
        self.told_in(&self.s.requests(), asked_ns)
    }

    /// What a pass says that knows the parents inferred by one before: for each, the connection on which the server
    /// asked first, and that on which its parent came.
    fn knowing(&self, inferred: &[(usize, usize)]) -> Answers {
        let question = |c: &Connection| (c.there, 0);
        let parents = inferred.iter().map(|(child, parent)| {
            (question(&self.backs[*child]), question(&self.fronts[*parent]))
        });
        let mut engine = Engine::new(4, 0, Rates::default());
        engine.know_parents(Rc::new(parents.collect()));
        explain_with(engine, &self.s.events())
    }

    fn told_in(&self, requests: &Answers, asked_ns: u64) -> Option<(usize, Certainty, bool)> {
        check_parents(requests.iter().map(|(request, _)| request)).expect("parents");
        let by =
            |request: &Request, tid: u32| request.client.as_ref().is_some_and(|c| c.tid == tid);
        let asked = |(request, _): &&(Request, _)| request.start_ns == asked_ns && by(request, 20);
        let (child, _) = requests.iter().find(asked).expect("the request");
        let id = child.parent_request_id?;
        let (parent, _) =
            requests.iter().find(|(parent, _)| parent.request_id == id).expect("a row");
        let which = CLIENTS.iter().position(|&tid| by(parent, tid)).expect("a client's");
        Some((which, child.parent_certainty.expect("of a parent"), child.detached))
    }

    fn parent(&self, asked_ns: u64) -> Option<(usize, bool)> {
        self.told(asked_ns).map(|(which, _, detached)| (which, detached))
    }

    fn certainty(&self, asked_ns: u64) -> Option<(usize, Certainty)> {
        self.told(asked_ns).map(|(which, certainty, _)| (which, certainty))
    }
}

#[test]
fn a_thread_asks_for_what_it_has_just_taken_in_or_heard_of() {
    let mut p = Proxy::asked_by_both();
    p.takes(0, 110);
    p.asks(0, 120);
    p.takes(1, 130);
    p.asks(1, 140);
    p.hears(0, 150);
    p.asks(0, 160);
    p.hears(0, 170);
    p.answers(0, 180);
    p.client_hears(0, 190);
    p.hears(1, 200);
    p.answers(1, 210);
    p.client_hears(1, 220);
    let parents = [120, 140, 160].map(|asked_ns| p.parent(asked_ns));
    assert_eq!(parents, [Some((0, false)), Some((1, false)), Some((0, false))]);
    // The second client's request came after the first question was asked, and was the only one left when the second
    // was asked.
    let certainties = [120, 140, 160].map(|asked_ns| p.certainty(asked_ns).map(|told| told.1));
    assert_eq!(certainties, [Some(Certainty::Sure); 3]);
}

#[test]
fn of_several_taken_in_together_what_is_answered_just_after_tells_which_it_is_for() {
    let mut p = Proxy::taken_from_both();
    p.asks(0, 120);
    p.hears(0, 130);
    p.answers(0, 140);
    p.client_hears(0, 150);
    // The remaining request was read together with the other one.
    p.asks(1, 160);
    p.hears(1, 170);
    p.answers(1, 180);
    p.client_hears(1, 190);
    assert_eq!(p.certainty(120), Some((0, Certainty::Likely)));
    assert_eq!(p.certainty(160), Some((1, Certainty::Sure)), "the only one left");
}

#[test]
fn of_several_taken_in_together_nothing_else_tells_which_it_is_for() {
    let mut p = Proxy::taken_from_both();
    p.asks(0, 120);
    p.hears(0, 130);
    // For the same request, or for the other one?
    p.asks(1, 140);
    p.hears(1, 150);
    p.answers(0, 160);
    p.answers(1, 170);
    p.client_hears(0, 180);
    p.client_hears(1, 190);
    assert_eq!(p.certainty(120), None);
    assert_eq!(p.certainty(140), Some((0, Certainty::Likely)));
}

/// An event loop that reads all that is ready, and then goes on with each request.
#[test]
fn as_many_are_asked_and_answered_in_the_order_in_which_they_were_taken_in() {
    let mut p = Proxy::taken_from_both();
    p.asks(0, 120);
    p.asks(1, 130);
    p.hears_both_and_answers();
    let [first, second] = [120, 130].map(|asked_ns| p.certainty(asked_ns));
    assert_eq!([first, second], [Some((0, Certainty::Likely)), Some((1, Certainty::Likely))]);
}

/// HAProxy reads all that is ready, then sends a request for each, then passes all answers on. If places were counted
/// over everything that was read, each answer would be attributed to its neighbour, at both ends.
#[test]
fn questions_and_answers_read_together_are_each_gone_on_with_in_their_order() {
    let mut p = Proxy::new();
    p.client_asks(2, 100);
    p.takes(2, 110);
    p.asks(2, 120);
    p.client_asks(0, 130);
    p.client_asks(1, 135);
    p.hears(2, 140);
    p.takes(0, 150);
    p.takes(1, 160);
    p.asks(0, 170);
    p.asks(1, 180);
    p.answers(2, 190);
    p.client_hears(2, 200);
    p.client_asks(2, 205);
    p.hears(0, 210);
    p.hears(1, 220);
    p.takes(2, 230);
    p.asks(2, 240);
    p.answers(0, 250);
    p.answers(1, 260);
    p.client_hears(0, 270);
    p.client_hears(1, 270);
    p.hears(2, 280);
    p.answers(2, 290);
    p.client_hears(2, 300);
    let certainties = [170, 180, 240].map(|asked_ns| p.certainty(asked_ns));
    let likely = |which| Some((which, Certainty::Likely));
    // The last request is also the only one served from then until it is answered.
    assert_eq!(certainties, [likely(0), likely(1), Some((2, Certainty::Sure))]);
}

/// Another request is sent as well, so it is not known which place belongs to which.
#[test]
fn more_given_out_than_taken_in_tells_nothing_by_its_place() {
    let mut p = Proxy::taken_from_both();
    p.asks(0, 120);
    p.asks(1, 130);
    p.asks(2, 135);
    p.hears_both_and_answers();
    assert_eq!([120, 130].map(|asked_ns| p.certainty(asked_ns)), [None, None]);
}

#[test]
fn what_its_parent_did_not_wait_for_is_detached() {
    let mut p = Proxy::new();
    p.client_asks(0, 100);
    p.takes(0, 110);
    p.asks(0, 120);
    p.answers(0, 130);
    p.client_hears(0, 140);
    p.hears(0, 150);
    // Sent after the answer: for no request.
    p.asks(1, 160);
    p.hears(1, 170);
    // A request whose answer is read before its parent's answer is sent belongs to that parent.
    p.client_asks(1, 180);
    p.takes(1, 190);
    p.asks(0, 200);
    p.hears(0, 210);
    p.answers(1, 220);
    p.client_hears(1, 230);
    assert_eq!([120, 160, 200].map(|ns| p.parent(ns)), [Some((0, true)), None, Some((1, false))]);
}

/// The server rests between reading two requests and asking the untraced server, and again before it answers both:
/// nothing it does shows for which of them it asked.
fn asked_between_rests() -> Proxy {
    let mut p = Proxy::taken_from_both();
    p.rests((120, 130));
    p.asks(0, 140);
    p.s.arrives(p.backs[0].back, 4, 160);
    p.rests((148, 161));
    p.hears(0, 170);
    p.rests((178, 190));
    p.answers(0, 200);
    p.answers(1, 210);
    p.client_hears(0, 220);
    p.client_hears(1, 230);
    p
}

/// What the server worked and waited for, and whether that is modelled, in the request of the second client.
#[test]
fn what_the_steps_of_all_requests_show_is_known_in_the_next_pass() {
    let p = asked_between_rests();
    assert_eq!(p.certainty(140), None);
    let answers = p.knowing(&[(0, 1)]);
    assert_eq!(p.told_in(&answers, 140), Some((1, Certainty::Guessed, false)));
    let (_, segments) = answers.iter().find(|(row, _)| row.start_ns == 105).expect("it");
    let answer = "
        131-132 server kernel.poll
        132-140 server user
        140-143 server kernel.tcp
        143-147 server user
        147-148 server kernel.poll
        148-160 server idle.peer
        160-161 server queue.socket (asleep)
        161-162 server runqueue.wakeup by idle
        162-163 server kernel.poll
        163-170 server user
        170-173 server kernel.tcp
        173-177 server user
        177-178 server kernel.poll
    ";
    let (from_ns, to_ns) = (131, 178);
    let inside = |of: &&Segment| of.start_ns >= from_ns && of.end_ns() <= to_ns;
    let inside: Vec<Segment> = segments.iter().filter(inside).cloned().collect();
    assert_eq!(table(&inside), expected(answer));
    let measured = inside.iter().filter(|of| of.evidence == Evidence::Measured);
    let measured: Vec<_> = measured.map(|of| of.start_ns).collect();
    assert_eq!(measured, [0; 0], "inferred, as the parent is");
    // Nothing of the other request is told as waiting for what was not asked for it.
    let (_, others) = answers.iter().find(|(row, _)| row.start_ns == 100).expect("it");
    assert!(!others.iter().any(|of| of.category == Category::QueueSocket && of.start_ns == 160));
}

#[test]
fn what_evidence_shows_stays_and_a_parent_is_one_that_was_served_then() {
    let p = asked_between_rests();
    let third = p.knowing(&[(0, 2)]);
    assert_eq!(p.told_in(&third, 140), None, "the third client asks later");
    let mut p = Proxy::asked_by_both();
    p.takes(0, 110);
    p.asks(0, 120);
    p.takes(1, 130);
    p.hears(0, 140);
    p.answers(0, 150);
    p.client_hears(0, 160);
    p.answers(1, 170);
    p.client_hears(1, 180);
    assert_eq!(p.certainty(120), Some((0, Certainty::Sure)));
    assert_eq!(p.told_in(&p.knowing(&[(0, 1)]), 120), Some((0, Certainty::Sure, false)));
}

/// Thread 20 of a server reads a request and leaves it in memory. Thread 21 has waited for work since before, and is
/// woken by thread 22, which is done with something else. It asks an untraced server, and wakes thread 20 when it has
/// heard the answer. As Varnish does when it has too few threads.
#[test]
fn a_thread_that_asked_for_the_request_had_it_whoever_woke_that_thread() {
    let mut s = Story::new();
    let [front, back] = [1, 2].map(|number| Connection::numbered(number, TYPE_TCP));
    s.task(22, 20, "other");
    for (cpu, tid) in [(0, 10), (1, 20), (2, 21), (3, 22)] {
        s.switch(10, cpu, IDLE, tid, RUNNABLE);
    }
    s.sleep_in(30, 2, (21, IDLE), (FUTEX, 28), condition(0x300));
    front.asks(&mut s, 10, (0, 4), (100, 103));
    front.hears(&mut s, 1, 20, (0, 4), (105, 108));
    s.sleep_in(115, 1, (20, IDLE), (FUTEX, 112), condition(0x200));
    s.wake(130, 3, 22, 21, WAKING_IN_SYSCALL);
    s.call(3, 22, FUTEX, (128, 132), 1);
    s.switch(134, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, FUTEX, (28, 136), 0);
    s.moved(2, 21, (SENDTO, back.there, back.back), (0, 4), (140, 143));
    s.switch_in(150, 2, 21, IDLE, ASLEEP, (POLL, 148), None);
    s.arrives(back.back, 4, 170);
    s.wake(171, 2, IDLE, 21, WAKING_SOFTIRQ);
    s.switch(173, 2, IDLE, 21, RUNNABLE);
    s.call(2, 21, POLL, (148, 175), 1);
    s.moved(2, 21, (RECVFROM, back.back, back.there), (0, 4), (178, 181));
    s.wake(190, 2, 21, 20, WAKING_IN_SYSCALL);
    s.call(2, 21, FUTEX, (188, 192), 1);
    s.switch(194, 1, IDLE, 20, RUNNABLE);
    s.call(1, 20, FUTEX, (112, 196), 0);
    front.answers(&mut s, 1, 20, (0, 4), (200, 203));
    front.gets(&mut s, 10, (0, 4), (210, 213));
    let mut engine = Engine::new(4, 0, Rates::default());
    engine.know_parents(Rc::new([((back.there, 0), (front.there, 0))].into_iter().collect()));
    let answers = explain_with(engine, &s.events());
    let (_, segments) = answers.iter().find(|(row, _)| row.start_ns == 100).expect("it");
    let answer = "
        100-103 client kernel.tcp
        103-105 server queue.socket (user)
        105-108 server kernel.tcp
        108-130 helper queue.app (asleep)
        130-134 helper runqueue.wakeup by idle
        134-136 helper kernel.futex
        136-140 helper user
        140-143 helper kernel.tcp
        143-148 helper user
        148-150 helper kernel.poll
        150-170 helper idle.peer
        170-171 helper queue.socket (asleep)
        171-173 helper runqueue.wakeup by idle
        173-175 helper kernel.poll
        175-178 helper user
        178-181 helper kernel.tcp
        181-188 helper user
        188-190 helper kernel.futex
        190-194 server runqueue.wakeup by idle
        194-196 server kernel.futex
        196-200 server user
        200-203 server kernel.tcp
        203-210 client queue.socket (user)
        210-213 client kernel.tcp
    ";
    assert_eq!(table(segments), expected(answer));
}
