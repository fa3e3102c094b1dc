use crate::event::{Call, Event, GapWhy, Io, Method, Object, Protocol, Unit, What, TYPE_TCP};
use crate::send_limit::SendLimit;
use crate::{Engine, Rates};
use rpcprobe_model::{check_conservation, Kind, Reason, Request, Rule, Segment, Segments, Who};
use rpcprobe_record::{UNIT_LAST, UNIT_MORE, UNIT_REQUEST, UNIT_RESPONSE};

mod asked_together;
mod closed;
mod late_questions;

const CLIENT: u32 = 10;
const SERVER: u32 = 20;
const SENDTO: u16 = 44;
const RECVFROM: u16 = 45;

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_HEADERS: u8 = 4;
const END: u8 = 1;

fn channel(number: u64) -> Object {
    Object { dev: 0, ino: number, type_bits: TYPE_TCP }
}

const ASKS: u64 = 1;
const ANSWERS: u64 = 2;

/// What one end or both ends of a connection did, and the protocol that they speak.
struct Story {
    events: Vec<Event>,
    protocol: Protocol,
}

impl Story {
    fn new(protocol: Protocol) -> Story {
        let task = |tid: u32, comm: &str| {
            event(0, What::Task { tid, tgid: tid, kthread: false, comm: comm.into() })
        };
        Story { events: vec![task(CLIENT, "client"), task(SERVER, "server")], protocol }
    }

    /// Adds bytes moved by a call, reported when the call ends.
    fn moved(&mut self, tid: u32, on: u64, bytes: (u64, u64), span: (u64, u64)) {
        let is_write = (tid == CLIENT) == (on == ASKS);
        self.moved_between(tid, is_write, [on, ASKS + ANSWERS - on], bytes, span);
    }

    /// The same on a channel of any connection; `back` is its other direction.
    fn moved_between(
        &mut self,
        tid: u32,
        is_write: bool,
        [on, back]: [u64; 2],
        bytes: (u64, u64),
        span: (u64, u64),
    ) {
        let io = Io {
            object: channel(on),
            fd: 3,
            is_write,
            offset: bytes.0,
            bytes: bytes.1 - bytes.0,
            reverse: Some(channel(back)),
            empty: false,
            unsent: SendLimit::default(),
            socket: 0,
        };
        let call = Call {
            io: Some(io),
            ..Call::new(if is_write { SENDTO } else { RECVFROM }, (span.0, span.1), io.bytes as i64)
        };
        self.events.push(event(span.1, What::Call { tid, call }));
    }

    fn unit(&mut self, ts_ns: u64, on: u64, bytes: (u64, u64), id: u32, kind: u8, flags: u8) {
        let channels = [on, ASKS + ANSWERS - on];
        self.unit_between(ts_ns, channels, on == ASKS, bytes, (id, kind, flags));
    }

    /// The same on a channel of any connection; `back` is its other direction.
    fn unit_between(
        &mut self,
        ts_ns: u64,
        [on, back]: [u64; 2],
        asks: bool,
        bytes: (u64, u64),
        (id, kind, flags): (u32, u8, u8),
    ) {
        let unit = Unit {
            channel: channel(on),
            reverse: channel(back),
            from: bytes.0,
            to: bytes.1,
            protocol: self.protocol,
            id,
            kind,
            flags,
            after_gap: false,
            named: false,
            from_client: Some(asks),
            numbers: [0; 3],
            status_known: false,
        };
        self.events.push(event(ts_ns, What::Unit(Box::new(unit))));
    }

    /// Changes details of the last unit.
    fn but(&mut self, change: impl FnOnce(&mut Unit)) {
        match self.events.last_mut().map(|event| &mut event.what) {
            Some(What::Unit(unit)) => change(unit),
            other => panic!("{other:?}"),
        }
    }

    /// The requests in order of their begin.
    fn told(self) -> Vec<Request> {
        let mut told = self.found();
        told.sort_by_key(|request| (request.start_ns, request.stream_id));
        told
    }

