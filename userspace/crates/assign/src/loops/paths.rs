//! The paths through a request: which children it may have had, and how likely each is, over all paths together (the
//! forward-backward algorithm).
//!
//! The state of a path is the child that was asked last and the child whose answer came last. What comes after an
//! answer depends on that answer alone, so all paths with the same last answer continue together: the cost is that of
//! the links, not of the paths. What is asked beside others depends on both. Of the paths with the same last child
//! asked, only the likeliest [`MOST_HEARD`] last answers are kept apart.

use super::links::{Linked, Links};
use super::steps::Steps;

/// How a request goes on: which part of the cases in which way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// It has no children.
    pub(super) only: f64,
    /// Another child is asked beside one.
    pub(super) beside: f64,
    /// After all answers, another child is asked.
    pub(super) next: f64,
}

impl Turns {
    /// Before anything is known.
    pub(super) const ANY: Turns = Turns { only: 0.001, beside: 0.2, next: 0.5 };
}

/// How likely all paths up to some point are together, and all paths from there on.
#[derive(Clone, Copy, Debug, Default)]
struct Likely {
    until: f64,
    from: f64,
}

/// What may happen in a request, in order: a child is asked, or all answers up to that child's have come.
#[derive(Clone, Copy, Debug)]
enum Step {
    Asked(u32),
    Heard(u32),
}

/// Limit of the children whose answers may have come last, for each child that was asked last. Of more, only the
/// likeliest are kept.
const MOST_HEARD: usize = 32;

/// The state for all paths through one request; kept to be used again.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// For each child of the capture, its place among the children of this request.
    places: Vec<Option<u32>>,
    children: Vec<u32>,
    /// When each of these was asked, and answered.
    times_ns: Vec<(u64, u64)>,
    order: Vec<Step>,
    /// By the child that was asked last: the children whose answers may have come last; and by both, how likely.
    heard: Vec<Vec<u32>>,
    states: Vec<Likely>,
    /// By the child whose answer came last.
    answers: Vec<Likely>,
    last: Vec<Option<(usize, f64)>>,
    /// How often a child was reached, in total.
    #[cfg(test)]
    pub(super) reached: u64,
}

/// How likely a request has each child, and how it goes on.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) children: Vec<(u32, f64)>,
    pub(super) only: f64,
    pub(super) nexts: f64,
    pub(super) besides: f64,
    pub(super) lasts: f64,
    /// The logarithm of how likely all paths together are.
    pub(super) logarithm: f64,
}

impl Paths {
    /// Covers all paths through a request, and adds to the weights of the links.
    pub(super) fn go(
        &mut self,
        steps: &Steps,
        parent: usize,
        linked: &mut Linked,
        (turns, wanted): (Turns, &[f64]),
    ) -> Option<Told> {
        self.begin(steps, parent, &linked.last, turns);
        self.forward(parent, linked, (turns, wanted));
        let (near, due) = linked.only[parent];
        let only = turns.only * (near + due);
        let last = self.last.iter().map(|last| last.map_or(0.0, |(_, likely)| likely));
        let ends = self.answers.iter().zip(last).map(|(answer, last)| answer.until * last);
        let all = only + ends.sum::<f64>();
        let told = (all > 0.0 && all.is_finite()).then(|| {
            let told = Told { only: only / all, logarithm: all.ln(), ..Told::default() };
            self.backward(parent, linked, (turns, wanted), (told, all))
        });
        self.end();
        told
    }

