//! Which steps may lead to which other steps, and how likely.

use super::lags::{Gap, Lags, NEAR};
use super::order::{has_neighbour, Cause, Order, LEAST_LIKELY};
use super::steps::{Instant, Output, Parent, Steps};
use crate::times::MOST_CANDIDATES;
use crate::TURNS;

/// How one step leads to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leads {
    /// A question to its first child.
    First,
    /// An answer to the next child.
    Next,
    /// A child to another that is asked before the first one is answered.
    Beside,
    /// The last answer to the parent's own answer.
    Last,
    /// A question to its answer, if it has no children.
    Only,
}

pub(super) const KINDS: [Leads; 5] =
    [Leads::First, Leads::Next, Leads::Beside, Leads::Last, Leads::Only];
/// Less likely links are left out. Links to children are weighed by how much the children are wanted: a right link is
/// then about 1.
const LEAST: f64 = 1e-7;
const LEAST_WANTED: f64 = 1e-4;
/// How likely a request without children is answered in a turn that is not one of the next turns.
const ANY_TIME: f64 = 1e-3;
/// Limit, before anything is learned, of how often a request is answered after a timer.
const SELDOM: f64 = 0.02;
/// Number of lags that are counted to find the lags that stand out. The lags from `NEAR` on show how often any two
/// steps follow each other by chance.
const COUNTED: usize = 40;

/// A child that may come next; for [`Leads::Last`], the child after whose answer the parent answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) child: u32,
    /// How likely it comes, by its lag and by a timer.
    near: f64,
    due: f64,
    /// How likely it is that the step was made, given everything that was examined.
    pub(super) weight: f64,
}

impl Link {
    pub(super) fn likely(&self) -> f64 {
        self.near + self.due
    }

    #[cfg(test)]
    pub(super) fn of(child: u32, near: f64) -> Link {
        Link { child, near, due: 0.0, weight: 0.0 }
    }
}

/// The links from each parent or child.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) all: Vec<Link>,
    ends: Vec<usize>,
}

impl Links {
    pub(super) fn of(&self, at: usize) -> std::ops::Range<usize> {
        at.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[at]
    }

    pub(super) fn end(&mut self) {
        self.ends.push(self.all.len());
    }
}

/// What is learned of a loop.
#[derive(Debug)]
pub(super) struct Model {
    lags: [Lags; 5],
    /// Number of turns from when a timer goes off until its step is made.
    delay: usize,
    pub(super) order: Order,
}

/// All links, with what is known now.
#[derive(Debug, Default)]
pub(super) struct Linked {
    /// From parents.
    pub(super) first: Links,
    pub(super) last: Links,
    /// From children.
    pub(super) next: Links,
    pub(super) beside: Links,
    /// For each parent, how likely its answer comes when it does if it has no children; by its lag and by a timer.
    pub(super) only: Vec<(f64, f64)>,
}

