//! Sums over the requests of one kind.

use std::collections::{BTreeMap, HashMap};

use super::adder::RequestSums;
use super::breakdown::{Ends, KindBreakdown, Part, PhasePart, WaitedFor, Waits};
use super::groups::GroupsSums;
use super::held_back::HeldBackSums;
use super::largest::Largest;
use super::programs::Programs;
use super::sums::{clamp, ratio, Distribution, Key, Sum, Sums};
use super::survey::KindPlan;
use super::tail::TailSums;
use super::threads::ProbeThreads;
use super::words;
use rpcprobe_model::{Category, Certainty, End, Evidence, Kind, Reason, Request, Segment};

/// Number of names listed for a run-queue wait.
const TOP_NAMES: usize = 3;
/// Minimum share of the time, or of the requests, in per cent, for a thread name to be shown.
const DOMINANT: u128 = 90;
/// The same for what was waited for.
const MOSTLY: u128 = 50;
/// Number of names counted. A name with more than 1/`NAMES` of the whole is certain to be among
/// them.
const NAMES: usize = 512;

#[derive(Default)]
struct PhaseSums {
    sums: Sums,
    /// Sum of the offsets at which the phase first appears, and the number of requests that have
    /// it. Phases are ordered by the mean offset.
    first_ns: u128,
    requests: u64,
}

/// One category at one side.
struct PartSums {
    sums: Sums,
    comms: Largest,
    /// Details of waits, except waits for a CPU.
    details: Largest,
}

struct WaitSums {
    total_ns: u128,
    modelled_ns: u128,
    named_ns: Largest,
}

impl WaitSums {
    fn add(&mut self, segment: &Segment) {
        let ns = u128::from(segment.duration_ns);
        self.total_ns += ns;
        if segment.evidence == Evidence::Modelled {
            self.modelled_ns += ns;
        }
        if let Some(by) = &segment.by {
            self.named_ns.add(&by.comm, ns);
        }
    }

    fn waits(self, (category, side): Key) -> Waits {
        let names = self.named_ns.sorted();
        let named_ns: u128 = names.iter().map(|(_, ns)| ns).sum();
        let mut top: Vec<_> = names.into_iter().map(|(name, ns)| (Some(name), ns)).collect();
        match self.total_ns.saturating_sub(named_ns) {
            0 => {}
            unnamed_ns => top.push((None, unnamed_ns)),
        }
        top.sort_by(|(a_name, a_ns), (b_name, b_ns)| b_ns.cmp(a_ns).then(a_name.cmp(b_name)));
        top.truncate(TOP_NAMES);
        let waited = |(comm, ns): (Option<&str>, u128)| WaitedFor {
            comm: comm.map(str::to_owned),
            ns: clamp(ns),
        };
        Waits {
            category,
            side,
            total_ns: clamp(self.total_ns),
            modelled_ns: clamp(self.modelled_ns),
            top: top.into_iter().map(waited).collect(),
        }
    }
}

/// Numbers of requests by the ends that are traced.
struct EndSums {
    ends: Ends,
    clients: EndNames,
    servers: EndNames,
}

/// Names of the threads at one end, and of their programs.
struct EndNames {
    threads: Largest,
    programs: Largest,
}

impl EndNames {
    fn new() -> EndNames {
        EndNames { threads: Largest::new(NAMES), programs: Largest::new(NAMES) }
    }

    fn add(&mut self, end: &End, program: &str) {
        self.threads.add(&end.comm, 1);
        self.programs.add(program, 1);
    }
}

impl EndSums {
    fn count(&mut self, request: &Request, programs: &Programs) {
        let ends = &mut self.ends;
        *match (&request.client, &request.server) {
            (Some(_), Some(_)) => &mut ends.both,
            (Some(_), None) => &mut ends.client_only,
            (None, Some(_)) => &mut ends.server_only,
            (None, None) => &mut ends.neither,
        } += 1;
        let both = [(&mut self.clients, &request.client), (&mut self.servers, &request.server)];
        for (names, end) in both {
            if let Some(end) = end {
                names.add(end, programs.at(end, request.start_ns));
            }
        }
    }

