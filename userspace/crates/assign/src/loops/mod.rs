//! Infers parents from the order in which an event loop works.
//!
//! One thread makes all steps of such a server: it polls, reads what is ready, goes on with whatever waited for that,
//! and polls again. Between a step and the next step of the same request there is always the same number of turns,
//! however long these take. Or there is a timer, and then the next step is made in the turn in which the timer is due
//! ([`lags`]). What is given out in one turn has the order of its causes ([`order`]). None of these numbers has to be
//! known before: the lags with which more steps follow others than by chance stand out, and from these the rest is
//! learned (expectation and maximisation). Each round covers all paths through each request, from its receipt over
//! children to its answer ([`paths`]). It weighs how likely each step leads to each other step ([`links`]), and then
//! how much each child is wanted, so that each child belongs to exactly one request.
//!
//! The result counts only if a control confirms it. The control is a loop that reads and writes the same at the same
//! times, but in which the answers of children are mixed up. It has to be much less likely.

mod lags;
mod links;
mod order;
mod paths;
mod steps;

use links::{horizons_ns, Model, MOST_DELAY};
use paths::{Paths, Turns};
use steps::Steps;

use crate::{Assigned, Made, Served, AGREED_PART, CHECKED};

/// Number of rounds over all requests; number of rounds of a trial over the first requests; and number of children in a
/// trial. Trials find the delay of timers, and serve as the control.
const ROUNDS: usize = 10;
const TRIAL_ROUNDS: usize = 8;
const TRIAL_CHILDREN: usize = 1024;
/// Limit of the pairs of a request and a child that it may have had, for each child. With more, there are too many
/// paths through all requests. In `experiments/trees` there are 30 with 32 in flight.
const MOST_PAIRS: usize = 48;
/// How likely a parent has to be, among all candidates. In `experiments/trees`, with 32 in flight, 98 % of these
/// parents are right.
const LIKELY_ENOUGH: f64 = 0.5;
/// By how much the logarithm of the likelihood has to exceed the control's, for each child that is mixed up there. In
/// one capture each it was 0.79 and 0.96 for asyncio's `calls` at 32 and 4 in flight, 0.62 and 0.25 for Node's.
const BORNE_OUT: f64 = 0.3;
/// Target for how likely each child belongs to any request. `wanted` is adjusted towards it.
const SOMEBODYS: f64 = 0.99;

/// The parents of the requests `made`, among the requests `served` meanwhile; both in order of their begin. `None`: the
/// order is no evidence.
pub(crate) fn assign(served: &[Served], made: &[Made]) -> Option<Vec<Assigned>> {
    if made.iter().all(|made| made.is_firm()) {
        return Some(Vec::new());
    }
    let first = Steps::first(served, made, TRIAL_CHILDREN);
    if !first.has_few_pairs(MOST_PAIRS) {
        return None;
    }
    let steps = Steps::new(served, made);
    if !steps.has_few_pairs(MOST_PAIRS) {
        return None;
    }
    let trials = (0..=MOST_DELAY).map(|delay| trial(first.clone(), delay));
    let best = trials.max_by(|one, other| one.likelihood.total_cmp(&other.likelihood))?;
    let mut control = first;
    let swapped = control.swap_answers();
    let better = best.likelihood - trial(control, best.model.delay()).likelihood;
    if better < BORNE_OUT * swapped as f64 {
        return None;
    }
    let mut inference = Inference::new(steps, |steps, _| best.model.for_all(steps));
    for _ in 0..ROUNDS {
        inference.round();
    }
    Some(inference.tell(made, swapped >= CHECKED))
}

fn trial(steps: Steps, delay: usize) -> Inference {
    let mut inference =
        Inference::new(steps, |steps, horizons_ns| Model::new(steps, horizons_ns, delay));
    for _ in 0..TRIAL_ROUNDS {
        inference.round();
    }
    inference
}

struct Inference {
    steps: Steps,
    horizons_ns: Vec<u64>,
    model: Model,
    turns: Turns,
    /// How much each child is wanted by the requests to which it may belong.
    wanted: Vec<f64>,
    /// The likeliest parent of each child, as an index, and how likely it is.
    parents: Vec<(u32, f64)>,
    likelihood: f64,
    paths: Paths,
}

impl Inference {
    fn new(steps: Steps, model: impl FnOnce(&Steps, &[u64]) -> Model) -> Inference {
        let horizons_ns = horizons_ns(&steps);
        let model = model(&steps, &horizons_ns);
        let count = steps.children.len();
        Inference {
            steps,
            horizons_ns,
            model,
            turns: Turns::ANY,
            wanted: vec![100.0; count],
            parents: vec![(0, 0.0); count],
            likelihood: f64::NEG_INFINITY,
            paths: Paths::default(),
        }
    }

    fn round(&mut self) {
        let Inference { steps, horizons_ns, wanted, paths, .. } = self;
        let mut linked = self.model.link(steps, horizons_ns, wanted);
        let mut sums = vec![0.0; steps.children.len()];
        let mut only = vec![0.0; steps.parents.len()];
        let (mut nexts, mut besides, mut lasts) = (0.0, 0.0, 0.0);
        self.parents.fill((0, 0.0));
        self.likelihood = 0.0;
        for (parent, only) in only.iter_mut().enumerate() {
            let Some(told) = paths.go(steps, parent, &mut linked, (self.turns, wanted)) else {
                continue;
            };
            for (child, likely) in told.children {
                sums[child as usize] += likely;
                let best = &mut self.parents[child as usize];
                if likely > best.1 {
                    *best = (parent as u32, likely);
                }
            }
            *only = told.only;
            nexts += told.nexts;
            besides += told.besides;
            lasts += told.lasts;
            self.likelihood += told.logarithm;
        }
        for ((sum, wanted), best) in sums.iter().zip(wanted).zip(&mut self.parents) {
            best.1 /= sum.max(1.0);
            self.likelihood -= sum * wanted.ln();
            let more = (SOMEBODYS / sum.max(1e-9)).clamp(0.05, 20.0).powf(0.7);
            *wanted = (*wanted * more).clamp(1e-6, 1e6);
        }
        let none: f64 = only.iter().sum();
        self.turns = Turns {
            only: (none + 1.0) / (steps.parents.len() as f64 + 10.0),
            beside: (besides + 1.0) / (nexts + besides + lasts + 10.0),
            next: (nexts + 1.0) / (nexts + lasts + 2.0),
        };
        self.model.learn(steps, &linked, &only);
    }

    /// The parents of the children without a firm parent; none if the results contradict firm parents. `controlled`:
    /// there was a control.
    fn tell(&self, made: &[Made], controlled: bool) -> Vec<Assigned> {
        let known: rustc_hash::FxHashMap<u64, &Made> =
            made.iter().map(|made| (made.id, made)).collect();
        let (mut checked, mut agreed) = (0, 0);
        let mut told = Vec::new();
        for (child, (parent, likely)) in self.steps.children.iter().zip(&self.parents) {
            if *likely <= LIKELY_ENOUGH {
                continue;
            }
            let parent = self.steps.parents[*parent as usize].id;
            let made = known[&child.id];
            match made.is_firm() {
                true => {
                    checked += 1;
                    agreed += usize::from(made.parent == Some(parent));
                }
                false => told.push(Assigned { child: child.id, parent }),
            }
        }
        let contradicted = (agreed as f64) < AGREED_PART * f64::from(checked);
        match checked >= CHECKED as u32 {
            true if contradicted => Vec::new(),
            false if !controlled => Vec::new(),
            _ => told,
        }
    }
}

#[cfg(test)]
mod tests;
