//! The first pass, over the requests only: chooses the requests to export and finds which of them were made for which.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::{ensure, Result};

use rpcprobe_model::Request;
use rpcprobe_report::ids::Ids;
use rpcprobe_report::{Passes, RequestFilter};
use rpcprobe_tables::RequestRow;

/// Maximum number of requests that get an arrow from the request that they were made for; each takes 24 bytes.
const MOST_LINKS: usize = 1 << 20;

/// Which of the requests that pass the filter are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    /// This many complete requests, those with the largest latency.
    Slowest(usize),
    /// Requests under way at some time in `[from_ns, to_ns)`, counted from the start of the capture.
    Window {
        from_ns: u64,
        to_ns: u64,
    },
}

impl Which {
    fn overlaps(self, request: &Request, capture_start_ns: u64) -> bool {
        let Which::Window { from_ns, to_ns } = self else { return true };
        let end_ns = request.start_ns.saturating_add(request.latency_ns);
        request.start_ns < capture_start_ns.saturating_add(to_ns)
            && end_ns >= capture_start_ns.saturating_add(from_ns)
    }
}

/// A request that was made for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    pub parent: u64,
    pub start_ns: u64,
    pub child: u64,
}

/// Which of the chosen requests were made for which. A link is kept only if the child begins after its parent and not
/// after the parent's end.
#[derive(Default)]
pub struct Links {
    by_parent: Vec<Link>,
    children: Vec<u64>,
    /// Number of requests with a parent that got no link because [`MOST_LINKS`] was reached.
    pub left_out: u64,
}

impl Links {
    /// The links to the children of `parent`, in order of their begin.
    pub fn of(&self, parent: u64) -> &[Link] {
        let first = self.by_parent.partition_point(|link| link.parent < parent);
        let after = self.by_parent.partition_point(|link| link.parent <= parent);
        &self.by_parent[first..after]
    }

    pub fn has(&self, child: u64) -> bool {
        self.children.binary_search(&child).is_ok()
    }

    fn add(&mut self, request: &Request) {
        let Some(parent) = request.parent_request_id else { return };
        if self.by_parent.len() == MOST_LINKS {
            self.left_out += 1;
            return;
        }
        let (child, start_ns) = (request.request_id, request.start_ns);
        self.by_parent.push(Link { parent, start_ns, child });
    }

    /// Keeps the links whose parent is in `rows` and whose child begins within the parent. `rows` may hold other
    /// requests too.
    fn keep_those_of(&mut self, rows: impl Iterator<Item = Result<Request>>) -> Result<()> {
        self.by_parent.sort_unstable();
        let mut kept: Vec<Link> = Vec::new();
        for parent in rows {
            let parent = parent?;
            let end_ns = parent.start_ns.saturating_add(parent.latency_ns);
            let inside = |link: &&Link| parent.start_ns < link.start_ns && link.start_ns <= end_ns;
            kept.extend(self.of(parent.request_id).iter().filter(inside));
        }
        kept.sort_unstable();
        self.children = kept.iter().map(|link| link.child).collect();
        self.children.sort_unstable();
        self.by_parent = kept;
        Ok(())
    }
}

/// The requests chosen from a capture.
pub struct Chosen {
    pub ids: Ids,
    pub requests: u64,
    pub in_capture: u64,
    /// Incomplete requests that may belong to the choice: their unknown latency decides. They are not in `ids`.
    pub may_belong: u64,
    pub links: Links,
}

/// Chooses among the requests of a capture that started at `capture_start_ns`. Each call of `rows` reads them from the
/// beginning.
///
/// # Errors
/// Passes on errors of `rows`; fails if two requests have the same id.
pub fn choose<I: Iterator<Item = Result<RequestRow>>>(
    rows: impl Fn() -> Result<I>,
    filter: &RequestFilter,
    which: Which,
    capture_start_ns: u64,
) -> Result<Chosen> {
    let (mut known, mut ids, mut slowest) = (Ids::default(), Ids::default(), BinaryHeap::new());
    let (mut requests, mut in_capture, mut may_belong) = (0, 0, 0);
    let mut has_parents = false;
    for row in rows()? {
        let request = row?.request;
        let id = request.request_id;
        ensure!(known.insert(id), "two requests have the id {id}");
        in_capture += 1;
        let passes = filter.passes(&request, capture_start_ns);
        if passes == Passes::No || !which.overlaps(&request, capture_start_ns) {
            continue;
        }
        has_parents |= request.parent_request_id.is_some();
        match which {
            _ if passes == Passes::Maybe => may_belong += 1,
            Which::Slowest(_) if !request.complete => may_belong += 1,
            Which::Slowest(most) => {
                slowest.push(Reverse((request.latency_ns, Reverse(id))));
                if slowest.len() > most {
                    slowest.pop();
                }
            }
            _ => {
                requests += 1;
                ids.insert(id);
            }
        }
    }
    for Reverse((_, Reverse(id))) in slowest {
        requests += 1;
        ids.insert(id);
    }
    let wanted = || -> Result<_> {
        let rows = rows()?.map(|row| row.map(|row| row.request));
        Ok(rows.filter(|row| row.as_ref().map_or(true, |of| ids.contains(of.request_id))))
    };
    let mut links = Links::default();
    if has_parents {
        for request in wanted()? {
            links.add(&request?);
        }
        links.keep_those_of(wanted()?)?;
    }
    Ok(Chosen { ids, requests, in_capture, may_belong, links })
}
