//! Tests with made-up captures: runs both passes and draws the figures.

use serde_json::Value;

use crate::{figure, Band, Gather, Gathered, Name, Scan, Selection};
use rpcprobe_model::{
    category_ns, By, Category, End, Evidence, Kind, Request, Rule, Segment, Side,
};
use rpcprobe_report::{Adder, Facts, Outlines, Query, Survey};
use rpcprobe_tables::RequestRow;

const START_NS: u64 = 1_000_000;
const HOSTILE: &str = "</script><b>x</b>\n\u{2028}\"%{x}";

/// Makes a request every 10 us. Every hundredth is slowed by a lock, every seventh waits for a CPU.
fn made_up(requests: u64) -> Vec<(RequestRow, Vec<Segment>)> {
    let of = |id: u64| {
        let start_ns = START_NS + id * 10_000;
        let mut request = Request::new(Kind::Http1, start_ns, start_ns);
        request.request_id = id;
        request.client = Some(End { pid: 1, tid: 1, comm: HOSTILE.into() });
        request.method =
            Some(if id.is_multiple_of(3) { HOSTILE.into() } else { format!("GET /{}", id % 5) });
        request.parent_request_id = (id % 10 == 9).then(|| id - 1);
        let mut parts = vec![(Category::User, 1_000 + id % 50), (Category::KernelTcp, 300)];
        if id % 100 == 7 {
            parts.push((Category::Lock, 900_000));
        }
        if id.is_multiple_of(7) {
            parts.push((Category::RunqueueWakeup, 2_000));
        }
        let segments: Vec<Segment> = parts
            .into_iter()
            .map(|(category, duration_ns)| {
                let start_ns = request.start_ns + request.latency_ns;
                request.latency_ns += duration_ns;
                Segment {
                    start_ns,
                    duration_ns,
                    category,
                    side: Side::Server,
                    pid: 2,
                    tid: 2,
                    comm: HOSTILE.into(),
                    cpu: Some(0),
                    phase: None,
                    detail: Some(HOSTILE.into()),
                    cause: None,
                    by: (category == Category::RunqueueWakeup)
                        .then(|| By::from(&*format!("{HOSTILE}/7"))),
                    evidence: Evidence::Modelled,
                    rule: Some(Rule::End),
                    shared: 1,
                    stack: None,
                }
            })
            .collect();
        let category_ns = category_ns(&segments).map(Some);
        (RequestRow { request, category_ns }, segments)
    };
    (1..=requests).map(of).collect()
}

fn gathered(requests: &[(RequestRow, Vec<Segment>)]) -> Gathered {
    let query = Query::default();
    let facts = Facts { start_ns: START_NS, duration_ns: 1_000_000_000, ..Facts::default() };
    let rows = || requests.iter().map(|(row, _)| Ok(row.clone()));
    let mut outlines = Outlines::default();
    outlines.capture(rows().map(|row| Ok((&row?.request).into()))).expect("rows");
    let mut survey = Survey::new(&query, outlines);
    survey.capture(rows(), &facts).expect("rows");
    let plans = survey.finish();
    let mut scan = Scan::new(&query, &plans.kinds);
    scan.capture(rows(), &facts).expect("rows");
    let mut gather = Gather::new(scan.finish());
    let mut adder = Adder::new(&query, plans).watched(&mut gather);
    let segments = requests.iter().flat_map(|(row, segments)| {
        segments.iter().map(|segment| Ok((row.request.request_id, segment.clone())))
    });
    adder.capture(rows(), segments, facts).expect("a capture");
    let tree = adder.finish().tree;
    gather.finish(tree)
}

/// Calls `see` with every text and number in a figure.
fn each(value: &Value, see: &mut dyn FnMut(&Value)) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| each(value, see)),
        Value::Object(of) => of.values().for_each(|value| each(value, see)),
        leaf => see(leaf),
    }
}

fn every_figure(gathered: &Gathered) -> Vec<Value> {
    let mut figures = Vec::new();
    for group in &gathered.groups {
        for name in Name::of_groups() {
            for band in Band::WITH_ALL {
                for category in [None, Some(Category::Lock), Some(Category::Journal)] {
                    figures.extend(figure(name, gathered, group, Selection { band, category }));
                }
            }
        }
    }
    figures.extend(gathered.drawn.iter().filter_map(crate::Drawn::figure));
    figures
}

