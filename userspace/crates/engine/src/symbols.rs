//! Names of the places in code that stacks contain, and what the functions of a stack say. Names are looked
//! up elsewhere, once, when a capture ends.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::event::Module;

/// A function at a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    pub function: String,
    /// Source file and line, where debug data has them.
    pub file: Option<String>,
    pub line: Option<u32>,
    /// Its code is part of the next function's.
    pub inlined: bool,
}

/// A kernel address (no module), or an offset in the file of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place<'m> {
    pub module: Option<&'m Module>,
    pub address: u64,
}

/// The functions at each place, innermost first: inlined functions, then the function that they are inlined in.
#[derive(Debug, Default, PartialEq)]
pub struct Symbols {
    kernel: HashMap<u64, Vec<Line>>,
    modules: HashMap<Module, HashMap<u64, Vec<Line>>>,
}

impl Symbols {
    pub fn insert(&mut self, place: Place<'_>, line: Line) {
        let lines = match place.module {
            None => &mut self.kernel,
            Some(module) => self.modules.entry(module.clone()).or_default(),
        };
        lines.entry(place.address).or_default().push(line);
    }

    /// `None`: the place has no name. Otherwise at least one.
    pub fn at(&self, place: Place<'_>) -> Option<&[Line]> {
        let lines = match place.module {
            None => &self.kernel,
            Some(module) => self.modules.get(module)?,
        };
        lines.get(&place.address).map(|lines| &lines[..])
    }

    /// Every place with its lines, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Place<'_>, &[Line])> {
        let modules = self.modules.iter().map(|(module, lines)| (Some(module), lines));
        let mut all: Vec<_> = std::iter::once((None, &self.kernel))
            .chain(modules)
            .flat_map(|(module, lines)| {
                let place = move |address| Place { module, address };
                lines.iter().map(move |(&address, lines)| (place(address), &lines[..]))
            })
            .collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        all.into_iter()
    }
}

/// The scheduler's and the tracing's own functions, which are at the top of every sleep's stack and say nothing about
/// the sleep.
pub fn is_way_to_sleep(function: &str) -> bool {
    const NAMES: [&str; 10] = [
        "__schedule",
        "schedule",
        "schedule_timeout",
        "schedule_preempt_disabled",
        "schedule_rtmutex",
        "io_schedule",
        "io_schedule_timeout",
        "preempt_schedule",
        "preempt_schedule_common",
        "schedule_hrtimeout_range_clock",
    ];
    const PREFIXES: [&str; 5] =
        ["bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_get_stack"];
    NAMES.contains(&function) || PREFIXES.iter().any(|prefix| function.starts_with(prefix))
}

/// Kernel locks by the functions that wait for them.
fn lock(function: &str) -> Option<&'static str> {
    const LOCKS: [(&str, &str); 8] = [
        ("rwsem_down_read_slowpath", "kernel rwsem (read)"),
        ("down_read", "kernel rwsem (read)"),
        ("rwsem_down_write_slowpath", "kernel rwsem (write)"),
        ("down_write", "kernel rwsem (write)"),
        ("__mutex_lock", "kernel mutex"),
        ("mutex_lock", "kernel mutex"),
        ("percpu_rwsem_wait", "kernel per-CPU rwsem"),
        ("__percpu_down_read", "kernel per-CPU rwsem"),
    ];
    // The compiler appends .constprop.0 and the like; variants have names like down_read_killable.
    LOCKS.iter().find(|(name, _)| function.starts_with(name)).map(|(_, lock)| *lock)
}

/// Why a thread sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SleptFor {
    /// The lock and the function that wants it, or the function that called the scheduler and its caller.
    pub text: String,
    /// It is a kernel lock.
    pub is_lock: bool,
}

/// Why a thread sleeps, from the functions of its kernel stack, innermost first.
pub fn reason<'f>(functions: impl Iterator<Item = &'f str>) -> Option<SleptFor> {
    let mut functions = functions.skip_while(|function| is_way_to_sleep(function)).peekable();
    let first = functions.next()?;
    if let Some(lock) = lock(first) {
        let mut wanting = functions.skip_while(|function| self::lock(function).is_some());
        let text = match wanting.next() {
            Some(function) => format!("{lock} in {function}"),
            None => lock.to_string(),
        };
        return Some(SleptFor { text, is_lock: true });
    }
    let text = match functions.next() {
        Some(caller) => format!("{first} in {caller}"),
        None => first.to_string(),
    };
    Some(SleptFor { text, is_lock: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason_of(functions: &[&str]) -> Option<SleptFor> {
        reason(functions.iter().copied())
    }

    #[test]
    fn reasons() {
        let top = ["bpf_prog_0_on_sched_switch", "bpf_trace_run4", "__schedule", "schedule"];
        let below = |rest: &[&'static str]| reason_of(&[&top, rest].concat());
        let is = |told: Option<SleptFor>, text: &str| {
            let is_lock = text.starts_with("kernel ");
            assert_eq!(told, Some(SleptFor { text: text.into(), is_lock }));
        };
        is(
            below(&["io_schedule", "folio_wait_bit_common", "filemap_fault", "x"]),
            "folio_wait_bit_common in filemap_fault",
        );
        is(
            below(&[
                "schedule_preempt_disabled",
                "rwsem_down_read_slowpath.constprop.0",
                "down_read",
                "do_user_addr_fault",
            ]),
            "kernel rwsem (read) in do_user_addr_fault",
        );
        is(
            below(&[
                "schedule_preempt_disabled",
                "__mutex_lock.isra.0",
                "mutex_lock_killable",
                "ext4_sync_fs",
            ]),
            "kernel mutex in ext4_sync_fs",
        );
        is(below(&["down_write_killable"]), "kernel rwsem (write)");
        is(below(&["do_exit"]), "do_exit");
        assert_eq!(below(&[]), None);
        assert_eq!(reason_of(&[]), None);
    }
}
