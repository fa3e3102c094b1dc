//! Compares the slowest requests with typical ones.
//!
//! The tail consists of the complete requests of a kind whose latency is at least the kind's p99. Typical requests are
//! those from p40 to p60, bounds included.

use std::collections::BTreeMap;

use serde::Serialize;

use super::largest::Largest;
use super::sums::{clamp, Key, Sum};
use super::values::Values;
use rpcprobe_model::{Category, Request, Segment, Side};
use rpcprobe_stats::apportion::in_proportion;

/// Minimum number of complete requests of a kind for its tail to be shown.
pub const FEWEST: u64 = 100;
/// Minimum share of a part of the tail, in per cent, that a name must explain to be shown.
const MOSTLY: u128 = 50;
/// Number of names counted for a part.
const NAMES: usize = 64;

/// Latencies that separate typical requests and the tail, in nanoseconds, bounds included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    typical_from_ns: u64,
    typical_to_ns: u64,
    tail_from_ns: u64,
}

impl Thresholds {
    /// Computes the thresholds of `count` latencies; `values` holds those above 0.
    pub fn of(values: &mut Values, count: u64) -> Thresholds {
        Thresholds {
            typical_from_ns: values.rank_bounds(count, 40).0,
            typical_to_ns: values.rank_bounds(count, 60).1,
            tail_from_ns: values.rank_bounds(count, 99).0,
        }
    }

    fn is_typical(&self, latency_ns: u64) -> bool {
        (self.typical_from_ns..=self.typical_to_ns).contains(&latency_ns)
    }

    fn is_tail(&self, latency_ns: u64) -> bool {
        latency_ns >= self.tail_from_ns
    }
}

/// The tail of a kind, and its typical requests.
#[derive(Clone, Debug, Serialize)]
pub struct Tail {
    pub typical: Band,
    pub tail: Band,
    /// The difference of the mean latencies; exactly the sum of the parts' differences.
    pub difference_ns: i64,
    /// In the order of [`Category::ALL`], then of sides.
    pub parts: Vec<TailPart>,
}

/// Complete requests whose latency lies within bounds.
#[derive(Clone, Debug, Serialize)]
pub struct Band {
    pub requests: u64,
    /// The bounds, both inclusive.
    pub from_ns: u64,
    pub to_ns: u64,
    /// Mean latency, rounded to nanoseconds.
    pub mean_ns: u64,
    /// The method of at least half of the requests.
    pub method: Option<String>,
}

/// One category at one side: means per request, as whole numbers that add up to those of the latency.
#[derive(Clone, Debug, Serialize)]
pub struct TailPart {
    pub category: Category,
    pub side: Side,
    pub typical_ns: u64,
    pub tail_ns: u64,
    pub difference_ns: i64,
    /// Modelled and sampled time in `tail_ns`, per request.
    pub modelled_ns: u64,
    pub sampled_ns: u64,
    /// The thread name, the other thread and the cause of at least half of the part's time in the tail.
    pub comm: Option<String>,
    pub by: Option<String>,
    pub cause: Option<String>,
}

/// Names in a part of the tail, by time.
struct Names {
    comm: Largest,
    by: Largest,
    cause: Largest,
}

/// Sums of one band.
struct BandSums {
    requests: u64,
    latency_ns: u128,
    parts: BTreeMap<Key, Sum>,
    methods: Largest,
}

impl BandSums {
    fn new() -> BandSums {
        BandSums {
            requests: 0,
            latency_ns: 0,
            parts: BTreeMap::new(),
            methods: Largest::new(NAMES),
        }
    }

    fn add(&mut self, request: &Request, parts: &[(Key, Sum)]) {
        self.requests += 1;
        self.latency_ns += u128::from(request.latency_ns);
        if let Some(method) = &request.method {
            self.methods.add(method, 1);
        }
        for (key, sum) in parts {
            self.parts.entry(*key).or_default().plus(sum);
        }
    }

