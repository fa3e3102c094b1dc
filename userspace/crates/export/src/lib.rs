//! Exports captures for other programs: as a Perfetto trace, or the tables as CSV or JSON lines.
//!
//! After a first pass over the requests, everything is written as it is read, in one pass over the tables. Memory grows
//! with the number of threads, not with the number of requests or segments.

mod choice;
mod rows;
mod trace;

pub use choice::{choose, Chosen, Which};
pub use rows::{write as write_rows, Format};
pub use trace::{write as write_trace, LeftOut, Source};

/// Called now and then during an export; an error ends the export.
pub type GoOn<'a> = &'a dyn Fn() -> anyhow::Result<()>;