    /// The requests in the order in which they were found.
    fn found(mut self) -> Vec<Request> {
        self.events.sort_by_key(|event| event.ts_ns);
        let mut engine = Engine::new(1, 0, Rates::default());
        let mut found = Vec::new();
        let mut sink = |request: Request, segments: Segments| {
            if request.complete {
                check_conservation(&request, &segments.list).expect("the law of conservation");
            }
            found.push(request);
            Ok(())
        };
        for event in &self.events {
            engine.push(event, &mut sink).unwrap();
        }
        engine.finish(Some(10_000_000_000), &mut sink).unwrap();
        found
    }
}

fn event(ts_ns: u64, what: What) -> Event {
    Event { ts_ns, cpu: 0, what }
}

/// Stream, begin, latency, bytes each way.
fn brief(request: &Request) -> (Option<u64>, u64, u64, Option<u64>, Option<u64>) {
    assert!(request.complete, "{request:?}");
    let bytes = (request.request_bytes, request.response_bytes);
    (request.stream_id, request.start_ns, request.latency_ns, bytes.0, bytes.1)
}

/// Two streams; the second is answered first, and the answers share calls.
fn two_streams(ends: &[u32]) -> Vec<Request> {
    let mut s = Story::new(Protocol::Http2);
    let at = |tid| ends.contains(&tid);
    if at(CLIENT) {
        s.moved(CLIENT, ASKS, (100, 150), (1000, 1010));
        s.moved(CLIENT, ASKS, (150, 200), (1020, 1030));
        s.moved(CLIENT, ANSWERS, (500, 560), (1040, 1200));
        s.moved(CLIENT, ANSWERS, (560, 600), (1210, 1300));
    }
    if at(SERVER) {
        s.moved(SERVER, ASKS, (100, 200), (1005, 1050));
        s.moved(SERVER, ANSWERS, (500, 560), (1150, 1160));
        s.moved(SERVER, ANSWERS, (560, 600), (1250, 1260));
    }
    let (asked, answered) = if at(CLIENT) { (1010, 1200) } else { (1050, 1160) };
    s.unit(asked, ASKS, (100, 130), 1, HEADERS, END_HEADERS);
    s.unit(asked, ASKS, (130, 150), 1, DATA, END);
    s.unit(asked + 20, ASKS, (150, 200), 3, HEADERS, END_HEADERS | END);
    s.unit(answered, ANSWERS, (500, 510), 1, HEADERS, END_HEADERS);
    s.unit(answered, ANSWERS, (510, 530), 3, HEADERS, END_HEADERS);
    s.unit(answered, ANSWERS, (530, 550), 3, DATA, END);
    s.unit(answered, ANSWERS, (550, 560), 1, DATA, 0);
    s.unit(answered + 100, ANSWERS, (560, 600), 1, HEADERS, END_HEADERS | END);
    s.told()
}

#[test]
fn streams_are_kept_apart() {
    let requests = two_streams(&[CLIENT, SERVER]);
    let brief: Vec<_> = requests.iter().map(brief).collect();
    let first = (Some(1), 1000, 300, Some(50), Some(60));
    let second = (Some(3), 1020, 180, Some(50), Some(40));
    assert_eq!(brief, [first, second]);
    for request in &requests {
        assert_eq!(request.kind, Kind::Http2);
        assert_eq!(request.client.as_ref().map(|end| end.pid), Some(CLIENT));
        assert_eq!(request.server.as_ref().map(|end| end.pid), Some(SERVER));
    }
}

