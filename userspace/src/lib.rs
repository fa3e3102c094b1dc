//! rpcprobe: where did this request's latency go?
//!
//! Data flows one way, and the crates enforce this: [`probe`] (hooks, rings) -> [`capture`] (`events.bin`) ->
//! [`engine`] (timelines, messages, requests, walk) -> [`model`] (segments) -> [`output`] (Parquet) -> [`report`].
//! [`session`] runs the first part, [`attribute`] the rest.

pub mod attribute;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod compare;
pub mod interrupt;
pub mod invoking_user;
pub mod memory;
pub mod probe;
pub mod process_select;
pub mod progress;
pub mod session;
pub mod symbols;
pub mod target;

pub use rpcprobe_assign as assign;
pub use rpcprobe_capture as capture;
pub use rpcprobe_engine as engine;
pub use rpcprobe_export as export;
pub use rpcprobe_figures as figures;
pub use rpcprobe_model as model;
pub use rpcprobe_model::{laws, request_filter};
pub use rpcprobe_page as page;
pub use rpcprobe_record as records;
pub use rpcprobe_report as report;
pub use rpcprobe_report::whatif;
pub use rpcprobe_rpc_names as methods;
pub use rpcprobe_stats as stats;
pub use rpcprobe_tables as output;
