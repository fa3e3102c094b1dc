//! Captures for other programs: a Perfetto trace, or the tables as CSV or JSON lines.
//!
//! All is written as it is read, once over the tables after a look at the requests: memory grows with the number of
//! threads, and not with that of requests or segments.

mod choice;
mod rows;
mod trace;

pub use choice::{choose, Chosen, Which};
pub use rows::{write as write_rows, Format};
pub use trace::{write as write_trace, LeftOut, Source};

/// Asked now and then whether to go on.
pub type GoOn<'a> = &'a dyn Fn() -> anyhow::Result<()>;
