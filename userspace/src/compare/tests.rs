//! Compares made-up runs.

use std::collections::BTreeMap;

use super::comparison::{Basis, Comparison, Verdict};
use super::kinds::compare;
use super::run::Run;
use super::{write, Statistic};
use crate::capture::manifest::Manifest;
use crate::model::{By, Category, Evidence, Kind, Request, Rule, Segment, Side};
use crate::output::RequestRow;
use crate::report::Style;

const PLAIN: Style = Style { color: false, width: None };

fn segment(start_ns: u64, duration_ns: u64, category: Category, by: Option<&str>) -> Segment {
    Segment {
        start_ns,
        duration_ns,
        category,
        side: Side::Server,
        pid: 1,
        tid: 1,
        comm: "server".into(),
        cpu: None,
        phase: None,
        detail: None,
        cause: None,
        by: by.map(By::from),
        evidence: Evidence::Measured,
        rule: Some(Rule::Charge),
        shared: 1,
        stack: None,
    }
}

/// Makes a run; each request takes the given `user` and `journal` times in ns.
fn run_of(kind: Kind, requests: &[(u64, u64)], method: fn(usize) -> Option<&'static str>) -> Run {
    let mut rows = Vec::new();
    let mut segments = Vec::new();
    for (i, (user_ns, journal_ns)) in requests.iter().enumerate() {
        let start_ns = 1_000_000 * i as u64;
        let mut request = Request::new(kind, start_ns, start_ns + user_ns + journal_ns);
        request.request_id = i as u64 + 1;
        request.method = method(i).map(str::to_owned);
        let id = request.request_id;
        rows.push(Ok(RequestRow { request, category_ns: [None; Category::ALL.len()] }));
        segments.push(Ok((id, segment(start_ns, *user_ns, Category::User, None))));
        if *journal_ns > 0 {
            let wait = segment(start_ns + user_ns, *journal_ns, Category::Journal, Some("jbd2/9"));
            segments.push(Ok((id, wait)));
        }
    }
    let all = |_: &Request| true;
    Run::of("run".into(), Manifest::default(), rows, segments, &all, requests.len() >= 300).unwrap()
}

fn unnamed(_: usize) -> Option<&'static str> {
    None
}

/// Makes runs with their own noise. `extra_ns`: additional time in the journal.
fn runs(count: usize, requests: usize, extra_ns: u64, seed: u64) -> Vec<Run> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count)
        .map(|_| {
            let slow = random.u64(0..200);
            let requests: Vec<_> = (0..requests)
                .map(|_| {
                    (4_000 + slow + random.u64(0..3_000), 5_000 + extra_ns + random.u64(0..50))
                })
                .collect();
            run_of(Kind::Pipe, &requests, unnamed)
        })
        .collect()
}

fn compared(a: &[Run], b: &[Run], basis: Basis) -> Comparison {
    compare("./a".into(), a, "./b".into(), b, basis).unwrap()
}

fn text(comparison: &Comparison) -> String {
    let mut out = Vec::new();
    write(&mut out, comparison, true, PLAIN).unwrap();
    write(&mut out, comparison, false, PLAIN).unwrap();
    String::from_utf8(out).unwrap()
}

fn assert_adds_up(comparison: &Comparison) {
    for of in comparison.kinds.iter().flat_map(|kind| &kind.statistics) {
        let sum = |side: fn(&super::comparison::Change) -> i64| {
            of.parts.iter().map(|part| side(&part.change)).sum::<i64>()
        };
        assert_eq!(sum(|c| c.a_ns), of.total.a_ns, "{:?}", of.statistic);
        assert_eq!(sum(|c| c.b_ns), of.total.b_ns);
        assert_eq!(sum(|c| c.change_ns), of.total.change_ns);
        assert_eq!(of.total.b_ns - of.total.a_ns, of.total.change_ns);
    }
    let json = serde_json::to_string(comparison).unwrap();
    assert!(!json.contains("NaN") && !text(comparison).contains("NaN"));
}

