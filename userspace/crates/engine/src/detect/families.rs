//! What each process served, and what it asked others. In the end, parents without other evidence are inferred from the
//! times of all requests ([`rpcprobe_assign`]).

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::detect::causality::{step, Asking, Causality};
use crate::detect::found::Found;
use crate::timeline::{ProcessId, World};
use rpcprobe_assign::{Assigned, Family, Made, Step};
use rpcprobe_model::Certainty;

/// One [`Family`] for each process that asks others while it serves.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<ProcessId, Family>);

impl Families {
    /// Notes a found request, with its parent as far as it is known.
    pub(super) fn note(&mut self, world: &World, found: &Found, causality: &Causality) {
        let id = found.request.request_id;
        let process = found.goal.server_process;
        if let Some((process, served)) = process.zip(causality.served(world, found)) {
            self.0.entry(process).or_default().serves(served);
        }
        let Some(asking) = found.made_for.asking else { return };
        let parent = found.request.parent_request_id.filter(|_| !found.made_for.orphan);
        if parent.is_none() && !found.made_for.orphan {
            return;
        }
        let heard = found.made_for.heard.map(|heard| step(world, heard.thread, heard.exit_ns));
        let heard = heard.unwrap_or(Step { ns: found.goal.end_ns, turn: None });
        let asked = step(world, asking.thread(), asking.asked_ns());
        let guessed = found.request.parent_certainty == Some(Certainty::Guessed);
        let made = Made { id, whom: whom(world, &asking), asked, heard, parent, guessed };
        self.0.entry(asking.process()).or_default().makes(made);
    }

    /// The parents inferred from the times of all requests.
    pub(super) fn assign(&mut self) -> Vec<Assigned> {
        let all = std::mem::take(&mut self.0).into_values();
        all.flat_map(Family::finish).collect()
    }
}

/// Which server is asked: a hash of the network address to which the channel leads, or 0.
fn whom(world: &World, asking: &Asking) -> u64 {
    let channel = asking.asks_on().and_then(|channel| world.channels.get(&channel));
    let Some([_, to]) = channel.and_then(|channel| channel.ends) else { return 0 };
    let mut hasher = FxHasher::default();
    to.hash(&mut hasher);
    hasher.finish()
}