#[test]
fn bands_hold_every_request_once() {
    let requests = made_up(3_000);
    let gathered = gathered(&requests);
    let group = &gathered.groups[0];
    let latency_ns: u128 = requests.iter().map(|(row, _)| u128::from(row.request.latency_ns)).sum();
    let all = group.band(Band::All);
    assert_eq!((all.requests, all.latency_ns), (3_000, latency_ns));
    let each: u64 = Band::EACH.iter().map(|band| group.band(*band).requests).sum();
    assert_eq!(each, 3_000);
    let lock = &group.band(Band::Top1).parts[&Category::Lock];
    assert_eq!(lock.sum.ns, 30 * 900_000);
    for band in Band::WITH_ALL {
        let sums = group.band(band);
        let parts: u128 = sums.parts.values().map(|part| part.sum.ns).sum();
        assert_eq!(parts, sums.latency_ns, "{}", band.name());
        let steps: u64 = sums.steps.values().map(|step| step.requests).sum();
        assert_eq!(steps, sums.requests, "{}", band.name());
    }
    // One kind and its methods.
    let names: Vec<_> = gathered.groups.iter().map(|group| group.key.method.as_deref()).collect();
    assert_eq!((names.len(), names[0]), (7, None));
}

#[test]
fn no_name_is_markup_and_no_number_too_large() {
    for figure in every_figure(&gathered(&made_up(700))) {
        each(&figure, &mut |leaf| {
            if let Some(text) = leaf.as_str().filter(|text| {
                *text != "%{hovertext}<extra></extra>" && *text != "%{text}<extra></extra>"
            }) {
                let bare = text.replace("<b>", "").replace("</b>", "").replace("<br>", "");
                assert!(!bare.contains(['<', '>', '\n', '\u{2028}']), "{text}");
            }
            if let Some(number) = leaf.as_f64() {
                assert!(number.is_finite() && number.abs() < 9_007_199_254_740_992.0, "{number}");
            }
        });
    }
}

#[test]
fn many_are_thinned_and_it_is_said() {
    let gathered = gathered(&made_up(20_000));
    let group = &gathered.groups[0];
    let figure = figure(Name::Requests, &gathered, group, Selection::default()).expect("a figure");
    let traces = figure["data"].as_array().expect("traces").iter();
    let points: usize = traces.map(|trace| trace["x"].as_array().map_or(0, Vec::len)).sum();
    assert!((1_400..=2_000).contains(&points), "{points}");
    let note = figure["layout"]["meta"]["note"].as_str().expect("a note");
    assert!(
        note.ends_with("of 20,000 requests drawn: the slowest, and an even sample of the others"),
        "{note}"
    );
    // The requests that are listed have time lines.
    for place in group.slowest.iter().chain(&group.typical) {
        assert!(gathered.drawn[*place].figure().is_some());
    }
    assert_eq!((group.slowest.len(), group.typical.len()), (12, 6));
}

#[test]
fn few_or_none_do_no_harm() {
    assert!(gathered(&[]).groups.is_empty());
    for requests in [1, 2, 99] {
        let gathered = gathered(&made_up(requests));
        assert_eq!(gathered.groups[0].bands().len(), 1);
        assert!(!every_figure(&gathered).is_empty());
    }
    // A request with a latency of 0 has no parts.
    let mut request = Request::new(Kind::Pipe, START_NS, START_NS);
    request.request_id = 1;
    let row = RequestRow { request, category_ns: [None; Category::ALL.len()] };
    let gathered = gathered(&[(row, Vec::new())]);
    assert_eq!(gathered.groups[0].requests, 1);
    every_figure(&gathered);
}

#[test]
fn a_life_of_many_segments_keeps_the_longest() {
    let mut requests = made_up(1);
    let (row, segments) = &mut requests[0];
    let one = segments[0].clone();
    segments.clear();
    row.request.latency_ns = 0;
    for i in 0..10_000 {
        let duration_ns = 1 + i % 97 * 10;
        let start_ns = row.request.start_ns + row.request.latency_ns;
        segments.push(Segment { start_ns, duration_ns, ..one.clone() });
        row.request.latency_ns += duration_ns;
    }
    row.category_ns = category_ns(segments).map(Some);
    let gathered = gathered(&requests);
    let figure = gathered.drawn[0].figure().expect("a time line");
    let bars: usize = figure["data"]
        .as_array()
        .expect("traces")
        .iter()
        .filter(|t| t["type"] == "bar")
        .map(|t| t["x"].as_array().map_or(0, Vec::len))
        .sum();
    assert_eq!(bars, 250);
    let note = figure["layout"]["meta"]["note"].as_str().expect("a note");
    assert!(note.starts_with("The 250 longest of 10,000 segments are drawn, "), "{note}");
}