#[test]
fn a_change_is_found_and_named() {
    let comparison = compared(&runs(8, 300, 0, 1), &runs(8, 300, 550, 2), Basis::RandomPairs);
    assert_adds_up(&comparison);
    assert_eq!(comparison.verdict, Verdict::Changed);
    let said = text(&comparison);
    assert!(
        said.contains("pipe: changed: journal (server) +5") || said.contains("higher"),
        "{said}"
    );
    assert!(said.contains("by jbd2"), "{said}");
    let median = &comparison.kinds[0].statistics[Statistic::P50 as usize];
    let journal = median.parts.iter().find(|part| part.category == Category::Journal).unwrap();
    assert!(journal.change.shown && (540..560).contains(&journal.change.change_ns), "{said}");
    let user = median.parts.iter().find(|part| part.category == Category::User).unwrap();
    assert!(!user.change.shown, "{said}");
}

#[test]
fn no_change_is_said_with_what_would_have_been_shown() {
    let comparison = compared(&runs(8, 300, 0, 1), &runs(8, 300, 0, 2), Basis::RandomPairs);
    assert_adds_up(&comparison);
    assert_eq!(comparison.verdict, Verdict::NoDifferenceShown);
    let said = text(&comparison);
    assert!(said.contains("pipe: no difference shown. A change of the median by "), "{said}");
}

#[test]
fn a_change_below_one_per_cent_is_none() {
    let comparison = compared(&runs(8, 300, 0, 1), &runs(8, 300, 60, 1), Basis::RandomPairs);
    let median = &comparison.kinds[0].statistics[Statistic::P50 as usize];
    assert!(median.total.p.unwrap() <= 0.01 && !median.total.shown);
    assert_eq!(comparison.verdict, Verdict::NoDifferenceShown);
}

#[test]
fn one_capture_a_side_gives_no_verdict() {
    let a = runs(1, 3_000, 0, 1);
    let b = runs(1, 3_000, 500, 2);
    let comparison = compared(&a, &b, Basis::OneCaptureEach);
    assert_adds_up(&comparison);
    assert_eq!(comparison.verdict, Verdict::NoVerdict);
    let said = text(&comparison);
    assert!(said.contains("within these captures only"), "{said}");
    assert!(!said.contains("regression") && !said.contains("p at most"), "{said}");
    let mean = &comparison.kinds[0].statistics[Statistic::Mean as usize];
    let (low, high) = mean.total.interval_ns.unwrap();
    assert!(low > 300.0 && high < 700.0, "{low} {high}");
}

#[test]
fn a_capture_too_short_for_intervals_says_so() {
    // Each request resembles its neighbours, over the whole capture.
    let climbing = |from: u64| {
        let requests: Vec<_> = (0..300).map(|i| (from + i, 0)).collect();
        [run_of(Kind::Pipe, &requests, unnamed)]
    };
    let (a, b) = (climbing(1_000), climbing(1_500));
    let comparison = compared(&a, &b, Basis::OneCaptureEach);
    let kind = &comparison.kinds[0];
    assert!(kind.statistics.iter().all(|of| of.total.interval_ns.is_none()));
    assert_eq!(kind.no_intervals.unwrap().a_requests, 300);
    let said = text(&comparison);
    assert!(said.contains("No intervals: 300 requests of A and 300 of B"), "{said}");
}

#[test]
fn few_pairs_give_no_verdict() {
    let comparison = compared(&runs(7, 50, 0, 1), &runs(7, 50, 900, 2), Basis::RandomPairs);
    assert_eq!(comparison.verdict, Verdict::NoVerdict);
    assert!(text(&comparison).contains("7 pairs cannot show a change at p <= 0.01: 8 can"));
}

#[test]
fn one_request_makes_no_nan() {
    for basis in [Basis::OneCaptureEach, Basis::RandomPairs] {
        let one = || vec![run_of(Kind::Exec, &[(0, 0)], unnamed)];
        assert_adds_up(&compared(&one(), &one(), basis));
        let one = || vec![run_of(Kind::Exec, &[(5, 0)], unnamed)];
        assert_adds_up(&compared(&one(), &one(), basis));
    }
}

