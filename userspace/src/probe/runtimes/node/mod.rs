//! Node: finds the functions of its event loop (`bpf/node.bpf.c`) and, in [`environment`], the words in its memory that
//! describe timers.

mod environment;
mod event_loop;
mod watch;

use anyhow::{bail, Result};

use super::image::Image;
use super::{place_in_c, Found, Runtime};
pub use watch::{watch, Loops};

pub const NODE: Runtime = Runtime {
    name: "Node",
    needs: "Node with symbols",
    programs: &[
        "on_node_stream",
        "on_node_opens",
        "on_node_others",
        "on_node_drained",
        "on_node_timers",
        "on_node_timer",
    ],
    find,
};

/// node::Environment::RunTimers(uv_timer_t*)
const RUN_TIMERS: &str = "_ZN4node11Environment9RunTimersEP10uv_timer_s";

/// What the programs hook: the symbol of a function, and its name for people. Functions that begin steps come last: if
/// a step began before the other hooks are attached, its cause would not be known.
const FUNCTIONS: [(&str, &str, &str); 11] = [
    ("on_node_opens", "uv_tcp_connect", "uv_tcp_connect()"),
    ("on_node_opens", "uv_pipe_connect", "uv_pipe_connect()"),
    ("on_node_opens", "uv_accept", "uv_accept()"),
    (
        "on_node_others",
        "_ZN4node11Environment14CheckImmediateEP10uv_check_s",
        "node::Environment::CheckImmediate()",
    ),
    ("on_node_others", "uv__async_io", "uv__async_io()"),
    (
        "on_node_drained",
        "_ZN2v88internal7Isolate16ClearKeptObjectsEv",
        "v8::internal::Isolate::ClearKeptObjects()",
    ),
    ("on_node_timers", RUN_TIMERS, "node::Environment::RunTimers()"),
    ("on_node_stream", "uv__poll_io", "uv__poll_io()"),
    ("on_node_stream", "uv__server_io", "uv__server_io()"),
    ("on_node_stream", "uv__udp_io", "uv__udp_io()"),
    ("on_node_stream", "uv__stream_io", "uv__stream_io()"),
];

/// The loop of a program's first thread: the structure that uv_default_loop() returns.
const EVENT_LOOP: &str = "default_loop_struct";

/// Finds Node in a program's file.
fn find(image: &Image<'_>) -> Result<Option<Found>> {
    if image.exported(RUN_TIMERS).is_none() {
        return Ok(None);
    }
    image.check_processor()?;
    let (mut addresses, mut event_loop) = ([None; FUNCTIONS.len()], None);
    for (symbol, at) in image.symbols() {
        if let Some(place) = FUNCTIONS.iter().position(|(_, name, _)| *name == symbol) {
            addresses[place] = Some(at);
        } else if symbol == EVENT_LOOP {
            event_loop = Some(at);
        }
    }
    let mut hooks = Vec::new();
    for ((program, _, name), address) in FUNCTIONS.into_iter().zip(addresses) {
        let Some(address) = address else {
            bail!("it has no symbol for {name}: it, or the libuv it comes with, was stripped");
        };
        hooks.push((program, name.to_owned(), place_in_c(image, program, address)?));
    }
    let event_loop = event_loop.map(|at| at.wrapping_sub(image.entry()));
    Ok(Some(Found { hooks, waits: Vec::new(), event_loop }))
}
