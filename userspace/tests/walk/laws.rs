//! Properties that hold for every trace of the simulated machine.

use proptest::prelude::*;
use rpcprobe::engine::event::{Event, What};
use rpcprobe::engine::walk::HANDED_UNSEEN;
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::laws::check_exclusive;
use rpcprobe::model::{
    category_ns, check_conservation, Category, Evidence, Kind, Request, Rule, Segment, Segments,
};

use super::damage::{damaged, wrongs};
use super::programs::{simulate, Trace};
use super::reference::{self, merged, roughly, Piece};
use super::story::{explain, explain_with, table, Answers};
use super::truth::Asked;

/// Number of traces for a test: the configured number divided by `share`.
pub fn cases(share: u32) -> ProptestConfig {
    let all: Option<u32> =
        std::env::var("RPCPROBE_PROPERTY_CASES").ok().and_then(|n| n.parse().ok());
    let cases = all.unwrap_or(10_000).div_ceil(share);
    // A failure that is found belongs in golden.rs, as a readable trace. Every run uses the same traces, so that a
    // failure is due to the change at hand; another seed gives others.
    let seed = std::env::var("RPCPROBE_PROPERTY_SEED").ok().and_then(|n| n.parse().ok());
    let rng_seed = proptest::test_runner::RngSeed::Fixed(seed.unwrap_or(1));
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

pub fn numbers() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 0..700)
}

fn engine_pieces(segments: &[Segment]) -> Vec<Piece> {
    merged(segments.iter().map(|segment| {
        Piece {
            start_ns: segment.start_ns,
            end_ns: segment.end_ns(),
            tid: segment.tid,
            category: segment.category,
            // Idle has no tid.
            by: segment
                .category
                .name()
                .starts_with("runqueue")
                .then_some(())
                .and_then(|()| Some(segment.by.as_ref()?.tid.unwrap_or(0))),
        }
    }))
}

/// Checks conservation, and what every segment must satisfy.
pub fn check_segments(request: &Request, segments: &[Segment]) -> Result<(), String> {
    check_conservation(request, segments)?;
    let sum: u64 = category_ns(segments).iter().sum();
    if sum != request.latency_ns {
        return Err(format!("categories add up to {sum} ns of {}", request.latency_ns));
    }
    let mislabelled = segments.iter().find(|segment| match segment.category {
        // That the task on the CPU works for the request is inferred from its waker.
        _ if segment.rule == Some(Rule::Helper) => segment.evidence == Evidence::Sampled,
        Category::Copy => segment.evidence != Evidence::Modelled,
        // A futex that is no lock by convention may still be one, and a thread that works for the request meanwhile may
        // not show.
        Category::Lock | Category::QueueApp if segment.rule != Some(Rule::Claimed) => {
            segment.evidence == Evidence::Sampled
        }
        Category::Fault => segment.evidence == Evidence::Sampled,
        _ if segment.cause.as_ref().is_some_and(|cause| cause.ends_with(HANDED_UNSEEN)) => {
            segment.evidence != Evidence::Modelled
        }
        // Work that is another request's own.
        Category::QueueApp if segment.rule == Some(Rule::Claimed) => {
            segment.evidence != Evidence::Modelled
        }
        _ => segment.evidence != Evidence::Measured,
    });
    match mislabelled {
        Some(segment) => Err(format!("{} is {}", segment.category, segment.evidence)),
        None => Ok(()),
    }
}

fn found(answers: &Answers) -> Vec<(u64, u64, Kind, u32, u32)> {
    let mut found: Vec<_> = answers
        .iter()
        .filter(|(request, _)| matches!(request.kind, Kind::Pipe | Kind::Exec))
        .filter(|(request, _)| request.complete)
        .map(|(request, _)| {
            let client = request.client.as_ref().map_or(0, |end| end.tid);
            let server = request.server.as_ref().map_or(0, |end| end.pid);
            (request.start_ns, request.latency_ns, request.kind, client, server)
        })
        .collect();
    found.sort_unstable();
    found
}

fn performed(trace: &Trace) -> Vec<(u64, u64, Kind, u32, u32)> {
    let mut performed: Vec<_> = (trace.truth.asked.iter())
        .map(|asked| {
            let client = trace.truth.tasks[asked.client].tid;
            (asked.start_ns, asked.end_ns - asked.start_ns, asked.kind, client, asked.server_tgid)
        })
        .collect();
    performed.sort_unstable();
    performed
}

fn answer_to<'a>(answers: &'a Answers, asked: &Asked) -> &'a (Request, Vec<Segment>) {
    answers
        .iter()
        .find(|(request, _)| {
            request.kind == asked.kind
                && request.start_ns == asked.start_ns
                && request.latency_ns == asked.end_ns - asked.start_ns
        })
        .expect("compared before")
}