#[test]
fn a_changed_mix_is_not_a_change_within() {
    fn mostly_get(i: usize) -> Option<&'static str> {
        Some(if i.is_multiple_of(4) { "SET" } else { "GET" })
    }
    fn mostly_set(i: usize) -> Option<&'static str> {
        Some(if i.is_multiple_of(4) { "GET" } else { "SET" })
    }
    let of = |method: fn(usize) -> Option<&'static str>| {
        let requests: Vec<_> =
            (0..400).map(|i| (if method(i) == Some("SET") { 9_000 } else { 1_000 }, 0)).collect();
        vec![run_of(Kind::Resp, &requests, method)]
    };
    let comparison = compared(&of(mostly_get), &of(mostly_set), Basis::OneCaptureEach);
    assert_adds_up(&comparison);
    let mix = comparison.kinds[0].methods.as_ref().unwrap();
    let mean = &comparison.kinds[0].statistics[Statistic::Mean as usize];
    assert_eq!((mix.mix_ns, mix.within_ns), (mean.total.change_ns, 0));
    assert_eq!(mean.total.change_ns, 4_000);
}

#[test]
fn one_kind_against_another() {
    let of = |kind| vec![run_of(kind, &[(10, 20); 20], unnamed)];
    let comparison = compared(&of(Kind::Pipe), &of(Kind::Unix), Basis::OneCaptureEach);
    assert_eq!((comparison.kinds[0].kind, comparison.kinds[0].b_kind), (Kind::Pipe, Kind::Unix));
    assert!(text(&comparison).contains("pipe against unix: "));
    let mut both = of(Kind::Pipe);
    both[0].kinds.extend(of(Kind::Unix).remove(0).kinds);
    let comparison = compared(&both, &of(Kind::Unix), Basis::OneCaptureEach);
    assert_eq!(comparison.kinds.len(), 1);
    assert_eq!(comparison.not_compared[0].kind, Kind::Pipe);
    let empty = Run { kinds: BTreeMap::new(), ..of(Kind::Pipe).remove(0) };
    let error = compare("a".into(), &[empty], "b".into(), &of(Kind::Unix), Basis::OneCaptureEach);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("A: no requests; B: unix"), "{error}");
}

#[test]
fn requests_that_do_not_add_up_are_refused() {
    let request = Request { request_id: 7, ..Request::new(Kind::Pipe, 0, 100) };
    let row =
        || Ok(RequestRow { request: request.clone(), category_ns: [None; Category::ALL.len()] });
    let of = |segments: Vec<anyhow::Result<(u64, Segment)>>| {
        Run::of("dir".into(), Manifest::default(), [row()], segments, &|_| true, false)
    };
    let error = of(vec![Ok((7, segment(0, 99, Category::User, None)))]).unwrap_err().to_string();
    assert!(error.contains("request 7 does not add up"), "{error}");
    assert!(of(Vec::new()).unwrap_err().to_string().contains("no segments"));
    assert!(of(vec![Ok((7, segment(0, 100, Category::User, None)))]).is_ok());
}

/// The parts of a quantile are those of the requests around it, by Harrell-Davis on the sorted latencies.
#[test]
fn quantiles_are_made_of_the_requests_around_them() {
    let requests: Vec<_> =
        (0..1_000).map(|i| if i < 900 { (1_000 + i, 0) } else { (1_000, 5_000) }).collect();
    let run = run_of(Kind::Pipe, &requests, unnamed);
    let of = |statistic: Statistic, category| {
        let figures = run.kinds[&Kind::Pipe].figures[statistic as usize].as_ref().unwrap();
        figures.get(&(category, Side::Server)).copied().unwrap_or(0.0)
    };
    assert!(of(Statistic::P50, Category::Journal) < 1e-3);
    assert!((of(Statistic::P50, Category::User) - 1_499.0).abs() < 2.0);
    assert!((of(Statistic::P99, Category::Journal) - 5_000.0).abs() < 1.0);
    assert!((of(Statistic::Mean, Category::Journal) - 500.0).abs() < 1e-6);
}
