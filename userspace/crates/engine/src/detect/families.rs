//! What each process served, and what it asked others. In the end, parents without firm evidence are inferred from the
//! steps of all requests ([`rpcprobe_assign`]), for the next pass over the events.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::detect::causality::{step, Asking, Causality};
use crate::detect::found::Found;
use crate::detect::ids::Asked;
use crate::timeline::{ProcessId, World};
use rpcprobe_assign::{Assigned, Family, Made, Step};
use rpcprobe_model::Certainty;

/// Parents without firm evidence, inferred in one pass over the events: by the question of each child, that of its
/// parent.
pub type InferredParents = FxHashMap<Asked, Asked>;

#[derive(Debug, Default)]
pub(super) struct Families {
    /// One [`Family`] for each process that asks others while it serves.
    of: BTreeMap<ProcessId, Family>,
    /// The questions of the requests that may get a parent, or become one, by their ids.
    questions: FxHashMap<u64, Asked>,
}

impl Families {
    /// Notes a found request, with its parent as far as it is known.
    pub(super) fn note(&mut self, world: &World, found: &Found, causality: &Causality) {
        let id = found.request.request_id;
        let process = found.goal.server_process;
        if let Some((process, served)) = process.zip(causality.served(world, found)) {
            self.of.entry(process).or_default().serves(served);
            self.keep_question(found);
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
        self.of.entry(asking.process()).or_default().makes(made);
        if parent.is_none() || guessed {
            self.keep_question(found);
        }
    }

    fn keep_question(&mut self, found: &Found) {
        let question = found.question().map(|question| (found.request.request_id, question));
        self.questions.extend(question);
    }

    /// The parents inferred from the steps of all requests.
    pub(super) fn infer(self) -> InferredParents {
        let question = |id: u64| self.questions.get(&id).copied();
        let each = |one: Assigned| Some((question(one.child)?, question(one.parent)?));
        self.of.into_values().flat_map(Family::finish).filter_map(each).collect()
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
