//! Adds up a whole capture: for each kind of request, where its time went.

use std::collections::{BTreeMap, HashMap, VecDeque};

use anyhow::{ensure, Result};
use serde::Serialize;

use super::ids::Ids;
use super::values::Values;
use crate::model::{Category, Certainty, Evidence, Kind, Request, Segment, Side};
use crate::output::RequestRow;

/// Kinds in the order of reports: those that contain others come first.
const OUTERMOST_FIRST: [Kind; 14] = [
    Kind::Process,
    Kind::Exec,
    Kind::Span,
    Kind::Stdio,
    Kind::Http2,
    Kind::Http1,
    Kind::OncRpc,
    Kind::Resp,
    Kind::File,
    Kind::Pipe,
    Kind::Shm,
    Kind::Unix,
    Kind::Tcp,
    Kind::Udp,
];

/// Names listed for a run-queue wait.
const TOP_NAMES: usize = 3;

/// Where the time of all requests went, and whether the figures can be trusted.
#[derive(Clone, Debug, Serialize)]
pub struct Breakdown {
    /// Outermost kinds first; kinds without requests are left out.
    pub kinds: Vec<KindBreakdown>,
    /// Complete requests whose parts do not add up to their latency: a defect, if not 0.
    pub not_conserved: u64,
    /// The first of them, and what is wrong with it.
    pub not_conserved_example: Option<String>,
    /// Segments of requests that are not in the capture: a defect, if not 0.
    pub orphan_segments: u64,
}

/// The requests of one kind. Distributions are over its complete requests.
#[derive(Clone, Debug, Serialize)]
pub struct KindBreakdown {
    pub kind: Kind,
    pub requests: u64,
    /// How sure it is that they are requests of this kind.
    pub certainties: BTreeMap<Certainty, u64>,
    pub incomplete: u64,
    /// Incomplete requests by reason.
    pub incomplete_reasons: BTreeMap<String, u64>,
    /// The longest an incomplete request is known to have lasted at least.
    pub incomplete_max_lower_bound_ns: Option<u64>,
    pub latency: Distribution,
    /// In the order of [`Category::ALL`], then of sides. The last is always `unattributed`.
    pub parts: Vec<Part>,
    /// In order of time; only for `exec` and `process`.
    pub phases: Vec<PhasePart>,
    /// Who ran while requests waited for a CPU.
    pub waits: Vec<Waits>,
}

/// Percentiles by nearest rank; requests without the part count as 0. Each is a value that occurred (no
/// interpolation) or, of more values than [`EXACT_VALUES`](super::values::EXACT_VALUES), within 0.1 % of
/// one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Distribution {
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    pub mean_ns: f64,
    pub total_ns: u64,
}

/// One category at one side.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    pub category: Category,
    /// `None` only for `unattributed` without any time.
    pub side: Option<Side>,
    #[serde(flatten)]
    pub per_request: Distribution,
    /// Of the total latency of the kind's complete requests, 0 to 1.
    pub share: f64,
    /// How much of the total is not measured.
    pub modelled_ns: u64,
    pub sampled_ns: u64,
}

/// One phase of the life of processes.
#[derive(Clone, Debug, Serialize)]
pub struct PhasePart {
    /// `None` for segments of no phase.
    pub phase: Option<&'static str>,
    #[serde(flatten)]
    pub per_request: Distribution,
    /// Of the total latency of the kind's complete requests, 0 to 1.
    pub share: f64,
    /// How much of the total is not measured.
    pub modelled_ns: u64,
    pub sampled_ns: u64,
}

/// For one run-queue part: who had the CPU.
#[derive(Clone, Debug, Serialize)]
pub struct Waits {
    pub category: Category,
    pub side: Side,
    pub total_ns: u64,
    /// How much of the total is modelled, not measured.
    pub modelled_ns: u64,
    /// Those that account for most, most first.
    pub top: Vec<WaitedFor>,
}