    fn finish(self) -> Ends {
        let EndSums { ends, clients, servers } = self;
        let most = |names: &Largest, only: u64| -> Option<String> {
            let traced = u128::from(ends.both + only);
            Some(names.dominant(traced, DOMINANT)?.0.to_owned())
        };
        Ends {
            client_comm: most(&clients.threads, ends.client_only),
            server_comm: most(&servers.threads, ends.server_only),
            client_program: most(&clients.programs, ends.client_only),
            server_program: most(&servers.programs, ends.server_only),
            ..ends
        }
    }
}

/// Sums over the requests of one kind that pass the filter.
pub struct KindSums {
    requests: u64,
    certainties: BTreeMap<Certainty, u64>,
    incomplete: u64,
    reasons: HashMap<Option<Reason>, u64>,
    max_lower_bound_ns: Option<u64>,
    ends: EndSums,
    latency: Sums,
    parts: BTreeMap<Key, PartSums>,
    phases: HashMap<Option<&'static str>, PhaseSums>,
    waits: BTreeMap<Key, WaitSums>,
    behind_probe_ns: u128,
    held_back: HeldBackSums,
    groups: Option<GroupsSums>,
    tail: Option<TailSums>,
}

impl KindSums {
    pub fn new(plan: KindPlan) -> KindSums {
        KindSums {
            requests: 0,
            certainties: BTreeMap::new(),
            incomplete: 0,
            reasons: HashMap::new(),
            max_lower_bound_ns: None,
            ends: EndSums {
                ends: Ends::default(),
                clients: EndNames::new(),
                servers: EndNames::new(),
            },
            latency: Sums::default(),
            parts: BTreeMap::new(),
            phases: HashMap::new(),
            waits: BTreeMap::new(),
            behind_probe_ns: 0,
            held_back: HeldBackSums::default(),
            groups: plan.groups.map(GroupsSums::new),
            tail: plan.thresholds.map(TailSums::new),
        }
    }

    /// Counts a request; `label` is the label of its capture.
    pub fn count(&mut self, request: &Request, label: Option<&str>, programs: &Programs) {
        self.requests += 1;
        *self.certainties.entry(request.certainty).or_default() += 1;
        self.ends.count(request, programs);
        if let Some(groups) = &mut self.groups {
            groups.count(request, label);
        }
        if request.complete {
            self.latency.add(Sum::measured(request.latency_ns));
            self.held_back.add(request);
        } else {
            self.incomplete += 1;
            *self.reasons.entry(request.reason.clone()).or_default() += 1;
            self.max_lower_bound_ns = self.max_lower_bound_ns.max(Some(request.latency_ns));
        }
    }

    /// Takes in a segment of a complete request, for everything that depends on single segments.
    pub fn segment(&mut self, request: &Request, segment: &Segment, probe: &ProbeThreads) {
        let key = (segment.category, segment.side);
        let part = self.part(key);
        part.comms.add(&segment.comm, segment.duration_ns.into());
        if let Some(detail) = segment.detail.as_deref().filter(|_| is_wait(segment.category)) {
            part.details.add(detail, segment.duration_ns.into());
        }
        if let Some(tail) = &mut self.tail {
            tail.segment(request.latency_ns, segment);
        }
        if matches!(segment.category, Category::RunqueueWakeup | Category::RunqueuePreempted) {
            let new = || WaitSums { total_ns: 0, modelled_ns: 0, named_ns: Largest::new(NAMES) };
            self.waits.entry(key).or_insert_with(new).add(segment);
            if segment.by.as_ref().is_some_and(|by| probe.have(by)) {
                self.behind_probe_ns += u128::from(segment.duration_ns);
            }
        }
    }

    fn part(&mut self, key: Key) -> &mut PartSums {
        let new = || PartSums {
            sums: Sums::default(),
            comms: Largest::new(NAMES),
            details: Largest::new(NAMES),
        };
        self.parts.entry(key).or_insert_with(new)
    }

