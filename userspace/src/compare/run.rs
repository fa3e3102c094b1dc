//! Sums up one capture: the latencies of each kind of request, split into parts that add up to them.

use std::collections::BTreeMap;

use anyhow::{bail, ensure, Result};
use rustc_hash::FxHashMap;

use super::names::{Name, Names};
use super::series::Series;
use super::{Part, Statistic};
use crate::capture::manifest::Manifest;
use crate::model::{Kind, Request, Segment};
use crate::output::RequestRow;
use crate::stats::quantile::{harrell_davis, RankWeights};

/// The data of a capture that a comparison needs.
#[derive(Clone, Debug)]
pub struct Run {
    pub name: String,
    pub manifest: Manifest,
    pub kinds: BTreeMap<Kind, RunKind>,
}

/// The requests of one kind in one capture. Figures cover the complete requests.
#[derive(Clone, Debug, Default)]
pub struct RunKind {
    /// Number of complete requests.
    pub complete: u64,
    pub incomplete: u64,
    /// By [`Statistic`]: the parts in ns, whose sum is the statistic. `None` if there are too few requests.
    pub figures: [Option<BTreeMap<Part, f64>>; 4],
    /// Quantiles for the shift function, as in [`super::shift::GRID`].
    pub quantiles_ns: Vec<f64>,
    /// Times of names in waits, in ns per request.
    pub names: BTreeMap<Name, f64>,
    pub methods: BTreeMap<Option<String>, Method>,
    /// By part, over all requests: the total ns, and how much of it is modelled or sampled.
    pub evidence: BTreeMap<Part, [u128; 2]>,
    /// For intervals within this capture.
    pub series: Option<Series>,
}

/// The requests that call one method.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Method {
    pub requests: u64,
    pub latency_ns: u128,
}

impl Run {
    /// Sums up the requests of a capture that `wanted` accepts. `with_series`: also collects what intervals from this
    /// capture alone need.
    ///
    /// # Errors
    /// Passes on errors of `rows` and `segments`. Fails if the segments of a complete request do not add up to its
    /// latency, or if two requests have the same id.
    pub fn of(
        name: String,
        manifest: Manifest,
        rows: impl IntoIterator<Item = Result<RequestRow>>,
        segments: impl IntoIterator<Item = Result<(u64, Segment)>>,
        wanted: &dyn Fn(&Request) -> bool,
        with_series: bool,
    ) -> Result<Run> {
        let mut kinds: BTreeMap<Kind, Collected> = BTreeMap::new();
        let mut places: FxHashMap<u64, (Kind, u32)> = FxHashMap::default();
        for row in rows {
            let request = row?.request;
            if !wanted(&request) {
                continue;
            }
            let kind = kinds.entry(request.kind).or_default();
            if !request.complete {
                kind.run.incomplete += 1;
                continue;
            }
            let id = request.request_id;
            let place = (request.kind, kind.latencies_ns.len() as u32);
            ensure!(places.insert(id, place).is_none(), "{name}: two requests have the id {id}");
            kind.take(request);
        }
        kinds.values_mut().for_each(|kind| kind.rank(with_series));

        let mut current: Option<(u64, OneRequest)> = None;
        let mut explained = 0;
        for item in segments {
            let (id, segment) = item?;
            if current.as_ref().is_none_or(|(of, _)| *of != id) {
                if let Some((id, request)) = current.take() {
                    request.end(&name, id, &places, &mut kinds)?;
                }
                if !places.contains_key(&id) {
                    continue;
                }
                explained += 1;
                current = Some((id, OneRequest::default()));
            }
            let Some((_, request)) = &mut current else { continue };
            request.add(&segment);
            if let Some(kind) = places.get(&id).and_then(|(kind, _)| kinds.get_mut(kind)) {
                kind.names.add(&segment);
            }
        }
        if let Some((id, request)) = current {
            request.end(&name, id, &places, &mut kinds)?;
        }
        let empty = kinds.values().flat_map(|kind| &kind.latencies_ns).filter(|ns| **ns == 0);
        if explained + empty.count() < places.len() {
            bail!("{name}: {} complete requests have no segments", places.len() - explained);
        }
        let kinds = kinds.into_iter().map(|(kind, of)| (kind, of.finish())).collect();
        Ok(Run { name, manifest, kinds })
    }

    /// The probe's own cost per request, on average over the requests of this kind. It is known only if the capture has
    /// no other kind (besides the whole process).
    pub fn probe_cost_ns(&self, kind: Kind) -> Option<f64> {
        let mut inner = self.kinds.iter().filter(|(of, _)| **of != Kind::Process);
        match (inner.next(), inner.next()) {
            (Some((of, requests)), None) if *of == kind => {
                let all = requests.complete + requests.incomplete;
                Some(self.manifest.probe_cost_ns() as f64 / all.max(1) as f64)
            }
            _ => None,
        }
    }
}

