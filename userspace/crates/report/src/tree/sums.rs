//! Adds up the requests with the same path from the outermost request.

use std::collections::BTreeMap;

use super::back_ends::BackEnds;
use super::links::{Link, Linked};
use super::methods::{Method, Methods};
use super::{Above, Parents, Row, Tree, ROWS};
use crate::covered::Covered;
use crate::values::Values;
use rpcprobe_model::Kind;

/// Number of generations that are distinguished.
const DEEPEST: usize = 8;

/// A step of a path. Each generation of requests is at two nodes: the node of the back end, and below it the node of
/// the method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    BackEnd(Kind, Option<u16>),
    Method(Method),
}

/// Orders requests by capture, then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct When {
    /// Number of captures before the request's capture.
    pub captures: usize,
    pub id: u64,
}

struct Node {
    /// The node one step before. For outermost requests this is the root, node 0.
    before: usize,
    /// The first request at this node or below it.
    first: When,
    steps: BTreeMap<Step, usize>,
    generation: usize,
    requests: u64,
    detached: u64,
    latencies: Values,
    total_ns: u128,
    took_ns: u128,
    children_ns: u128,
    parents: Parents,
}

/// The position of a request in the tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Unknown,
    /// On the path that is being followed.
    Ahead,
    /// Neither selected by the filter nor made for a selected request.
    Nowhere,
    TooDeep,
    /// At the node of its method.
    At(usize),
}

pub(super) struct Sums {
    nodes: Vec<Node>,
    deeper: u64,
}

impl Default for Sums {
    fn default() -> Sums {
        let first = When { captures: 0, id: 0 };
        Sums { nodes: vec![Node::new(0, first)], deeper: 0 }
    }
}

impl Node {
    fn new(before: usize, first: When) -> Node {
        Node {
            before,
            first,
            steps: BTreeMap::new(),
            generation: 0,
            requests: 0,
            detached: 0,
            latencies: Values::default(),
            total_ns: 0,
            took_ns: 0,
            children_ns: 0,
            parents: Parents::default(),
        }
    }
}

impl Sums {
    /// Adds a request that has neither a parent nor children.
    pub fn add_alone(&mut self, link: &Link, when: When) {
        if let Place::At(at) = self.below(None, link, when) {
            self.count(link, true, at);
        }
    }

    /// Adds all requests of a capture that have a parent or children.
    pub fn add_linked(&mut self, capture: &Linked) {
        let places = self.places(capture);
        for (link, place) in capture.links.iter().zip(&places) {
            if let Place::At(at) = *place {
                let parent = link.parent.and_then(|parent| capture.place(parent.get()));
                let in_a_program = parent.is_none_or(|at| capture.links[at].is_a_program());
                self.count(link, in_a_program, at);
            }
        }
        self.add_times(capture, &places);
    }

    /// Returns the place of each request. A path ends at a missing parent or a cycle.
    fn places(&mut self, capture: &Linked) -> Vec<Place> {
        let mut places = vec![Place::Unknown; capture.links.len()];
        let mut way = Vec::new();
        for first in 0..capture.links.len() {
            let mut next = Some(first);
            let mut above = None;
            while let Some(at) = next {
                match places[at] {
                    Place::Unknown => {}
                    Place::Ahead => break,
                    known => {
                        above = Some(known);
                        break;
                    }
                }
                places[at] = Place::Ahead;
                way.push(at);
                next = capture.links[at].parent.and_then(|parent| capture.place(parent.get()));
            }
            let when = When { captures: capture.before, id: capture.links[first].id };
            for at in way.drain(..).rev() {
                let place = self.below(above, &capture.links[at], when);
                places[at] = place;
                above = Some(place);
            }
        }
        places
    }

    /// Returns the place of a request made for a request at `above`.
    fn below(&mut self, above: Option<Place>, link: &Link, when: When) -> Place {
        let above = match above {
            Some(Place::At(at)) if self.nodes[at].generation < DEEPEST => at,
            Some(Place::At(_) | Place::TooDeep) => {
                self.deeper += 1;
                return Place::TooDeep;
            }
            _ if link.passes => 0,
            _ => return Place::Nowhere,
        };
        let back_end = self.step(above, Step::BackEnd(link.kind, link.server), when);
        let method = self.step(back_end, Step::Method(link.method), when);
        let generation = self.nodes[above].generation + 1;
        self.nodes[back_end].generation = generation;
        self.nodes[method].generation = generation;
        Place::At(method)
    }

    fn step(&mut self, from: usize, step: Step, when: When) -> usize {
        let new = self.nodes.len();
        let to = *self.nodes[from].steps.entry(step).or_insert(new);
        if to == new {
            self.nodes.push(Node::new(from, when));
        }
        let first = &mut self.nodes[to].first;
        *first = when.min(*first);
        to
    }

    /// Returns the node of a method and the node of its back end.
    fn both(&self, method: usize) -> [usize; 2] {
        [method, self.nodes[method].before]
    }

    /// Counts a request. `in_a_program`: it has no parent, or its parent is a program's life.
    fn count(&mut self, link: &Link, in_a_program: bool, at: usize) {
        for at in self.both(at) {
            let node = &mut self.nodes[at];
            node.requests += 1;
            node.total_ns += u128::from(link.latency_ns);
            node.detached += u64::from(link.detached);
            if link.latency_ns > 0 {
                node.latencies.push(link.latency_ns);
            }
            match link.certainty {
                _ if in_a_program && link.by_a_server => node.parents.not_known += 1,
                Some(certainty) if node.generation > 1 => node.parents.count(certainty),
                _ => {}
            }
        }
    }

