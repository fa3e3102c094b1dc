//! Collects requests for the sums. Requests with relatives are kept until all of their capture have been read.

use std::num::NonZeroU64;

use super::back_ends::BackEnds;
use super::methods::{Method, Methods};
use super::outlines::{Outlines, Roles};
use super::sums::{Sums, When};
use super::Tree;
use rpcprobe_model::{Certainty, Kind, Request};

/// One request, reduced to what the tree needs.
pub(super) struct Link {
    pub id: u64,
    pub parent: Option<NonZeroU64>,
    pub start_ns: u64,
    pub latency_ns: u64,
    /// Number of the back end.
    pub server: Option<u16>,
    pub method: Method,
    pub kind: Kind,
    pub certainty: Option<Certainty>,
    pub detached: bool,
    /// Whether the client's process serves requests.
    pub by_a_server: bool,
    /// Whether the request passes the filter. Requests that do not pass are kept because of those that do.
    pub passes: bool,
}

impl Link {
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.latency_ns)
    }

    /// Whether the request is the whole life of a program.
    pub fn is_a_program(&self) -> bool {
        is_a_program(self.kind)
    }
}

/// Whether requests of this kind are whole lives of programs.
pub(super) fn is_a_program(kind: Kind) -> bool {
    matches!(kind, Kind::Exec) || kind.is_fallback()
}

/// The requests of a capture that have a parent or children.
#[derive(Default)]
pub(super) struct Linked {
    /// Number of captures before this one.
    pub before: usize,
    /// Ordered by id, once all have been read.
    pub links: Vec<Link>,
}

impl Linked {
    /// Returns the index of the request with this id.
    pub fn place(&self, id: u64) -> Option<usize> {
        self.links.binary_search_by_key(&id, |link| link.id).ok()
    }
}

/// Collects the complete requests of each capture.
pub struct Links {
    /// Roles in the captures still to come.
    to_come: std::vec::IntoIter<Roles>,
    roles: Roles,
    methods: Methods,
    back_ends: BackEnds,
    capture: Linked,
    sums: Sums,
}

impl Links {
    /// `outlines` must be of the captures that will be added, in the same order.
    pub fn new(outlines: Outlines) -> Links {
        let methods = outlines.methods.largest();
        let mut to_come = outlines.captures.into_iter();
        Links {
            roles: to_come.next().unwrap_or_default(),
            to_come,
            methods,
            back_ends: BackEnds::default(),
            capture: Linked::default(),
            sums: Sums::default(),
        }
    }

    /// Ends a capture, all of whose requests have been added. The next request belongs to the next capture.
    pub fn end_capture(&mut self) {
        let before = self.capture.before + 1;
        let next = Linked { before, links: Vec::new() };
        let mut capture = std::mem::replace(&mut self.capture, next);
        if !capture.links.is_sorted_by_key(|link| link.id) {
            capture.links.sort_by_key(|link| link.id);
        }
        self.sums.add_linked(&capture);
        self.roles = self.to_come.next().unwrap_or_default();
    }

    /// Adds a request; incomplete ones are left out. `passes`: whether the request passes the filter.
    pub fn add(&mut self, request: &Request, passes: bool) {
        if !request.complete {
            return;
        }
        let link = Link {
            id: request.request_id,
            parent: request.parent_request_id.and_then(NonZeroU64::new),
            start_ns: request.start_ns,
            latency_ns: request.latency_ns,
            server: self.back_ends.of(request),
            method: self.methods.of(request.kind, request.method.as_deref()),
            kind: request.kind,
            certainty: request.parent_certainty,
            detached: request.detached,
            by_a_server: (request.client.as_ref())
                .is_some_and(|end| self.roles.servers.contains(&end.pid)),
            passes,
        };
        if link.parent.is_some() || self.roles.parents.contains(link.id) {
            self.capture.links.push(link);
        } else {
            self.sums.add_alone(&link, When { captures: self.capture.before, id: link.id });
        }
    }

    /// Returns the sums over all captures that have ended.
    pub fn tree(self) -> Tree {
        self.sums.rows(&self.back_ends, &self.methods)
    }
}
