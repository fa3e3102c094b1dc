//! Which end asks on a connection: the end that opened it, or that was known to ask before; otherwise the end that sent
//! its first byte.

use rustc_hash::FxHashMap;

use crate::event::{Io, Object};
use crate::timeline::retention::Held;
use crate::timeline::{Carries, ProcessId, World};

/// The role of a traced process on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

/// The role that is assumed, and whether it is sure: no earlier bytes can have been missed.
#[derive(Clone, Copy, Debug)]
struct Part {
    role: Role,
    sure: bool,
}

/// The roles of processes on their connections, by the channel that they read from: one connection, one entry.
#[derive(Debug, Default)]
pub(super) struct Roles(FxHashMap<(ProcessId, Object), Part>);

impl Roles {
    /// The role of the process that moved these bytes on their connection; `asked`: the channel that it reads from.
    pub(super) fn of(&mut self, world: &World, process: ProcessId, io: &Io, asked: Object) -> Role {
        let part = self.0.entry((process, asked)).or_insert_with(|| {
            let lost_ns = world.begin_lost_ns(io.object, io.reverse, io.offset);
            let role = if io.is_write { Role::Client } else { Role::Server };
            Part { role, sure: lost_ns.is_none() }
        });
        match world.channels.get(&asked).and_then(|channel| channel.role) {
            Some(Carries::Requests) => *part = Part { role: Role::Server, sure: true },
            Some(Carries::Answers) => *part = Part { role: Role::Client, sure: true },
            None => {}
        }
        part.role
    }

    pub(super) fn is_client(&self, process: ProcessId, asked: Object) -> bool {
        self.0.get(&(process, asked)).is_some_and(|part| part.role == Role::Client)
    }

    /// Whether it is sure which end asks on a connection of the process.
    pub(super) fn is_sure(&self, process: ProcessId, asked: Object) -> bool {
        self.0.get(&(process, asked)).is_some_and(|part| part.sure)
    }

    /// Forgets a connection.
    pub(super) fn leave(&mut self, channels: [Object; 2]) {
        self.0.retain(|(_, asked), _| !channels.contains(asked));
    }

    pub(super) fn exit(&mut self, world: &World, process: ProcessId) {
        // Exits of the whole machine are recorded. Most of these processes are not an end of any connection.
        if !world.processes[process as usize].has_connections {
            return;
        }
        self.0.retain(|(owner, _), _| *owner != process);
    }

    pub(super) fn forget(&mut self, world: &World) {
        self.0.retain(|(_, asked), _| world.channels.contains_key(asked));
    }

    pub(super) fn hold(&self, held: &mut Held) {
        held.processes.extend(self.0.keys().map(|(process, _)| *process));
    }
}

/// Whether it is known by now that a channel carries answers, whatever they were taken for before.
pub(super) fn has_proved_answers(world: &World, asked: Object) -> bool {
    let role = world.channels.get(&asked).and_then(|channel| channel.role);
    role == Some(Carries::Answers)
}

/// Whether no traced process is known at the other end of a connection on which a traced process writes to `ours`.
pub(super) fn peer_is_unknown(world: &World, ours: Object, theirs: Object) -> bool {
    let read = world.channels.get(&ours).is_some_and(|channel| channel.is_read);
    let written = world.channels.get(&theirs).is_some_and(|channel| channel.is_written);
    !read && !written
}
