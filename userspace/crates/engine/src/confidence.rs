//! Confidence that a detected request is real and of the reported kind.

use crate::protocols::Protocol;
use crate::timeline::World;
use crate::walk::Goal;
use rpcprobe_model::{Certainty, Kind, Reason, Request};

/// Of a request that was found so.
pub fn of(world: &World, goal: &Goal, request: &Request) -> Certainty {
    // Which end asks is not known.
    if matches!(request.reason, Some(Reason::AskerUnknown | Reason::WordOlder)) {
        return Certainty::Guessed;
    }
    if let Some(protocol) = Protocol::of_kind(request.kind) {
        let shown = request.complete && protocol.proves_itself();
        let is_sure = shown || begin_was_seen(world, goal);
        return if is_sure { Certainty::Sure } else { Certainty::Likely };
    }
    match request.kind {
        Kind::Exec | Kind::Process => Certainty::Sure,
        Kind::Tcp if !begin_was_seen(world, goal) && !role_is_known(world, goal) => {
            Certainty::Guessed
        }
        _ => Certainty::Likely,
    }
}

/// Whether it was known beforehand which end of the connection is the server's.
fn role_is_known(world: &World, goal: &Goal) -> bool {
    let mut channels = goal.messages.iter().filter_map(|m| world.channels.get(&m.object));
    channels.any(|channel| channel.role.is_some())
}

/// Whether the request's connection was opened, or accepted, in the capture: a framing is then known from
/// its first bytes.
fn begin_was_seen(world: &World, goal: &Goal) -> bool {
    let channels = goal.messages.iter().filter_map(|m| world.channels.get(&m.object));
    let mut openings = channels.map(|channel| channel.connected.or(channel.accepted));
    openings.any(|opening| opening.is_some())
}
