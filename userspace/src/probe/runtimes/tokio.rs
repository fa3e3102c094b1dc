//! tokio, which is a part of Rust programs: finds its functions in a program's file (`bpf/tokio.bpf.c`).

use anyhow::{bail, Result};

use super::image::Image;
use super::{place_in_c, Found, Runtime};

pub const TOKIO: Runtime = Runtime {
    name: "tokio",
    needs: "tokio with symbols",
    programs: &[
        "on_tokio_running",
        "on_tokio_idle",
        "on_tokio_complete",
        "on_tokio_polled",
        "on_tokio_wake",
        "on_tokio_timers",
        "on_tokio_queued",
        "on_tokio_ready",
        "on_tokio_acquire",
        "on_tokio_acquired",
        "on_tokio_release",
    ],
    find,
};

/// What the programs hook: the path and the name of each function. The first functions tell which task a thread runs,
/// by the task's state or, where the linker has inlined these, by the function that polls the task.
const BY_STATE: &[Function] = &[
    Function("on_tokio_idle", "tokio::runtime::task::state::State", "transition_to_idle"),
    Function("on_tokio_running", "tokio::runtime::task::state::State", "transition_to_running"),
    Function("on_tokio_complete", "tokio::runtime::task::state::State", "transition_to_terminal"),
];
const BY_POLL: &[Function] = &[
    Function("on_tokio_polled", "tokio::runtime::task::raw", "poll"),
    Function("on_tokio_running", "tokio::runtime::task::raw", "poll"),
    Function("on_tokio_complete", "tokio::runtime::task::raw", "dealloc"),
];
const WAKES: &[Function] = &[
    Function("on_tokio_wake", "tokio::runtime::task::waker", "wake_by_val"),
    Function("on_tokio_wake", "tokio::runtime::task::waker", "wake_by_ref"),
];
/// Missing if tokio was built without them, or if they were inlined.
const REST: &[Function] = &[
    Function("on_tokio_queued", "multi_thread::", "schedule_option_task_without_yield"),
    Function("on_tokio_queued", "tokio::runtime::scheduler::current_thread::", "schedule"),
    Function("on_tokio_timers", "tokio::runtime::time", "process_at_time"),
    Function("on_tokio_ready", "scheduled_io::ScheduledIo", "wake"),
    Function("on_tokio_acquire", "<tokio::sync::batch_semaphore::Acquire as ", "poll"),
    Function("on_tokio_acquired", "<tokio::sync::batch_semaphore::Acquire as ", "drop"),
    Function("on_tokio_release", "tokio::sync::batch_semaphore::Semaphore", "add_permits_locked"),
];

/// A program of the BPF object, a part of the path of the function that it hooks, and the function's name.
struct Function(&'static str, &'static str, &'static str);

/// Finds tokio in a program.
fn find(image: &Image<'_>) -> Result<Option<Found>> {
    let all = [BY_STATE, BY_POLL, WAKES, REST];
    let mut found: [Vec<Vec<u64>>; 4] = all.map(|functions| vec![Vec::new(); functions.len()]);
    for (mangled, address) in image.symbols().filter(|(name, _)| name.contains("tokio")) {
        // The name without its hash.
        let demangled = format!("{:#}", rustc_demangle::demangle(mangled));
        let Some((path, name)) = demangled.rsplit_once("::") else { continue };
        let functions = all.iter().zip(&mut found).flat_map(|(of, found)| of.iter().zip(found));
        for (Function(_, within, of), found) in functions {
            // These only call the functions through a table.
            let is_outer = path.ends_with("RawTask");
            if name == *of && path.contains(within) && !is_outer {
                found.push(address);
            }
        }
    }
    if found.iter().flatten().all(Vec::is_empty) {
        return Ok(None);
    }
    image.check_processor()?;
    let has_all = |found: &[Vec<u64>]| !found.iter().any(Vec::is_empty);
    let [by_state, by_poll, wakes, _] = &found;
    let by_state = has_all(by_state);
    if !has_all(wakes) || !by_state && !has_all(by_poll) {
        bail!("its tokio is one that is not known: it has no functions of its own that poll and wake tasks");
    }
    let mut hooks = Vec::new();
    for (functions, found) in all.into_iter().zip(found) {
        let other_way = if by_state { BY_POLL } else { BY_STATE };
        if std::ptr::eq(functions, other_way) {
            continue;
        }
        for (Function(program, _, name), mut addresses) in functions.iter().zip(found) {
            addresses.sort_unstable();
            addresses.dedup();
            for address in addresses {
                hooks.push((
                    *program,
                    format!("{name} of tokio"),
                    place_in_c(image, program, address)?,
                ));
            }
        }
    }
    Ok(Some(Found { hooks, waits: Vec::new(), event_loop: None }))
}
