//! Infers the parents of what a proxy asks, from the order in which it passes requests on.
//!
//! A loop that passes each request on asks in the order in which it has read the questions. With hundreds of requests
//! in progress every child fits hundreds of them, but there is only one way to pair all of them in order. That the
//! order is kept is not known beforehand. The answers show it: paired in order, each child has to lie within its
//! request. If the order were another one, a request would be answered before its child is, because answers come in
//! another order than they were asked for, and are passed on as they come. Where a loop has so much to do that it
//! passes answers on late, they still leave in the order in which they have come.
//!
//! A few requests that are not passed on, and a few children that are nobody's (health checks), are left out
//! ([`align`]). The result counts only if a control confirms it: if requests are paired with the children of their
//! neighbours, many children must not lie within their requests, or many answers must leave in another order.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{Assigned, Made, Served, AGREED_PART, CHECKED};

/// Limit of the difference between the places of a request and its child in the two orders. Where HAProxy and Squid
/// keep the order it is at most 2, and 397 for pgbouncer with 200 clients.
const MOST_SHIFT: usize = 512;
/// What it costs to leave out a request or a child. A pair gains 1.
const LEFT_OUT: i32 = 2;
/// Limit of those that are left out, as a part of the pairs. It is at most 0.003 where HAProxy and Squid keep the
/// order, 0.02 to 0.08 for HAProxy with 1,000 requests in progress, and 0.01 to 0.4 for threads of Go, tokio and
/// asyncio.
const MOST_LEFT_OUT: f64 = 0.02;
/// The least part of the children that is paired. It is 0.99 and more where the order is kept, and 0.35 to 0.6 where
/// several children are made for a request.
const LEAST_PAIRS: f64 = 0.8;
/// The part of the pairs that has to be impossible, or to have its answers in another order, if each request is paired
/// with a neighbour's child. The former is 0.09 to 0.45 for HAProxy with 100 to 500 requests in progress, and
/// 0.006 to 0.2 for Squid with 100 to 1,000; where it is less than 0.06, the latter is 0.17 to 0.65.
const DIFFERENT: f64 = 0.05;
/// The part of the answers that have to be passed on in the order in which they were heard, if this is the evidence. It
/// is 0.999 and more for Squid with 500 and 1,000 requests in progress.
const IN_ORDER: f64 = 0.9;

/// The parents of those of the requests `made` whose parents are not known, among the requests `served` meanwhile; both
/// in order of their begin.
pub(crate) fn assign(served: &[Served], made: &[Made]) -> Vec<Assigned> {
    let mut by_thread: BTreeMap<u32, (Vec<&Served>, Vec<&Made>)> = BTreeMap::new();
    for request in served {
        if let Some(turn) = request.received.turn {
            by_thread.entry(turn.thread).or_default().0.push(request);
        }
    }
    for child in made {
        if let Some(turn) = child.asked.turn {
            by_thread.entry(turn.thread).or_default().1.push(child);
        }
    }
    let has_unknown = |children: &[&Made]| children.iter().any(|made| !made.is_firm());
    let threads = by_thread.into_values().filter(|(_, children)| has_unknown(children));
    threads.flat_map(|(requests, children)| passed_on(&requests, &children)).collect()
}

/// The same for a thread.
fn passed_on(requests: &[&Served], children: &[&Made]) -> Vec<Assigned> {
    if requests.len().min(children.len()) <= CHECKED {
        return Vec::new(); // the control needs more
    }
    // Requests that were over before anything was asked, and children asked before anything was read.
    let (Some(asked), Some(received)) = (children.first(), requests.first()) else {
        return Vec::new();
    };
    let over = requests.iter().take_while(|of| of.answered.ns < asked.asked.ns).count();
    let before = children.iter().take_while(|of| of.asked.ns < received.received.ns).count();
    let (requests, children) = (&requests[over..], &children[before..]);
    let pairs = align(requests.len(), children.len(), |request, child| {
        lies_within(children[child], requests[request])
    });
    let pairs: Vec<_> = pairs.into_iter().map(|(i, j)| (requests[i], children[j])).collect();
    match is_borne_out(&pairs, requests, children) {
        true => pairs.into_iter().filter(|(_, child)| !child.is_firm()).map(assigned).collect(),
        false => Vec::new(),
    }
}

fn assigned((parent, child): (&Served, &Made)) -> Assigned {
    Assigned { child: child.id, parent: parent.id }
}

fn lies_within(child: &Made, request: &Served) -> bool {
    request.received.ns <= child.asked.ns && child.heard.ns <= request.answered.ns
}