#[test]
fn one_end_alone() {
    let requests = two_streams(&[CLIENT]);
    let times: Vec<_> = requests.iter().map(|r| (r.start_ns, r.latency_ns)).collect();
    assert_eq!(times, [(1000, 300), (1020, 180)]);
    assert!(requests.iter().all(|request| request.server.is_none() && request.complete));

    let requests = two_streams(&[SERVER]);
    let times: Vec<_> = requests.iter().map(|r| (r.start_ns, r.latency_ns)).collect();
    assert_eq!(times, [(1005, 255), (1005, 155)], "from the begin of the read on");
    assert!(requests.iter().all(|request| request.client.is_none() && request.complete));
}

#[test]
fn what_both_ends_tell_is_told_once() {
    let mut s = Story::new(Protocol::Http2);
    s.moved(CLIENT, ASKS, (0, 50), (1000, 1100));
    s.moved(SERVER, ASKS, (0, 50), (1005, 1020));
    s.moved(SERVER, ANSWERS, (0, 40), (1050, 1060));
    s.moved(CLIENT, ANSWERS, (0, 40), (1110, 1120));
    // The client's call ends after the answer is written, so its frames are reported last.
    s.unit(1020, ASKS, (0, 50), 1, HEADERS, END_HEADERS | END);
    s.unit(1060, ANSWERS, (0, 40), 1, HEADERS, END_HEADERS | END);
    s.unit(1100, ASKS, (0, 50), 1, HEADERS, END_HEADERS | END);
    s.unit(1120, ANSWERS, (0, 40), 1, HEADERS, END_HEADERS | END);
    let requests = s.told();
    assert_eq!(
        requests.iter().map(brief).collect::<Vec<_>>(),
        [(Some(1), 1000, 120, Some(50), Some(40))]
    );
}

#[test]
fn an_answer_may_be_told_before_its_question() {
    let mut s = Story::new(Protocol::Resp);
    s.moved(SERVER, ASKS, (0, 50), (1005, 1020));
    s.moved(SERVER, ANSWERS, (0, 40), (1050, 1060));
    s.moved(CLIENT, ASKS, (0, 50), (1000, 1100));
    s.moved(CLIENT, ANSWERS, (0, 40), (1110, 1120));
    s.unit(1060, ANSWERS, (0, 40), 0, UNIT_RESPONSE, UNIT_LAST);
    s.unit(1100, ASKS, (0, 50), 0, UNIT_REQUEST, UNIT_LAST);
    let requests = s.told();
    assert_eq!(
        requests.iter().map(brief).collect::<Vec<_>>(),
        [(None, 1000, 120, Some(50), Some(40))]
    );
}

#[test]
fn pipelined_questions_are_answered_in_order() {
    let mut s = Story::new(Protocol::Http1);
    s.moved(CLIENT, ASKS, (0, 60), (1000, 1010));
    s.moved(SERVER, ASKS, (0, 60), (1005, 1020));
    s.moved(SERVER, ANSWERS, (0, 50), (1050, 1060));
    s.moved(SERVER, ANSWERS, (50, 90), (1070, 1080));
    s.moved(CLIENT, ANSWERS, (0, 20), (1040, 1062));
    s.moved(CLIENT, ANSWERS, (20, 90), (1064, 1090));
    for from in [0, 20, 40] {
        s.unit(1010, ASKS, (from, from + 20), 0, UNIT_REQUEST, UNIT_LAST);
        if from == 20 {
            s.but(|unit| unit.numbers[0] = 0x4845_4144); // "HEAD"
        }
    }
    s.unit(1060, ANSWERS, (0, 10), 0, UNIT_RESPONSE, 0);
    s.unit(1060, ANSWERS, (10, 20), 0, UNIT_MORE, UNIT_LAST);
    // The second says that 1000 bytes follow its head of 30.
    s.unit(1060, ANSWERS, (20, 1050), 0, UNIT_RESPONSE, UNIT_LAST);
    s.but(|unit| unit.numbers = [200, 30, 0]);
    s.unit(1080, ANSWERS, (50, 90), 0, UNIT_RESPONSE, UNIT_LAST);
    let requests = s.told();
    let told: Vec<_> = requests.iter().map(|r| (r.latency_ns, r.response_bytes)).collect();
    let expected = [(62, Some(20)), (90, Some(30)), (90, Some(40))];
    assert_eq!(told.iter().filter(|told| !expected.contains(told)).count(), 0, "{told:?}");
    assert_eq!(told.len(), 3);
}

