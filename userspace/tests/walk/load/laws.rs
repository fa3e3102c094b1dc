//! Properties that hold for every trace of a simulated server under load, whatever the engine's policy.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use rpcprobe::engine::event::Event;
use rpcprobe::engine::ownership::ledger::Account;
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::laws::check_exclusive;
use rpcprobe::model::{check_conservation, Kind, Request, Segment, Segments};

use super::facts::ReqNo;
use super::net::Way;
use super::programs::{simulate, Trace, Waits};
use super::score::{Score, WITHOUT_TIMERS, WITH_ANSWERS, WITH_TIMERS, WITH_WORKERS};
use super::verdict::Judge;
use crate::walk::laws::{cases, check_ledger_of, sums, thinned};
use crate::walk::story::{table, Answers};
use crate::walk::truth::Doing;

pub fn numbers() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(any::<u16>(), 0..900)
}

/// The engine's answers, with every piece as a segment, and its ledger.
pub fn explained(trace: &Trace) -> (Answers, Vec<Account>) {
    let mut engine = Engine::new(trace.cpus, trace.truth.start_ns, Rates::default());
    engine.tell_every_piece();
    explained_by(engine, trace)
}

fn explained_by(mut engine: Engine, trace: &Trace) -> (Answers, Vec<Account>) {
    let mut answers = Vec::new();
    let mut sink = |request: Request, segments: Segments| {
        answers.push((request, segments.in_words()));
        Ok(())
    };
    for event in &trace.events {
        engine.push(event, &mut sink).expect("the sink takes everything");
    }
    engine.finish(None, &mut sink).expect("the sink takes everything");
    (answers, engine.take_accounts())
}

/// A request as its traced ends can know it: its start, or the earliest and the latest possible start; its end; the
/// client's thread; the server's process.
#[derive(Debug, PartialEq)]
struct Performed {
    req: ReqNo,
    start_ns: (u64, u64),
    end_ns: u64,
    client: Option<u32>,
    server: Option<u32>,
    kind: Kind,
}

fn performed(trace: &Trace) -> Vec<Performed> {
    let facts = &trace.facts;
    let mut all = Vec::new();
    for (no, req) in facts.reqs.iter().enumerate() {
        let (Some(start_ns), Some(end_ns)) = (req.start_ns, req.end_ns) else { continue };
        let tasks = &trace.truth.tasks;
        let client = tasks[req.client].traced.then_some(tasks[req.client].tid);
        let is_server = tasks.iter().any(|task| task.traced && task.tgid == req.server_tgid);
        let server = is_server.then_some(req.server_tgid);
        let is_unix = trace.ways[req.conn] == Way::Unix;
        let kind = if is_unix { Kind::Unix } else { Kind::Tcp };
        let (start_ns, end_ns) = match (client, server) {
            (Some(_), _) => ((start_ns, start_ns), end_ns),
            (None, Some(_)) => {
                let link = &facts.links[req.asked.link];
                let there_ns = link.there.of(req.asked.from).expect("read");
                let taken_ns = link.taken.of(req.asked.from).expect("read");
                // For a Unix socket, only two things show that bytes had come: the reader woke, possibly for another
                // request, or it began to read.
                let start_ns = if is_unix { (0, taken_ns) } else { (there_ns, there_ns) };
                (start_ns, req.answered_ns.expect("answered"))
            }
            (None, None) => continue,
        };
        all.push(Performed { req: no, start_ns, end_ns, client, server, kind });
    }
    all.sort_by_key(|performed| performed.start_ns.1);
    all
}

/// A request and what the engine says of it.
type Found<'a> = (ReqNo, &'a Request, &'a [Segment]);