    fn band(&self, from_ns: u64, to_ns: u64) -> Band {
        let method = self.methods.dominant(self.requests.into(), MOSTLY);
        Band {
            requests: self.requests,
            from_ns,
            to_ns,
            mean_ns: self.mean_ns(),
            method: method.map(|(name, _)| name.to_owned()),
        }
    }

    fn mean_ns(&self) -> u64 {
        let requests = u128::from(self.requests.max(1));
        clamp((self.latency_ns + requests / 2) / requests)
    }
}

/// Adds up the tail of one kind.
pub struct TailSums {
    thresholds: Thresholds,
    typical: BandSums,
    tail: BandSums,
    names: BTreeMap<Key, Names>,
    max_ns: u64,
}

impl TailSums {
    pub fn new(thresholds: Thresholds) -> TailSums {
        let (typical, tail) = (BandSums::new(), BandSums::new());
        TailSums { thresholds, typical, tail, names: BTreeMap::new(), max_ns: 0 }
    }

    /// Takes names from a segment of a complete request, if the request is in the tail.
    pub fn segment(&mut self, latency_ns: u64, segment: &Segment) {
        if !self.thresholds.is_tail(latency_ns) {
            return;
        }
        let names = self.names.entry((segment.category, segment.side)).or_insert_with(|| Names {
            comm: Largest::new(NAMES),
            by: Largest::new(NAMES),
            cause: Largest::new(NAMES),
        });
        let ns = segment.duration_ns.into();
        names.comm.add(&segment.comm, ns);
        if let Some(by) = &segment.by {
            names.by.add(&by.comm, ns);
        }
        if let Some(cause) = segment.waited_because() {
            names.cause.add(cause, ns);
        }
    }

    /// Adds the sums of a complete request.
    pub fn add(&mut self, request: &Request, parts: &[(Key, Sum)]) {
        let latency_ns = request.latency_ns;
        if self.thresholds.is_typical(latency_ns) {
            self.typical.add(request, parts);
        }
        if self.thresholds.is_tail(latency_ns) {
            self.tail.add(request, parts);
        }
        self.max_ns = self.max_ns.max(latency_ns);
    }

    pub fn finish(self) -> Tail {
        let TailSums { thresholds, typical, tail, names, max_ns } = self;
        let keys: Vec<Key> =
            Category::ALL.iter().flat_map(|c| Side::ALL.iter().map(|s| (*c, *s))).collect();
        let sums = |band: &BandSums| -> Vec<u128> {
            keys.iter().map(|key| band.parts.get(key).map_or(0, |sum| sum.ns)).collect()
        };
        let (typical_ns, tail_ns) = (typical.mean_ns(), tail.mean_ns());
        let means = in_proportion(&sums(&typical), typical_ns)
            .into_iter()
            .zip(in_proportion(&sums(&tail), tail_ns));
        let mut parts = Vec::new();
        for (key, (typical_ns, tail_ns)) in keys.iter().zip(means) {
            let sum = tail.parts.get(key).copied().unwrap_or_default();
            if sum.ns == 0 && !typical.parts.contains_key(key) {
                continue;
            }
            let names = names.get(key);
            let most = |of: fn(&Names) -> &Largest| -> Option<String> {
                Some(of(names?).dominant(sum.ns, MOSTLY)?.0.to_owned())
            };
            let each = |ns: u128| clamp(ns.div_ceil(u128::from(tail.requests.max(1)))).min(tail_ns);
            parts.push(TailPart {
                category: key.0,
                side: key.1,
                typical_ns,
                tail_ns,
                difference_ns: signed(tail_ns) - signed(typical_ns),
                modelled_ns: each(sum.modelled_ns),
                sampled_ns: each(sum.sampled_ns),
                comm: most(|names| &names.comm),
                by: most(|names| &names.by),
                cause: most(|names| &names.cause),
            });
        }
        Tail {
            typical: typical.band(thresholds.typical_from_ns, thresholds.typical_to_ns),
            tail: tail.band(thresholds.tail_from_ns, max_ns),
            difference_ns: signed(tail_ns) - signed(typical_ns),
            parts,
        }
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}