    fn begin(&mut self, steps: &Steps, parent: usize, last: &Links, turns: Turns) {
        self.places.resize(steps.children.len(), None);
        let within = steps.within(&steps.parents[parent]);
        self.children.clear();
        self.children.extend(within.take(crate::times::MOST_CANDIDATES).map(|at| at as u32));
        let count = self.children.len();
        let times_ns = |child: &u32| {
            let child = &steps.children[*child as usize];
            (child.asked.at.ns, child.heard.ns)
        };
        self.times_ns.clear();
        self.times_ns.extend(self.children.iter().map(times_ns));
        self.order.clear();
        for (place, child) in (0..).zip(&self.children) {
            self.places[*child as usize] = Some(place);
            self.order.extend([Step::Asked(place), Step::Heard(place)]);
        }
        // A child that is asked just when an answer comes is asked beside.
        let times_ns = &self.times_ns;
        self.order.sort_by_key(|step| match *step {
            Step::Asked(place) => (times_ns[place as usize].0, 0),
            Step::Heard(place) => (times_ns[place as usize].1, 1),
        });
        self.heard.resize_with(count.max(self.heard.len()), Vec::new);
        self.states.resize(self.states.len().max(count * count), Likely::default());
        self.answers.clear();
        self.answers.resize(count, Likely::default());
        self.last.clear();
        self.last.resize(count, None);
        for at in last.of(parent) {
            let link = &last.all[at];
            if let Some(place) = self.places[link.child as usize] {
                let likely = link.likely() * (1.0 - turns.beside) * (1.0 - turns.next);
                self.last[place as usize] = Some((at, likely));
            }
        }
    }

    /// Resets what is used again.
    fn end(&mut self) {
        let count = self.children.len();
        for (place, child) in self.children.iter().enumerate() {
            self.places[*child as usize] = None;
            for heard in self.heard[place].drain(..) {
                self.states[place * count + heard as usize] = Likely::default();
            }
        }
    }

    fn state(&mut self, asked: u32, heard: u32) -> &mut Likely {
        let at = asked as usize * self.children.len() + heard as usize;
        &mut self.states[at]
    }

    /// Adds `likely` to the state in which `asked` was asked last and the answer of `heard` came last.
    fn reach(&mut self, asked: u32, heard: u32, likely: f64) {
        #[cfg(test)]
        {
            self.reached += 1;
        }
        if likely <= 0.0 {
            return;
        }
        let state = self.state(asked, heard);
        let is_new = state.until == 0.0;
        state.until += likely;
        if is_new {
            self.heard[asked as usize].push(heard);
        }
    }

    /// The child whose answer comes last if `to` is asked beside others whose last answer was that of `heard`. `None`:
    /// that answer came before `to` was asked.
    fn heard_beside(&self, to: u32, heard: u32) -> Option<u32> {
        let ((asked_ns, to_ns), (_, heard_ns)) =
            (self.times_ns[to as usize], self.times_ns[heard as usize]);
        let later = if to_ns > heard_ns { to } else { heard };
        (asked_ns <= heard_ns).then_some(later)
    }

    /// Forgets all but the likeliest of the children whose answers may have come last.
    fn leave_out_unlikely(&mut self, place: u32, heard: &mut Vec<u32>) {
        if heard.len() <= MOST_HEARD {
            return;
        }
        heard.sort_unstable_by(|one, other| {
            let mut of = |heard: u32| (self.state(place, heard).until, heard);
            let ((one, first), (other, second)) = (of(*one), of(*other));
            other.total_cmp(&one).then(first.cmp(&second))
        });
        for left_out in heard.drain(MOST_HEARD..) {
            *self.state(place, left_out) = Likely::default();
        }
    }

    fn forward(&mut self, parent: usize, linked: &Linked, (turns, wanted): (Turns, &[f64])) {
        for link in &linked.first.all[linked.first.of(parent)] {
            let likely = (1.0 - turns.only) * link.likely() * wanted[link.child as usize];
            let Some(to) = self.places[link.child as usize] else { continue };
            self.reach(to, to, likely);
        }
        let goes_on = (1.0 - turns.beside) * turns.next;
        for at in 0..self.order.len() {
            match self.order[at] {
                Step::Asked(place) => {
                    let mut all = std::mem::take(&mut self.heard[place as usize]);
                    self.leave_out_unlikely(place, &mut all);
                    for heard in &all {
                        let until = self.state(place, *heard).until;
                        self.answers[*heard as usize].until += until;
                    }
                    let child = self.children[place as usize] as usize;
                    for link in &linked.beside.all[linked.beside.of(child)] {
                        let Some(to) = self.places[link.child as usize] else { continue };
                        let likely = turns.beside * link.likely() * wanted[link.child as usize];
                        for heard in &all {
                            let Some(later) = self.heard_beside(to, *heard) else {
                                continue;
                            };
                            let until = self.state(place, *heard).until;
                            self.reach(to, later, until * likely);
                        }
                    }
                    self.heard[place as usize] = all;
                }
                Step::Heard(place) => {
                    let until = self.answers[place as usize].until;
                    if until == 0.0 {
                        continue;
                    }
                    let child = self.children[place as usize] as usize;
                    for link in &linked.next.all[linked.next.of(child)] {
                        let Some(to) = self.places[link.child as usize] else { continue };
                        let likely = goes_on * link.likely() * wanted[link.child as usize];
                        self.reach(to, to, until * likely);
                    }
                }
            }
        }
    }

