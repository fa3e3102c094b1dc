//! Node: finds the functions of its event loop (`bpf/node.bpf.c`) and, in [`environment`], the words in its memory that
//! describe timers.

mod environment;
mod event_loop;
mod watch;

use anyhow::Result;

use super::image::Image;
use super::libuv::{self, Function};
use super::{Found, Runtime};
pub use watch::{watch, Loops};

pub const NODE: Runtime = Runtime {
    name: "Node",
    needs: "Node with symbols",
    programs: &["on_node_drained", "on_node_timers", "on_node_timer"],
    find,
};

/// node::Environment::RunTimers(uv_timer_t*)
const RUN_TIMERS: &str = "_ZN4node11Environment9RunTimersEP10uv_timer_s";

/// What is hooked besides the functions of libuv.
const FUNCTIONS: [Function; 3] = [
    (
        "on_libuv_others",
        "_ZN4node11Environment14CheckImmediateEP10uv_check_s",
        "node::Environment::CheckImmediate()",
    ),
    (
        "on_node_drained",
        "_ZN2v88internal7Isolate16ClearKeptObjectsEv",
        "v8::internal::Isolate::ClearKeptObjects()",
    ),
    ("on_node_timers", RUN_TIMERS, "node::Environment::RunTimers()"),
];

/// The loop of a program's first thread: the structure that uv_default_loop() returns.
const EVENT_LOOP: &str = "default_loop_struct";

/// Finds Node in a program's file.
fn find(image: &Image<'_>) -> Result<Option<Found>> {
    if image.exported(RUN_TIMERS).is_none() {
        return Ok(None);
    }
    image.check_processor()?;
    let hooks = libuv::hooks(image, &FUNCTIONS)?;
    let event_loop = { image.symbols() }.find(|(symbol, _)| *symbol == EVENT_LOOP);
    let event_loop = event_loop.map(|(_, at)| at.wrapping_sub(image.entry()));
    Ok(Some(Found { hooks, waits: Vec::new(), event_loop }))
}