/// A name, and the waiting time it accounts for.
#[derive(Clone, Debug, Serialize)]
pub struct WaitedFor {
    /// Name of the thread without its number; `None` when not known.
    pub comm: Option<String>,
    pub ns: u64,
}

/// Adds up requests and their segments. Both come in one pass and in the same order of requests, as they
/// are written, so memory grows with neither.
///
/// # Errors
/// Passes on what `rows` and `segments` fail with; when two requests have one id, or the segments of a
/// request are not together.
pub fn breakdown(
    rows: impl IntoIterator<Item = Result<RequestRow>>,
    segments: impl IntoIterator<Item = Result<(u64, Segment)>>,
) -> Result<Breakdown> {
    let mut known = Ids::default();
    let rows = rows.into_iter().map(|row| {
        let row = row?;
        let id = row.request.request_id;
        ensure!(known.insert(id), "two requests have the id {id}");
        Ok(row)
    });
    let mut rows = Ahead { rows, read: VecDeque::new() };
    let mut adder = Adder::default();
    let (mut current, mut explained) = (None, Ids::default());
    for item in segments {
        let (id, segment) = item?;
        if current != Some(id) {
            adder.end_request();
            ensure!(explained.insert(id), "the segments of request {id} are not together");
            current = Some(id);
            if let Some(before) = rows.until(id, &mut adder)? {
                for row in rows.read.drain(..before) {
                    adder.without_segments(row);
                }
                adder.row = rows.read.pop_front();
                adder.count_current();
            }
        }
        adder.add(&segment);
    }
    adder.end_request();
    while let Some(row) = rows.next()? {
        adder.without_segments(row);
    }
    Ok(adder.finish())
}

/// Requests, with a look at some of those to come.
struct Ahead<I> {
    rows: I,
    read: VecDeque<RequestRow>,
}

/// A request whose segments come is looked for among so many. Those that have none, by their own sums,
/// are not counted.
const MOST_AHEAD: usize = 64;

impl<I: Iterator<Item = Result<RequestRow>>> Ahead<I> {
    fn next(&mut self) -> Result<Option<RequestRow>> {
        match self.read.pop_front() {
            Some(row) => Ok(Some(row)),
            None => self.rows.next().transpose(),
        }
    }

    /// How many come before the one with this id, if it is to come: all of them are read then. The
    /// adder is given those that have no segments.
    fn until(&mut self, id: u64, adder: &mut Adder) -> Result<Option<usize>> {
        let is = |row: &RequestRow| row.request.request_id == id;
        if let Some(at) = self.read.iter().position(is) {
            return Ok(Some(at));
        }
        while self.read.len() < MOST_AHEAD {
            let Some(row) = self.rows.next().transpose()? else { break };
            if !is(&row) && row.category_ns.iter().all(Option::is_none) {
                adder.without_segments(row);
                continue;
            }
            self.read.push_back(row);
            if self.read.back().is_some_and(is) {
                return Ok(Some(self.read.len() - 1));
            }
        }
        Ok(None)
    }
}

/// Sums of the request being read. A request has few different parts, so a search through a vector
/// beats a map.
#[derive(Default)]
struct RequestSums {
    parts: Vec<((Category, Side), Sum)>,
    phases: Vec<(Option<&'static str>, Sum, u64)>,
    total_ns: u128,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    ns: u128,
    modelled_ns: u128,
    sampled_ns: u128,
}

impl Sum {
    fn add(&mut self, segment: &Segment) {
        let ns = u128::from(segment.duration_ns);
        self.ns += ns;
        match segment.evidence {
            Evidence::Measured => {}
            Evidence::Sampled => self.sampled_ns += ns,
            Evidence::Modelled => self.modelled_ns += ns,
        }
    }
}

/// Sums over requests, and the values that are not 0.
#[derive(Default)]
struct Sums {
    per_request_ns: Values,
    sum: Sum,
}

impl Sums {
    fn add(&mut self, sum: Sum) {
        if sum.ns > 0 {
            self.per_request_ns.push(clamp(sum.ns));
        }
        self.sum.ns += sum.ns;
        self.sum.modelled_ns += sum.modelled_ns;
        self.sum.sampled_ns += sum.sampled_ns;
    }