#[test]
fn a_reset_and_a_server_that_goes_away() {
    let mut s = Story::new(Protocol::Http2);
    s.moved(CLIENT, ASKS, (0, 90), (1000, 1010));
    s.moved(SERVER, ASKS, (0, 90), (1005, 1020));
    s.moved(SERVER, ANSWERS, (0, 40), (1050, 1060));
    s.moved(CLIENT, ANSWERS, (0, 40), (1040, 1070));
    for (stream, from) in [(1, 0), (3, 30), (5, 60)] {
        s.unit(1010, ASKS, (from, from + 30), stream, HEADERS, END_HEADERS | END);
    }
    s.unit(1060, ANSWERS, (0, 13), 1, RST_STREAM, 0);
    s.but(|unit| unit.numbers[0] = 8);
    s.unit(1060, ANSWERS, (13, 30), 0, GOAWAY, 0);
    s.but(|unit| unit.numbers[0] = 3);
    let requests = s.told();
    let reasons: Vec<_> = requests.into_iter().filter_map(|r| r.reason).collect();
    assert_eq!(
        reasons,
        [Reason::Reset { who: Who::Server, code: 8 }, Reason::CaptureEnded, Reason::Refused,]
    );
}

#[test]
fn methods_come_late() {
    let mut s = Story::new(Protocol::Http2);
    s.moved(CLIENT, ASKS, (0, 50), (1000, 1010));
    s.moved(CLIENT, ANSWERS, (0, 40), (1020, 1030));
    s.unit(1010, ASKS, (0, 50), 1, HEADERS, END_HEADERS | END);
    s.but(|unit| unit.named = true);
    s.unit(1030, ANSWERS, (0, 40), 1, HEADERS, END_HEADERS | END);
    s.but(|unit| unit.named = true);
    for (ts_ns, on, asks) in [(1031, ASKS, true), (1032, ANSWERS, false)] {
        let method = Method {
            channel: channel(on),
            offset: 0,
            id: 1,
            asks: Some(asks),
            path: asks.then(|| "/a.B/C".into()),
            status: None,
            result: (!asks).then_some(5),
        };
        s.events.push(event(ts_ns, What::Method(Box::new(method))));
    }
    let requests = s.told();
    assert_eq!((requests[0].method.as_deref(), requests[0].status), (Some("/a.B/C"), Some(5)));
}

