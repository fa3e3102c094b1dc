//! The second pass over a capture: adds up its requests and their segments, in memory that does not grow with the
//! number of either.

use std::collections::{HashMap, VecDeque};

use anyhow::{ensure, Result};

use super::breakdown::{Breakdown, ORDER};
use super::filter::Passes;
use super::ids::Ids;
use super::kind_sums::{has_phases, KindSums};
use super::sums::{Key, Sum};
use super::survey::{Facts, KindPlan, Plan, Query};
use rpcprobe_model::{Category, Kind, Request, Segment};
use rpcprobe_tables::RequestRow;

/// Observes the requests that pass the filter while they are added up.
pub trait Watch {
    /// A capture begins. `number` is the number of captures before it.
    fn capture(&mut self, number: usize, facts: &Facts);
    /// A segment of a complete request. The segments of one request come together.
    fn segment(&mut self, request: &Request, segment: &Segment);
    /// The end of a request. `parts` are the sums of its segments; empty for an incomplete request.
    fn request(&mut self, row: &RequestRow, parts: &[(Key, Sum)]);
}

/// Adds up one or more captures.
pub struct Adder<'q> {
    query: &'q Query,
    watch: Option<&'q mut dyn Watch>,
    captures: usize,
    facts: Facts,
    row: Option<Row>,
    current: RequestSums,
    plans: HashMap<Kind, KindPlan>,
    kinds: HashMap<Kind, KindSums>,
    /// The time in which requests could start: in all captures, and in those with each label.
    window_ns: u128,
    label_windows_ns: HashMap<Option<String>, u128>,
    told: Breakdown,
}

/// The request being read.
struct Row {
    row: RequestRow,
    passes: bool,
}

