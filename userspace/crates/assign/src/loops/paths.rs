//! The ways through a request: which children it may have had, and how likely each is, by all ways together (the
//! forward-backward algorithm).

use super::links::{Linked, Links};
use super::steps::Steps;

/// How a request goes on, in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// It has no children.
    pub(super) only: f64,
    /// Another child is asked beside one.
    pub(super) beside: f64,
    /// After all answers, another is asked.
    pub(super) next: f64,
}

impl Turns {
    /// Before anything is known.
    pub(super) const ANY: Turns = Turns { only: 0.001, beside: 0.2, next: 0.5 };
}

/// The last child that was asked, and that whose answer came last, of those on a way.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Index of the one whose answer came last.
    heard: u32,
    until: f64,
    from: f64,
}

#[derive(Clone, Copy, Debug)]
enum By {
    First(usize),
    Next(usize),
    Beside(usize),
}

#[derive(Clone, Copy, Debug)]
struct Way {
    /// `None`: the request's own beginning.
    from: Option<(u32, u32)>,
    to: (u32, u32),
    likely: f64,
    by: By,
}

/// What all ways through one request are made of; kept to be used again.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Of each child of the capture, its place among those of this request.
    places: Vec<Option<u32>>,
    children: Vec<u32>,
    states: Vec<Vec<State>>,
    ways: Vec<Way>,
    last: Vec<Option<(usize, f64)>>,
}

/// How likely a request has each child, and how it goes on.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) children: Vec<(u32, f64)>,
    pub(super) only: f64,
    pub(super) nexts: f64,
    pub(super) besides: f64,
    pub(super) lasts: f64,
    /// Of how likely all ways together are.
    pub(super) logarithm: f64,
}

impl Paths {
    /// Goes all ways through a request, and adds to the weights of the links.
    pub(super) fn go(
        &mut self,
        steps: &Steps,
        parent: usize,
        linked: &mut Linked,
        (turns, wanted): (Turns, &[f64]),
    ) -> Option<Told> {
        self.begin(steps, parent, &linked.last, turns);
        self.forward(steps, parent, linked, (turns, wanted));
        let (near, due) = linked.only[parent];
        let only = turns.only * (near + due);
        let mut all = only;
        for states in &mut self.states[..self.children.len()] {
            for state in states {
                state.from = self.last[state.heard as usize].map_or(0.0, |(_, likely)| likely);
                all += state.until * state.from;
            }
        }
        for way in self.ways.iter().rev() {
            let Some((child, state)) = way.from else { continue };
            let from = self.states[way.to.0 as usize][way.to.1 as usize].from;
            self.states[child as usize][state as usize].from += way.likely * from;
        }
        let told = (all > 0.0 && all.is_finite()).then(|| self.tell(linked, only, all));
        self.children.iter().for_each(|child| self.places[*child as usize] = None);
        told
    }

    fn begin(&mut self, steps: &Steps, parent: usize, last: &Links, turns: Turns) {
        self.places.resize(steps.children.len(), None);
        let within = steps.within(&steps.parents[parent]);
        self.children.clear();
        self.children.extend(within.take(crate::times::MOST_CANDIDATES).map(|at| at as u32));
        let count = self.children.len();
        for (place, child) in self.children.iter().enumerate() {
            self.places[*child as usize] = Some(place as u32);
        }
        self.states.resize_with(count.max(self.states.len()), Vec::new);
        self.states.iter_mut().for_each(Vec::clear);
        self.ways.clear();
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

    fn forward(
        &mut self,
        steps: &Steps,
        parent: usize,
        linked: &Linked,
        (turns, wanted): (Turns, &[f64]),
    ) {
        for at in linked.first.of(parent) {
            let link = &linked.first.all[at];
            let likely = (1.0 - turns.only) * link.likely() * wanted[link.child as usize];
            let Some(to) = self.places[link.child as usize] else { continue };
            self.reach(None, (to, to), likely, By::First(at));
        }
        for place in 0..self.children.len() as u32 {
            for state in 0..self.states[place as usize].len() {
                let heard = self.states[place as usize][state].heard;
                let from = Some((place, state as u32));
                let child = self.children[heard as usize] as usize;
                let heard_ns = steps.children[child].heard.ns;
                for at in linked.next.of(child) {
                    let link = &linked.next.all[at];
                    let Some(to) = self.places[link.child as usize] else { continue };
                    let goes_on = (1.0 - turns.beside) * turns.next;
                    let likely = goes_on * link.likely() * wanted[link.child as usize];
                    self.reach(from, (to, to), likely, By::Next(at));
                }
                for at in linked.beside.of(self.children[place as usize] as usize) {
                    let link = &linked.beside.all[at];
                    let Some(to) = self.places[link.child as usize] else { continue };
                    let other = &steps.children[link.child as usize];
                    if other.asked.at.ns > heard_ns {
                        continue;
                    }
                    let heard = if other.heard.ns > heard_ns { to } else { heard };
                    let likely = turns.beside * link.likely() * wanted[link.child as usize];
                    self.reach(from, (to, heard), likely, By::Beside(at));
                }
            }
        }
    }

    /// Goes on with a child, after which the answer came last to that other one.
    fn reach(&mut self, from: Option<(u32, u32)>, (to, heard): (u32, u32), likely: f64, by: By) {
        let until =
            from.map_or(1.0, |(child, state)| self.states[child as usize][state as usize].until);
        let states = &mut self.states[to as usize];
        let state = states.iter().position(|state| state.heard == heard).unwrap_or_else(|| {
            states.push(State { heard, until: 0.0, from: 0.0 });
            states.len() - 1
        });
        states[state].until += until * likely;
        self.ways.push(Way { from, to: (to, state as u32), likely, by });
    }

    fn tell(&self, linked: &mut Linked, only: f64, all: f64) -> Told {
        let mut told = Told { only: only / all, logarithm: all.ln(), ..Told::default() };
        for way in &self.ways {
            let until = way
                .from
                .map_or(1.0, |(child, state)| self.states[child as usize][state as usize].until);
            let from = self.states[way.to.0 as usize][way.to.1 as usize].from;
            let weight = until * way.likely * from / all;
            match way.by {
                By::First(at) => linked.first.all[at].weight += weight,
                By::Next(at) => {
                    linked.next.all[at].weight += weight;
                    told.nexts += weight;
                }
                By::Beside(at) => {
                    linked.beside.all[at].weight += weight;
                    told.besides += weight;
                }
            }
        }
        for (child, states) in self.children.iter().zip(&self.states) {
            let mut sum = 0.0;
            for state in states {
                sum += state.until * state.from / all;
                if let Some((at, likely)) = self.last[state.heard as usize] {
                    let weight = state.until * likely / all;
                    linked.last.all[at].weight += weight;
                    told.lasts += weight;
                }
            }
            if sum > 1e-6 {
                told.children.push((*child, sum));
            }
        }
        told
    }
}