    /// Adds a complete request.
    pub fn add(&mut self, request: &Request, current: RequestSums, label: Option<&str>) {
        if let Some(groups) = &mut self.groups {
            groups.add(request, label, &current.parts);
        }
        if let Some(tail) = &mut self.tail {
            tail.add(request, &current.parts);
        }
        for (key, sum) in current.parts {
            self.part(key).sums.add(sum);
        }
        for (phase, sum, first_ns) in current.phases {
            let phase = self.phases.entry(phase).or_default();
            phase.sums.add(sum);
            phase.first_ns += u128::from(first_ns);
            phase.requests += 1;
        }
    }

    /// Returns the sums. `windows` returns the time in which requests of a group could start.
    pub fn finish(self, kind: Kind, windows: &dyn Fn(Option<&str>) -> u128) -> KindBreakdown {
        let KindSums { mut latency, parts, phases, .. } = self;
        let complete = self.requests - self.incomplete;
        let whole = latency.sum.ns;
        KindBreakdown {
            kind,
            requests: self.requests,
            certainties: self.certainties,
            incomplete: self.incomplete,
            incomplete_reasons: in_words(&self.reasons),
            incomplete_max_lower_bound_ns: self.max_lower_bound_ns,
            ends: self.ends.finish(),
            latency: latency.distribution(complete),
            parts: parts_of(parts, complete, whole),
            phases: phases_of(phases, complete, whole),
            waits: self.waits.into_iter().map(|(key, sums)| sums.waits(key)).collect(),
            behind_probe_ns: clamp(self.behind_probe_ns),
            held_back: self.held_back.finish(),
            groups: self.groups.map(|groups| groups.finish(whole, windows)),
            tail: self.tail.map(TailSums::finish),
        }
    }
}

/// Counts incomplete requests by the text of the reason.
fn in_words(reasons: &HashMap<Option<Reason>, u64>) -> BTreeMap<String, u64> {
    reasons.iter().map(|(reason, requests)| (words::reason(reason.as_ref()), *requests)).collect()
}

fn parts_of(parts: BTreeMap<Key, PartSums>, complete: u64, whole: u128) -> Vec<Part> {
    let part = |((category, side), mut of): (Key, PartSums)| Part {
        category,
        side: Some(side),
        per_request: of.sums.distribution(complete),
        share: ratio(of.sums.sum.ns, whole),
        modelled_ns: clamp(of.sums.sum.modelled_ns),
        sampled_ns: clamp(of.sums.sum.sampled_ns),
        comm: of.comms.dominant(of.sums.sum.ns, DOMINANT).map(|(name, _)| name.to_owned()),
        detail: of.details.dominant(of.sums.sum.ns, MOSTLY).map(|(name, _)| name.to_owned()),
    };
    let mut parts: Vec<Part> = parts.into_iter().map(part).collect();
    if parts.last().is_none_or(|part| part.category != Category::Unattributed) {
        parts.push(Part {
            category: Category::Unattributed,
            side: None,
            per_request: Distribution::default(),
            share: 0.0,
            modelled_ns: 0,
            sampled_ns: 0,
            comm: None,
            detail: None,
        });
    }
    parts
}

fn phases_of(
    phases: HashMap<Option<&'static str>, PhaseSums>,
    complete: u64,
    whole: u128,
) -> Vec<PhasePart> {
    let mut phases: Vec<_> = phases.into_iter().collect();
    phases.sort_by(|(a_name, a), (b_name, b)| {
        let mean_ns = |phase: &PhaseSums| ratio(phase.first_ns, u128::from(phase.requests));
        mean_ns(a).total_cmp(&mean_ns(b)).then(a_name.cmp(b_name))
    });
    phases
        .into_iter()
        .map(|(phase, mut of)| PhasePart {
            phase,
            per_request: of.sums.distribution(complete),
            share: ratio(of.sums.sum.ns, whole),
            modelled_ns: clamp(of.sums.sum.modelled_ns),
            sampled_ns: clamp(of.sums.sum.sampled_ns),
        })
        .collect()
}

/// Whether the thread waits for something other than a CPU.
fn is_wait(category: Category) -> bool {
    !category.is_on_cpu()
        && !matches!(category, Category::RunqueueWakeup | Category::RunqueuePreempted)
}

/// Whether requests of the kind have phases, as only processes' lives do.
pub fn has_phases(kind: Kind) -> bool {
    matches!(kind, Kind::Exec | Kind::Process)
}