/// Adds `count` questions at once, then their answers. Each has 10 bytes. The units in `lost`, named by channel and
/// first byte, are lost.
fn batch(s: &mut Story, first: u64, count: u64, at_ns: u64, lost: &[(u64, u64)]) {
    let mut move_all = |asks: bool, from_ns: u64| {
        let (on, kind) = if asks { (ASKS, UNIT_REQUEST) } else { (ANSWERS, UNIT_RESPONSE) };
        let (sender, reader) = if asks { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        for number in 0..count {
            let from = 10 * (first + number);
            let now_ns = from_ns + 20 * number;
            s.moved(sender, on, (from, from + 10), (now_ns, now_ns + 10));
            s.moved(reader, on, (from, from + 10), (now_ns + 11, now_ns + 15));
            if lost.contains(&(on, from)) {
                let (first_ns, last_ns) = (now_ns + 10, now_ns + 10);
                s.events.push(event(last_ns, What::Lost { count: 1, first_ns, last_ns }));
            } else {
                s.unit(now_ns + 10, on, (from, from + 10), 0, kind, UNIT_LAST);
            }
        }
    };
    move_all(true, at_ns);
    move_all(false, at_ns + 500);
}

/// Begin, end, and the reason if it is incomplete, of each request.
fn windows(s: Story) -> Vec<(u64, u64, Option<Reason>)> {
    let window = |r: Request| (r.start_ns, r.start_ns + r.latency_ns, r.reason);
    s.told().into_iter().map(window).collect()
}

#[test]
fn after_a_loss_no_answer_is_given_to_the_wrong_question() {
    let mut s = Story::new(Protocol::Resp);
    for round in 0..10 {
        batch(&mut s, 3 * round, 3, 1000 * (round + 1), &[]);
    }
    // The second answer of a batch is lost, so the third answer would be taken for the second.
    batch(&mut s, 30, 3, 11_000, &[(ANSWERS, 310)]);
    batch(&mut s, 33, 3, 12_000, &[]);
    let windows = windows(s);
    let reason = |start_ns: u64| {
        let found = windows.iter().find(|(at_ns, ..)| *at_ns == start_ns);
        found.map(|(.., reason)| reason.clone())
    };
    assert_eq!(reason(11_000), Some(None));
    assert_eq!(reason(11_020), Some(Some(Reason::RecordsLostBeforeAnswer)));
    assert_eq!(reason(11_040), Some(Some(Reason::RecordsLostBeforeAnswer)));
    // As many questions are open as ever were at once, so there are no unknown questions.
    for start_ns in [12_000, 12_020, 12_040] {
        assert!(windows.contains(&(start_ns, start_ns + 515, None)), "{windows:?}");
    }
}

#[test]
fn a_lost_question_leaves_its_answer_to_nobody() {
    let mut s = Story::new(Protocol::Http1);
    for round in 0..3 {
        batch(&mut s, 3 * round, 3, 1000 * (round + 1), &[]);
    }
    // Too few batches to say that there never are more than three.
    batch(&mut s, 9, 3, 4000, &[(ASKS, 100)]);
    batch(&mut s, 12, 3, 5000, &[]);
    // The connection rests before, so nothing is open.
    batch(&mut s, 15, 3, 200_000_000, &[]);
    for (start_ns, end_ns, reason) in windows(s) {
        match start_ns {
            4000 | 4040 => assert!(reason.is_some()),
            5000..6000 => assert_eq!(reason, Some(Reason::RecordsLostBefore)),
            _ => assert_eq!((end_ns, reason), (start_ns + 515, None)),
        }
    }
}

/// Replaces losses by gaps of a channel: the messages that begin there are not reported, but the gap is.
fn gaps_for_losses(s: &mut Story, on: u64, why: GapWhy) {
    for event in &mut s.events {
        if matches!(event.what, What::Lost { .. }) {
            event.what = What::Gap { channel: channel(on), why };
        }
    }
}

const LONG: Reason = Reason::NotFollowed { why: GapWhy::Long };

/// Questions whose answers may be in a gap are incomplete, with the reason.
#[test]
fn what_could_not_be_followed_is_no_answer() {
    let mut s = Story::new(Protocol::Resp);
    for round in 0..3 {
        batch(&mut s, 3 * round, 3, 1000 * (round + 1), &[]);
    }
    batch(&mut s, 9, 3, 4000, &[(ANSWERS, 100)]);
    gaps_for_losses(&mut s, ANSWERS, GapWhy::Long);
    batch(&mut s, 12, 3, 200_000_000, &[]);
    for (start_ns, end_ns, reason) in windows(s) {
        match start_ns {
            4020 | 4040 => assert_eq!(reason, Some(LONG), "{start_ns}"),
            _ => assert_eq!((end_ns, reason), (start_ns + 515, None)),
        }
    }
}

/// A server's thread is delayed at the end of its write, so its answer is reported after the client's next question.
/// This does not count as two questions that were open at once. So, after a gap in the answers, it is known that the
/// client has one question open at a time.
#[test]
fn an_answer_told_late_leaves_no_doubt_of_how_many_are_open() {
    let mut s = Story::new(Protocol::Resp);
    for number in 0..10 {
        batch(&mut s, number, 1, 1000 * (number + 1), &[]);
    }
    for event in &mut s.events {
        match &mut event.what {
            What::Unit(unit) if (unit.channel, unit.from) == (channel(ANSWERS), 40) => {
                event.ts_ns = 6020;
            }
            What::Call { tid: SERVER, call }
                if call.io.is_some_and(|io| io.is_write && io.offset == 40) =>
            {
                (call.exit_ns, event.ts_ns) = (6020, 6020);
            }
            _ => {}
        }
    }
    batch(&mut s, 10, 1, 12_000, &[(ANSWERS, 100)]);
    gaps_for_losses(&mut s, ANSWERS, GapWhy::Busy);
    batch(&mut s, 11, 1, 13_000, &[]);
    batch(&mut s, 12, 3, 14_000, &[]);
    for (start_ns, end_ns, reason) in windows(s) {
        match start_ns {
            12_000 => assert_eq!(reason, Some(Reason::NotFollowed { why: GapWhy::Busy })),
            _ => assert_eq!((end_ns, reason), (start_ns + 515, None), "{start_ns}"),
        }
    }
}

/// Questions before the gap have their answers. For questions since then it is not known which answers belong to them.
#[test]
fn questions_that_could_not_be_followed_leave_later_answers_in_doubt() {
    let mut s = Story::new(Protocol::Resp);
    for round in 0..3 {
        batch(&mut s, 3 * round, 3, 1000 * (round + 1), &[]);
    }
    batch(&mut s, 9, 2, 4000, &[]);
    s.events.push(event(4900, What::Gap { channel: channel(ASKS), why: GapWhy::Long }));
    batch(&mut s, 20, 2, 5000, &[]);
    let first_after = s.events.iter_mut().find_map(|event| match &mut event.what {
        What::Unit(unit) if unit.channel == channel(ASKS) && unit.from == 200 => Some(unit),
        _ => None,
    });
    first_after.expect("a unit").after_gap = true;
    for (start_ns, end_ns, reason) in windows(s) {
        match start_ns {
            5000..6000 => assert_eq!(reason, Some(Reason::NotFollowedBefore { why: GapWhy::Long })),
            _ => assert_eq!((end_ns, reason), (start_ns + 515, None)),
        }
    }
}

#[test]
fn streams_that_could_not_be_followed_say_why() {
    let mut s = Story::new(Protocol::Http2);
    let exchange = |s: &mut Story, id: u32, at_ns: u64| {
        let from = u64::from(id) * 100;
        s.moved(CLIENT, ASKS, (from, from + 100), (at_ns, at_ns + 10));
        s.unit(at_ns + 10, ASKS, (from, from + 100), id, HEADERS, END | END_HEADERS);
        s.moved(SERVER, ASKS, (from, from + 100), (at_ns + 11, at_ns + 15));
        s.moved(SERVER, ANSWERS, (from, from + 100), (at_ns + 100, at_ns + 110));
        s.unit(at_ns + 110, ANSWERS, (from, from + 100), id, HEADERS, END | END_HEADERS);
        s.moved(CLIENT, ANSWERS, (from, from + 100), (at_ns + 111, at_ns + 115));
    };
    exchange(&mut s, 1, 1000);
    exchange(&mut s, 3, 2000);
    let gap = |on| What::Gap { channel: channel(on), why: GapWhy::Long };
    s.events.push(event(2050, gap(ANSWERS)));
    exchange(&mut s, 5, 3000);
    s.events.push(event(3050, gap(ASKS)));
    exchange(&mut s, 7, 4000);
    let reasons: Vec<_> = s.told().into_iter().map(|r| (r.stream_id, r.reason)).collect();
    let long = || Some(LONG);
    assert_eq!(reasons, [(Some(1), None), (Some(3), long()), (Some(5), long()), (Some(7), None)]);
}