impl Model {
    /// A model with the lags that stand out: the lags with which more steps follow others than by chance.
    pub(super) fn new(steps: &Steps, horizons_ns: &[u64], delay: usize) -> Model {
        let mut counts = [[0.0; COUNTED]; 5];
        let mut count = |leads: Leads, from: &Instant, to: &Output| {
            let turns = to.at.turn.saturating_sub(from.turn);
            let gap = Gap::between(from, &to.at, delay);
            let lag = match gap.lag {
                NEAR => usize::try_from(turns).map_or(COUNTED, |turns| turns + 1),
                lag => lag,
            };
            if let Some(count) = counts[leads as usize].get_mut(lag) {
                *count += if lag == 0 { 1.0 } else { 1.0 / to.beside };
            }
        };
        for parent in &steps.parents {
            for child in steps.within(parent).take(MOST_CANDIDATES).map(|at| &steps.children[at]) {
                count(Leads::First, &parent.received, &child.asked);
                count(Leads::Last, &child.heard, &parent.answered);
            }
            count(Leads::Only, &parent.received, &parent.answered);
        }
        for (at, child) in steps.children.iter().enumerate() {
            for next in after(steps, at, horizons_ns[at]).map(|at| &steps.children[at]) {
                match next.asked.at.ns > child.heard.ns {
                    true => count(Leads::Next, &child.heard, &next.asked),
                    false => count(Leads::Beside, &child.asked.at, &next.asked),
                }
            }
        }
        let stand_out = |leads: Leads| {
            let counts = &counts[leads as usize];
            let chance = counts[NEAR..].iter().sum::<f64>() / (COUNTED - NEAR) as f64;
            let all = match leads {
                Leads::Next | Leads::Beside => steps.children.len(),
                _ => steps.parents.len(),
            };
            let mut near = [0.0; NEAR];
            for (part, count) in near.iter_mut().zip(counts) {
                *part = ((count - chance).max(0.0) / all.max(1) as f64).max(0.002);
            }
            let sum: f64 = near.iter().sum();
            near.map(|part| part * (0.9 / sum).min(1.0))
        };
        let lags = KINDS.map(|leads| match leads {
            Leads::Last | Leads::Only => Lags::new(stand_out(leads), SELDOM),
            _ => Lags::new(stand_out(leads), 1.0),
        });
        Model { lags, delay, order: Order::new(steps) }
    }

    /// Applies what was learned from some of the steps to all steps.
    pub(super) fn for_all(self, steps: &Steps) -> Model {
        Model { order: Order::new(steps), ..self }
    }

    pub(super) fn delay(&self) -> usize {
        self.delay
    }

    fn likely(
        &self,
        steps: &Steps,
        (leads, least): (Leads, f64),
        from: &Instant,
        to: &Output,
    ) -> (f64, f64) {
        let gap = Gap::between(from, &to.at, self.delay);
        let (near, due) = self.lags[leads as usize].likely(gap);
        let near = if gap.lag == 0 { near } else { near / to.beside };
        let due = if leads == Leads::Beside { 0.0 } else { due / to.beside };
        if near + due < least || leads == Leads::Beside {
            return (near, due);
        }
        let factor = |at| self.order.factor(steps, to.number, at);
        let near = near * factor((from.ns, from.ns));
        (near, if due > 0.0 { due * factor(went_off(self.delay, &to.at)) } else { 0.0 })
    }

    pub(super) fn link(&self, steps: &Steps, horizons_ns: &[u64], wanted: &[f64]) -> Linked {
        let mut linked = Linked::default();
        let add = |links: &mut Links, child: usize, wanted: f64, (near, due): (f64, f64)| {
            if near + due >= LEAST && (near + due) * wanted >= LEAST_WANTED {
                links.all.push(Link { child: child as u32, near, due, weight: 0.0 });
            }
        };
        for parent in &steps.parents {
            for at in steps.within(parent).take(MOST_CANDIDATES) {
                let child = &steps.children[at];
                let first = self.likely(
                    steps,
                    (Leads::First, LEAST_WANTED / wanted[at]),
                    &parent.received,
                    &child.asked,
                );
                add(&mut linked.first, at, wanted[at], first);
                let last = self.likely(steps, (Leads::Last, LEAST), &child.heard, &parent.answered);
                add(&mut linked.last, at, LEAST_WANTED / LEAST, last);
            }
            linked.first.end();
            linked.last.end();
            let (near, _) =
                self.likely(steps, (Leads::Only, LEAST), &parent.received, &parent.answered);
            linked.only.push((near, ANY_TIME));
        }
        for (at, child) in steps.children.iter().enumerate() {
            for other in after(steps, at, horizons_ns[at]) {
                let asked = &steps.children[other].asked;
                if asked.at.ns > child.heard.ns {
                    let next = self.likely(
                        steps,
                        (Leads::Next, LEAST_WANTED / wanted[other]),
                        &child.heard,
                        asked,
                    );
                    add(&mut linked.next, other, wanted[other], next);
                } else {
                    let beside = self.likely(
                        steps,
                        (Leads::Beside, LEAST_WANTED / wanted[other]),
                        &child.asked.at,
                        asked,
                    );
                    add(&mut linked.beside, other, wanted[other], beside);
                }
            }
            linked.next.end();
            linked.beside.end();
        }
        linked
    }

