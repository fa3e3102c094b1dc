//! tokio, which Rust programs have in themselves: where in a program's file its functions are (`bpf/tokio.bpf.c`).

use anyhow::{bail, Result};

use super::entry::Arguments;
use super::image::Image;
use super::{Found, Runtime};

pub const TOKIO: Runtime = Runtime {
    name: "tokio",
    needs: "with tokio and symbols in it",
    programs: &[
        "on_tokio_running",
        "on_tokio_idle",
        "on_tokio_complete",
        "on_tokio_wake",
        "on_tokio_timers",
        "on_tokio_ready",
        "on_tokio_acquire",
        "on_tokio_release",
    ],
    find,
};

/// What the programs hook: where it is defined, and its name. What is not needed is not there where tokio was built without it.
const FUNCTIONS: &[Function] = &[
    needed("on_tokio_idle", "tokio::runtime::task::state::State", "transition_to_idle"),
    needed("on_tokio_running", "tokio::runtime::task::state::State", "transition_to_running"),
    needed("on_tokio_complete", "tokio::runtime::task::state::State", "transition_to_complete"),
    needed("on_tokio_wake", "tokio::runtime::task::waker", "wake_by_val"),
    needed("on_tokio_wake", "tokio::runtime::task::waker", "wake_by_ref"),
    if_there("on_tokio_timers", "tokio::runtime::time", "process_at_time"),
    if_there("on_tokio_ready", "scheduled_io::ScheduledIo", "wake"),
    if_there("on_tokio_acquire", "<tokio::sync::batch_semaphore::Acquire as ", "poll"),
    if_there("on_tokio_release", "tokio::sync::batch_semaphore::Semaphore", "add_permits_locked"),
];

struct Function {
    program: &'static str,
    path: &'static str,
    name: &'static str,
    is_needed: bool,
}

const fn needed(program: &'static str, path: &'static str, name: &'static str) -> Function {
    Function { program, path, name, is_needed: true }
}

const fn if_there(program: &'static str, path: &'static str, name: &'static str) -> Function {
    Function { program, path, name, is_needed: false }
}

/// tokio in a program.
fn find(image: &Image<'_>) -> Result<Option<Found>> {
    let mut found: Vec<Vec<u64>> = vec![Vec::new(); FUNCTIONS.len()];
    for (mangled, address) in image.symbols().filter(|(name, _)| name.contains("5tokio")) {
        // Without its hash.
        let demangled = format!("{:#}", rustc_demangle::demangle(mangled));
        let Some((path, name)) = demangled.rsplit_once("::") else { continue };
        for (function, found) in FUNCTIONS.iter().zip(&mut found) {
            if name == function.name && path.contains(function.path) {
                found.push(address);
            }
        }
    }
    if found.iter().all(Vec::is_empty) {
        return Ok(None);
    }
    image.check_processor()?;
    let mut hooks = Vec::new();
    for (function, mut addresses) in FUNCTIONS.iter().zip(found) {
        if addresses.is_empty() && function.is_needed {
            bail!(
                "its tokio has no function {} of its own (as where the linker optimizes all crates together)",
                function.name
            );
        }
        addresses.sort_unstable();
        addresses.dedup();
        for address in addresses {
            let name = format!("{} of tokio", function.name);
            hooks.push((function.program, name, image.place(address, Arguments::C)?));
        }
    }
    Ok(Some(Found { hooks, waits: Vec::new() }))
}