/// The engine's answer to each request that was performed.
fn matched<'a>(trace: &Trace, answers: &'a Answers) -> Result<Vec<Found<'a>>, String> {
    let mut left: Vec<&(Request, Vec<Segment>)> = answers
        .iter()
        .filter(|(request, _)| matches!(request.kind, Kind::Tcp | Kind::Unix))
        .collect();
    let mut found = Vec::new();
    for performed in performed(trace) {
        let is = |(request, _): &&(Request, Vec<Segment>)| {
            (performed.start_ns.0..=performed.start_ns.1).contains(&request.start_ns)
                && request.start_ns + request.latency_ns == performed.end_ns
                && request.kind == performed.kind
                && request.complete
                && request.client.as_ref().map(|end| end.tid) == performed.client
                && request.server.as_ref().map(|end| end.pid) == performed.server
        };
        // Of several candidates, the last one.
        let can_be = (0..left.len()).filter(|at| is(&left[*at]));
        let Some(at) = can_be.max_by_key(|at| left[*at].0.start_ns) else {
            let text = left.iter().map(|(request, _)| format!("{request:?}\n"));
            return Err(format!("missing {performed:?} among\n{}", text.collect::<String>()));
        };
        let (request, segments) = left.swap_remove(at);
        found.push((performed.req, request, &segments[..]));
    }
    match left.first() {
        Some((request, _)) => Err(format!("never performed: {request:?}")),
        None => Ok(found),
    }
}

/// Checks that the ledger's CPU time is what the threads had, and that no more of it is booked.
fn check_ledger(trace: &Trace, accounts: &[Account]) -> Result<(), String> {
    for account in accounts {
        let tasks = &trace.truth.tasks;
        let task = tasks.iter().find(|task| task.tid == account.tid).ok_or("no such thread")?;
        let at = |ns: u64| {
            ((ns.max(trace.truth.start_ns) - trace.truth.start_ns) as usize).min(task.ticks.len())
        };
        let ticks = &task.ticks[at(account.since_ns)..at(account.until_ns)];
        let on_cpu = |doing: &Doing| !matches!(doing, Doing::Away(_) | Doing::Unborn);
        let ran_ns = ticks.iter().filter(|tick| on_cpu(&tick.doing)).count() as u64;
        if account.cpu_ns != ran_ns || account.own_ns + account.shared_ns > account.cpu_ns {
            return Err(format!("it ran for {ran_ns} ns: {account:?}"));
        }
    }
    Ok(())
}

/// Checks everything that must hold for one trace, and counts how often the engine was right.
fn check(trace: &Trace, score: &mut Score) -> Result<(), String> {
    let (answers, accounts) = explained(trace);
    for (request, segments) in &answers {
        check_conservation(request, segments).map_err(|e| format!("{e}\n{}", table(segments)))?;
    }
    check_exclusive(&answers)?;
    check_ledger(trace, &accounts)?;
    let found = matched(trace, &answers)?;
    let by_id: BTreeMap<u64, ReqNo> =
        found.iter().map(|(req, request, _)| (request.request_id, *req)).collect();
    for (req, request, segments) in found {
        judge(trace, req, request, segments, score)?;
        let said = request.parent_request_id.map(|id| by_id.get(&id).copied());
        let truth = trace.facts.reqs[req].parent;
        score.parent(trace.design, truth, said, request.parent_certainty);
    }
    Ok(())
}

/// Judges the segments of one request.
fn judge(
    trace: &Trace,
    req: ReqNo,
    request: &Request,
    segments: &[Segment],
    score: &mut Score,
) -> Result<(), String> {
    let end_ns = request.start_ns + request.latency_ns;
    let judge = Judge::new(trace, req, end_ns);
    score.request();
    // The arrival time of some bytes is unknown.
    let link = &trace.facts.links[trace.facts.reqs[req].asked.link];
    let untold = request.client.is_none() && link.untold;
    for segment in segments {
        let verdict = judge.judge(segment);
        score.add(trace.design, segment, &verdict);
        if let Some(what) = verdict.false_state.filter(|_| !untold) {
            return Err(format!("{what}: {segment:?}\n{}", table(segments)));
        }
    }
    for at_ns in request.start_ns..end_ns {
        if request.server.is_some() && judge.waits_for_timer(at_ns) {
            let shown = segments.iter().find(|s| s.start_ns <= at_ns && at_ns < s.end_ns());
            score.put_off(trace.design, shown.expect("they tile it"));
        }
        if let Some(tid) = judge.only_worker(at_ns) {
            let shown = segments.iter().find(|s| s.start_ns <= at_ns && at_ns < s.end_ns());
            score.worked(trace.design, tid, shown.expect("they tile it"));
        }
    }
    Ok(())
}

