//! The steps of a loop, in order.

use crate::{Made, Served, Step, TURNS};

#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    pub(super) ns: u64,
    pub(super) turn: u64,
    pub(super) begun_ns: [u64; TURNS],
    /// Its place among all steps.
    pub(super) place: u32,
}

impl Instant {
    fn new(step: Step) -> Option<Instant> {
        let turn = step.turn?;
        Some(Instant { ns: step.ns, turn: turn.number, begun_ns: turn.begun_ns, place: 0 })
    }
}

/// Something given out: a child that is asked, or an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    pub(super) at: Instant,
    /// Its place among all that is given out.
    pub(super) number: u32,
    /// How many of its kind are given out in that turn.
    pub(super) beside: f64,
}

/// A request that was served: from when, until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    pub(super) id: u64,
    pub(super) received: Instant,
    pub(super) answered: Output,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Child {
    pub(super) id: u64,
    pub(super) asked: Output,
    pub(super) heard: Instant,
}

/// What a loop served and asked; both in order of their begin.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) parents: Vec<Parent>,
    pub(super) children: Vec<Child>,
    /// The turn of each output, in order.
    pub(super) given_in: Vec<u64>,
}

impl Steps {
    /// The steps whose turns are known.
    pub(super) fn new(served: &[Served], made: &[Made]) -> Steps {
        let output = |at| Output { at, number: 0, beside: 1.0 };
        let parent = |of: &Served| {
            let (received, answered) = (Instant::new(of.received)?, Instant::new(of.answered)?);
            Some(Parent { id: of.id, received, answered: output(answered) })
        };
        let child = |of: &Made| {
            let (asked, heard) = (Instant::new(of.asked)?, Instant::new(of.heard)?);
            Some(Child { id: of.id, asked: output(asked), heard })
        };
        let mut steps = Steps {
            parents: served.iter().filter_map(parent).collect(),
            children: made.iter().filter_map(child).collect(),
            given_in: Vec::new(),
        };
        steps.put_in_order();
        steps
    }

    /// The steps of the first children, and of all that was served meanwhile.
    pub(super) fn first(served: &[Served], made: &[Made], children: usize) -> Steps {
        let made = &made[..children.min(made.len())];
        let until_ns = made.last().map_or(0, |made| made.asked.ns);
        let begun = served.partition_point(|served| served.received.ns <= until_ns);
        Steps::new(&served[..begun], made)
    }

    /// Whether each child may belong to no more than `most` requests, on average.
    pub(super) fn has_few_pairs(&self, most: usize) -> bool {
        let mut left = most * self.children.len();
        let mut fits = |parent: &Parent| {
            let children = self.within(parent).take(left + 1).count();
            let fits = children <= left;
            left = left.saturating_sub(children);
            fits
        };
        self.parents.iter().all(&mut fits)
    }

    fn put_in_order(&mut self) {
        let Steps { parents, children, given_in } = self;
        let mut places: Vec<&mut Instant> = Vec::new();
        for of in parents.iter_mut() {
            places.extend([&mut of.received, &mut of.answered.at]);
        }
        for of in children.iter_mut() {
            places.extend([&mut of.asked.at, &mut of.heard]);
        }
        places.sort_by_key(|at| at.ns);
        for (place, at) in places.into_iter().enumerate() {
            at.place = place as u32;
        }
        let asked = children.iter_mut().map(|of| &mut of.asked);
        let mut asked: Vec<&mut Output> = asked.collect();
        let mut answered: Vec<&mut Output> =
            parents.iter_mut().map(|of| &mut of.answered).collect();
        for outputs in [&mut asked, &mut answered] {
            outputs.sort_by_key(|output| output.at.place);
            for same in outputs.chunk_by_mut(|one, next| one.at.turn == next.at.turn) {
                let beside = same.len() as f64;
                same.iter_mut().for_each(|output| output.beside = beside);
            }
        }
        asked.append(&mut answered);
        asked.sort_by_key(|output| output.at.place);
        given_in.clear();
        for (number, output) in asked.into_iter().enumerate() {
            output.number = number as u32;
            given_in.push(output.at.turn);
        }
    }

    /// Exchanges the answers of children that were in progress at once, and returns how many were exchanged. The result
    /// is a loop that reads and writes the same at the same times, in which no request's steps belong together.
    pub(super) fn swap_answers(&mut self) -> usize {
        let mut swapped = vec![false; self.children.len()];
        for at in 0..self.children.len() {
            let heard_ns = self.children[at].heard.ns;
            let until = self.children.partition_point(|other| other.asked.at.ns < heard_ns);
            let may = |other: &usize| !swapped[*other];
            let others: Vec<usize> = (at + 1..until).filter(may).collect();
            if swapped[at] || others.is_empty() {
                continue;
            }
            // An arbitrary one, but always the same.
            let other = others[(at + 1).wrapping_mul(0x9e37_79b9) / 64 % others.len()];
            let heard = self.children[at].heard;
            self.children[at].heard = std::mem::replace(&mut self.children[other].heard, heard);
            swapped[at] = true;
            swapped[other] = true;
        }
        self.put_in_order();
        swapped.iter().filter(|swapped| **swapped).count()
    }

    /// The children that were asked and answered while the parent was served, as indices.
    pub(super) fn within(&self, parent: &Parent) -> impl Iterator<Item = usize> + '_ {
        let (from_ns, to_ns) = (parent.received.ns, parent.answered.at.ns);
        let first = self.children.partition_point(|child| child.asked.at.ns <= from_ns);
        let until = self.children.partition_point(|child| child.asked.at.ns < to_ns);
        (first..until.max(first)).filter(move |at| self.children[*at].heard.ns < to_ns)
    }
}
