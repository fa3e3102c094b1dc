//! For which requests a thread works: marks that messages leave on its time line, running sums of what it did,
//! requests' claims on its work, and the ledger, which assigns all of its CPU time to requests or to no request.

pub mod adjacent;
mod claim_list;
mod claimant;
pub mod claims;
pub mod handed;
pub mod in_order;
pub mod ledger;
pub mod marks;
mod others;
pub mod sakes;
pub mod service_start;
pub mod sums;
mod totals;
mod uses;
pub mod work;
