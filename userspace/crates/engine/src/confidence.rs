//! Confidence that a detected request is real and of the reported kind.

use crate::protocols::Protocol;
use crate::timeline::{Channel, World};
use crate::walk::Goal;
use rpcprobe_model::{Certainty, Kind, Reason, Request};

/// The certainty of a detected request.
pub fn of(world: &World, goal: &Goal, request: &Request) -> Certainty {
    // It is not known which end asks.
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
        // Several datagrams may be as many questions.
        _ if request.retransmissions.is_some_and(|times| times > 0) => Certainty::Guessed,
        _ if role_is_doubtful(world, goal) || is_anothers_answer(world, goal) => Certainty::Guessed,
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

/// Whether the evidence for the server's end of a flow of datagrams is missing or contradictory.
fn role_is_doubtful(world: &World, goal: &Goal) -> bool {
    let mut channels = goal.messages.iter().filter_map(|m| world.channels.get(&m.object));
    channels.any(|channel| channel.role_is_doubtful)
}

/// Whether the process that answered neither read the question nor was forked since then by the process that read it.
/// Then nothing shows that it was handed the question.
fn is_anothers_answer(world: &World, goal: &Goal) -> bool {
    let (Some(answerer), Some(server)) = (goal.answerer, goal.server_process) else { return false };
    let read = || {
        let asked = goal.messages.first()?;
        let channel = world.channels.get(&asked.object)?;
        Channel::overlapping(&channel.reads, asked.from, asked.to).next()
    };
    let read_ns = read().map_or(u64::MAX, |read| read.exit_ns);
    !world.is_forked_since(answerer, server, read_ns)
}

/// Whether the request's connection was opened, or accepted, in the capture: a framing is then known from
/// its first bytes.
fn begin_was_seen(world: &World, goal: &Goal) -> bool {
    let channels = goal.messages.iter().filter_map(|m| world.channels.get(&m.object));
    let mut openings = channels.map(|channel| channel.connected.or(channel.accepted));
    openings.any(|opening| opening.is_some())
}
