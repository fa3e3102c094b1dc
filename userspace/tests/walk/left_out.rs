//! The walk without one of its rules: its answers may be wrong, but they must still add up.

use proptest::prelude::*;
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::model::{check_conservation, Rule};

use super::hostile::over_sockets;
use super::laws::{cases, numbers};
use super::programs::{simulate, Trace};
use super::story::{explain_with, table, Answers};

/// Rules that are part of every walk: leaving one out changes nothing.
const GROUND: [Rule; 4] = [Rule::End, Rule::RunQueue, Rule::Charge, Rule::Lost];

fn without(trace: &Trace, rule: Option<Rule>) -> Answers {
    let mut engine = Engine::new(trace.cpus, trace.truth.start_ns, Rates::default());
    if let Some(rule) = rule {
        engine.leave_out(rule);
    }
    let mut answers = explain_with(engine, &trace.events);
    answers.sort_by_key(|(request, _)| request.request_id);
    answers
}

fn check(trace: &Trace) -> Result<(), TestCaseError> {
    let whole = without(trace, None);
    for &rule in Rule::ALL {
        let left = without(trace, Some(rule));
        if GROUND.contains(&rule) {
            prop_assert_eq!(&left, &whole, "without {}", rule);
            continue;
        }
        prop_assert_eq!(left.len(), whole.len(), "without {}", rule);
        for (request, segments) in &left {
            if let Err(fault) = check_conservation(request, segments) {
                let text = format!("without {rule}: {fault}\n{}", table(segments));
                return Err(TestCaseError::fail(text));
            }
            prop_assert!(segments.iter().all(|segment| segment.rule != Some(rule)), "{}", rule);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(20))]

    #[test]
    fn without_a_rule_it_still_adds_up(numbers in numbers()) {
        check(&simulate(numbers.clone()))?;
        check(&over_sockets(simulate(numbers)))?;
    }
}