    /// Adds to the weights of the links; `all`: how likely all paths together are.
    fn backward(
        &mut self,
        parent: usize,
        linked: &mut Linked,
        (turns, wanted): (Turns, &[f64]),
        (mut told, all): (Told, f64),
    ) -> Told {
        let goes_on = (1.0 - turns.beside) * turns.next;
        for at in (0..self.order.len()).rev() {
            match self.order[at] {
                Step::Heard(place) => {
                    let until = self.answers[place as usize].until;
                    if until == 0.0 {
                        continue;
                    }
                    let mut from = 0.0;
                    if let Some((at, likely)) = self.last[place as usize] {
                        let weight = until * likely / all;
                        linked.last.all[at].weight += weight;
                        told.lasts += weight;
                        from += likely;
                    }
                    let child = self.children[place as usize] as usize;
                    let range = linked.next.of(child);
                    for link in &mut linked.next.all[range] {
                        let Some(to) = self.places[link.child as usize] else { continue };
                        let likely = goes_on * link.likely() * wanted[link.child as usize];
                        let onward = likely * self.state(to, to).from;
                        link.weight += until * onward / all;
                        told.nexts += until * onward / all;
                        from += onward;
                    }
                    self.answers[place as usize].from = from;
                }
                Step::Asked(place) => {
                    let besides = (turns.beside, wanted);
                    let sum = self.asked(place, linked, besides, (&mut told, all));
                    if sum > 1e-6 {
                        told.children.push((self.children[place as usize], sum));
                    }
                }
            }
        }
        let range = linked.first.of(parent);
        for link in &mut linked.first.all[range] {
            let likely = (1.0 - turns.only) * link.likely() * wanted[link.child as usize];
            let Some(to) = self.places[link.child as usize] else { continue };
            link.weight += likely * self.state(to, to).from / all;
        }
        told
    }

