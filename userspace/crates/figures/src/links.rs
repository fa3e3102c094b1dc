//! Which requests were made for which, added up: requests with the same way from the outermost request share a node.

use std::collections::{BTreeMap, HashMap};

use rustc_hash::FxHashMap;

use rpcprobe_model::{Kind, Request};
use rpcprobe_report::values::Values;

/// Methods that have nodes of their own; of more, the others share one.
const MOST_NAMES: usize = 500;
/// Generations told apart.
const DEEPEST: usize = 8;

type Label = (Kind, Option<u32>);

struct Link {
    parent: Option<u64>,
    label: Label,
    latency_ns: u64,
    detached: bool,
}

/// Complete requests by number, of each capture.
#[derive(Default)]
pub struct Links {
    links: Vec<FxHashMap<u64, Link>>,
    names: HashMap<String, u32>,
    by_number: Vec<String>,
}

/// Requests with the same way from the outermost.
pub struct Node {
    pub depth: usize,
    pub kind: Kind,
    pub method: Option<String>,
    pub requests: u64,
    /// Whose parent was answered before them.
    pub detached: u64,
    /// 10th, 50th and 99th percentile, nanoseconds.
    pub latency_ns: [u64; 3],
    /// Requests of the node above it; `None` of the outermost.
    pub of: Option<u64>,
}

#[derive(Default)]
struct NodeSums {
    children: BTreeMap<Label, usize>,
    depth: usize,
    requests: u64,
    detached: u64,
    latencies: Values,
}

impl Links {
    pub fn add(&mut self, capture: usize, request: &Request) {
        if self.links.len() <= capture {
            self.links.resize_with(capture + 1, FxHashMap::default);
        }
        let method = request.method.as_deref().and_then(|method| match self.names.get(method) {
            Some(number) => Some(*number),
            None if self.by_number.len() < MOST_NAMES => {
                let number = self.by_number.len() as u32;
                self.names.insert(method.to_owned(), number);
                self.by_number.push(method.to_owned());
                Some(number)
            }
            None => None,
        });
        let link = Link {
            parent: request.parent_request_id,
            label: (request.kind, method),
            latency_ns: request.latency_ns,
            detached: request.detached,
        };
        self.links[capture].insert(request.request_id, link);
    }

    /// All nodes, parents before their children, siblings with most requests first; at most so many.
    pub fn nodes(&self, most: usize) -> (Vec<Node>, usize) {
        let mut sums: Vec<NodeSums> = vec![NodeSums::default()];
        for links in &self.links {
            let mut places: FxHashMap<u64, usize> = FxHashMap::default();
            for id in links.keys() {
                place(*id, links, &mut places, &mut sums);
            }
        }
        let mut nodes = Vec::new();
        let mut open = vec![(0, None, None)];
        while let Some((at, label, of)) = open.pop() {
            let mut children: Vec<(Label, usize)> =
                sums[at].children.iter().map(|(label, at)| (*label, *at)).collect();
            // The last pushed is the first popped.
            children.sort_by_key(|(label, at)| (sums[*at].requests, std::cmp::Reverse(*label)));
            let requests = sums[at].requests;
            open.extend(
                children
                    .into_iter()
                    .map(|(label, child)| (child, Some(label), Some(requests).filter(|_| at != 0))),
            );
            if let Some((kind, method)) = label {
                nodes.push(self.node(&mut sums[at], kind, method, of));
            }
        }
        let all = nodes.len();
        nodes.truncate(most);
        (nodes, all)
    }

    fn node(&self, sums: &mut NodeSums, kind: Kind, method: Option<u32>, of: Option<u64>) -> Node {
        let method = method.map(|number| self.by_number[number as usize].clone());
        let latency_ns = [10, 50, 99].map(|p| sums.latencies.nearest_rank(sums.requests, p));
        let NodeSums { depth, requests, detached, .. } = *sums;
        Node { depth: depth - 1, kind, method, requests, detached, latency_ns, of }
    }
}

/// In place of a place: of a request on the way that is being followed.
const ON_THE_WAY: usize = usize::MAX;

/// Where the request's node is; counts it there when it is asked for first.
fn place(
    id: u64,
    links: &FxHashMap<u64, Link>,
    places: &mut FxHashMap<u64, usize>,
    sums: &mut Vec<NodeSums>,
) -> usize {
    // The way up to the first that has a place; a parent that is not there, or a circle, ends it.
    let mut way = Vec::new();
    let (mut at, mut next) = (0, Some(id));
    while let Some(id) = next {
        match places.get(&id) {
            Some(&ON_THE_WAY) => break,
            Some(known) => {
                at = *known;
                break;
            }
            None => {}
        }
        let Some(link) = links.get(&id) else { break };
        places.insert(id, ON_THE_WAY);
        way.push(id);
        next = link.parent;
    }
    for id in way.into_iter().rev() {
        let link = &links[&id];
        let above = if sums[at].depth < DEEPEST { at } else { 0 };
        let new = sums.len();
        let child = *sums[above].children.entry(link.label).or_insert(new);
        if child == new {
            sums.push(NodeSums { depth: sums[above].depth + 1, ..NodeSums::default() });
        }
        sums[child].requests += 1;
        sums[child].detached += u64::from(link.detached);
        if link.latency_ns > 0 {
            sums[child].latencies.push(link.latency_ns);
        }
        places.insert(id, child);
        at = child;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_with_one_way_share_a_node() {
        let mut links = Links::default();
        let mut add = |id, parent, kind, latency_ns| {
            let mut request = Request::new(kind, 0, latency_ns);
            (request.request_id, request.parent_request_id) = (id, parent);
            links.add(0, &request);
        };
        add(3, Some(1), Kind::Pipe, 10);
        add(4, Some(1), Kind::Pipe, 30);
        add(5, Some(4), Kind::Tcp, 7);
        add(1, None, Kind::Exec, 100);
        // Its parent is not in the capture; two that are each other's parents.
        add(9, Some(8), Kind::Pipe, 5);
        add(11, Some(12), Kind::Udp, 1);
        add(12, Some(11), Kind::Udp, 1);
        let (nodes, all) = links.nodes(100);
        assert_eq!(nodes.iter().map(|node| node.requests).sum::<u64>(), 7);
        let at = nodes.iter().position(|node| node.kind == Kind::Exec).expect("the outermost");
        let shown = |node: &Node| (node.depth, node.kind, node.requests, node.of);
        assert_eq!(shown(&nodes[at + 1]), (1, Kind::Pipe, 2, Some(1)));
        assert_eq!(shown(&nodes[at + 2]), (2, Kind::Tcp, 1, Some(2)));
        assert_eq!(nodes[at + 1].latency_ns, [10, 10, 30]);
        assert_eq!((links.nodes(2).0.len(), links.nodes(2).1), (2, all));
    }
}
