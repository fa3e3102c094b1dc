//! Groups the requests of a kind by method, status, thread or label.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::sums::{clamp, ratio, Distribution, Key, Sum, Sums};
use super::text::wait_status;
use rpcprobe_model::{Category, End, Kind, Request, Side};

/// Maximum number of groups of a kind that are listed one by one: those with the most time.
pub const LISTED: usize = 100;

/// What puts requests into one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum GroupBy {
    /// The method (for processes: the program)
    Method,
    /// How the request ended
    Status,
    /// The name of the client's thread
    Client,
    /// The name of the server's thread
    Server,
    /// The thread that served the request (the client's where the server is not traced)
    Thread,
    /// The capture's labels
    Label,
}

impl GroupBy {
    pub fn name(self) -> &'static str {
        match self {
            GroupBy::Method => "method",
            GroupBy::Status => "status",
            GroupBy::Client => "client",
            GroupBy::Server => "server",
            GroupBy::Thread => "thread",
            GroupBy::Label => "label",
        }
    }

    /// Returns the name of the request's group; `None` if there is none. `label` is the label of
    /// the capture.
    pub fn of<'r>(self, request: &'r Request, label: Option<&'r str>) -> Option<Cow<'r, str>> {
        let comm = |end: &'r Option<End>| Some(Cow::Borrowed(&*end.as_ref()?.comm));
        match self {
            GroupBy::Method => request.method.as_deref().map(Cow::Borrowed),
            GroupBy::Status => request.status.map(|status| match request.kind {
                Kind::Exec | Kind::Process => Cow::Owned(wait_status(status)),
                _ => Cow::Owned(status.to_string()),
            }),
            GroupBy::Client => comm(&request.client),
            GroupBy::Server => comm(&request.server),
            GroupBy::Thread => {
                let end = request.server.as_ref().or(request.client.as_ref())?;
                Some(Cow::Owned(format!("{}/{}", end.comm, end.tid)))
            }
            GroupBy::Label => label.map(Cow::Borrowed),
        }
    }
}

/// The groups of a kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct Groups {
    pub by: GroupBy,
    /// The groups with the most time, largest first; at most [`LISTED`].
    pub listed: Vec<Group>,
    /// The requests of all other groups.
    pub others: Option<Others>,
}

/// Requests of one kind that have the same method, status, ...
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// `None` if the requests have no method, status, ... or if this is the group of all others.
    pub name: Option<String>,
    pub requests: u64,
    pub incomplete: u64,
    /// Requests per second, over the captured time or the part of it that the filter selects;
    /// `None` if that time is 0.
    pub rate_per_s: Option<f64>,
    /// Latency of the complete requests.
    pub latency: Distribution,
    /// Share of the total latency of the kind's complete requests, 0 to 1.
    pub share: f64,
    /// The part with the most time, if any part has time.
    pub largest: Option<GroupPart>,
    /// In the order of [`Category::ALL`], then of sides.
    pub parts: Vec<GroupPart>,
}

/// One category at one side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupPart {
    pub category: Category,
    pub side: Side,
    pub total_ns: u64,
    /// Modelled and sampled time in `total_ns`.
    pub modelled_ns: u64,
    pub sampled_ns: u64,
    /// Share of the group's total latency, 0 to 1.
    pub share: f64,
}

/// All groups that are not listed one by one.
#[derive(Clone, Debug, Serialize)]
pub struct Others {
    /// Number of groups; a lower bound if `names_are_exact` is false.
    pub names: u64,
    pub names_are_exact: bool,
    #[serde(flatten)]
    pub group: Group,
}

/// Which groups of a kind are listed one by one.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    pub by: GroupBy,
    pub listed: Vec<String>,
    /// Number of other names.
    pub others: u64,
    pub others_are_exact: bool,
}

impl GroupPlan {
    /// Whether there is more than one name.
    pub fn has_several(&self) -> bool {
        self.listed.len() as u64 + self.others > 1
    }
}

/// Sums of one group.
#[derive(Default)]
struct GroupSums {
    requests: u64,
    incomplete: u64,
    latency: Sums,
    parts: BTreeMap<Key, Sum>,
}

