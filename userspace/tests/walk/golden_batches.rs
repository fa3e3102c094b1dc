//! Small traces of event loops that have several requests at once and send a request to another server for each, with
//! answers derived by hand. The loop is thread 20 on CPU 1. It asks a thread of another process (30, CPU 2). Its
//! clients are not traced.

use rpcprobe::engine::event::TYPE_TCP;
use rpcprobe::model::Certainty;
use rpcprobe::records::{WAKING_IN_SYSCALL, WAKING_SOFTIRQ};

use super::connection::Connection;
use super::golden_calls::told;
use super::story::*;

struct Server {
    s: Story,
    fronts: [Connection; 2],
    behind: [Connection; 2],
}

impl Server {
    fn new() -> Server {
        let mut s = Story::new();
        s.switch(10, 1, IDLE, 20, RUNNABLE);
        s.task(30, 30, "behind");
        s.switch(10, 2, IDLE, 30, RUNNABLE);
        let numbered = |number| Connection::numbered(number, TYPE_TCP);
        Server { s, fronts: [1, 2].map(numbered), behind: [3, 4].map(numbered) }
    }

    /// A client's request arrives, and the loop reads it 2 ns later.
    fn takes(&mut self, which: usize, arrived_ns: u64) {
        let c = &self.fronts[which];
        self.s.arrives(c.there, 4, arrived_ns);
        c.hears(&mut self.s, 1, 20, (0, 4), (arrived_ns + 2, arrived_ns + 5));
    }

    fn answers(&mut self, which: usize, at_ns: u64) {
        self.fronts[which].answers(&mut self.s, 1, 20, (0, 4), (at_ns, at_ns + 5));
    }

    fn asks(&mut self, which: usize, at_ns: u64) {
        let c = &self.behind[which];
        self.s.moved(1, 20, (SENDTO, c.there, c.back), (0, 4), (at_ns, at_ns + 5));
        c.hears(&mut self.s, 2, 30, (0, 4), (at_ns + 6, at_ns + 9));
    }

    /// The answer of the server behind, which the loop reads 10 ns later.
    fn hears(&mut self, which: usize, answered_ns: u64) {
        let c = &self.behind[which];
        c.answers(&mut self.s, 2, 30, (0, 4), (answered_ns - 4, answered_ns));
        let span = (answered_ns + 10, answered_ns + 15);
        self.s.moved(1, 20, (RECVFROM, c.back, c.there), (0, 4), span);
    }

    fn rests(&mut self, from_ns: u64, until_ns: u64) {
        self.s.switch_in(from_ns + 2, 1, 20, IDLE, ASLEEP, (POLL, from_ns), None);
        self.s.wake(until_ns - 4, 1, IDLE, 20, WAKING_SOFTIRQ);
        self.s.switch(until_ns - 2, 1, IDLE, 20, RUNNABLE);
        self.s.call(1, 20, POLL, (from_ns, until_ns), 1);
    }

    /// The segments of the request that began at `start_ns`.
    fn told(&self, start_ns: u64) -> Vec<String> {
        told(&self.s, start_ns)
    }
}

/// The loop reads both requests, asks for the first, and then for the second. Each waits for what was asked for it, and
/// the second waits for its turn until the loop has asked for the first. Which of the two requests the first question
/// was for is known from the request that is answered once its answer has come.
#[test]
fn of_a_batch_one_is_asked_for_after_the_other() {
    let mut p = Server::new();
    p.takes(0, 100);
    p.takes(1, 104);
    p.asks(0, 120);
    p.asks(1, 130);
    p.hears(0, 150);
    p.answers(0, 170);
    // The first client sends its next request before the second question is answered.
    let again = &p.fronts[0];
    p.s.arrives(again.there, 8, 176);
    again.hears(&mut p.s, 1, 20, (4, 4), (177, 179));
    p.hears(1, 180);
    p.answers(1, 200);
    let first = [
        "100-102 queue.socket measured",
        "102-105 kernel.tcp measured",
        "105-106 user modelled",
        "106-109 queue.app modelled",
        "109-120 user modelled",
        "120-125 kernel.tcp modelled",
        "125-126 queue.socket modelled",
        "126-129 kernel.tcp modelled",
        "129-136 user modelled",
        "136-139 queue.app modelled",
        "139-146 user modelled",
        "146-150 kernel.tcp modelled",
        "150-160 queue.socket modelled",
        "160-165 kernel.tcp modelled",
        "165-170 user measured",
        "170-175 kernel.tcp measured",
    ];
    let second = [
        "104-106 queue.socket measured",
        "106-109 kernel.tcp measured",
        "109-125 queue.app modelled",
    ];
    assert_eq!(p.told(100), first);
    assert_eq!(p.told(104)[..3], second);
}