    fn distribution(&mut self, count: u64) -> Distribution {
        let values = &mut self.per_request_ns;
        Distribution {
            p50_ns: values.nearest_rank(count, 50),
            p90_ns: values.nearest_rank(count, 90),
            p99_ns: values.nearest_rank(count, 99),
            max_ns: values.max(),
            mean_ns: ratio(self.sum.ns, u128::from(count)),
            total_ns: clamp(self.sum.ns),
        }
    }
}

#[derive(Default)]
struct PhaseSums {
    sums: Sums,
    /// Sum of the offsets at which the phase first appears, and in how many requests: their mean
    /// puts the phases in order.
    first_ns: u128,
    requests: u64,
}

#[derive(Default)]
struct KindSums {
    requests: u64,
    certainties: BTreeMap<Certainty, u64>,
    incomplete: u64,
    reasons: BTreeMap<String, u64>,
    max_lower_bound_ns: Option<u64>,
    latency: Sums,
    parts: BTreeMap<(Category, Side), Sums>,
    phases: HashMap<Option<&'static str>, PhaseSums>,
    waits: BTreeMap<(Category, Side), WaitSums>,
}

#[derive(Default)]
struct WaitSums {
    total_ns: u128,
    modelled_ns: u128,
    named_ns: HashMap<String, u128>,
}

impl WaitSums {
    fn add(&mut self, segment: &Segment) {
        let ns = u128::from(segment.duration_ns);
        self.total_ns += ns;
        if segment.evidence == Evidence::Modelled {
            self.modelled_ns += ns;
        }
        if let Some(name) = segment.by.as_deref().map(without_tid) {
            // Looked up before it is owned: most segments repeat a name.
            match self.named_ns.get_mut(name) {
                Some(sum_ns) => *sum_ns += ns,
                None => {
                    self.named_ns.insert(name.to_owned(), ns);
                }
            }
        }
    }
}

#[derive(Default)]
struct Adder {
    row: Option<RequestRow>,
    current: RequestSums,
    kinds: HashMap<Kind, KindSums>,
    not_conserved: u64,
    example: Option<String>,
    orphans: u64,
}

impl Adder {
    fn count(&mut self, request: &Request) {
        let kind = self.kinds.entry(request.kind).or_default();
        kind.requests += 1;
        *kind.certainties.entry(request.certainty).or_default() += 1;
        if request.complete {
            let ns = u128::from(request.latency_ns);
            kind.latency.add(Sum { ns, ..Sum::default() });
        } else {
            kind.incomplete += 1;
            let reason = request.reason.clone().unwrap_or("no reason given".to_owned());
            *kind.reasons.entry(reason).or_default() += 1;
            kind.max_lower_bound_ns = kind.max_lower_bound_ns.max(Some(request.latency_ns));
        }
    }

    fn without_segments(&mut self, row: RequestRow) {
        self.count(&row.request);
        if row.request.complete && row.request.latency_ns > 0 {
            self.not_conserved(&row.request, 0);
        }
    }

    fn count_current(&mut self) {
        if let Some(row) = self.row.take() {
            self.count(&row.request);
            self.row = Some(row);
        }
    }

    fn add(&mut self, segment: &Segment) {
        let Some(RequestRow { request, .. }) = &self.row else {
            self.orphans += 1;
            return;
        };
        if !request.complete {
            return;
        }
        let Some(kind) = self.kinds.get_mut(&request.kind) else { return };
        self.current.total_ns += u128::from(segment.duration_ns);
        let key = (segment.category, segment.side);
        match self.current.parts.iter_mut().find(|(of, _)| *of == key) {
            Some((_, sum)) => sum.add(segment),
            None => {
                let mut sum = Sum::default();
                sum.add(segment);
                self.current.parts.push((key, sum));
            }
        }
        if has_phases(request.kind) {
            let phases = &mut self.current.phases;
            match phases.iter_mut().find(|(of, ..)| *of == segment.phase) {
                Some((_, sum, _)) => sum.add(segment),
                None => {
                    let mut sum = Sum::default();
                    sum.add(segment);
                    let first_ns = segment.start_ns.saturating_sub(request.start_ns);
                    phases.push((segment.phase, sum, first_ns));
                }
            }
        }
        if matches!(segment.category, Category::RunqueueWakeup | Category::RunqueuePreempted) {
            kind.waits.entry(key).or_default().add(segment);
        }
    }