/// The requests of a trace, and its events, one per line.
fn events(trace: &Trace) -> String {
    let reqs = trace.facts.reqs.iter().map(|req| format!("{req:?}\n"));
    let lines = trace.events.iter().map(|event| {
        let Event { ts_ns, cpu, what } = event;
        format!("{ts_ns} CPU {cpu} {what:?}\n")
    });
    reqs.chain(lines).collect()
}

/// Clients and servers under load: measured segments never contradict what happened; inferred segments, and the
/// attribution of work to requests, are right as often as `score.rs` demands.
#[test]
fn servers_under_load_are_explained_as_they_were() {
    explained_as_they_were(Waits::Nothing);
}

/// The same for servers that have timers.
#[test]
fn servers_with_timers_are_explained_as_they_were() {
    explained_as_they_were(Waits::Timers);
}

/// The same for event loops that send a request to another server and serve others until it answers.
#[test]
fn servers_that_ask_and_go_on_are_explained_as_they_were() {
    explained_as_they_were(Waits::Answers);
}

/// The same for servers whose requests wait in a worker's queue.
#[test]
fn servers_with_workers_are_explained_as_they_were() {
    explained_as_they_were(Waits::Workers);
}

fn explained_as_they_were(waits: Waits) {
    let config = cases(1);
    let many = config.cases;
    let score = RefCell::new(Score::default());
    let result = TestRunner::new(config).run(&numbers(), |numbers| {
        let trace = simulate(numbers, waits);
        check(&trace, &mut score.borrow_mut()).map_err(|what| {
            let Trace { design, traced, .. } = trace;
            let what = format!("{what}\n{}", events(&trace));
            TestCaseError::fail(format!(
                "{design:?}, clients and server traced: {traced:?}\n{what}"
            ))
        })
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    let score = score.into_inner();
    println!("{many} traces, {score}");
    // With few traces, shares depend on chance.
    if many >= 10_000 {
        score.check_floors(match waits {
            Waits::Nothing => &WITHOUT_TIMERS,
            Waits::Timers => &WITH_TIMERS,
            Waits::Answers => &WITH_ANSWERS,
            Waits::Workers => &WITH_WORKERS,
        });
    }
}

proptest! {
    #![proptest_config(cases(10))]

    /// Merged segments add up to the same times as the single pieces, and no request's own time is also another's.
    #[test]
    fn few_segments_under_load_add_up_to_every_piece(
        numbers in numbers(),
        waits in select(&Waits::ALL[..]),
    ) {
        let trace = simulate(numbers, waits);
        let engine = Engine::new(trace.cpus, trace.truth.start_ns, Rates::default());
        let (few, accounts) = explained_by(engine, &trace);
        let (every, all_accounts) = explained(&trace);
        prop_assert_eq!(sums(&few), sums(&every));
        prop_assert_eq!(accounts, all_accounts);
        prop_assert_eq!(check_exclusive(&few), Ok(()));
        for (request, segments) in &few {
            prop_assert_eq!(check_conservation(request, segments), Ok(()));
        }
    }

    /// Each request gets the same answer if it is walked alone, without results of other requests' walks.
    #[test]
    fn each_walked_by_itself_requests_are_told_the_same(
        numbers in numbers(),
        waits in select(&Waits::ALL[..]),
    ) {
        let trace = simulate(numbers, waits);
        let engine = || Engine::new(trace.cpus, trace.truth.start_ns, Rates::default());
        let mut alone = engine();
        alone.walk_alone();
        prop_assert_eq!(explained_by(alone, &trace), explained_by(engine(), &trace));
    }

    #[test]
    fn lost_events_under_load_do_not_unbalance_the_ledger(
        numbers in numbers(),
        kept in proptest::collection::vec(0u8..100, 1..400),
        share in 0u8..100,
        waits in select(&Waits::ALL[..]),
    ) {
        let trace = simulate(numbers, waits);
        check_ledger_of(trace.cpus, trace.truth.start_ns, &thinned(&trace.events, &kept, share))?;
    }
}
