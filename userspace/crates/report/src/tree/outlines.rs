//! Collects what must be known about all requests before the first one is added up.

use std::collections::HashSet;

use anyhow::Result;

use super::id_masks::IdMasks;
use super::links::is_a_program;
use super::methods::MethodTimes;
use rpcprobe_tables::RequestOutline;

/// Roles of requests and processes in a capture.
#[derive(Default)]
pub(super) struct Roles {
    /// Requests that have children.
    pub parents: IdMasks,
    /// Processes that serve requests.
    pub servers: HashSet<u32>,
}

/// Results from the outlines of all requests of one or more captures.
#[derive(Default)]
pub struct Outlines {
    pub(super) captures: Vec<Roles>,
    pub(super) methods: MethodTimes,
}

impl Outlines {
    /// Takes in the requests of a capture.
    ///
    /// # Errors
    /// Passes on errors of `rows`.
    pub fn capture(
        &mut self,
        rows: impl IntoIterator<Item = Result<RequestOutline>>,
    ) -> Result<()> {
        let mut roles = Roles::default();
        for row in rows {
            let RequestOutline {
                parent_request_id,
                kind,
                latency_ns,
                complete,
                server_pid,
                method,
            } = row?;
            if !complete {
                continue;
            }
            if let Some(parent) = parent_request_id {
                roles.parents.insert(parent);
            }
            if !is_a_program(kind) {
                roles.servers.extend(server_pid);
            }
            if let Some(method) = method {
                self.methods.add(kind, &method, latency_ns);
            }
        }
        self.captures.push(roles);
        Ok(())
    }
}
