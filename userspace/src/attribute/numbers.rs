//! The numbers that requests have in the tables: 1, 2, ... in the order of their rows.
//!
//! The engine's own ids have gaps: some are given to requests that turn out to be none, or not asked for.
//! It names a parent before it has found it, so those ids are remembered until all rows are known.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::assign::Assigned;
use crate::engine::detect::is_ahead;
use crate::model::Request;
use crate::output::ParentRow;

/// Numbers given so far.
#[derive(Debug, Default)]
pub struct Numbers {
    given: u64,
    /// By the engine's ids, of those that others may name, and of those that nothing has told the parents of.
    of_parents: FxHashMap<u64, ParentRow>,
    /// Whether any request names a parent.
    pub any_parent: bool,
}

impl Numbers {
    /// Gives the request of the next row its number; its parent keeps the engine's id.
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

    /// The rows of the parents that the times of all told, by the numbers of their children.
    pub fn assigned(&self, all: &[Assigned]) -> HashMap<u64, ParentRow> {
        let rows =
            |one: &Assigned| Some((self.of_parent(one.child)?.number, self.of_parent(one.parent)?));
        all.iter().filter_map(rows).collect()
    }

    /// The row of the request with that id, if it has one.
    pub fn of_parent(&self, id: u64) -> Option<ParentRow> {
        self.of_parents.get(&id).copied()
    }
}
