//! What holds for every trace of the simulated machine.

use proptest::prelude::*;
use rpcprobe::model::{
    category_ns, check_conservation, Category, Evidence, Kind, Request, Segment,
};

use super::programs::{simulate, Trace};
use super::reference::{self, merged, Piece};
use super::story::{explain, table, Answers};
use super::truth::Asked;

/// Traces a test takes; `share` of those asked for.
fn cases(share: u32) -> ProptestConfig {
    let all: Option<u32> =
        std::env::var("RPCPROBE_PROPERTY_CASES").ok().and_then(|n| n.parse().ok());
    let cases = all.unwrap_or(10_000).div_ceil(share);
    // Found failures belong into golden.rs, as traces one can read.
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

pub fn numbers() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 0..700)
}

fn engine_pieces(segments: &[Segment]) -> Vec<Piece> {
    merged(segments.iter().map(|segment| Piece {
        start_ns: segment.start_ns,
        end_ns: segment.end_ns(),
        tid: segment.tid,
        category: segment.category,
        // `comm/tid`; idle has no tid to tell.
        by: segment.category.name().starts_with("runqueue").then_some(()).and_then(|()| {
            let by = segment.by.as_ref()?;
            Some(by.rsplit_once('/').and_then(|(_, tid)| tid.parse().ok()).unwrap_or(0))
        }),
    }))
}

/// Conservation and what every segment must have.
pub fn check_segments(request: &Request, segments: &[Segment]) -> Result<(), String> {
    check_conservation(request, segments)?;
    let sum: u64 = category_ns(segments).iter().sum();
    if sum != request.latency_ns {
        return Err(format!("categories add up to {sum} ns of {}", request.latency_ns));
    }
    let modelled = segments.iter().find(|segment| {
        (segment.evidence == Evidence::Modelled) != (segment.category == Category::Copy)
    });
    match modelled {
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

/// All laws, for one trace.
fn check(trace: &Trace, copy_ns_per_byte: f64) -> Result<(), TestCaseError> {
    if std::env::var("SHOW").is_ok() {
        eprintln!("=== trace");
        for e in &trace.events {
            eprintln!("{} cpu{} {:?}", e.ts_ns, e.cpu, e.what);
        }
        eprintln!("{:#?}", trace.truth.asked);
    }
    let truth: Vec<Vec<Piece>> = (trace.truth.asked.iter())
        .map(|asked| reference::walk(&trace.truth, asked, copy_ns_per_byte))
        .collect();
    let answers = explain(trace.cpus, trace.truth.start_ns, &trace.events, copy_ns_per_byte);
    for (request, segments) in &answers {
        if let Err(fault) = check_segments(request, segments) {
            return Err(TestCaseError::fail(format!("{fault}\n{}", table(segments))));
        }
    }
    prop_assert_eq!(found(&answers), performed(trace));
    prop_assert!(answers.iter().all(|(request, _)| request.complete), "nothing was left undone");
    for (asked, truth) in trace.truth.asked.iter().zip(&truth) {
        let (_, segments) = answer_to(&answers, asked);
        let engine = engine_pieces(segments);
        if engine != *truth {
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

#[test]
fn zz_replay() {
    let Ok(path) = std::env::var("REPLAY") else { return };
    let numbers = std::fs::read_to_string(path)
        .unwrap()
        .split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect();
    let trace = simulate(numbers);
    let answers = explain(trace.cpus, trace.truth.start_ns, &trace.events, 0.0);
    for (request, segments) in &answers {
        eprintln!(
            "{} {:?}+{}\n{}",
            request.request_id,
            request.start_ns,
            request.latency_ns,
            table(segments)
        );
        for s in segments {
            eprintln!("   {} {:?} {:?}", s.start_ns, s.detail, s.cause);
        }
    }
    check(&trace, 0.0).unwrap();
}