impl GroupSums {
    fn group(mut self, name: Option<String>, window_ns: u128, whole_ns: u128) -> Group {
        let latency = self.latency.distribution(self.requests - self.incomplete);
        let group_ns = self.latency.sum.ns;
        let parts: Vec<_> = self
            .parts
            .into_iter()
            .map(|((category, side), sum)| GroupPart {
                category,
                side,
                total_ns: clamp(sum.ns),
                modelled_ns: clamp(sum.modelled_ns),
                sampled_ns: clamp(sum.sampled_ns),
                share: ratio(sum.ns, group_ns),
            })
            .collect();
        Group {
            name,
            requests: self.requests,
            incomplete: self.incomplete,
            rate_per_s: (window_ns > 0)
                .then(|| self.requests as f64 / (window_ns as f64 / 1_000_000_000.0)),
            latency,
            share: ratio(group_ns, whole_ns),
            largest: largest(&parts),
            parts,
        }
    }
}

/// Returns the part with the most time; of equal parts, the first.
pub fn largest(parts: &[GroupPart]) -> Option<GroupPart> {
    let more = |best: &&GroupPart, next: &&GroupPart| next.total_ns > best.total_ns;
    parts
        .iter()
        .reduce(|best, next| if more(&best, &next) { next } else { best })
        .filter(|part| part.total_ns > 0)
        .cloned()
}

/// Sums of the groups of one kind.
pub struct GroupsSums {
    plan: GroupPlan,
    index: HashMap<String, usize>,
    listed: Vec<GroupSums>,
    without_name: Option<GroupSums>,
    others: GroupSums,
}

/// The group of a request.
#[derive(Clone, Copy)]
enum Place {
    Listed(usize),
    WithoutName,
    Others,
}

impl GroupsSums {
    pub fn new(plan: GroupPlan) -> GroupsSums {
        let index = plan.listed.iter().cloned().zip(0..).collect();
        let listed = plan.listed.iter().map(|_| GroupSums::default()).collect();
        let others = GroupSums::default();
        GroupsSums { plan, index, listed, without_name: None, others }
    }

    fn of(&mut self, request: &Request, label: Option<&str>) -> &mut GroupSums {
        let place = match self.plan.by.of(request, label) {
            None => Place::WithoutName,
            Some(name) => self.index.get(&*name).map_or(Place::Others, |at| Place::Listed(*at)),
        };
        match place {
            Place::Listed(at) => &mut self.listed[at],
            Place::WithoutName => self.without_name.get_or_insert_default(),
            Place::Others => &mut self.others,
        }
    }

    pub fn count(&mut self, request: &Request, label: Option<&str>) {
        let group = self.of(request, label);
        group.requests += 1;
        if request.complete {
            group.latency.add(Sum::measured(request.latency_ns));
        } else {
            group.incomplete += 1;
        }
    }

    /// Adds the parts of a complete request.
    pub fn add(&mut self, request: &Request, label: Option<&str>, parts: &[(Key, Sum)]) {
        let group = self.of(request, label);
        for (key, sum) in parts {
            group.parts.entry(*key).or_default().plus(sum);
        }
    }

    /// Returns the sums. `whole_ns` is the latency of all groups; `windows` returns the time in
    /// which requests of a group could start.
    pub fn finish(self, whole_ns: u128, windows: impl Fn(Option<&str>) -> u128) -> Groups {
        let GroupsSums { plan, listed, without_name, others, .. } = self;
        let named = plan.listed.into_iter().map(Some).zip(listed);
        let mut listed: Vec<Group> = named
            .chain(without_name.map(|sums| (None, sums)))
            .map(|(name, sums)| {
                let window_ns = windows(name.as_deref());
                sums.group(name, window_ns, whole_ns)
            })
            .collect();
        listed.sort_by(|a, b| {
            b.latency.total_ns.cmp(&a.latency.total_ns).then_with(|| a.name.cmp(&b.name))
        });
        let others = (others.requests > 0).then(|| Others {
            names: plan.others,
            names_are_exact: plan.others_are_exact,
            group: others.group(None, windows(None), whole_ns),
        });
        Groups { by: plan.by, listed, others }
    }
}
