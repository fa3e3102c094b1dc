//! Servers under load on the simulated machine: connections over Unix sockets, loopback and devices, accepts, locks,
//! hand-overs between threads, servers behind servers, several requests in flight, one end traced or both. The
//! engine's answers are judged by what really happened, not by a copy of its rules (`laws.rs` says what has to hold,
//! `score.rs` how often the rest does).
//!
//! ```
//! RPCPROBE_PROPERTY_CASES=1000000 cargo test --test walk_properties under_load -- --nocapture
//! ```
//!
//! checks this number of traces and prints the score; another `RPCPROBE_PROPERTY_SEED` gives other traces.

mod after;
mod bytes;
pub mod facts;
mod laws;
pub mod net;
pub mod programs;
mod score;
pub mod steps;
mod timers;
mod told;
mod verdict;