/// The loop rested before it asked, as a loop does that first has to connect. Only the answer shows that it asked for
/// this request. Since the question, the request waits for the server behind.
#[test]
fn what_is_known_late_to_be_asked_for_a_request_is_waited_for() {
    let mut p = Server::new();
    p.takes(0, 100);
    p.rests(108, 118);
    p.asks(0, 120);
    p.rests(128, 138);
    p.takes(1, 138);
    p.answers(1, 145);
    p.hears(0, 160);
    p.answers(0, 180);
    let shown = p.told(100);
    let asked = shown.iter().position(|line| line.starts_with("125-")).unwrap_or(0);
    let since_asked = [
        "125-126 queue.socket measured",
        "126-129 kernel.tcp measured",
        "129-156 user measured",
        "156-160 kernel.tcp measured",
        "160-170 queue.socket measured",
        "170-175 kernel.tcp measured",
        "175-180 user measured",
        "180-185 kernel.tcp measured",
    ];
    assert_eq!(shown[asked..], since_asked, "{shown:?}");
}

/// The loop hands requests to a worker (21, CPU 3). The worker asks for the first, reports the answer, and then asks
/// for the second, which it takes from memory. What it did until it reported was for the first.
#[test]
fn who_hands_an_answer_back_and_asks_for_another_served_the_first_until_then() {
    let mut p = Server::new();
    p.s.task(21, 20, "server");
    p.s.switch(11, 3, IDLE, 21, RUNNABLE);
    p.s.sleep_in(20, 3, (21, IDLE), (FUTEX, 15), condition(0x100));
    p.takes(0, 100);
    p.s.wake(110, 1, 20, 21, WAKING_IN_SYSCALL);
    p.s.call(1, 20, FUTEX, (108, 112), 1);
    p.s.switch(113, 3, IDLE, 21, RUNNABLE);
    p.s.call(3, 21, FUTEX, (15, 115), 0);
    p.rests(116, 132);
    let [first, second] = [0, 1].map(|which| (p.behind[which].there, p.behind[which].back));
    p.s.moved(3, 21, (SENDTO, first.0, first.1), (0, 4), (120, 125));
    p.takes(1, 132);
    p.s.switch_in(142, 1, 20, IDLE, ASLEEP, (POLL, 140), None);
    p.s.arrives(first.1, 4, 150);
    p.s.moved(3, 21, (RECVFROM, first.1, first.0), (0, 4), (160, 165));
    p.s.wake(168, 3, 21, 20, WAKING_IN_SYSCALL);
    p.s.call(3, 21, WRITE, (166, 170), 8);
    p.s.switch(172, 1, IDLE, 20, RUNNABLE);
    p.s.call(1, 20, POLL, (140, 174), 1);
    p.s.moved(3, 21, (SENDTO, second.0, second.1), (0, 4), (178, 183));
    p.answers(0, 180);
    p.s.arrives(second.1, 4, 200);
    p.s.moved(3, 21, (RECVFROM, second.1, second.0), (0, 4), (205, 210));
    p.answers(1, 230);
    let expected = [
        "100-102 queue.socket measured",
        "102-105 kernel.tcp measured",
        "105-108 user measured",
        "108-110 kernel.futex measured",
        "110-113 runqueue.wakeup measured",
        "113-115 kernel.futex measured",
        "115-120 user measured",
        "120-125 kernel.tcp modelled",
        "125-150 idle.peer modelled",
        "150-160 queue.socket modelled",
        "160-165 kernel.tcp modelled",
        "165-166 user modelled",
        "166-168 kernel.vfs modelled",
        "168-172 runqueue.wakeup measured",
        "172-174 kernel.poll modelled",
        "174-180 user modelled",
        "180-185 kernel.tcp measured",
    ];
    assert_eq!(p.told(100), expected);
}

/// The loop asks after a rest, with only one request open, which it had read in two pieces. The question must be for
/// this request, and sure.
#[test]
fn a_question_that_is_read_in_pieces_is_one() {
    let mut p = Server::new();
    let c = &p.fronts[0];
    p.s.arrives(c.there, 2, 100);
    c.hears(&mut p.s, 1, 20, (0, 2), (102, 105));
    p.s.arrives(c.there, 4, 107);
    c.hears(&mut p.s, 1, 20, (2, 2), (108, 110));
    p.rests(111, 118);
    p.asks(0, 120);
    p.hears(0, 150);
    p.answers(0, 170);
    let requests = p.s.requests();
    let child = requests.iter().find(|(request, _)| request.start_ns == 120);
    let certainty = child.and_then(|(request, _)| request.parent_certainty);
    assert_eq!(certainty, Some(Certainty::Sure));
}
