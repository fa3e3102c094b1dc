//! Traces in which some context switches left no record, but the scheduler's own account of them
//! was recorded.

use std::collections::HashSet;

use proptest::prelude::*;
use rpcprobe::engine::event::{Event, What};

use super::laws::{cases, numbers, sums};
use super::programs::{simulate, Trace};
use super::story::{explain, table, Answers, IDLE};

/// Untraced threads: the kernel side reports no calls for them.
fn untraced(trace: &Trace) -> HashSet<u32> {
    let mut switched = HashSet::from([IDLE]);
    let mut traced = HashSet::new();
    for event in &trace.events {
        match &event.what {
            What::Switch { prev, next, .. } => switched.extend([*prev, *next]),
            What::Call { tid, .. } | What::Exit { tid, .. } => drop(traced.insert(*tid)),
            What::Fork { parent, child, .. } => traced.extend([*parent, *child]),
            _ => {}
        }
    }
    switched.difference(&traced).copied().collect()
}

/// Hides some of the switches from an untraced thread to a thread that may be traced. The
/// scheduler's account of a hidden switch is inserted before the thread's next event. Returns the
/// events and the number of hidden switches.
fn hidden(trace: &Trace, seed: u64) -> (Vec<Event>, usize) {
    let untraced = untraced(trace);
    let mut events: Vec<Event> = Vec::with_capacity(trace.events.len());
    // By CPU: the time of the last switch, and the account of a hidden switch that is still to be
    // inserted.
    let mut before_ns: Vec<Option<u64>> = vec![None; trace.cpus as usize];
    let mut unseen: Vec<Option<What>> = vec![None; trace.cpus as usize];
    let mut count = 0;
    for (at, event) in trace.events.iter().enumerate() {
        let does = match &event.what {
            What::Switch { prev: tid, .. }
            | What::Waking { waker: tid, .. }
            | What::Fault { tid, .. }
            | What::Call { tid, .. } => Some(*tid),
            _ => None,
        };
        let told = unseen[event.cpu as usize].take_if(
            |unseen| matches!(unseen, What::UnseenSwitch { tid, .. } if Some(*tid) == does),
        );
        let restored = told.is_some();
        if let Some(what) = told {
            events.push(Event { what, ..event.clone() });
            count += 1;
        }
        if let What::Switch { prev, next, .. } = &event.what {
            let cpu = event.cpu as usize;
            if let Some(since_ns) = before_ns[cpu] {
                let again = trace.events[at + 1..].iter().any(|later| {
                    later.cpu == event.cpu && matches!(later.what, What::Switch { .. })
                });
                let chosen = (at as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0;
                if again && chosen && *next != IDLE && !restored && untraced.contains(prev) {
                    let (tid, last, arrived_ns, waited_ns) = (*next, *prev, event.ts_ns, None);
                    unseen[cpu] =
                        Some(What::UnseenSwitch { tid, last, since_ns, arrived_ns, waited_ns });
                    continue;
                }
            }
            before_ns[cpu] = Some(event.ts_ns);
        }
        events.push(event.clone());
    }
    (events, count)
}

fn shown(answers: &Answers) -> String {
    answers.iter().map(|(_, segments)| table(segments) + "\n").collect()
}

proptest! {
    #![proptest_config(cases(5))]

    #[test]
    fn a_switch_that_left_no_record_is_restored(numbers in numbers(), seed: u64) {
        let trace = simulate(numbers);
        let (events, count) = hidden(&trace, seed);
        prop_assume!(count > 0);
        let start_ns = trace.truth.start_ns;
        let plain = explain(trace.cpus, start_ns, &trace.events, 0.0);
        let restored = explain(trace.cpus, start_ns, &events, 0.0);
        prop_assert_eq!(
            sums(&plain),
            sums(&restored),
            "{}\n--- restored\n{}",
            shown(&plain),
            shown(&restored)
        );
    }
}
