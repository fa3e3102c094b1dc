//! libuv, the library of the event loops of Node and uvloop: functions that tell which stream is ready
//! (`bpf/libuv.bpf.c`).

use anyhow::{bail, Result};

use super::image::{Image, Place};
use super::place_in_c;

/// What is hooked: the program of the BPF object, the function's symbol, and its name for people.
pub type Function = (&'static str, &'static str, &'static str);

/// Programs of the BPF object.
pub const PROGRAMS: [&str; 3] = ["on_libuv_stream", "on_libuv_opens", "on_libuv_others"];

/// Functions by which streams are opened, or something else is done.
pub const BESIDES: [Function; 4] = [
    ("on_libuv_opens", "uv_tcp_connect", "uv_tcp_connect()"),
    ("on_libuv_opens", "uv_pipe_connect", "uv_pipe_connect()"),
    ("on_libuv_opens", "uv_accept", "uv_accept()"),
    ("on_libuv_others", "uv__async_io", "uv__async_io()"),
];

/// Functions that begin steps.
pub const STEPS: [Function; 4] = [
    ("on_libuv_stream", "uv__poll_io", "uv__poll_io()"),
    ("on_libuv_stream", "uv__server_io", "uv__server_io()"),
    ("on_libuv_stream", "uv__udp_io", "uv__udp_io()"),
    ("on_libuv_stream", "uv__stream_io", "uv__stream_io()"),
];

/// Where to hook the functions of libuv and those of a loop on it. Functions that begin steps come last: if a step
/// began before the other hooks are attached, its cause would not be known.
///
/// # Errors
/// A symbol is missing.
pub fn hooks(image: &Image<'_>, own: &[Function]) -> Result<Vec<(&'static str, String, Place)>> {
    let functions: Vec<Function> = BESIDES.iter().chain(own).chain(&STEPS).copied().collect();
    let mut addresses = vec![None; functions.len()];
    for (symbol, at) in image.symbols() {
        if let Some(place) = functions.iter().position(|(_, name, _)| *name == symbol) {
            addresses[place] = Some(at);
        }
    }
    let mut hooks = Vec::new();
    for ((program, _, name), address) in functions.into_iter().zip(addresses) {
        let Some(address) = address else {
            bail!("it has no symbol for {name}: it, or the libuv it comes with, was stripped");
        };
        hooks.push((program, name.to_owned(), place_in_c(image, program, address)?));
    }
    Ok(hooks)
}