/// Whether enough of what lies between the first pair and the last one is paired, known parents agree, and the control
/// confirms the order.
fn is_borne_out(pairs: &[(&Served, &Made)], requests: &[&Served], children: &[&Made]) -> bool {
    let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else { return false };
    let within = |ns: u64, first_ns: u64, last_ns: u64| (first_ns..=last_ns).contains(&ns);
    let read = requests
        .iter()
        .filter(|of| within(of.received.ns, first.0.received.ns, last.0.received.ns));
    let asked = children.iter().filter(|of| within(of.asked.ns, first.1.asked.ns, last.1.asked.ns));
    let left_out = read.count() + asked.count() - 2 * pairs.len();
    let known = pairs.iter().filter(|(_, child)| child.is_firm());
    let agreed = known.clone().filter(|(parent, child)| child.parent == Some(parent.id));
    let paired = pairs.len() as f64;
    paired >= LEAST_PAIRS * children.len() as f64
        && left_out as f64 <= MOST_LEFT_OUT * paired
        && agreed.count() as f64 >= AGREED_PART * known.count() as f64
        && is_confirmed(pairs)
}

/// Whether pairs of neighbours are impossible, or have their answers in another order.
fn is_confirmed(pairs: &[(&Served, &Made)]) -> bool {
    let neighbours = [(0, 1), (1, 0)].map(|(from, to): (usize, usize)| -> Vec<_> {
        let both = pairs[from..].iter().zip(&pairs[to..]);
        both.map(|((request, _), (_, child))| (*request, *child)).collect()
    });
    let enough = (DIFFERENT * pairs.len() as f64).max(CHECKED as f64);
    let impossible = |pairs: &Vec<(&Served, &Made)>| {
        pairs.iter().filter(|(request, child)| !lies_within(child, request)).count() as f64
    };
    if neighbours.iter().all(|pairs| impossible(pairs) >= enough) {
        return true;
    }
    let kept = in_order(pairs) as f64;
    let control = neighbours.iter().map(|pairs| in_order(pairs)).max().unwrap_or(0);
    kept >= IN_ORDER * pairs.len() as f64 && kept - control as f64 >= enough
}

/// The number of pairs whose answers have the same place in the order in which answers are heard and in that in which
/// they are passed on. If one of the orders lacks the first answers of the other, all places are shifted alike.
fn in_order(pairs: &[(&Served, &Made)]) -> usize {
    let places = |end_ns: &dyn Fn(usize) -> u64| {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|at| end_ns(*at));
        let mut places = vec![0; pairs.len()];
        order.into_iter().enumerate().for_each(|(place, at)| places[at] = place);
        places
    };
    let heard = places(&|at| pairs[at].1.heard.ns);
    let passed_on = places(&|at| pairs[at].0.answered.ns);
    let mut shifts: FxHashMap<usize, usize> = FxHashMap::default();
    for (heard, passed_on) in heard.into_iter().zip(passed_on) {
        *shifts.entry(passed_on.wrapping_sub(heard)).or_default() += 1;
    }
    shifts.into_values().max().unwrap_or(0)
}

/// How the best way to a place came there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Begins,
    Pair,
    WithoutRequest,
    WithoutChild,
}

/// Pairs `requests` with `children`, both in order, where `may` says which may be a pair: as many pairs as possible,
/// and little left out between them. Before the first pair and after the last one anything may be left out. (Global
/// alignment with free ends, in a band.)
fn align(
    requests: usize,
    children: usize,
    may: impl Fn(usize, usize) -> bool,
) -> Vec<(usize, usize)> {
    let width = 2 * MOST_SHIFT + 1;
    // The place after `i` requests and `j` children is at i - j + MOST_SHIFT of row j.
    let request_at = |j: usize, at: usize| (j + at).checked_sub(MOST_SHIFT);
    let mut came = vec![Came::Begins; (children + 1) * width];
    let mut row = vec![0; width];
    let mut best = (0, 0, 0);
    for j in 0..=children {
        let above = row.clone();
        for at in 0..width {
            let Some(i) = request_at(j, at).filter(|i| *i <= requests) else {
                row[at] = i32::MIN / 2;
                continue;
            };
            if i == 0 || j == 0 {
                row[at] = 0;
                continue;
            }
            let without_request = match at {
                0 => i32::MIN / 2,
                _ => row[at - 1] - LEFT_OUT,
            };
            let without_child = above.get(at + 1).map_or(i32::MIN / 2, |score| score - LEFT_OUT);
            let mut score = (without_request, Came::WithoutRequest);
            if without_child > score.0 {
                score = (without_child, Came::WithoutChild);
            }
            if above[at] >= score.0 && may(i - 1, j - 1) {
                score = (above[at] + 1, Came::Pair);
            }
            row[at] = score.0;
            came[j * width + at] = score.1;
            if (i == requests || j == children) && score.0 > best.0 {
                best = (score.0, j, at);
            }
        }
    }
    let (_, mut j, mut at) = best;
    let mut pairs = Vec::new();
    loop {
        match came[j * width + at] {
            Came::Begins => break,
            Came::Pair => {
                j -= 1;
                pairs.extend(request_at(j, at).map(|i| (i, j)));
            }
            Came::WithoutRequest => at -= 1,
            Came::WithoutChild => (j, at) = (j - 1, at + 1),
        }
    }
    pairs.reverse();
    pairs
}
