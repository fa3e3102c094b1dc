//! Finds the places in a capture's stacks.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::Result;

use crate::capture::reader::Reader;
use crate::engine::decode::decode;
use crate::engine::event::{Module, What};
use crate::engine::stacks::Frame;
use crate::engine::timeline::retention::Held;
use crate::engine::timeline::World;

/// Addresses by module; `None` is the kernel.
pub type Places = BTreeMap<Option<Module>, BTreeMap<u64, Role>>;

/// How certain it is that there is code at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Found by following a frame pointer: it must be the end of a call.
    Caller,
    /// The processor was there, or the kernel reported it.
    Certain,
}

/// Number of events between two clean-ups of ended threads and processes.
const FORGET_EVERY: u64 = 1 << 16;
/// How long ended threads and processes are kept: records of an end may come in any order.
const KEEP_NS: u64 = 1_000_000_000;

/// Returns every place in the stacks of `events.bin`.
///
/// # Errors
/// Damaged or truncated input.
pub fn places(input: impl Read) -> Result<Places> {
    let mut reader = Reader::new(input, false)?;
    let header = reader.header;
    let mut world = World::new(header.cpus, header.start_ns);
    let mut places = Places::new();
    let mut events = 0_u64;
    while let Some(item) = reader.next_record()? {
        let Some(event) = decode(item.cpu, item.record)? else { continue };
        let stack = match &event.what {
            What::Stack { kernel, .. } => world.stacks.frames(None, kernel, &[]),
            What::Sample { tid, kernel, user, .. } => {
                let process = world.thread_by_tid(*tid).map(|thread| world.thread(thread).process);
                world.stacks.frames(process, kernel, user)
            }
            // Everything that shows which process a thread belongs to, and what the process has
            // mapped.
            What::Fork { .. }
            | What::Exec(_)
            | What::Exit { .. }
            | What::Task { .. }
            | What::Mapping(_) => {
                world.apply(&event);
                events += 1;
                if events.is_multiple_of(FORGET_EVERY) {
                    world.forget_before(event.ts_ns.saturating_sub(KEEP_NS), Held::default());
                }
                continue;
            }
            _ => continue,
        };
        let mut role = Role::Certain;
        for frame in stack.iter() {
            if let Some(place) = world.stacks.place(*frame) {
                let known = places.entry(place.module.cloned()).or_default();
                let known = known.entry(place.address).or_insert(role);
                *known = role.max(*known);
            }
            if !matches!(frame, Frame::Kernel(_) | Frame::Cut) {
                role = Role::Caller;
            }
        }
    }
    Ok(places)
}