    fn end_request(&mut self) {
        let Some(row) = self.row.take() else { return };
        let RequestRow { request, category_ns } = &row;
        let current = std::mem::take(&mut self.current);
        if !request.complete {
            return;
        }
        let mut by_category = [0_u128; Category::ALL.len()];
        for ((category, _), sum) in &current.parts {
            by_category[*category as usize] += sum.ns;
        }
        let agree = by_category
            .iter()
            .zip(category_ns)
            .all(|(sum_ns, column_ns)| *sum_ns == u128::from(column_ns.unwrap_or(0)));
        if current.total_ns != u128::from(request.latency_ns) {
            self.not_conserved(request, current.total_ns);
        } else if !agree {
            self.defect(format!(
                "request {}: its category columns differ from the sums of its segments",
                request.request_id
            ));
        }
        let Some(kind) = self.kinds.get_mut(&request.kind) else { return };
        for (key, sum) in current.parts {
            kind.parts.entry(key).or_default().add(sum);
        }
        for (phase, sum, first_ns) in current.phases {
            let phase = kind.phases.entry(phase).or_default();
            phase.sums.add(sum);
            phase.first_ns += u128::from(first_ns);
            phase.requests += 1;
        }
    }

    fn not_conserved(&mut self, request: &Request, sum_ns: u128) {
        self.defect(format!(
            "request {}: segments sum to {sum_ns} ns, latency is {} ns",
            request.request_id, request.latency_ns
        ));
    }

    fn defect(&mut self, what: String) {
        self.not_conserved += 1;
        self.example.get_or_insert(what);
    }