fn show(pieces: &[Piece]) -> String {
    pieces.iter().fold(String::new(), |text, piece| {
        let by = piece.by.map(|by| format!(" by {by}")).unwrap_or_default();
        let Piece { start_ns, end_ns, tid, category, .. } = piece;
        text + &format!("{start_ns}-{end_ns} {tid} {category}{by}\n")
    })
}

/// The answers with every piece as a segment.
fn every_piece(trace: &Trace, copy_ns_per_byte: f64) -> Answers {
    let rates = Rates { copy_ns_per_byte, ..Rates::default() };
    let mut engine = Engine::new(trace.cpus, trace.truth.start_ns, rates);
    engine.tell_every_piece();
    explain_with(engine, &trace.events)
}

/// All laws, for one trace.
fn check(trace: &Trace, copy_ns_per_byte: f64) -> Result<(), TestCaseError> {
    let answers = explain(trace.cpus, trace.truth.start_ns, &trace.events, copy_ns_per_byte);
    for (request, segments) in &answers {
        if let Err(fault) = check_segments(request, segments) {
            return Err(TestCaseError::fail(format!("{fault}\n{}", table(segments))));
        }
    }
    prop_assert_eq!(check_exclusive(&answers), Ok(()));
    // Merged segments are compared with these in `few_segments_add_up_to_every_piece`.
    let answers = every_piece(trace, copy_ns_per_byte);
    if trace.truth.miscounted {
        return Ok(());
    }
    let truth: Vec<(Vec<Piece>, bool)> = (trace.truth.asked.iter())
        .map(|asked| reference::walk(&trace.truth, asked, copy_ns_per_byte))
        .collect();
    prop_assert_eq!(found(&answers), performed(trace));
    prop_assert!(answers.iter().all(|(request, _)| request.complete), "nothing was left undone");
    for (asked, (truth, certain)) in trace.truth.asked.iter().zip(&truth) {
        let (_, segments) = answer_to(&answers, asked);
        let engine = engine_pieces(segments);
        let same = match certain {
            true => engine == *truth,
            false => roughly(&engine) == roughly(truth),
        };
        if !same {
            let what = reference::describe(&trace.truth, asked);
            let (engine, truth) = (show(&engine), show(truth));
            return Err(TestCaseError::fail(format!(
                "{what}\n--- engine\n{engine}--- truth\n{truth}"
            )));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(1))]

    #[test]
    fn every_request_is_found_and_explained_as_it_was(numbers in numbers()) {
        check(&simulate(numbers), 0.0)?;
    }
}

proptest! {
    #![proptest_config(cases(5))]

    #[test]
    fn modelled_copies_take_nothing_from_others(numbers in numbers(), rate in 0.01f64..2.0) {
        check(&simulate(numbers), rate)?;
    }
}

/// Start and latency of each request, and its time by category.
pub fn sums(answers: &Answers) -> Vec<(u64, u64, [u64; Category::ALL.len()])> {
    let mut sums: Vec<_> = answers
        .iter()
        .map(|(request, segments)| (request.start_ns, request.latency_ns, category_ns(segments)))
        .collect();
    sums.sort_unstable();
    sums
}

