//! Infers parents from the times between the steps of a server's requests.
//!
//! A request's children come one after the other, or several at once. There are gaps from its receipt to its first
//! child ([`density::Gap::First`](crate::density::Gap::First)), from an answer to the next child (`Next`), between two
//! children that are asked at once (`Beside`), and from the last answer to the request's own (`Last`). Each kind of gap
//! has its own distribution for each server that the child asks ([`crate::density`]), and so has the number of
//! children. Children without a parent come at any time. The distributions are first those of the children whose
//! parents are known, then also those of the children that got a parent from these. If hardly any parents are known,
//! none are inferred. The likeliest parent is searched for one child at a time, again and again, so that the cost is
//! linear.

use crate::chain::{Chain, Model};
use crate::{Assigned, Made, Served, AGREED_PART, CHECKED, MOST_CHILDREN};

/// Limit of the candidates of a child; with more, no parent is inferred. The cost is linear in their number: 9 us a
/// child with 17, 50 us with 130.
pub(crate) const MOST_CANDIDATES: usize = 256;
/// Limit of the requests that a server has in progress, or had a moment ago; with more, a child has no candidates.
const MOST_IN_HAND: usize = 1024;
/// Number of rounds over all children. In `experiments/trees` hardly any child gets another parent in the ninth.
const ROUNDS: usize = 8;
/// How likely a parent has to be, among all candidates and no parent. In `experiments/trees`, with 32 in flight, of the
/// parents between 0.5 and 0.8 a third is right.
const LIKELY_ENOUGH: f64 = 0.8;
/// The part of the children that is assumed to have no parent, even if all have one.
const PARENTLESS_PART: f64 = 0.01;

/// The parents of the requests `made`, in the order in which they were asked, among the requests `served` meanwhile, in
/// the order of their receipt.
pub(crate) fn assign(served: &[Served], made: &[Made]) -> Vec<Assigned> {
    if made.iter().all(|made| made.parent.is_some()) {
        return Vec::new();
    }
    let candidates = Candidates::new(served, made);
    let mut state = State::new(served, made, &candidates);
    for _ in 0..ROUNDS {
        state.learn();
        state.move_all();
    }
    state.learn();
    match state.is_borne_out() {
        true => state.likely_enough(),
        false => Vec::new(),
    }
}

/// The requests for which each child may have been made, as indices: those that were served throughout.
struct Candidates {
    all: Vec<u32>,
    ends: Vec<usize>,
}

impl Candidates {
    /// `served` in order of their receipt, `made` as they were asked.
    fn new(served: &[Served], made: &[Made]) -> Candidates {
        let (mut all, mut ends) = (Vec::new(), Vec::with_capacity(made.len()));
        let mut in_hand: Vec<u32> = Vec::new();
        let mut next = 0;
        let mut tidied = 0;
        for child in made {
            while next < served.len() && served[next].received.ns <= child.asked.ns {
                in_hand.push(next as u32);
                next += 1;
            }
            if in_hand.len() > 2 * tidied + 16 {
                in_hand.retain(|at| served[*at as usize].answered.ns >= child.asked.ns);
                tidied = in_hand.len();
            }
            let begin = all.len();
            if in_hand.len() <= MOST_IN_HAND {
                let may_be = |at: &&u32| served[**at as usize].answered.ns >= child.heard.ns;
                all.extend(in_hand.iter().filter(may_be).take(MOST_CANDIDATES + 1));
            }
            if all.len() - begin > MOST_CANDIDATES {
                all.truncate(begin);
            }
            ends.push(all.len());
        }
        Candidates { all, ends }
    }

    fn of(&self, child: usize) -> &[u32] {
        let begin = child.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[begin..self.ends[child]]
    }
}

/// What is assigned so far.
struct State<'a> {
    served: &'a [Served],
    made: &'a [Made],
    candidates: &'a Candidates,
    /// The parent of each child, and whether it is known.
    parents: Vec<Option<u32>>,
    known: Vec<bool>,
    /// The children of each served request, and how likely these are by the distributions that were last learned.
    chains: Vec<Chain>,
    scores: Vec<f64>,
    model: Model,
}

impl<'a> State<'a> {
    fn new(served: &'a [Served], made: &'a [Made], candidates: &'a Candidates) -> State<'a> {
        let by_id: rustc_hash::FxHashMap<u64, u32> =
            served.iter().enumerate().map(|(at, served)| (served.id, at as u32)).collect();
        let parents: Vec<Option<u32>> =
            made.iter().map(|made| by_id.get(&made.parent?).copied()).collect();
        let known = made.iter().map(|made| made.parent.is_some()).collect();
        let mut chains = vec![Chain::default(); served.len()];
        for (child, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                chains[*parent as usize].insert(child as u32);
            }
        }
        let scores = vec![0.0; served.len()];
        State { served, made, candidates, parents, known, chains, scores, model: Model::default() }
    }

