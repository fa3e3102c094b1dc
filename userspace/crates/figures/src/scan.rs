//! The first pass over a capture, over its requests only. It determines the groups of requests, their percentiles, and
//! the requests that are drawn one by one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rustc_hash::FxHashMap;

use anyhow::Result;

use crate::band::Bounds;
use rpcprobe_model::{Kind, Request};
use rpcprobe_report::values::Values;
use rpcprobe_report::{Facts, KindPlan, Passes, Query, ORDER};
use rpcprobe_tables::RequestRow;

/// Maximum number of methods of a kind that get their own group: those with the most time.
pub const METHODS: usize = 8;
/// Requests of a kind that are drawn as points: the slowest, and an even sample.
const SLOWEST_DRAWN: usize = 200;
const SAMPLED: usize = 1_300;
/// Requests of a group whose time line is kept: the slowest, and those nearest to the median.
const SLOWEST_KEPT: usize = 12;
const TYPICAL_KEPT: usize = 6;
/// Further requests of a kind whose time line is kept, from its sample.
const SAMPLED_KEPT: usize = 400;

/// Identifies a group: the requests of one kind, or those of one kind and method.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupKey {
    pub kind: Kind,
    pub method: Option<String>,
}

/// A request: the number of its capture, and its id.
pub type Id = (usize, u64);

/// What the first pass determines about a group.
#[derive(Debug)]
pub struct GroupPlan {
    pub key: GroupKey,
    pub bounds: Bounds,
    pub complete: u64,
    /// Begin of the first and of the last request, in nanoseconds since the start of their captures.
    pub starts_ns: (u64, u64),
    /// The slowest requests, slowest first, and those nearest to the median.
    pub slowest: Vec<Id>,
    pub typical: Vec<Id>,
}

/// Input of the second pass.
pub struct Plan {
    /// Groups of each kind, in the order of reports, each followed by the groups of its methods, those with the most
    /// time first.
    pub groups: Vec<GroupPlan>,
    /// Index in `groups` of each kind, and of each method.
    pub kinds: HashMap<Kind, usize>,
    pub methods: HashMap<Kind, HashMap<String, usize>>,
    /// Requests that are drawn as points; `true` if their time line is kept.
    pub drawn: FxHashMap<Id, bool>,
}

/// Keeps the requests with the largest values of something.
struct Best {
    keep: usize,
    heap: BinaryHeap<Reverse<(u64, Reverse<Id>)>>,
}

impl Best {
    fn new(keep: usize) -> Best {
        Best { keep, heap: BinaryHeap::new() }
    }

    fn offer(&mut self, value: u64, id: Id) {
        if self.heap.len() < self.keep {
            self.heap.push(Reverse((value, Reverse(id))));
        } else if self.heap.peek().is_some_and(|Reverse(least)| *least < (value, Reverse(id))) {
            self.heap.pop();
            self.heap.push(Reverse((value, Reverse(id))));
        }
    }

    /// Returns the kept requests, the largest value first.
    fn sorted(self) -> Vec<(u64, Id)> {
        let sorted = self.heap.into_sorted_vec();
        sorted.into_iter().map(|Reverse((value, Reverse(id)))| (value, id)).collect()
    }
}