/// Sums of the request being read. A request has few different parts, so searching a vector is faster than a map.
#[derive(Default)]
pub struct RequestSums {
    pub parts: Vec<(Key, Sum)>,
    /// The last field is the offset at which the phase first appears.
    pub phases: Vec<(Option<&'static str>, Sum, u64)>,
    total_ns: u128,
}

impl<'q> Adder<'q> {
    /// `plan` must come from a survey of the same captures with the same query.
    pub fn new(query: &'q Query, plan: Plan) -> Adder<'q> {
        Adder {
            query,
            watch: None,
            captures: 0,
            facts: Facts::default(),
            row: None,
            current: RequestSums::default(),
            plans: plan.kinds,
            kinds: HashMap::new(),
            window_ns: 0,
            label_windows_ns: HashMap::new(),
            told: Breakdown { tree: plan.tree, ..Breakdown::default() },
        }
    }

    /// Lets `watch` observe what is added up.
    pub fn watched(self, watch: &'q mut dyn Watch) -> Adder<'q> {
        Adder { watch: Some(watch), ..self }
    }

    /// Adds up a capture. Requests and segments must come in the same order of requests, as they are written.
    ///
    /// # Errors
    /// Passes on errors of `rows` and `segments`. Fails if two requests have the same id, or if the segments of a
    /// request are not together.
    pub fn capture(
        &mut self,
        rows: impl IntoIterator<Item = Result<RequestRow>>,
        segments: impl IntoIterator<Item = Result<(u64, Segment)>>,
        facts: Facts,
    ) -> Result<()> {
        let window_ns = u128::from(facts.window_ns(&self.query.filter));
        self.window_ns += window_ns;
        *self.label_windows_ns.entry(facts.label.clone()).or_default() += window_ns;
        self.facts = facts;
        if let Some(watch) = &mut self.watch {
            watch.capture(self.captures, &self.facts);
        }
        self.captures += 1;
        let mut known = Ids::default();
        let rows = rows.into_iter().map(|row| {
            let row = row?;
            let id = row.request.request_id;
            ensure!(known.insert(id), "two requests have the id {id}");
            Ok(row)
        });
        let mut rows = Ahead { rows, read: VecDeque::new() };
        let (mut current, mut explained) = (None, Ids::default());
        for item in segments {
            let (id, segment) = item?;
            if current != Some(id) {
                self.end_request();
                ensure!(explained.insert(id), "the segments of request {id} are not together");
                current = Some(id);
                if let Some(before) = rows.until(id, self)? {
                    for row in rows.read.drain(..before) {
                        self.without_segments(row);
                    }
                    if let Some(row) = rows.read.pop_front() {
                        let passes = self.count(&row.request);
                        self.row = Some(Row { row, passes });
                    }
                }
            }
            self.add(&segment);
        }
        self.end_request();
        while let Some(row) = rows.next()? {
            self.without_segments(row);
        }
        Ok(())
    }

    /// Counts a request; returns whether it passes the filter, or may pass it.
    fn count(&mut self, request: &Request) -> bool {
        self.told.in_capture += 1;
        match self.query.filter.passes(request, self.facts.start_ns) {
            Passes::No => return false,
            Passes::Maybe => self.told.may_pass += 1,
            Passes::Yes => {}
        }
        self.told.passing += 1;
        let plans = &mut self.plans;
        let kind = self
            .kinds
            .entry(request.kind)
            .or_insert_with(|| KindSums::new(plans.remove(&request.kind).unwrap_or_default()));
        kind.count(request, self.facts.label.as_deref(), &self.facts.programs);
        true
    }

    fn without_segments(&mut self, row: RequestRow) {
        let passes = self.count(&row.request);
        if let Some(watch) = self.watch.as_mut().filter(|_| passes) {
            watch.request(&row, &[]);
        }
        if row.request.complete && row.request.latency_ns > 0 {
            self.not_conserved(&row.request, 0);
        }
    }

    fn add(&mut self, segment: &Segment) {
        let Some(Row { row: RequestRow { request, .. }, passes }) = &self.row else {
            self.told.orphan_segments += 1;
            return;
        };
        if !request.complete {
            return;
        }
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
        if !passes {
            return;
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
        if let Some(kind) = self.kinds.get_mut(&request.kind) {
            kind.segment(request, segment, &self.facts.probe);
        }
        if let Some(watch) = &mut self.watch {
            watch.segment(request, segment);
        }
    }

    fn end_request(&mut self) {
        let Some(Row { row, passes }) = self.row.take() else { return };
        let RequestRow { request, category_ns } = &row;
        let current = std::mem::take(&mut self.current);
        if let Some(watch) = self.watch.as_mut().filter(|_| passes) {
            watch.request(&row, &current.parts);
        }
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
        if let Some(kind) = self.kinds.get_mut(&request.kind).filter(|_| passes) {
            kind.add(request, current, self.facts.label.as_deref());
        }
    }

    fn not_conserved(&mut self, request: &Request, sum_ns: u128) {
        self.defect(format!(
            "request {}: segments sum to {sum_ns} ns, latency is {} ns",
            request.request_id, request.latency_ns
        ));
    }

    fn defect(&mut self, what: String) {
        self.told.not_conserved += 1;
        self.told.not_conserved_example.get_or_insert(what);
    }

    /// Returns everything that was added up.
    pub fn finish(self) -> Breakdown {
        let Adder { mut kinds, window_ns, label_windows_ns, told, query, .. } = self;
        let by_label = query.by == Some(super::groups::GroupBy::Label);
        let windows = |name: Option<&str>| match by_label {
            true => label_windows_ns.get(&name.map(str::to_owned)).copied().unwrap_or(0),
            false => window_ns,
        };
        let kinds =
            ORDER.iter().filter_map(|kind| Some(kinds.remove(kind)?.finish(*kind, &windows)));
        Breakdown { kinds: kinds.collect(), ..told }
    }
}

/// Requests, with a bounded look-ahead.
struct Ahead<I> {
    rows: I,
    read: VecDeque<RequestRow>,
}

/// Number of requests among which a segment's request is searched. Requests without segments, by their own sums, do not
/// count.
const MOST_AHEAD: usize = 64;

impl<I: Iterator<Item = Result<RequestRow>>> Ahead<I> {
    fn next(&mut self) -> Result<Option<RequestRow>> {
        match self.read.pop_front() {
            Some(row) => Ok(Some(row)),
            None => self.rows.next().transpose(),
        }
    }

    /// Returns how many requests in `read` come before the request with this id; all of them are read then. `None` if
    /// the request does not come up. Requests without segments are passed to the adder at once.
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

/// Runs all passes over one capture. Each call of `rows` and `segments` reads the tables from the beginning.
///
/// # Errors
/// As [`Adder::capture`].
#[cfg(test)]
pub fn breakdown<R, S>(
    rows: impl Fn() -> R,
    segments: S,
    facts: &Facts,
    query: &Query,
) -> Result<Breakdown>
where
    R: IntoIterator<Item = Result<RequestRow>>,
    S: IntoIterator<Item = Result<(u64, Segment)>>,
{
    let mut outlines = super::tree::Outlines::default();
    outlines.capture(rows().into_iter().map(|row| Ok((&row?.request).into())))?;
    let mut survey = super::survey::Survey::new(query, outlines);
    survey.capture(rows(), facts)?;
    let mut adder = Adder::new(query, survey.finish());
    adder.capture(rows(), segments, facts.clone())?;
    Ok(adder.finish())
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{broken_down, facts, segment, stream, ten, tiled, unfinished};
    use super::super::sums::Distribution;
    use super::*;
    use rpcprobe_model::Side;

    fn of(requests: &[(RequestRow, Vec<Segment>)]) -> Breakdown {
        broken_down(requests, &Query::default())
    }

    fn streamed(rows: Vec<RequestRow>, segments: Vec<Result<(u64, Segment)>>) -> Result<Breakdown> {
        breakdown(|| rows.iter().cloned().map(Ok), segments, &facts(), &Query::default())
    }

    #[test]
    fn sums_are_right() {
        let breakdown = of(&ten());
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
        let breakdown = of(&requests);
        let lock =
            breakdown.kinds[0].parts.iter().find(|part| part.category == Category::Lock).unwrap();
        assert_eq!((lock.per_request.p90_ns, lock.per_request.p99_ns), (0, 7));
    }

    #[test]
    fn incomplete_requests_are_counted_and_left_out() {
        let mut requests = ten();
        requests.push((unfinished(11, 3_100_000), Vec::new()));
        let breakdown = of(&requests);
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
        let breakdown = streamed(rows, segments).unwrap();
        assert_eq!((breakdown.not_conserved, breakdown.orphan_segments), (3, 1));
        let example = breakdown.not_conserved_example.unwrap();
        assert_eq!(example, "request 3: segments sum to 2100 ns, latency is 3000 ns");
    }

    #[test]
    fn requests_must_be_whole_in_the_stream() {
        let (rows, mut segments) = stream(&ten());
        let first = segments.remove(0);
        segments.push(first);
        let twice = vec![rows[0].clone(), rows[0].clone()];
        let error = streamed(rows.clone(), segments).unwrap_err().to_string();
        assert_eq!(error, "the segments of request 1 are not together");
        let error = streamed(twice, Vec::new()).unwrap_err().to_string();
        assert_eq!(error, "two requests have the id 1");
    }

    #[test]
    fn requests_and_segments_need_no_other_order_than_each_others() {
        let mut requests = ten();
        requests.swap(2, 7);
        requests.insert(4, (unfinished(11, 3_100_000), Vec::new()));
        let breakdown = of(&requests);
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
        let breakdown = of(&[(row, segments)]);
        let phases: Vec<_> = breakdown.kinds[0]
            .phases
            .iter()
            .map(|phase| (phase.phase.unwrap_or("-"), phase.per_request.total_ns))
            .collect();
        assert_eq!(phases, [("fork", 50), ("exec", 200), ("program", 30), ("-", 20)]);
    }
}