/// The events, with those of one instant on different CPUs in another order.
fn reordered(trace: &Trace, seed: u64) -> Vec<Event> {
    let mut events = trace.events.clone();
    let rank = |event: &Event| {
        let mixed = (event.ts_ns ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.rotate_left(8 * event.cpu) % 61
    };
    events.sort_by_key(|event| (event.ts_ns, rank(event), event.cpu));
    events
}

/// The trace, slowed down so far that the engine forgets history within it.
fn slowed(trace: &Trace) -> Vec<Event> {
    let end_ns = trace.events.last().map_or(0, |event| event.ts_ns);
    // Long enough to be forgotten, short enough that the engine still waits for an open answer.
    let factor = 1_900_000_000 / end_ns;
    let mut events = trace.events.clone();
    for event in &mut events {
        event.ts_ns *= factor;
        match &mut event.what {
            What::Switch { call: Some(call), .. } => call.enter_ns *= factor,
            What::Fork { enter_ns, .. }
            | What::Fault { enter_ns, .. }
            | What::Irq { enter_ns, .. } => *enter_ns *= factor,
            What::Call { call, .. } => {
                call.enter_ns *= factor;
                call.exit_ns *= factor;
            }
            _ => {}
        }
    }
    events
}

/// The events with so many others at two places that the engine forgets, there, what it can.
fn with_pauses(events: &[Event], places: [prop::sample::Index; 2]) -> Vec<Event> {
    let mut at = places.map(|place| place.index(events.len()));
    at.sort_unstable();
    let mut all = Vec::with_capacity(events.len() + 2 * FORGETS_EVERY);
    for (index, event) in events.iter().enumerate() {
        all.push(event.clone());
        for _ in at.iter().filter(|at| **at == index) {
            // Wake-ups of an untraced task.
            let what = What::Waking { waker: 0, wakee: 99_999, flags: 0, block: 0 };
            let nothing = Event { ts_ns: event.ts_ns, cpu: 0, what };
            all.extend(std::iter::repeat_n(nothing, FORGETS_EVERY));
        }
    }
    all
}

/// The events without `share` of each 100, chosen by the numbers in `kept`.
pub fn thinned(events: &[Event], kept: &[u8], share: u8) -> Vec<Event> {
    let is_kept = kept.iter().cycle().map(|number| *number >= share);
    events.iter().zip(is_kept).filter(|(_, kept)| *kept).map(|(event, _)| event.clone()).collect()
}

/// Checks that no thread is booked more time than it had.
pub fn check_ledger_of(cpus: u32, start_ns: u64, events: &[Event]) -> Result<(), TestCaseError> {
    let mut engine = Engine::new(cpus, start_ns, Rates::default());
    let mut sink = |_: Request, _: Segments| Ok(());
    for event in events {
        engine.push(event, &mut sink).expect("the sink takes everything");
    }
    engine.finish(None, &mut sink).expect("the sink takes everything");
    for account in engine.take_accounts() {
        let booked_ns = account.own_ns + account.shared_ns;
        prop_assert!(booked_ns <= account.cpu_ns, "{:?}", account);
    }
    Ok(())
}

/// Number of events between two rounds of forgetting.
const FORGETS_EVERY: usize = 1 << 14;

proptest! {
    #![proptest_config(cases(5))]

    #[test]
    fn the_order_of_what_is_simultaneous_does_not_matter(numbers in numbers(), seed: u64) {
        let trace = simulate(numbers);
        let start_ns = trace.truth.start_ns;
        let events = reordered(&trace, seed);
        let plain = explain(trace.cpus, start_ns, &trace.events, 0.0);
        prop_assert_eq!(sums(&plain), sums(&explain(trace.cpus, start_ns, &events, 0.0)));
    }

    #[test]
    fn whatever_the_events_say_requests_are_tiled(numbers in numbers(), wrongs in wrongs()) {
        let trace = simulate(numbers);
        let events = damaged(&trace, &wrongs);
        let answers = explain(trace.cpus, trace.truth.start_ns, &events, 0.0);
        for (request, segments) in &answers {
            if let Err(fault) = check_segments(request, segments) {
                return Err(TestCaseError::fail(format!("{fault}\n{}", table(segments))));
            }
        }
        prop_assert_eq!(check_exclusive(&answers), Ok(()));
    }

    /// Merged segments add up to the same times as the single pieces.
    #[test]
    fn few_segments_add_up_to_every_piece(numbers in numbers()) {
        let trace = simulate(numbers);
        let every = every_piece(&trace, 0.0);
        let few = explain(trace.cpus, trace.truth.start_ns, &trace.events, 0.0);
        prop_assert_eq!(sums(&few), sums(&every));
        prop_assert_eq!(check_exclusive(&every), Ok(()));
    }

    /// Whatever events are lost, no more of a thread's time is booked than it had.
    #[test]
    fn lost_events_do_not_unbalance_the_ledger(
        numbers in numbers(),
        kept in proptest::collection::vec(0u8..100, 1..400),
        share in 0u8..100,
    ) {
        let trace = simulate(numbers);
        check_ledger_of(trace.cpus, trace.truth.start_ns, &thinned(&trace.events, &kept, share))?;
    }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn what_can_be_forgotten_is_not_missed(
        numbers in numbers(),
        places: [prop::sample::Index; 2],
    ) {
        let trace = simulate(numbers);
        let events = slowed(&trace);
        let start_ns = trace.truth.start_ns;
        let plain = explain(trace.cpus, start_ns, &events, 0.0);
        let paused = explain(trace.cpus, start_ns, &with_pauses(&events, places), 0.0);
        prop_assert_eq!(plain, paused);
    }

    #[test]
    fn what_had_to_be_forgotten_is_told(numbers in numbers(), places: [prop::sample::Index; 2]) {
        let trace = simulate(numbers);
        let events = with_pauses(&slowed(&trace), places);
        let mut engine = Engine::new(trace.cpus, trace.truth.start_ns, Rates::default());
        engine.limit_history(FORGETS_EVERY as u64 / 2);
        let answers = explain_with(engine, &events);
        for (request, segments) in &answers {
            if let Err(fault) = check_segments(request, segments) {
                return Err(TestCaseError::fail(format!("{fault}\n{}", table(segments))));
            }
        }
        // Nothing incomplete is taken for complete: every complete request has the answer that it has without
        // forgetting.
        let plain = explain(trace.cpus, trace.truth.start_ns, &slowed(&trace), 0.0);
        for (request, segments) in answers.iter().filter(|(request, _)| request.complete) {
            let same = |(other, others): &&(Request, Vec<Segment>)| {
                (other.kind, other.start_ns) == (request.kind, request.start_ns)
                    && other.latency_ns == request.latency_ns
                    && others == segments
            };
            prop_assert!(plain.iter().find(same).is_some(), "{}", table(segments));
        }
    }
}
