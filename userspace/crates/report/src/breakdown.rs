//! Where the time of a capture's requests went: the figures that both text and JSON show.

use std::collections::BTreeMap;

use serde::Serialize;

use super::groups::Groups;
use super::sums::Distribution;
use super::tail::Tail;
use super::tree::Tree;
use rpcprobe_model::{Category, Certainty, HeldBy, Kind, Side};

/// Kinds in the order of reports: first those of a protocol, then those that contain others.
pub const ORDER: [Kind; 14] = [
    Kind::Http2,
    Kind::Http1,
    Kind::OncRpc,
    Kind::Resp,
    Kind::Process,
    Kind::Exec,
    Kind::Span,
    Kind::Stdio,
    Kind::File,
    Kind::Pipe,
    Kind::Shm,
    Kind::Unix,
    Kind::Tcp,
    Kind::Udp,
];

/// Where the time of the requests that pass a filter went, and whether the figures can be trusted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Breakdown {
    /// Kinds without requests are left out.
    pub kinds: Vec<KindBreakdown>,
    /// All requests read, whether they pass the filter or not.
    pub in_capture: u64,
    /// Requests that pass the filter, or may pass it.
    pub passing: u64,
    /// Incomplete requests among `passing` that may pass the filter: their unknown latency decides.
    pub may_pass: u64,
    /// Complete requests whose parts do not add up to their latency: a defect if not 0. Covers all requests, whether
    /// they pass the filter or not.
    pub not_conserved: u64,
    /// Describes the first of these requests.
    pub not_conserved_example: Option<String>,
    /// Segments of requests that are not in the capture: a defect if not 0.
    pub orphan_segments: u64,
    /// Which requests were made for which. Covers the requests that pass the filter and all requests made for them.
    pub tree: Tree,
}

/// The requests of one kind. Distributions cover its complete requests.
#[derive(Clone, Debug, Serialize)]
pub struct KindBreakdown {
    pub kind: Kind,
    pub requests: u64,
    /// Number of requests by the confidence that they are requests of this kind.
    pub certainties: BTreeMap<Certainty, u64>,
    pub incomplete: u64,
    /// Number of incomplete requests by reason.
    pub incomplete_reasons: BTreeMap<String, u64>,
    /// The largest lower bound of an incomplete request's latency.
    pub incomplete_max_lower_bound_ns: Option<u64>,
    /// Which ends of the requests are traced.
    pub ends: Ends,
    pub latency: Distribution,
    /// In the order of [`Category::ALL`], then of sides. The last part is always `unattributed`.
    pub parts: Vec<Part>,
    /// In time order; only for `exec` and `process`.
    pub phases: Vec<PhasePart>,
    /// Which threads ran while requests waited for a CPU.
    pub waits: Vec<Waits>,
    /// The part of the complete requests' latency that was spent waiting for a CPU that rpcprobe itself had.
    pub behind_probe_ns: u64,
    /// Time after the end of complete requests of which only the server is traced; `None` if nothing is known about it.
    pub held_back: Option<HeldBack>,
    /// Groups as the user selected them; otherwise by method, if there are methods.
    pub groups: Option<Groups>,
    /// `None` if there are fewer than [`FEWEST`](super::tail::FEWEST) complete requests.
    pub tail: Option<Tail>,
}

/// Requests by which of their ends are traced, and the threads at these ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ends {
    pub both: u64,
    pub client_only: u64,
    pub server_only: u64,
    pub neither: u64,
    /// Thread name at this end of at least nine in ten requests, of those where the end is traced.
    pub client_comm: Option<String>,
    pub server_comm: Option<String>,
    /// Program name at this end, under the same condition. A program is named like its main thread.
    pub client_program: Option<String>,
    pub server_program: Option<String>,
}

/// Answers that the kernel held back after their servers had written them. This time is not part of any latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldBack {
    /// Requests of which it is known whether the answer was held back and, if so, for how long.
    pub known: u64,
    /// Those of the known requests whose answer was held back.
    pub requests: u64,
    /// Further requests whose answer was held back for an unknown time.
    pub not_timed: u64,
    /// The requests of both fields, by reason.
    pub by: BTreeMap<HeldBy, u64>,
    /// Distribution over `requests`.
    #[serde(flatten)]
    pub time: Distribution,
}

/// One category at one side.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    pub category: Category,
    /// `None` only for `unattributed` without any time.
    pub side: Option<Side>,
    #[serde(flatten)]
    pub per_request: Distribution,
    /// Share of the total latency of the kind's complete requests, 0 to 1.
    pub share: f64,
    /// Modelled and sampled time in the total.
    pub modelled_ns: u64,
    pub sampled_ns: u64,
    /// Thread name of at least nine tenths of the time.
    pub comm: Option<String>,
    /// For waits: what at least half of the time was spent waiting for.
    pub detail: Option<String>,
}

/// One phase of the life of processes.
#[derive(Clone, Debug, Serialize)]
pub struct PhasePart {
    /// `None` for segments without a phase.
    pub phase: Option<&'static str>,
    #[serde(flatten)]
    pub per_request: Distribution,
    /// Share of the total latency of the kind's complete requests, 0 to 1.
    pub share: f64,
    /// Modelled and sampled time in the total.
    pub modelled_ns: u64,
    pub sampled_ns: u64,
}

/// Which threads had the CPU during one run-queue part.
#[derive(Clone, Debug, Serialize)]
pub struct Waits {
    pub category: Category,
    pub side: Side,
    pub total_ns: u64,
    /// Modelled time in the total.
    pub modelled_ns: u64,
    /// The names with the most time, largest first.
    pub top: Vec<WaitedFor>,
}

/// A thread name, and the waiting time that it accounts for.
#[derive(Clone, Debug, Serialize)]
pub struct WaitedFor {
    /// The thread's name without its number; `None` if not known.
    pub comm: Option<String>,
    pub ns: u64,
}

impl KindBreakdown {
    /// Number of requests that are in the figures.
    pub fn complete(&self) -> u64 {
        self.requests - self.incomplete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_place() {
        for kind in Kind::ALL {
            assert!(ORDER.contains(kind), "{kind}");
        }
    }
}
