//! Small traces of servers that send requests to servers, with answers derived by hand: which request each of these is
//! made for.

use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::laws::check_parents;
use rpcprobe::model::{Certainty, Request};

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

    /// For the request that the server sends at `asked_ns`: the client it is made for, how sure this is, and whether it
    /// is detached.
    fn told(&self, asked_ns: u64) -> Option<(usize, Certainty, bool)> {
        let requests = self.s.requests();
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
