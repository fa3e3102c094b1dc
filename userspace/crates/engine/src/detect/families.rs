//! What each process served and asked others for, so that in the end the parents of which nothing else told are told by the
//! times of all ([`rpcprobe_assign`]).

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::detect::causality::{step, Asking, Causality};
use crate::detect::found::Found;
use crate::timeline::{ProcessId, World};
use rpcprobe_assign::{Assigned, Family, Made, Step};
use rpcprobe_model::Certainty;

/// Of all processes that ask others while they serve.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<ProcessId, Family>);

impl Families {
    /// Notes a request that was found, and has the parent that is told.
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

    /// The parents that the times of all tell.
    pub(super) fn assign(&mut self) -> Vec<Assigned> {
        let all = std::mem::take(&mut self.0).into_values();
        all.flat_map(Family::finish).collect()
    }
}

/// Whom that asks: where on the network it leads to, or 0.
fn whom(world: &World, asking: &Asking) -> u64 {
    let channel = asking.asks_on().and_then(|channel| world.channels.get(&channel));
    let Some([_, to]) = channel.and_then(|channel| channel.ends) else { return 0 };
    let mut hasher = FxHasher::default();
    to.hash(&mut hasher);
    hasher.finish()
}