/// The requests of one kind while they are read.
#[derive(Default)]
struct Collected {
    run: RunKind,
    start_ns: Vec<u64>,
    latencies_ns: Vec<u64>,
    /// Rank of each request among the latencies in ascending order.
    ranks: Vec<u32>,
    /// Weights by [`Statistic`]; `None` for the mean.
    weights: [Option<RankWeights>; 4],
    names: Names,
}

impl Collected {
    fn take(&mut self, request: Request) {
        self.run.complete += 1;
        self.start_ns.push(request.start_ns);
        self.latencies_ns.push(request.latency_ns);
        let method = self.run.methods.entry(request.method).or_default();
        method.requests += 1;
        method.latency_ns += u128::from(request.latency_ns);
    }

    /// Computes the weight of each request in each statistic. All latencies must have been taken in.
    fn rank(&mut self, with_series: bool) {
        let count = self.latencies_ns.len();
        let mut order: Vec<u32> = (0..count as u32).collect();
        order.sort_by_key(|i| self.latencies_ns[*i as usize]);
        self.ranks = vec![0; count];
        for (rank, i) in order.iter().enumerate() {
            self.ranks[*i as usize] = rank as u32;
        }
        let sorted: Vec<u64> = order.iter().map(|i| self.latencies_ns[*i as usize]).collect();
        for (statistic, slot) in Statistic::ALL.into_iter().zip(&mut self.weights) {
            if statistic.is_told_by(count) {
                self.run.figures[statistic as usize] = Some(BTreeMap::new());
                *slot = statistic
                    .quantile()
                    .map(|p| harrell_davis(count, p).averaged_over_ties(&sorted));
            }
        }
        self.run.quantiles_ns = super::shift::of_run(&sorted);
        if with_series && count > 0 {
            self.run.series = Some(Series::new(&self.start_ns, &self.ranks, sorted));
        }
    }

    fn weight(&self, statistic: Statistic, at: usize) -> f64 {
        match &self.weights[statistic as usize] {
            Some(weights) => weights.at(self.ranks[at] as usize),
            None => 1.0 / self.latencies_ns.len() as f64,
        }
    }

    fn finish(mut self) -> RunKind {
        let count = self.run.complete.max(1) as f64;
        self.run.names = self.names.finish(count);
        self.run
    }
}

/// Sums of the request whose segments are being read. A request has few different parts, so searching a vector is
/// faster than a map.
#[derive(Default)]
struct OneRequest {
    parts: Vec<(Part, u128)>,
    unmeasured: Vec<(Part, u128)>,
}

impl OneRequest {
    fn add(&mut self, segment: &Segment) {
        let part = (segment.category, segment.side);
        let ns = u128::from(segment.duration_ns);
        let add = |list: &mut Vec<(Part, u128)>| match list.iter_mut().find(|(of, _)| *of == part) {
            Some((_, sum)) => *sum += ns,
            None => list.push((part, ns)),
        };
        add(&mut self.parts);
        if segment.evidence != crate::model::Evidence::Measured {
            add(&mut self.unmeasured);
        }
    }

    fn end(
        self,
        name: &str,
        id: u64,
        places: &FxHashMap<u64, (Kind, u32)>,
        kinds: &mut BTreeMap<Kind, Collected>,
    ) -> Result<()> {
        let Some((kind, at)) = places.get(&id) else { return Ok(()) };
        let (Some(kind), at) = (kinds.get_mut(kind), *at as usize) else { return Ok(()) };
        let sum: u128 = self.parts.iter().map(|(_, ns)| ns).sum();
        let latency_ns = kind.latencies_ns[at];
        ensure!(
            sum == u128::from(latency_ns),
            "{name}: request {id} does not add up: its segments sum to {sum} ns, its latency is \
             {latency_ns} ns"
        );
        let weights = Statistic::ALL.map(|statistic| kind.weight(statistic, at));
        for (part, ns) in &self.parts {
            for (figures, weight) in kind.run.figures.iter_mut().zip(weights) {
                if let (Some(figures), true) = (figures, weight > 0.0) {
                    *figures.entry(*part).or_default() += weight * *ns as f64;
                }
            }
            kind.run.evidence.entry(*part).or_default()[0] += ns;
        }
        for (part, ns) in &self.unmeasured {
            kind.run.evidence.entry(*part).or_default()[1] += ns;
        }
        if let Some(series) = &mut kind.run.series {
            series.add(at, &self.parts);
        }
        Ok(())
    }
}