    /// Learns the distributions from what is assigned.
    fn learn(&mut self) {
        let mut model = Model::default();
        for (served, chain) in self.served.iter().zip(&self.chains) {
            if chain.len() <= MOST_CHILDREN {
                chain.gaps(served, self.made, None, |gap, whom, gap_ns| {
                    model.add(gap, whom, gap_ns)
                });
                model.count(chain.len());
            }
        }
        let parentless = self.parents.iter().filter(|parent| parent.is_none()).count() as f64;
        let since_ns = self.made.first().map_or(0, |made| made.asked.ns);
        let until_ns = self.made.last().map_or(0, |made| made.asked.ns);
        let some = PARENTLESS_PART * self.made.len() as f64;
        model.parentless((parentless + some) / (1 + until_ns - since_ns) as f64);
        model.settle();
        for ((served, chain), score) in self.served.iter().zip(&self.chains).zip(&mut self.scores) {
            *score = model.of_chain(served, self.made, chain, None);
        }
        self.model = model;
    }

    /// How much likelier the whole is with `child` among the children of `parent` than without it.
    fn gain(&self, child: u32, parent: u32) -> f64 {
        let at = parent as usize;
        let (served, chain) = (&self.served[at], &self.chains[at]);
        if chain.len() > MOST_CHILDREN {
            return f64::NEG_INFINITY;
        }
        match self.parents[child as usize] == Some(parent) {
            true => self.scores[at] - self.model.without(served, self.made, chain, child),
            false => self.model.of_chain(served, self.made, chain, Some(child)) - self.scores[at],
        }
    }

    /// The likeliest parent, and how likely it is among all candidates and no parent.
    fn likeliest(&self, child: usize) -> (Option<u32>, f64) {
        let mut best = (None, self.model.parentless_score());
        let mut gains = Vec::with_capacity(1 + MOST_CANDIDATES);
        gains.push(best.1);
        for parent in self.candidates.of(child) {
            let gain = self.gain(child as u32, *parent);
            gains.push(gain);
            if gain > best.1 {
                best = (Some(*parent), gain);
            }
        }
        (best.0, 1.0 / gains.iter().map(|gain| (gain - best.1).exp()).sum::<f64>())
    }

    /// Gives each child the parent that is the likeliest now.
    fn move_all(&mut self) {
        for child in (0..self.made.len()).filter(|child| !self.known[*child]).collect::<Vec<_>>() {
            let (best, _) = self.likeliest(child);
            let former = std::mem::replace(&mut self.parents[child], best);
            if former == best {
                continue;
            }
            if let Some(parent) = former {
                self.chains[parent as usize].remove(child as u32);
            }
            if let Some(parent) = best {
                self.chains[parent as usize].insert(child as u32);
            }
            for parent in [former, best].into_iter().flatten() {
                let (served, chain) =
                    (&self.served[parent as usize], &self.chains[parent as usize]);
                self.scores[parent as usize] = self.model.of_chain(served, self.made, chain, None);
            }
        }
    }

    /// Whether the times confirm known parents: most of the children that have a known parent and several candidates
    /// have to get the known parent from the times. If few parents are known firmly, guessed parents count as well.
    fn is_borne_out(&self) -> bool {
        let several = |child: &usize| {
            let known = self.parents[*child].filter(|_| self.known[*child]);
            let among = self.candidates.of(*child);
            known.is_some_and(|parent| among.len() > 1 && among.contains(&parent))
        };
        let mut checked: Vec<usize> = (0..self.made.len()).filter(several).collect();
        let firm = |child: &&usize| self.made[**child].is_firm();
        if checked.iter().filter(firm).count() >= CHECKED {
            checked.retain(|child| self.made[*child].is_firm());
        }
        let agrees = |child: &&usize| self.likeliest(**child).0 == self.parents[**child];
        let agreed = checked.iter().filter(agrees).count();
        checked.len() >= CHECKED && agreed as f64 >= AGREED_PART * checked.len() as f64
    }

    fn likely_enough(&self) -> Vec<Assigned> {
        let unknown = (0..self.made.len()).filter(|child| !self.known[*child]);
        let assigned = unknown.filter_map(|child| {
            let (parent, likely) = self.likeliest(child);
            let parent =
                parent.filter(|_| likely >= LIKELY_ENOUGH && parent == self.parents[child])?;
            // The parents of the other children were chosen with this parent in place. To exchange the child for a
            // child of another parent may be as likely.
            let exchanged: f64 = self.exchanges(child as u32, parent).map(f64::exp).sum();
            let is_enough = 1.0 / (1.0 / likely + exchanged) >= LIKELY_ENOUGH;
            let (child, parent) = (self.made[child].id, self.served[parent as usize].id);
            is_enough.then_some(Assigned { child, parent })
        });
        assigned.collect()
    }

    /// How much likelier the whole is if `child` of `parent` changes places with a child of another candidate.
    fn exchanges(&self, child: u32, parent: u32) -> impl Iterator<Item = f64> + '_ {
        let others = self.candidates.of(child as usize).iter().copied();
        let others = others.filter(move |other| *other != parent);
        let each = others.flat_map(|other| {
            self.chains[other as usize].children().map(move |theirs| (other, theirs))
        });
        let each = each.filter(move |(_, theirs)| {
            let of_theirs = self.candidates.of(*theirs as usize);
            !self.known[*theirs as usize] && of_theirs.binary_search(&parent).is_ok()
        });
        each.map(move |(other, theirs)| {
            let changed = |of: u32, without: u32, with: u32| {
                let (at, mut chain) = (of as usize, self.chains[of as usize].clone());
                chain.remove(without);
                chain.insert(with);
                self.model.of_chain(&self.served[at], self.made, &chain, None) - self.scores[at]
            };
            changed(parent, child, theirs) + changed(other, theirs, child)
        })
    }
}
