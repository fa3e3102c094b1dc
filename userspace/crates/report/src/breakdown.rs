//! Where the time of a capture's requests went, as figures: what text and JSON alike show.

use std::collections::BTreeMap;

use serde::Serialize;

use super::groups::Groups;
use super::sums::Distribution;
use super::tail::Tail;
use super::tree::Tree;
use rpcprobe_model::{Category, Certainty, HeldBy, Kind, Side};

/// Kinds in the order of reports: what speaks a protocol first, then those that contain others.
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

/// Where the time of the requests went that pass a filter, and whether the figures can be trusted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Breakdown {
    /// Kinds without requests are left out.
    pub kinds: Vec<KindBreakdown>,
    /// All requests read, whether they pass the filter or not.
    pub in_capture: u64,
    /// Those that pass it, or may.
    pub passing: u64,
    /// Of these, the incomplete ones whose latency, not known, decides.
    pub may_pass: u64,
    /// Complete requests whose parts do not add up to their latency: a defect, if not 0. Of all
    /// requests, whether they pass or not.
    pub not_conserved: u64,
    /// The first of them, and what is wrong with it.
    pub not_conserved_example: Option<String>,
    /// Segments of requests that are not in the capture: a defect, if not 0.
    pub orphan_segments: u64,
    /// Which requests were made for which: those that pass the filter and all that were made for them.
    pub tree: Tree,
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
    /// Which ends are traced.
    pub ends: Ends,
    pub latency: Distribution,
    /// In the order of [`Category::ALL`], then of sides. The last is always `unattributed`.
    pub parts: Vec<Part>,
    /// In order of time; only for `exec` and `process`.
    pub phases: Vec<PhasePart>,
    /// Who ran while requests waited for a CPU.
    pub waits: Vec<Waits>,
    /// Of the complete requests' latency: waiting for a CPU that rpcprobe itself had.
    pub behind_probe_ns: u64,
    /// What came after the ends of complete requests whose server alone is traced: `None` if nothing of it is known.
    pub held_back: Option<HeldBack>,
    /// By what was asked for, else by method where there are any.
    pub groups: Option<Groups>,
    /// `None` for fewer than [`FEWEST`](super::tail::FEWEST) complete requests.
    pub tail: Option<Tail>,
}

/// Requests by which of their ends are traced, and who is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ends {
    pub both: u64,
    pub client_only: u64,
    pub server_only: u64,
    pub neither: u64,
    /// The thread's name that nine of ten requests have at that end at least, of those where it is traced.
    pub client_comm: Option<String>,
    pub server_comm: Option<String>,
}

/// Answers that the kernel held back after their servers had written them: no part of any latency.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeldBack {
    /// Requests of which it is known whether the answer was held back, and how long if it was.
    pub known: u64,
    /// Those of them whose answer was.
    pub requests: u64,
    /// Further ones, whose answers were held back nobody knows how long.
    pub not_timed: u64,
    /// Both, by the reason.
    pub by: BTreeMap<HeldBy, u64>,
    /// Over `requests`.
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
    /// Of the total latency of the kind's complete requests, 0 to 1.
    pub share: f64,
    /// How much of the total is not measured.
    pub modelled_ns: u64,
    pub sampled_ns: u64,
    /// The thread's name that nine tenths of the time have at least.
    pub comm: Option<String>,
    /// For waits: what half of the time at least was waited for.
    pub detail: Option<String>,
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

impl KindBreakdown {
    /// Requests that are in the figures.
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
