//! uvloop, an event loop for asyncio on libuv: finds the functions of its library by which it writes, and runs timers
//! (`bpf/uvloop.bpf.c`). Its steps are found in CPython (`asyncio.rs`).

use anyhow::Result;

use super::image::Image;
use super::libuv::{self, Function};
use super::{Found, Runtime};

pub const UVLOOP: Runtime = Runtime {
    name: "uvloop",
    needs: "Python",
    programs: &["on_uvloop_timer", "on_uvloop_gives", "on_uvloop_writes"],
    find,
};

/// What the library exports: the function that makes its module.
const MODULE: &str = "PyInit_loop";

/// What is hooked besides the functions of libuv, by Cython's symbols.
const FUNCTIONS: [Function; 5] = [
    ("on_libuv_others", "__pyx_f_6uvloop_4loop_4Loop__on_idle", "uvloop's Loop._on_idle()"),
    (
        "on_libuv_others",
        "__pyx_f_6uvloop_4loop_4Loop__exec_queued_writes",
        "uvloop's Loop._exec_queued_writes()",
    ),
    (
        "on_uvloop_gives",
        "__pyx_f_6uvloop_4loop_8UVStream__initiate_write",
        "uvloop's UVStream._initiate_write()",
    ),
    (
        "on_uvloop_writes",
        "__pyx_f_6uvloop_4loop_8UVStream__exec_write",
        "uvloop's UVStream._exec_write()",
    ),
    ("on_uvloop_timer", "__pyx_f_6uvloop_4loop_11TimerHandle__run", "uvloop's TimerHandle._run()"),
];

/// Finds uvloop in the file of a library.
fn find(image: &Image<'_>) -> Result<Option<Found>> {
    // Other modules of this name have no libuv.
    if image.exported(MODULE).is_none() || image.exported("uv_default_loop").is_none() {
        return Ok(None);
    }
    image.check_processor()?;
    let hooks = libuv::hooks(image, &FUNCTIONS)?;
    Ok(Some(Found { hooks, waits: Vec::new(), event_loop: None }))
}