    /// Adds up how long children were under way during their parents' time: at the nodes of a row for the children in
    /// that row, and at the nodes above for all children. Children that ran at the same time count once.
    fn add_times(&mut self, capture: &Linked, places: &[Place]) {
        let child = |(at, place): (usize, &Place)| {
            let Place::At(node) = *place else { return None };
            let link = &capture.links[at];
            let parent = capture.place(link.parent?.get())?;
            (self.nodes[node].generation > 1).then_some((parent, at))
        };
        let mut children: Vec<_> = places.iter().enumerate().filter_map(child).collect();
        children.sort_unstable_by_key(|(parent, at)| (*parent, capture.links[*at].start_ns, *at));
        // For each node, the last parent whose time was counted there, and the covered part of that time.
        let mut told = vec![(usize::MAX, Covered::of(0, 0)); self.nodes.len()];
        for (parent, at) in children {
            let Place::At(node) = places[at] else { continue };
            let (of, link) = (&capture.links[parent], &capture.links[at]);
            let mut new_ns = |node: usize| {
                if told[node].0 != parent {
                    told[node] = (parent, Covered::of(of.start_ns, of.end_ns()));
                }
                u128::from(told[node].1.add(link.start_ns, link.end_ns()))
            };
            for at in self.both(node) {
                self.nodes[at].took_ns += new_ns(at);
            }
            // Counts at the parent's own nodes, which none of its children belongs to.
            let above = self.nodes[self.nodes[node].before].before;
            let new_ns = new_ns(above);
            for at in self.both(above) {
                self.nodes[at].children_ns += new_ns;
            }
        }
    }

    /// Returns the rows, each followed by the rows below it; siblings with the most time first.
    pub fn rows(mut self, back_ends: &BackEnds, methods: &Methods) -> Tree {
        let mut rows: Vec<Row> = Vec::new();
        // A node, and the index of the row one level up.
        let mut open: Vec<(usize, Option<usize>)> = vec![(0, None)];
        let mut steps: Vec<Option<Step>> = vec![None; self.nodes.len()];
        for node in &self.nodes {
            node.steps.iter().for_each(|(step, to)| steps[*to] = Some(*step));
        }
        while let Some((mut at, up)) = open.pop() {
            let mut row = up;
            if at != 0 {
                let is_part = matches!(steps[at], Some(Step::Method(_)));
                // A back end with only one method is a single row.
                if let (false, [only]) =
                    (is_part, &Vec::from_iter(self.nodes[at].steps.values())[..])
                {
                    at = **only;
                }
                row = Some(rows.len());
                let level = up.map_or(0, |up| rows[up].level + 1);
                rows.push(Row { level, is_part, up, ..self.row(at, &steps, back_ends, methods) });
            }
            let mut below: Vec<usize> = self.nodes[at].steps.values().copied().collect();
            // Sorted in ascending order, because the node pushed last is popped first.
            let order = |node: &Node| (node.total_ns, std::cmp::Reverse(node.first));
            below.sort_by_key(|at| order(&self.nodes[*at]));
            open.extend(below.into_iter().map(|at| (at, row)));
        }
        let mut tree = Tree { rows, left_out: 0, deeper: self.deeper };
        let (kept, left_out) = tree.largest(ROWS);
        let new_place = |at: usize| kept.binary_search(&at).ok();
        let rows = kept.iter().map(|at| {
            let row = tree.rows[*at].clone();
            Row { up: row.up.and_then(new_place), ..row }
        });
        tree.rows = rows.collect();
        Tree { left_out, ..tree }
    }

    /// Makes a row from a node; the caller fills in its position.
    fn row(
        &mut self,
        at: usize,
        steps: &[Option<Step>],
        back_ends: &BackEnds,
        methods: &Methods,
    ) -> Row {
        let of_back_end = match steps[at] {
            Some(Step::Method(_)) => self.nodes[at].before,
            _ => at,
        };
        let Some(Step::BackEnd(kind, server)) = steps[of_back_end] else {
            unreachable!("a method is a step after a back end, and nothing else is a row")
        };
        let method = match steps[at] {
            Some(Step::Method(Method::Named(number))) => Some(methods.name(number)),
            _ => None,
        };
        let above = self.nodes[of_back_end].before;
        let of_above = &self.nodes[above];
        let took_ns = self.nodes[at].took_ns;
        let above = (above != 0).then(|| Above {
            requests: of_above.requests,
            total_ns: clamp(of_above.total_ns),
            took_ns: clamp(took_ns),
            took_share: took_ns as f64 / (of_above.total_ns.max(1)) as f64,
        });
        let node = &mut self.nodes[at];
        let [p10_ns, p50_ns, p99_ns] =
            [10, 50, 99].map(|percent| node.latencies.nearest_rank(node.requests, percent));
        Row {
            level: 0,
            is_part: false,
            kind,
            server: server.map(|number| back_ends.name(number)),
            method,
            is_others: steps[at] == Some(Step::Method(Method::Other)),
            requests: node.requests,
            detached: node.detached,
            p10_ns,
            p50_ns,
            p99_ns,
            total_ns: clamp(node.total_ns),
            above,
            children_ns: clamp(node.children_ns),
            parents: node.parents,
            up: None,
        }
    }
}

fn clamp(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}
