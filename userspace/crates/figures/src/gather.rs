//! The second pass: sums and counts of each group, and the requests that are drawn one by one.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::band::{Band, Bounds};
use crate::bins::Counts;
use crate::request::{Drawn, Kept};
use crate::scan::{GroupKey, GroupPlan, Id, Plan};
use rpcprobe_model::{Category, Kind, Request, Segment};
use rpcprobe_report::largest::Largest;
use rpcprobe_report::sums::{Key, Sum};
use rpcprobe_report::tree::Tree;
use rpcprobe_report::{Facts, Watch};
use rpcprobe_tables::RequestRow;

/// Number of time steps in figures over time.
pub const STEPS: usize = 100;
/// Number of distinct names that are kept for each band, of threads that had a CPU.
const NAMES: usize = 256;

/// Sums of the requests of one band of a group.
#[derive(Default)]
pub struct BandSums {
    pub requests: u64,
    pub latency_ns: u128,
    pub latencies: Counts,
    pub min_ns: u64,
    pub max_ns: u64,
    /// Sums by category.
    pub parts: BTreeMap<Category, PartSums>,
    /// By time step: the number of requests, and nanoseconds by category.
    pub steps: BTreeMap<usize, Step>,
    /// Who had the CPU, separately for waits after a wake-up and waits after losing the CPU.
    pub had_cpu: [Option<Largest>; 2],
}

/// Sums of one category.
#[derive(Default)]
pub struct PartSums {
    pub sum: Sum,
    /// Time per request, over the requests that have any of it.
    pub per_request: Counts,
}

/// Requests that begin within one time step.
#[derive(Default)]
pub struct Step {
    pub requests: u64,
    pub ns: BTreeMap<Category, u128>,
}

impl BandSums {
    fn add(&mut self, request: &Request, parts: &[(Category, Sum)], step: usize) {
        let ns = request.latency_ns;
        self.min_ns = if self.requests == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.requests += 1;
        self.latency_ns += u128::from(ns);
        self.latencies.add(ns);
        let step = self.steps.entry(step).or_default();
        step.requests += 1;
        for (category, sum) in parts {
            let part = self.parts.entry(*category).or_default();
            add(&mut part.sum, sum);
            part.per_request.add(u64::try_from(sum.ns).unwrap_or(u64::MAX));
            *step.ns.entry(*category).or_default() += sum.ns;
        }
    }

    fn plus(&mut self, other: &BandSums) {
        if other.requests == 0 {
            return;
        }
        self.min_ns = if self.requests == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.requests += other.requests;
        self.latency_ns += other.latency_ns;
        self.latencies.plus(&other.latencies);
        for (category, part) in &other.parts {
            let sums = self.parts.entry(*category).or_default();
            add(&mut sums.sum, &part.sum);
            sums.per_request.plus(&part.per_request);
        }
        for (at, step) in &other.steps {
            let sums = self.steps.entry(*at).or_default();
            sums.requests += step.requests;
            for (category, ns) in &step.ns {
                *sums.ns.entry(*category).or_default() += ns;
            }
        }
        for (sums, more) in self.had_cpu.iter_mut().zip(&other.had_cpu) {
            let Some(more) = more else { continue };
            let sums = sums.get_or_insert_with(|| Largest::new(NAMES));
            more.sorted().into_iter().for_each(|(name, ns)| sums.add(name, ns));
        }
    }
}

fn add(sum: &mut Sum, more: &Sum) {
    sum.ns += more.ns;
    sum.modelled_ns += more.modelled_ns;
    sum.sampled_ns += more.sampled_ns;
}

/// Sums of a group of requests.
pub struct Group {
    pub key: GroupKey,
    pub bounds: Bounds,
    /// Number of complete requests.
    pub requests: u64,
    /// The span in which the requests begin, in nanoseconds since the start of the capture.
    pub starts_ns: (u64, u64),
    /// In the order of [`Band::WITH_ALL`].
    pub bands: [BandSums; 5],
    /// Requests whose time line is kept, as indices into [`Gathered::drawn`].
    pub slowest: Vec<usize>,
    pub typical: Vec<usize>,
}

impl Group {
    pub fn band(&self, band: Band) -> &BandSums {
        &self.bands[band as usize]
    }

    /// The bands that can be selected.
    pub fn bands(&self) -> &'static [Band] {
        if self.bounds.are_known() {
            &Band::WITH_ALL
        } else {
            &Band::WITH_ALL[..1]
        }
    }
}

/// Everything that the figures are made from.
pub struct Gathered {
    /// Groups of each kind, in the order of reports, each followed by the groups of its methods.
    pub groups: Vec<Group>,
    /// Requests that are drawn as points, ordered by capture and id.
    pub drawn: Vec<Drawn>,
    pub tree: Tree,
}