    /// How likely the request has the child at `place`, by all that comes from there on.
    fn asked(
        &mut self,
        place: u32,
        linked: &mut Linked,
        (beside, wanted): (f64, &[f64]),
        (told, all): (&mut Told, f64),
    ) -> f64 {
        let every = std::mem::take(&mut self.heard[place as usize]);
        for heard in &every {
            self.state(place, *heard).from = self.answers[*heard as usize].from;
        }
        let child = self.children[place as usize] as usize;
        let range = linked.beside.of(child);
        for link in &mut linked.beside.all[range] {
            let Some(to) = self.places[link.child as usize] else { continue };
            let likely = beside * link.likely() * wanted[link.child as usize];
            for heard in &every {
                let Some(later) = self.heard_beside(to, *heard) else { continue };
                let onward = likely * self.state(to, later).from;
                let state = self.state(place, *heard);
                state.from += onward;
                let weight = state.until * onward / all;
                link.weight += weight;
                told.besides += weight;
            }
        }
        let mut sum = 0.0;
        for heard in &every {
            let state = self.state(place, *heard);
            sum += state.until * state.from / all;
        }
        self.heard[place as usize] = every;
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::links::Link;
    use crate::loops::steps::{Child, Instant, Output, Parent};

    /// One request, and `count` children, each of which may come after, or beside, any earlier one; and the number of
    /// links.
    fn crowd(count: u64) -> (Steps, Linked, usize) {
        let instant = |ns| Instant { ns, turn: ns, begun_ns: [0; crate::TURNS], place: 0 };
        let output = |ns| Output { at: instant(ns), number: 0, beside: 1.0 };
        let parent = Parent { id: 0, received: instant(0), answered: output(1_000 * count) };
        let answered_in = |at: u64| 1 + (at * 7_919) % (20 * count);
        let child = |at| Child {
            id: 1 + at,
            asked: output(10 * at + 1),
            heard: instant(10 * at + 1 + answered_in(at)),
        };
        let children = (0..count).map(child).collect();
        let steps = Steps { parents: vec![parent], children, given_in: Vec::new() };
        let mut linked = Linked::default();
        for at in 0..count as u32 {
            linked.first.all.push(Link::of(at, 0.1));
            linked.last.all.push(Link::of(at, 0.1));
            let heard_ns = steps.children[at as usize].heard.ns;
            for other in at + 1..count as u32 {
                match steps.children[other as usize].asked.at.ns > heard_ns {
                    true => linked.next.all.push(Link::of(other, 0.1)),
                    false => linked.beside.all.push(Link::of(other, 0.1)),
                }
            }
            linked.next.end();
            linked.beside.end();
        }
        linked.first.end();
        linked.last.end();
        linked.only.push((0.1, 0.0));
        let all = [&linked.first, &linked.next, &linked.beside];
        let links = all.iter().map(|links| links.all.len()).sum();
        (steps, linked, links)
    }

    #[test]
    fn the_cost_is_that_of_the_links() {
        for count in [16, 64, 200] {
            let (steps, mut linked, links) = crowd(count);
            let mut paths = Paths::default();
            let wanted = vec![1.0; count as usize];
            let told =
                paths.go(&steps, 0, &mut linked, (Turns::ANY, &wanted)).expect("there are ways");
            assert_eq!(told.children.len(), count as usize);
            let most = (MOST_HEARD * links) as u64;
            assert!(paths.reached <= most, "{} of {links}", paths.reached);
            assert!(paths.states.iter().all(|state| state.until == 0.0));
        }
    }

    /// All paths of a request with few children, each by itself.
    #[test]
    fn all_ways_together_are_the_sum_of_each() {
        let (steps, mut linked, _) = crowd(7);
        let wanted = [1.0; 7];
        let mut each = [0.0; 7];
        let turns = Turns::ANY;
        let mut all = turns.only * 0.1;
        let mut ways = vec![(vec![0_usize], (1.0 - turns.only) * 0.1)];
        ways.extend((1..7).map(|first| (vec![first], (1.0 - turns.only) * 0.1)));
        while let Some((way, likely)) = ways.pop() {
            let of = |at: usize| &steps.children[at];
            let heard_ns = way.iter().map(|at| of(*at).heard.ns).max().unwrap_or(0);
            let ends = likely * 0.1 * (1.0 - turns.beside) * (1.0 - turns.next);
            all += ends;
            way.iter().for_each(|at| each[*at] += ends);
            for next in way[way.len() - 1] + 1..7 {
                let goes_on = match of(next).asked.at.ns > heard_ns {
                    true => (1.0 - turns.beside) * turns.next,
                    // Beside the child that was asked last, if that is not answered yet.
                    false if of(next).asked.at.ns <= of(way[way.len() - 1]).heard.ns => {
                        turns.beside
                    }
                    false => continue,
                };
                let more = way.iter().copied().chain([next]).collect();
                ways.push((more, likely * 0.1 * goes_on));
            }
        }
        let mut paths = Paths::default();
        let told = paths.go(&steps, 0, &mut linked, (turns, &wanted)).expect("there are ways");
        assert!((told.logarithm - all.ln()).abs() < 1e-9, "{} {}", told.logarithm, all.ln());
        for (child, likely) in told.children {
            assert!((likely - each[child as usize] / all).abs() < 1e-9);
        }
    }
}