    /// Learns from how likely each link is, among all links.
    pub(super) fn learn(&mut self, steps: &Steps, linked: &Linked, only: &[f64]) {
        let mut causes: Vec<Vec<Cause>> = vec![Vec::new(); steps.given_in.len()];
        let mut besides = vec![0.0; steps.given_in.len()];
        let mut learn = |leads: Leads, from: &Instant, to: &Output, link: &Link| {
            if link.weight < LEAST_LIKELY {
                return;
            }
            let gap = Gap::between(from, &to.at, self.delay);
            let near = link.weight * link.near / link.likely();
            self.lags[leads as usize].learn(gap, near, link.weight - near);
            let number = to.number as usize;
            if leads == Leads::Beside {
                besides[number] += if gap.lag < 2 { link.weight } else { 0.0 };
                return;
            }
            if !has_neighbour(steps, to.number) {
                return;
            }
            causes[number].push((from.ns, from.ns, near));
            if link.due > 0.0 {
                let (from_ns, until_ns) = went_off(self.delay, &to.at);
                causes[number].push((from_ns, until_ns, link.weight - near));
            }
        };
        for (at, parent) in steps.parents.iter().enumerate() {
            for link in &linked.first.all[linked.first.of(at)] {
                let child = &steps.children[link.child as usize];
                learn(Leads::First, &parent.received, &child.asked, link);
            }
            for link in &linked.last.all[linked.last.of(at)] {
                let child = &steps.children[link.child as usize];
                learn(Leads::Last, &child.heard, &parent.answered, link);
            }
            let (near, due) = linked.only[at];
            let link = Link { child: 0, near, due, weight: only[at] };
            learn(Leads::Only, &parent.received, &parent.answered, &link);
        }
        for (at, child) in steps.children.iter().enumerate() {
            for link in &linked.next.all[linked.next.of(at)] {
                let next = &steps.children[link.child as usize];
                learn(Leads::Next, &child.heard, &next.asked, link);
            }
            for link in &linked.beside.all[linked.beside.of(at)] {
                let next = &steps.children[link.child as usize];
                learn(Leads::Beside, &child.asked.at, &next.asked, link);
            }
        }
        self.lags.iter_mut().for_each(Lags::settle);
        self.order.learn(steps, causes, &besides);
    }
}

/// When a timer went off that led to the step `to`, `delay` turns after: from, to.
fn went_off(delay: usize, to: &Instant) -> (u64, u64) {
    let until_ns = match delay {
        0 => to.ns,
        delay => to.begun_ns[delay - 1],
    };
    (to.begun_ns[delay], until_ns)
}

/// The longest delay, in turns.
pub(super) const MOST_DELAY: usize = TURNS - 2;

/// The children that were asked after the child `at` and before `until_ns`.
fn after(steps: &Steps, at: usize, until_ns: u64) -> impl Iterator<Item = usize> + '_ {
    let until = steps.children.len().min(at + 1 + MOST_CANDIDATES);
    (at + 1..until).take_while(move |other| steps.children[*other].asked.at.ns < until_ns)
}

/// For each child, the latest time until which a request that may have asked it was served.
pub(super) fn horizons_ns(steps: &Steps) -> Vec<u64> {
    let mut in_hand: Vec<&Parent> = Vec::new();
    let mut begun = steps.parents.iter().peekable();
    let until = |child: &super::steps::Child| {
        let asked_ns = child.asked.at.ns;
        while let Some(parent) = begun.next_if(|parent| parent.received.ns < asked_ns) {
            in_hand.push(parent);
        }
        in_hand.retain(|parent| parent.answered.at.ns > asked_ns);
        in_hand.iter().map(|parent| parent.answered.at.ns).max().unwrap_or(0)
    };
    steps.children.iter().map(until).collect()
}
