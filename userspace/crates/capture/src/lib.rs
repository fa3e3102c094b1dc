//! A capture on disk: `events.bin` and `manifest.json`.

pub mod format;
pub mod manifest;
pub mod reader;
pub mod writer;