    fn finish(mut self) -> Breakdown {
        let kinds = OUTERMOST_FIRST
            .iter()
            .filter_map(|kind| Some(kind_breakdown(*kind, self.kinds.remove(kind)?)))
            .collect();
        Breakdown {
            kinds,
            not_conserved: self.not_conserved,
            not_conserved_example: self.example,
            orphan_segments: self.orphans,
        }
    }
}

fn kind_breakdown(kind: Kind, mut sums: KindSums) -> KindBreakdown {
    let complete = sums.requests - sums.incomplete;
    let latency = sums.latency.distribution(complete);
    let whole = sums.latency.sum.ns;
    let mut parts: Vec<Part> = sums
        .parts
        .iter_mut()
        .map(|((category, side), sums)| Part {
            category: *category,
            side: Some(*side),
            per_request: sums.distribution(complete),
            share: ratio(sums.sum.ns, whole),
            modelled_ns: clamp(sums.sum.modelled_ns),
            sampled_ns: clamp(sums.sum.sampled_ns),
        })
        .collect();
    if parts.last().is_none_or(|part| part.category != Category::Unattributed) {
        parts.push(Part {
            category: Category::Unattributed,
            side: None,
            per_request: Distribution::default(),
            share: 0.0,
            modelled_ns: 0,
            sampled_ns: 0,
        });
    }
    let mut phases: Vec<_> = sums.phases.into_iter().collect();
    phases.sort_by(|(a_name, a), (b_name, b)| {
        let mean_ns = |phase: &PhaseSums| ratio(phase.first_ns, u128::from(phase.requests));
        mean_ns(a).total_cmp(&mean_ns(b)).then(a_name.cmp(b_name))
    });
    let phases = phases
        .into_iter()
        .map(|(phase, mut of)| PhasePart {
            phase,
            per_request: of.sums.distribution(complete),
            share: ratio(of.sums.sum.ns, whole),
            modelled_ns: clamp(of.sums.sum.modelled_ns),
            sampled_ns: clamp(of.sums.sum.sampled_ns),
        })
        .collect();
    KindBreakdown {
        kind,
        requests: sums.requests,
        certainties: sums.certainties,
        incomplete: sums.incomplete,
        incomplete_reasons: sums.reasons,
        incomplete_max_lower_bound_ns: sums.max_lower_bound_ns,
        latency,
        parts,
        phases,
        waits: sums.waits.into_iter().map(waits).collect(),
    }
}

fn waits(((category, side), sums): ((Category, Side), WaitSums)) -> Waits {
    let unnamed_ns = sums.total_ns - sums.named_ns.values().sum::<u128>();
    let mut top: Vec<_> = sums.named_ns.into_iter().map(|(name, ns)| (Some(name), ns)).collect();
    if unnamed_ns > 0 {
        top.push((None, unnamed_ns));
    }
    top.sort_by(|(a_name, a_ns), (b_name, b_ns)| b_ns.cmp(a_ns).then(a_name.cmp(b_name)));
    top.truncate(TOP_NAMES);
    let top = top.into_iter().map(|(comm, ns)| WaitedFor { comm, ns: clamp(ns) }).collect();
    let (total_ns, modelled_ns) = (clamp(sums.total_ns), clamp(sums.modelled_ns));
    Waits { category, side, total_ns, modelled_ns, top }
}

/// Processes have a life with phases; other requests do not.
fn has_phases(kind: Kind) -> bool {
    matches!(kind, Kind::Exec | Kind::Process)
}

/// The name in `comm/tid`: threads of one name count as one.
fn without_tid(by: &str) -> &str {
    match by.rsplit_once('/') {
        Some((comm, tid)) if !tid.is_empty() && tid.bytes().all(|b| b.is_ascii_digit()) => comm,
        _ => by,
    }
}

fn ratio(part: u128, whole: u128) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn clamp(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{segment, stream, ten, tiled, unfinished};
    use super::*;

    #[test]
    fn sums_are_right() {
        let (rows, segments) = stream(&ten());
        let breakdown = breakdown(rows.into_iter().map(Ok), segments).unwrap();
        assert_eq!((breakdown.not_conserved, breakdown.orphan_segments), (0, 0));
        let [pipe] = &breakdown.kinds[..] else { panic!("one kind") };
        assert_eq!((pipe.requests, pipe.incomplete), (10, 0));
        assert_eq!(
            pipe.latency,
            Distribution {
                p50_ns: 5_000,
                p90_ns: 9_000,
                p99_ns: 10_000,
                max_ns: 10_000,
                mean_ns: 5_500.0,
                total_ns: 55_000
            }
        );
        let names: Vec<_> = pipe.parts.iter().map(|part| part.category.name()).collect();
        assert_eq!(names, ["user", "copy", "runqueue.wakeup", "unattributed"]);
        let total_ns: u64 = pipe.parts.iter().map(|part| part.per_request.total_ns).sum();
        assert_eq!(total_ns, pipe.latency.total_ns);
        assert_eq!(pipe.parts[1].modelled_ns, pipe.parts[1].per_request.total_ns);
        assert!((pipe.parts[0].share - 0.6).abs() < 1e-12);
        assert_eq!(pipe.parts[3].side, None);
        let top: Vec<_> =
            pipe.waits[0].top.iter().map(|name| (name.comm.as_deref().unwrap(), name.ns)).collect();
        assert_eq!(top, [("kworker/0:1", 10_800), ("sh", 5_700)]);
    }

    #[test]
    fn a_part_that_is_rare_counts_as_zero_elsewhere() {
        let mut requests = ten();
        requests[4].1.push(segment(Category::Lock, Side::Server, 7));
        requests[4] = tiled(5, requests[4].1.clone());
        let (rows, segments) = stream(&requests);
        let breakdown = breakdown(rows.into_iter().map(Ok), segments).unwrap();
        let lock =
            breakdown.kinds[0].parts.iter().find(|part| part.category == Category::Lock).unwrap();
        assert_eq!((lock.per_request.p90_ns, lock.per_request.p99_ns), (0, 7));
    }

    #[test]
    fn incomplete_requests_are_counted_and_left_out() {
        let mut requests = ten();
        requests.push((unfinished(11, 3_100_000), Vec::new()));
        let (rows, segments) = stream(&requests);
        let breakdown = breakdown(rows.into_iter().map(Ok), segments).unwrap();
        let pipe = &breakdown.kinds[0];
        assert_eq!((pipe.requests, pipe.incomplete, pipe.latency.max_ns), (11, 1, 10_000));
        assert_eq!(pipe.incomplete_max_lower_bound_ns, Some(3_100_000));
        assert_eq!(pipe.incomplete_reasons["records lost"], 1);
        assert_eq!(breakdown.not_conserved, 0);
    }

    #[test]
    fn what_does_not_add_up_is_found() {
        let mut requests = ten();
        requests[2].1.pop();
        requests[3].1.clear();
        requests[5].0.category_ns[Category::Lock as usize] = Some(1);
        let (rows, mut segments) = stream(&requests);
        segments.push(Ok((99, segment(Category::User, Side::Client, 1))));
        let breakdown = breakdown(rows.into_iter().map(Ok), segments).unwrap();
        assert_eq!((breakdown.not_conserved, breakdown.orphan_segments), (3, 1));
        let example = breakdown.not_conserved_example.unwrap();
        assert_eq!(example, "request 3: segments sum to 2100 ns, latency is 3000 ns");
    }

    #[test]
    fn requests_must_be_whole_in_the_stream() {
        let (rows, mut segments) = stream(&ten());
        let first = segments.remove(0);
        segments.push(first);
        let twice = vec![Ok(rows[0].clone()), Ok(rows[0].clone())];
        let error = breakdown(rows.into_iter().map(Ok), segments).unwrap_err().to_string();
        assert_eq!(error, "the segments of request 1 are not together");
        let error = breakdown(twice, Vec::new()).unwrap_err().to_string();
        assert_eq!(error, "two requests have the id 1");
    }

    #[test]
    fn requests_and_segments_need_no_other_order_than_each_others() {
        let mut requests = ten();
        requests.swap(2, 7);
        requests.insert(4, (unfinished(11, 3_100_000), Vec::new()));
        let (rows, segments) = stream(&requests);
        let breakdown = breakdown(rows.into_iter().map(Ok), segments).unwrap();
        assert_eq!((breakdown.not_conserved, breakdown.orphan_segments), (0, 0));
        assert_eq!((breakdown.kinds[0].requests, breakdown.kinds[0].incomplete), (11, 1));
    }

    #[test]
    fn phases_come_in_order_of_time() {
        let phase = |name, ns| {
            let mut segment = segment(Category::User, Side::Server, ns);
            segment.phase = name;
            segment
        };
        let (mut row, segments) = tiled(
            1,
            vec![
                phase(Some("fork"), 50),
                phase(Some("exec"), 200),
                phase(Some("program"), 30),
                phase(None, 20),
            ],
        );
        row.request.kind = Kind::Exec;
        let (rows, segments) = stream(&[(row, segments)]);
        let breakdown = breakdown(rows.into_iter().map(Ok), segments).unwrap();
        let phases: Vec<_> = breakdown.kinds[0]
            .phases
            .iter()
            .map(|phase| (phase.phase.unwrap_or("-"), phase.per_request.total_ns))
            .collect();
        assert_eq!(phases, [("fork", 50), ("exec", 200), ("program", 30), ("-", 20)]);
    }

    #[test]
    fn every_kind_has_a_place() {
        for kind in Kind::ALL {
            assert!(OUTERMOST_FIRST.contains(kind), "{kind}");
        }
    }

    #[test]
    fn threads_of_one_name() {
        assert_eq!(without_tid("kworker/0:1/33"), "kworker/0:1");
        assert_eq!(without_tid("a/b"), "a/b");
        assert_eq!(without_tid("a/"), "a/");
    }
}
