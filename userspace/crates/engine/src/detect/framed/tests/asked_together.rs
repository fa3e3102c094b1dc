//! A client asks on many streams by the same calls, with much in between, and hears the answers one by one. What it did
//! until its questions were out is reported for each request as if the request had been walked by itself.

use super::*;

const PREAD: u16 = 17;
const STREAMS: u64 = 6;
const HEAD: u64 = 30;
const BODY: u64 = 10;

fn story() -> Vec<Event> {
    let mut s = Story::new(Protocol::Http2);
    let id = |stream: u64| 1 + 2 * stream as u32;
    let heads = STREAMS * HEAD;
    s.moved(CLIENT, ASKS, (0, heads), (1000, 1100));
    for call in 0..40 {
        let span = (1110 + 20 * call, 1120 + 20 * call);
        let call = Call::new(PREAD, span, 1);
        s.events.push(event(span.1, What::Call { tid: CLIENT, call }));
    }
    s.moved(CLIENT, ASKS, (heads, heads + STREAMS * BODY), (2000, 2100));
    for stream in 0..STREAMS {
        let (head, body) = (stream * HEAD, heads + stream * BODY);
        s.unit(1100, ASKS, (head, head + HEAD), id(stream), HEADERS, END_HEADERS);
        s.unit(2100, ASKS, (body, body + BODY), id(stream), DATA, END);
        let (from, at_ns) = (stream * 40, 3000 + stream * 500);
        let (object, end) = (channel(ANSWERS), from + 40);
        s.events.push(event(at_ns, What::Arrival { object, end, arrived_ns: at_ns }));
        s.moved(CLIENT, ANSWERS, (from, end), (at_ns + 10, at_ns + 20));
        s.unit(at_ns + 20, ANSWERS, (from, end), id(stream), HEADERS, END_HEADERS | END);
    }
    s.events.sort_by_key(|event| event.ts_ns);
    s.events
}

/// The requests with their segments; and the number of begins that are remembered.
fn told(alone: bool) -> (Vec<(Request, Segments)>, usize) {
    let mut engine = Engine::new(1, 0, Rates::default());
    if alone {
        engine.walk_alone();
    }
    let mut told = Vec::new();
    let mut sink = |request: Request, segments: Segments| {
        check_conservation(&request, &segments.list).expect("the law of conservation");
        told.push((request, segments));
        Ok(())
    };
    for event in story() {
        engine.push(&event, &mut sink).unwrap();
    }
    engine.finish(Some(10_000_000_000), &mut sink).unwrap();
    let known = engine.asking.len();
    (told, known)
}

#[test]
fn what_was_done_before_they_were_asked_is_told_again() {
    let ((together, known), (alone, none)) = (told(false), told(true));
    assert!(known > 0 && none == 0, "{known} and {none} remembered");
    assert_eq!(together.len() as u64, STREAMS);
    let in_words = |told: Vec<(Request, Segments)>| -> Vec<_> {
        told.into_iter().map(|(request, segments)| (request, segments.in_words())).collect()
    };
    let (together, alone) = (in_words(together), in_words(alone));
    assert_eq!(together, alone);
    let waits = |of: &(Request, Vec<Segment>)| {
        of.1.iter().filter(|segment| segment.rule == Some(Rule::Claimed)).count()
    };
    let waits: Vec<_> = together.iter().map(waits).collect();
    assert_eq!(waits, [0, 1, 1, 1, 1, 1], "the first has done it, the others waited");
}