/// Collects figures' data while requests are added up.
pub struct Gather {
    groups: Vec<GroupPlan>,
    bands: Vec<[BandSums; 5]>,
    kinds: std::collections::HashMap<Kind, usize>,
    methods: std::collections::HashMap<Kind, std::collections::HashMap<String, usize>>,
    wanted: FxHashMap<Id, bool>,
    drawn: Vec<Drawn>,
    capture: usize,
    start_ns: u64,
    /// Segments of the current request, if its time line is kept.
    kept: Kept,
    waits: Vec<(usize, String, u64)>,
}

impl Gather {
    /// `plan` must come from a scan of the same captures with the same query.
    pub fn new(plan: Plan) -> Gather {
        let Plan { groups, kinds, methods, drawn } = plan;
        Gather {
            bands: groups.iter().map(|_| Default::default()).collect(),
            groups,
            kinds,
            methods,
            wanted: drawn,
            drawn: Vec::new(),
            capture: 0,
            start_ns: 0,
            kept: Kept::default(),
            waits: Vec::new(),
        }
    }

    /// Returns the result of both passes, after the last capture. `tree` is the report's.
    pub fn finish(self, tree: Tree) -> Gathered {
        let Gather { mut drawn, .. } = self;
        drawn.sort_by_key(|of| of.id);
        let places: FxHashMap<Id, usize> =
            drawn.iter().enumerate().map(|(place, of)| (of.id, place)).collect();
        let found = |ids: &[Id]| ids.iter().filter_map(|id| places.get(id).copied()).collect();
        let groups = self.groups.into_iter().zip(self.bands).map(|(plan, mut bands)| {
            let (all, each) = bands.split_at_mut(1);
            each.iter().for_each(|band| all[0].plus(band));
            let slowest = found(&plan.slowest);
            let typical = found(&plan.typical);
            let GroupPlan { key, bounds, complete, starts_ns, .. } = plan;
            Group { key, bounds, requests: complete, starts_ns, bands, slowest, typical }
        });
        let groups = groups.filter(|group| group.requests > 0).collect();
        Gathered { groups, drawn, tree }
    }
}

impl Watch for Gather {
    fn capture(&mut self, number: usize, facts: &Facts) {
        self.capture = number;
        self.start_ns = facts.start_ns;
    }

    fn segment(&mut self, request: &Request, segment: &Segment) {
        let after = match segment.category {
            Category::RunqueueWakeup => Some(0),
            Category::RunqueuePreempted => Some(1),
            _ => None,
        };
        if let Some(after) = after {
            let name = segment.by.as_ref().map_or("", |by| &*by.comm);
            let same = self.waits.iter_mut().find(|(of, by, _)| *of == after && by == name);
            match same {
                Some((.., ns)) => *ns += segment.duration_ns,
                None => self.waits.push((after, name.to_owned(), segment.duration_ns)),
            }
        }
        if self.wanted.get(&(self.capture, request.request_id)) == Some(&true) {
            self.kept.add(segment);
        }
    }

    fn request(&mut self, row: &RequestRow, parts: &[(Key, Sum)]) {
        let request = &row.request;
        let kept = std::mem::take(&mut self.kept);
        let waits = std::mem::take(&mut self.waits);
        if !request.complete {
            return;
        }
        let mut by_category: Vec<(Category, Sum)> = Vec::with_capacity(parts.len());
        for ((category, _), sum) in parts {
            match by_category.iter_mut().find(|(of, _)| of == category) {
                Some((_, of)) => add(of, sum),
                None => by_category.push((*category, *sum)),
            }
        }
        let offset_ns = request.start_ns.saturating_sub(self.start_ns);
        let of_kind = self.kinds.get(&request.kind);
        let of_method = request.method.as_deref().and_then(|method| {
            self.methods.get(&request.kind).and_then(|methods| methods.get(method))
        });
        let mut places = Vec::with_capacity(2);
        for place in of_kind.into_iter().chain(of_method) {
            let GroupPlan { bounds, starts_ns, .. } = &self.groups[*place];
            let band = bounds.band(request);
            let sums = &mut self.bands[*place][band as usize];
            sums.add(request, &by_category, step(offset_ns, *starts_ns));
            for (after, name, ns) in &waits {
                let names = sums.had_cpu[*after].get_or_insert_with(|| Largest::new(NAMES));
                names.add(name, u128::from(*ns));
            }
            places.push((*place, band));
        }
        let id = (self.capture, request.request_id);
        if let Some(keeps) = self.wanted.get(&id) {
            by_category.sort_by_key(|(category, sum)| (std::cmp::Reverse(sum.ns), *category));
            let kept = keeps.then_some(kept);
            self.drawn.push(Drawn {
                id,
                offset_ns,
                request: request.clone(),
                parts: by_category,
                places,
                kept,
            });
        }
    }
}

/// The time step in which `ns` lies within a span.
fn step(ns: u64, (from_ns, to_ns): (u64, u64)) -> usize {
    let whole = u128::from(to_ns - from_ns) + 1;
    (u128::from(ns.clamp(from_ns, to_ns) - from_ns) * STEPS as u128 / whole) as usize
}
