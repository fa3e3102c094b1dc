//! Whose work a thread does: marks that messages leave on its time line, running sums of what it did, claims of requests
//! on it, and the ledger in which all of its CPU time has an owner or none.

mod claim_list;
pub mod claims;
pub mod ledger;
pub mod marks;
pub mod service_start;
pub mod sums;