/// Returns a pseudo-random number that is the same in every run. The requests with the largest numbers are an even
/// sample.
fn lot((capture, id): Id) -> u64 {
    let mixed = (id ^ (capture as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

struct GroupScan {
    key: GroupKey,
    complete: u64,
    latencies: Values,
    starts_ns: Option<(u64, u64)>,
    slowest: Best,
    /// The sample, and the latencies of its requests.
    sample: Best,
    sampled_ns: FxHashMap<Id, u64>,
}

impl GroupScan {
    fn new(key: GroupKey) -> GroupScan {
        GroupScan {
            key,
            complete: 0,
            latencies: Values::default(),
            starts_ns: None,
            slowest: Best::new(SLOWEST_DRAWN),
            sample: Best::new(SAMPLED),
            sampled_ns: FxHashMap::default(),
        }
    }

    fn add(&mut self, request: &Request, id: Id, offset_ns: u64) {
        self.complete += 1;
        if request.latency_ns > 0 {
            self.latencies.push(request.latency_ns);
        }
        let (first_ns, last_ns) = self.starts_ns.unwrap_or((offset_ns, offset_ns));
        self.starts_ns = Some((first_ns.min(offset_ns), last_ns.max(offset_ns)));
        self.slowest.offer(request.latency_ns, id);
        let least = self.sample.heap.peek().map(|Reverse((lot, _))| *lot);
        let drawn = lot(id);
        if self.sample.heap.len() < SAMPLED || least.is_some_and(|least| drawn >= least) {
            self.sample.offer(drawn, id);
            self.sampled_ns.insert(id, request.latency_ns);
            // Drops the latencies of requests that fell out of the sample.
            if self.sampled_ns.len() > 4 * SAMPLED {
                let kept: Vec<Id> = self.sample.heap.iter().map(|Reverse((_, id))| id.0).collect();
                self.sampled_ns = kept.into_iter().map(|id| (id, self.sampled_ns[&id])).collect();
            }
        }
    }

    fn finish(mut self, drawn: &mut FxHashMap<Id, bool>) -> GroupPlan {
        let bounds = Bounds::of(&mut self.latencies, self.complete);
        let median_ns = self.latencies.nearest_rank(self.complete, 50);
        let slowest: Vec<Id> = self.slowest.sorted().into_iter().map(|(_, id)| id).collect();
        let sample: Vec<Id> = self.sample.sorted().into_iter().map(|(_, id)| id).collect();
        let mut typical = sample.clone();
        typical.sort_by_key(|id| (self.sampled_ns[id].abs_diff(median_ns), *id));
        typical.truncate(TYPICAL_KEPT);
        let is_kind = self.key.method.is_none();
        for (i, id) in slowest.iter().enumerate() {
            if is_kind || i < SLOWEST_KEPT {
                *drawn.entry(*id).or_default() |= i < SLOWEST_KEPT;
            }
        }
        for (i, id) in sample.iter().enumerate().filter(|_| is_kind) {
            *drawn.entry(*id).or_default() |= i < SAMPLED_KEPT;
        }
        typical.iter().for_each(|id| {
            drawn.insert(*id, true);
        });
        GroupPlan {
            key: self.key,
            bounds,
            complete: self.complete,
            starts_ns: self.starts_ns.unwrap_or((0, 0)),
            slowest: slowest.into_iter().take(SLOWEST_KEPT).collect(),
            typical,
        }
    }
}

/// Scans the requests of one or more captures.
pub struct Scan<'q> {
    query: &'q Query,
    groups: Vec<GroupScan>,
    kinds: HashMap<Kind, usize>,
    methods: HashMap<Kind, HashMap<String, usize>>,
    captures: usize,
}

impl<'q> Scan<'q> {
    /// `plans` must be the report's, of the same captures with the same query. They list the methods.
    pub fn new(query: &'q Query, plans: &HashMap<Kind, KindPlan>) -> Scan<'q> {
        let mut scan = Scan {
            query,
            groups: Vec::new(),
            kinds: HashMap::new(),
            methods: HashMap::new(),
            captures: 0,
        };
        for (kind, plan) in ORDER.iter().filter_map(|kind| Some((*kind, plans.get(kind)?))) {
            scan.kinds.insert(kind, scan.groups.len());
            scan.groups.push(GroupScan::new(GroupKey { kind, method: None }));
            let by_method =
                plan.groups.as_ref().filter(|plan| query.by.is_none() && plan.has_several());
            for method in by_method.into_iter().flat_map(|plan| &plan.listed).take(METHODS) {
                let place = scan.groups.len();
                scan.methods.entry(kind).or_default().insert(method.clone(), place);
                scan.groups.push(GroupScan::new(GroupKey { kind, method: Some(method.clone()) }));
            }
        }
        scan
    }

    /// Scans the requests of a capture.
    ///
    /// # Errors
    /// Passes on errors of `rows`.
    pub fn capture(
        &mut self,
        rows: impl IntoIterator<Item = Result<RequestRow>>,
        facts: &Facts,
    ) -> Result<()> {
        let capture = self.captures;
        self.captures += 1;
        for row in rows {
            let request = row?.request;
            let passes = self.query.filter.passes(&request, facts.start_ns) == Passes::Yes;
            if !passes || !request.complete {
                continue;
            }
            let id = (capture, request.request_id);
            let offset_ns = request.start_ns.saturating_sub(facts.start_ns);
            let of_kind = self.kinds.get(&request.kind);
            let of_method = request.method.as_deref().and_then(|method| {
                self.methods.get(&request.kind).and_then(|methods| methods.get(method))
            });
            for place in of_kind.into_iter().chain(of_method) {
                self.groups[*place].add(&request, id, offset_ns);
            }
        }
        Ok(())
    }

    pub fn finish(self) -> Plan {
        let mut drawn = FxHashMap::default();
        let groups = self.groups.into_iter().map(|group| group.finish(&mut drawn)).collect();
        let Scan { kinds, methods, .. } = self;
        Plan { groups, kinds, methods, drawn }
    }
}
