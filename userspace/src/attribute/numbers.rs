//! Ids of requests in the tables: 1, 2, ... in the order of their rows.
//!
//! The engine's own ids have gaps: some are given to candidates that turn out not to be requests, or that were not
//! asked for. The engine names a parent before it has detected it, so those ids are remembered until all rows are
//! known.

use rustc_hash::FxHashMap;

use crate::engine::detect::is_ahead;
use crate::model::Request;
use crate::output::ParentRow;

/// The numbers assigned so far.
#[derive(Debug, Default)]
pub struct Numbers {
    given: u64,
    /// Rows of the requests that others may name, by the engine's ids.
    of_parents: FxHashMap<u64, ParentRow>,
    /// Whether any request has a parent.
    pub any_parent: bool,
}

impl Numbers {
    /// Assigns a number to the request of the next row. The id of its parent stays the engine's.
    pub fn number(&mut self, request: &mut Request) {
        self.given += 1;
        if is_ahead(request.request_id) {
            let (start_ns, number) = (request.start_ns, self.given);
            let end_ns = start_ns.saturating_add(request.latency_ns);
            self.of_parents.insert(request.request_id, ParentRow { number, start_ns, end_ns });
        }
        request.request_id = self.given;
        self.any_parent |= request.parent_request_id.is_some();
    }

    /// Returns the row of the request with this engine id, if it has one.
    pub fn of_parent(&self, id: u64) -> Option<ParentRow> {
        self.of_parents.get(&id).copied()
    }
}
