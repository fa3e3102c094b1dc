//! Stacks only add detail: whatever they contain, requests and segments are the same as without
//! them.

use proptest::prelude::*;
use rpcprobe::engine::event::{Code, Event, Mapping, Module, What};
use rpcprobe::model::{Category, Samples, Taken};

use super::damage::{damaged, wrongs};
use super::laws::{cases, check_segments, numbers};
use super::programs::simulate;
use super::story::{explain, Answers};

/// A stack, sample or mapping: the event that it follows, its kind, and a number for its contents.
type Extra = (prop::sample::Index, u8, u64);

fn extras() -> impl Strategy<Value = Vec<Extra>> {
    let number = prop_oneof![0u64..12, 80u64..115, 990u64..2_000, any::<u64>()];
    proptest::collection::vec((any::<prop::sample::Index>(), 0u8..4, number), 0..60)
}

/// The events with a stack after every sleep, and with the extras inserted.
fn with_stacks(events: &[Event], extras: &[Extra]) -> Vec<Event> {
    let mut all = Vec::new();
    for event in events {
        all.push(event.clone());
        if let What::Switch { prev, state: 1..=3, preempt: false, .. } = event.what {
            let what = What::Stack { tid: prev, kernel: [event.ts_ns, 2].into() };
            all.push(Event { what, ..*event });
        }
    }
    for (at, kind, number) in extras {
        let at = at.index(all.len());
        let (ts_ns, tid, number) = (all[at].ts_ns, 80 + *number as u32 % 40, *number);
        let addresses: Box<[u64]> = (0..number % 100).map(|i| number.wrapping_mul(i)).collect();
        let interrupted_ns = ts_ns.saturating_sub(number % 9);
        let what = match kind {
            0 => What::Stack { tid, kernel: addresses },
            1 => What::Sample { tid, interrupted_ns, kernel: addresses.clone(), user: addresses },
            2 => What::Mapping(Box::new(Mapping { tgid: tid, code: None })),
            _ => {
                let module = Module { path: "/x".into(), identity: "".into() };
                let end = number.saturating_add(1 << 40);
                let code = Code { start: number, end, file_offset: number, module };
                What::Mapping(Box::new(Mapping { tgid: tid, code: Some(code) }))
            }
        };
        all.insert(at + 1, Event { what, ..all[at] });
    }
    all
}

/// The answers with everything removed that stacks add.
fn without_detail(mut answers: Answers) -> Answers {
    let ends = answers.iter_mut().flat_map(|(r, _)| [&mut r.client_moved, &mut r.server_moved]);
    for moved in ends.flatten() {
        moved.samples = Samples::default();
    }
    for segment in answers.iter_mut().flat_map(|(_, segments)| segments) {
        segment.stack = None;
        if let Some(detail) = &mut segment.detail {
            *detail = detail.replace(", taking a sample", "");
        }
    }
    answers
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn stacks_change_nothing_but_detail(numbers in numbers(), extras in extras()) {
        let trace = simulate(numbers);
        let (cpus, start_ns) = (trace.cpus, trace.truth.start_ns);
        let before = explain(cpus, start_ns, &trace.events, 0.5);
        let after = explain(cpus, start_ns, &with_stacks(&trace.events, &extras), 0.5);
        for segment in after.iter().flat_map(|(_, segments)| segments) {
            match segment.stack.map(|stack| stack.taken) {
                Some(Taken::Sampled { same, all }) => prop_assert!(0 < same && same <= all),
                // Every sleep in these traces has a stack.
                None => prop_assert!(segment.category != Category::Sleep, "{segment:?}"),
                Some(Taken::AtSleep) => {}
            }
        }
        prop_assert_eq!(without_detail(after), without_detail(before));
    }

    #[test]
    fn stacks_in_damaged_traces(numbers in numbers(), extras in extras(), wrongs in wrongs()) {
        let trace = simulate(numbers);
        let events = with_stacks(&damaged(&trace, &wrongs), &extras);
        for (request, segments) in explain(trace.cpus, trace.truth.start_ns, &events, 0.5) {
            if request.complete {
                check_segments(&request, &segments).map_err(TestCaseError::fail)?;
            }
        }
    }
}
