//! rpcprobe: where did this request's latency go?
//!
//! Data flows one way: [`probe`] (hooks, rings) -> [`capture`] (`events.bin`) -> [`engine`]
//! (timelines, messages, requests, walk) -> [`model`] (segments) -> [`output`] (Parquet) ->
//! [`report`]. [`session`] runs the first part, [`attribute`] the rest.

pub mod attribute;
pub mod capture;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod compare;
pub mod engine;
pub mod interrupt;
pub mod laws;
pub mod memory;
pub mod methods;
pub mod model;
pub mod output;
pub mod owner;
pub mod probe;
pub mod progress;
pub mod records;
pub mod report;
pub mod select;
pub mod session;
pub mod stats;
pub mod symbols;
pub mod target;
pub mod wanted;
pub mod whatif;
