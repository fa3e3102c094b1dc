//! The first pass over a capture, over its requests only: finds what the second pass, which adds up segments, must know
//! beforehand. For each request that has a parent or children, it keeps 48 bytes.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use super::filter::{Passes, RequestFilter};
use super::groups::{GroupBy, GroupPlan, LISTED};
use super::largest::Largest;
use super::programs::Programs;
use super::tail::{Thresholds, FEWEST};
use super::tree::{Links, Outlines, Tree};
use super::values::Values;
use rpcprobe_model::{Kind, Request};
use rpcprobe_tables::RequestRow;

/// Every group with more than 1/`COMPETING` of its kind's time competes for being listed. If there are at most twice
/// `COMPETING` groups, all of them compete.
const COMPETING: usize = 4096;

/// What a report shows.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pub filter: RequestFilter,
    /// `None` groups by method, if a kind has methods.
    pub by: Option<GroupBy>,
}

/// Facts about a capture that both passes need.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// CLOCK_MONOTONIC.
    pub start_ns: u64,
    pub duration_ns: u64,
    /// The capture's labels as one text; `None` if there are none.
    pub label: Option<String>,
    pub probe: super::threads::ProbeThreads,
    pub programs: Programs,
}

impl Facts {
    /// The length of time in which requests that pass the filter can start, in nanoseconds.
    pub fn window_ns(&self, filter: &RequestFilter) -> u64 {
        let to_ns = filter.to_ns.unwrap_or(u64::MAX).min(self.duration_ns);
        to_ns.saturating_sub(filter.from_ns.unwrap_or(0))
    }
}

/// What the survey collects about one kind of request.
#[derive(Default)]
struct KindSurvey {
    complete: u64,
    latency: Values,
    groups: Option<Largest>,
}

/// What the second pass needs for one kind.
#[derive(Default)]
pub struct KindPlan {
    /// Bounds of typical and slow latencies; `None` if there are too few requests.
    pub thresholds: Option<Thresholds>,
    pub groups: Option<GroupPlan>,
}

/// What the second pass needs.
#[derive(Default)]
pub struct Plan {
    /// Kinds without requests are left out.
    pub kinds: HashMap<Kind, KindPlan>,
    pub tree: Tree,
}

/// Collects what must be known beforehand about one or more captures. The survey itself needs [`Outlines`].
pub struct Survey<'q> {
    query: &'q Query,
    kinds: HashMap<Kind, KindSurvey>,
    links: Links,
}

impl<'q> Survey<'q> {
    /// `outlines` must be of the same captures, in the same order.
    pub fn new(query: &'q Query, outlines: Outlines) -> Survey<'q> {
        Survey { query, kinds: HashMap::new(), links: Links::new(outlines) }
    }

    /// Takes in the requests of a capture.
    ///
    /// # Errors
    /// Passes on errors of `rows`.
    pub fn capture(
        &mut self,
        rows: impl IntoIterator<Item = Result<RequestRow>>,
        facts: &Facts,
    ) -> Result<()> {
        for row in rows {
            let request = row?.request;
            let passes = self.query.filter.passes(&request, facts.start_ns) != Passes::No;
            self.links.add(&request, passes);
            if passes {
                self.request(&request, facts.label.as_deref());
            }
        }
        self.links.end_capture();
        Ok(())
    }

    fn request(&mut self, request: &Request, label: Option<&str>) {
        let kind = self.kinds.entry(request.kind).or_default();
        let latency_ns = if request.complete { request.latency_ns } else { 0 };
        if request.complete {
            kind.complete += 1;
            if latency_ns > 0 {
                kind.latency.push(latency_ns);
            }
        }
        let name = self.query.by.unwrap_or(GroupBy::Method).of(request, label);
        if let Some(name) = name {
            let groups = kind.groups.get_or_insert_with(|| Largest::new(COMPETING));
            groups.add(&name, latency_ns.into());
        }
    }

    pub fn finish(self) -> Plan {
        let by = self.query.by;
        let plan = |mut kind: KindSurvey| KindPlan {
            thresholds: (kind.complete >= FEWEST)
                .then(|| Thresholds::of(&mut kind.latency, kind.complete)),
            groups: match (by, kind.groups) {
                (None, None) => None,
                (by, groups) => Some(group_plan(by.unwrap_or(GroupBy::Method), groups)),
            },
        };
        let kinds = self.kinds.into_iter().map(|(kind, survey)| (kind, plan(survey))).collect();
        Plan { kinds, tree: self.links.tree() }
    }
}

fn group_plan(by: GroupBy, groups: Option<Largest>) -> GroupPlan {
    let groups = groups.unwrap_or_else(|| Largest::new(1));
    let sorted = groups.sorted();
    GroupPlan {
        by,
        listed: sorted.iter().take(LISTED).map(|(name, _)| (*name).to_owned()).collect(),
        others: sorted.len().saturating_sub(LISTED) as u64,
        others_are_exact: groups.is_exact(),
    }
}

/// The contents of a capture, shown when the filter matches nothing.
pub struct Contents {
    pub kinds: BTreeMap<Kind, u64>,
    pub methods: Largest,
    pub statuses: Largest,
    pub clients: Largest,
    pub servers: Largest,
    /// The earliest and the latest start of a request, in nanoseconds since the start of the capture.
    pub starts_ns: Option<(i128, i128)>,
    /// The smallest and the largest latency of complete requests, in nanoseconds.
    pub latencies_ns: Option<(u64, u64)>,
}

impl Default for Contents {
    fn default() -> Contents {
        let names = || Largest::new(256);
        Contents {
            kinds: BTreeMap::new(),
            methods: names(),
            statuses: names(),
            clients: names(),
            servers: names(),
            starts_ns: None,
            latencies_ns: None,
        }
    }
}

impl Contents {
    /// Takes in the requests of a capture.
    ///
    /// # Errors
    /// Passes on errors of `rows`.
    pub fn capture(
        &mut self,
        rows: impl IntoIterator<Item = Result<RequestRow>>,
        start_ns: u64,
    ) -> Result<()> {
        for row in rows {
            let request = row?.request;
            *self.kinds.entry(request.kind).or_default() += 1;
            for (names, by) in [
                (&mut self.methods, GroupBy::Method),
                (&mut self.statuses, GroupBy::Status),
                (&mut self.clients, GroupBy::Client),
                (&mut self.servers, GroupBy::Server),
            ] {
                if let Some(name) = by.of(&request, None) {
                    names.add(&name, 1);
                }
            }
            let at_ns = i128::from(request.start_ns) - i128::from(start_ns);
            let (first_ns, last_ns) = self.starts_ns.unwrap_or((at_ns, at_ns));
            self.starts_ns = Some((first_ns.min(at_ns), last_ns.max(at_ns)));
            if request.complete {
                let ns = request.latency_ns;
                let (least_ns, most_ns) = self.latencies_ns.unwrap_or((ns, ns));
                self.latencies_ns = Some((least_ns.min(ns), most_ns.max(ns)));
            }
        }
        Ok(())
    }
}
